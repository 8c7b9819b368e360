package page

import (
	"fmt"
	"html/template"
	"slices"

	"sievedb/cmd/kvbench/internal/chart"
	"sievedb/cmd/kvbench/internal/document"
	"sievedb/cmd/kvbench/internal/growth"
)

func grown(r *growth.Result) (s section, err error) {
	s.Title = "Costs against size"
	for i := range r.Sizes {
		x := &r.Sizes[i]
		s.Tiles = append(s.Tiles, tile{document.Group(document.Round(x.PutsPerSecond())), fmt.Sprintf("puts a second, filling with %s keys", document.Group(uint64(max(x.Keys, 0))))})
	}
	readers := r.FewestReaders()
	s.add(&err, "Lookup time against the number of keys",
		fmt.Sprintf("One lookup in the compacted store, readers: %d. Dots: half of them were at most so slow; rings: the mean.", readers),
		func() (template.HTML, error) { return lookupTimes(r, readers) })
	for _, keys := range []string{growth.Absent, growth.Present} {
		s.add(&err, fmt.Sprintf("Lookups of %s keys a second against readers", keys),
			"All readers together. More readers than CPUs wait for one another.",
			func() (template.HTML, error) { return throughput(r, keys) })
	}
	return s, err
}

func lookupTimes(r *growth.Result, readers int) (template.HTML, error) {
	p := &chart.Plot{
		Title: "Lookup time against the number of keys", About: r.Headline(),
		X: chart.Axis{Label: "keys", Log: true},
		Y: chart.Axis{Label: "ns a lookup", Log: true}, // absent and present keys are far apart
	}
	var sizes []int
	for i := range r.Sizes {
		sizes = append(sizes, r.Sizes[i].Keys)
	}
	p.X.Ticks = chart.TicksAt(sizes)
	for i, keys := range []string{growth.Absent, growth.Present} {
		p50 := chart.Series{Name: keys + ", p50", Class: 1 + i, Line: true, Dots: true}
		mean := chart.Series{Name: keys + ", mean", Class: 1 + i, Dots: true, Hollow: true}
		for j := range r.Sizes {
			x := &r.Sizes[j]
			if q := x.Pass(keys, readers); q != nil {
				note := fmt.Sprintf("%s keys, %s: p50 %s, mean %s", document.Group(uint64(max(x.Keys, 0))), keys, document.Duration(float64(q.P50Ns)), document.Duration(q.MeanNs))
				p50.Points = append(p50.Points, chart.Point{X: float64(x.Keys), Y: float64(q.P50Ns), Note: note})
				mean.Points = append(mean.Points, chart.Point{X: float64(x.Keys), Y: q.MeanNs, Note: note})
			}
		}
		p.Series = append(p.Series, mean, p50)
	}
	return p.SVG()
}

func throughput(r *growth.Result, keys string) (template.HTML, error) {
	p := &chart.Plot{
		Title: fmt.Sprintf("Lookups of %s keys a second against readers", keys), About: "A line for each size of the store.",
		X: chart.Axis{Label: "readers", Log: true, Ticks: chart.TicksAt(r.Setup.Readers)},
		Y: chart.Axis{Label: "lookups a second"},
	}
	for i := range r.Sizes {
		x := &r.Sizes[i]
		name := document.Group(uint64(max(x.Keys, 0))) + " keys"
		s := chart.Series{Name: name, Class: 1 + i%4, Line: true, Dots: true}
		for _, q := range x.Lookups {
			if q.Keys == keys {
				s.Points = append(s.Points, chart.Point{X: float64(q.Readers), Y: q.PerSecond(),
					Note: fmt.Sprintf("%s, readers %d: %s a second", name, q.Readers, document.Group(document.Round(q.PerSecond())))})
			}
		}
		slices.SortFunc(s.Points, func(a, b chart.Point) int { return int(a.X - b.X) })
		p.Series = append(p.Series, s)
	}
	return p.SVG()
}
