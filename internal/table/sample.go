package table

import (
	"bytes"

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

// BytesIn returns about how many bytes of the table's file hold keys of r.
func (t *Table) BytesIn(r rangedel.Span) uint64 {
	begins := bytes.Compare(r.Start, t.Meta.Smallest) <= 0
	ends := r.End == nil || t.EndsBefore(r.End)
	if begins && ends {
		return t.Meta.SizeBytes
	}
	reader := t.Opened()
	if reader == nil { // this is called where no file may be read
		return t.Meta.SizeBytes / 2
	}
	end := reader.Properties().DataBytes
	if !ends {
		end = reader.ApproximateOffset(r.End)
	}
	return end - min(end, reader.ApproximateOffset(r.Start))
}
