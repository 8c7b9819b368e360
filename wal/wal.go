// Package wal is the write-ahead log: opaque records, appended to numbered
// segments, made durable on demand and replayed after a crash.
//
//	log, err := wal.Create(options, num)
//	pos, err := log.Append(head, body, true) // under the caller's commit lock
//	err = log.Sync(pos)                      // outside it: waits for durability
//
// Append only copies the record into a buffer. Whoever needs durability calls
// Sync: the first caller becomes the leader, writes and syncs everything that
// was appended so far, and wakes all the others that are thereby served, while
// later appends already fill the next buffer. Records that nobody waits for
// are written by Flush, which the owner calls soon after Wake; until then a
// killed process loses them.
//
// Any failed write or sync is sticky: every later call returns it, and nothing
// is tried again, because a kernel may drop the pages that it could not write.
// The exception is a write for which there is no room: the segment is cut back
// to its last whole write and synced, which proves that it is unharmed. The
// records stay in the buffer, in their order, and the next call that needs them
// written tries again; until that works nothing is appended. Such an error is a
// vfs.ErrExhausted.
//
// A segment that is full ends, and the next begins. If the log is lazy the old one
// is not synced then: as a rule its records are in a table before anybody
// asks for them to be durable (Release), so that it need never reach the disk. Until
// then no record behind it is durable either: Sync syncs all such segments first,
// in their order. A crash may take any part of one, and recovery ends the log there.
//
// A Log is safe for concurrent use, except that calls of Append, Rotate and
// Close must not overlap one another: the caller's commit lock orders them.
package wal

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"

	"sievedb/internal/keys"
	"sievedb/internal/record"
	"sievedb/vfs"
)

// Position is a place in the log: bytes over all segments since Create. Later
// records have higher positions.
type Position int64

// Options says where a log lives.
type Options struct {
	FS    vfs.FS
	Dir   string
	Store StoreID
	// Lazy leaves a segment that Rotate ends unsynced until a Sync asks for it.
	Lazy bool
	// Seal is called, if the log is lazy, when a segment that Rotate had ended is
	// durable, with its final size. Until it returns nothing behind that is
	// reported as durable. It must not call the log.
	Seal func(num keys.FileNum, sizeBytes int64) error
	// Wake is called, if not nil, when records wait to be written for which
	// nobody will call Sync, or no more, there having been no room. It must not
	// block nor call the log.
	Wake func()
}

const (
	// wakeBytes of records that nobody waits for are worth a write.
	wakeBytes = 256 << 10
	// maxBufferBytes is where Append writes first, so that a writer faster than
	// the disk cannot fill the memory.
	maxBufferBytes = 1 << 20
	// A log that is synced is filled with zeros ahead, by as much as it has, between
	// these bounds: syncing inside them changes no size and takes no space, which
	// spares the file system's journal. Each step costs one sync as much as a few.
	minAheadBytes = 32 << 10
	maxAheadBytes = 256 << 10
)

// Log is an open write-ahead log.
type Log struct {
	o Options

	mu   sync.Mutex
	cond sync.Cond // of mu: busy, durable or err changed
	// All below is guarded by mu, except that whoever set busy owns file,
	// num, preallocated, ended and the buffer that it took until it clears busy.
	file         vfs.File
	num          keys.FileNum
	base         Position     // of the segment's first byte
	pending      []byte       // appended, not yet taken for writing
	spare        []byte       // the other buffer, while nobody writes
	appended     Position     // end of the records appended
	written      Position     // end of the records written to the file
	durable      Position     // end of the records that survive a crash
	preallocated int64        // bytes of the file that are there to be overwritten
	ended        []ended      // segments before, ascending, that are neither sealed nor released
	oldest       keys.FileNum // those below are released
	closed       keys.FileNum // and of these, those below are not open
	busy         bool         // somebody writes, syncs or rotates
	exhausted    bool         // there was no room for pending
	err          error        // the first failure
	metrics      Metrics
}

// ended is a segment that Rotate ended and left unsynced.
type ended struct {
	file      vfs.File
	num       keys.FileNum
	sizeBytes int64
	end       Position
}

