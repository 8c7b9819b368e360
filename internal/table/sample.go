package table

import (
	"bytes"
	"math"

	"sievedb/internal/keys"
	"sievedb/internal/rangedel"
)

// Covered returns ranges that the table's range tombstones cover throughout, one in
// every so many if there are many. The slice must not be changed.
func (t *Table) Covered() (ranges []rangedel.Span, every uint64) {
	if t.RangeDels == nil {
		return nil, 1
	}
	s := t.covered()
	return s.ranges, s.every
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

// BytesIn returns about how many bytes of the table's file hold keys of r. It
// reads no file: of a table that was not opened yet it takes the keys to be spread
// evenly between its bounds.
func (t *Table) BytesIn(r rangedel.Span) uint64 {
	begins := bytes.Compare(r.Start, t.Meta.Smallest) <= 0
	ends := r.End == nil || t.EndsBefore(r.End)
	if begins && ends {
		return t.Meta.SizeBytes
	}
	offset, from, end := t.evenOffset, uint64(0), t.Meta.SizeBytes
	if reader := t.Opened(); reader != nil {
		offset, end = reader.ApproximateOffset, reader.Properties().DataBytes
	}
	if !begins {
		from = offset(r.Start)
	}
	if !ends {
		end = offset(r.End)
	}
	return end - min(end, from)
}

// evenOffset returns where in the file userKey would begin if keys were spread
// evenly between the table's bounds, as numbers.
func (t *Table) evenOffset(userKey []byte) uint64 {
	switch {
	case bytes.Compare(userKey, t.Meta.Smallest) <= 0:
		return 0
	case t.EndsBefore(userKey):
		return t.Meta.SizeBytes
	}
	n := keys.CommonPrefixLen(t.Meta.Smallest, t.Meta.Largest)
	first, last := keys.Prefix8(t.Meta.Smallest[n:]), uint64(math.MaxUint64)
	if !t.Meta.ToEnd {
		last = keys.Prefix8(t.Meta.Largest[n:])
	}
	at := keys.Prefix8(userKey[n:]) // which shares what both bounds begin with
	return uint64(float64(t.Meta.SizeBytes) * float64(at-first) / max(1, float64(last-first)))
}
