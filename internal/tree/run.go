package tree

import (
	"bytes"
	"math"

	"sievedb/internal/iter"
	"sievedb/internal/keys"
	"sievedb/internal/rangedel"
	"sievedb/internal/table"
	"sievedb/sstable"
)

// Run is the tables of one level below level 0: they are sorted and do not
// overlap. Its bounds lie in flat arrays made for binary search.
type Run struct {
	Tables []*table.Table
	shared []byte // common prefix of all bounds
	// largest8 and smallest8 are the eight bytes after shared of each table's
	// bounds (keys.Prefix8): most searches read nothing else.
	largest8, smallest8 []uint64

	rangeDels *rangedel.Run // nil: none
	// largestPoint is the largest sequence number of an entry.
	largestPoint keys.SeqNum
}

func newRun(tables []*table.Table) Run {
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
		if t.RangeDels != nil {
			sets = append(sets, t.RangeDels)
		}
		r.largestPoint = max(r.largestPoint, t.LargestPoint)
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
	lo, hi := keys.LowerBound(r.largest8, p), len(r.largest8)
	if lo == hi || r.largest8[lo] != p {
		return lo, p
	}
	// Equal prefixes decide nothing: compare in full among those.
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if r.largest8[mid] == p && r.Tables[mid].EndsBefore(userKey) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, p
}

// find returns the only table that can hold userKey, or nil.
func (r *Run) find(userKey []byte) *table.Table {
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

func (r *runIter) reset(run *Run, lo, hi int, o sstable.IterOptions) {
	r.tables.run, r.tables.lo, r.tables.hi, r.tables.opts = run, lo, hi, o
	r.Reset(&r.tables)
}

// Close implements iter.Iterator, and lets go of the run.
func (r *runIter) Close() error {
	r.tables.run = nil
	return r.Concat.Close()
}

// runTables offers some neighbouring tables of a run to iter.Concat.
type runTables struct {
	run    *Run
	lo, hi int // positions in run
	opts   sstable.IterOptions
	open   sstable.Iter // over the only table that iter.Concat has open
}

func (r *runTables) Len() int { return r.hi - r.lo }

func (r *runTables) Find(userKey []byte, _ keys.Trailer) int {
	i, _ := r.run.search(userKey)
	return min(max(i, r.lo), r.hi) - r.lo
}

func (r *runTables) Open(i int) (iter.Iterator, error) {
	reader, err := r.run.Tables[r.lo+i].Reader()
	if err != nil {
		return nil, err
	}
	r.open.Reset(reader, r.opts)
	return &r.open, nil
}
