package tree

import (
	"bytes"
	"errors"
	"fmt"
	"math"
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

// Table is an open table in its place in the tree: what a lookup needs of it,
// reachable without a map and owned by the garbage collector. A table that
// moves to another level becomes another Table over the same file.
type Table struct {
	Meta   *manifest.TableMeta
	Level  int
	Reader *sstable.Reader

	rangeDels *rangedel.Set // nil: none
	covered   func() sample // of what they cover
	// largestPoint is the largest sequence number of an entry, zero without any.
	largestPoint keys.SeqNum
	life         *lifetime

	Counters counters.Counters
}

// lifetime is what all places of one file share.
type lifetime struct {
	file *filecache.File
	refs atomic.Int32 // read states that hold the table
}

// OpenTable opens the table that meta describes, for level. The table belongs to
// no read state as yet.
func OpenTable(files *filecache.Cache, meta *manifest.TableMeta, level int, blocks *cache.Cache) (t *Table, err error) {
	f := files.File(meta.FileNum)
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Shut())
		}
	}()
	r, err := sstable.Open(f, sstable.ReaderOptions{
		Name: f.Name(), Cache: blocks,
		WantSize: meta.SizeBytes, WantChecksum: meta.Checksum, CheckIdentity: true,
	})
	if err != nil {
		return nil, err
	}
	t = &Table{
		Meta: meta, Level: level, Reader: r,
		rangeDels: r.RangeDels(), largestPoint: r.Properties().LargestSeq, life: &lifetime{file: f},
		covered: sync.OnceValue(func() sample { return sampleOf(r.RangeDels()) }),
	}
	if err := t.CheckBounds(); err != nil {
		return nil, err
	}
	return t, nil
}

// CheckBounds returns a *corrupt.Error unless the table's own bounds are those of
// the manifest. The tree seeks by the latter: content beyond them would send a
// scan of the run in circles.
func (t *Table) CheckBounds() error {
	b := t.Reader.Bounds()
	got, want := manifest.KeyRange{Lo: b.Smallest, Hi: b.Largest, HiExclusive: b.LargestExclusive, ToEnd: b.ToEnd}, t.Meta.KeyRange()
	if bytes.Equal(got.Lo, want.Lo) && bytes.Equal(got.Hi, want.Hi) && got.HiExclusive == want.HiExclusive && got.ToEnd == want.ToEnd {
		return nil
	}
	return corrupt.In(corrupt.At(0, "bounds of the table", fmt.Sprintf("%.128v", want), fmt.Sprintf("%.128v", got)), t.Reader.Name(), 0)
}

// In returns the same table in another level, with counters of its own.
func (t *Table) In(level int) *Table {
	return &Table{
		Meta: t.Meta, Level: level, Reader: t.Reader,
		rangeDels: t.rangeDels, covered: t.covered, largestPoint: t.largestPoint, life: t.life,
	}
}

// Discard gives up a table that never became part of a read state.
func (t *Table) Discard() error { return t.life.file.GiveUp() }

// release drops one read state's hold on the table.
func (t *Table) release() error {
	switch n := t.life.refs.Add(-1); {
	case n > 0:
		return nil
	case n < 0:
		return fmt.Errorf("table %d was released too often", t.Meta.FileNum)
	}
	t.Reader.EvictBlocks()
	return t.life.file.GiveUp()
}

// covers reports whether userKey lies within the table's bounds.
func (t *Table) covers(userKey []byte) bool {
	return bytes.Compare(t.Meta.Smallest, userKey) <= 0 && !t.endsBefore(userKey)
}

// endsBefore reports whether the table's bounds end before userKey. It is that of
// its KeyRange, which lookups do not wait to be put together.
func (t *Table) endsBefore(userKey []byte) bool {
	c := bytes.Compare(t.Meta.Largest, userKey)
	return (c < 0 || c == 0 && t.Meta.LargestExclusive) && !t.Meta.ToEnd
}

// Run is the tables of one level below level 0: they are sorted and do not
// overlap. Its bounds lie in flat arrays made for binary search.
type Run struct {
	Tables []*Table
	shared []byte // common prefix of all bounds
	// largest8 and smallest8 are the eight bytes after shared of each table's
	// bounds (keys.Prefix8): most searches read nothing else.
	largest8, smallest8 []uint64

	rangeDels *rangedel.Run // nil: none
	// largestPoint is the largest sequence number of an entry.
	largestPoint keys.SeqNum
}

func newRun(tables []*Table) Run {
	first, last := tables[0].Meta.Smallest, tables[len(tables)-1].Meta.Largest
	n := keys.CommonPrefixLen(first, last) // none if there is no end: last is empty then
	r := Run{Tables: tables, shared: first[:n],
		largest8: make([]uint64, len(tables)), smallest8: make([]uint64, len(tables))}
	var sets []*rangedel.Set
	for i, t := range tables {
		r.smallest8[i] = keys.Prefix8(t.Meta.Smallest[n:])
		if t.Meta.ToEnd {
			r.largest8[i] = math.MaxUint64
		} else {
			r.largest8[i] = keys.Prefix8(t.Meta.Largest[n:])
		}
		if t.rangeDels != nil {
			sets = append(sets, t.rangeDels)
		}
		r.largestPoint = max(r.largestPoint, t.largestPoint)
	}
	r.rangeDels = rangedel.NewRun(sets)
	return r
}

// search returns the position of the first table whose bounds do not end before
// userKey, and the eight bytes of userKey after the shared prefix.
func (r *Run) search(userKey []byte) (int, uint64) {
	n := len(r.shared)
	if len(userKey) < n || !bytes.Equal(userKey[:n], r.shared) {
		if bytes.Compare(userKey, r.shared) < 0 {
			return 0, 0
		}
		return len(r.Tables), 0
	}
	p := keys.Prefix8(userKey[n:])
	lo, hi := 0, len(r.largest8)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if r.largest8[mid] < p || r.largest8[mid] == p && r.Tables[mid].endsBefore(userKey) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, p
}

// find returns the only table that can hold userKey, or nil.
func (r *Run) find(userKey []byte) *Table {
	i, p := r.search(userKey)
	if i == len(r.Tables) || r.smallest8[i] > p {
		return nil
	}
	if r.smallest8[i] == p && bytes.Compare(r.Tables[i].Meta.Smallest, userKey) > 0 {
		return nil
	}
	return r.Tables[i]
}

// runIter is an iterator over some neighbouring tables of a run, in one piece.
type runIter struct {
	iter.Concat
	tables runTables
}

// runTables offers some neighbouring tables of a run to iter.Concat.
type runTables struct {
	run    *Run
	lo, hi int // positions in run
	opts   sstable.IterOptions
}

func (r *runTables) Len() int { return r.hi - r.lo }

func (r *runTables) Find(userKey []byte, _ keys.Trailer) int {
	i, _ := r.run.search(userKey)
	return min(max(i, r.lo), r.hi) - r.lo
}

func (r *runTables) Open(i int) (iter.Iterator, error) {
	return r.run.Tables[r.lo+i].Reader.NewIter(r.opts), nil
}
