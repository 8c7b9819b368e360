package sievedb

import (
	"bytes"
	"errors"

	"sievedb/internal/invariants"
	"sievedb/internal/iter"
	"sievedb/internal/keys"
	"sievedb/internal/manifest"
	"sievedb/internal/rangedel"
	"sievedb/internal/table"
	"sievedb/sstable"
	"sievedb/vfs"
)

// outputs are the tables that a flush or a compaction writes, one after the
// other, before they become part of the tree.
type outputs struct {
	db     *DB
	level  int
	source iter.Blocks // of the entries; nil is none that lies in blocks
	file   vfs.File
	writer *sstable.Writer // of the table that is being written, or nil
	nums   []keys.FileNum  // every file that was created

	// spans are range tombstones for the table, which may go on beyond it.
	spans     []rangedel.Span
	spanBytes uint64 // what they add to it, about

	blocks, passed uint64 // data blocks of finished tables, and those of them taken over from source

	added  []manifest.LevelTable
	opened map[keys.FileNum]*table.Table

	version    *manifest.Version // that the tables are added to; nil is the current one
	bottommost bool              // nothing older lies below
	manual     bool              // nor above, in the end
	filters    filterUse
}

func (db *DB) newOutputs(level int) *outputs {
	o := &outputs{db: db, level: level, opened: map[keys.FileNum]*table.Table{}}
	db.mu.Lock()
	defer db.mu.Unlock()
	db.writing[o] = true
	return o
}

// SizeBytes implements compaction.Output.
func (o *outputs) SizeBytes() uint64 {
	if o.writer == nil {
		return 0
	}
	return o.writer.EstimatedSize() + o.spanBytes
}

// Add implements compaction.Output.
func (o *outputs) Add(key keys.InternalKey, value []byte) error {
	if err := o.start(); err != nil {
		return err
	}
	return o.writer.Add(key, value)
}

// AddRangeDels implements compaction.Output.
func (o *outputs) AddRangeDels(span rangedel.Span) error {
	o.addSpans(span)
	return o.start()
}

func (o *outputs) addSpans(spans ...rangedel.Span) {
	const perSeq = 8
	o.spans = append(o.spans, spans...)
	for _, s := range spans {
		o.spanBytes += uint64(len(s.Start) + len(s.End) + perSeq*len(s.Seqs))
	}
}

// Cut implements compaction.Output.
func (o *outputs) Cut(at []byte) error {
	at = bytes.Clone(at)
	rest := rangedel.Truncate(o.spans, at, nil)
	o.spans = rangedel.Truncate(o.spans, nil, at)
	if err := o.end(); err != nil {
		return err
	}
	o.addSpans(rest...)
	return nil
}

// start begins a table unless one is being written.
func (o *outputs) start() error {
	if o.writer != nil {
		return nil
	}
	o.db.mu.Lock()
	num := o.db.newFileNum() // under mu, so that Metrics knows it before its file is there
	o.db.building[num] = true
	o.db.mu.Unlock()
	o.nums = append(o.nums, num) // a Create that failed may have left a file
	f, err := o.db.fs.Create(o.db.path(tableName(num)))
	if err != nil {
		return err
	}
	compression := sstable.SnappyCompression
	if o.db.o.Compression == NoCompression {
		compression = sstable.NoCompression
	}
	o.file = f
	o.writer = sstable.NewWriter(f, sstable.WriterOptions{
		FileNum:         num,
		BlockSize:       o.db.o.BlockBytes,
		Compression:     compression,
		FilterMillibits: o.db.o.filterMillibits(),
		SizeFilter:      o.sizeFilter,
		Source:          o.source,
		VerifyFilter:    invariants.Enabled,
	})
	return nil
}

// end finishes the table that is being written, if there is one.
func (o *outputs) end() error {
	if o.writer == nil {
		return nil
	}
	_ = o.writer.AddRangeDeletes(o.spans) // Finish returns its error, too
	m, err := o.writer.Finish()
	err = errors.Join(err, o.file.Close())
	o.writer, o.file = nil, nil
	o.spans, o.spanBytes = nil, 0
	if err != nil {
		return err
	}
	o.blocks += m.Properties.DataBlocks
	o.passed += m.PassedBlocks
	o.added = append(o.added, manifest.LevelTable{Level: o.level, Meta: &manifest.TableMeta{
		FileNum: m.FileNum, SizeBytes: m.SizeBytes, Checksum: m.Checksum,
		Smallest: m.Smallest, Largest: m.Largest, LargestExclusive: m.LargestExclusive, ToEnd: m.ToEnd,
		SmallestSeq: m.SmallestSeq, LargestSeq: m.LargestSeq,
		Entries: m.Entries, Deletes: m.Deletes, RangeDeletes: m.RangeDeletes, UserKeys: m.UserKeys,
		RawBytes: m.RawBytes, FilterBytes: m.FilterBytes,
	}})
	return nil
}

// finish finishes the last table, makes the names of all durable, and opens
// them. What comes next is the edit (invariant 14).
func (o *outputs) finish() error {
	if err := o.end(); err != nil {
		return err
	}
	if len(o.added) == 0 {
		return nil
	}
	if err := o.db.fs.SyncDir(o.db.dir); err != nil {
		return err
	}
	for _, a := range o.added {
		t, err := table.Open(o.db.files, a.Meta, a.Level, o.db.o.Cache.blocks)
		if err != nil {
			return err
		}
		o.opened[a.Meta.FileNum] = t
		o.db.events.tableCreated(t)
	}
	return nil
}

// built says that the tables are part of the tree now, or given up.
func (o *outputs) built() {
	o.db.mu.Lock()
	defer o.db.mu.Unlock()
	delete(o.db.writing, o)
	for _, num := range o.nums {
		delete(o.db.building, num)
	}
}

// discard removes what was written, because of err: a table that failed, for
// want of space perhaps, is written again later.
func (o *outputs) discard(err error) error {
	errs := []error{err}
	if o.file != nil {
		errs = append(errs, o.file.Close())
	}
	for _, num := range o.nums {
		if t := o.opened[num]; t != nil {
			errs = append(errs, t.Discard()) // which removes it
			continue
		}
		o.db.remove(tableName(num))
	}
	return errors.Join(errs...)
}

// bytes returns the size of all tables, in bytes.
func (o *outputs) bytes() (n uint64) {
	for _, a := range o.added {
		n += a.Meta.SizeBytes
	}
	return n
}
