// Package document holds a report for people apart from its form: paragraphs and
// tables that are written as text or as Markdown, or shown by a page. A Document
// is built by one goroutine and then only read.
//
//	d := &document.Document{}
//	d.Paragraph("Nothing lost.")
//	d.Text(&b)
package document

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// Document is a report, in the order in which it is read.
type Document struct{ Sections []Section }

// Section is a paragraph of lines or a table, perhaps under a title.
type Section struct {
	Title string
	Lines []string
	Table table.Writer // nil if it is none
	Plain string       // as it is: aligned by spaces
}

// Paragraph adds lines.
func (d *Document) Paragraph(lines ...string) {
	d.Sections = append(d.Sections, Section{Lines: lines})
}

// Add adds a table.
func (d *Document) Add(title string, t table.Writer) {
	d.Sections = append(d.Sections, Section{Title: title, Table: t})
}

// Definitions adds what the words mean, a text whose first line is its title.
func (d *Document) Definitions(s string) {
	_, s, _ = strings.Cut(strings.ReplaceAll(s, "\r\n", "\n"), "\n") // the title
	d.Sections = append(d.Sections, Section{Title: "Definitions", Plain: s})
}

// Text writes the report for a terminal.
func (d *Document) Text(b *bytes.Buffer) {
	for i, s := range d.Sections {
		if i > 0 {
			b.WriteByte('\n')
		}
		if s.Title != "" {
			b.WriteString(s.Title + "\n")
		}
		for _, line := range s.Lines {
			b.WriteString(line + "\n")
		}
		if s.Table != nil {
			b.WriteString(s.Table.Render() + "\n")
		}
		b.WriteString(s.Plain)
	}
}

// Markdown writes the report in Markdown.
func (d *Document) Markdown(b *bytes.Buffer) {
	for i, s := range d.Sections {
		if i > 0 {
			b.WriteByte('\n')
		}
		if s.Title != "" {
			b.WriteString("### " + s.Title + "\n\n")
		}
		for j, line := range s.Lines {
			if j < len(s.Lines)-1 {
				line += "  " // a line break
			}
			b.WriteString(line + "\n")
		}
		if s.Table != nil {
			b.WriteString(s.Table.RenderMarkdown() + "\n")
		}
		if s.Plain != "" {
			b.WriteString("```\n" + s.Plain + "```\n")
		}
	}
}

// NewTable returns a table whose columns but the first are right-aligned.
func NewTable(headers ...string) table.Writer {
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

// Round returns the nearest whole number.
func Round(v float64) uint64 { return uint64(v + 0.5) }

// Group writes a number with a comma between thousands.
func Group(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Rate writes the share of events as percent, a dash of nothing.
func Rate(events float64, of uint64) string {
	if of == 0 {
		return "-"
	}
	return fmt.Sprintf("%.3f %%", 100*events/float64(of))
}

// Micros writes nanoseconds as microseconds.
func Micros(ns float64) string { return fmt.Sprintf("%.2f µs", ns/1e3) }

// Signed writes a difference in nanoseconds as microseconds.
func Signed(ns float64) string { return fmt.Sprintf("%+.2f µs", ns/1e3) }

// Unit is a unit of time.
type Unit struct {
	Name string
	ns   float64
}

// UnitOf returns the unit in which a duration has at most three digits before
// the point.
func UnitOf(ns float64) Unit {
	for _, u := range []Unit{{"ns", 1}, {"µs", 1e3}, {"ms", 1e6}} {
		if ns < 1000*u.ns {
			return u
		}
	}
	return Unit{"s", 1e9}
}

// In writes nanoseconds in the unit, with three digits.
func (u Unit) In(ns float64) string {
	v := ns / u.ns
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// Duration writes nanoseconds with their unit.
func Duration(ns float64) string {
	u := UnitOf(ns)
	return u.In(ns) + " " + u.Name
}

// Size writes bytes with a binary unit.
func Size(n uint64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	v, units := float64(n)/(1<<10), "KMGTPE"
	for v >= 1000 && len(units) > 1 {
		v, units = v/(1<<10), units[1:]
	}
	return fmt.Sprintf("%.3g %ciB", v, units[0])
}