// Metrics counts what a log did since Create.
type Metrics struct {
	Appends       uint64
	BodyBytes     uint64 // of the records' bodies
	AppendedBytes uint64 // with heads and framing
	ZeroBytes     uint64 // written ahead of them
	Writes        uint64 // calls of the file system that wrote
	Syncs         uint64
}

// Create creates segment num, durably, and returns a log that appends to it.
func Create(o Options, num keys.FileNum) (*Log, error) {
	l := &Log{o: o}
	l.cond.L = &l.mu
	f, err := l.createSegment(num)
	if err != nil {
		return nil, err
	}
	l.start(f, num, 0)
	return l, nil
}

// createSegment makes an empty segment whose content and name are durable.
func (l *Log) createSegment(num keys.FileNum) (vfs.File, error) {
	f, err := vfs.Create(l.o.FS, l.path(num))
	if err != nil {
		return nil, fmt.Errorf("creating %s: %w", SegmentName(num), err)
	}
	err = vfs.Append(f, appendHeader(nil, num, l.o.Store), 0)
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = l.o.FS.SyncDir(l.o.Dir)
	}
	if err != nil {
		return nil, l.abandon(f, num, fmt.Errorf("creating %s: %w", SegmentName(num), err))
	}
	return f, nil
}

// abandon closes the new segment num because of err. If there was only no room
// it removes it as well; what stays is removed when the store is opened again.
func (l *Log) abandon(f vfs.File, num keys.FileNum, err error) error {
	err = errors.Join(err, f.Close())
	if errors.Is(err, vfs.ErrExhausted) {
		_ = l.o.FS.Remove(l.path(num))
	}
	return err
}

func (l *Log) path(num keys.FileNum) string { return filepath.Join(l.o.Dir, SegmentName(num)) }

// start makes f, which holds only its header, the segment that is appended to.
func (l *Log) start(f vfs.File, num keys.FileNum, base Position) {
	l.file, l.num, l.base = f, num, base
	l.appended = base + HeaderLen
	l.written = l.appended
	if len(l.ended) == 0 {
		l.durable = l.appended
	}
	l.preallocated = 0
}

// Append appends one record, whose payload is head followed by body, and
// returns the position to Sync to. It copies both and usually does no I/O.
// willSync says that the caller will Sync; otherwise Wake is called in time.
// After an error nothing was appended.
func (l *Log) Append(head, body []byte, willSync bool) (Position, error) {
	l.mu.Lock()
	if l.exhausted || len(l.pending) >= maxBufferBytes {
		if err := l.reach(l.appended, &l.written, false); err != nil {
			l.mu.Unlock()
			return 0, err
		}
	}
	if l.err != nil {
		defer l.mu.Unlock()
		return 0, l.err
	}
	before := len(l.pending)
	l.pending = record.Append(l.pending, record.Frame{
		Number: uint32(l.num),
		Offset: int64(l.appended - l.base),
		Synced: max(int64(l.durable-l.base), HeaderLen),
	}, head, body)
	after := len(l.pending)
	l.appended += Position(after - before)
	l.metrics.Appends++
	l.metrics.BodyBytes += uint64(len(body))
	l.metrics.AppendedBytes += uint64(after - before)
	pos := l.appended
	l.mu.Unlock()

	if !willSync && l.o.Wake != nil && (before == 0 || before < wakeBytes && after >= wakeBytes) {
		l.o.Wake()
	}
	return pos, nil
}

// Worth reports whether enough records wait for a write to pay at once.
func (l *Log) Worth() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.pending) >= wakeBytes
}

// End returns the position after the last record that was appended.
func (l *Log) End() Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.appended
}

// Sync returns once everything before pos is durable.
func (l *Log) Sync(pos Position) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reach(pos, &l.durable, true)
}

// Flush writes what is buffered, so that it survives the death of the process,
// though not of the machine.
func (l *Log) Flush() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reach(l.appended, &l.written, false)
}

// gatherRounds bounds how often a leader lets others append before it syncs:
// writers that never wait would keep it from syncing at all.
const gatherRounds = 3

