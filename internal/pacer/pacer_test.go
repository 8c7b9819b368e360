package pacer

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestPacer holds writes to a rate: sleeps that last too long are made up for,
// but an idle time buys no more than maxCredit.
func TestPacer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pacer
		closing := make(chan struct{})
		const kib = 1 << 10
		start := time.Now()
		p.Wait(kib, closing) // no limit yet
		if time.Since(start) != 0 {
			t.Errorf("without a limit: %v", time.Since(start))
		}
		p.Set(1e9 / kib) // a millisecond for each KiB
		time.Sleep(time.Hour)

		start = time.Now()
		for range 1000 {
			p.Wait(kib, closing)
		}
		if took := time.Since(start); took < 899*time.Millisecond || took > 901*time.Millisecond {
			t.Errorf("a thousand milliseconds of writes after an hour took %v", took)
		}
		start = time.Now()
		for range 100 {
			p.Wait(kib, closing)
			time.Sleep(7 * time.Millisecond / 10) // as if each sleep took too long
		}
		if took := time.Since(start); took < 99*time.Millisecond || took > 101*time.Millisecond {
			t.Errorf("a hundred milliseconds of writes took %v", took)
		}
		close(closing)
		start = time.Now()
		p.Wait(1<<20, closing)
		if time.Since(start) != 0 {
			t.Errorf("while closing: %v", time.Since(start))
		}
		if slept := p.Slept(); slept < 900*time.Millisecond || slept > 1100*time.Millisecond {
			t.Errorf("slept %v", slept)
		}
	})
}
