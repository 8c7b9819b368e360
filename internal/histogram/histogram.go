// Package histogram counts durations in buckets whose width grows with the
// duration, so that percentiles of any size are known within the same relative
// error, in memory that does not depend on the number of recordings.
//
//	var h histogram.Histogram
//	h.Record(time.Since(start))
//	d := h.Load()
//	p99 := d.Quantile(0.99)
//
// A Histogram is safe for concurrent use. Recording takes no lock and
// allocates nothing; it is striped, so that counting does not become what
// goroutines contend for.
package histogram

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
	"unsafe"
)

// Each power of two, in nanoseconds, is divided into 1<<subBits buckets of the
// same width. Below 1<<subBits a bucket is one nanosecond.
const (
	subBits = 4
	// maxBits bounds what is told apart: 1<<40 ns are 18 minutes. Longer
	// durations share the last bucket; their sum and maximum stay exact.
	maxBits = 40
	buckets = (maxBits - subBits + 1) << subBits
)

// MaxError is the relative error of Quantile for durations up to 18 minutes. It
// answers with the middle of a bucket; a bucket that begins at b has a width of
// at most b/16, so the middle is at most b/32 away from what is in it.
const MaxError = 1.0 / (2 << subBits)

// bucketOf returns the bucket of a duration in nanoseconds.
func bucketOf(ns uint64) int {
	if ns < 1<<subBits {
		return int(ns)
	}
	// The leading bit says which power of two, the subBits bits after it which
	// part of that.
	shift := bits.Len64(ns) - 1 - subBits
	return min(shift<<subBits+int(ns>>shift), buckets-1)
}

// middleOf returns the middle of a bucket, in nanoseconds, rounded down.
func middleOf(bucket int) uint64 {
	if bucket < 1<<subBits {
		return uint64(bucket)
	}
	shift := bucket>>subBits - 1
	low := uint64(bucket-shift<<subBits) << shift
	return low + (uint64(1)<<shift-1)/2
}

// stripes is a power of two: so many goroutines can record side by side without
// sharing a cache line.
const stripes = 8

// Histogram counts durations. The zero Histogram is empty and ready to use; it
// takes 37 KiB and must not be copied.
type Histogram struct {
	lines [stripes]struct {
		sum, max atomic.Uint64 // nanoseconds
		counts   [buckets]atomic.Uint64
		_        [48]byte // sum, max and counts fill their cache lines
	}
}

// stripe picks a line by the address of the caller's stack, which differs
// between goroutines and costs nothing to know.
func stripe() int {
	var here byte
	return int(uintptr(unsafe.Pointer(&here))>>11) & (stripes - 1)
}

// Record counts d. A negative duration, which a clock that is set back can
// yield, counts as zero.
func (h *Histogram) Record(d time.Duration) {
	ns := uint64(max(d, 0))
	l := &h.lines[stripe()]
	l.counts[bucketOf(ns)].Add(1)
	l.sum.Add(ns)
	for m := l.max.Load(); ns > m && !l.max.CompareAndSwap(m, ns); m = l.max.Load() {
		// Somebody else raised it meanwhile, perhaps not far enough.
	}
}

// Distribution is what a Histogram held at one time.
type Distribution struct {
	Count uint64
	Sum   time.Duration // exact; it wraps around after 292 years
	Max   time.Duration // exact

	counts [buckets]uint64
}

// Load returns what was recorded. Durations that are recorded at the same time
// may be counted in part.
func (h *Histogram) Load() *Distribution {
	d := new(Distribution)
	for i := range h.lines {
		l := &h.lines[i]
		d.Sum += time.Duration(l.sum.Load())
		d.Max = max(d.Max, time.Duration(l.max.Load()))
		for b := range l.counts {
			n := l.counts[b].Load()
			d.counts[b] += n
			d.Count += n
		}
	}
	return d
}

// Mean returns the exact mean, zero if nothing was recorded.
func (d *Distribution) Mean() time.Duration {
	if d.Count == 0 {
		return 0
	}
	return d.Sum / time.Duration(d.Count)
}

// Quantile returns the duration that a share q of the recordings does not
// exceed: the one of rank ceil(q × Count), counted from the shortest, within
// MaxError. Zero if nothing was recorded. Requires: 0 <= q <= 1.
func (d *Distribution) Quantile(q float64) time.Duration {
	rank := max(uint64(math.Ceil(q*float64(d.Count))), 1)
	var seen uint64
	for b, n := range d.counts {
		if seen += n; seen >= rank {
			// The middle of the last bucket may lie above everything in it.
			return min(time.Duration(middleOf(b)), d.Max)
		}
	}
	return d.Max // nothing was recorded
}
