// Package growth measures how the costs of a store grow with its size and with
// the number of its readers, and has the result: its JSON, the arithmetic on
// it, and its forms for people. Measure starts goroutines, which are gone when
// it returns; results are built by one and then only read.
//
//	run, err := growth.Measure(ctx, &c, m)
package growth

import (
	"slices"

	"sievedb/cmd/kvbench/internal/report"
)

// Schema names the meaning of the JSON, as those of package report do.
const Schema = "sievedb.kvbench.growth/1"

// Result is what stores of several sizes cost.
type Result struct {
	Schema      string `json:"schema"`
	Setup       Setup  `json:"setup"`
	Sizes       []Size `json:"sizes"` // in the order in which they were measured
	Interrupted bool   `json:"interrupted"`
}

// Setup is what was asked for.
type Setup struct {
	Workload      string  `json:"workload"`
	Seed          uint64  `json:"seed"`
	Sizes         []int   `json:"sizes"` // in keys
	Readers       []int   `json:"readers"`
	Lookups       int     `json:"lookups"` // in each pass, at most one a key
	ValueBytes    int     `json:"value_bytes"`
	BitsPerKey    float64 `json:"bits_per_key"`
	CacheBytes    int64   `json:"cache_bytes"`
	MemtableBytes int64   `json:"memtable_bytes"`
	BlockBytes    int     `json:"block_bytes"`
	report.Machine
}

// Size is a store of so many keys.
type Size struct {
	Keys      int    `json:"keys"`
	UserBytes uint64 `json:"user_bytes"` // of keys and values
	Fill      Fill   `json:"fill"`
	Tree      Tree   `json:"tree"`
	// Lookups are the passes over the compacted store, those of absent keys
	// first, each in the order of Setup.Readers.
	Lookups []Pass  `json:"lookups"`
	Scans   Scans   `json:"scans"`
	Phases  []Phase `json:"phases"`
}

// Fill is what it took to store the keys one at a time, unsynced, in random
// order.
type Fill struct {
	Seconds float64        `json:"seconds"`
	Put     report.Latency `json:"put"`
	// Stalls counts writes that waited, StallSeconds for how long; SlowSeconds
	// is how long writes were slowed down.
	Stalls       uint64  `json:"stalls"`
	StallSeconds float64 `json:"stall_seconds"`
	SlowSeconds  float64 `json:"slow_seconds"`
	// WriteAmplification includes the compactions that were due at the end.
	WriteAmplification float64 `json:"write_amplification"`
	SettleSeconds      float64 `json:"settle_seconds"` // that those took
	// Absent and Present are lookups that another goroutine made meanwhile.
	Absent  Beside `json:"absent"`
	Present Beside `json:"present"`
}

// Beside is what lookups beside the writes did.
type Beside struct {
	Lookups uint64 `json:"lookups"`
	report.Latency
}

// Tree is the compacted store.
type Tree struct {
	CompactSeconds float64 `json:"compact_seconds"`
	Tables         int     `json:"tables"`
	Runs           int     `json:"runs"`
	TableFileBytes uint64  `json:"table_file_bytes"`
	DiskBytes      uint64  `json:"disk_bytes"` // with log and manifest
	// FilterBytes and IndexBytes are resident after the lookups.
	FilterBytes uint64 `json:"filter_bytes"`
	IndexBytes  uint64 `json:"index_bytes"`
	// HeapObjects are those that the garbage collector keeps for the open
	// store after the lookups and scans.
	HeapObjects uint64 `json:"heap_objects"`
	// OpenSeconds is what it took to open the store after a clean close, each
	// time that it was done.
	OpenSeconds []float64 `json:"open_seconds"`
}

// Kinds of keys in a Pass.
const (
	Absent  = "absent"
	Present = "present"
)

// Pass is what one series of lookups, divided among the readers, did. The
// latency is that of every sampleEvery-th lookup of each reader.
type Pass struct {
	Keys           string  `json:"keys"` // Absent or Present
	Readers        int     `json:"readers"`
	Lookups        int     `json:"lookups"`
	Seconds        float64 `json:"seconds"`
	BlocksRead     uint64  `json:"blocks_read"`
	BlocksCached   uint64  `json:"blocks_cached"`
	FalsePositives uint64  `json:"false_positives"`
	report.Latency
}

// Scans are those of the compacted store.
type Scans struct {
	Length  int            `json:"length"` // entries of a short scan, at most
	Count   int            `json:"count"`  // of short scans
	Short   report.Latency `json:"short"`
	Forward FullScan       `json:"forward"`
	Reverse FullScan       `json:"reverse"`
}

// FullScan is a scan over all entries.
type FullScan struct {
	Entries int     `json:"entries"`
	Seconds float64 `json:"seconds"`
	// SliceMeansNs are what an entry took in equal parts of the scan.
	SliceMeansNs []float64 `json:"slice_means_ns,omitempty"`
}

// Phase is what a part of the measurement took of the process.
type Phase struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
	// PeakResidentBytes is zero where the kernel does not tell.
	PeakResidentBytes uint64 `json:"peak_resident_bytes"`
	// GCPercent is the share of the CPU time that garbage collection took.
	GCPercent float64 `json:"gc_cpu_percent"`
}

func perSecond(n int, seconds float64) float64 {
	if seconds <= 0 {
		return 0
	}
	return float64(n) / seconds
}

// PutsPerSecond returns the keys stored a second.
func (s *Size) PutsPerSecond() float64 { return perSecond(s.Keys, s.Fill.Seconds) }

// DiskPerUserByte returns the bytes on disk for each byte of keys and values.
func (s *Size) DiskPerUserByte() float64 {
	return float64(s.Tree.DiskBytes) / float64(max(s.UserBytes, 1))
}

// ObjectsPerMillion returns the heap objects for a million keys.
func (s *Size) ObjectsPerMillion() float64 {
	return 1e6 * float64(s.Tree.HeapObjects) / float64(max(s.Keys, 1))
}

// OpenSeconds returns the median of what it took to open the store.
func (s *Size) OpenSeconds() float64 {
	if len(s.Tree.OpenSeconds) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(s.Tree.OpenSeconds))[len(s.Tree.OpenSeconds)/2]
}

// Pass returns the pass over such keys with so many readers, nil if there is
// none.
func (s *Size) Pass(keys string, readers int) *Pass {
	for i := range s.Lookups {
		if p := &s.Lookups[i]; p.Keys == keys && p.Readers == readers {
			return p
		}
	}
	return nil
}

// PerSecond returns the lookups a second of all readers together.
func (p *Pass) PerSecond() float64 { return perSecond(p.Lookups, p.Seconds) }

// ReadsPerLookup returns the disk reads of a lookup, in the mean.
func (p *Pass) ReadsPerLookup() float64 { return float64(p.BlocksRead) / float64(max(p.Lookups, 1)) }

// EntryNs returns what an entry takes, in the mean.
func (s *FullScan) EntryNs() float64 { return 1e9 * s.Seconds / float64(max(s.Entries, 1)) }

// Header implements report.Run.
func (r *Result) Header() (string, report.Machine) { return r.Schema, r.Setup.Machine }
