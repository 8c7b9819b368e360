// Package versus has the result of the same workloads on several engines: its
// JSON, the arithmetic on it, and its forms for people. The measurements come
// from the nested module cmd/kvbench/engines; this package needs none of the
// engines. Values are built by one goroutine and then only read.
//
//	r := &versus.Result{Setup: setup}
//	r.Add("tuned", versus.Sample{Workload: "absent", Engine: "sievedb", MeanNs: 300})
//	r.Complete()
package versus

import (
	"slices"

	"sievedb/cmd/kvbench/internal/report"
)

// Schema names the meaning of the JSON, as those of package report do.
const Schema = "sievedb.kvbench.engines/1"

// Baseline is the engine that the others are compared with.
const Baseline = "sievedb"

// Result is the same workloads on several engines.
type Result struct {
	Schema      string    `json:"schema"`
	Setup       Setup     `json:"setup"`
	Settings    []Setting `json:"settings"`
	Interrupted bool      `json:"interrupted"`
}

// Setup is what was asked for.
type Setup struct {
	Keyset        string   `json:"keyset"`
	Seed          uint64   `json:"seed"`
	Keys          int      `json:"keys"`
	KeyBytes      int64    `json:"key_bytes"` // of all keys together
	ValueBytes    int      `json:"value_bytes"`
	CacheBytes    int64    `json:"cache_bytes"`    // of the setting "tuned"
	MemtableBytes int64    `json:"memtable_bytes"` // of the setting "tuned"
	BitsPerKey    int      `json:"bits_per_key"`   // of the setting "tuned"
	Repetitions   int      `json:"repetitions"`
	Engines       []Engine `json:"engines"` // the baseline is the first
	report.Machine
}

// Engine is one of them.
type Engine struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Note    string `json:"note"` // what is particular about it
}

// Setting is how the engines were set up, and what was measured so.
type Setting struct {
	Name       string      `json:"name"`
	Workloads  []Workload  `json:"workloads"`
	Footprints []Footprint `json:"footprints"`
}

// Workload is what the engines did of one kind.
type Workload struct {
	Name    string   `json:"name"`
	Unit    string   `json:"unit"` // what the times are of: an operation, an entry
	Timings []Timing `json:"timings"`
}

// Timing is what one engine took for each operation. The median, the ratio and
// the percentiles are medians over the repetitions, Low and High the least and
// the greatest of them.
type Timing struct {
	Engine       string    `json:"engine"`
	Operations   int       `json:"operations"` // in each repetition
	RepetitionNs []float64 `json:"repetition_means_ns"`
	MedianNs     float64   `json:"median_ns"`
	LowNs        float64   `json:"low_ns"`
	HighNs       float64   `json:"high_ns"`
	P50Ns        float64   `json:"p50_ns"` // zero where single operations are not timed
	P99Ns        float64   `json:"p99_ns"`
	// Ratio is how many times as long as the baseline in the same repetition.
	Ratio     float64 `json:"ratio"`
	RatioLow  float64 `json:"ratio_low"`
	RatioHigh float64 `json:"ratio_high"`
	// P50Ratio is likewise that of the p50, zero where there is none.
	P50Ratio     float64 `json:"p50_ratio"`
	P50RatioLow  float64 `json:"p50_ratio_low"`
	P50RatioHigh float64 `json:"p50_ratio_high"`
	// Verdict is what the ratio means, empty for the baseline; where the means
	// do not tell, since the machine did something else, the p50 decides.
	Verdict string `json:"verdict"`
	// ReadCalls are the system calls of the process that read, for each
	// operation, in the last repetition; nil where the kernel does not tell.
	ReadCalls *float64 `json:"read_calls,omitempty"`

	p50, p99 []float64
}

// Footprint is what an engine occupied on disk, in the last repetition.
type Footprint struct {
	Engine         string `json:"engine"`
	LoadedBytes    uint64 `json:"loaded_bytes"`
	CompactedBytes uint64 `json:"compacted_bytes"`
}

// Verdicts of a peer.
const (
	Slower = "slower" // than the baseline
	Faster = "faster"
	Even   = "even"
)

// clear is the least ratio that is called a difference.
const clear = 1.1

// Sample is one workload on one engine in one repetition.
type Sample struct {
	Workload   string  `json:"workload"`
	Engine     string  `json:"engine"`
	Unit       string  `json:"unit"`
	Operations int     `json:"operations"`
	MeanNs     float64 `json:"mean_ns"`
	P50Ns      int64   `json:"p50_ns"`
	P99Ns      int64   `json:"p99_ns"`
	// ReadCalls are those of all operations; nil where the kernel does not tell.
	ReadCalls *uint64 `json:"read_calls,omitempty"`
}

