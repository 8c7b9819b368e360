package follow

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"sievedb/internal/batch"
	"sievedb/internal/commit"
	"sievedb/internal/corrupt"
	"sievedb/internal/keys"
	"sievedb/internal/manifest"
	"sievedb/internal/record"
	"sievedb/memtable"
	"sievedb/wal"
)

// log is the write-ahead log as far as it was read. Between two calls of read it
// is a whole number of batches, and nothing is missing between its first and its
// last.
type log struct {
	o        *Options
	store    wal.StoreID
	segments []*segment  // ascending; the last may grow
	last     keys.SeqNum // of the newest entry in it, or in the tables of the state
	failed   error       // a batch is half in a memtable that readers share
}

// segment is a segment and the memtable of what was read of it. Writers change
// memtable and segment together, so that the two become obsolete together.
type segment struct {
	num   keys.FileNum
	table *memtable.Table
	end   int64 // offset in the file before which everything is in table, or in tables
}

// memtables returns the memtable of the newest segment, to which the next read
// may add, and those before it, which are immutable, newest first.
func (l *log) memtables() (mutable *memtable.Table, immutables []*memtable.Table) {
	if len(l.segments) == 0 {
		return memtable.New(memtable.Options{}), nil
	}
	for _, s := range l.segments {
		immutables = append(immutables, s.table)
	}
	slices.Reverse(immutables)
	return immutables[0], immutables[1:]
}

// read makes the log that of st: it drops the segments that st does not know
// any more and reads what is new in the others. After an error the log is what
// it was, though its newest memtable may hold entries after last.
//
// The error satisfies fs.ErrNotExist or is a *corrupt.Error if a segment is
// missing, is a *corrupt.Error for damage, and wal.ErrVersion for a segment of
// another format.
func (l *log) read(st *manifest.State) error {
	if l.failed != nil {
		return l.failed
	}
	last := st.LastSeq
	var segments []*segment
	for _, s := range st.Segments {
		seg := l.known(s.FileNum, st.LastSeq)
		if err := l.readOn(seg, s, st.LastSeq, last); err != nil {
			return err
		}
		last = max(last, seg.table.LargestSeq())
		segments = append(segments, seg)
		if seg.end < int64(s.SizeBytes) {
			break // a crash took the rest, and so what is in later ones does not count
		}
	}
	for _, seg := range segments[:max(len(segments)-1, 0)] {
		l.o.Lock.Lock()
		seg.table.Freeze() // the segment is complete
		l.o.Lock.Unlock()
	}
	l.segments, l.last = segments, last
	return nil
}

// known returns what was read of segment num, or one of which nothing was. A
// memtable with entries that are in tables, up to flushed, is built anew: they
// could hide, or bring back, what compactions made of them. That happens only
// where a recovery turned a part of a segment into a table.
func (l *log) known(num keys.FileNum, flushed keys.SeqNum) *segment {
	for _, s := range l.segments {
		if s.num == num && (s.table.Empty() || s.table.SmallestSeq() > flushed) {
			return s
		}
	}
	return &segment{num: num, table: memtable.New(memtable.Options{SizeHintBytes: l.o.MemtableBytes})}
}

// readOn reads what follows seg.end. Entries up to flushed are in tables, and
// the ones that follow come after last.
func (l *log) readOn(seg *segment, s manifest.Segment, flushed, last keys.SeqNum) error {
	last = max(last, seg.table.LargestSeq())
	apply := func(payload []byte) error {
		next, err := l.apply(seg.table, payload, flushed, last)
		last = next
		return err
	}
	if seg.end > 0 {
		return corrupt.In(l.resume(seg, s, apply), wal.SegmentName(s.FileNum), 0)
	}
	from := wal.Segment{Num: s.FileNum, Sealed: s.Sealed, SizeBytes: int64(s.SizeBytes)}
	end, err := wal.Replay(l.o.FS, l.o.Dir, l.store, from, apply)
	if err != nil {
		return err
	}
	seg.end = end
	return nil
}

// resume is wal.Replay from seg.end on, where the header was checked before.
// Corruptions come back without the file's name.
func (l *log) resume(seg *segment, s manifest.Segment, apply func(payload []byte) error) error {
	if s.Ended() && seg.end == int64(s.SizeBytes) {
		return nil
	}
	f, err := l.o.FS.Open(filepath.Join(l.o.Dir, wal.SegmentName(s.FileNum)))
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return err
	}
	if s.Sealed && size != int64(s.SizeBytes) {
		return corrupt.At(size, "size of a sealed WAL segment", fmt.Sprint(s.SizeBytes), fmt.Sprint(size))
	}
	r := record.NewReader(f, size, seg.end, uint32(s.FileNum))
	for {
		payload, err := r.Next()
		if err != nil {
			return checkEnd(err, s, r.Offset())
		}
		if err := apply(payload); err != nil {
			return corrupt.In(err, wal.SegmentName(s.FileNum), seg.end+record.HeaderLen)
		}
		seg.end = r.Offset()
	}
}

// checkEnd decides what the end of a segment means, which is at offset end and
// was reported as err: of one that is not sealed, that the rest is not there
// yet.
func checkEnd(err error, s manifest.Segment, end int64) error {
	var torn *record.TornError
	isTorn := errors.As(err, &torn)
	switch {
	case !isTorn && !errors.Is(err, io.EOF):
		return err
	case s.Sealed && isTorn:
		return torn.Cause
	case s.Sealed && end != int64(s.SizeBytes) || s.Ended() && end > int64(s.SizeBytes):
		return corrupt.At(end, "end of a WAL segment", fmt.Sprint(s.SizeBytes), fmt.Sprint(end))
	}
	return nil
}

// apply adds one batch to table and returns the newest sequence number then.
func (l *log) apply(table *memtable.Table, payload []byte, flushed, last keys.SeqNum) (keys.SeqNum, error) {
	ops, err := batch.Decode(payload)
	if err != nil {
		return last, err
	}
	newest := ops.Seq() + keys.SeqNum(ops.Count()) - 1
	if ops.Count() > 0 && newest <= flushed {
		return last, nil // in a table already: the segment lived on for what follows
	}
	if ops.Seq() <= last {
		return last, corrupt.At(0, "sequence number", fmt.Sprintf("more than %d", last), fmt.Sprint(ops.Seq()))
	}
	// Checked as a whole first: readers of the memtable share it, and would see
	// the first half of a damaged batch once anything newer is published.
	whole := *ops
	for _, ok := whole.Next(); ok; _, ok = whole.Next() {
	}
	if err := whole.Err(); err != nil {
		return last, err
	}
	l.o.Lock.Lock()
	defer l.o.Lock.Unlock()
	if err := commit.Apply(table, *ops); err != nil {
		l.failed = fmt.Errorf("a logged batch could not be applied: %w", err)
		return last, l.failed
	}
	return max(last, newest), nil
}
