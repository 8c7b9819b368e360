package rangedel

import (
	"bytes"
	"slices"
	"unsafe"

	"sievedb/internal/keys"
)

// Set looks up the range tombstones of one table. It is immutable, safe for
// concurrent use and, however large, a handful of heap objects without pointers
// in them. A nil Set has no tombstones, and asking it costs one test.
//
// It is a step function: boundaries cut the key space, and from each one on, up
// to the next, a list of sequence numbers applies. Thus one search finds both
// what covers a key and how far nothing does.
//
//  1. Boundaries ascend strictly; there is one at least.
//  2. Each list descends strictly and differs from the one before it.
//  3. The first list is not empty; the last one is, unless a tombstone has no
//     end.
type Set struct {
	prefix   []byte        // what all boundaries begin with
	heads    []uint64      // keys.Prefix8 of each boundary after prefix
	keyBytes []byte        // the boundaries, one after the other
	keyEnds  []int         // where each ends in keyBytes
	seqs     []keys.SeqNum // the lists, one after the other
	seqEnds  []int         // where each ends in seqs
}

// NewSet returns the set of spans, which it copies; nil if there are none.
// Requires: they are ascending and do not overlap, as those of Fragment.
func NewSet(spans []Span) *Set {
	s := &Set{}
	for i, span := range spans {
		if i > 0 && !bytes.Equal(spans[i-1].End, span.Start) {
			s.add(spans[i-1].End, nil)
		}
		if s.Len() == 0 || !slices.Equal(s.list(s.Len()-1), span.Seqs) {
			s.add(span.Start, span.Seqs)
		}
	}
	if len(spans) == 0 {
		return nil
	}
	if end := spans[len(spans)-1].End; end != nil {
		s.add(end, nil)
	}
	s.finish()
	return s
}

// add appends a boundary and the list that applies from it on.
func (s *Set) add(key []byte, seqs []keys.SeqNum) {
	s.keyBytes = append(s.keyBytes, key...)
	s.keyEnds = append(s.keyEnds, len(s.keyBytes))
	s.seqs = append(s.seqs, seqs...)
	s.seqEnds = append(s.seqEnds, len(s.seqs))
}

// finish makes what searches need. Since boundaries ascend, what the first and
// the last begin with, all do.
func (s *Set) finish() {
	s.keyBytes, s.keyEnds = slices.Clip(s.keyBytes), slices.Clip(s.keyEnds)
	s.seqs, s.seqEnds = slices.Clip(s.seqs), slices.Clip(s.seqEnds)
	first, last := s.boundary(0), s.boundary(s.Len()-1)
	s.prefix = first[:keys.CommonPrefixLen(first, last)]
	s.heads = make([]uint64, s.Len())
	for i := range s.heads {
		s.heads[i] = keys.Prefix8(s.boundary(i)[len(s.prefix):])
	}
}

// boundary returns boundary i.
func (s *Set) boundary(i int) []byte {
	from := 0
	if i > 0 {
		from = s.keyEnds[i-1]
	}
	return s.keyBytes[from:s.keyEnds[i]:s.keyEnds[i]]
}

// list returns the sequence numbers that apply from boundary i on.
func (s *Set) list(i int) []keys.SeqNum {
	from := 0
	if i > 0 {
		from = s.seqEnds[i-1]
	}
	return s.seqs[from:s.seqEnds[i]:s.seqEnds[i]]
}

// Covering returns the largest sequence number <= snapshot of a tombstone that
// covers key, zero if there is none. It takes O(log n) and allocates nothing.
func (s *Set) Covering(key []byte, snapshot keys.SeqNum) keys.SeqNum {
	if s == nil {
		return 0
	}
	n := s.search(place{key: key})
	if n == 0 {
		return 0
	}
	return newest(s.list(n-1), snapshot)
}

// StretchAt implements Source, with the cost of Covering.
func (s *Set) StretchAt(key []byte, snapshot keys.SeqNum) Stretch {
	return s.stretch(place{key: key}, snapshot)
}

// StretchBefore implements Source, with the cost of Covering.
func (s *Set) StretchBefore(key []byte, snapshot keys.SeqNum) Stretch {
	return s.stretch(place{key: key, before: true}, snapshot)
}

func (s *Set) stretch(p place, snapshot keys.SeqNum) (st Stretch) {
	if s == nil {
		return st
	}
	n := s.search(p)
	if n > 0 {
		st.Start, st.Seq = s.boundary(n-1), newest(s.list(n-1), snapshot)
	}
	if n < s.Len() {
		st.End = s.boundary(n)
	}
	return st
}

