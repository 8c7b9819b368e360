package page

import (
	"fmt"
	"html/template"
	"math"
	"slices"

	"sievedb/cmd/kvbench/internal/chart"
	"sievedb/cmd/kvbench/internal/document"
	"sievedb/cmd/kvbench/internal/report"
	"sievedb/cmd/kvbench/internal/stats"
	"sievedb/filter"
)

func lookups(r *report.Lookups) (s section, err error) {
	s.Title = "Disk reads that filters avoid"
	if r.Absent.With.Lookups > 0 {
		s.Tiles = []tile{
			{fmt.Sprintf("%.2f %%", r.ReadsAvoidedPercent), "of the disk reads of absent keys avoided"},
			{fmt.Sprintf("%.3f", r.Prediction.Ratio), "times the predicted false positives were measured"},
			{document.Size(r.Cost.FileBytes), fmt.Sprintf("of filters, %.2f bits a key", r.Cost.BitsPerKey)},
		}
	}
	s.add(&err, "Disk reads without and with filters",
		"The same files, the same keys, and an empty cache before each. A disk read is a data block that missed the block cache.",
		func() (template.HTML, error) { return readBars(r) })
	s.add(&err, "False-positive rate against bits per key",
		"The line is theory; each dot is a level of this tree, with the 95 % interval of its measurement. Levels without a false positive are left out.",
		func() (template.HTML, error) { return levelRates(r) })
	s.add(&err, "Level by level: predicted and measured",
		"Rings: what the bits of the very filters predict. Dots: what was measured, with its 95 % interval; one in twenty is outside by chance.",
		func() (template.HTML, error) { return predictions(r.Levels) })
	s.add(&err, "The tree",
		"A box for each table, in the order of keys; a level of very many is one box. Widths grow with the square root of a level's bytes.",
		func() (template.HTML, error) { return tree(r.Levels) })
	s.add(&err, "How long lookups take",
		"The share of the lookups, on the x-axis, that were at most as slow as the y-axis says. One after the other, in an idle store.",
		func() (template.HTML, error) {
			return latencies("How long lookups take", []named{
				{"absent, filters off", 2, &r.Absent.Without.Latency}, {"absent, on", 1, &r.Absent.With.Latency},
				{"present, off", 3, &r.Present.Without.Latency}, {"present, on", 4, &r.Present.With.Latency},
			})
		})
	return s, err
}

func readBars(r *report.Lookups) (template.HTML, error) {
	var bars []chart.Bar
	add := func(label string, class int, p *report.Pass) {
		if p.Lookups > 0 {
			bars = append(bars, chart.Bar{Label: label, Value: p.ReadsPerLookup(), Class: class,
				Text: fmt.Sprintf("%s (%.3f a key)", document.Group(p.BlocksRead), p.ReadsPerLookup())})
		}
	}
	add("absent, filters off", 2, &r.Absent.Without)
	add("absent, filters on", 1, &r.Absent.With)
	add("present, filters off", 2, &r.Present.Without)
	add("present, filters on", 1, &r.Present.With)
	add("outside, filters off", 2, &r.Outside.Without)
	add("outside, filters on", 1, &r.Outside.With)
	return chart.Bars("Disk reads without and with filters", r.Headline(), bars)
}

// theory is the line of the exact model of a kind of filter between two numbers
// of bits per key.
func theory(kind filter.Kind, from, to float64) chart.Series {
	s := chart.Series{Name: "theory, " + kind.String(), Class: 3, Line: true}
	const steps = 40
	for i := range steps + 1 {
		bits := from + (to-from)*float64(i)/steps
		s.Points = append(s.Points, chart.Point{X: bits, Y: 100 * filter.ExpectedRate(kind, uint32(1000*bits))})
	}
	return s
}

func levelRates(r *report.Lookups) (template.HTML, error) {
	dots := chart.Series{Name: "a level, measured", Class: 1, Dots: true}
	const most = 30 // beyond, a level has a handful of keys, and its filter's size is rounding
	from, to := 4.0, 12.0
	for i := range r.Levels {
		l := &r.Levels[i]
		if l.Counts.Measured == 0 || l.BitsPerKey <= 0 || l.BitsPerKey > most {
			continue
		}
		from, to = max(1, min(from, l.BitsPerKey-1)), max(to, l.BitsPerKey+1)
		low, high := stats.Wilson(l.Counts.Measured, l.Counts.Asked, stats.Z(0.95))
		dots.Points = append(dots.Points, chart.Point{X: l.BitsPerKey, Y: 100 * l.MeasuredRate, Low: 100 * low, High: 100 * high,
			Note: fmt.Sprintf("L%d: %.2f bits a key, %.3f %%", l.Level, l.BitsPerKey, 100*l.MeasuredRate)})
	}
	return (&chart.Plot{
		Title: "False-positive rate against bits per key", About: "The measured rate of each level beside theory.",
		X:      chart.Axis{Label: "bits per key", Min: from, Max: to},
		Y:      chart.Axis{Label: "false-positive rate", Log: true, Unit: " %"},
		Series: []chart.Series{theory(filter.KindBlocked, from, to), dots},
	}).SVG()
}

