package tree

import (
	"bytes"
	"slices"
	"sync"

	"sievedb/internal/iter"
	"sievedb/internal/keys"
	"sievedb/internal/manifest"
	"sievedb/internal/rangedel"
	"sievedb/internal/table"
	"sievedb/memtable"
	"sievedb/sstable"
)

// IterOptions says what NewIters opens.
type IterOptions struct {
	// Lower and Upper bound the user keys that will be asked for: Lower <= key
	// < Upper, a nil Upper being none. Tables beyond are left out.
	Lower, Upper []byte
	Snapshot     keys.SeqNum
	CommitLock   sync.Locker // for a clone of the mutable memtable
	Stats        *sstable.IterStats
	// Memory is for the iterators, none of which is used when it is given again;
	// nil is new memory.
	Memory *Iters
	// Own is a memtable that is newer than all of the state, as it is now; nil is
	// none. Nobody else uses it meanwhile. Its entries are shown whatever the
	// Snapshot is.
	Own *memtable.Table
}

// Iters is memory of iterators over tables, to be used again by others once they
// are closed.
type Iters struct {
	runs   pieces[runIter]
	tables pieces[sstable.Iter]
}

// reset gives all of the memory back to be used. A nil Iters becomes a new one.
func (m *Iters) reset() *Iters {
	if m == nil {
		return new(Iters)
	}
	m.runs.used, m.tables.used = 0, 0
	return m
}

// pieces are values that stay where they are, in use or to be used again.
type pieces[T any] struct {
	all  []*T
	used int // of all, the first ones
}

// next returns one that is not in use.
func (p *pieces[T]) next() *T {
	if p.used == len(p.all) {
		p.all = append(p.all, new(T))
	}
	p.used++
	return p.all[p.used-1]
}

// AppendIters appends internal iterators over every part of the state to dst,
// newest first, to be merged, without the entries that range tombstones hide. The
// caller holds a reference until they are closed.
func (s *State) AppendIters(dst []iter.Iterator, o IterOptions) []iter.Iterator {
	l := layers{snapshot: o.Snapshot, its: dst, memory: o.Memory.reset()}
	if o.Own != nil {
		l.memtable(o.Own, o.Own.NewIter(nil, keys.MaxSeqNum), o.Own.LargestSeq())
	}
	if !s.Mutable.Empty() {
		l.memtable(s.Mutable, s.Mutable.NewIter(o.CommitLock, o.Snapshot), 0)
	}
	for _, m := range s.Immutables {
		l.memtable(m, m.NewIter(o.CommitLock, o.Snapshot), 0)
	}
	opts := sstable.IterOptions{Stats: o.Stats}
	for _, t := range s.L0 {
		if !t.EndsBefore(o.Lower) && (o.Upper == nil || bytes.Compare(t.Meta.Smallest, o.Upper) < 0) {
			l.table(t, opts)
		}
	}
	for i := range s.Runs {
		r := &s.Runs[i]
		lo, _ := r.search(o.Lower)
		hi := len(r.Tables)
		if o.Upper != nil {
			hi, _ = r.search(o.Upper)
			if hi < len(r.Tables) && bytes.Compare(r.Tables[hi].Meta.Smallest, o.Upper) < 0 {
				hi++
			}
		}
		if lo < hi {
			l.run(r, lo, hi, opts)
		}
	}
	return l.its
}

// InputIters returns internal iterators over the tables of a compaction, those of
// its start level and those of its output level, to be merged: newest first. What
// range tombstones among them hide from everybody who reads at oldest or later is
// not shown, and need not be read. The caller holds a reference until they are
// closed.
func (s *State) InputIters(start, output int, inputs [2][]*manifest.TableMeta, oldest keys.SeqNum, o sstable.IterOptions) []iter.Iterator {
	l := layers{snapshot: oldest, memory: new(Iters)}
	for i, level := range []int{start, output} {
		tables := s.placed(level, inputs[i])
		if level > 0 && len(tables) > 0 {
			run := newRun(tables)
			l.run(&run, 0, len(tables), o)
			continue
		}
		for _, t := range tables {
			l.table(t, o)
		}
	}
	return l.its
}

