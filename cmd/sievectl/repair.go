package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"sievedb/cmd/sievectl/internal/salvage"
)

func repairCommand(out *output) *cobra.Command {
	return &cobra.Command{
		Use:   "repair SRC DST",
		Short: "Make a new store out of what can be read of another",
		Long: `repair makes a new store in DST, which must not exist or be empty, and puts into
it the newest version of each key that it can read in SRC: of every data block
and every record of the WAL whose checksum is right. SRC is only read; no process
may have it open meanwhile.

It reports what was lost, with file, offsets and, where that is known, the number
of entries and the keys. Where something was lost, keys may be back with an older
value, or although they were deleted: the report counts them. Sequence numbers
are not carried over, nor is the store's identity. The exit code is 0 if nothing
was damaged, and 1 otherwise, also if all could be saved.

It holds the records of the WAL and the indexes of all tables in memory.`,
		Example: `  sievectl repair db db.new
  sievectl repair --json db db.new > report.json`,
		Args: exactly(2),
		RunE: func(_ *cobra.Command, args []string) error {
			r, err := salvage.Repair(args[0], args[1])
			if err != nil {
				return err
			}
			if err := out.document((*repairReport)(r)); err != nil {
				return err
			}
			return damage(args[0], len(r.Losses)+len(r.Damage))
		},
	}
}

// repairReport is a report with a text for people.
type repairReport salvage.Report

// String prints the report: what was written, from which files, and what is
// lost.
func (r *repairReport) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d keys, %d bytes of keys and values, written from %s\n\n", r.Dest, r.KeysWritten, r.BytesWritten, r.Source)
	t := newTable(&b, "file", "level", "blocks or records", "entries", "entries lost")
	var parts, entries uint64
	for _, f := range r.Files {
		parts, entries = parts+f.Parts, entries+f.Entries
		if !f.Scanned && !slices.ContainsFunc(r.Losses, func(l *salvage.Loss) bool { return l.File == f.Name }) {
			continue // what is whole needs no line
		}
		level, lost := "-", "-"
		if f.Level != nil {
			level = fmt.Sprint(*f.Level)
		}
		if f.Lost != nil {
			lost = fmt.Sprint(*f.Lost)
		}
		t.row(f.Name, level, f.Parts, f.Entries, lost)
	}
	t.row(fmt.Sprintf("all %d files", len(r.Files)), "", parts, entries, "")
	t.flush()
	b.WriteString("\n")
	for _, l := range r.Losses {
		fmt.Fprintf(&b, "LOST %s\n", l)
	}
	for _, d := range r.Damage {
		fmt.Fprintf(&b, "DAMAGED, nothing lost: %s\n", d)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	if (*salvage.Report)(r).Whole() {
		b.WriteString("Nothing is lost and nothing was damaged.\n")
	}
	return b.String()
}
