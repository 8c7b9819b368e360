package main

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"sievedb/cmd/sievectl/internal/check"
	"sievedb/cmd/sievectl/internal/decode"
	"sievedb/sstable"
)

// dumpConfig says what of a table is listed.
type dumpConfig struct {
	keys, blocks bool
	from, to     keyFlag
}

func sstDumpCommand(out *output) *cobra.Command {
	var c dumpConfig
	cmd := &cobra.Command{
		Use:   "dump FILE",
		Short: "Print the parts, the properties and, if asked, the content of a table",
		Long: `dump prints where the parts of a table lie and its properties, with --blocks
each data block, and with --keys each entry. A table without a readable footer or
index is searched for data blocks. --from and --to restrict both lists to user
keys from the one up to, but without, the other; a key is given as it is, in
quotes as it is printed, or as 0x and hexadecimal digits.`,
		Example: `  sievectl sst dump db/000012.sst
  sievectl sst dump --blocks db/000012.sst
  sievectl sst dump --keys --from user:1 --to user:2 db/000012.sst
  sievectl sst dump --keys --json db/000012.sst`,
		Args: exactly(1),
		RunE: func(_ *cobra.Command, args []string) error { return c.dump(out, args[0]) },
	}
	f := cmd.Flags()
	f.BoolVar(&c.keys, "keys", false, "list every entry")
	f.BoolVar(&c.blocks, "blocks", false, "list every data block")
	f.Var(&c.from, "from", "first user key to list")
	f.Var(&c.to, "to", "user key to stop before")
	return cmd
}

// tableInfo is a table without its data.
type tableInfo struct {
	File       string            `json:"file"`
	SizeBytes  int64             `json:"size_bytes"`
	Scanned    bool              `json:"scanned"`
	Blocks     int               `json:"data_blocks"`
	DataEnd    uint64            `json:"data_end"`
	Footer     *decode.Footer    `json:"footer"`
	Properties []decode.Property `json:"properties"`
	RangeDels  int               `json:"range_tombstones"`
}