func predictions(levels []report.Level) (template.HTML, error) {
	predicted := chart.Series{Name: "predicted", Class: 3, Dots: true, Hollow: true}
	measured := chart.Series{Name: "measured", Class: 1, Dots: true}
	var ticks []chart.Tick
	for i := range levels {
		l := &levels[i]
		at := float64(len(ticks))
		ticks = append(ticks, chart.Tick{At: at, Label: fmt.Sprint("L", l.Level)})
		if l.Counts.Asked == 0 {
			continue
		}
		low, high := stats.Wilson(l.Counts.Measured, l.Counts.Asked, stats.Z(0.95))
		predicted.Points = append(predicted.Points, chart.Point{X: at - 0.08, Y: 100 * l.PredictedRate,
			Note: fmt.Sprintf("L%d: %.1f false positives predicted", l.Level, l.Counts.Expected)})
		measured.Points = append(measured.Points, chart.Point{X: at + 0.08, Y: 100 * l.MeasuredRate, Low: 100 * low, High: 100 * high,
			Note: fmt.Sprintf("L%d: %d false positives measured", l.Level, l.Counts.Measured)})
	}
	return (&chart.Plot{
		Title: "Level by level", About: "Predicted and measured false-positive rates of each level.",
		X:      chart.Axis{Label: "level", Ticks: ticks, Min: -0.5, Max: float64(len(ticks)) - 0.5},
		Y:      chart.Axis{Label: "false-positive rate", Unit: " %"},
		Series: []chart.Series{predicted, measured},
	}).SVG()
}

func tree(levels []report.Level) (template.HTML, error) {
	var rows []chart.Level
	for i := range levels {
		l := &levels[i]
		row := chart.Level{Name: fmt.Sprint("L", l.Level),
			Text: fmt.Sprintf("%d tables, %s, %s keys", l.Tables, document.Size(l.Bytes), document.Group(l.Keys))}
		for _, t := range l.TableSizes {
			row.Tables = append(row.Tables, float64(t))
		}
		rows = append(rows, row)
	}
	return chart.Tree("The tree", "The tables of each level.", rows)
}

type named struct {
	name  string
	class int
	*report.Latency
}

// latencies draws distributions; the x-axis is the logarithm of the share that
// was slower, so that the tail has room.
func latencies(title string, of []named) (template.HTML, error) {
	p := &chart.Plot{
		Title: title, About: "Percentiles of latencies.",
		X: chart.Axis{Label: "percentile", Max: 5},
		Y: chart.Axis{Label: "at most, in µs", Log: true},
	}
	for i, label := range []string{"0", "90", "99", "99.9", "99.99", "99.999"} {
		p.X.Ticks = append(p.X.Ticks, chart.Tick{At: float64(i), Label: label})
	}
	for _, n := range of {
		s := chart.Series{Name: n.name, Class: n.class, Line: true, Steps: true}
		for _, q := range n.Quantiles {
			at := 5.0
			if q.Percent < 99.999 {
				at = -math.Log10(1 - q.Percent/100)
			}
			s.Points = append(s.Points, chart.Point{X: at, Y: float64(q.Ns) / 1e3})
		}
		if len(s.Points) > 0 {
			p.Series = append(p.Series, s)
		}
	}
	return p.SVG()
}

func sweep(r *report.Sweep) (s section, err error) {
	s.Title = "Theory and measurement"
	s.Tiles = []tile{{fmt.Sprintf("%d of %d", r.Inside, len(r.Points)), "filter sizes agree with theory"}}
	s.add(&err, "False-positive rate against bits per key",
		fmt.Sprintf("The lines are theory, one for each kind of filter. Dots: measured, one run of keys for each; the intervals are %.0f %% for all points together.", r.ConfidencePercent),
		func() (template.HTML, error) { return sweepRates(r) })
	if len(r.Policies) > 0 {
		s.add(&err, "The same memory, spent in different ways",
			"Blocks that the lookup of an absent key fetches, in a tree of several levels. Rings: predicted.",
			func() (template.HTML, error) { return policies(r) })
	}
	return s, err
}

