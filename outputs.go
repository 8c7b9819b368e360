package sievedb

import (
	"errors"

	"sievedb/internal/invariants"
	"sievedb/internal/keys"
	"sievedb/internal/manifest"
	"sievedb/internal/tree"
	"sievedb/sstable"
	"sievedb/vfs"
)

// outputs are the tables that a flush or a compaction writes, one after the
// other, before they become part of the tree.
type outputs struct {
	db     *DB
	level  int
	file   vfs.File
	writer *sstable.Writer // of the table that is being written, or nil
	nums   []keys.FileNum  // every file that was created

	added  []manifest.LevelTable
	opened map[keys.FileNum]*tree.Table

	version    *manifest.Version // that the tables are added to; nil is the current one
	bottommost bool              // nothing older lies below
	manual     bool              // nor above, in the end
	filters    filterUse
}

func (db *DB) newOutputs(level int) *outputs {
	o := &outputs{db: db, level: level, opened: map[keys.FileNum]*tree.Table{}}
	db.mu.Lock()
	defer db.mu.Unlock()
	db.writing[o] = true
	return o
}

// size returns the size of the table that is being written, in bytes, zero if
// there is none.
func (o *outputs) size() uint64 {
	if o.writer == nil {
		return 0
	}
	return o.writer.EstimatedSize()
}

// add appends an entry, to a new table if none is being written.
func (o *outputs) add(key keys.InternalKey, value []byte) error {
	if o.writer == nil {
		if err := o.start(); err != nil {
			return err
		}
	}
	return o.writer.Add(key, value)
}

func (o *outputs) start() error {
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
		VerifyFilter:    invariants.Enabled,
	})
	return nil
}

// cut finishes the table that is being written, if there is one.
func (o *outputs) cut() error {
	if o.writer == nil {
		return nil
	}
	m, err := o.writer.Finish()
	err = errors.Join(err, o.file.Close())
	o.writer, o.file = nil, nil
	if err != nil {
		return err
	}
	o.added = append(o.added, manifest.LevelTable{Level: o.level, Meta: &manifest.TableMeta{
		FileNum: m.FileNum, SizeBytes: m.SizeBytes, Checksum: m.Checksum,
		Smallest: m.Smallest, Largest: m.Largest,
		SmallestSeq: m.SmallestSeq, LargestSeq: m.LargestSeq,
		Entries: m.Entries, Deletes: m.Deletes, UserKeys: m.UserKeys,
		RawBytes: m.RawBytes, FilterBytes: m.FilterBytes,
	}})
	return nil
}

// finish finishes the last table, makes the names of all durable, and opens
// them. What comes next is the edit (invariant 14).
func (o *outputs) finish() error {
	if err := o.cut(); err != nil {
		return err
	}
	if len(o.added) == 0 {
		return nil
	}
	if err := o.db.fs.SyncDir(o.db.dir); err != nil {
		return err
	}
	for _, a := range o.added {
		t, err := o.db.files.OpenTable(a.Meta, a.Level, o.db.o.Cache.blocks)
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
