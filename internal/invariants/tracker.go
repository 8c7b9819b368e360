package invariants

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
)

// Tracker knows where what must be closed was opened, if checks are compiled
// in, and does nothing otherwise. It is safe for concurrent use.
type Tracker struct {
	mu   sync.Mutex
	open map[any][]uintptr // guarded by mu: the calls that led there
}

const maxCalls = 16

// Opened notes that the caller of its caller opened x, a pointer.
func (t *Tracker) Opened(x any) {
	if !Enabled {
		return
	}
	calls := make([]uintptr, maxCalls)
	calls = calls[:runtime.Callers(3, calls)] // without Callers, Opened and its caller
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == nil {
		t.open = map[any][]uintptr{}
	}
	t.open[x] = calls
}

// Closed notes that x was closed.
func (t *Tracker) Closed(x any) {
	if !Enabled {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, x)
}

// Open returns, for each that is open, the calls that led to Opened, the
// innermost first, one on a line.
func (t *Tracker) Open() (stacks []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, calls := range t.open {
		var b strings.Builder
		frames := runtime.CallersFrames(calls)
		for more := true; more; {
			var f runtime.Frame
			f, more = frames.Next()
			fmt.Fprintf(&b, "\t%s %s:%d\n", f.Function, f.File, f.Line)
		}
		stacks = append(stacks, b.String())
	}
	return stacks
}
