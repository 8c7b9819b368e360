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

// under is HiddenBytes without memory.
func (s *State) under(t *Table) (n uint64) {
	covered := t.covered()
	for _, r := range covered.ranges {
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
	return n * covered.every
}

// maxSample bounds the ranges that an estimate looks at.
const maxSample = 256

// sample is what range tombstones cover: ranges that are covered throughout, of
// many every so many.
type sample struct {
	ranges []rangedel.Span
	every  uint64
}

func sampleOf(set *rangedel.Set) sample {
	var all []rangedel.Span
	for _, s := range set.Spans() {
		if n := len(all); n > 0 && bytes.Equal(all[n-1].End, s.Start) {
			all[n-1].End = s.End
			continue
		}
		all = append(all, s)
	}
	every := (len(all) + maxSample - 1) / maxSample
	var some []rangedel.Span
	for i := 0; i < len(all); i += every {
		some = append(some, all[i])
	}
	return sample{some, uint64(every)}
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
