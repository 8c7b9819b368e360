package versus

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"sievedb/cmd/kvbench/internal/document"
	"sievedb/cmd/kvbench/internal/report"
)

//go:embed definitions.txt
var definitions string

// Verdicts counts those of a setting: peers that were slower, that were
// faster, and all, those that were about even among them.
func (s *Setting) Verdicts() (slower, faster, all int) {
	for _, w := range s.Workloads {
		for _, t := range w.Timings {
			switch t.Verdict {
			case "":
				continue
			case Slower:
				slower++
			case Faster:
				faster++
			}
			all++
		}
	}
	return slower, faster, all
}

// Title names a setting.
func (s *Setting) Title() string {
	switch s.Name {
	case "tuned":
		return "tuned alike"
	case "default":
		return "out of the box"
	}
	return s.Name
}

// Headline says the result of a setting in one sentence.
func (s *Setting) Headline() string {
	slower, faster, all := s.Verdicts()
	return fmt.Sprintf("%s: of %d comparisons with a peer, %s was faster in %d, slower in %d, and about even in %d.",
		upperFirst(s.Title()), all, Baseline, slower, faster, all-slower-faster)
}

// byP50 reports whether the means alone say nothing.
func (t *Timing) byP50() bool { return verdict(t.Ratio, t.RatioLow, t.RatioHigh) == Even }

func upperFirst(s string) string { return strings.ToUpper(s[:min(1, len(s))]) + s[min(1, len(s)):] }

// FasterPeers says where which peer was faster, in a line for each peer.
func (s *Setting) FasterPeers(engines []Engine) (lines []string) {
	for _, e := range engines {
		var at []string
		for _, w := range s.Workloads {
			if t := w.timing(e.Name); t != nil && t.Verdict == Faster {
				text := fmt.Sprintf("%s (%.2f)", w.Name, t.Ratio)
				if t.byP50() {
					text = fmt.Sprintf("%s (p50 %.2f)", w.Name, t.P50Ratio)
				}
				at = append(at, text)
			}
		}
		if len(at) > 0 {
			lines = append(lines, fmt.Sprintf("%s is FASTER, %s: %s.", e.Name, s.Title(), strings.Join(at, ", ")))
		}
	}
	if _, _, all := s.Verdicts(); lines == nil && all > 0 {
		lines = []string{fmt.Sprintf("No peer is clearly faster in anything, %s.", s.Title())}
	}
	return lines
}

// Document implements report.Run.
func (r *Result) Document() *document.Document {
	d := &document.Document{}
	var first []string
	if r.Interrupted {
		first = append(first, "INTERRUPTED: what follows was measured until then.")
	}
	for i := range r.Settings {
		first = append(first, r.Settings[i].Headline())
	}
	for i := range r.Settings {
		first = append(first, r.Settings[i].FasterPeers(r.Setup.Engines)...)
	}
	d.Paragraph(first...)
	d.Paragraph(r.setupLines()...)
	for i := range r.Settings {
		s := &r.Settings[i]
		d.Add(fmt.Sprintf("%s: how many times as long as %s, median (least - greatest)", upperFirst(s.Title()), Baseline), r.ratioTable(s))
		d.Add(upperFirst(s.Title())+": time of each operation, median (least - greatest)", r.timeTable(s))
		d.Add(upperFirst(s.Title())+": p50 / p99 of single operations, medians over the repetitions", r.percentileTable(s))
		if len(s.Footprints) > 0 {
			d.Add(upperFirst(s.Title())+": on disk, and read calls for each lookup", r.diskTable(s))
		}
	}
	notes := document.NewTable("engine", "version", "note")
	notes.SetColumnConfigs(nil)
	for _, e := range r.Setup.Engines {
		notes.AppendRow(table.Row{e.Name, e.Version, e.Note})
	}
	d.Add("Engines", notes)
	d.Definitions(definitions)
	return d
}

func (r *Result) setupLines() []string {
	s := &r.Setup
	names := make([]string, len(s.Engines))
	for i, e := range s.Engines {
		names[i] = e.Name
	}
	return []string{
		fmt.Sprintf("%s: %s keys (%s) of %.1f B, values of %d B, seed %d. Repetitions: %d, the engines in turn, each in a process of its own.",
			strings.Join(names, ", "), document.Group(uint64(max(s.Keys, 0))), s.Keyset, float64(s.KeyBytes)/float64(max(s.Keys, 1)), s.ValueBytes, s.Seed, s.Repetitions),
		fmt.Sprintf("Tuned alike: cache %s, memtable %s, filters of %d bits a key, blocks of 4 KiB, snappy. Out of the box: each engine's defaults. %s.",
			document.Size(uint64(max(s.CacheBytes, 0))), document.Size(uint64(max(s.MemtableBytes, 0))), s.BitsPerKey, s.Machine),
	}
}

