package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"

	"sievedb"
)

// reportSchema names the meaning of the JSON. Fields may be added to it; a
// field that changes its meaning or goes makes it another schema.
const reportSchema = "sievedb.kvbench/1"

// Report is every figure of a run, as --json prints it. Units are the last word
// of each name; a name without one is a count or says what share it is.
type Report struct {
	Schema  string  `json:"schema"`
	Setup   Setup   `json:"setup"`
	Load    Load    `json:"load"`
	Absent  Passes  `json:"absent"`
	Present Passes  `json:"present"`
	Levels  []Level `json:"levels"` // those with tables, from the top
	// ReadsAvoidedPercent is the share of the disk reads of absent keys without
	// filters that filters avoided.
	ReadsAvoidedPercent float64    `json:"reads_avoided_percent"`
	Prediction          Prediction `json:"prediction"`
	Cost                Cost       `json:"filter_cost"`
}

// Setup is what was asked for.
type Setup struct {
	Workload      string  `json:"workload"`
	Seed          uint64  `json:"seed"`
	Keys          int     `json:"keys"`
	KeyBytes      int64   `json:"key_bytes"` // of all keys
	ValueBytes    int     `json:"value_bytes"`
	Lookups       int     `json:"lookups"`      // in each pass
	OutsideKeys   int     `json:"outside_keys"` // left out
	BitsPerKey    float64 `json:"bits_per_key"`
	CacheBytes    int64   `json:"cache_bytes"`
	MemtableBytes int64   `json:"memtable_bytes"`
	TableBytes    int64   `json:"table_bytes"`
	BlockBytes    int     `json:"block_bytes"`
	GoVersion     string  `json:"go_version"`
	OS            string  `json:"os"`
	Arch          string  `json:"arch"`
	CPUs          int     `json:"cpus"`
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
	Lookups        int     `json:"lookups"`
	BlocksRead     uint64  `json:"blocks_read"`
	BlocksCached   uint64  `json:"blocks_cached"`
	Probes         uint64  `json:"probes"`
	Negatives      uint64  `json:"negatives"`
	TruePositives  uint64  `json:"true_positives"`
	FalsePositives uint64  `json:"false_positives"`
	Unfiltered     uint64  `json:"unfiltered"`
	MeanNs         float64 `json:"mean_ns"`
	P50Ns          int64   `json:"p50_ns"`
	P99Ns          int64   `json:"p99_ns"`
	P999Ns         int64   `json:"p999_ns"`
}

// Level is one level of the tree, with the absent keys that were looked up.
type Level struct {
	Level       int     `json:"level"`
	Tables      int     `json:"tables"`
	Keys        uint64  `json:"keys"`
	Bytes       uint64  `json:"bytes"`
	FilterBytes uint64  `json:"filter_bytes"`
	BitsPerKey  float64 `json:"bits_per_key"`
	// Without filters:
	BlocksReadWithout uint64 `json:"blocks_read_without_filters"`
	// With filters:
	BlocksRead    uint64   `json:"blocks_read"`
	BlocksCached  uint64   `json:"blocks_cached"`
	PredictedRate float64  `json:"predicted_rate"`
	MeasuredRate  float64  `json:"measured_rate"`
	Counts        Expected `json:"false_positives"`
}

// Expected is a number of false positives beside its prediction.
type Expected struct {
	Asked    uint64  `json:"asked"` // filters that were asked for a key they do not have
	Expected float64 `json:"expected"`
	Low      uint64  `json:"expected_low"` // of the central 95 %
	High     uint64  `json:"expected_high"`
	Measured uint64  `json:"measured"`
}

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

