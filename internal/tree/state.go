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
// a file after the last state that holds it was released gets filecache.ErrGone and
// starts again on the state that is then current. Iterators hold the state
// with Acquire, and never see filecache.ErrGone before the store closes.
//
// All methods are safe for concurrent use; Build and Release of one state's
// successor are ordered by the owner.
package tree

import (
	"errors"
	"sync/atomic"

	"sievedb/internal/manifest"
	"sievedb/internal/table"
	"sievedb/memtable"
)

// State is one read state.
type State struct {
	Mutable    *memtable.Table
	Immutables []*memtable.Table // newest first
	Version    *manifest.Version
	L0         []*table.Table // newest first
	Runs       []Run          // of the levels below that hold tables, ascending
	// IgnoreFilters has lookups ask no filter. Set before the state is used.
	IgnoreFilters bool

	ranged *ranged // nil if no table has range tombstones

	refs atomic.Int32
}

// NewState returns a state over the memtables and the tables of v, which
// tables has by level and file number. It holds the tables from now on, and
// has one reference, the caller's.
func NewState(mutable *memtable.Table, immutables []*memtable.Table, v *manifest.Version, tables func(level int, meta *manifest.TableMeta) *table.Table) *State {
	s := &State{Mutable: mutable, Immutables: immutables, Version: v}
	for level, metas := range v.Levels {
		if len(metas) == 0 {
			continue
		}
		placed := make([]*table.Table, len(metas))
		for i, m := range metas {
			placed[i] = tables(level, m)
			placed[i].Hold()
		}
		if level == 0 {
			s.L0 = placed
		} else {
			s.Runs = append(s.Runs, newRun(placed))
		}
	}
	s.ranged = newRanged(s)
	s.refs.Store(1)
	return s
}

// WithMemtables returns a state over the same tables and other memtables, with
// one reference, the caller's.
func (s *State) WithMemtables(mutable *memtable.Table, immutables []*memtable.Table) *State {
	n := &State{Mutable: mutable, Immutables: immutables, Version: s.Version, L0: s.L0, Runs: s.Runs, ranged: s.ranged}
	for t := range n.All() {
		t.Hold()
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
		errs = append(errs, t.Release())
	}
	return errors.Join(errs...)
}

// All yields every table, level by level.
func (s *State) All() func(yield func(*table.Table) bool) {
	return func(yield func(*table.Table) bool) {
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
