package rangedel

import (
	"bytes"
	"cmp"
	"slices"
	"sort"

	"sievedb/internal/keys"
)

// Fragment returns what tombstones, in any order, do to the key space: spans
// that are ascending, do not overlap and differ where they touch.
//
// The snapshots, ascending, are the sequence numbers at which somebody may
// read. They cut the sequence numbers into stripes: no snapshot sees the older
// of two tombstones of one stripe and not the newer, so that each span keeps
// only the newest of each stripe. Without snapshots that is one sequence number
// a span, and at most twice as many spans as tombstones.
//
// It takes O(n log n + output) time and O(n + output) memory. The spans share
// the keys of the tombstones, which must not change.
func Fragment(tombstones []Tombstone, snapshots []keys.SeqNum) []Span {
	s := sweep{snapshots: snapshots, stripes: make([]stripe, len(snapshots)+1)}
	for _, t := range tombstones {
		if t.hides() {
			s.byStart = append(s.byStart, t)
		}
	}
	slices.SortFunc(s.byStart, func(a, b Tombstone) int { return bytes.Compare(a.Start, b.Start) })
	byEnd := slices.DeleteFunc(slices.Clone(s.byStart), func(t Tombstone) bool { return t.End == nil })
	slices.SortFunc(byEnd, func(a, b Tombstone) int { return bytes.Compare(a.End, b.End) })

	next, ended := 0, 0 // those before them in byStart and byEnd have begun, and ended
	for next < len(s.byStart) || ended < len(byEnd) {
		var at []byte
		if ended == len(byEnd) || next < len(s.byStart) && bytes.Compare(s.byStart[next].Start, byEnd[ended].End) < 0 {
			at = s.byStart[next].Start
		} else {
			at = byEnd[ended].End
		}
		for ; next < len(s.byStart) && bytes.Equal(s.byStart[next].Start, at); next++ {
			i := s.touch(s.byStart[next].Seq)
			s.stripes[i].push(s.byStart, next)
		}
		for ; ended < len(byEnd) && bytes.Equal(byEnd[ended].End, at); ended++ {
			s.touch(byEnd[ended].Seq)
		}
		s.settle(at)
	}
	s.emit(nil) // those without an end
	return s.spans
}

// sweep walks the starts and ends of tombstones in key order.
type sweep struct {
	snapshots []keys.SeqNum
	byStart   []Tombstone
	stripes   []stripe
	touched   []int         // stripes in which something begins or ends here
	from      []byte        // where active became what it is
	active    []keys.SeqNum // the newest of each stripe, descending
	seqs      []keys.SeqNum // memory of the spans' sequence numbers
	spans     []Span
}

// stripe holds the tombstones of one stripe that have begun.
type stripe struct {
	// heap has the newest first. One that has ended stays in until it comes to
	// the top: to find it earlier would need a second order.
	heap    []int
	newest  keys.SeqNum // that counts up to here, zero if none
	touched bool
}

// touch notes that something begins or ends in the stripe of seq, and returns
// which one that is.
func (s *sweep) touch(seq keys.SeqNum) int {
	i, _ := slices.BinarySearch(s.snapshots, seq)
	if !s.stripes[i].touched {
		s.stripes[i].touched = true
		s.touched = append(s.touched, i)
	}
	return i
}

// settle closes the current span if something else applies from at on.
func (s *sweep) settle(at []byte) {
	cut := false
	for _, i := range s.touched {
		st := &s.stripes[i]
		st.touched = false
		for len(st.heap) > 0 && !isAfter(s.byStart[st.heap[0]].End, at) {
			st.pop(s.byStart)
		}
		var newest keys.SeqNum
		if len(st.heap) > 0 {
			newest = s.byStart[st.heap[0]].Seq
		}
		if newest == st.newest {
			continue
		}
		if !cut {
			s.emit(at)
			cut = true
		}
		s.replace(st.newest, newest)
		st.newest = newest
	}
	s.touched = s.touched[:0]
}

// emit ends the span that began at from, if there is one, and lets the next
// begin.
func (s *sweep) emit(at []byte) {
	if len(s.active) > 0 {
		first := len(s.seqs)
		s.seqs = append(s.seqs, s.active...)
		s.spans = append(s.spans, Span{Start: s.from, End: at, Seqs: s.seqs[first:len(s.seqs):len(s.seqs)]})
	}
	s.from = at
}