// reach waits, or works, until *mark (written or durable) is at least pos.
// Called with mu held.
func (l *Log) reach(pos Position, mark *Position, sync bool) error {
	gather := 0
	if sync {
		gather = gatherRounds
	}
	for *mark < pos {
		if l.err != nil {
			return l.err
		}
		if l.busy {
			l.cond.Wait()
			continue
		}
		if gather > 0 {
			// Those whom the last sync served are about to append again. Let
			// them, or they miss this sync and groups alternate between one
			// record and all the others.
			end := l.appended
			l.mu.Unlock()
			runtime.Gosched()
			l.mu.Lock()
			gather--
			if l.appended == end {
				gather = 0
			}
			continue
		}
		before := len(l.ended)
		var zeroBytes int64
		err := l.work(func(f vfs.File, sizeBytes int64) error {
			if !sync {
				return nil
			}
			return l.syncAll(func() error {
				zeroBytes = l.preallocate(f, sizeBytes)
				return f.Sync()
			})
		})
		l.metrics.ZeroBytes += uint64(zeroBytes)
		if err != nil {
			return err
		}
		if sync {
			l.durable = l.written
			l.metrics.Syncs += uint64(1 + before - len(l.ended))
		}
	}
	return nil
}

// work takes the buffer and the right to the file, writes the one to the other
// and then calls do with the size that the file now has, both outside the lock.
// If there is no room for the buffer it stays what is to be written next. Called
// with mu held and busy false; returns with mu held.
func (l *Log) work(do func(f vfs.File, sizeBytes int64) error) error {
	l.busy = true
	f, buf, end := l.file, l.pending, l.appended
	l.pending, l.spare = l.spare[:0], nil
	l.mu.Unlock()
	err := l.write(f, buf)
	wrote := err == nil
	if wrote {
		err = do(f, int64(end-l.base))
	}
	l.mu.Lock()
	l.busy = false
	l.exhausted = false
	if len(buf) > 0 {
		l.metrics.Writes++
	}
	if err != nil {
		err = fmt.Errorf("WAL segment %s: %w", SegmentName(l.num), err)
	}
	switch {
	case wrote:
		l.written = end
	case errors.Is(err, vfs.ErrExhausted):
		l.exhausted = true
		buf, l.pending = l.pending, append(buf, l.pending...)
		if l.o.Wake != nil { // those who wait get the error, others' records stay
			l.o.Wake()
		}
	}
	l.release()                       // what was asked for meanwhile
	if cap(buf) <= 2*maxBufferBytes { // one huge batch must not stay for ever
		l.spare = buf[:0]
	}
	if err != nil && !errors.Is(err, vfs.ErrExhausted) {
		l.fail(err)
	}
	l.cond.Broadcast()
	return err
}

func (l *Log) fail(err error) {
	if l.err == nil {
		l.err = err
	}
}

// write appends buf to the file. Only whoever is busy calls it; written, which
// only they change, may be read.
func (l *Log) write(f vfs.File, buf []byte) error {
	if len(buf) == 0 {
		return nil
	}
	err := vfs.Append(f, buf, int64(l.written-l.base))
	if err != nil {
		l.preallocated = 0 // it was cut off
	}
	return err
}

// preallocate prepares for the syncs after one of sizeBytes bytes, and returns how
// many bytes it wrote. Only whoever is busy calls it.
func (l *Log) preallocate(f vfs.File, sizeBytes int64) (zeroBytes int64) {
	if sizeBytes <= l.preallocated {
		return 0
	}
	l.preallocated = sizeBytes + min(max(sizeBytes, minAheadBytes), maxAheadBytes)
	// A disk that has no room for zeros may have some for records: this is a
	// hint, and asking again after a failure would only cost.
	if f.Preallocate(l.preallocated) != nil {
		return 0 // or some of them
	}
	return l.preallocated - sizeBytes
}