// String prints the table on several lines.
func (t *tableInfo) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: a table of %d bytes\n", t.File, t.SizeBytes)
	how := ""
	if t.Scanned {
		how = ", found without an index"
	}
	fmt.Fprintf(&b, "  %-26s @%-10d %d bytes: %d blocks%s\n", "data blocks", 0, t.DataEnd, t.Blocks, how)
	if f := t.Footer; f != nil {
		for _, part := range []struct {
			name string
			h    decode.Handle
		}{{"filter", f.Filter}, {"range tombstones", f.RangeTombstones}, {"index", f.Index}, {"properties", f.Properties}} {
			fmt.Fprintf(&b, "  %-26s @%-10d %d bytes, checksum %#08x\n", part.name, part.h.Offset, part.h.Length, part.h.Sum)
		}
		fmt.Fprintf(&b, "  %-26s version %d, checksum %#08x\n", "footer", f.Version, f.Checksum)
	}
	for _, p := range t.Properties {
		fmt.Fprintf(&b, "  %-26s %s\n", p.Name, p.Value)
	}
	if t.RangeDels > 0 {
		fmt.Fprintf(&b, "  %-26s %d\n", "range tombstones, cut up", t.RangeDels)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// blockInfo is one data block.
type blockInfo struct {
	Block      int        `json:"block"`
	Offset     uint64     `json:"offset"`
	Length     uint64     `json:"length"`
	Compressed bool       `json:"compressed"`
	Entries    int        `json:"entries"`
	First      decode.Key `json:"first"`
	Last       decode.Key `json:"last"`
	Separator  decode.Key `json:"separator"`
}

// String prints the block on one line.
func (b *blockInfo) String() string {
	how := "raw"
	if b.Compressed {
		how = "snappy"
	}
	return fmt.Sprintf("block %d @%d, %d bytes (%s): %d entries, %s to %s, separator %s",
		b.Block, b.Offset, b.Length, how, b.Entries, b.First, b.Last, b.Separator)
}

// entryInfo is one entry.
type entryInfo struct {
	Key        decode.Key `json:"key"`
	Seq        uint64     `json:"seq"`
	Kind       string     `json:"kind"`
	ValueBytes int        `json:"value_bytes"`
	Offset     int64      `json:"offset"` // of its block or record
}

// String prints the entry on one line.
func (e *entryInfo) String() string {
	return fmt.Sprintf("  %s #%d %s, value of %d bytes", e.Key, e.Seq, e.Kind, e.ValueBytes)
}

func (c *dumpConfig) dump(out *output, path string) error {
	f, err := decode.OpenFile(path)
	if err != nil {
		return err
	}
	t, err := decode.ReadTable(f, f.Size)
	if err != nil {
		return err
	}
	info := &tableInfo{File: f.Name, SizeBytes: f.Size, Scanned: t.Scanned, Blocks: len(t.Blocks), DataEnd: t.DataEnd,
		Footer: t.Footer, Properties: t.Properties, RangeDels: len(t.RangeDels.Spans())}
	if err := out.line("table", info); err != nil {
		return err
	}
	var found []*check.Problem
	for _, err := range t.Problems {
		found = append(found, check.ProblemOf(f.Name, err))
	}
	for i := 0; i < len(t.Blocks) && (c.keys || c.blocks); i++ {
		damaged, err := c.dumpBlock(out, t, i)
		if err != nil {
			return err
		}
		if damaged != nil {
			found = append(found, check.ProblemOf(f.Name, damaged))
		}
	}
	if f.Err() != nil {
		found = append(found, check.ProblemOf(f.Name, f.Err()))
	}
	return out.problems(path, found)
}

// dumpBlock lists block i as far as it is asked for. damaged says what is wrong
// with it.
func (c *dumpConfig) dumpBlock(out *output, t *decode.Table, i int) (damaged, err error) {
	b := &t.Blocks[i]
	if c.from.set && b.Separator != nil && bytes.Compare(b.Separator, c.from.key) < 0 {
		return nil, nil
	}
	entries, compressed, damaged := t.Entries(i)
	if damaged != nil {
		return damaged, nil
	}
	first, last := entries[0].UserKey, entries[len(entries)-1].UserKey
	entries = slices.DeleteFunc(entries, func(e decode.Entry) bool {
		return c.from.set && bytes.Compare(e.UserKey, c.from.key) < 0 || c.to.set && bytes.Compare(e.UserKey, c.to.key) >= 0
	})
	if len(entries) == 0 {
		return nil, nil
	}
	if c.blocks {
		err = out.line("block", &blockInfo{i, b.Offset, b.Length, compressed, len(entries), first, last, b.Separator})
	}
	for j := 0; j < len(entries) && c.keys && err == nil; j++ {
		e := &entries[j]
		err = out.line("entry", &entryInfo{e.UserKey, uint64(e.Trailer.SeqNum()), e.Trailer.Kind().String(), len(e.Value), int64(b.Offset)})
	}
	return nil, err
}

func sstVerifyCommand(out *output) *cobra.Command {
	return &cobra.Command{
		Use:   "verify FILE...",
		Short: "Check everything that tables say of themselves",
		Long: `verify reads tables from end to end: checksums, the order of entries, blocks
and separators, that every key passes the filter, and the counts in the
properties.`,
		Example: "  sievectl sst verify db/*.sst",
		Args:    atLeastOne,
		RunE: func(_ *cobra.Command, args []string) error {
			var errs []error
			for _, path := range args {
				errs = append(errs, verify(out, path))
			}
			return errors.Join(errs...)
		},
	}
}

// verified is the outcome for one table.
type verified struct {
	File    string `json:"file"`
	Entries uint64 `json:"entries"`
	Blocks  uint64 `json:"data_blocks"`
	Size    int64  `json:"size_bytes"`
	OK      bool   `json:"ok"`
}

// String prints the outcome on one line.
func (v *verified) String() string {
	if !v.OK {
		return v.File + ": damaged"
	}
	return fmt.Sprintf("%s: ok, %d entries in %d blocks, %d bytes", v.File, v.Entries, v.Blocks, v.Size)
}

func verify(out *output, path string) error {
	f, err := decode.OpenFile(path)
	if err != nil {
		return err
	}
	r, found := check.Table(f, sstable.ReaderOptions{Name: f.Name, WantSize: uint64(f.Size)})
	v := &verified{File: f.Name, Size: f.Size, OK: len(found) == 0}
	if r != nil {
		v.Entries, v.Blocks = r.Properties().Entries, r.Properties().DataBlocks
	}
	if err := out.line("table", v); err != nil {
		return err
	}
	return out.problems(path, found)
}
