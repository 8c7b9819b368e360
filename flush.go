package sievedb

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"sievedb/compaction"
	"sievedb/internal/commit"
	"sievedb/internal/keys"
	"sievedb/internal/manifest"
	"sievedb/internal/rangedel"
	"sievedb/memtable"
	"sievedb/vfs"
)

// flushMemtables turns immutable memtables into tables of level 0, the oldest
// first (invariant 13).
func (db *DB) flushMemtables() {
	var wait backoff
	for {
		db.mu.Lock()
		for !db.closing && (len(db.immutables) == 0 || db.fatal.Load() != nil) {
			db.cond.Wait()
		}
		if db.closing {
			db.mu.Unlock()
			return
		}
		oldest := db.immutables[0]
		next := db.mutable.segment
		if len(db.immutables) > 1 {
			next = db.immutables[1].segment
		}
		// The input is fixed; what may be dropped from it is decided by who can
		// read from now on (invariant 8).
		readers, retry := db.readers(), db.retry
		db.mu.Unlock()

		err := db.flush(oldest, next, readers)
		db.mu.Lock()
		switch {
		case err == nil:
			db.stats.flushError = nil
			db.immutables = slices.Delete(db.immutables, 0, 1)
			db.flushed = oldest.LargestSeq()
			db.swapMemtables()
			db.trash.retire(oldest.Table)
		case !asked(retry):
			db.stats.flushError = err
			db.stats.flushFailures++
		}
		db.cond.Broadcast()
		db.mu.Unlock()
		db.backgroundError(err)
		db.events.badFilters(db.state.Load())
		db.events.Deliver()
		if err != nil {
			wait.failed(db.closingc, retry)
			continue
		}
		wait = 0
	}
}

// readers returns the sequence numbers at which somebody may read: those of
// the snapshots and the newest. Called with mu held.
func (db *DB) readers() []keys.SeqNum {
	seqs := slices.Clone(db.snapshots)
	return slices.Compact(append(seqs, db.commit.Visible()))
}

// flush makes b a table of level 0; next is the oldest segment that is needed
// after that.
func (db *DB) flush(b buffer, next keys.FileNum, readers []keys.SeqNum) (err error) {
	out := db.newOutputs(0)
	defer out.built()
	end := db.beginFlush(b, out)
	defer func() { end(err) }()
	if err := db.writeMemtable(b, readers, out); err != nil {
		return err
	}
	err = db.edit(&manifest.Edit{Added: out.added, LastSeq: b.LargestSeq(), OldestSegment: next}, out.opened)
	if errors.Is(err, vfs.ErrExhausted) {
		return fmt.Errorf("flush: %w", out.discard(err))
	}
	if err != nil {
		return err // the outcome is unknown: the table stays (invariant 14)
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	db.stats.flushed(out.bytes())
	return nil
}

// writeMemtable writes what readers can see of b to one table. If that fails,
// nothing is left of it.
func (db *DB) writeMemtable(b buffer, readers []keys.SeqNum, out *outputs) error {
	it := b.NewIter(nil, keys.MaxSeqNum)
	defer it.Close()
	var spans []rangedel.Span
	if log := b.RangeDeletes(); log != nil {
		spans = rangedel.Fragment(log.All(), readers)
	}
	merger := compaction.NewMerger(it, compaction.MergeOptions{Snapshots: readers, RangeDels: spans})
	err := compaction.Write(merger, spans, nil, out)
	if err == nil {
		err = out.finish()
	}
	if err != nil {
		return fmt.Errorf("flush: %w", out.discard(err))
	}
	return nil
}

// Flush turns the memtable into a table, so that a later Open has no log to
// replay, and returns when that is durable.
//
// What failed in the background, for want of space perhaps, is tried again at
// once, and not only when its time has come.
func (db *DB) Flush(ctx context.Context) error {
	db.mu.Lock()
	if len(db.immutables) > 0 || db.crowded() {
		db.retryFailed()
	}
	db.mu.Unlock()
	last, err := db.rotateForFlush(ctx)
	db.events.Deliver()
	if err != nil || last == nil {
		return err
	}
	failures := -1 // before the wait
	return db.await(ctx, func() (bool, error) {
		if !slices.ContainsFunc(db.immutables, func(b buffer) bool { return b.Table == last }) {
			return true, nil
		}
		if failures < 0 {
			failures = db.stats.flushFailures
		}
		if db.stats.flushFailures > failures {
			return false, db.stats.flushError
		}
		return false, nil
	})
}

// rotateForFlush makes the memtable immutable and returns the newest that
// waits to be flushed, nil if there is nothing to flush.
func (db *DB) rotateForFlush(ctx context.Context) (*memtable.Table, error) {
	for {
		if db.full.Load() {
			if err := db.awaitSpace(ctx); err != nil {
				return nil, err
			}
		}
		db.commit.Lock.Lock()
		err := db.writable()
		if err == nil && !db.mutable.Empty() {
			err = db.rotate()
		}
		db.mu.Lock()
		var last *memtable.Table
		if n := len(db.immutables); n > 0 {
			last = db.immutables[n-1].Table
		}
		db.mu.Unlock()
		db.commit.Lock.Unlock()
		if !errors.Is(err, commit.ErrFull) {
			return last, err
		}
	}
}

// await waits until done says so, fails, or the context or the store ends.
// done is called with mu held, whenever something may have changed.
func (db *DB) await(ctx context.Context, done func() (bool, error)) error {
	defer db.broadcastWhenDone(ctx)()
	db.mu.Lock()
	defer db.mu.Unlock()
	for {
		if ok, err := done(); ok {
			return nil
		} else if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := db.writable(); err != nil {
			return err
		}
		db.cond.Wait()
	}
}

// broadcastWhenDone wakes those who wait on cond when the context ends. The
// function that it returns takes that back.
func (db *DB) broadcastWhenDone(ctx context.Context) (stop func() bool) {
	if ctx.Done() == nil {
		return func() bool { return true }
	}
	return context.AfterFunc(ctx, func() {
		db.mu.Lock()
		defer db.mu.Unlock()
		db.cond.Broadcast()
	})
}