// replace takes one sequence number out of active and puts another in; zero is
// none. Moving what lies behind costs no more than to copy it to the next span.
func (s *sweep) replace(old, new keys.SeqNum) {
	descending := func(a, b keys.SeqNum) int { return cmp.Compare(b, a) }
	if old > 0 {
		i, _ := slices.BinarySearchFunc(s.active, old, descending)
		s.active = slices.Delete(s.active, i, i+1)
	}
	if new > 0 {
		i, _ := slices.BinarySearchFunc(s.active, new, descending)
		s.active = slices.Insert(s.active, i, new)
	}
}

// push and pop are those of a binary heap; container/heap would allocate for
// each element.
func (st *stripe) push(tombstones []Tombstone, t int) {
	st.heap = append(st.heap, t)
	h := st.heap
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if tombstones[h[up]].Seq >= tombstones[h[i]].Seq {
			return
		}
		h[up], h[i] = h[i], h[up]
		i = up
	}
}

func (st *stripe) pop(tombstones []Tombstone) {
	last := len(st.heap) - 1
	st.heap[0] = st.heap[last]
	h := st.heap[:last]
	st.heap = h
	for i := 0; ; {
		down := 2*i + 1
		if down+1 < last && tombstones[h[down+1]].Seq > tombstones[h[down]].Seq {
			down++
		}
		if down >= last || tombstones[h[i]].Seq >= tombstones[h[down]].Seq {
			return
		}
		h[i], h[down] = h[down], h[i]
		i = down
	}
}

// AppendTombstones appends the tombstones of spans to dst, one for each
// sequence number of each span, so that Fragment can cut them anew together
// with those of other tables. They share the spans' keys.
func AppendTombstones(dst []Tombstone, spans []Span) []Tombstone {
	for _, s := range spans {
		for _, seq := range s.Seqs {
			dst = append(dst, Tombstone{Start: s.Start, End: s.End, Seq: seq})
		}
	}
	return dst
}

// Truncate returns what spans, ascending, do within lo <= key < hi; a nil hi
// is no bound. The result keeps lo and hi, and shares what it can with spans,
// which stay as they are. It takes O(log n + result).
func Truncate(spans []Span, lo, hi []byte) []Span {
	first := sort.Search(len(spans), func(i int) bool { return isAfter(spans[i].End, lo) })
	end := len(spans)
	if hi != nil {
		end = sort.Search(len(spans), func(i int) bool { return bytes.Compare(spans[i].Start, hi) >= 0 })
	}
	if first >= end || hi != nil && bytes.Compare(lo, hi) >= 0 {
		return nil
	}
	out := slices.Clone(spans[first:end])
	if bytes.Compare(out[0].Start, lo) < 0 {
		out[0].Start = lo
	}
	if last := &out[len(out)-1]; hi != nil && isAfter(last.End, hi) {
		last.End = hi
	}
	return out
}

// Elide returns spans without the sequence numbers that have nothing left to
// hide: those up to oldest, the oldest snapshot (keys.MaxSeqNum if there is
// none), where nothingBelow reports that no table outside the compaction can
// hold an older entry in lo <= key < hi, a nil hi being no bound. It is called
// with ascending ranges, at most once a span. The spans given stay as they are
// (invariant 21).
//
// The points of the compaction must be merged against the spans from before:
// what an elided tombstone hides has to go together with it.
func Elide(spans []Span, oldest keys.SeqNum, nothingBelow func(lo, hi []byte) bool) []Span {
	var out []Span
	for _, s := range spans {
		kept := sort.Search(len(s.Seqs), func(i int) bool { return s.Seqs[i] <= oldest })
		if kept < len(s.Seqs) && nothingBelow(s.Start, s.End) {
			s.Seqs = s.Seqs[:kept:kept]
		}
		last := len(out) - 1
		switch {
		case len(s.Seqs) == 0:
		case last >= 0 && bytes.Equal(out[last].End, s.Start) && slices.Equal(out[last].Seqs, s.Seqs):
			out[last].End = s.End
		default:
			out = append(out, s)
		}
	}
	return out
}
