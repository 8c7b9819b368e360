package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"sievedb/cmd/sievectl/internal/check"
)

func checkCommand(out *output) *cobra.Command {
	return &cobra.Command{
		Use:   "check DIR",
		Short: "Check everything that can be said of a store without opening it",
		Long: `check reads every file of a store and compares them with one another: CURRENT
and the manifest; every table from end to end, its filter included; every record
of the WAL; that the files which the manifest lists are there, with the sizes,
checksums, bounds and sequence numbers that it has for them; and, for a sample of
keys, that newer runs hold newer versions. It prints a summary and every problem
with file and offset. It only reads; no process may have the store open.`,
		Example: `  sievectl check db
  sievectl check --json db`,
		Args: exactly(1),
		RunE: func(_ *cobra.Command, args []string) error {
			r, err := check.Dir(args[0])
			if err != nil {
				return err
			}
			if err := out.document((*checkReport)(r)); err != nil {
				return err
			}
			return damage(args[0], len(r.Problems))
		},
	}
}

// checkReport is a report with a text for people.
type checkReport check.Report

// String prints the summary and every problem.
func (r *checkReport) String() string {
	var b strings.Builder
	name := r.Manifest
	if name == "" {
		name = "no usable manifest"
	}
	fmt.Fprintf(&b, "%s: %s, sequence numbers up to %d in tables\n\n", r.Dir, name, r.LastSeq)
	t := newTable(&b, "level", "tables", "bytes", "entries", "deletes", "filter rate", "measured", "judged")
	for _, l := range r.Levels {
		level := fmt.Sprint(l.Level)
		if l.Level < 0 {
			level = "?"
		}
		t.row(level, l.Tables, l.Bytes, l.Entries, l.Deletes, rate(l.Filter.Expected, l.Filter.Asked), rate(float64(l.Filter.Positives), l.Filter.Asked), l.Filter.Judged)
	}
	t.flush()
	b.WriteString("\n")
	t = newTable(&b, "segment", "bytes", "sealed", "records", "operations", "first seq", "last seq")
	for _, s := range r.Segments {
		t.row(s.Name, s.Bytes, s.Sealed, s.Records, s.Ops, s.FirstSeq, s.LastSeq)
	}
	t.flush()
	fmt.Fprintf(&b, "\n%d keys sampled for the order of their versions\n", r.Sampled)
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	for _, p := range r.Problems {
		fmt.Fprintln(&b, p)
	}
	if len(r.Problems) == 0 {
		b.WriteString("No problem found.\n")
	}
	return b.String()
}

// rate prints a share in percent.
func rate(positives float64, asked uint64) string {
	if asked == 0 {
		return "-"
	}
	return fmt.Sprintf("%.4f %%", 100*positives/float64(asked))
}

// textTable aligns columns.
type textTable struct{ w *tabwriter.Writer }

func newTable(w io.Writer, columns ...any) textTable {
	t := textTable{tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)}
	t.row(columns...)
	return t
}

// row adds a row. The writer below is a strings.Builder, which does not fail.
func (t textTable) row(cells ...any) {
	for _, c := range cells {
		fmt.Fprintf(t.w, "%v\t", c)
	}
	fmt.Fprintln(t.w)
}

func (t textTable) flush() { _ = t.w.Flush() }
