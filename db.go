package sievedb

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"sievedb/compaction"
	"sievedb/internal/commit"
	"sievedb/internal/filecache"
	"sievedb/internal/invariants"
	"sievedb/internal/keys"
	"sievedb/internal/manifest"
	"sievedb/internal/offheap"
	"sievedb/internal/pacer"
	"sievedb/internal/table"
	"sievedb/internal/tree"
	"sievedb/memtable"
	"sievedb/vfs"
	"sievedb/wal"
)

// DB is an open store. All methods are safe for concurrent use.
//
// Locks, in the order in which they are taken:
//
//	follow.mu    orders calls of Refresh; only of a read-only store
//	commit.Lock  orders writes; its holder may rotate log and memtable
//	manifestMu   orders edits: each is logged and then installed
//	mu           everything else that changes; no I/O under it
//
// Point reads take none of them.
type DB struct {
	o       *Options
	fs      vfs.FS
	dir     string
	lock    io.Closer
	storeID wal.StoreID
	files   *filecache.Cache

	// state is what reads see. It is replaced under mu.
	state atomic.Pointer[tree.State]
	// latencies is nil while they are not measured. It lies beside what every
	// read loads.
	latencies *latencies
	// nextFile is the next file number to be given out (invariant 16).
	nextFile atomic.Uint64
	// fatal is why the store takes no more writes, nil while it does.
	fatal atomic.Pointer[error]
	// full says that writers should see whether the store is still crowded.
	full atomic.Bool

	// follow is set by OpenReadOnly, and nil in a store that can write.
	follow *follower
	commit *commit.Pipeline
	log    *wal.Log
	// mutable is guarded by commit.Lock, and changes under mu as well.
	mutable buffer
	pacer   pacer.Pacer
	// batchBytes is what the next batch may take, after the one applied last.
	batchBytes atomic.Int64
	trash      trash
	// unclosed are the iterators and snapshots, while checks are compiled in.
	unclosed invariants.Tracker
	scans    scanCounts
	events   events

	manifestMu sync.Mutex
	manifest   *manifest.Log // guarded by manifestMu
	logStart   wal.Position  // of the newest segment's first byte; guarded by manifestMu

	mu   sync.Mutex
	cond sync.Cond // of mu: broadcast whenever something below changes
	// Guarded by mu:
	immutables []buffer      // oldest first
	flushed    keys.SeqNum   // what is newer is in a memtable
	snapshots  []keys.SeqNum // ascending, one per open snapshot
	running    []compaction.Reservation
	manuals    []*manualRequest
	building   map[keys.FileNum]bool // tables that are being written
	writing    map[*outputs]bool     // what writes them
	closing    bool
	stats      stats
	slowed     slowed
	retry      chan struct{} // closed, and replaced, to end waits after failures

	closingc  chan struct{} // closed when closing is set
	closed    atomic.Bool   // closing, for those who do not hold mu
	wakeLog   chan struct{} // holds a token when records wait to be written
	workers   sync.WaitGroup
	closeOnce sync.Once
	closeErr  error
}

// buffer is a memtable and the oldest segment that holds an entry of it.
type buffer struct {
	*memtable.Table
	segment keys.FileNum
}

// Options returns the options in force, defaults filled in.
func (db *DB) Options() Options { return *db.o }

// Close waits for the writes in progress, makes everything durable, and
// releases the directory. Reads in progress finish or return ErrClosed, and so
// do iterators and snapshots that are still open; built with the tag invariants
// it tells, as a background error, where each of those was made. It returns what went wrong
// in the background and was not reported otherwise. Further calls return the
// same.
func (db *DB) Close() error {
	db.closeOnce.Do(func() {
		db.closeErr = db.close()
		db.events.Deliver()
	})
	return db.closeErr
}

