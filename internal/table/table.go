// Package table is a table of the store in its place in the tree: what the manifest
// says of it, its file, which is opened when it is first needed, and the range
// tombstones and counters that lookups want at hand.
//
//	t, err := table.New(files, meta, level, blocks)
//	t.Hold()
//	r, err := t.Reader() // opens the file
//	err = t.Release()    // the last one gives the file up
//
// Everything is safe for concurrent use. A Table belongs to the garbage collector:
// only its file has a lifetime.
package table

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"sievedb/internal/cache"
	"sievedb/internal/corrupt"
	"sievedb/internal/counters"
	"sievedb/internal/filecache"
	"sievedb/internal/iter"
	"sievedb/internal/keys"
	"sievedb/internal/manifest"
	"sievedb/internal/rangedel"
	"sievedb/sstable"
)

// Table is a table in its place in the tree: what a lookup needs of it, reachable
// without a map and owned by the garbage collector. A table that moves to another
// level becomes another Table over the same file.
type Table struct {
	Meta  *manifest.TableMeta
	Level int

	RangeDels *rangedel.Set // nil: none
	// LargestPoint is the largest sequence number of an entry, zero without any.
	LargestPoint keys.SeqNum
	Counters     counters.Counters

	reader  atomic.Pointer[sstable.Reader] // nil until it is needed, here; then that of life
	covered func() sample                  // of what RangeDels cover; nil without any
	life    *lifetime
}

// lifetime is what all places of one file share.
type lifetime struct {
	file   *filecache.File
	blocks *cache.Cache
	refs   atomic.Int32 // read states that hold the table

	mu     sync.Mutex // held while opening
	reader atomic.Pointer[sstable.Reader]
}

// New returns the table that meta describes, for level. It belongs to no read
// state as yet. Its file is opened when it is first asked for, so that opening a
// store takes no longer the more tables it has; but one with range tombstones is
// opened now, for they concern keys that are looked up elsewhere.
func New(files *filecache.Cache, meta *manifest.TableMeta, level int, blocks *cache.Cache) (*Table, error) {
	if meta.RangeDeletes > 0 {
		return Open(files, meta, level, blocks)
	}
	return &Table{Meta: meta, Level: level, LargestPoint: meta.LargestSeq, life: &lifetime{file: files.File(meta.FileNum), blocks: blocks}}, nil
}

// Open is New with the table opened at once.
func Open(files *filecache.Cache, meta *manifest.TableMeta, level int, blocks *cache.Cache) (*Table, error) {
	t := &Table{Meta: meta, Level: level, life: &lifetime{file: files.File(meta.FileNum), blocks: blocks}}
	r, err := t.Reader()
	if err != nil {
		return nil, errors.Join(err, t.life.file.Shut())
	}
	t.RangeDels, t.LargestPoint = r.RangeDels(), r.Properties().LargestSeq
	t.covered = sync.OnceValue(func() sample { return sampleOf(r.RangeDels()) })
	return t, nil
}

// Reader returns the reader of the table's file, which it opens the first time. An
// error is one of reading the file, filecache.ErrGone among them, or says that it
// is not the table that the manifest describes; the next call tries again.
func (t *Table) Reader() (*sstable.Reader, error) {
	if r := t.reader.Load(); r != nil {
		return r, nil
	}
	return t.open()
}

// Opened returns what Reader does if the table was opened before, else nil.
func (t *Table) Opened() *sstable.Reader {
	if r := t.reader.Load(); r != nil {
		return r
	}
	return t.life.reader.Load()
}

func (t *Table) open() (*sstable.Reader, error) {
	l := t.life
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.reader.Load()
	if r == nil {
		var err error
		r, err = sstable.Open(l.file, sstable.ReaderOptions{
			Name: l.file.Name(), Cache: l.blocks,
			WantSize: t.Meta.SizeBytes, WantChecksum: t.Meta.Checksum, CheckIdentity: true,
		})
		if err == nil {
			err = t.check(r)
		}
		if err != nil {
			return nil, err
		}
		l.reader.Store(r)
	}
	t.reader.Store(r)
	return r, nil
}

// check returns a *corrupt.Error unless the table is what lookups take it for by
// the manifest. The tree seeks by its bounds: content beyond them would send a scan
// of the run in circles. And range tombstones that are not known of would hide
// nothing.
func (t *Table) check(r *sstable.Reader) error {
	if want, got := t.Meta.RangeDeletes, r.Properties().RangeDeletes; want != got {
		return corrupt.In(corrupt.At(0, "range tombstones of the table", want, got), r.Name(), 0)
	}
	b := r.Bounds()
	got, want := keys.Range{Lo: b.Smallest, Hi: b.Largest, HiExclusive: b.LargestExclusive, ToEnd: b.ToEnd}, t.Meta.KeyRange()
	if bytes.Equal(got.Lo, want.Lo) && bytes.Equal(got.Hi, want.Hi) && got.HiExclusive == want.HiExclusive && got.ToEnd == want.ToEnd {
		return nil
	}
	return corrupt.In(corrupt.At(0, "bounds of the table", fmt.Sprintf("%.128v", want), fmt.Sprintf("%.128v", got)), r.Name(), 0)
}

// In returns the same table in another level, with counters of its own.
func (t *Table) In(level int) *Table {
	n := &Table{
		Meta: t.Meta, Level: level,
		RangeDels: t.RangeDels, covered: t.covered, LargestPoint: t.LargestPoint, life: t.life,
	}
	n.reader.Store(t.Opened())
	return n
}

// NewIter returns an iterator over the table's entries.
func (t *Table) NewIter(o sstable.IterOptions) (iter.Iterator, error) {
	r, err := t.Reader()
	if err != nil {
		return nil, err
	}
	return r.NewIter(o), nil
}

// Discard gives up a table that never became part of a read state.
func (t *Table) Discard() error { return t.life.file.GiveUp() }

// Hold says that one more read state has the table.
func (t *Table) Hold() { t.life.refs.Add(1) }

// Release says that one read state less has the table. The last one gives up the
// file and drops its blocks from the cache.
func (t *Table) Release() error {
	switch n := t.life.refs.Add(-1); {
	case n > 0:
		return nil
	case n < 0:
		return fmt.Errorf("table %d was released too often", t.Meta.FileNum)
	}
	if r := t.Opened(); r != nil {
		r.EvictBlocks()
	}
	return t.life.file.GiveUp()
}

// Covers reports whether userKey lies within the table's bounds.
func (t *Table) Covers(userKey []byte) bool {
	return bytes.Compare(t.Meta.Smallest, userKey) <= 0 && !t.EndsBefore(userKey)
}

// EndsBefore reports whether the table's bounds end before userKey. It is that of
// its KeyRange, which lookups do not wait to be put together.
func (t *Table) EndsBefore(userKey []byte) bool {
	c := bytes.Compare(t.Meta.Largest, userKey)
	return (c < 0 || c == 0 && t.Meta.LargestExclusive) && !t.Meta.ToEnd
}
