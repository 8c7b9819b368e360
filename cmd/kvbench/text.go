package main

import (
	_ "embed"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// writeText prints the report for people: the result in one sentence, the
// tables behind it, and what their words mean.
func (r *Report) writeText(w io.Writer) error {
	s := &r.Setup
	var b strings.Builder
	fmt.Fprintf(&b, "Filters avoided %.2f %% of the disk reads of absent keys: %s without, %s with.\n",
		r.ReadsAvoidedPercent, group(r.Absent.Without.BlocksRead), group(r.Absent.With.BlocksRead))
	b.WriteString(r.Prediction.sentence())
	fmt.Fprintf(&b, "\n%s keys (%s) of %.1f B, values of %d B, seed %d; %s absent keys that lie between them.\n",
		group(uint64(s.Keys)), s.Workload, float64(s.KeyBytes)/float64(s.Keys), s.ValueBytes, s.Seed, group(uint64(s.Lookups)))
	if s.OutsideKeys > 0 {
		fmt.Fprintf(&b, "%s keys were left out: they do not lie between the stored ones.\n", group(uint64(s.OutsideKeys)))
	}
	fmt.Fprintf(&b, "%s in tables on %d levels (%d runs), cache %s, blocks of %s.\n",
		size(r.Load.TableFileBytes), r.Load.Levels, r.Load.Runs, size(uint64(s.CacheBytes)), size(uint64(s.BlockBytes)))
	if r.Load.Levels < 3 {
		b.WriteString("That is fewer than three levels; with more keys there are more reads to avoid.\n")
	}
	fmt.Fprintf(&b, "Loaded unsynced in %.1f s, settled in %.1f s. %s %s/%s, %d CPUs.\n",
		r.Load.Seconds, r.Load.SettleSeconds, s.GoVersion, s.OS, s.Arch, s.CPUs)

	fmt.Fprintf(&b, "\nAbsent keys, level by level\n%s\n\nLookups, one after the other\n%s\n\nWhat filters cost\n%s\n\n%s",
		r.levelTable(), r.lookupTable(), r.costTable(), definitions)
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

func (p *Prediction) sentence() string {
	verdict := fmt.Sprintf("within %.1f-%.1f", leastRatio, topRatio)
	switch {
	case !p.Checked:
		verdict = fmt.Sprintf("not judged, which takes %s expected", group(checkFrom))
	case !p.OK:
		verdict = fmt.Sprintf("NOT WITHIN %.1f-%.1f", leastRatio, topRatio)
	}
	return fmt.Sprintf("False positives predicted: %s (95 %%: %s to %s); blocks fetched for them: %s, %.3f times that (%s).\n",
		group(round(p.Expected.Expected)), group(p.Low), group(p.High), group(p.BlocksFetched), p.Ratio, verdict)
}

func (r *Report) levelTable() string {
	t := newTable("level", "tables", "keys", "bits\n/key", "disk reads\nfilters off", "filters\nasked",
		"rate\npredicted", "rate\nmeasured", "false pos.\npredicted", "95 %\ninterval", "false pos.\nmeasured", "", "disk reads\nfilters on")
	row := func(name any, tables int, keys uint64, bits float64, without uint64, e *Expected, with uint64) table.Row {
		inside := "inside"
		if e.Measured < e.Low || e.Measured > e.High {
			inside = "outside"
		}
		return table.Row{name, tables, group(keys), fmt.Sprintf("%.2f", bits), group(without), group(e.Asked),
			rate(e.Expected, e.Asked), rate(float64(e.Measured), e.Asked), fmt.Sprintf("%.1f", e.Expected),
			group(e.Low) + " - " + group(e.High), group(e.Measured), inside, group(with)}
	}
	var tables int
	var keys uint64
	for i := range r.Levels {
		l := &r.Levels[i]
		tables, keys = tables+l.Tables, keys+l.Keys
		t.AppendRow(row(fmt.Sprint("L", l.Level), l.Tables, l.Keys, l.BitsPerKey, l.BlocksReadWithout, &l.Counts, l.BlocksRead))
	}
	t.AppendFooter(row("all", tables, keys, r.Cost.BitsPerKey, r.Absent.Without.BlocksRead, &r.Prediction.Expected, r.Absent.With.BlocksRead))
	return t.Render()
}

func (r *Report) lookupTable() string {
	t := newTable("keys", "filters", "lookups", "disk reads", "from cache", "reads/lookup", "mean", "p50", "p99", "p99.9")
	for _, x := range []struct {
		keys, filters string
		p             *Pass
	}{
		{"absent", "off", &r.Absent.Without}, {"absent", "on", &r.Absent.With},
		{"present", "off", &r.Present.Without}, {"present", "on", &r.Present.With},
	} {
		p := x.p
		t.AppendRow(table.Row{x.keys, x.filters, group(uint64(p.Lookups)), group(p.BlocksRead), group(p.BlocksCached),
			fmt.Sprintf("%.4f", float64(p.BlocksRead)/float64(p.Lookups)),
			micros(p.MeanNs), micros(float64(p.P50Ns)), micros(float64(p.P99Ns)), micros(float64(p.P999Ns))})
	}
	return t.Render()
}

func (r *Report) costTable() string {
	c := &r.Cost
	t := newTable("", "", "")
	t.ResetHeaders()
	t.SetColumnConfigs([]table.ColumnConfig{{Number: 2, Align: text.AlignRight}})
	t.AppendRows([]table.Row{
		{"in the files", size(c.FileBytes), fmt.Sprintf("%.2f bits/key, %.2f %% of the tables", c.BitsPerKey, c.StorePercent)},
		{"in memory", size(c.MemoryBytes), "resident once asked"},
		{"building", fmt.Sprintf("%+.0f ns/key", c.FlushWithNsPerKey-c.FlushWithoutNsPerKey),
			fmt.Sprintf("a flush takes %.0f ns/key with filters, %.0f without", c.FlushWithNsPerKey, c.FlushWithoutNsPerKey)},
		{"absent lookup", signed(-c.AbsentSavedNs), "in the mean, filters on against off"},
		{"present lookup", signed(-c.PresentSavedNs), fmt.Sprintf("in the mean, with %.3f disk reads saved", c.PresentSavedBlocks)},
	})
	return t.Render()
}

// newTable returns a table whose columns but the first are right-aligned.
func newTable(headers ...string) table.Writer {
	t := table.NewWriter()
	style := table.StyleLight
	style.Format.Header, style.Format.Footer = text.FormatDefault, text.FormatDefault
	t.SetStyle(style)
	row := make(table.Row, len(headers))
	var columns []table.ColumnConfig
	for i, h := range headers {
		row[i] = h
		if i > 0 {
			columns = append(columns, table.ColumnConfig{Number: i + 1, Align: text.AlignRight, AlignHeader: text.AlignRight, AlignFooter: text.AlignRight})
		}
	}
	t.AppendHeader(row)
	t.SetColumnConfigs(columns)
	return t
}

func round(v float64) uint64 { return uint64(v + 0.5) }

// group writes a number with a comma between thousands.
func group(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func rate(events float64, of uint64) string {
	if of == 0 {
		return "-"
	}
	return fmt.Sprintf("%.3f %%", 100*events/float64(of))
}

func micros(ns float64) string { return fmt.Sprintf("%.2f µs", ns/1e3) }
func signed(ns float64) string { return fmt.Sprintf("%+.2f µs", ns/1e3) }

// size writes bytes with a binary unit.
func size(n uint64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	v, units := float64(n)/(1<<10), "KMGTPE"
	for v >= 1000 && len(units) > 1 {
		v, units = v/(1<<10), units[1:]
	}
	return fmt.Sprintf("%.3g %ciB", v, units[0])
}

//go:embed definitions.txt
var definitions string
