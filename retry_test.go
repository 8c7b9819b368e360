package sievedb

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"sievedb/compaction"
	"sievedb/vfs"
)

// withBadTable returns a store whose bottom level has one table that cannot be
// read, and tombstones that sink towards it, so that a compaction fails again
// and again; and a count of how often it has.
func withBadTable(t *testing.T, workers int) (*DB, *vfs.Faulty, func() int) {
	t.Helper()
	f := vfs.NewFaulty(vfs.NewMem())
	db := mustOpen(t, f, "d", Options{Durability: SyncNever, MemtableBytes: 64 << 10, Workers: workers})
	t.Cleanup(func() { _ = db.Close() }) // with the failures of the compaction
	for i := range 200 {
		must(t, db.Put(fmt.Appendf(nil, "a%04d", i), make([]byte, 100)))
	}
	compactAll(t, db)
	bad := tableName(db.state.Load().Version.Levels[6][0].FileNum)
	f.SetRules(vfs.Rule{Ops: vfs.OpRead, Path: bad, Sticky: true, Err: errors.New("bad sector")})
	for i := range 200 {
		must(t, db.Delete(fmt.Appendf(nil, "a%04d", i)))
	}
	flushAll(t, db)
	failures := func() int { return len(f.Faults()) }
	for failures() == 0 {
		time.Sleep(time.Millisecond)
	}
	return db, f, failures
}

// One table that cannot be read stops neither the compaction of other keys nor
// writes: its part of the tree stays reserved while its job waits to try again.
func TestBadTableStopsNothingElse(t *testing.T) {
	db, _, _ := withBadTable(t, 3)
	for i := range 60_000 {
		must(t, db.Put(fmt.Appendf(nil, "z%06d", i), make([]byte, 100)))
	}
	m := db.Metrics()
	if m.TrivialMoves+m.Compactions < 5 || m.BackgroundError == nil {
		t.Errorf("%d compactions, %d moves, background error %v", m.Compactions, m.TrivialMoves, m.BackgroundError)
	}
}

// A write that only has to wait for a flush does not fail because a compaction
// does.
func TestFlushStallBesideFailingCompaction(t *testing.T) {
	db, f, _ := withBadTable(t, 2)
	f.SetHook(func(c vfs.Call) { // so slow that writers have to wait
		if c.Op == vfs.OpSync && strings.HasSuffix(c.Name, ".sst") {
			time.Sleep(5 * time.Millisecond)
		}
	})
	for i := 0; db.Metrics().Stalls < 3 && i < 200_000; i++ {
		must(t, db.Put(fmt.Appendf(nil, "z%06d", i), make([]byte, 1000)))
	}
	if db.Metrics().Stalls < 3 {
		t.Error("no write had to wait: the test shows nothing")
	}
}

// A failure that healed before Compact looked, and one of other keys, are not
// Compact's.
func TestCompactAfterHealedFailure(t *testing.T) {
	db := mustOpen(t, vfs.NewMem(), "d", Options{Durability: SyncNever, MemtableBytes: 64 << 10})
	must(t, db.Put([]byte("k"), []byte("v")))
	flushAll(t, db)
	// Everything is reserved, so that the request is not done at once.
	all := compaction.Reservation{StartLevel: 0, OutputLevel: 6}
	all.Keys.ToEnd = true
	db.mu.Lock()
	db.running = append(db.running, all)
	db.mu.Unlock()
	done := make(chan error, 1)
	go func() { done <- db.Compact(t.Context(), nil, nil) }()
	for waiting := false; !waiting; {
		db.mu.Lock()
		if waiting = len(db.manuals) > 0; waiting {
			db.stats.compacted(&compaction.Plan{TrivialMove: true}, &CompactionInfo{Err: errors.New("transient")})
			db.stats.compacted(&compaction.Plan{TrivialMove: true}, &CompactionInfo{})
			db.running = nil
			db.cond.Broadcast()
		}
		db.mu.Unlock()
	}
	if err := <-done; err != nil {
		t.Error(err)
	}

	bad, _, _ := withBadTable(t, 3)
	must(t, bad.Put([]byte("z"), nil))
	must(t, bad.Compact(t.Context(), []byte("m"), nil))
	must(t, db.Close())
}

// When Compact returns, the files of its inputs are gone.
func TestCompactLeavesNoFiles(t *testing.T) {
	fs := vfs.NewMem()
	db := mustOpen(t, fs, "d", Options{Durability: SyncNever})
	for i := range 300 {
		for range 2 {
			must(t, db.Put([]byte("k"), fmt.Append(nil, i)))
			flushAll(t, db)
		}
		compactAll(t, db)
		names, err := fs.List(db.dir)
		must(t, err)
		live := map[string]bool{}
		for table := range db.state.Load().All() {
			live[tableName(table.Meta.FileNum)] = true
		}
		for _, name := range names {
			if kind, _ := parseName(name); kind == kindTable && !live[name] {
				t.Fatalf("round %d: %s is still there", i, name)
			}
		}
	}
	must(t, db.Close())
}
