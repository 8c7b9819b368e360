package chart

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"strings"
)

// Series is one set of points.
type Series struct {
	Name string
	// Class chooses the colour, 1 to 4.
	Class  int
	Points []Point
	Line   bool // joins the points
	Dots   bool // marks them
	Hollow bool // with rings
	Steps  bool // joins them by a staircase
}

// Point is one number, with an interval unless Low and High are zero.
type Point struct {
	X, Y, Low, High float64
	Note            string // shown when pointed at
}

// Plot is a chart with two axes.
type Plot struct {
	Title, About string // for those who cannot see it
	X, Y         Axis
	Series       []Series
}

// The places of a plot, in pixels of its own; the page scales it.
const (
	width, height                = 640, 340
	left, right, topEdge, bottom = 66, 28, 34, 46
)

//go:embed plot.svg.tmpl
var plotText string

var plotTemplate = template.Must(template.New("plot").Parse(plotText))

type drawnTick struct{ At, Label string }

type drawnPoint struct {
	X, Y, Low, High string
	Interval        bool
	Note            string
}

type drawnSeries struct {
	Class  int
	Path   string
	Points []drawnPoint
	Hollow bool
}

type drawnLegend struct {
	X, TextX string
	Class    int
	Name     string
	Line     bool
	Hollow   bool
}

// SVG draws the plot. Points that have no place are left out.
func (p *Plot) SVG() (template.HTML, error) {
	var xs, ys []float64
	for _, s := range p.Series {
		for _, q := range s.Points {
			xs, ys = append(xs, q.X), append(ys, q.Y)
			if q.Low != 0 || q.High != 0 {
				ys = append(ys, q.High)
				if q.Low > q.Y/1000 { // on a logarithmic axis the rest would be a pinpoint
					ys = append(ys, q.Low)
				}
			}
		}
	}
	x := p.X.newScale(xs, left, width-right)
	y := p.Y.newScale(ys, height-bottom, topEdge)
	d := struct {
		*Plot
		Width, Height                  int
		Left, Right, Top, Bottom       int
		MiddleX, MiddleY, TickX, TickY int
		XTicks, YTicks                 []drawnTick
		Drawn                          []drawnSeries
		Legend                         []drawnLegend
		LabelY                         int
	}{
		Plot: p, Width: width, Height: height, Left: left, Right: width - right, Top: topEdge, Bottom: height - bottom,
		MiddleX: (left + width - right) / 2, MiddleY: (topEdge + height - bottom) / 2,
		TickX: left - 8, TickY: height - bottom + 17, LabelY: height - 8,
	}
	for _, t := range p.X.ticks(x) {
		d.XTicks = append(d.XTicks, drawnTick{px(x.pixel(t.At)), t.Label})
	}
	for _, t := range p.Y.ticks(y) {
		d.YTicks = append(d.YTicks, drawnTick{px(y.pixel(t.At)), t.Label})
	}
	at := float64(left)
	for i := range p.Series {
		s := &p.Series[i]
		d.Drawn = append(d.Drawn, p.draw(s, x, y))
		if s.Name != "" {
			d.Legend = append(d.Legend, drawnLegend{px(at), px(at + 24), s.Class, s.Name, s.Line && !s.Dots, s.Hollow})
			at += legendWidth(s.Name)
		}
	}
	return render(plotTemplate, d)
}

// legendWidth is about what a name takes in a legend, with its mark and a gap.
func legendWidth(name string) float64 { return 24 + 6.6*float64(len([]rune(name))) + 18 }

func (p *Plot) draw(s *Series, x, y scale) drawnSeries {
	d := drawnSeries{Class: s.Class, Hollow: s.Hollow}
	var path strings.Builder
	last := ""
	for _, q := range s.Points {
		if !p.X.place(q.X) || !p.Y.place(q.Y) {
			continue
		}
		r := drawnPoint{X: px(x.pixel(q.X)), Y: px(y.pixel(q.Y)), Note: q.Note}
		if q.High != 0 && p.Y.place(q.High) {
			r.Interval, r.High = true, px(y.pixel(q.High))
			low := q.Low
			if !p.Y.place(low) || low < y.lo { // down to the edge
				low = y.lo
			}
			r.Low = px(y.pixel(low))
		}
		switch {
		case path.Len() == 0:
			fmt.Fprintf(&path, "M%s %s", r.X, r.Y)
		case s.Steps:
			fmt.Fprintf(&path, " L%s %s L%s %s", r.X, last, r.X, r.Y)
		default:
			fmt.Fprintf(&path, " L%s %s", r.X, r.Y)
		}
		last = r.Y
		if s.Dots {
			d.Points = append(d.Points, r)
		}
	}
	if s.Line {
		d.Path = path.String()
	}
	return d
}

func render(t *template.Template, data any) (template.HTML, error) {
	var b bytes.Buffer
	if err := t.Execute(&b, data); err != nil {
		return "", fmt.Errorf("drawing a chart: %w", err)
	}
	return template.HTML(b.String()), nil
}
