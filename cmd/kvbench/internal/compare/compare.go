// Package compare says what became of the figures of one run in another. Counts
// are judged, times are shown. All functions are pure but for Write, and safe
// for concurrent use.
//
//	c, err := compare.Runs(before, after, 1, false)
package compare

import (
	"bytes"
	"fmt"
	"io"
	"math"

	"github.com/jedib0t/go-pretty/v6/table"

	"sievedb/cmd/kvbench/internal/document"
	"sievedb/cmd/kvbench/internal/growth"
	"sievedb/cmd/kvbench/internal/report"
	"sievedb/cmd/kvbench/internal/stats"
	"sievedb/cmd/kvbench/internal/versus"
)

// figure is one number of a run that can be compared with that of another. More
// of it is worse.
type figure struct {
	name string
	// n is the number of operations that the count or the times are of.
	n uint64
	// Either a count, which gates, or the times of equal parts, which do not.
	isCount bool
	count   float64
	slices  []float64
}

func count(name string, n uint64, v float64) figure {
	return figure{name: name, n: n, isCount: true, count: v}
}

func timing(name string, n uint64, means []float64) figure {
	return figure{name: name + ", mean ns", n: n, slices: means}
}

// figures returns what can be compared of a run.
func figures(run report.Run) []figure {
	switch r := run.(type) {
	case *report.Lookups:
		return lookupFigures(r)
	case *report.Sweep:
		return sweepFigures(r)
	case *report.Ops:
		return opsFigures(r)
	case *versus.Result:
		return versusFigures(r)
	case *growth.Result:
		return growthFigures(r)
	case *report.Crash:
		return []figure{count("lost batches", uint64(len(r.Kills)), float64(r.Lost))}
	}
	return nil
}

func lookupFigures(r *report.Lookups) (f []figure) {
	passes := r.Passes()
	for _, p := range passes {
		name, n := p.Keys+" keys, filters "+p.Filters, uint64(max(p.Lookups, 0))
		f = append(f, count(name+", disk reads", n, float64(p.BlocksRead)),
			count(name+", blocks fetched", n, float64(p.BlocksRead+p.BlocksCached)),
			count(name+", false positives", n, float64(p.FalsePositives)))
	}
	f = append(f, count("filter bytes", 1, float64(r.Cost.FileBytes)), count("table bytes", 1, float64(r.Load.TableFileBytes)))
	for _, p := range passes {
		f = append(f, timing(p.Keys+" keys, filters "+p.Filters, uint64(max(p.Lookups, 0)), p.SliceMeansNs))
	}
	return f
}

func sweepFigures(s *report.Sweep) (f []figure) {
	for _, p := range s.Points {
		f = append(f, count("false positives at "+p.Name(), p.Asked, float64(p.FalsePositives)))
	}
	for _, p := range s.Policies {
		f = append(f, count(fmt.Sprintf("blocks fetched, %s at %v bits", p.Policy, p.Bits), uint64(max(p.Lookups, 0)), float64(p.BlocksFetched)))
	}
	return f
}

func opsFigures(o *report.Ops) (f []figure) {
	if o.CountsExact {
		f = append(f, count("disk reads", o.Done, float64(o.BlocksRead)),
			count("blocks fetched", o.Done, float64(o.BlocksRead+o.BlocksCached)),
			count("false positives", o.Done, float64(o.FalsePositives)))
	}
	for i := range o.Kinds {
		k := &o.Kinds[i]
		f = append(f, timing(k.Op, k.Count, k.SliceMeansNs))
	}
	return f
}

// versusFigures are times of the repetitions: they decide nothing.
func versusFigures(r *versus.Result) (f []figure) {
	for _, s := range r.Settings {
		for _, w := range s.Workloads {
			for _, t := range w.Timings {
				name := fmt.Sprintf("%s, %s, %s", t.Engine, w.Name, s.Title())
				f = append(f, timing(name, uint64(max(t.Operations, 0)), t.RepetitionNs))
			}
		}
	}
	return f
}

