package sievedb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"sievedb/compaction"
	"sievedb/internal/iter"
	"sievedb/internal/keys"
	"sievedb/internal/manifest"
	"sievedb/internal/rangedel"
	"sievedb/internal/tree"
	"sievedb/sstable"
	"sievedb/vfs"
)

// job is one compaction: what to do, on which tables, and for which readers.
type job struct {
	compaction.Plan
	state   *tree.State   // holds the inputs
	readers []keys.SeqNum // copied after the inputs were fixed (invariant 8)
	info    CompactionInfo
	holding bool          // keeps the trash from being empty until state is released
	retry   chan struct{} // DB.retry when it was picked
}

// manualRequest is a call of Compact that waits.
type manualRequest struct {
	compaction.Manual
	err error // of a compaction of its keys; guarded by DB.mu
}

// compactTables runs compactions, one at a time, until the store closes.
func (db *DB) compactTables(l0Only bool) {
	var wait backoff
	for {
		db.mu.Lock()
		j, ok := db.pick(l0Only)
		for !ok && !db.closing {
			db.cond.Wait()
			j, ok = db.pick(l0Only)
		}
		db.mu.Unlock()
		if !ok {
			return
		}
		db.compactionBegins(j.info)
		start := time.Now()
		j.info.Err = db.run(j)
		j.info.Duration = time.Since(start)
		err := j.info.Err
		db.compactionEnds(j.info) // before anybody is told that the inputs are deleted
		db.note(j.state.Release())
		if j.holding {
			db.trash.hold(-1)
		}
		failed := err != nil && !errors.Is(err, ErrClosed)

		db.mu.Lock()
		again := failed && asked(j.retry)
		if !again {
			db.stats.compacted(&j.Plan, &j.info)
		}
		if failed {
			db.stats.retrying++
			for _, r := range db.manuals {
				if !again && r.Keys.Overlaps(j.Reservation.Keys) {
					r.err = err
				}
			}
			db.cond.Broadcast()
		} else {
			db.release(j)
		}
		db.mu.Unlock()
		db.backgroundError(err)
		db.events.badFilters(db.state.Load())
		db.events.Deliver()
		if !failed {
			wait = 0
			continue
		}
		// Its part of the tree stays reserved meanwhile, or every worker would
		// pick the same again and nothing else be compacted.
		wait.failed(db.closingc, j.retry)
		db.mu.Lock()
		db.stats.retrying--
		db.release(j)
		db.mu.Unlock()
	}
}

// release gives up what j reserved. Called with mu held.
func (db *DB) release(j *job) {
	i := slices.IndexFunc(db.running, func(r compaction.Reservation) bool {
		return r.StartLevel == j.Reservation.StartLevel && r.OutputLevel == j.Reservation.OutputLevel && bytes.Equal(r.Keys.Lo, j.Reservation.Keys.Lo)
	})
	db.running = slices.Delete(db.running, i, i+1)
	db.pace()
	db.cond.Broadcast()
}

// pick picks a compaction and reserves its part of the tree. Called with mu
// held.
func (db *DB) pick(l0Only bool) (*job, bool) {
	if db.closing || db.fatal.Load() != nil {
		return nil, false
	}
	s := db.state.Load()
	in := db.pickInput(s, l0Only)
	plan, ok := compaction.Plan{}, false
	for i := 0; i < len(db.manuals) && !ok && !l0Only; i++ {
		plan, ok = compaction.PickManual(s.Version, in, db.manuals[i].Manual)
	}
	if !ok {
		plan, ok = compaction.Pick(s.Version, in)
	}
	if !ok {
		return nil, false
	}
	db.running = append(db.running, plan.Reservation)
	tables := s.WithMemtables(nil, nil) // which may be flushed and freed long before the job is done
	return &job{Plan: plan, state: tables, readers: db.readers(), info: compactionInfo(&plan), retry: db.retry}, true
}

// compacting reports whether a compaction runs, or one is there to be run, other
// than those that failed and wait to be tried again. Called with mu held.
func (db *DB) compacting() bool {
	idle := db.o.Workers > db.stats.retrying
	if !idle || len(db.running) > db.stats.retrying {
		return idle
	}
	s := db.state.Load()
	_, ok := compaction.Pick(s.Version, db.pickInput(s, false))
	return ok
}

// pickInput is what a pick from s depends on. Called with mu held.
func (db *DB) pickInput(s *tree.State, l0Only bool) compaction.Input {
	return compaction.Input{
		Config:         db.shape(),
		Running:        db.running,
		OldestSnapshot: db.readers()[0],
		L0Only:         l0Only,
		RangeDels:      s.RangeDels,
		HiddenBytes:    s.HiddenBytes,
	}
}

// shape is what the options say about the shape of the tree.
func (db *DB) shape() compaction.Config {
	return compaction.Config{
		MemtableBytes:  uint64(db.o.MemtableBytes),
		L0Tables:       db.o.L0CompactTables,
		BaseTableBytes: uint64(db.o.TableBytes),
		MaxTableBytes:  8 * uint64(db.o.TableBytes),
	}
}

