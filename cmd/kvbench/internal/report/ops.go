package report

import (
	_ "embed"
	"fmt"
	"slices"

	"github.com/jedib0t/go-pretty/v6/table"

	"sievedb/cmd/kvbench/internal/document"
)

// Ops is the result of a mix of operations.
type Ops struct {
	Schema string   `json:"schema"`
	Setup  OpsSetup `json:"setup"`

	LoadSeconds float64 `json:"load_seconds"` // what was stored before, unsynced
	Seconds     float64 `json:"seconds"`
	Done        uint64  `json:"operations"`
	Kinds       []Kind  `json:"kinds"`

	// CountsExact says that BlocksFetched and what depends on it are the same
	// in every run with this seed: nothing wrote, so no compaction ran beside.
	CountsExact    bool   `json:"counts_exact"`
	BlocksRead     uint64 `json:"blocks_read"` // by lookups and scans: disk reads
	BlocksCached   uint64 `json:"blocks_cached"`
	Negatives      uint64 `json:"negatives"`
	FalsePositives uint64 `json:"false_positives"`

	Samples []Sample `json:"samples"` // of the amplification, in the order of time
	Levels  []Level  `json:"levels"`  // at the end
	Runs    int      `json:"runs"`

	WriteAmplification float64 `json:"write_amplification"`
	// SpaceAmplification is zero while nothing lies below level 0.
	SpaceAmplification float64 `json:"space_amplification"`
	TableFileBytes     uint64  `json:"table_file_bytes"`
	Stalls             uint64  `json:"stalls"`
	StallSeconds       float64 `json:"stall_seconds"` // waiting or slowed down
	Kernel             *Kernel `json:"kernel,omitempty"`
	Interrupted        bool    `json:"interrupted"`
}

// OpsSetup is what was asked for.
type OpsSetup struct {
	Command       string  `json:"command"`
	Workload      string  `json:"workload"`
	Mix           string  `json:"mix"`
	Distribution  string  `json:"distribution"`
	Seed          uint64  `json:"seed"`
	Keys          int     `json:"keys"` // stored before
	Operations    int     `json:"operations"`
	ValueBytes    int     `json:"value_bytes"`
	ScanLength    int     `json:"scan_length"` // the most entries of a scan
	BitsPerKey    float64 `json:"bits_per_key"`
	CacheBytes    int64   `json:"cache_bytes"`
	MemtableBytes int64   `json:"memtable_bytes"`
	Synced        bool    `json:"synced"`
	Store         string  `json:"store"` // that existed
	Cold          bool    `json:"cold"`
	Machine
}

// Kind is what one kind of operation did.
type Kind struct {
	Op    string `json:"op"`
	Count uint64 `json:"count"`
	Found uint64 `json:"found"` // keys that were there; of scans, the entries
	Latency
}

// Sample is the state of the store at one moment.
type Sample struct {
	Operations         uint64  `json:"operations"`
	Seconds            float64 `json:"seconds"`
	WriteAmplification float64 `json:"write_amplification"`
	SpaceAmplification float64 `json:"space_amplification"`
	Runs               int     `json:"runs"` // the read amplification
}

// Header implements Run.
func (o *Ops) Header() (string, Machine) { return o.Schema, o.Setup.Machine }

// PerSecond returns the operations a second.
func (o *Ops) PerSecond() float64 {
	if o.Seconds <= 0 {
		return 0
	}
	return float64(o.Done) / o.Seconds
}

//go:embed definitions_ops.txt
var opsDefinitions string

// Headline says the result in one sentence.
func (o *Ops) Headline() string {
	return fmt.Sprintf("%s: %s operations in %.2f s, %s a second.", o.Setup.Command, document.Group(o.Done), o.Seconds, document.Group(document.Round(o.PerSecond())))
}

// Verdict says what filters did.
func (o *Ops) Verdict() string {
	asked := o.Negatives + o.FalsePositives
	switch {
	case !o.looksUp():
		return "Filters DID NOT PAY here: neither writes nor scans ask them."
	case asked == 0:
		return "Filters DID NOT PAY here: every table that could hold a key had it, or the memtable did."
	case float64(o.Negatives) < 0.05*float64(max(o.Done, 1)):
		return fmt.Sprintf("Filters hardly paid here: they saved %.4f block reads an operation.", float64(o.Negatives)/float64(max(o.Done, 1)))
	}
	return fmt.Sprintf("Filters saved %s block reads, %.3f an operation, and were wrong %s times.",
		document.Group(o.Negatives), float64(o.Negatives)/float64(max(o.Done, 1)), document.Group(o.FalsePositives))
}

// looksUp reports whether any operation is a lookup.
func (o *Ops) looksUp() bool {
	return slices.ContainsFunc(o.Kinds, func(k Kind) bool { return k.Op == "read" || k.Op == "absent" || k.Op == "rmw" })
}

// Document implements Run.
func (o *Ops) Document() *document.Document {
	s, d := &o.Setup, &document.Document{}
	first := []string{o.Headline(), o.Verdict()}
	if o.Interrupted {
		first = append([]string{"INTERRUPTED: what follows was measured until then."}, first...)
	}
	d.Paragraph(first...)
	source := s.Workload
	if s.Store != "" {
		source += " of " + s.Store
	}
	lines := []string{
		fmt.Sprintf("Mix %s, keys chosen %s, %s keys stored before (%s), values of %d B, synced %v, seed %d, cache %s, memtables of %s.",
			s.Mix, s.Distribution, document.Group(uint64(max(s.Keys, 0))), source, s.ValueBytes, s.Synced, s.Seed, document.Size(uint64(max(s.CacheBytes, 0))), document.Size(uint64(max(s.MemtableBytes, 0)))),
		fmt.Sprintf("Write amplification %.2f, space amplification %s, %d runs to ask, %s in tables; %s stalls, %.2f s waiting or slowed down. %s.",
			o.WriteAmplification, orNone(o.SpaceAmplification), o.Runs, document.Size(o.TableFileBytes), document.Group(o.Stalls), o.StallSeconds, s.Machine),
		fmt.Sprintf("Disk reads: %s; blocks from the cache: %s.", document.Group(o.BlocksRead), document.Group(o.BlocksCached)),
	}
	if o.Kernel != nil {
		lines = append(lines, fmt.Sprintf("The kernel counted %s read calls and %s from the device meanwhile: another thing, with filters, indexes and compactions.",
			document.Group(o.Kernel.ReadCalls), document.Size(o.Kernel.ReadBytes)))
	}
	d.Paragraph(lines...)
	t := document.NewTable("operation", "count", "found", "mean", "p50", "p99", "p99.9", "max")
	for _, k := range o.Kinds {
		t.AppendRow(table.Row{k.Op, document.Group(k.Count), document.Group(k.Found), document.Micros(k.MeanNs), document.Micros(float64(k.P50Ns)),
			document.Micros(float64(k.P99Ns)), document.Micros(float64(k.P999Ns)), document.Micros(float64(k.MaxNs))})
	}
	d.Add("Operations, one after the other", t)
	t = document.NewTable("level", "tables", "keys", "size", "filters", "bits/key")
	for _, l := range o.Levels {
		t.AppendRow(table.Row{fmt.Sprint("L", l.Level), l.Tables, document.Group(l.Keys), document.Size(l.Bytes), document.Size(l.FilterBytes), fmt.Sprintf("%.2f", l.BitsPerKey)})
	}
	d.Add("The tree at the end", t)
	d.Definitions(opsDefinitions)
	return d
}

// orNone words a figure that does not exist if it is zero.
func orNone(v float64) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", v)
}
