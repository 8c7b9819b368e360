// Package tree is what reads see: the read state, one immutable picture of the
// store's memtables and open tables, point lookups through it, and the
// iterators over its parts.
//
//	s := current.Load()                       // one atomic load is the acquire
//	v, found, err := s.Get(dst, key, hash, visible.Load())
//
// A State belongs to the garbage collector, and so do the memtables, bounds,
// indexes and filters that it points to: a lookup takes no lock and no
// reference. Only the files of tables have a lifetime. A lookup that comes to
// a file after the last state that holds it was released gets ErrGone and
// starts again on the state that is then current. Iterators hold the state
// with Acquire, and never see ErrGone before the store closes.
//
// All methods are safe for concurrent use; Build and Release of one state's
// successor are ordered by the owner.
package tree

import (
	"bytes"
	"errors"
	"sync"
	"sync/atomic"

	"sievedb/internal/iter"
	"sievedb/internal/keys"
	"sievedb/internal/manifest"
	"sievedb/memtable"
	"sievedb/sstable"
)

// State is one read state.
type State struct {
	Mutable    *memtable.Table
	Immutables []*memtable.Table // newest first
	Version    *manifest.Version
	L0         []*Table // newest first
	Runs       []Run    // of the levels below that hold tables, ascending
	// IgnoreFilters has lookups ask no filter. Set before the state is used.
	IgnoreFilters bool

	refs atomic.Int32
}

// NewState returns a state over the memtables and the tables of v, which
// tables has by level and file number. It holds the tables from now on, and
// has one reference, the caller's.
func NewState(mutable *memtable.Table, immutables []*memtable.Table, v *manifest.Version, tables func(level int, meta *manifest.TableMeta) *Table) *State {
	s := &State{Mutable: mutable, Immutables: immutables, Version: v}
	for level, metas := range v.Levels {
		if len(metas) == 0 {
			continue
		}
		placed := make([]*Table, len(metas))
		for i, m := range metas {
			placed[i] = tables(level, m)
			placed[i].life.refs.Add(1)
		}
		if level == 0 {
			s.L0 = placed
		} else {
			s.Runs = append(s.Runs, newRun(placed))
		}
	}
	s.refs.Store(1)
	return s
}

// WithMemtables returns a state over the same tables and other memtables, with
// one reference, the caller's.
func (s *State) WithMemtables(mutable *memtable.Table, immutables []*memtable.Table) *State {
	n := &State{Mutable: mutable, Immutables: immutables, Version: s.Version, L0: s.L0, Runs: s.Runs}
	for t := range n.All() {
		t.life.refs.Add(1)
	}
	n.refs.Store(1)
	return n
}

// Acquire takes a reference, or reports that the state was given up already
// and another is current (invariant 2: never load, then add one).
func (s *State) Acquire() bool {
	for {
		n := s.refs.Load()
		if n <= 0 {
			return false
		}
		if s.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Release gives a reference back. The last one gives up the files that no
// other state holds.
func (s *State) Release() error {
	if s.refs.Add(-1) != 0 {
		return nil
	}
	var errs []error
	for t := range s.All() {
		errs = append(errs, t.release())
	}
	return errors.Join(errs...)
}

// All yields every table, level by level.
func (s *State) All() func(yield func(*Table) bool) {
	return func(yield func(*Table) bool) {
		for _, t := range s.L0 {
			if !yield(t) {
				return
			}
		}
		for i := range s.Runs {
			for _, t := range s.Runs[i].Tables {
				if !yield(t) {
					return
				}
			}
		}
	}
}

// IterOptions says what NewIters opens.
type IterOptions struct {
	// Lower and Upper bound the user keys that will be asked for: Lower <= key
	// < Upper, a nil Upper being none. Tables beyond are left out.
	Lower, Upper []byte
	Snapshot     keys.SeqNum
	CommitLock   sync.Locker // for a clone of the mutable memtable
	Stats        *sstable.IterStats
}

// NewIters returns internal iterators over every part of the state, newest
// first, to be merged. The caller holds a reference until they are closed.
func (s *State) NewIters(o IterOptions) []iter.Iterator {
	inputs := make([]iter.Iterator, 0, 1+len(s.Immutables)+len(s.L0)+len(s.Runs))
	if !s.Mutable.Empty() {
		inputs = append(inputs, s.Mutable.NewIter(o.CommitLock, o.Snapshot))
	}
	for _, m := range s.Immutables {
		inputs = append(inputs, m.NewIter(o.CommitLock, o.Snapshot))
	}
	opts := sstable.IterOptions{Stats: o.Stats}
	for _, t := range s.L0 {
		if bytes.Compare(t.Meta.Largest, o.Lower) >= 0 && (o.Upper == nil || bytes.Compare(t.Meta.Smallest, o.Upper) < 0) {
			inputs = append(inputs, t.Reader.NewIter(opts))
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
			inputs = append(inputs, iter.NewConcat(&runTables{run: r, lo: lo, hi: hi, opts: opts}))
		}
	}
	return inputs
}

// TableIters returns internal iterators over tables of one level, newest first
// in level 0 and as one elsewhere. The caller holds a reference until they are
// closed.
func (s *State) TableIters(level int, metas []*manifest.TableMeta, o sstable.IterOptions) []iter.Iterator {
	if len(metas) == 0 {
		return nil
	}
	byNum := make(map[keys.FileNum]*Table)
	for t := range s.All() {
		if t.Level == level {
			byNum[t.Meta.FileNum] = t
		}
	}
	tables := make([]*Table, len(metas))
	for i, m := range metas {
		tables[i] = byNum[m.FileNum]
	}
	if level > 0 {
		run := newRun(tables)
		return []iter.Iterator{iter.NewConcat(&runTables{run: &run, hi: len(tables), opts: o})}
	}
	inputs := make([]iter.Iterator, len(tables))
	for i, t := range tables {
		inputs[i] = t.Reader.NewIter(o)
	}
	return inputs
}
