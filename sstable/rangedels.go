package sstable

import (
	"bytes"
	"fmt"

	"sievedb/internal/corrupt"
	"sievedb/internal/keys"
	"sievedb/internal/rangedel"
)

// Bounds is what a table covers: the user keys and sequence numbers of its
// entries and of its range tombstones together. The slices must not be changed.
type Bounds struct {
	// Smallest is the first user key. Largest is the last one, or, if
	// LargestExclusive is set, the end of a range tombstone, which is not
	// covered itself. With ToEnd there is no end, and Largest is nil.
	Smallest, Largest       []byte
	LargestExclusive, ToEnd bool
	SmallestSeq, LargestSeq keys.SeqNum
}

// boundsOf returns the bounds of a table with these entries and range
// tombstones. Requires: there is one of either.
func boundsOf(p *Properties, set *rangedel.Set) Bounds {
	b := Bounds{Smallest: p.SmallestKey, Largest: p.LargestKey, SmallestSeq: p.SmallestSeq, LargestSeq: p.LargestSeq}
	if set == nil {
		return b
	}
	start, end := set.Bounds()
	first := p.Entries == 0
	if first || bytes.Compare(start, b.Smallest) < 0 {
		b.Smallest = bytes.Clone(start) // the manifest keeps it for longer than the set lives
	}
	if first || end == nil || bytes.Compare(end, b.Largest) > 0 {
		b.Largest, b.LargestExclusive, b.ToEnd = bytes.Clone(end), end != nil, end == nil
	}
	for _, s := range set.Spans() {
		newest, oldest := s.Seqs[0], s.Seqs[len(s.Seqs)-1]
		if first || oldest < b.SmallestSeq {
			b.SmallestSeq = oldest
		}
		b.LargestSeq = max(b.LargestSeq, newest)
		first = false
	}
	return b
}

// countRangeDels returns Properties.RangeDeletes of a table with these.
func countRangeDels(spans []rangedel.Span) (n uint64) {
	for _, s := range spans {
		n += uint64(len(s.Seqs))
	}
	return n
}

// AddRangeDeletes gives the table its range tombstones, which it copies, before
// or after its entries, once. Requires: the spans are ascending and do not
// overlap, as those of rangedel.Fragment.
func (w *Writer) AddRangeDeletes(spans []rangedel.Span) error {
	if w.err == nil && w.rangeDels != nil {
		w.err = fmt.Errorf("sstable: range tombstones added twice to table %d", w.o.FileNum)
	}
	for i := 0; i < len(spans) && w.err == nil; i++ {
		if n := max(len(spans[i].Start), len(spans[i].End)); n > MaxUserKeyLen {
			w.err = fmt.Errorf("sstable: range tombstone with a user key of %d bytes, at most %d", n, MaxUserKeyLen)
		}
	}
	if w.err != nil {
		return w.err
	}
	w.rangeDels = rangedel.NewSet(spans)
	w.props.RangeDeletes = countRangeDels(w.rangeDels.Spans())
	return nil
}

// writeRangeDels appends the range tombstones. Without any their handle is
// empty, at the end of the filter.
func (w *Writer) writeRangeDels(f *footer) {
	f.rangeTombstones.offset = f.filter.end()
	if w.rangeDels == nil {
		return
	}
	base := len(w.out)
	w.out = w.rangeDels.AppendTo(w.out)
	f.rangeTombstones = w.seal(base, kindRangeDels, w.o.Compression)
}

// readRangeDels decodes the range tombstones, which meta begins with.
func (r *Reader) readRangeDels(meta []byte) error {
	h := r.footer.rangeTombstones
	if h.length > 0 {
		err := r.decodeIn(meta, h, kindRangeDels, func(payload []byte) (err error) {
			r.rangeDels, err = rangedel.Decode(payload)
			return err
		})
		if err != nil {
			return err
		}
	}
	if got := countRangeDels(r.rangeDels.Spans()); got != r.props.RangeDeletes {
		return r.locate(corrupt.At(0, "range tombstones in the properties", got, r.props.RangeDeletes), r.footer.properties.offset)
	}
	r.bounds = boundsOf(r.props, r.rangeDels)
	return nil
}

// verifyRangeDels reads the range tombstones again.
func (r *Reader) verifyRangeDels() error {
	h := r.footer.rangeTombstones
	if h.length == 0 {
		return nil
	}
	frame := make([]byte, h.length)
	if err := r.readAt(frame, h.offset, "range tombstones"); err != nil {
		return err
	}
	return r.decodeIn(frame, h, kindRangeDels, func([]byte) error { return nil })
}
