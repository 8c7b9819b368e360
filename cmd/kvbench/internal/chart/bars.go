package chart

import (
	_ "embed"
	"html/template"
	"math"
)

// Bar is one row of a bar chart.
type Bar struct {
	Label string
	Value float64
	Text  string // what stands behind the bar
	Class int
}

// Bars draws lying bars, from zero, with their values behind them.
func Bars(title, about string, bars []Bar) (template.HTML, error) {
	const rowHeight, labelWidth, textWidth = 34, 150, 180
	type row struct {
		Bar
		Y, Middle int
		Width     string
		TextX     string
	}
	d := struct {
		Title, About          string
		Width, Height, LabelX int
		BarX                  int
		Rows                  []row
	}{title, about, width, rowHeight*len(bars) + 8, labelWidth - 10, labelWidth, nil}
	most := 0.0
	for _, b := range bars {
		if b.Value > most && b.Value <= largest {
			most = b.Value
		}
	}
	for i, b := range bars {
		length := 0.0
		if most > 0 && b.Value > 0 {
			length = max(1, min(1, b.Value/most)*(width-labelWidth-textWidth))
		}
		y := 4 + rowHeight*i
		d.Rows = append(d.Rows, row{b, y + 5, y + rowHeight/2 + 4, px(length), px(labelWidth + length + 8)})
	}
	return render(barsTemplate, d)
}

//go:embed bars.svg.tmpl
var barsText string

var barsTemplate = template.Must(template.New("bars").Parse(barsText))

// Level is one level of a drawn tree.
type Level struct {
	Name   string
	Tables []float64 // their sizes, in the order of their keys
	Text   string    // what stands behind it
}

//go:embed tree.svg.tmpl
var treeText string

var treeTemplate = template.Must(template.New("tree").Parse(treeText))

// Tree draws levels as rows of boxes, one for each table. The area of a row is
// its share of all bytes, by the square root, since each level is ten times
// the one above and a true scale would hide all but the last. Boxes narrower
// than a pixel would not be seen: a level of many tables is drawn as one.
func Tree(title, about string, levels []Level) (template.HTML, error) {
	const rowHeight, labelWidth, textWidth, gap = 40, 46, 230, 1.5
	type box struct{ X, Width string }
	type row struct {
		Level
		Y, Middle int
		Boxes     []box
	}
	d := struct {
		Title, About          string
		Width, Height, LabelX int
		TextX                 int
		Rows                  []row
	}{title, about, width, rowHeight*len(levels) + 8, labelWidth - 10, width - textWidth + 10, nil}
	sums, most := make([]float64, len(levels)), 0.0
	for i, l := range levels {
		for _, t := range l.Tables {
			sums[i] += min(max(t, 0), largest)
		}
		most = max(most, sums[i])
	}
	const room = float64(width - labelWidth - textWidth)
	for i, l := range levels {
		y := 4 + rowHeight*i
		r := row{Level: l, Y: y + 5, Middle: y + rowHeight/2 + 4}
		if sums[i] > 0 {
			length := max(4, room*math.Sqrt(sums[i]/most))
			x := labelWidth + (room-length)/2
			if float64(len(l.Tables))*(gap+1) > length {
				r.Boxes = []box{{px(x), px(length)}}
			} else {
				free := length - gap*float64(len(l.Tables)-1)
				for _, t := range l.Tables {
					w := min(max(t, 0), largest) / sums[i] * free
					r.Boxes = append(r.Boxes, box{px(x), px(w)})
					x += w + gap
				}
			}
		}
		d.Rows = append(d.Rows, r)
	}
	return render(treeTemplate, d)
}