func (db *DB) close() error {
	db.mu.Lock()
	db.closing = true
	db.closed.Store(true)
	close(db.closingc)
	db.cond.Broadcast()
	db.mu.Unlock()
	if db.follow != nil {
		return db.closeReadOnly()
	}

	// Writers that wait for room see closing and return; then no other comes.
	db.commit.Lock.Lock()
	num, size, logErr := db.log.Close()
	db.commit.Lock.Unlock()
	db.workers.Wait()
	offheap.KeepWarm(-db.o.MemtableBytes)
	db.events.badFilters(db.state.Load())
	for _, where := range db.unclosed.Open() {
		db.backgroundError(fmt.Errorf("an iterator or a snapshot is still open at Close; it was made by\n%s", where))
	}

	errs := []error{logErr}
	if fatal := db.fatal.Load(); fatal != nil {
		errs = []error{*fatal} // which is what the log's error would repeat
	} else if logErr == nil {
		errs = append(errs, db.edit(&manifest.Edit{EndedSegments: []manifest.SegmentEnd{{FileNum: num, SizeBytes: uint64(size), Sealed: true}}}, nil))
		db.manifestMu.Lock()
		errs = append(errs, db.manifest.Vouch())
		db.manifestMu.Unlock()
	}
	db.manifestMu.Lock()
	errs = append(errs, db.manifest.Close())
	db.manifestMu.Unlock()
	db.mu.Lock()
	errs = append(errs, db.stats.failing(), db.stats.noted)
	db.mu.Unlock()
	errs = append(errs, db.files.CloseAll(), db.lock.Close())
	return errors.Join(errs...)
}

// usable returns ErrClosed once Close was called.
func (db *DB) usable() error {
	if db.closed.Load() {
		return ErrClosed
	}
	return nil
}

// writable returns why the store takes no writes, or nil.
func (db *DB) writable() error {
	if err := db.usable(); err != nil {
		return err
	}
	if db.follow != nil {
		return fmt.Errorf("%w: it was opened so", ErrReadOnly)
	}
	if fatal := db.fatal.Load(); fatal != nil {
		return fmt.Errorf("%w after: %w", ErrReadOnly, *fatal)
	}
	return nil
}

// enter begins a long call, for the end of which Close waits; it looks out for
// Close itself. Whoever entered calls leave, or gets ErrClosed.
func (db *DB) enter() (leave func(), err error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.closing {
		return nil, ErrClosed
	}
	db.workers.Add(1) // before closing is set, so before Close waits
	return db.workers.Done, nil
}

// fail makes the store read-only because of err: the outcome of a failed write
// to the WAL or the manifest is unknown, so nothing may follow it.
func (db *DB) fail(err error) error {
	if err == nil || errors.Is(err, ErrClosed) {
		return err
	}
	if db.fatal.CompareAndSwap(nil, &err) {
		db.events.fatalError(err)
		db.mu.Lock()
		db.cond.Broadcast()
		db.mu.Unlock()
	}
	return err
}

func (db *DB) path(name string) string { return filepath.Join(db.dir, name) }

func (db *DB) newFileNum() keys.FileNum { return keys.FileNum(db.nextFile.Add(1) - 1) }

// spawn runs f in the background until it returns; Close waits for it. It is
// the only place that starts a goroutine.
func (db *DB) spawn(f func()) { db.workers.Go(f) }

// edit logs e and then installs the read state that it leads to, with the
// tables that it adds, already open. Edits take effect in the order in which
// they are logged. If the log fails, the outcome is unknown: the store becomes
// read-only and nothing is deleted, unless the error is a vfs.ErrExhausted: then
// e is not logged, and what it would have added may go (invariant 14).
func (db *DB) edit(e *manifest.Edit, opened map[keys.FileNum]*table.Table) error {
	db.manifestMu.Lock()
	defer db.manifestMu.Unlock()
	return db.editLocked(e, opened)
}

