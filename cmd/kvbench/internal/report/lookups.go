package report

import (
	"sievedb"
	"sievedb/cmd/kvbench/internal/stats"
)

// Lookups is the result of looking up absent and present keys without and with
// filters. Units are the last word of each name in JSON; a name without one is
// a count or says what share it is.
type Lookups struct {
	Schema  string  `json:"schema"`
	Setup   Setup   `json:"setup"`
	Load    Load    `json:"load"`
	Absent  Passes  `json:"absent"`
	Present Passes  `json:"present"`
	Outside Passes  `json:"outside"` // the control: absent keys beyond all key ranges
	Levels  []Level `json:"levels"`  // those with tables, from the top
	// ReadsAvoidedPercent is the share of the disk reads of absent keys without
	// filters that filters avoided.
	ReadsAvoidedPercent float64    `json:"reads_avoided_percent"`
	Prediction          Prediction `json:"prediction"`
	Cost                Cost       `json:"filter_cost"`
	// Interrupted says that the run was, so that some passes are short or
	// missing.
	Interrupted bool `json:"interrupted"`
}

// Setup is what was asked for.
type Setup struct {
	Workload      string  `json:"workload"`
	Seed          uint64  `json:"seed"`
	Keys          int     `json:"keys"`
	KeyBytes      int64   `json:"key_bytes"` // of all keys
	ValueBytes    int     `json:"value_bytes"`
	Lookups       int     `json:"lookups"`        // in each pass
	OutsideKeys   int     `json:"outside_keys"`   // left out
	RepeatedLines int     `json:"repeated_lines"` // left out
	BitsPerKey    float64 `json:"bits_per_key"`
	CacheBytes    int64   `json:"cache_bytes"`
	MemtableBytes int64   `json:"memtable_bytes"`
	TableBytes    int64   `json:"table_bytes"`
	BlockBytes    int     `json:"block_bytes"`
	// Store is the existing store that was used, empty if one was made. Of an
	// existing store, Keys are those that were drawn from it.
	Store string `json:"store"`
	Cold  bool   `json:"cold"` // the page cache was emptied before each pass
	Machine
}

// Load is what it took to store the keys, and what came of it.
type Load struct {
	Seconds        float64 `json:"seconds"`
	SettleSeconds  float64 `json:"settle_seconds"`
	TableFileBytes uint64  `json:"table_file_bytes"`
	Levels         int     `json:"levels"` // with tables
	Runs           int     `json:"runs"`
}

// Passes are the same lookups without and with filters.
type Passes struct {
	Without Pass `json:"without_filters"`
	With    Pass `json:"with_filters"`
}

// Pass is what one series of lookups did. BlocksRead are the disk reads.
type Pass struct {
	Lookups        int    `json:"lookups"`
	BlocksRead     uint64 `json:"blocks_read"`
	BlocksCached   uint64 `json:"blocks_cached"`
	Probes         uint64 `json:"probes"`
	Negatives      uint64 `json:"negatives"`
	TruePositives  uint64 `json:"true_positives"`
	FalsePositives uint64 `json:"false_positives"`
	Unfiltered     uint64 `json:"unfiltered"`
	Latency
	Kernel *Kernel `json:"kernel,omitempty"` // where the system has such counts
}

// ReadsPerLookup returns the disk reads of a lookup, in the mean.
func (p *Pass) ReadsPerLookup() float64 { return float64(p.BlocksRead) / float64(max(p.Lookups, 1)) }

// NewPass sums up the counts of a store that made nothing but these lookups.
func NewPass(m *sievedb.Metrics, lookups int, l Latency, k *Kernel) Pass {
	t := m.Total()
	return Pass{
		Lookups: lookups, BlocksRead: t.BlocksRead, BlocksCached: t.BlocksCached,
		Probes: t.Probes, Negatives: t.Negatives, TruePositives: t.TruePositives,
		FalsePositives: t.FalsePositives, Unfiltered: t.Unfiltered, Latency: l, Kernel: k,
	}
}

// Level is one level of the tree, with the absent keys that were looked up.
type Level struct {
	Level       int     `json:"level"`
	Tables      int     `json:"tables"`
	Keys        uint64  `json:"keys"`
	Bytes       uint64  `json:"bytes"`
	FilterBytes uint64  `json:"filter_bytes"`
	BitsPerKey  float64 `json:"bits_per_key"`
	// TableSizes are the bytes of each table, in the order in which lookups ask.
	TableSizes []uint64 `json:"table_sizes"`
	// Without filters:
	BlocksReadWithout uint64 `json:"blocks_read_without_filters"`
	// With filters:
	BlocksRead    uint64   `json:"blocks_read"`
	BlocksCached  uint64   `json:"blocks_cached"`
	PredictedRate float64  `json:"predicted_rate"`
	MeasuredRate  float64  `json:"measured_rate"`
	Counts        Expected `json:"false_positives"`
}

// NewLevels describes the levels that have tables, from the metrics of the same
// lookups without and with filters.
func NewLevels(off, on *sievedb.Metrics) (levels []Level) {
	for i := range on.Levels {
		if l := newLevel(&off.Levels[i], &on.Levels[i]); l.Tables > 0 {
			for j := range on.Tables {
				if t := &on.Tables[j]; t.Level == l.Level {
					l.TableSizes = append(l.TableSizes, t.Bytes)
				}
			}
			levels = append(levels, l)
		}
	}
	return levels
}

