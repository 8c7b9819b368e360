package experiment

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"sievedb/cmd/kvbench/internal/report"
)

// slices is how many parts a series is cut into, to see its spread.
const slices = 20

// recorder collects the durations of one kind of call.
type recorder struct {
	histogram *hdrhistogram.Histogram
	perSlice  uint64
	inSlice   uint64
	sum       int64
	means     []float64
}

// maxLatency is what longer durations are taken for.
const maxLatency = time.Minute

// newRecorder expects n calls.
func newRecorder(n int) *recorder {
	return &recorder{
		histogram: hdrhistogram.New(1, maxLatency.Nanoseconds(), 3), // from 1 ns, to three digits
		perSlice:  uint64(max(1, n/slices)),
	}
}

func (r *recorder) record(took time.Duration) {
	ns := min(max(took.Nanoseconds(), 1), maxLatency.Nanoseconds())
	_ = r.histogram.RecordValue(ns) // its only error is a value beyond the range
	r.sum += ns
	if r.inSlice++; r.inSlice == r.perSlice {
		r.means = append(r.means, float64(r.sum)/float64(r.inSlice))
		r.sum, r.inSlice = 0, 0
	}
}

// shownPercents are the points of the distribution that a report keeps.
var shownPercents = []float64{0, 10, 25, 50, 75, 90, 95, 98, 99, 99.5, 99.8, 99.9, 99.95, 99.98, 99.99, 99.995, 99.999, 100}

func (r *recorder) latency() report.Latency {
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