// newest returns the largest of seqs, which descend, that is <= snapshot.
func newest(seqs []keys.SeqNum, snapshot keys.SeqNum) keys.SeqNum {
	if len(seqs) == 0 {
		return 0
	}
	if seqs[0] <= snapshot { // as for every reader without an old snapshot
		return seqs[0]
	}
	lo, hi := 1, len(seqs)
	for lo < hi {
		if mid := int(uint(lo+hi) / 2); seqs[mid] <= snapshot {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	if lo == len(seqs) {
		return 0
	}
	return seqs[lo]
}

// search returns the number of boundaries that are reached at p.
func (s *Set) search(p place) int {
	n := len(s.prefix)
	switch bytes.Compare(p.key[:min(n, len(p.key))], s.prefix) {
	case -1:
		return 0
	case 1:
		return s.Len()
	}
	head := keys.Prefix8(p.key[n:])
	lo, hi := 0, len(s.heads)
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		if h := s.heads[mid]; h < head || h == head && p.reached(s.boundary(mid)) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// Bounds returns the first user key that is covered and the end, exclusive, of
// what is, nil if it has none. Requires: s is not nil.
func (s *Set) Bounds() (start, end []byte) { return s.boundary(0), s.end(s.Len() - 1) }

// end returns where the tombstones of list i end, or of the last one before it if
// it is empty; nil is nowhere.
func (s *Set) end(i int) []byte {
	if len(s.list(i)) == 0 {
		return s.boundary(i)
	}
	if i+1 == s.Len() {
		return nil
	}
	return s.boundary(i + 1)
}

// Largest returns the largest sequence number, zero if there are no tombstones.
func (s *Set) Largest() keys.SeqNum {
	if s == nil {
		return 0
	}
	return slices.Max(s.seqs)
}

// Len returns the number of boundaries: one more than that of the spans with
// an end and the gaps between them, zero if there are no tombstones.
func (s *Set) Len() int {
	if s == nil {
		return 0
	}
	return len(s.keyEnds)
}

// SizeBytes returns the memory that the set takes, in bytes.
func (s *Set) SizeBytes() int {
	if s == nil {
		return 0
	}
	const perKey = int(unsafe.Sizeof(uint64(0)) + 2*unsafe.Sizeof(int(0)))
	return int(unsafe.Sizeof(*s)) + perKey*s.Len() + len(s.keyBytes) + 8*len(s.seqs)
}

// Spans returns the spans of the set, ascending. They share its memory.
func (s *Set) Spans() []Span {
	var spans []Span
	for i := range s.Len() {
		if seqs := s.list(i); len(seqs) > 0 {
			spans = append(spans, Span{Start: s.boundary(i), End: s.end(i), Seqs: seqs})
		}
	}
	return spans
}

// Run is the Source of a level's tables together.
type Run struct {
	sets []*Set // ascending, none nil
}

// NewRun returns the source of the sets of one level's tables, in the order of
// their keys. Nil ones are left out; if there is no other, the result is nil,
// which has no tombstones. The slice is copied, the sets are kept.
// Requires: the tables do not overlap (invariant 4).
func NewRun(sets []*Set) *Run {
	sets = slices.DeleteFunc(slices.Clone(sets), func(s *Set) bool { return s == nil })
	if len(sets) == 0 {
		return nil
	}
	return &Run{sets: sets}
}

// StretchAt implements Source in O(log n).
func (r *Run) StretchAt(key []byte, snapshot keys.SeqNum) Stretch {
	return r.stretch(place{key: key}, snapshot)
}

// StretchBefore implements Source in O(log n).
func (r *Run) StretchBefore(key []byte, snapshot keys.SeqNum) Stretch {
	return r.stretch(place{key: key, before: true}, snapshot)
}

func (r *Run) stretch(p place, snapshot keys.SeqNum) (st Stretch) {
	if r == nil {
		return st
	}
	lo, hi := 0, len(r.sets)
	for lo < hi {
		if mid := int(uint(lo+hi) / 2); p.reached(r.sets[mid].boundary(0)) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo > 0 {
		st = r.sets[lo-1].stretch(p, snapshot)
	}
	if st.End == nil && lo < len(r.sets) {
		st.End = r.sets[lo].boundary(0)
	}
	return st
}
