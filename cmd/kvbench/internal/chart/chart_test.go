package chart

import (
	"encoding/xml"
	"errors"
	"flag"
	"html/template"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, name string, got template.HTML) {
	t.Helper()
	name = filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != strings.ReplaceAll(string(want), "\r\n", "\n") { // as a checkout on Windows may have it
		t.Errorf("%s: if the change is meant, run with -update and look at it; got:\n%s", name, got)
	}
	checkSVG(t, string(got))
}

// checkSVG checks that it is XML and that no number is missing.
func checkSVG(t *testing.T, svg string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in:\n%s", err, svg)
		}
	}
	for _, bad := range []string{"NaN", "Inf", "ZgotmplZ"} {
		if strings.Contains(svg, bad) {
			t.Errorf("%s in:\n%s", bad, svg)
		}
	}
}

func draw(t *testing.T, svg template.HTML, err error) template.HTML {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return svg
}

func TestPlot(t *testing.T) {
	p := &Plot{
		Title: "Rate <of> \"all\"", About: "A & B",
		X: Axis{Label: "bits"}, Y: Axis{Label: "rate", Log: true, Unit: " %"},
		Series: []Series{
			{Name: "theory", Class: 3, Line: true, Points: []Point{{X: 0, Y: 100}, {X: 10, Y: 1}, {X: 20, Y: 0.02}}},
			{Name: "measured", Class: 1, Dots: true, Points: []Point{{X: 10, Y: 0.9, Low: 0.8, High: 1.1, Note: "10 <bits>"}, {X: 20, Y: 0, High: 0.05}}},
			{Class: 2, Dots: true, Hollow: true, Line: true, Steps: true, Points: []Point{{X: 1, Y: 50}, {X: 2, Y: 40}}},
		},
	}
	svg, err := p.SVG()
	golden(t, "plot.svg", draw(t, svg, err))
	again, err := p.SVG()
	if draw(t, again, err) != svg {
		t.Error("the same input gives other bytes")
	}
}

func TestBars(t *testing.T) {
	svg, err := Bars("Reads", "off and on", []Bar{{"off", 2000, "2,000 <reads>", 2}, {"on", 13, "13", 1}, {"none", 0, "0", 1}})
	golden(t, "bars.svg", draw(t, svg, err))
}

func TestTree(t *testing.T) {
	svg, err := Tree("The tree", "two levels", []Level{
		{"L0", []float64{10, 20}, "2 tables"}, {"L5", nil, "empty"}, {"L6", make([]float64, 3000), "3,000 of nothing"},
		{"L7", []float64{1000, 2000, 3000}, "3 tables"},
	})
	golden(t, "tree.svg", draw(t, svg, err))
}

func TestRatios(t *testing.T) {
	svg, err := Ratios("Ratios", "of two", "times as long", []Legend{{"one", 1}, {"another", 2}}, []DotRow{
		{"absent", []Dot{{20, 15, 30, 1, "one: 20"}, {3, 3, 3, 2, "<another>"}}}, {"compact", nil}, {"scan", []Dot{{0.4, 0.3, 0.5, 1, ""}}},
	})
	golden(t, "ratios.svg", draw(t, svg, err))
}

// A file of its own has a size and the style, and is the chart otherwise.
func TestStandAlone(t *testing.T) {
	svg, err := (&Plot{Title: "Rate", X: Axis{Label: "bits"}, Series: []Series{{Name: "s", Line: true, Points: []Point{{X: 1, Y: 2}, {X: 2, Y: 3}}}}}).SVG()
	alone, err2 := StandAlone(draw(t, svg, err))
	if err2 != nil {
		t.Fatal(err2)
	}
	golden(t, "alone.svg", template.HTML(alone))
	_, body, _ := strings.Cut(string(svg), ">")
	if !strings.HasSuffix(string(alone), "</style>"+body) || !strings.Contains(string(alone), ` width="640" height="340">`) {
		t.Errorf("%s", alone)
	}
	for _, other := range []template.HTML{"", "<svg>", "<p>hello</p>"} {
		if alone, err := StandAlone(other); err == nil {
			t.Errorf("%q made %q", other, alone)
		}
	}
}

// Whatever the numbers are, the charts are well-formed.
func TestOddNumbers(t *testing.T) {
	odd := []float64{math.NaN(), math.Inf(1), math.Inf(-1), 0, -1, 1e-300, math.MaxFloat64}
	for _, log := range []bool{false, true} {
		for _, x := range odd {
			for _, y := range odd {
				p := &Plot{X: Axis{Log: log}, Y: Axis{Log: log}, Series: []Series{
					{Name: "s", Line: true, Dots: true, Points: []Point{{X: x, Y: y, Low: y, High: x}, {X: y, Y: x}}},
				}}
				svg, err := p.SVG()
				checkSVG(t, string(draw(t, svg, err)))
			}
		}
	}
	for _, p := range []*Plot{{}, {Series: []Series{{}}}, {X: Axis{Log: true}, Y: Axis{Log: true}}} {
		svg, err := p.SVG()
		checkSVG(t, string(draw(t, svg, err)))
	}
	svg, err := Bars("", "", nil)
	checkSVG(t, string(draw(t, svg, err)))
	svg, err = Bars("", "", []Bar{{Value: math.NaN()}, {Value: -1}, {Value: 1}})
	checkSVG(t, string(draw(t, svg, err)))
	svg, err = Ratios("", "", "", nil, nil)
	checkSVG(t, string(draw(t, svg, err)))
	for _, x := range odd {
		svg, err = Ratios("", "", "", nil, []DotRow{{Dots: []Dot{{Value: x, Low: 1, High: 2}, {Value: 1, Low: x, High: x}}}})
		checkSVG(t, string(draw(t, svg, err)))
	}
	svg, err = Tree("", "", nil)
	checkSVG(t, string(draw(t, svg, err)))
}

func TestTicks(t *testing.T) {
	for name, x := range map[string]struct {
		axis   Axis
		values []float64
		want   string
	}{
		"linear":      {Axis{}, []float64{3, 21}, "0 5 10 15 20"},
		"small":       {Axis{Unit: " %"}, []float64{0.012}, "0 % 0.002 % 0.004 % 0.006 % 0.008 % 0.01 % 0.012 %"},
		"few decades": {Axis{Log: true}, []float64{1, 50}, "1 2 5 10 20 50"},
		"decades":     {Axis{Log: true}, []float64{0.02, 150}, "0.1 1 10 100"},
		"large":       {Axis{}, []float64{2_000_000}, "0 500k 1M 1.5M 2M"},
		"given":       {Axis{Ticks: []Tick{{1, "one"}}}, []float64{1, 2}, "one"},
		"numbers":     {Axis{Log: true, Ticks: TicksAt([]int{16, 200_000, 50_000_000})}, []float64{16, 5e7}, "16 200k 50M"},
		"bounds":      {Axis{Min: -0.5, Max: 2.5, Ticks: nil}, []float64{1}, "-0.5 0 0.5 1 1.5 2 2.5"},
	} {
		var got []string
		s := x.axis.newScale(x.values, 0, 100)
		for _, tick := range x.axis.ticks(s) {
			got = append(got, tick.Label)
			if at := s.pixel(tick.At); x.axis.Ticks == nil && (at < -0.001 || at > 100.001) {
				t.Errorf("%s: %s is at %v", name, tick.Label, at)
			}
		}
		if strings.Join(got, " ") != x.want {
			t.Errorf("%s: %v, want %s", name, got, x.want)
		}
	}
}