// syncAll makes the segments durable that Rotate left unsynced, then the current
// one, which last does, and then has them sealed: what cannot be sealed, for want
// of room perhaps, is on the disk all the same. Only whoever is busy calls it.
func (l *Log) syncAll(last func() error) error {
	for _, e := range l.ended {
		if err := seal(e.file, e.sizeBytes); err != nil {
			return fmt.Errorf("%s before: %w", SegmentName(e.num), err)
		}
	}
	if err := last(); err != nil {
		return err
	}
	for len(l.ended) > 0 {
		e := l.ended[0]
		if err := l.o.Seal(e.num, e.sizeBytes); err != nil {
			return err
		}
		l.ended = l.ended[1:]
		if err := e.file.Close(); err != nil {
			return fmt.Errorf("%s before: %w", SegmentName(e.num), err)
		}
	}
	return nil
}

// Release says that the segments below oldest are not needed any more: all that is
// in them is durable elsewhere. Their files are closed, unsynced if they are that,
// by whoever is busy if somebody is: see AwaitClosed.
func (l *Log) Release(oldest keys.FileNum) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.oldest = max(l.oldest, oldest)
	if !l.busy {
		l.release()
	}
}

// release does what Release says. Called with mu held and busy false.
func (l *Log) release() {
	for len(l.ended) > 0 && l.ended[0].num < l.oldest {
		_ = l.ended[0].file.Close() // nobody needs what is in it
		l.durable = max(l.durable, l.ended[0].end)
		l.ended = l.ended[1:]
	}
	l.closed = l.oldest
}

// AwaitClosed returns once segment num, which was released, is not open: not every
// system removes files that are.
func (l *Log) AwaitClosed(num keys.FileNum) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for num >= l.closed {
		l.cond.Wait()
	}
}

// Rotate ends the current segment and starts segment num. Before num receives
// a byte, the old segment is written and, unless the log is lazy, cut to its size and
// durable, num exists durably, and record, which the caller uses to log both in
// the manifest, returned. Records may be appended only after Rotate returned. If
// there was no room, for the records, for num or for what record does, the log goes on
// in the old segment, and num must not be used again.
func (l *Log) Rotate(num keys.FileNum, record func(old keys.FileNum, sizeBytes int64) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.busy {
		l.cond.Wait()
	}
	if l.err != nil {
		return l.err
	}
	var next vfs.File
	old, size := l.num, int64(l.appended-l.base)
	err := l.work(func(f vfs.File, _ int64) (err error) {
		if !l.o.Lazy {
			l.preallocated = 0 // which seal cuts off
			err = seal(f, size)
		}
		if err == nil {
			next, err = l.createSegment(num)
		}
		if err != nil {
			return err
		}
		if err := record(old, size); err != nil {
			return l.abandon(next, num, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if l.o.Lazy {
		l.ended = append(l.ended, ended{l.file, old, size, l.base + Position(size)})
	} else {
		l.metrics.Syncs++
		err = l.file.Close()
	}
	l.start(next, num, l.base+Position(size))
	if err != nil { // synced before: nothing is lost, but something is wrong
		l.fail(fmt.Errorf("WAL segment %s: %w", SegmentName(old), err))
	}
	return l.err
}

// Close writes and syncs everything, cuts the segment to its size and closes
// it. It returns the number and the size of the segment, which is sealed if
// there is no error, so that the caller can record that in the manifest.
func (l *Log) Close() (num keys.FileNum, sizeBytes int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.busy {
		l.cond.Wait()
	}
	num, sizeBytes = l.num, int64(l.appended-l.base)
	if l.err != nil {
		return num, sizeBytes, errors.Join(l.err, l.closeFiles())
	}
	err = l.work(func(f vfs.File, sizeBytes int64) error {
		return l.syncAll(func() error { return seal(f, sizeBytes) })
	})
	if err == nil {
		l.durable = l.written
	}
	err = errors.Join(err, l.closeFiles())
	if err != nil { // which those who still wait for their records are told
		l.fail(err)
	}
	l.fail(errClosed)
	l.cond.Broadcast()
	return num, sizeBytes, err
}

// closeFiles closes what is open. Called with mu held and busy false.
func (l *Log) closeFiles() error {
	err := l.file.Close()
	for _, e := range l.ended {
		err = errors.Join(err, e.file.Close())
	}
	l.ended = nil
	return err
}

var errClosed = errors.New("the log is closed")

// Err returns the first failure, or nil.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Metrics returns the counters.
func (l *Log) Metrics() Metrics {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.metrics
}