func newLevel(off, on *sievedb.LevelMetrics) Level {
	l := Level{
		Level: on.Level, Tables: on.Tables, Keys: on.Keys, Bytes: on.Bytes,
		FilterBytes: on.FilterBytes, BitsPerKey: on.BitsPerKey,
		BlocksReadWithout: off.Filter.BlocksRead,
		BlocksRead:        on.Filter.BlocksRead, BlocksCached: on.Filter.BlocksCached,
		MeasuredRate: on.Filter.MeasuredRate(), Counts: newExpected(on.Filter),
	}
	if l.Counts.Asked > 0 {
		l.PredictedRate = l.Counts.Expected / float64(l.Counts.Asked)
	}
	return l
}

// Expected is a number of false positives beside its prediction.
type Expected struct {
	Asked    uint64  `json:"asked"` // filters that were asked for a key they do not have
	Expected float64 `json:"expected"`
	Low      uint64  `json:"expected_low"` // of the central 95 %
	High     uint64  `json:"expected_high"`
	Measured uint64  `json:"measured"`
}

func newExpected(c sievedb.FilterCounts) Expected {
	low, high := stats.PoissonInterval(c.ExpectedFalsePositives)
	return Expected{
		Asked: c.Negatives + c.FalsePositives, Expected: c.ExpectedFalsePositives,
		Low: low, High: high, Measured: c.FalsePositives,
	}
}

// Inside reports whether the measured number is in the interval.
func (e *Expected) Inside() bool { return e.Low <= e.Measured && e.Measured <= e.High }

// Prediction compares the data blocks that absent keys fetched with the false
// positives that the filters' rates predict.
type Prediction struct {
	Expected
	BlocksFetched uint64 `json:"blocks_fetched"` // read or cached
	// Ratio is BlocksFetched / Expected, zero if none was expected.
	Ratio float64 `json:"ratio"`
	// Checked says whether enough was expected for a verdict.
	Checked bool `json:"checked"`
	OK      bool `json:"ok"` // true unless checked and missed
}

// The prediction is checked from this many expected false positives on, where
// the bounds are more than six standard deviations away.
const (
	checkFrom            = 1000
	leastRatio, topRatio = 0.8, 1.2
)

// NewPrediction judges the counts of lookups of absent keys.
func NewPrediction(c sievedb.FilterCounts) Prediction {
	p := Prediction{Expected: newExpected(c), BlocksFetched: c.BlocksRead + c.BlocksCached - min(c.Unfiltered, c.BlocksRead+c.BlocksCached)}
	if c.ExpectedFalsePositives > 0 {
		p.Ratio = float64(p.BlocksFetched) / c.ExpectedFalsePositives
	}
	p.Checked = c.ExpectedFalsePositives >= checkFrom
	p.OK = !p.Checked || p.Ratio >= leastRatio && p.Ratio <= topRatio
	return p
}

// Cost is what filters cost.
type Cost struct {
	FileBytes    uint64  `json:"file_bytes"`
	MemoryBytes  uint64  `json:"memory_bytes"`
	BitsPerKey   float64 `json:"bits_per_key"`
	StorePercent float64 `json:"store_percent"` // of the tables' bytes
	// The least time of many flushes of BuildKeys keys to memory.
	BuildKeys            int     `json:"build_keys"`
	FlushWithoutNsPerKey float64 `json:"flush_without_ns_per_key"`
	FlushWithNsPerKey    float64 `json:"flush_with_ns_per_key"`
	AbsentSavedNs        float64 `json:"absent_saved_ns"` // a lookup, in the mean
	PresentSavedNs       float64 `json:"present_saved_ns"`
	PresentSavedBlocks   float64 `json:"present_saved_blocks"` // reads a lookup
}

// Build is how long it takes to flush the same memtable without and with a
// filter, in nanoseconds a key.
type Build struct {
	Keys          int
	Without, With float64
}

// Complete fills in what follows from the rest of r.
func (r *Lookups) Complete(memoryBytes uint64, b Build) {
	r.Schema = LookupsSchema
	r.Load.Levels = len(r.Levels)
	// A lookup, so that passes of different lengths can be compared.
	if n := r.Absent.Without.ReadsPerLookup(); n > 0 && r.Absent.With.Lookups > 0 {
		r.ReadsAvoidedPercent = 100 * (1 - r.Absent.With.ReadsPerLookup()/n)
	}
	c := Cost{MemoryBytes: memoryBytes, BuildKeys: b.Keys, FlushWithoutNsPerKey: b.Without, FlushWithNsPerKey: b.With}
	c.AbsentSavedNs, _ = r.Absent.saved()
	c.PresentSavedNs, c.PresentSavedBlocks = r.Present.saved()
	var keys uint64
	for _, l := range r.Levels {
		c.FileBytes += l.FilterBytes
		keys += l.Keys
	}
	if keys > 0 {
		c.BitsPerKey = 8 * float64(c.FileBytes) / float64(keys)
	}
	if n := r.Load.TableFileBytes; n > 0 {
		c.StorePercent = 100 * float64(c.FileBytes) / float64(n)
	}
	r.Cost = c
}

// saved returns the time and the disk reads that filters save a lookup, zero
// if one of the passes is missing.
func (p *Passes) saved() (ns, blocks float64) {
	if p.Without.Lookups == 0 || p.With.Lookups == 0 {
		return 0, 0
	}
	return p.Without.MeanNs - p.With.MeanNs, p.Without.ReadsPerLookup() - p.With.ReadsPerLookup()
}

// Header implements Run.
func (r *Lookups) Header() (string, Machine) { return r.Schema, r.Setup.Machine }
