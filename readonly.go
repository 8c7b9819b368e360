package sievedb

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"sievedb/internal/commit"
	"sievedb/internal/filecache"
	"sievedb/internal/follow"
	"sievedb/internal/keys"
	"sievedb/internal/manifest"
	"sievedb/internal/table"
	"sievedb/wal"
)

// follower is what makes a store read-only: a directory that somebody else may
// be writing, as it was when it was last read.
type follower struct {
	mu  sync.Mutex
	dir *follow.Directory // guarded by mu

	// visible is the newest sequence number that reads may see.
	visible atomic.Uint64
}

// OpenReadOnly opens the store in dir for reading: a checkpoint, one on
// read-only media, one that was not closed and would need recovery, or one that
// another process, or this one, has open and writes. It creates, changes,
// removes and locks nothing there, serves from memory what only the log holds,
// and starts no goroutine. Writes return ErrReadOnly.
//
// The store stays as it was until Refresh follows the directory. Until then,
// and for what iterators and snapshots still read after it, it keeps the file
// of every table open: Options.MaxOpenFiles does not count here, and the writer
// may remove the names meanwhile. Of the writes that were made with SyncNever
// it sees those that have reached the operating system; so does the writer
// itself after a restart, but perhaps not after a crash of the machine.
//
// The errors are those of Open, and an fs.ErrNotExist where there is no store.
func OpenReadOnly(dir string, o *Options) (*DB, error) {
	db, err := newDB(dir, o)
	if err != nil {
		return nil, err
	}
	if db.o.MustBeNew {
		return nil, fmt.Errorf("%w: MustBeNew is set and the store is opened read-only", ErrInvalidArgument)
	}
	db.log = &wal.Log{} // to which nothing is ever appended
	db.commit = commit.New(db.log, 0, writes{db})
	db.follow = &follower{dir: follow.New(follow.Options{
		FS: db.fs, Dir: db.dir, Load: db.load, Lock: &db.commit.Lock, MemtableBytes: db.o.MemtableBytes,
		// At once: a follower holds the files of its version open, for their names
		// may go at any time (invariant 19).
		OpenTable: func(m *manifest.TableMeta, level int) (*table.Table, error) { return db.openTable(db.files, m, level) },
	})}
	db.files = filecache.New(db.fs, db.dir, tableName, filecache.KeepAll, func(keys.FileNum) {})
	err = db.catchUp()
	if err == nil {
		db.storeID = db.follow.dir.Store()
		db.missingFilters(db.state.Load())
	}
	db.events.Deliver()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening %s read-only: %w", db.dir, err), db.files.CloseAll())
	}
	return db, nil
}

// Refresh brings a store that OpenReadOnly opened to what its directory holds
// now: all writes that a writer had handed to the operating system when Refresh
// was called, and perhaps some later ones, always without a gap and never a
// part of a batch. It never goes back. Reads that begin after it returned see
// that; iterators, snapshots and transactions that were there stay with what
// they had. Calls that run side by side do the work one after the other.
//
// After an error the store stays as it was, and Refresh may be called again:
// what a writer does in between is tried again a few times, so an error other
// than a *CorruptionError may come from a writer that was always faster. Of a
// store that was opened with Open it is ErrInvalidArgument.
func (db *DB) Refresh() error {
	if db.follow == nil {
		return fmt.Errorf("%w: Refresh is for stores that OpenReadOnly opened", ErrInvalidArgument)
	}
	leave, err := db.enter()
	if err != nil {
		return err
	}
	defer leave()
	db.follow.mu.Lock()
	err = db.catchUp()
	db.follow.mu.Unlock()
	db.emptyTrash() // the state that was replaced
	db.events.damage(err)
	db.events.Deliver()
	if err != nil {
		return fmt.Errorf("following %s: %w", db.dir, err)
	}
	return nil
}

// catchUp reads the directory and lets reads see what it holds. Called with
// follow.mu held, or before the store is open.
func (db *DB) catchUp() error {
	f := db.follow
	u, err := f.dir.Read()
	if err != nil {
		return err
	}
	db.nextFile.Store(uint64(u.State.NextFileNum))
	// First the number, then the state, other than where versions are kept for
	// readers: a reader loads the state first, so none looks for an old version
	// where a writer's compaction has dropped it. The old state with the new
	// number shows all that it holds, which is whole batches without a gap.
	f.visible.Store(uint64(u.LastSeq))
	db.mu.Lock()
	defer db.mu.Unlock()
	db.swap(db.successor(u.Mutable, u.Immutables, u.State.Version, u.Opened))
	return nil
}

func (db *DB) closeReadOnly() error {
	db.workers.Wait()
	db.emptyTrash() // the memtables of the stores that were closed before this one
	db.events.badFilters(db.state.Load())
	db.mu.Lock()
	noted := db.stats.noted
	db.mu.Unlock()
	return errors.Join(noted, db.files.CloseAll())
}