// run does j and notes in j.info what it wrote.
func (db *DB) run(j *job) error {
	e := &manifest.Edit{}
	entries := uint64(0) // of the inputs: not all are looked at
	for i, level := range []int{j.StartLevel, j.OutputLevel} {
		for _, m := range j.Inputs[i] {
			entries += m.Entries
			e.Removed = append(e.Removed, manifest.LevelFile{Level: level, FileNum: m.FileNum})
		}
	}
	if j.Drop {
		j.info.Dropped = entries
		db.trash.hold(1)
		j.holding = true
		return db.edit(e, nil)
	}
	if j.TrivialMove {
		for _, m := range j.Inputs[0] {
			e.Added = append(e.Added, manifest.LevelTable{Level: j.OutputLevel, Meta: m})
		}
		return db.edit(e, nil) // no file becomes obsolete
	}
	out := db.newOutputs(j.OutputLevel)
	defer out.built()
	out.bottommost, out.manual = j.Bottommost, j.Reason == compaction.ReasonManual
	out.replaces(j.Inputs[:]...)
	if err := db.merge(j, out); err != nil {
		return fmt.Errorf("compaction of %d tables from level %d to level %d (%v): %w",
			len(j.Inputs[0])+len(j.Inputs[1]), j.StartLevel, j.OutputLevel, j.Reason, out.discard(err))
	}
	e.Added = out.added
	db.trash.hold(1) // Compact returns only once the inputs' files are gone
	j.holding = true
	err := db.edit(e, out.opened)
	if errors.Is(err, vfs.ErrExhausted) {
		return out.discard(err)
	}
	j.info.wrote(out, entries)
	return err
}

// merge writes the entries of j's inputs that somebody can still need.
func (db *DB) merge(j *job, out *outputs) error {
	oldest := j.readers[0]
	input := iter.NewMerging(j.state.InputIters(j.StartLevel, j.OutputLevel, j.Inputs, oldest, sstable.IterOptions{NoFill: true})...)
	defer input.Close()
	out.source = input
	spans := rangedel.Fragment(append(j.state.RangeDelsOf(j.StartLevel, j.Inputs[0]),
		j.state.RangeDelsOf(j.OutputLevel, j.Inputs[1])...), j.readers)
	stop := &stoppable{Iterator: input, db: db}
	merger := compaction.NewMerger(stop, compaction.MergeOptions{
		Snapshots: j.readers, Elide: j.Elider().Elide, RangeDels: spans, ZeroSeq: j.ZeroSeq(),
	})
	if err := compaction.Write(merger, j.KeptRangeDels(spans, oldest), j.Splitter(), out); err != nil {
		return err
	}
	return out.finish()
}

// stoppable is an input that fails with ErrClosed soon after Close was called,
// also if none of its entries survives.
type stoppable struct {
	iter.Iterator
	db    *DB
	steps int
	err   error
}

func (s *stoppable) Next() bool {
	if s.steps++; s.steps%1024 == 0 && s.err == nil {
		s.err = s.db.usable()
	}
	return s.err == nil && s.Iterator.Next()
}

func (s *stoppable) Valid() bool { return s.err == nil && s.Iterator.Valid() }

func (s *stoppable) Error() error {
	if s.err != nil {
		return s.err
	}
	return s.Iterator.Error()
}

// Compact flushes the memtable and merges the tables that hold keys of
// [lo, hi) down to the bottom, where deletes and old versions that no snapshot
// needs vanish. A nil hi is no bound. It returns when that is durable and the
// files that it made obsolete are removed, but for those that iterators, or
// compactions that still run, hold.
func (db *DB) Compact(ctx context.Context, lo, hi []byte) error {
	return db.compact(ctx, lo, hi, false)
}

func (db *DB) compact(ctx context.Context, lo, hi []byte, rewriteAll bool) error {
	if hi != nil && bytes.Compare(lo, hi) >= 0 {
		return db.writable()
	}
	if err := db.Flush(ctx); err != nil {
		return err
	}
	db.mu.Lock()
	var last keys.SeqNum
	for t := range db.state.Load().All() {
		last = max(last, t.Meta.LargestSeq)
	}
	r := &manualRequest{Manual: compaction.Manual{
		Keys:   keys.Range{Lo: bytes.Clone(lo), Hi: bytes.Clone(hi), ToEnd: hi == nil},
		Seq:    last,
		Before: keys.FileNum(db.nextFile.Load()),

		RewriteAll: rewriteAll,
	}}
	// Not what failed elsewhere: as long as that waits, it stays out of the way.
	if slices.ContainsFunc(db.running, func(o compaction.Reservation) bool { return o.Keys.Overlaps(r.Keys) }) {
		db.retryFailed()
	}
	db.manuals = append(db.manuals, r)
	db.cond.Broadcast()
	db.mu.Unlock()

	defer func() {
		db.mu.Lock()
		defer db.mu.Unlock()
		db.manuals = slices.DeleteFunc(db.manuals, func(o *manualRequest) bool { return o == r })
	}()
	return db.await(ctx, func() (bool, error) {
		if r.err != nil {
			return false, r.err
		}
		return r.Done(db.state.Load().Version, db.shape()) && db.trash.empty(), nil
	})
}

// pace sets the speed of writes by the length of level 0: at L0SlowTables as
// fast as compactions drain it, and down to nothing at L0StopTables, so that
// writes slow down before they stop. Called with mu held.
func (db *DB) pace() {
	x, slow, stop := len(db.state.Load().L0), db.o.L0SlowTables, db.o.L0StopTables
	slowing := x >= slow && stop > slow
	db.slowing(slowing)
	if !slowing {
		db.pacer.Set(0)
		return
	}
	share := max(float64(stop-x)/float64(stop-slow), 1.0/16)
	db.pacer.Set(1e12 / (db.stats.drainRate() * share))
}
