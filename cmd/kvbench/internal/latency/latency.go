// Package latency collects the durations of calls of one kind, for reports. A
// Recorder is for one goroutine at a time.
//
//	r := latency.New(n)
//	r.Record(took)
//	run.Latency = r.Latency()
package latency

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"sievedb/cmd/kvbench/internal/report"
)

// Slices is how many parts a series is cut into, to see its spread.
const Slices = 20

// Recorder collects the durations of one kind of call.
type Recorder struct {
	histogram *hdrhistogram.Histogram
	perSlice  uint64 // zero cuts none
	inSlice   uint64
	sum       int64
	means     []float64
}

// Longest is what longer durations are taken for.
const Longest = time.Minute

// New expects n calls. Zero is an unknown number, whose series is not cut into
// parts.
func New(n int) *Recorder {
	r := &Recorder{histogram: hdrhistogram.New(1, Longest.Nanoseconds(), 3)} // from 1 ns, to three digits
	if n > 0 {
		r.perSlice = uint64(max(1, n/Slices))
	}
	return r
}

// Record notes one call.
func (r *Recorder) Record(took time.Duration) {
	ns := min(max(took.Nanoseconds(), 1), Longest.Nanoseconds())
	_ = r.histogram.RecordValue(ns) // its only error is a value beyond the range
	r.sum += ns
	if r.inSlice++; r.inSlice == r.perSlice {
		r.means = append(r.means, float64(r.sum)/float64(r.inSlice))
		r.sum, r.inSlice = 0, 0
	}
}

// Merge returns what goroutines recorded side by side: each part of the series
// is the mean of theirs.
func Merge(all []*Recorder) *Recorder {
	merged := New(0)
	for i, r := range all {
		merged.histogram.Merge(r.histogram)
		if i == 0 {
			merged.means = append(merged.means, r.means...)
			continue
		}
		merged.means = merged.means[:min(len(merged.means), len(r.means))]
		for j := range merged.means {
			merged.means[j] += (r.means[j] - merged.means[j]) / float64(i+1)
		}
	}
	return merged
}

// shownPercents are the points of the distribution that a report keeps.
var shownPercents = []float64{0, 10, 25, 50, 75, 90, 95, 98, 99, 99.5, 99.8, 99.9, 99.95, 99.98, 99.99, 99.995, 99.999, 100}

// Latency sums up what was recorded.
func (r *Recorder) Latency() report.Latency {
	h := r.histogram
	if h.TotalCount() == 0 {
		return report.Latency{}
	}
	l := report.Latency{
		MeanNs: h.Mean(), P50Ns: h.ValueAtQuantile(50), P99Ns: h.ValueAtQuantile(99), P999Ns: h.ValueAtQuantile(99.9),
		MaxNs: h.Max(), SliceMeansNs: r.means,
	}
	for _, p := range shownPercents {
		l.Quantiles = append(l.Quantiles, report.Quantile{Percent: p, Ns: h.ValueAtQuantile(p)})
	}
	return l
}
