package growth

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"sievedb/cmd/kvbench/internal/document"
	"sievedb/cmd/kvbench/internal/report"
)

//go:embed definitions.txt
var definitions string

// FewestReaders returns the least number of readers, zero if there are none.
func (r *Result) FewestReaders() int {
	if len(r.Setup.Readers) == 0 {
		return 0
	}
	return slices.Min(r.Setup.Readers)
}

// Headline says the result in one sentence.
func (r *Result) Headline() string {
	if len(r.Sizes) == 0 {
		return "Nothing was measured."
	}
	first, last := &r.Sizes[0], &r.Sizes[len(r.Sizes)-1]
	text := fmt.Sprintf("%s keys: %s puts a second", keysRange(first, last), between(count(first.PutsPerSecond()), count(last.PutsPerSecond())))
	for _, keys := range []string{Absent, Present} {
		if p, q := first.Pass(keys, r.FewestReaders()), last.Pass(keys, r.FewestReaders()); p != nil && q != nil {
			text += fmt.Sprintf(", %s for an %s key", between(document.Duration(float64(p.P50Ns)), document.Duration(float64(q.P50Ns))), keys)
		}
	}
	return strings.Replace(text, "an present", "a present", 1) + " (p50)."
}

func keysRange(first, last *Size) string {
	return between(count(float64(first.Keys)), count(float64(last.Keys)))
}

// between words what became of a figure.
func between(a, b string) string {
	if a == b {
		return a
	}
	return a + " to " + b
}

func count(v float64) string { return document.Group(document.Round(v)) }

func ints(list []int) string {
	words := make([]string, len(list))
	for i, n := range list {
		words[i] = document.Group(uint64(max(n, 0)))
	}
	return strings.Join(words, ", ")
}

// Document implements report.Run.
func (r *Result) Document() *document.Document {
	s, d := &r.Setup, &document.Document{}
	first := []string{r.Headline()}
	if r.Interrupted {
		first = append([]string{"INTERRUPTED: these sizes were measured until then."}, first...)
	}
	d.Paragraph(first...)
	d.Paragraph(
		fmt.Sprintf("Stores of %s keys (%s) of 16 B, values of %d B, readers %s, lookups in each pass at most %s, seed %d.",
			strings.ReplaceAll(ints(s.Sizes), ", ", " / "), s.Workload, s.ValueBytes, strings.ReplaceAll(ints(s.Readers), ", ", " / "), document.Group(uint64(max(s.Lookups, 0))), s.Seed),
		fmt.Sprintf("Cache %s, memtables of %s, blocks of %s, filters of %v bits a key. %s.",
			document.Size(uint64(max(s.CacheBytes, 0))), document.Size(uint64(max(s.MemtableBytes, 0))), document.Size(uint64(max(s.BlockBytes, 0))), s.BitsPerKey, s.Machine))
	d.Add("Filling, one key at a time in random order, unsynced", r.fillTable())
	d.Add("Lookups while filling", r.besideTable())
	d.Add("Lookups, compacted", r.lookupTable())
	d.Add("Scans and opening, compacted", r.scanTable())
	d.Add("Space, compacted", r.spaceTable())
	d.Add("Memory and garbage collection in each phase", r.phaseTable())
	d.Definitions(definitions)
	return d
}

func seconds(v float64) string { return document.Duration(1e9 * v) }

func ns(v int64) string { return document.Duration(float64(v)) }

func (s *Size) name() string { return document.Group(uint64(max(s.Keys, 0))) }

func (r *Result) fillTable() table.Writer {
	t := document.NewTable("keys", "keys/s", "put p50", "p99", "p99.9", "max", "stalls", "stalled", "slowed", "write ampl.", "settle", "compact")
	for i := range r.Sizes {
		s := &r.Sizes[i]
		f := &s.Fill
		t.AppendRow(table.Row{s.name(), count(s.PutsPerSecond()), ns(f.Put.P50Ns), ns(f.Put.P99Ns), ns(f.Put.P999Ns), ns(f.Put.MaxNs),
			document.Group(f.Stalls), seconds(f.StallSeconds), seconds(f.SlowSeconds), fmt.Sprintf("%.2f", f.WriteAmplification),
			seconds(f.SettleSeconds), seconds(s.Tree.CompactSeconds)})
	}
	return t
}

func (r *Result) besideTable() table.Writer {
	t := document.NewTable("keys", "lookups of each", "absent p50", "p99", "present p50", "p99")
	for i := range r.Sizes {
		s := &r.Sizes[i]
		a, p := &s.Fill.Absent, &s.Fill.Present
		t.AppendRow(table.Row{s.name(), document.Group(a.Lookups), ns(a.P50Ns), ns(a.P99Ns), ns(p.P50Ns), ns(p.P99Ns)})
	}
	return t
}