func (r *Result) newTable(from int) table.Writer {
	headers := []string{"workload"}
	for _, e := range r.Setup.Engines[min(from, len(r.Setup.Engines)):] {
		headers = append(headers, e.Name)
	}
	return document.NewTable(headers...)
}

// row has a cell for each engine from the given one on; engines that have no
// such workload get a dash.
func (r *Result) row(w *Workload, label string, from int, cell func(t *Timing) string) table.Row {
	row := table.Row{label}
	for _, e := range r.Setup.Engines[min(from, len(r.Setup.Engines)):] {
		text := "-"
		if t := w.timing(e.Name); t != nil {
			text = cell(t)
		}
		row = append(row, text)
	}
	return row
}

func (r *Result) ratioTable(s *Setting) table.Writer {
	t := r.newTable(1)
	for i := range s.Workloads {
		w := &s.Workloads[i]
		t.AppendRow(r.row(w, w.Name, 1, func(t *Timing) string {
			text := fmt.Sprintf("%.2f (%.2f - %.2f)", t.Ratio, t.RatioLow, t.RatioHigh)
			if t.Verdict == Faster && t.byP50() {
				text += fmt.Sprintf(" FASTER p50 %.2f", t.P50Ratio)
			} else if t.Verdict == Faster {
				text = "FASTER " + text
			}
			return text
		}))
	}
	return t
}

func (r *Result) timeTable(s *Setting) table.Writer {
	t := r.newTable(0)
	for i := range s.Workloads {
		w := &s.Workloads[i]
		label := w.Name
		if w.Unit != "operation" {
			label += ", " + w.Unit
		}
		t.AppendRow(r.row(w, label, 0, func(t *Timing) string {
			u := document.UnitOf(t.MedianNs)
			return fmt.Sprintf("%s (%s - %s)", u.In(t.MedianNs)+" "+u.Name, u.In(t.LowNs), u.In(t.HighNs))
		}))
	}
	return t
}

// percentileTable has the workloads of which single operations are timed. A p50
// is hardly touched by what else the machine does.
func (r *Result) percentileTable(s *Setting) table.Writer {
	t := r.newTable(0)
	for i := range s.Workloads {
		w := &s.Workloads[i]
		if base := w.timing(Baseline); base == nil || base.P50Ns == 0 {
			continue
		}
		t.AppendRow(r.row(w, w.Name, 0, func(t *Timing) string {
			u := document.UnitOf(t.P50Ns)
			return fmt.Sprintf("%s / %s %s", u.In(t.P50Ns), u.In(t.P99Ns), u.Name)
		}))
	}
	return t
}

// diskTable has what is not time. Read calls are of lookups only: what others
// read depends on how an engine reads ahead.
func (r *Result) diskTable(s *Setting) table.Writer {
	t := r.newTable(0)
	for _, x := range []struct {
		label string
		bytes func(Footprint) uint64
	}{
		{"on disk, loaded", func(f Footprint) uint64 { return f.LoadedBytes }},
		{"on disk, compacted", func(f Footprint) uint64 { return f.CompactedBytes }},
	} {
		row := table.Row{x.label}
		for _, f := range s.Footprints {
			row = append(row, document.Size(x.bytes(f)))
		}
		t.AppendRow(row)
	}
	for i := range s.Workloads {
		w := &s.Workloads[i]
		if strings.HasPrefix(w.Name, "absent") || strings.HasPrefix(w.Name, "present") {
			t.AppendRow(r.row(w, "read calls, "+w.Name, 0, func(t *Timing) string {
				if t.ReadCalls == nil {
					return "-"
				}
				return fmt.Sprintf("%.4f", *t.ReadCalls)
			}))
		}
	}
	return t
}

// Benchmarks implements report.Run: a line for each repetition, so that
// benchstat sees their spread.
func (r *Result) Benchmarks() (lines []report.Benchmark) {
	for _, s := range r.Settings {
		for _, w := range s.Workloads {
			for _, t := range w.Timings {
				name := fmt.Sprintf("Engines/setting=%s/workload=%s/engine=%s", s.Name, strings.ReplaceAll(w.Name, " ", "-"), t.Engine)
				for _, ns := range t.RepetitionNs {
					lines = append(lines, report.Benchmark{Name: name, N: uint64(max(t.Operations, 0)), Values: []report.BenchValue{{Value: ns, Unit: "ns/op"}}})
				}
			}
		}
	}
	return lines
}