// Setting returns the setting of that name, a new one if there is none.
func (r *Result) Setting(name string) *Setting {
	i := slices.IndexFunc(r.Settings, func(s Setting) bool { return s.Name == name })
	if i < 0 {
		i = len(r.Settings)
		r.Settings = append(r.Settings, Setting{Name: name})
	}
	return &r.Settings[i]
}

// Add adds what was measured.
func (r *Result) Add(setting string, x Sample) {
	s := r.Setting(setting)
	i := slices.IndexFunc(s.Workloads, func(w Workload) bool { return w.Name == x.Workload })
	if i < 0 {
		i = len(s.Workloads)
		s.Workloads = append(s.Workloads, Workload{Name: x.Workload, Unit: x.Unit})
	}
	w := &s.Workloads[i]
	t := w.timing(x.Engine)
	if t == nil {
		w.Timings = append(w.Timings, Timing{Engine: x.Engine})
		t = &w.Timings[len(w.Timings)-1]
	}
	t.Operations = x.Operations
	t.RepetitionNs = append(t.RepetitionNs, x.MeanNs)
	t.p50, t.p99 = append(t.p50, float64(x.P50Ns)), append(t.p99, float64(x.P99Ns))
	if x.ReadCalls != nil && x.Operations > 0 {
		calls := float64(*x.ReadCalls) / float64(x.Operations)
		t.ReadCalls = &calls
	}
}

// Footprint notes what an engine occupies.
func (r *Result) Footprint(setting string, f Footprint) {
	s := r.Setting(setting)
	i := slices.IndexFunc(s.Footprints, func(g Footprint) bool { return g.Engine == f.Engine })
	if i < 0 {
		s.Footprints = append(s.Footprints, f)
		return
	}
	s.Footprints[i] = f
}

func (w *Workload) timing(engine string) *Timing {
	i := slices.IndexFunc(w.Timings, func(t Timing) bool { return t.Engine == engine })
	if i < 0 {
		return nil
	}
	return &w.Timings[i]
}

// Complete fills in what follows from the repetitions, once all are added.
func (r *Result) Complete() {
	r.Schema = Schema
	for i := range r.Settings {
		s := &r.Settings[i]
		for j := range s.Workloads {
			s.Workloads[j].complete(r.Setup.Engines)
		}
		slices.SortFunc(s.Footprints, func(a, b Footprint) int { return r.rank(a.Engine) - r.rank(b.Engine) })
	}
}

func (r *Result) rank(engine string) int {
	return slices.IndexFunc(r.Setup.Engines, func(e Engine) bool { return e.Name == engine })
}

// complete puts the engines into their order, whichever was measured first.
func (w *Workload) complete(order []Engine) {
	var sorted []Timing
	for _, e := range order {
		if t := w.timing(e.Name); t != nil {
			sorted = append(sorted, *t)
		}
	}
	w.Timings = sorted
	base := w.timing(Baseline)
	for i := range w.Timings {
		t := &w.Timings[i]
		t.MedianNs, t.LowNs, t.HighNs = spread(t.RepetitionNs)
		t.P50Ns, _, _ = spread(t.p50)
		t.P99Ns, _, _ = spread(t.p99)
		if base == nil {
			continue
		}
		t.Ratio, t.RatioLow, t.RatioHigh = spread(ratios(t.RepetitionNs, base.RepetitionNs))
		t.P50Ratio, t.P50RatioLow, t.P50RatioHigh = spread(ratios(t.p50, base.p50))
		if t.Engine == Baseline || t.Ratio == 0 {
			continue
		}
		t.Verdict = verdict(t.Ratio, t.RatioLow, t.RatioHigh)
		if t.Verdict == Even {
			t.Verdict = verdict(t.P50Ratio, t.P50RatioLow, t.P50RatioHigh)
		}
	}
}

// ratios divides values of the same repetition. An interruption may leave one
// of the two a repetition more.
func ratios(of, base []float64) (r []float64) {
	for i := range min(len(of), len(base)) {
		if of[i] > 0 && base[i] > 0 {
			r = append(r, of[i]/base[i])
		}
	}
	return r
}

// verdict words a ratio; zeros are of nothing.
func verdict(ratio, low, high float64) string {
	switch {
	case low > 1 && ratio >= clear:
		return Slower
	case ratio > 0 && high < 1 && ratio <= 1/clear:
		return Faster
	}
	return Even
}

// spread returns the median, the least and the greatest; zeros of nothing.
func spread(values []float64) (median, low, high float64) {
	n := len(values)
	if n == 0 {
		return 0, 0, 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2, sorted[0], sorted[n-1]
}

// Header implements report.Run.
func (r *Result) Header() (string, report.Machine) { return r.Schema, r.Setup.Machine }