func (r *Result) lookupTable() table.Writer {
	t := document.NewTable("keys", "readers", "absent/s", "p50", "mean", "p99", "disk reads", "present/s", "p50", "mean", "p99", "disk reads")
	for i := range r.Sizes {
		s := &r.Sizes[i]
		for _, n := range r.Setup.Readers {
			row := table.Row{s.name(), n}
			for _, keys := range []string{Absent, Present} {
				p := s.Pass(keys, n)
				if p == nil {
					row = append(row, "-", "-", "-", "-", "-")
					continue
				}
				row = append(row, count(p.PerSecond()), ns(p.P50Ns), document.Duration(p.MeanNs), ns(p.P99Ns), fmt.Sprintf("%.4f", p.ReadsPerLookup()))
			}
			t.AppendRow(row)
		}
	}
	return t
}

func (r *Result) scanTable() table.Writer {
	t := document.NewTable("keys", "scan of 100 p50", "mean", "p99", "forward, an entry", "reverse, an entry", "open")
	for i := range r.Sizes {
		s := &r.Sizes[i]
		x := &s.Scans
		t.AppendRow(table.Row{s.name(), ns(x.Short.P50Ns), document.Duration(x.Short.MeanNs), ns(x.Short.P99Ns),
			document.Duration(x.Forward.EntryNs()), document.Duration(x.Reverse.EntryNs()), seconds(s.OpenSeconds())})
	}
	return t
}

func (r *Result) spaceTable() table.Writer {
	t := document.NewTable("keys", "user bytes", "on disk", "for each user byte", "tables", "runs", "filters", "indexes", "bytes a key", "heap objects a million keys")
	for i := range r.Sizes {
		s := &r.Sizes[i]
		x := &s.Tree
		t.AppendRow(table.Row{s.name(), document.Size(s.UserBytes), document.Size(x.DiskBytes), fmt.Sprintf("%.3f", s.DiskPerUserByte()), x.Tables, x.Runs,
			document.Size(x.FilterBytes), document.Size(x.IndexBytes), fmt.Sprintf("%.2f", float64(x.FilterBytes+x.IndexBytes)/float64(max(s.Keys, 1))),
			count(s.ObjectsPerMillion())})
	}
	return t
}

func (r *Result) phaseTable() table.Writer {
	t := document.NewTable("keys, phase", "took", "peak resident", "GC")
	for i := range r.Sizes {
		s := &r.Sizes[i]
		for _, p := range s.Phases {
			peak := "-"
			if p.PeakResidentBytes > 0 {
				peak = document.Size(p.PeakResidentBytes)
			}
			t.AppendRow(table.Row{s.name() + ", " + p.Name, seconds(p.Seconds), peak, fmt.Sprintf("%.1f %%", p.GCPercent)})
		}
	}
	return t
}

// Benchmarks implements report.Run.
func (r *Result) Benchmarks() (lines []report.Benchmark) {
	for i := range r.Sizes {
		s := &r.Sizes[i]
		name := fmt.Sprintf("Growth/keys=%d/", s.Keys)
		add := func(op string, n int, values ...report.BenchValue) {
			lines = append(lines, report.Benchmark{Name: name + op, N: uint64(max(n, 0)), Values: values})
		}
		add("op=put", s.Keys, append(s.Fill.Put.BenchValues(), report.BenchValue{Value: s.PutsPerSecond(), Unit: "ops/s"},
			report.BenchValue{Value: s.Fill.WriteAmplification, Unit: "write-amp"})...)
		for _, x := range []struct {
			op string
			b  *Beside
		}{{"op=absent-while-filling", &s.Fill.Absent}, {"op=present-while-filling", &s.Fill.Present}} {
			lines = append(lines, report.Benchmark{Name: name + x.op, N: x.b.Lookups, Values: x.b.BenchValues()})
		}
		for j := range s.Lookups {
			p := &s.Lookups[j]
			add(fmt.Sprintf("op=%s/readers=%d", p.Keys, p.Readers), p.Lookups, append(p.BenchValues(),
				report.BenchValue{Value: p.PerSecond(), Unit: "ops/s"}, report.BenchValue{Value: p.ReadsPerLookup(), Unit: "blockreads/op"})...)
		}
		add("op=scan", s.Scans.Count, s.Scans.Short.BenchValues()...)
		add("op=scan-forward", s.Scans.Forward.Entries, report.BenchValue{Value: s.Scans.Forward.EntryNs(), Unit: "ns/op"})
		add("op=scan-reverse", s.Scans.Reverse.Entries, report.BenchValue{Value: s.Scans.Reverse.EntryNs(), Unit: "ns/op"})
		add("op=open", len(s.Tree.OpenSeconds), report.BenchValue{Value: 1e9 * s.OpenSeconds(), Unit: "ns/op"})
	}
	return lines
}
