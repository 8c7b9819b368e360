package salvage

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"sievedb/cmd/sievectl/internal/decode"
	"sievedb/internal/corrupt"
	"sievedb/internal/keys"
	"sievedb/internal/manifest"
	"sievedb/internal/rangedel"
	"sievedb/wal"
)

// batchAt is a batch that was read: where, and its sequence numbers.
type batchAt struct {
	offset, end int64
	first, last keys.SeqNum
}

// readSegments returns a source of all entries that the segments hold and no
// table can, in memory, as a store that opens has them.
func (p *plan) readSegments() (*source, error) {
	out := &source{report: p.report, level: aboveTables}
	last := p.lastSeq // of the batches of all segments so far
	nums := slices.Sorted(maps.Keys(p.segments))
	for i, num := range nums {
		cut, err := p.readSegment(p.segments[num], out, &last)
		if err != nil {
			return nil, err
		}
		if later := len(nums) - 1 - i; cut && later > 0 && p.whole {
			p.report.note("%d later segments are not used: they were written after what a crash took of %s", later, wal.SegmentName(num))
			break
		}
	}
	slices.SortFunc(out.entries, func(a, b decode.Entry) int { return keys.Compare(a.InternalKey, b.InternalKey) })
	return out, nil
}

// readSegment adds the entries of a segment to out. cut says that the segment had
// ended and that a crash took a part of it before it was durable, so that a store
// that opens ends its log there.
func (p *plan) readSegment(seg manifest.Segment, out *source, last *keys.SeqNum) (cut bool, err error) {
	stats := &FileReport{Name: wal.SegmentName(seg.FileNum)}
	f, err := decode.OpenFile(filepath.Join(p.dir, stats.Name))
	if errors.Is(err, fs.ErrNotExist) && !p.whole {
		p.report.note("%s is not there: an edit that cannot be read has removed it, or it is lost", stats.Name)
		return false, nil
	}
	if err != nil {
		p.report.lose(stats.Name, 0, int64(seg.SizeBytes), err)
		return false, nil
	}
	p.report.Files = append(p.report.Files, stats)
	h, err := decode.ReadSegmentHeader(f)
	switch {
	case errors.Is(err, corrupt.ErrCorrupt):
		p.report.damaged(err)
	case err != nil:
		p.report.lose(f.Name, 0, f.Size, err)
		return false, nil
	case p.store != nil && h.Store != wal.StoreID(*p.store):
		p.report.lose(f.Name, 0, f.Size, fmt.Sprintf("a segment of another store, %x", h.Store))
		return false, nil
	}
	batches := []batchAt{{end: wal.HeaderLen, last: *last}}
	old := 0
	gaps, err := decode.WalkSegment(f, seg.FileNum, f.Size, func(b *decode.Batch) error {
		batches = append(batches, batchAt{b.Offset, b.End, b.Seq, b.LastSeq()})
		stats.Parts++
		if len(b.Ops) > 0 && b.LastSeq() <= p.lastSeq {
			old++ // as recovery does: it is in a table, or was deleted there
			return nil
		}
		*last = max(*last, b.LastSeq())
		stats.Entries += uint64(len(b.Ops))
		for _, op := range b.Ops {
			k := keys.InternalKey{UserKey: op.Key, Trailer: op.Trailer}
			if op.Trailer.Kind() == keys.KindRangeDelete {
				out.deletes = append(out.deletes, rangedel.Tombstone{Start: bytes.Clone(op.Key), End: bytes.Clone(op.Value), Seq: op.Trailer.SeqNum()})
				continue
			}
			out.entries = append(out.entries, decode.Entry{InternalKey: k.Clone(), Value: bytes.Clone(op.Value)})
		}
		return nil
	})
	if err != nil {
		return false, err
	}
	if old > 0 {
		p.report.note("%s: %d records are in tables already", f.Name, old)
	}
	if f.Err() != nil {
		p.report.damaged(fmt.Errorf("%s: %w", f.Name, f.Err()))
	}
	return p.reportGaps(f, seg, gaps, batches), nil
}

// reportGaps reports what a segment lost between its batches, and at its end, and
// reports whether it is cut.
func (p *plan) reportGaps(f *decode.File, seg manifest.Segment, gaps []decode.Gap, batches []batchAt) (cut bool) {
	end := batches[len(batches)-1].end
	if n := len(gaps); n > 0 {
		end = max(end, gaps[n-1].End)
	}
	if size := int64(seg.SizeBytes); seg.Sealed && end < size {
		if n := len(gaps); n > 0 && gaps[n-1].End == end {
			gaps[n-1].End = size
		} else {
			gaps = append(gaps, decode.Gap{Offset: end, End: size, Cause: fmt.Errorf("the records end at %d; the segment had %d bytes", end, size)})
		}
	}
	cut = !seg.Sealed && end < int64(seg.SizeBytes)
	lostBefore := p.report.lostRecords()
	for _, g := range gaps {
		if g.Torn && !seg.Sealed && g.End == f.Size {
			p.report.note("%s, bytes %d to %d: torn by a crash before they were durable", f.Name, g.Offset, g.End)
			cut = seg.Ended() && g.Offset < int64(seg.SizeBytes)
			continue
		}
		// Sequence numbers have no holes, so that those on both sides tell how
		// many entries there were.
		i, _ := slices.BinarySearchFunc(batches, g.End, func(b batchAt, end int64) int { return cmp.Compare(b.offset, end) })
		if i < len(batches) && batches[i].first <= p.lastSeq+1 {
			p.report.damaged(fmt.Errorf("%w; tables have what was there", g.Cause))
			continue
		}
		loss := p.report.lose(f.Name, g.Offset, g.End, g.Cause)
		sure := i > 1 || p.whole && !lostBefore // where batches before the first one ended
		if sure && i < len(batches) && batches[i].first > batches[i-1].last {
			n := uint64(batches[i].first - batches[i-1].last - 1)
			loss.Entries = &n
		}
	}
	return cut
}
