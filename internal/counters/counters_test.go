package counters

import (
	"sync"
	"testing"
	"unsafe"
)

func TestLoad(t *testing.T) {
	if size := unsafe.Sizeof(Line{}); size != 64 {
		t.Errorf("a line has %d bytes", size)
	}
	var c Counters
	var wg sync.WaitGroup
	for i := range 2 * stripes {
		wg.Go(func() {
			l := c.Line(i % stripes)
			l.Negatives.Add(1)
			l.TruePositives.Add(2)
			l.FalsePositives.Add(3)
			l.Unfiltered.Add(4)
			l.BlocksCached.Add(5)
			l.BlocksRead.Add(6)
			l.Hit()
			l.HitLikely()
		})
	}
	wg.Wait()
	const n = 2 * stripes
	if got, want := c.Load(), (Counts{n, 3 * n, 3 * n, 4 * n, 6 * n, 6 * n}); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
}

// A hit is likely after some in a row, and a negative ends the row.
func TestHitLikely(t *testing.T) {
	var l Line
	l.hits.Store(1<<32 - 2) // both halves of streak wrap round
	l.Negatives.Store(1<<33 - 2)
	for range 5 {
		l.Negatives.Add(1)
		if l.HitLikely() {
			t.Error("likely after a negative")
		}
		for i := range 2 * likelyAfter {
			// The hit that comes after a negative begins the row.
			if got, want := l.HitLikely(), i > likelyAfter; got != want {
				t.Errorf("after %d hits: %v", i, got)
			}
			l.Hit()
		}
	}
}
