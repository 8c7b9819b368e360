package sievedb

import (
	"errors"
	"io/fs"
	"sync"
	"time"

	"sievedb/internal/keys"
	"sievedb/internal/offheap"
	"sievedb/internal/tree"
	"sievedb/memtable"
)

// startWorkers starts everything that runs in the background: one writer of
// buffered log records, one flush, the compactions, and one cleaner.
func (db *DB) startWorkers() {
	offheap.KeepWarm(db.o.MemtableBytes) // a memtable takes the memory of one before it
	db.spawn(db.writeLog)
	db.spawn(db.flushMemtables)
	for i := range db.o.Workers {
		l0Only := i == 0 && db.o.Workers > 1 // a deep job must not starve level 0
		db.spawn(func() { db.compactTables(l0Only) })
	}
	db.spawn(db.clean)
}

// flushDelay is how long a record that nobody waits for stays in the process.
const flushDelay = 10 * time.Millisecond

func (db *DB) wakeWriter() {
	select {
	case db.wakeLog <- struct{}{}:
	default:
	}
}

// writeLog hands records that nobody waits for to the operating system: soon,
// or at once when they are many.
func (db *DB) writeLog() {
	var wait backoff
	for {
		select {
		case <-db.closingc:
			return
		case <-db.wakeLog:
		}
		if !db.log.Worth() {
			timer := time.NewTimer(flushDelay)
			select {
			case <-db.closingc:
			case <-db.wakeLog:
			case <-timer.C:
			}
			timer.Stop()
		}
		err := db.log.Flush()
		_ = db.logFailure(err) // remembered there; the next write returns it
		switch {
		case err == nil:
			wait = 0
		case db.log.Err() == nil: // no room, and what was acknowledged waits for it
			db.backgroundError(err)
			db.events.Deliver()
			wait.failed(db.closingc, nil) // a Flush writes the log itself; the log has called Wake
		}
	}
}

// backoff is how long a worker waits after a failure that it will try again.
type backoff time.Duration

// failed waits longer each time, up to ten seconds, which a disk that has room
// again may stand idle at most, or until the store closes or somebody asks for
// another try.
func (b *backoff) failed(closing, retry <-chan struct{}) {
	*b = min(max(2**b, backoff(50*time.Millisecond)), backoff(10*time.Second))
	timer := time.NewTimer(time.Duration(*b))
	defer timer.Stop()
	select {
	case <-closing:
	case <-retry:
		*b = 0
	case <-timer.C:
	}
}

// retryFailed has whatever waits after a failure try again at once, and what is
// being tried already try once more if it fails. Until then nothing is known to
// fail: nobody is told of a failure that began before they asked. Called with
// mu held.
func (db *DB) retryFailed() {
	close(db.retry)
	db.retry = make(chan struct{})
	db.stats.flushError, db.stats.compactionError = nil, nil
}

// asked reports whether retryFailed was called since retry was DB.retry.
func asked(retry <-chan struct{}) bool {
	select {
	case <-retry:
		return true
	default:
		return false
	}
}

// trash collects what nobody needs any more. It has a lock of its own, because
// files become obsolete wherever the last reference to them is given back.
type trash struct {
	mu sync.Mutex
	// Guarded by mu:
	states    []*tree.State     // replaced; the current state's predecessors
	memtables []*memtable.Table // flushed, and in no states but those that are here or were
	names     []string          // of files to be removed
	removing  []string          // those that are being removed
	kept      uint64            // files that could not be removed
	busy      bool
	holds     int // compactions that are about to make files obsolete

	wake chan struct{} // holds a token when there is work
}

func (t *trash) add(states []*tree.State, names ...string) {
	t.mu.Lock()
	t.states = append(t.states, states...)
	t.names = append(t.names, names...)
	t.mu.Unlock()
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// retire adds a memtable that was flushed, after the states that hold it.
func (t *trash) retire(m *memtable.Table) {
	t.mu.Lock()
	t.memtables = append(t.memtables, m)
	t.mu.Unlock()
	t.add(nil) // only wakes
}

func (db *DB) obsoleteTable(num keys.FileNum) { db.trash.add(nil, tableName(num)) }

// clean gives up replaced read states and removes obsolete files, in the
// background because both take time: closing files, emptying the cache of
// their blocks, and freeing disk space.
func (db *DB) clean() {
	for {
		select {
		case <-db.closingc:
			db.emptyTrash()
			return
		case <-db.trash.wake:
			db.emptyTrash()
		}
	}
}

func (db *DB) emptyTrash() {
	t := &db.trash
	for {
		t.mu.Lock()
		states, memtables, names := t.states, t.memtables, t.names
		t.states, t.memtables, t.names, t.removing = nil, nil, nil, names
		t.busy = states != nil || memtables != nil || names != nil
		busy := t.busy
		t.mu.Unlock()
		if !busy {
			db.mu.Lock()
			db.cond.Broadcast()
			db.mu.Unlock()
			offheap.Collect() // the memtables
			return
		}
		for _, s := range states {
			db.note(s.Release())
		}
		for _, m := range memtables {
			m.Retire()
		}
		for _, name := range names {
			if kind, num := parseName(name); kind == kindSegment {
				db.log.AwaitClosed(num)
			}
			db.remove(name)
		}
		db.events.Deliver()
	}
}

// remove removes an obsolete file. If that fails the file stays, and the next
// open tries again; Metrics counts it.
func (db *DB) remove(name string) {
	err := db.fs.Remove(db.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return // a Create that failed left nothing
	}
	if err != nil {
		db.trash.mu.Lock()
		db.trash.kept++
		db.trash.mu.Unlock()
	}
	if kind, num := parseName(name); kind == kindTable {
		db.events.tableDeleted(num, err)
	}
}

// hold adds n to the number of compactions that keep the trash from being
// empty. Who takes one away broadcasts DB.cond afterwards.
func (t *trash) hold(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.holds += n
}

// empty reports whether everything obsolete was dealt with.
func (t *trash) empty() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.holds == 0 && !t.busy && t.states == nil && t.memtables == nil && t.names == nil
}

// pending returns the names of files that are about to be removed.
func (t *trash) pending() map[string]bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	names := make(map[string]bool, len(t.names)+len(t.removing))
	for _, list := range [][]string{t.names, t.removing} {
		for _, name := range list {
			names[name] = true
		}
	}
	return names
}
