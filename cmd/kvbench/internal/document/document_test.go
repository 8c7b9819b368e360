package document

import (
	"bytes"
	"testing"
)

func TestNumbers(t *testing.T) {
	for got, want := range map[string]string{
		Group(0): "0", Group(999): "999", Group(1_000): "1,000", Group(12_345_678): "12,345,678",
		Size(0): "0 B", Size(1023): "1023 B", Size(1 << 10): "1 KiB", Size(1000 << 10): "0.977 MiB", Size(1 << 62): "4 EiB",
		Rate(1, 0): "-", Rate(1, 200): "0.500 %", Micros(1234): "1.23 µs", Signed(-100): "-0.10 µs", Signed(100): "+0.10 µs",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestForms(t *testing.T) {
	d := &Document{}
	d.Paragraph("one", "two")
	table := NewTable("name", "count")
	table.AppendRow([]any{"a|b", 3})
	d.Add("Counts", table)
	d.Definitions("Definitions\n  a  b\n")
	var text, markdown bytes.Buffer
	d.Text(&text)
	d.Markdown(&markdown)
	const wantText = "one\ntwo\n\nCounts\n┌──────┬───────┐\n│ name │ count │\n├──────┼───────┤\n│ a|b  │     3 │\n└──────┴───────┘\n\nDefinitions\n  a  b\n"
	if text.String() != wantText {
		t.Errorf("text:\n%s", text.String())
	}
	const wantMarkdown = "one  \ntwo\n\n### Counts\n\n| name | count |\n| --- | ---:|\n| a\\|b | 3 |\n\n### Definitions\n\n```\n  a  b\n```\n"
	if markdown.String() != wantMarkdown {
		t.Errorf("Markdown:\n%s", markdown.String())
	}
}

func TestUnits(t *testing.T) {
	for want, ns := range map[string]float64{"0.00 ns": 0, "3.14 ns": 3.14159, "999 ns": 999, "1.00 µs": 1000, "12.3 ms": 12.345e6, "1.50 s": 1.5e9, "2000 s": 2e12} {
		if got := Duration(ns); got != want {
			t.Errorf("%v is %q, want %q", ns, got, want)
		}
	}
}
