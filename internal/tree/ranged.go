package tree

import (
	"bytes"
	"slices"
	"sync"

	"sievedb/internal/keys"
	"sievedb/internal/manifest"
	"sievedb/internal/rangedel"
)

// ranged knows the tables of a version that have range tombstones, for those who
// pick compactions.
type ranged struct {
	tables map[keys.FileNum]*Table

	mu     sync.Mutex
	hidden map[keys.FileNum]uint64 // guarded by mu: estimates, made when asked for
}

func newRanged(s *State) *ranged {
	var r *ranged
	for t := range s.All() {
		if t.rangeDels == nil {
			continue
		}
		if r == nil {
			r = &ranged{tables: map[keys.FileNum]*Table{}, hidden: map[keys.FileNum]uint64{}}
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
	return s.ranged.tables[meta.FileNum].rangeDels
}

// HiddenBytes estimates how much of a table of s and of older ones lies under its
// range tombstones, in bytes of files, to within a data block for each end of one.
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

// maxStretches bounds the ranges that an estimate looks at. Of more it takes a
// sample.
const maxStretches = 256

// under is HiddenBytes without memory.
func (s *State) under(t *Table) (n uint64) {
	stretches := coveredBy(t.rangeDels)
	step := (len(stretches) + maxStretches - 1) / maxStretches
	for i := 0; i < len(stretches); i += step {
		r := stretches[i]
		if t.Level == 0 {
			for _, o := range s.L0[slices.Index(s.L0, t):] {
				n += o.bytesIn(r)
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
					n += o.bytesIn(r)
				}
			}
		}
	}
	return n * uint64(step)
}

// coveredBy returns the longest ranges that are covered throughout.
func coveredBy(set *rangedel.Set) (out []rangedel.Span) {
	for _, s := range set.Spans() {
		if n := len(out); n > 0 && bytes.Equal(out[n-1].End, s.Start) {
			out[n-1].End = s.End
			continue
		}
		out = append(out, s)
	}
	return out
}

// bytesIn returns about how many bytes of the table's file hold keys of r.
func (t *Table) bytesIn(r rangedel.Span) uint64 {
	begins := bytes.Compare(r.Start, t.Meta.Smallest) <= 0
	ends := r.End == nil || t.endsBefore(r.End)
	if begins && ends {
		return t.Meta.SizeBytes
	}
	end := t.Reader.Properties().DataBytes
	if !ends {
		end = t.Reader.ApproximateOffset(r.End)
	}
	return end - min(end, t.Reader.ApproximateOffset(r.Start))
}
