// Package report has the results of kvbench: their JSON, the arithmetic on
// them, and their text, Markdown and Go-benchmark forms, all from the same
// numbers. Everything is a pure function of its input, and values are safe for
// concurrent reading.
//
//	err := report.Write(os.Stdout, run, report.Text)
//
// Package results reads what was written as JSON.
package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"runtime"

	"sievedb/cmd/kvbench/internal/document"
)

// Run is one result: a *Lookups, *Sweep, *Ops or *Crash, or that of another
// package.
type Run interface {
	// Document returns the report for people.
	Document() *document.Document
	// Header returns the schema and the machine.
	Header() (schema string, m Machine)
	// Benchmarks returns the result as lines of a Go benchmark.
	Benchmarks() []Benchmark
}

// Schemas name the meaning of the JSON. Fields may be added; a field that
// changes its meaning or goes makes it another number.
const (
	LookupsSchema = "sievedb.kvbench/1"
	SweepSchema   = "sievedb.kvbench.sweep/1"
	OpsSchema     = "sievedb.kvbench.ops/1"
	CrashSchema   = "sievedb.kvbench.crash/1"
)

// Machine is where a run was made.
type Machine struct {
	GoVersion string `json:"go_version"`
	OS        string `json:"os"`
	Arch      string `json:"arch"`
	CPUs      int    `json:"cpus"`
}

// ThisMachine describes the machine that the program runs on.
func ThisMachine() Machine {
	return Machine{GoVersion: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU()}
}

// String words the machine.
func (m Machine) String() string {
	return fmt.Sprintf("%s %s/%s, %d CPUs", m.GoVersion, m.OS, m.Arch, m.CPUs)
}

// Format is a way to write a result.
type Format string

// The formats. GoBench is the lines of a Go benchmark, for benchstat.
const (
	Text     Format = "text"
	JSON     Format = "json"
	Markdown Format = "markdown"
	GoBench  Format = "gobench"
)

// Formats lists all of them.
var Formats = []Format{Text, JSON, Markdown, GoBench}

// Write writes a result.
func Write(w io.Writer, run Run, f Format) error {
	var b bytes.Buffer
	switch f {
	case JSON:
		return WriteJSON(w, run)
	case Markdown:
		run.Document().Markdown(&b)
	case GoBench:
		_, m := run.Header()
		writeBenchmarks(&b, m, run.Benchmarks())
	default:
		run.Document().Text(&b)
	}
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

// WriteJSON writes v, indented.
func WriteJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

// Latency sums up the durations of calls of one kind, in nanoseconds.
type Latency struct {
	MeanNs float64 `json:"mean_ns"`
	P50Ns  int64   `json:"p50_ns"`
	P99Ns  int64   `json:"p99_ns"`
	P999Ns int64   `json:"p999_ns"`
	MaxNs  int64   `json:"max_ns"`
	// Quantiles are the whole distribution, to three digits.
	Quantiles []Quantile `json:"quantiles,omitempty"`
	// SliceMeansNs are the means of the equal parts that the calls were cut
	// into, in their order: the spread within the run.
	SliceMeansNs []float64 `json:"slice_means_ns,omitempty"`
}

// Quantile is the duration that a share of the calls did not exceed.
type Quantile struct {
	Percent float64 `json:"percent"`
	Ns      int64   `json:"ns"`
}

// Kernel is what the operating system counted for the whole process while
// something was measured. It is another thing than the store's disk reads and
// never added to them: it includes the reads of filters, indexes and
// background work.
type Kernel struct {
	ReadCalls uint64 `json:"read_calls"`      // system calls that read
	ReadBytes uint64 `json:"disk_read_bytes"` // from the device: not from the page cache
}
