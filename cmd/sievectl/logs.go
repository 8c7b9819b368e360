package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"sievedb/cmd/sievectl/internal/check"
	"sievedb/cmd/sievectl/internal/decode"
	"sievedb/internal/corrupt"
	"sievedb/internal/manifest"
)

func walDumpCommand(out *output) *cobra.Command {
	var withKeys bool
	cmd := &cobra.Command{
		Use:   "dump FILE",
		Short: "List the records of a WAL segment",
		Long: `dump lists the write batches in a segment of the WAL and, with --keys, their
operations. It goes on behind damage. Whether a bad end is a crash's torn tail or
damage only the manifest can tell: see check.`,
		Example: `  sievectl wal dump db/000015.wal
  sievectl wal dump --keys --json db/000015.wal`,
		Args: exactly(1),
		RunE: func(_ *cobra.Command, args []string) error { return dumpSegment(out, args[0], withKeys) },
	}
	cmd.Flags().BoolVar(&withKeys, "keys", false, "list every operation")
	return cmd
}

// logInfo is the header of a segment or manifest.
type logInfo struct {
	File      string `json:"file"`
	SizeBytes int64  `json:"size_bytes"`
	Number    uint64 `json:"number"`
	Store     string `json:"store"`
	what      string
}

// String prints the header on one line.
func (l *logInfo) String() string {
	return fmt.Sprintf("%s: %s %d of store %s, %d bytes", l.File, l.what, l.Number, l.Store, l.SizeBytes)
}

// recordInfo is one batch.
type recordInfo struct {
	Offset   int64  `json:"offset"`
	Length   int64  `json:"length"`
	FirstSeq uint64 `json:"first_seq"`
	LastSeq  uint64 `json:"last_seq"`
	Ops      int    `json:"operations"`
}

// String prints the batch on one line.
func (r *recordInfo) String() string {
	return fmt.Sprintf("record @%d, %d bytes: %d operations, sequence numbers %d to %d", r.Offset, r.Length, r.Ops, r.FirstSeq, r.LastSeq)
}

func dumpSegment(out *output, path string, withKeys bool) error {
	f, err := decode.OpenFile(path)
	if err != nil {
		return err
	}
	var found []*check.Problem
	num, named := decode.ParseNum(f.Name, ".wal")
	h, err := decode.ReadSegmentHeader(f)
	switch {
	case err == nil:
		if num = h.Number; named && fmt.Sprintf("%06d.wal", num) != f.Name {
			found = append(found, &check.Problem{File: f.Name, Offset: 16, Text: fmt.Sprintf("the segment has number %d", num)})
		}
	case !named || !errors.Is(err, corrupt.ErrCorrupt):
		return err
	default:
		found = append(found, check.ProblemOf(f.Name, err))
	}
	if err := out.line("segment", &logInfo{f.Name, f.Size, uint64(num), fmt.Sprintf("%x", h.Store), "WAL segment"}); err != nil {
		return err
	}
	gaps, err := decode.WalkSegment(f, num, f.Size, func(b *decode.Batch) error {
		err := out.line("record", &recordInfo{b.Offset, b.End - b.Offset, uint64(b.Seq), uint64(b.LastSeq()), len(b.Ops)})
		for i := 0; i < len(b.Ops) && withKeys && err == nil; i++ {
			op := &b.Ops[i]
			err = out.line("operation", &entryInfo{op.Key, uint64(op.Trailer.SeqNum()), op.Trailer.Kind().String(), len(op.Value), b.Offset})
		}
		return err
	})
	if err != nil {
		return err
	}
	return out.problems(path, append(found, check.GapProblems(f, gaps)...))
}

func manifestDumpCommand(out *output) *cobra.Command {
	return &cobra.Command{
		Use:   "dump FILE|DIR",
		Short: "List the edits of a manifest",
		Long: `dump lists the edits of a manifest, the one that CURRENT names if a directory
is given. It goes on behind damage.`,
		Example: `  sievectl manifest dump db
  sievectl manifest dump --json db/MANIFEST-000007`,
		Args: exactly(1),
		RunE: func(_ *cobra.Command, args []string) error {
			path := args[0]
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			if info.IsDir() {
				c, err := decode.ReadCurrent(path)
				if err != nil {
					return err
				}
				if err := out.line("current", &currentInfo{manifest.ManifestName(c.Manifest), c.DurableBytes}); err != nil {
					return err
				}
				path = filepath.Join(path, manifest.ManifestName(c.Manifest))
			}
			return dumpManifest(out, path)
		},
	}
}

// currentInfo is what CURRENT says.
type currentInfo struct {
	Manifest     string `json:"manifest"`
	DurableBytes int64  `json:"durable_bytes"`
}

// String prints it on one line.
func (c *currentInfo) String() string {
	return fmt.Sprintf("CURRENT names %s, of which %d bytes were durable", c.Manifest, c.DurableBytes)
}

