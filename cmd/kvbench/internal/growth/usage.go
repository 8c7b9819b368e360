package growth

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"sievedb/cmd/kvbench/internal/kernel"
)

// usage is what the process had used when a phase began.
type usage struct {
	start    time.Time
	reset    bool // of the peak of resident memory
	gc, busy float64
}

// startUsage gives memory back that earlier phases left, so that the peak is
// that of this one.
func startUsage() usage {
	debug.FreeOSMemory() // collects, which brings the runtime's counts up to date
	u := usage{reset: kernel.ResetPeak()}
	u.gc, u.busy = cpuSeconds()
	u.start = time.Now()
	return u
}

// stop returns what a phase took.
func (u usage) stop(name string) Phase {
	p := Phase{Name: name, Seconds: time.Since(u.start).Seconds()}
	if u.reset {
		p.PeakResidentBytes = kernel.Peak()
	}
	runtime.GC() // the counts are of ended collections, and none may have ended
	gc, busy := cpuSeconds()
	if busy > u.busy {
		p.GCPercent = 100 * (gc - u.gc) / (busy - u.busy)
	}
	return p
}

// cpuSeconds returns the CPU time that garbage collection took, and all but
// what was idle, since the process started.
func cpuSeconds() (gc, busy float64) {
	s := []metrics.Sample{{Name: "/cpu/classes/gc/total:cpu-seconds"}, {Name: "/cpu/classes/total:cpu-seconds"}, {Name: "/cpu/classes/idle:cpu-seconds"}}
	metrics.Read(s)
	return s[0].Value.Float64(), s[1].Value.Float64() - s[2].Value.Float64()
}

// heapObjects returns how many objects are in use.
func heapObjects() uint64 {
	runtime.GC()
	s := []metrics.Sample{{Name: "/gc/heap/objects:objects"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}