// newReport does the arithmetic.
func newReport(r *results) *Report {
	c, w := r.config, r.workload
	rep := &Report{
		Schema: reportSchema,
		Setup: Setup{
			Workload: w.name, Seed: c.seed, Keys: w.stored, KeyBytes: w.keyBytes, ValueBytes: c.valueBytes,
			Lookups: r.lookups, OutsideKeys: w.outside, BitsPerKey: c.bits,
			CacheBytes: max(r.options.CacheBytes, 0), MemtableBytes: r.options.MemtableBytes,
			TableBytes: r.options.TableBytes, BlockBytes: r.options.BlockBytes,
			GoVersion: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(),
		},
		Load: Load{
			Seconds: r.loadTime.Seconds(), SettleSeconds: r.settleTime.Seconds(),
			TableFileBytes: r.loaded.Disk.Tables, Runs: r.loaded.Runs,
		},
		Absent:  Passes{newPass(&r.absentOff, r.lookups), newPass(&r.absentOn, r.lookups)},
		Present: Passes{newPass(&r.presentOff, r.lookups), newPass(&r.presentOn, r.lookups)},
	}
	for i := range r.absentOn.metrics.Levels {
		if l := newLevel(&r.absentOff.metrics.Levels[i], &r.absentOn.metrics.Levels[i]); l.Tables > 0 {
			rep.Levels = append(rep.Levels, l)
		}
	}
	rep.Load.Levels = len(rep.Levels)
	if n := rep.Absent.Without.BlocksRead; n > 0 {
		rep.ReadsAvoidedPercent = 100 * (1 - float64(rep.Absent.With.BlocksRead)/float64(n))
	}
	rep.Prediction = newPrediction(r.absentOn.metrics.Total())
	rep.Cost = newCost(r, rep)
	return rep
}

func newPass(p *pass, lookups int) Pass {
	t := p.metrics.Total()
	return Pass{
		Lookups: lookups, BlocksRead: t.BlocksRead, BlocksCached: t.BlocksCached,
		Probes: t.Probes, Negatives: t.Negatives, TruePositives: t.TruePositives,
		FalsePositives: t.FalsePositives, Unfiltered: t.Unfiltered,
		MeanNs: p.latencies.Mean(), P50Ns: p.latencies.ValueAtQuantile(50),
		P99Ns: p.latencies.ValueAtQuantile(99), P999Ns: p.latencies.ValueAtQuantile(99.9),
	}
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

func newExpected(c sievedb.FilterCounts) Expected {
	low, high := poissonInterval(c.ExpectedFalsePositives)
	return Expected{
		Asked: c.Negatives + c.FalsePositives, Expected: c.ExpectedFalsePositives,
		Low: low, High: high, Measured: c.FalsePositives,
	}
}

// The prediction is checked from this many expected false positives on, where
// the bounds are more than six standard deviations away.
const (
	checkFrom            = 1000
	leastRatio, topRatio = 0.8, 1.2
)

func newPrediction(c sievedb.FilterCounts) Prediction {
	p := Prediction{Expected: newExpected(c), BlocksFetched: c.BlocksRead + c.BlocksCached}
	if c.ExpectedFalsePositives > 0 {
		p.Ratio = float64(p.BlocksFetched) / c.ExpectedFalsePositives
	}
	p.Checked = c.ExpectedFalsePositives >= checkFrom
	p.OK = !p.Checked || p.Ratio >= leastRatio && p.Ratio <= topRatio
	return p
}

func newCost(r *results, rep *Report) Cost {
	c := Cost{
		MemoryBytes: r.absentOn.metrics.Memory.Filters,
		BuildKeys:   r.build.keys, FlushWithoutNsPerKey: r.build.without, FlushWithNsPerKey: r.build.with,
		AbsentSavedNs:  rep.Absent.Without.MeanNs - rep.Absent.With.MeanNs,
		PresentSavedNs: rep.Present.Without.MeanNs - rep.Present.With.MeanNs,
	}
	var keys uint64
	for _, l := range rep.Levels {
		c.FileBytes += l.FilterBytes
		keys += l.Keys
	}
	if keys > 0 {
		c.BitsPerKey = 8 * float64(c.FileBytes) / float64(keys)
	}
	if n := rep.Load.TableFileBytes; n > 0 {
		c.StorePercent = 100 * float64(c.FileBytes) / float64(n)
	}
	without, with := rep.Present.Without, rep.Present.With
	c.PresentSavedBlocks = (float64(without.BlocksRead) - float64(with.BlocksRead)) / float64(max(with.Lookups, 1))
	return c
}

func (r *Report) writeJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	if err := e.Encode(r); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}
