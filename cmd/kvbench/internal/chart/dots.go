package chart

import (
	_ "embed"
	"html/template"
)

// Dot is a ratio with its spread.
type Dot struct {
	Value, Low, High float64
	Class            int
	Note             string // shown when pointed at
}

// DotRow is one row of dots.
type DotRow struct {
	Label string
	Dots  []Dot
}

// Legend names a class of dots.
type Legend struct {
	Name  string
	Class int
}

//go:embed dots.svg.tmpl
var dotsText string

var dotsTemplate = template.Must(template.New("dots").Parse(dotsText))

type drawnDot struct {
	X, Y, Low, High string
	Class           int
	Note            string
}

// Ratios draws rows of ratios on one logarithmic axis, with a line at 1, and
// the dots of a row below one another so that none hides another.
func Ratios(title, about, axis string, legend []Legend, rows []DotRow) (template.HTML, error) {
	const labelWidth, head, foot, pitch, pad = 136, 34, 44, 9, 10
	x := Axis{Label: axis, Log: true, Min: 0.5, Max: 2}
	var values []float64
	for _, r := range rows {
		for _, d := range r.Dots {
			values = append(values, d.Value, d.Low, d.High)
		}
	}
	s := x.newScale(values, labelWidth+10, width-right)
	type row struct {
		Label       string
		Top, Middle int
		Dots        []drawnDot
	}
	d := struct {
		Title, About, Axis         string
		Width, Height, Left, Right int
		LabelX, Top, Bottom, TickY int
		AxisX, AxisY               int
		One                        string
		Ticks                      []drawnTick
		Rows                       []row
		Legend                     []drawnLegend
	}{Title: title, About: about, Axis: axis, Width: width, Left: labelWidth + 10, Right: width - right, LabelX: labelWidth, Top: head, One: px(s.pixel(1))}
	y := head
	for _, r := range rows {
		h := pad + pitch*max(len(r.Dots), 1)
		drawn := row{Label: r.Label, Top: y, Middle: y + h/2 + 4}
		for i, q := range r.Dots {
			if !x.place(q.Value) || !x.place(q.Low) || !x.place(q.High) {
				continue
			}
			at := float64(y) + pad/2 + pitch*(float64(i)+0.5)
			drawn.Dots = append(drawn.Dots, drawnDot{px(s.pixel(q.Value)), px(at), px(s.pixel(q.Low)), px(s.pixel(q.High)), q.Class, q.Note})
		}
		d.Rows = append(d.Rows, drawn)
		y += h
	}
	d.Bottom, d.TickY, d.AxisX, d.AxisY, d.Height = y, y+17, (labelWidth+width-right)/2, y+foot-8, y+foot
	for _, t := range x.ticks(s) {
		d.Ticks = append(d.Ticks, drawnTick{px(s.pixel(t.At)), t.Label})
	}
	at := float64(d.Left)
	for _, l := range legend {
		d.Legend = append(d.Legend, drawnLegend{X: px(at), TextX: px(at + 24), Class: l.Class, Name: l.Name})
		at += legendWidth(l.Name)
	}
	return render(dotsTemplate, d)
}
