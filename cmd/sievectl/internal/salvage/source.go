package salvage

import (
	"bytes"
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
)

// aboveTables is the level of what no table has: nothing is newer.
const aboveTables = -1

// source yields the entries of one table, or of all segments, in order.
type source struct {
	report *Report
	num    keys.FileNum
	level  int                 // zero, which hides most, if it is not known
	meta   *manifest.TableMeta // nil if it is not known

	// Of a table only:
	stats *FileReport
	file  *decode.File
	table *decode.Table    // nil once all of it was read
	next  int              // block to read next
	end   uint64           // of the last block that was looked at
	last  keys.InternalKey // of the last entry that was used; without a user key, none was
	loss  *Loss            // that is not yet at its end
	own   []*Loss          // all of this table
	// deletes are the range tombstones of the segments.
	deletes []rangedel.Tombstone
	lost    func(*KeyRange) // is told of each range whose end is known

	entries []decode.Entry // in memory and not yet yielded
}

// openTables opens the tables as far as that goes.
func (p *plan) openTables() (sources []*source, err error) {
	for _, num := range slices.Sorted(maps.Keys(p.tables)) {
		s, err := p.openTable(num, p.tables[num])
		if err != nil {
			return nil, err
		}
		sources = append(sources, s)
	}
	return sources, nil
}

// openTable opens a table. One that cannot be used is a loss, and then a source
// without entries.
func (p *plan) openTable(num keys.FileNum, listed manifest.LevelTable) (*source, error) {
	name := fmt.Sprintf("%06d.sst", num)
	s := &source{report: p.report, num: num, level: listed.Level, meta: listed.Meta, stats: &FileReport{Name: name}}
	p.report.Files = append(p.report.Files, s.stats)
	m := listed.Meta
	if m != nil {
		s.stats.Level = &listed.Level
	}
	f, err := decode.OpenFile(filepath.Join(p.dir, name))
	if errors.Is(err, fs.ErrNotExist) && !p.whole {
		p.report.note("%s, with %d entries, is not there: an edit that cannot be read has removed it, or it is lost", name, m.Entries)
		return s, nil
	}
	if err != nil {
		s.loseAll(0, err)
		return s, nil
	}
	t, size, err := readTable(f, m, p.report)
	if err == nil && m != nil && t.Footer != nil && t.Footer.Checksum != m.Checksum {
		err = fmt.Errorf("another table: the checksum of its footer is %#x, in the manifest %#x", t.Footer.Checksum, m.Checksum)
	}
	if err != nil {
		s.loseAll(size, err)
		return s, nil
	}
	for _, err := range t.Problems {
		p.report.damaged(err)
	}
	p.reportRangeDels(name, t, m)
	if seq, ok := t.Number(decode.TagLargestSeq); ok && !p.whole {
		p.lastSeq = max(p.lastSeq, keys.SeqNum(seq), t.RangeDels.Largest())
	}
	s.file, s.table, s.stats.Scanned = f, t, t.Scanned
	return s, nil
}

// reportRangeDels reports what is lost of a table's range tombstones.
func (p *plan) reportRangeDels(name string, t *decode.Table, m *manifest.TableMeta) {
	const lost = "range tombstones; what they deleted may be back"
	switch {
	case t.RangeDels != nil:
	case t.Footer != nil:
		if h := t.Footer.RangeTombstones; h.Length > 0 {
			p.report.lose(name, int64(h.Offset), int64(h.Offset+h.Length), lost)
		}
	case m == nil:
		p.report.note("%s: nothing tells whether it had range tombstones; what they deleted may be back", name)
	case m.RangeDeletes > 0:
		p.report.lose(name, int64(t.DataEnd), int64(m.SizeBytes), lost)
	}
}

// readTable reads a table of the size that the manifest has for it, if that is
// known, unless a footer stands at the end of a longer file.
func readTable(f *decode.File, m *manifest.TableMeta, r *Report) (t *decode.Table, size int64, err error) {
	t, err = decode.ReadTable(f, f.Size)
	if m == nil || err != nil || m.SizeBytes >= uint64(f.Size) || t.Footer != nil {
		return t, f.Size, err
	}
	r.damaged(fmt.Errorf("%s has %d bytes, %d more than the manifest says", f.Name, f.Size, uint64(f.Size)-m.SizeBytes))
	t, err = decode.ReadTable(f, int64(m.SizeBytes))
	return t, int64(m.SizeBytes), err
}