// RangeDelsOf returns the range tombstones of tables of one level.
func (s *State) RangeDelsOf(level int, metas []*manifest.TableMeta) (all []rangedel.Tombstone) {
	for _, t := range s.placed(level, metas) {
		all = rangedel.AppendTombstones(all, t.RangeDels.Spans())
	}
	return all
}

// placed returns the tables of one level that metas describe.
func (s *State) placed(level int, metas []*manifest.TableMeta) []*table.Table {
	byNum := make(map[keys.FileNum]*table.Table)
	for t := range s.All() {
		if t.Level == level {
			byNum[t.Meta.FileNum] = t
		}
	}
	tables := make([]*table.Table, len(metas))
	for i, m := range metas {
		tables[i] = byNum[m.FileNum]
	}
	return tables
}

// layers collects the iterators of runs, newest first, and has each of them pass
// over what range tombstones of its own and of newer runs hide at the snapshot.
// Runs without any above them are left as they are.
type layers struct {
	snapshot keys.SeqNum
	newer    []rangedel.Source
	its      []iter.Iterator
	memory   *Iters
}

// add adds a run: an iterator, which is nil if there are no entries, the run's
// range tombstones, nil for none, and the largest sequence number of an entry.
func (l *layers) add(it iter.Iterator, own rangedel.Source, largestPoint keys.SeqNum) {
	if it != nil && (own != nil || len(l.newer) > 0) {
		it = rangedel.NewSkipping(it, rangedel.SkippingOptions{Snapshot: l.snapshot, Newer: l.newer, Own: own, OwnLargest: largestPoint})
	}
	if it != nil {
		l.its = append(l.its, it)
	}
	if own != nil {
		l.newer = append(l.newer, own)
	}
}

// memtable adds a memtable and an iterator over it. at is the snapshot at which
// its range tombstones count, zero for that of the rest.
func (l *layers) memtable(m *memtable.Table, it iter.Iterator, at keys.SeqNum) {
	var own rangedel.Source
	if log := m.RangeDeletes(); log != nil {
		own = log
		if at > 0 {
			own = pinned{log, at}
		}
	}
	l.add(it, own, m.LargestPoint())
}

// table adds a table of level 0.
func (l *layers) table(t *table.Table, o sstable.IterOptions) {
	var it iter.Iterator
	if t.Meta.Entries > 0 {
		if r, err := t.Reader(); err != nil {
			it = iter.Failed(err)
		} else {
			open := l.memory.tables.next()
			open.Reset(r, o)
			it = open
		}
	}
	var own rangedel.Source
	if t.RangeDels != nil {
		own = t.RangeDels
	}
	l.add(it, own, t.LargestPoint)
}

// run adds the tables lo to hi-1 of a run.
func (l *layers) run(r *Run, lo, hi int, o sstable.IterOptions) {
	var own rangedel.Source
	if r.rangeDels != nil && slices.ContainsFunc(r.Tables[lo:hi], func(t *table.Table) bool { return t.RangeDels != nil }) {
		own = r.rangeDels
	}
	it := l.memory.runs.next()
	it.reset(r, lo, hi, o)
	l.add(it, own, r.largestPoint)
}

// pinned is a source that is asked at a snapshot of its own.
type pinned struct {
	source   rangedel.Source
	snapshot keys.SeqNum
}

func (p pinned) StretchAt(key []byte, _ keys.SeqNum) rangedel.Stretch {
	return p.source.StretchAt(key, p.snapshot)
}

func (p pinned) StretchBefore(key []byte, _ keys.SeqNum) rangedel.Stretch {
	return p.source.StretchBefore(key, p.snapshot)
}
