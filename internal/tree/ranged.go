package tree

import (
	"bytes"
	"slices"
	"sync"

	"sievedb/internal/keys"
	"sievedb/internal/manifest"
	"sievedb/internal/rangedel"
	"sievedb/internal/table"
)

// ranged knows the tables of a version that have range tombstones, for those who
// pick compactions.
type ranged struct {
	tables map[keys.FileNum]*table.Table

	mu     sync.Mutex
	hidden map[keys.FileNum]uint64 // guarded by mu: estimates, made when asked for
}

func newRanged(s *State) *ranged {
	var r *ranged
	for t := range s.All() {
		if t.RangeDels == nil {
			continue
		}
		if r == nil {
			r = &ranged{tables: map[keys.FileNum]*table.Table{}, hidden: map[keys.FileNum]uint64{}}
		}
		r.tables[t.Meta.FileNum] = t
	}
	return r
}

// RangeDels returns the range tombstones of a table of s, nil if it has none.
func (s *State) RangeDels(meta *manifest.TableMeta) *rangedel.Set {
	if s.ranged == nil || s.ranged.tables[meta.FileNum] == nil {
		return nil
	}
	return s.ranged.tables[meta.FileNum].RangeDels
}

// HiddenBytes estimates how much of a table of s and of older ones lies under its
// range tombstones, in bytes of files, to within a data block for each end of one
// in a table that was opened, and by table.BytesIn in others.
// Entries that are newer than the range tombstones over them count as well.
func (s *State) HiddenBytes(meta *manifest.TableMeta) uint64 {
	if s.ranged == nil || s.ranged.tables[meta.FileNum] == nil {
		return 0
	}
	s.ranged.mu.Lock()
	defer s.ranged.mu.Unlock()
	n, ok := s.ranged.hidden[meta.FileNum]
	if !ok {
		n = s.under(s.ranged.tables[meta.FileNum])
		s.ranged.hidden[meta.FileNum] = n
	}
	return n
}

// under is HiddenBytes without memory.
func (s *State) under(t *table.Table) (n uint64) {
	ranges, every := t.Covered()
	for _, r := range ranges {
		if t.Level == 0 {
			for _, o := range s.L0[slices.Index(s.L0, t):] {
				n += o.BytesIn(r)
			}
		}
		for j := range s.Runs {
			run := &s.Runs[j]
			if run.Tables[0].Level < t.Level {
				continue
			}
			for at, _ := run.search(r.Start); at < len(run.Tables); at++ {
				o := run.Tables[at]
				if r.End != nil && bytes.Compare(r.End, o.Meta.Smallest) <= 0 {
					break
				}
				if o.Level > t.Level || o == t { // not its neighbours
					n += o.BytesIn(r)
				}
			}
		}
	}
	return n * every
}