// editLocked is edit with manifestMu held.
func (db *DB) editLocked(e *manifest.Edit, opened map[keys.FileNum]*table.Table) error {
	if fatal := db.fatal.Load(); fatal != nil {
		return *fatal // nothing may follow a write whose outcome is unknown
	}
	e.NextFileNum = keys.FileNum(db.nextFile.Load())
	if db.manifest.ShouldRewrite() {
		if err := db.rewriteManifest(); errors.Is(err, manifest.ErrNoRoom) {
			db.backgroundError(err) // there may be some for e in the present one
		} else if err != nil {
			return db.fail(err)
		}
		e.NextFileNum = keys.FileNum(db.nextFile.Load())
	}
	before := db.manifest.State().Segments
	if err := db.manifest.Append(e); errors.Is(err, vfs.ErrExhausted) {
		return fmt.Errorf("manifest: %w", err)
	} else if err != nil {
		return db.fail(fmt.Errorf("manifest: %w", err))
	}
	db.log.Release(e.OldestSegment)
	for _, s := range before {
		if s.FileNum < e.OldestSegment {
			db.trash.add(nil, wal.SegmentName(s.FileNum))
		}
	}
	for _, s := range e.EndedSegments {
		if slices.Contains(before, manifest.Segment{FileNum: s.FileNum}) { // the log goes on behind it
			db.logStart += wal.Position(s.SizeBytes)
		}
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	db.install(db.manifest.State().Version, opened)
	db.cond.Broadcast()
	return nil
}

// sealSegment logs that a segment that had ended is durable, if it is still live.
func (db *DB) sealSegment(num keys.FileNum, sizeBytes int64) error {
	db.manifestMu.Lock()
	defer db.manifestMu.Unlock()
	end := manifest.SegmentEnd{FileNum: num, SizeBytes: uint64(sizeBytes)}
	if !slices.Contains(db.manifest.State().Segments, manifest.Segment(end)) {
		return nil // its memtable is a table
	}
	end.Sealed = true
	return db.editLocked(&manifest.Edit{EndedSegments: []manifest.SegmentEnd{end}}, nil)
}

// lazyLog reports whether a segment ends unsynced: where writes are not synced, most
// are in a table before anybody asks for that.
func (db *DB) lazyLog() bool { return db.o.Durability == SyncNever }

// rewriteManifest replaces the manifest by one that starts with the present
// state. Called with manifestMu held.
func (db *DB) rewriteManifest() error {
	old := db.manifest
	num := db.newFileNum()
	st := *old.State()
	st.NextFileNum = keys.FileNum(db.nextFile.Load())
	m, err := manifest.Create(db.fs, db.dir, num, &st)
	if err != nil {
		return fmt.Errorf("rewriting the manifest: %w", err)
	}
	db.manifest = m
	// The new one is in force and durable: the old one is only rubbish, and the
	// next open sweeps it if it cannot be removed now.
	db.remove(manifest.ManifestName(old.State().ManifestNum))
	db.note(old.Close())
	return nil
}

// install makes v the version that reads see. Called with mu held.
func (db *DB) install(v *manifest.Version, opened map[keys.FileNum]*table.Table) {
	old := db.state.Load()
	if old.Version == v {
		return
	}
	db.swap(db.successor(old.Mutable, old.Immutables, v, opened))
	db.pace()
}

// successor returns a state with these memtables and the tables of v, which are
// in the present state, if there is one, or in opened. Called with mu held.
func (db *DB) successor(mutable *memtable.Table, immutables []*memtable.Table, v *manifest.Version, opened map[keys.FileNum]*table.Table) *tree.State {
	type place struct {
		level int
		num   keys.FileNum
	}
	placed := make(map[place]*table.Table, v.Tables())
	anywhere := make(map[keys.FileNum]*table.Table, v.Tables())
	if old := db.state.Load(); old != nil {
		for t := range old.All() {
			placed[place{t.Level, t.Meta.FileNum}] = t
			anywhere[t.Meta.FileNum] = t
		}
	}
	next := tree.NewState(mutable, immutables, v, func(level int, m *manifest.TableMeta) *table.Table {
		at := place{level, m.FileNum}
		if t := placed[at]; t != nil {
			delete(placed, at) // what is left over in the end has left its place
			return t
		}
		if t := opened[m.FileNum]; t != nil {
			return t
		}
		return anywhere[m.FileNum].In(level)
	})
	for at, t := range placed {
		db.stats.retire(at.level, t)
		db.events.checkFilter(t)
	}
	return next
}

// swap makes next the state that reads see. Called with mu held.
func (db *DB) swap(next *tree.State) {
	next.IgnoreFilters = db.o.DisableFilters
	if old := db.state.Swap(next); old != nil {
		db.trash.add([]*tree.State{old})
	}
}

// note remembers a failure that changes nothing, for Metrics and Close.
func (db *DB) note(err error) {
	if err != nil {
		db.backgroundError(err)
		db.mu.Lock()
		defer db.mu.Unlock()
		db.stats.noted = err
	}
}
