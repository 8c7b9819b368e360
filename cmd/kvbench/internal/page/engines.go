package page

import (
	"fmt"
	"html/template"

	"sievedb/cmd/kvbench/internal/chart"
	"sievedb/cmd/kvbench/internal/versus"
)

func engines(r *versus.Result) (s section, err error) {
	s.Title = "The same workloads on several engines"
	peers := r.Setup.Engines[min(1, len(r.Setup.Engines)):]
	for i := range r.Settings {
		x := &r.Settings[i]
		slower, faster, all := x.Verdicts()
		s.Tiles = append(s.Tiles, tile{fmt.Sprintf("%d / %d / %d", slower, all-slower-faster, faster),
			fmt.Sprintf("comparisons: %s faster / about even / slower, %s", versus.Baseline, x.Title())})
		s.add(&err, "Times as long as "+versus.Baseline+", "+x.Title(),
			"Right of the line at 1, "+versus.Baseline+" is faster; left of it, the peer is. A dot is the median of the repetitions, its line reaches from the least to the greatest.",
			func() (template.HTML, error) { return ratios(x, peers) })
	}
	return s, err
}

func ratios(s *versus.Setting, peers []versus.Engine) (template.HTML, error) {
	var legend []chart.Legend
	classes := map[string]int{}
	for i, e := range peers {
		classes[e.Name] = 1 + i%4
		legend = append(legend, chart.Legend{Name: e.Name, Class: classes[e.Name]})
	}
	var rows []chart.DotRow
	for _, w := range s.Workloads {
		row := chart.DotRow{Label: w.Name}
		for _, t := range w.Timings {
			if t.Verdict != "" {
				row.Dots = append(row.Dots, chart.Dot{Value: t.Ratio, Low: t.RatioLow, High: t.RatioHigh, Class: classes[t.Engine],
					Note: fmt.Sprintf("%s, %s: %.2f (%.2f to %.2f)", t.Engine, w.Name, t.Ratio, t.RatioLow, t.RatioHigh)})
			}
		}
		rows = append(rows, row)
	}
	return chart.Ratios("Ratios, "+s.Title(), s.Headline(), "times as long as "+versus.Baseline, legend, rows)
}