// growthFigures are of each size that was measured. Write amplification is no
// count: it depends on when compactions had time.
func growthFigures(r *growth.Result) (f []figure) {
	for i := range r.Sizes {
		s := &r.Sizes[i]
		at := fmt.Sprintf(" of %d keys", s.Keys)
		f = append(f, count("disk bytes"+at, 1, float64(s.Tree.DiskBytes)), count("filter bytes"+at, 1, float64(s.Tree.FilterBytes)),
			count("index bytes"+at, 1, float64(s.Tree.IndexBytes)), timing("put"+at, uint64(max(s.Keys, 0)), s.Fill.Put.SliceMeansNs))
		for j := range s.Lookups {
			p := &s.Lookups[j]
			name, n := fmt.Sprintf("%s%s, %d readers", p.Keys, at, p.Readers), uint64(max(p.Lookups, 0))
			f = append(f, count(name+", blocks fetched", n, float64(p.BlocksRead+p.BlocksCached)), timing(name, n, p.SliceMeansNs))
		}
		f = append(f, timing("short scan"+at, uint64(max(s.Scans.Count, 0)), s.Scans.Short.SliceMeansNs),
			timing("scan forward"+at, uint64(max(s.Scans.Forward.Entries, 0)), s.Scans.Forward.SliceMeansNs),
			timing("scan reverse"+at, uint64(max(s.Scans.Reverse.Entries, 0)), s.Scans.Reverse.SliceMeansNs))
	}
	return f
}

// Comparison is what became of each figure from one run to another.
type Comparison struct {
	Schema      string  `json:"schema"`
	Threshold   float64 `json:"threshold_percent"`
	Exact       bool    `json:"exact"`
	Counts      []Delta `json:"counts"`
	Times       []Delta `json:"times"`
	Regressions int     `json:"regressions"` // of the counts
	// Other names what the runs do not have in common, so that a difference
	// may come from there.
	Other []string `json:"other,omitempty"`
}

// Delta is one figure in both runs. More is worse.
type Delta struct {
	Name  string  `json:"name"`
	A     float64 `json:"a"`
	B     float64 `json:"b"`
	Ratio float64 `json:"ratio"` // B / A, zero where A is
	// Low and High are the 95 % confidence interval of the ratio of times.
	Low        float64 `json:"ratio_low,omitempty"`
	High       float64 `json:"ratio_high,omitempty"`
	Verdict    string  `json:"verdict"`
	Regression bool    `json:"regression"`
}

// schema names the meaning of the JSON of a Comparison.
const schema = "sievedb.kvbench.compare/1"

// Runs compares run b with run a. Counts that grew by more than threshold
// percent are regressions, unless chance explains it: they are sums of rare
// independent events, so that their difference has a variance of a + b. With
// exact, any growth is one: the same program, seed and flags give the same
// counts. Times never are.
func Runs(a, b report.Run, threshold float64, exact bool) (*Comparison, error) {
	schemaA, machineA := a.Header()
	schemaB, machineB := b.Header()
	if schemaA != schemaB {
		return nil, fmt.Errorf("the runs are of different kinds: %s and %s", schemaA, schemaB)
	}
	c := &Comparison{Schema: schema, Threshold: threshold, Exact: exact}
	if machineA != machineB {
		c.Other = append(c.Other, fmt.Sprintf("machine: %s; %s", machineA, machineB))
	}
	if x, y := setupOf(a), setupOf(b); x != y {
		c.Other = append(c.Other, fmt.Sprintf("setup: %+v; %+v", x, y))
	}
	before := map[string]figure{}
	for _, f := range figures(a) {
		before[f.name] = f
	}
	for _, f := range figures(b) {
		was, ok := before[f.name]
		switch {
		case !ok || was.n == 0 || f.n == 0:
		case f.isCount:
			d := c.count(was, f)
			if d.Regression {
				c.Regressions++
			}
			c.Counts = append(c.Counts, d)
		default:
			c.time(was, f)
		}
	}
	if len(c.Counts)+len(c.Times) == 0 {
		return nil, fmt.Errorf("the runs have no figure in common")
	}
	return c, nil
}

