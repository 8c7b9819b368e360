// Package page makes one HTML file of any number of results: charts, tables
// and what their words mean. The file needs nothing from elsewhere, no script
// and no font, follows the reader's light or dark setting, and prints. All
// functions are pure and safe for concurrent use.
//
//	err := page.Write(w, []report.Run{run})
package page

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"

	"sievedb/cmd/kvbench/internal/chart"
	"sievedb/cmd/kvbench/internal/document"
	"sievedb/cmd/kvbench/internal/growth"
	"sievedb/cmd/kvbench/internal/report"
	"sievedb/cmd/kvbench/internal/versus"
)

//go:embed page.html.tmpl
var pageText string

//go:embed style.css
var style string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// figure is a chart with its caption.
type figure struct {
	Title   string
	SVG     template.HTML
	Caption string
}

// tile is a number that is worth a large font.
type tile struct{ Value, Label string }

// section is what the page shows of one run.
type section struct {
	Title   string
	Lead    []string
	Tiles   []tile
	Figures []figure
	Parts   []part
}

type part struct {
	Title string
	Lines []string
	Table template.HTML
	Plain string
}

// Write writes the page.
func Write(w io.Writer, runs []report.Run) error {
	data := struct {
		Style    template.CSS
		Title    string
		Sections []section
	}{Style: template.CSS(chart.Style + style)}
	for _, run := range runs {
		s, err := sectionOf(run)
		if err != nil {
			return err
		}
		for i, p := range run.Document().Sections {
			if i == 0 {
				s.Lead = p.Lines
				continue
			}
			shown := part{p.Title, p.Lines, "", p.Plain}
			if p.Table != nil {
				shown.Table = template.HTML(p.Table.RenderHTML()) // it escapes its cells
			}
			s.Parts = append(s.Parts, shown)
		}
		data.Sections = append(data.Sections, s)
	}
	data.Title = "kvbench"
	if len(data.Sections) > 0 && len(data.Sections[0].Lead) > 0 {
		data.Title = "kvbench: " + strings.TrimSuffix(data.Sections[0].Lead[0], ".")
	}
	if err := pageTemplate.Execute(w, data); err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	return nil
}

func sectionOf(run report.Run) (section, error) {
	switch r := run.(type) {
	case *report.Lookups:
		return lookups(r)
	case *report.Sweep:
		return sweep(r)
	case *report.Ops:
		return ops(r)
	case *versus.Result:
		return engines(r)
	case *growth.Result:
		return grown(r)
	case *report.Crash:
		return section{Title: "Killed while writing", Tiles: []tile{
			{document.Group(uint64(len(r.Kills))), "kills"}, {document.Group(r.Lost), "acknowledged batches lost"},
		}}, nil
	}
	return section{}, fmt.Errorf("no page for a %T", run)
}

// Figure is a chart as a file of its own.
type Figure struct {
	Name string // of the file, without a directory
	SVG  []byte
}

// Figures returns the charts that a page of the runs would have. Their names
// are made of their titles; of equal ones, the later have a number.
func Figures(runs []report.Run) (all []Figure, err error) {
	taken := map[string]int{}
	for _, run := range runs {
		s, err := sectionOf(run)
		if err != nil {
			return nil, err
		}
		for _, f := range s.Figures {
			svg, err := chart.StandAlone(f.SVG)
			if err != nil {
				return nil, err
			}
			name := strings.Join(strings.FieldsFunc(strings.ToLower(f.Title), func(r rune) bool {
				return (r < 'a' || r > 'z') && (r < '0' || r > '9')
			}), "-")
			if taken[name]++; taken[name] > 1 {
				name += fmt.Sprint("-", taken[name])
			}
			all = append(all, Figure{name + ".svg", svg})
		}
	}
	return all, nil
}

// add draws a figure; the first error stays.
func (s *section) add(err *error, title, caption string, draw func() (template.HTML, error)) {
	if *err != nil {
		return
	}
	var svg template.HTML
	if svg, *err = draw(); *err == nil {
		s.Figures = append(s.Figures, figure{title, svg, caption})
	}
}