// loseAll reports that nothing of the table can be used. sizeBytes is that of
// the file.
func (s *source) loseAll(sizeBytes int64, cause error) {
	l := s.report.lose(s.stats.Name, 0, sizeBytes, cause)
	l.Keys = &KeyRange{level: s.level}
	if m := s.meta; m != nil {
		l.End, l.Entries = int64(m.SizeBytes), &m.Entries
		l.Keys.From, l.Keys.To = decode.Key(m.Smallest), decode.Key(m.Largest)
		s.stats.Lost = &m.Entries
	}
	s.own = append(s.own, l)
}

// fill makes sure that entries holds what comes next, if anything does.
func (s *source) fill() {
	for s.table != nil && len(s.entries) == 0 {
		if s.next == len(s.table.Blocks) {
			s.finish()
			return
		}
		s.read(s.next)
		s.next++
	}
}

// read reads block i.
func (s *source) read(i int) {
	b := &s.table.Blocks[i]
	if b.Offset > s.end { // only where the index does not say what is there
		s.lose(s.end, b.Offset, errors.New("no block can be made out"))
	}
	s.end = b.End()
	entries, _, err := s.table.Entries(i)
	if err == nil {
		err = s.foreign(entries, b.Offset)
	}
	if err != nil {
		s.lose(b.Offset, s.end, err)
		return
	}
	if s.table.Scanned {
		s.endLoss(entries[0].UserKey, true)
	} else if i > 0 {
		s.endLoss(s.table.Blocks[i-1].Separator, false)
	}
	s.entries, s.last = entries, entries[len(entries)-1].InternalKey
	s.stats.Parts++
	s.stats.Entries += uint64(len(entries))
}

// foreign returns what is wrong with whole entries that cannot be of this table.
func (s *source) foreign(entries []decode.Entry, offset uint64) error {
	first, last := entries[0].InternalKey, entries[len(entries)-1].InternalKey
	var err error
	if s.last.UserKey != nil && keys.Compare(s.last, first) >= 0 {
		err = corrupt.At(int64(offset), "order of blocks", "a key after "+s.last.String(), first)
	}
	if m := s.meta; m != nil && (bytes.Compare(first.UserKey, m.Smallest) < 0 || m.KeyRange().EndsBefore(last.UserKey)) {
		err = corrupt.At(int64(offset), "keys of the block", fmt.Sprintf("%.128v", m.KeyRange()), fmt.Sprintf("%.64q to %.64q", first.UserKey, last.UserKey))
	}
	return corrupt.In(err, s.stats.Name, 0)
}

// lose begins a loss, or makes the last one longer if it is still growing.
func (s *source) lose(offset, end uint64, cause error) {
	if s.loss != nil {
		s.loss.End = int64(end)
		return
	}
	s.loss = s.report.lose(s.stats.Name, int64(offset), int64(end), cause)
	s.loss.Keys = &KeyRange{From: decode.Key(s.last.UserKey), NotFrom: true, level: s.level}
	if s.last.UserKey == nil && s.meta != nil {
		s.loss.Keys.From, s.loss.Keys.NotFrom = decode.Key(s.meta.Smallest), false
	}
	s.own = append(s.own, s.loss)
}

// endLoss ends the loss that is growing, if there is one, at a user key, or
// before it.
func (s *source) endLoss(to []byte, before bool) {
	if s.loss == nil {
		return
	}
	s.loss.Keys.To, s.loss.Keys.NotTo = decode.Key(to), before
	s.lost(s.loss.Keys)
	s.loss = nil
}

// finish ends the table.
func (s *source) finish() {
	end, want, known := s.table.DataEnd, uint64(0), false
	if want, known = s.table.Number(decode.TagEntries); s.meta != nil {
		want, known = s.meta.Entries, true
		if s.table.Scanned && s.table.Footer == nil {
			end = max(end, s.meta.SizeBytes) // the file may be cut
		}
	}
	if s.end < end {
		s.lose(s.end, end, errors.New("no block can be made out"))
	}
	if known && want == s.stats.Entries {
		for _, l := range s.own { // bytes, but no entries
			s.report.damaged(errors.New(l.String()))
		}
		s.report.Losses = slices.DeleteFunc(s.report.Losses, func(l *Loss) bool { return slices.Contains(s.own, l) })
		s.own, s.loss = nil, nil
	}
	if n := len(s.table.Blocks); !s.table.Scanned && n > 0 {
		s.endLoss(s.table.Blocks[n-1].Separator, false)
	} else if s.meta != nil {
		s.endLoss(s.meta.Largest, false)
	} else {
		s.endLoss(nil, false)
	}
	if known && want >= s.stats.Entries {
		n := want - s.stats.Entries
		s.stats.Lost = &n
		if len(s.own) == 1 {
			s.own[0].Entries = &n
		}
	}
	if err := s.file.Err(); err != nil {
		s.report.damaged(fmt.Errorf("%s: %w", s.file.Name, err))
	}
	s.table = nil
}