func sweepRates(r *report.Sweep) (template.HTML, error) {
	dots := chart.Series{Name: "measured", Class: 1, Dots: true}
	outside := chart.Series{Class: 2, Dots: true}
	last := 2.0
	var kinds []filter.Kind
	for _, p := range r.Points {
		if kind, _ := report.KindNamed(p.Kind); kind != filter.KindNone && !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
		at := chart.Point{X: p.BitsPerKey, Y: 100 * p.MeasuredRate, Low: 100 * p.Low, High: 100 * p.High,
			Note: fmt.Sprintf("%v bits asked, %s: measured %.4g %%, theory %.4g %%", p.Bits, p.Kind, 100*p.MeasuredRate, 100*p.TheoryRate)}
		if last = max(last, p.BitsPerKey); p.Inside {
			dots.Points = append(dots.Points, at)
		} else {
			outside.Points = append(outside.Points, at)
		}
	}
	var series []chart.Series
	for i, kind := range kinds {
		line := theory(kind, 1, min(last, 100))
		line.Class = 3 + i%2
		series = append(series, line)
	}
	series = append(series, dots)
	if len(outside.Points) > 0 {
		outside.Name = "outside"
		series = append(series, outside)
	}
	return (&chart.Plot{
		Title: "False-positive rate against bits per key", About: r.Headline(),
		X:      chart.Axis{Label: "bits per key"},
		Y:      chart.Axis{Label: "false-positive rate", Log: true, Unit: " %"},
		Series: series,
	}).SVG()
}

func policies(r *report.Sweep) (template.HTML, error) {
	p := &chart.Plot{
		Title: "Policies", About: "Blocks fetched a lookup of an absent key, by policy and average bits per key.",
		X: chart.Axis{Label: "bits per key, on average"},
		Y: chart.Axis{Label: "blocks fetched a lookup", Log: true},
	}
	index := map[string]int{}
	for _, x := range r.Policies {
		i, ok := index[x.Policy]
		if !ok {
			i = len(p.Series)
			index[x.Policy] = i
			class := 1 + i%4
			p.Series = append(p.Series, chart.Series{Name: x.Policy, Class: class, Dots: true, Line: true}, chart.Series{Class: class, Dots: true, Hollow: true})
		}
		note := fmt.Sprintf("%s, %v bits: %.4f, predicted %.4f", x.Policy, x.Bits, x.FetchedPerKey, x.ExpectedPerKey)
		p.Series[i].Points = append(p.Series[i].Points, chart.Point{X: x.BitsPerKey, Y: x.FetchedPerKey, Note: note})
		p.Series[i+1].Points = append(p.Series[i+1].Points, chart.Point{X: x.BitsPerKey, Y: x.ExpectedPerKey, Note: note})
	}
	return p.SVG()
}

func ops(r *report.Ops) (s section, err error) {
	s.Title = r.Setup.Command
	s.Tiles = []tile{
		{document.Group(uint64(r.PerSecond() + 0.5)), "operations a second"},
		{fmt.Sprintf("%.2f", r.WriteAmplification), "write amplification"},
		{fmt.Sprint(r.Runs), "runs to ask"},
	}
	if r.SpaceAmplification > 0 {
		s.Tiles = append(s.Tiles, tile{fmt.Sprintf("%.2f", r.SpaceAmplification), "space amplification"})
	}
	var of []named
	for i := range r.Kinds {
		of = append(of, named{r.Kinds[i].Op, 1 + i%4, &r.Kinds[i].Latency})
	}
	s.add(&err, "How long operations take",
		"The share of the operations, on the x-axis, that were at most as slow as the y-axis says.",
		func() (template.HTML, error) { return latencies("How long operations take", of) })
	s.add(&err, "Amplification over time",
		"Bytes written for each byte of keys and values; bytes stored for each byte of the bottom level; sorted runs that a lookup may have to ask.",
		func() (template.HTML, error) { return amplification(r.Samples) })
	s.add(&err, "The tree at the end", "A box for each table, in the order of keys; a level of very many is one box.",
		func() (template.HTML, error) { return tree(r.Levels) })
	return s, err
}

func amplification(samples []report.Sample) (template.HTML, error) {
	write := chart.Series{Name: "write amplification", Class: 1, Line: true}
	space := chart.Series{Name: "space amplification", Class: 3, Line: true}
	runs := chart.Series{Name: "runs", Class: 2, Line: true, Steps: true}
	for _, x := range samples {
		write.Points = append(write.Points, chart.Point{X: x.Seconds, Y: x.WriteAmplification})
		if x.SpaceAmplification > 0 { // zero while nothing lies below level 0
			space.Points = append(space.Points, chart.Point{X: x.Seconds, Y: x.SpaceAmplification})
		}
		runs.Points = append(runs.Points, chart.Point{X: x.Seconds, Y: float64(x.Runs)})
	}
	return (&chart.Plot{
		Title: "Amplification over time", About: "Write and space amplification, and the number of runs.",
		X: chart.Axis{Label: "seconds"}, Y: chart.Axis{Label: "times, or runs"},
		Series: []chart.Series{write, space, runs},
	}).SVG()
}