// setupOf returns what was asked for, without the machine.
func setupOf(r report.Run) any {
	switch r := r.(type) {
	case *report.Lookups:
		s := r.Setup
		s.Machine = report.Machine{}
		return s
	case *report.Sweep:
		s := r.Setup
		s.Machine = report.Machine{}
		return s
	case *report.Ops:
		s := r.Setup
		s.Machine = report.Machine{}
		return s
	case *report.Crash:
		s := r.Setup
		s.Machine = report.Machine{}
		return s
	case *versus.Result:
		s := r.Setup
		s.Machine = report.Machine{}
		return fmt.Sprintf("%+v", s) // it has a list, which == does not compare
	case *growth.Result:
		s := r.Setup
		s.Machine = report.Machine{}
		return fmt.Sprintf("%+v", s) // likewise
	}
	return nil
}

// sigmas is how many standard deviations chance is allowed.
const sigmas = 3

func (c *Comparison) count(a, b figure) Delta {
	// By as many operations as a had, since an interrupted run has fewer.
	now := b.count * float64(a.n) / float64(b.n)
	d := Delta{Name: a.name, A: a.count, B: b.count, Verdict: "same"}
	if a.count > 0 {
		d.Ratio = now / a.count
	}
	growth := now - a.count
	chance := sigmas * math.Sqrt(a.count+now)
	switch {
	case growth < 0:
		d.Verdict = "fewer"
	case growth == 0:
	case c.Exact:
		d.Verdict, d.Regression = "MORE", true
	case growth <= c.Threshold/100*a.count:
		d.Verdict = "more, below the threshold"
	case growth <= chance:
		d.Verdict = "more, within chance"
	default:
		d.Verdict, d.Regression = "MORE", true
	}
	return d
}

func (c *Comparison) time(a, b figure) {
	ratio, low, high, ok := stats.RatioInterval(a.slices, b.slices)
	if !ok {
		return
	}
	meanA, _ := stats.Mean(a.slices)
	meanB, _ := stats.Mean(b.slices)
	d := Delta{Name: a.name, A: meanA, B: meanB, Ratio: ratio, Low: low, High: high, Verdict: "no difference seen"}
	switch {
	case high < 1:
		d.Verdict = "faster"
	case low > 1:
		d.Verdict = "slower"
	}
	c.Times = append(c.Times, d)
}

// Headline says the result in one sentence.
func (c *Comparison) Headline() string {
	if c.Regressions > 0 {
		return fmt.Sprintf("%d of %d counts are WORSE in the second run.", c.Regressions, len(c.Counts))
	}
	if len(c.Counts) == 0 {
		return "The runs have times alone, which decide nothing."
	}
	return fmt.Sprintf("None of %d counts is worse in the second run.", len(c.Counts))
}

// Write writes the comparison; GoBench is for runs only.
func (c *Comparison) Write(w io.Writer, f report.Format) error {
	if f == report.JSON {
		return report.WriteJSON(w, c)
	}
	d := &document.Document{}
	d.Paragraph(append([]string{c.Headline()}, c.Other...)...)
	if len(c.Counts) > 0 {
		t := document.NewTable("count", "first", "second", "ratio", "")
		for _, x := range c.Counts {
			t.AppendRow(table.Row{x.Name, fmt.Sprintf("%.0f", x.A), fmt.Sprintf("%.0f", x.B), ratioText(x.Ratio), x.Verdict})
		}
		d.Add("Counts, which decide about the exit code", t)
	}
	if len(c.Times) > 0 {
		t := document.NewTable("time", "first", "second", "ratio", "95 % interval", "")
		for _, x := range c.Times {
			t.AppendRow(table.Row{x.Name, fmt.Sprintf("%.1f", x.A), fmt.Sprintf("%.1f", x.B), ratioText(x.Ratio),
				fmt.Sprintf("%.3f - %.3f", x.Low, x.High), x.Verdict})
		}
		d.Add("Times, which do not: the intervals are of the spread within each run, and two runs of the same program differ by more", t)
	}
	var b bytes.Buffer
	if f == report.Markdown {
		d.Markdown(&b)
	} else {
		d.Text(&b)
	}
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("writing the comparison: %w", err)
	}
	return nil
}

func ratioText(r float64) string {
	if r == 0 {
		return "-"
	}
	return fmt.Sprintf("%.3f", r)
}
