package meter

import (
	"bytes"
	"testing"
	"time"
)

func TestTerminal(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(0, 0)
	m := &Meter{w: &out, terminal: true, now: func() time.Time { return now }}
	p := m.Phase("load", 1000)
	p.Extra(func() string { return "2 stalls" })
	for range 5 {
		now = now.Add(400 * time.Millisecond)
		p.Add(100)
	}
	p.Done()
	m.Note("kept in %s", "there")
	const want = "load                             1 s  300 of 1000   30 %  250/s now  250/s mean  2 stalls\n" +
		"load                           2.0 s  done\n" +
		"kvbench: kept in there\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

func TestOftenCountsWhole(t *testing.T) {
	p := New(new(bytes.Buffer)).Phase("x", 0)
	for range 1024 {
		p.Often()
	}
	if p.done != 1024 {
		t.Errorf("done %d, want 1024", p.done)
	}
}

func TestElsewhereSilent(t *testing.T) {
	var out bytes.Buffer
	m := New(&out)
	p := m.Phase("load", 10)
	p.Extra(func() string { t.Error("asked"); return "" })
	p.Add(10)
	p.Done()
	if out.Len() > 0 {
		t.Errorf("wrote %q", out.String())
	}
	m.Note("one")
	if out.String() != "kvbench: one\n" {
		t.Errorf("wrote %q", out.String())
	}
}
