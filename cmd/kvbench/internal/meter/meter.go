// Package meter says on a terminal how far a run is: a line a second, and one
// at the end of each phase. Where the writer is no terminal it is silent but
// for notes. A Meter is for one goroutine at a time, since the loop that does
// the work also reports it: a phase that hangs therefore says nothing, and no
// goroutine has to be stopped.
//
//	p := meter.New(os.Stderr).Phase("load", n)
//	for i := range n { …; p.Add(1) }
//	p.Done()
package meter

import (
	"fmt"
	"io"
	"os"
	"time"
)

// Meter writes progress.
type Meter struct {
	w        io.Writer
	terminal bool
	now      func() time.Time
}

// New returns a Meter that writes to w, and shows progress if w is a terminal.
func New(w io.Writer) *Meter {
	m := &Meter{w: w, now: time.Now}
	if f, ok := w.(*os.File); ok {
		info, err := f.Stat()
		m.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return m
}

// Note writes one line, terminal or not. That it cannot be written is of no
// interest.
func (m *Meter) Note(format string, args ...any) {
	fmt.Fprintf(m.w, "kvbench: "+format+"\n", args...)
}

// Phase is one part of a run.
type Phase struct {
	m           *Meter
	label       string
	total, done int64
	start, last time.Time
	lastDone    int64
	extra       func() string
	calls       uint
}

// Phase begins a part of total steps; zero is an unknown number.
func (m *Meter) Phase(label string, total int64) *Phase {
	p := &Phase{m: m, label: label, total: total}
	if m.terminal {
		p.start = m.now()
		p.last = p.start
	}
	return p
}

// Extra adds what f returns to each line, such as stalls. f is called once a
// second at most, by the goroutine that calls Add.
func (p *Phase) Extra(f func() string) { p.extra = f }

// Add notes n steps.
func (p *Phase) Add(n int64) { p.Set(p.done + n) }

// Set notes that done steps are done.
func (p *Phase) Set(done int64) {
	p.done = done
	if !p.m.terminal {
		return
	}
	now := p.m.now()
	if since := now.Sub(p.last); since >= time.Second {
		p.line(now, float64(p.done-p.lastDone)/since.Seconds())
		p.last, p.lastDone = now, p.done
	}
}

// Often is Add(1) for loops of microseconds: it looks at the clock at every
// 256th call only.
func (p *Phase) Often() {
	p.calls++
	if p.calls%256 == 0 {
		p.Add(256)
	}
}

func (p *Phase) line(now time.Time, rate float64) {
	share := ""
	if p.total > 0 {
		share = fmt.Sprintf(" of %d  %3.0f %%", p.total, 100*float64(p.done)/float64(p.total))
	}
	extra := ""
	if p.extra != nil {
		extra = "  " + p.extra()
	}
	elapsed := now.Sub(p.start).Seconds()
	fmt.Fprintf(p.m.w, "%-28s %5.0f s  %d%s  %.0f/s now  %.0f/s mean%s\n",
		p.label, elapsed, p.done, share, rate, float64(p.done)/elapsed, extra)
}

// Done ends the part.
func (p *Phase) Done() {
	if !p.m.terminal {
		return
	}
	elapsed := p.m.now().Sub(p.start).Seconds()
	fmt.Fprintf(p.m.w, "%-28s %5.1f s  done\n", p.label, elapsed)
}