func dumpManifest(out *output, path string) error {
	f, err := decode.OpenFile(path)
	if err != nil {
		return err
	}
	var found []*check.Problem
	num, named := manifest.ParseManifestName(f.Name)
	h, err := decode.ReadManifestHeader(f)
	switch {
	case err == nil:
		if num = h.Number; named && manifest.ManifestName(num) != f.Name {
			found = append(found, &check.Problem{File: f.Name, Offset: 12, Text: fmt.Sprintf("the manifest has number %d", num)})
		}
	case !named || !errors.Is(err, corrupt.ErrCorrupt):
		return err
	default:
		found = append(found, check.ProblemOf(f.Name, err))
	}
	if err := out.line("manifest", &logInfo{f.Name, f.Size, uint64(num), fmt.Sprintf("%x", h.Store), "manifest"}); err != nil {
		return err
	}
	gaps, err := decode.WalkManifest(f, num, func(e *decode.Edit) error { return out.line("edit", newEditInfo(e)) })
	if err != nil {
		return err
	}
	return out.problems(path, append(found, check.GapProblems(f, gaps)...))
}

// editInfo is one edit.
type editInfo struct {
	Offset        int64        `json:"offset"`
	Length        int64        `json:"length"`
	NextFileNum   uint64       `json:"next_file_number,omitempty"`
	LastSeq       uint64       `json:"last_seq,omitempty"`
	OldestSegment uint64       `json:"oldest_segment,omitempty"`
	AddedSegments []uint64     `json:"added_segments,omitempty"`
	Ended         []segmentEnd `json:"ended_segments,omitempty"`
	Removed       []tablePlace `json:"removed_tables,omitempty"`
	Added         []tableAdded `json:"added_tables,omitempty"`
	Skipped       []int        `json:"fields_not_known,omitempty"` // tags
}

type segmentEnd struct {
	Number    uint64 `json:"number"`
	SizeBytes uint64 `json:"size_bytes"`
	Sealed    bool   `json:"sealed"`
}

type tablePlace struct {
	Level  int    `json:"level"`
	Number uint64 `json:"number"`
}

type tableAdded struct {
	tablePlace
	SizeBytes   uint64     `json:"size_bytes"`
	Checksum    uint32     `json:"checksum"`
	Smallest    decode.Key `json:"smallest"`
	Largest     decode.Key `json:"largest"`
	SmallestSeq uint64     `json:"smallest_seq"`
	LargestSeq  uint64     `json:"largest_seq"`
	Entries     uint64     `json:"entries"`
	Deletes     uint64     `json:"deletes"`
	UserKeys    uint64     `json:"user_keys"`
	RawBytes    uint64     `json:"raw_bytes"`
	FilterBytes uint64     `json:"filter_bytes"`
}

func newEditInfo(e *decode.Edit) *editInfo {
	i := &editInfo{Offset: e.Offset, Length: e.End - e.Offset,
		NextFileNum: uint64(e.NextFileNum), LastSeq: uint64(e.LastSeq), OldestSegment: uint64(e.OldestSegment)}
	for _, n := range e.AddedSegments {
		i.AddedSegments = append(i.AddedSegments, uint64(n))
	}
	for _, s := range e.EndedSegments {
		i.Ended = append(i.Ended, segmentEnd{uint64(s.FileNum), s.SizeBytes, s.Sealed})
	}
	for _, t := range e.Removed {
		i.Removed = append(i.Removed, tablePlace{t.Level, uint64(t.FileNum)})
	}
	for _, t := range e.Added {
		m := t.Meta
		i.Added = append(i.Added, tableAdded{tablePlace{t.Level, uint64(m.FileNum)}, m.SizeBytes, m.Checksum, m.Smallest, m.Largest,
			uint64(m.SmallestSeq), uint64(m.LargestSeq), m.Entries, m.Deletes, m.UserKeys, m.RawBytes, m.FilterBytes})
	}
	for _, tag := range e.Skipped {
		i.Skipped = append(i.Skipped, int(tag))
	}
	return i
}

// String prints the edit, a line for each thing that it changes.
func (e *editInfo) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "edit @%d, %d bytes", e.Offset, e.Length)
	for _, n := range []struct {
		name  string
		value uint64
	}{{"next file number", e.NextFileNum}, {"last sequence number", e.LastSeq}, {"oldest segment", e.OldestSegment}} {
		if n.value > 0 {
			fmt.Fprintf(&b, "\n  %s %d", n.name, n.value)
		}
	}
	for _, n := range e.AddedSegments {
		fmt.Fprintf(&b, "\n  add segment %06d", n)
	}
	for _, s := range e.Ended {
		how := "end"
		if s.Sealed {
			how = "seal"
		}
		fmt.Fprintf(&b, "\n  %s segment %06d with %d bytes", how, s.Number, s.SizeBytes)
	}
	for _, t := range e.Removed {
		fmt.Fprintf(&b, "\n  remove L%d %06d", t.Level, t.Number)
	}
	for _, t := range e.Added {
		fmt.Fprintf(&b, "\n  add L%d %06d: %s to %s, sequence numbers %d to %d, %d entries (%d deletes) of %d user keys, %d bytes (filter %d), checksum %#08x",
			t.Level, t.Number, t.Smallest, t.Largest, t.SmallestSeq, t.LargestSeq, t.Entries, t.Deletes, t.UserKeys, t.SizeBytes, t.FilterBytes, t.Checksum)
	}
	for _, tag := range e.Skipped {
		fmt.Fprintf(&b, "\n  field %d, which is not known here and may be skipped", tag)
	}
	return b.String()
}
