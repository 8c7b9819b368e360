package sievedb

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"sievedb/vfs"
)

// TestCrashAfterKill ends a process at each of its first calls of the file
// system, and then at random ones, has another one recover, and crashes the
// machine before each call of the recovery and of some writes after it. What the
// first process wrote and did not sync is still there for the second to read,
// and the crash may take it nevertheless: recovery has to make durable what it
// builds on (invariants 11, 14, 15).
func TestCrashAfterKill(t *testing.T) {
	seed := newSeed(t)
	total := newTally()
	for round := range 40 + *crashPoints/100 {
		if err := crashAfterKill(seed+uint64(round), round%40+1, total); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
	t.Logf("%v", total)
}

// crashAfterKill ends the first process at the given call, or at a later one if
// it is past those of an open.
func crashAfterKill(seed uint64, call int, total *tally) error {
	rng := newRand(seed)
	if call > 25 {
		call += rng.IntN(400)
	}
	h, pool, mem := newHistory(), keyPool(rng, 60), vfs.NewMem()
	if err := killedAt(h, mem, call, func(db *DB) error { return h.write(db, rng, pool, 100) }, crashOptions(rng)); err != nil {
		return err
	}
	c := &crashes{mem: mem, hist: h, copies: h.checkpoints, tally: total, pick: func(int) []uint64 { return []uint64{vfs.CrashLost, rand.Uint64()} }}
	least, most := h.bounds()
	db, n, err := h.recover(crash{"the kill", mem, least, most, h.checkpoints()}, crashOptions(rng), c.hook)
	if err != nil {
		return fmt.Errorf("killed at call %d: %w", call, err)
	}
	taken := c.takeAll()
	for i := range taken {
		taken[i].most = n
	}
	after := h.fork(n, h.checkpoints())
	c.follow(after, func(call int) []uint64 {
		if call%4 > 0 {
			return nil
		}
		return []uint64{vfs.CrashLost, rand.Uint64()}
	})
	if err := errors.Join(after.write(db, rng, pool, 5), db.Close()); err != nil {
		return err
	}
	for _, left := range append(taken, c.takeAll()...) {
		db, _, err := after.recover(left, crashOptions(rng), nil)
		if err == nil {
			err = db.Close()
		}
		if err != nil {
			return fmt.Errorf("killed at call %d, recovered, and crashed at %s: %w", call, left.at, err)
		}
		total.recovered(true)
	}
	return nil
}

// killedAt runs a store in a process that ends at the given call: no later one
// reaches the file system, where everything stays as it is.
func killedAt(h *history, mem *vfs.Mem, call int, work func(db *DB) error, o Options) error {
	killed := errors.New("the process has ended")
	f := vfs.NewFaulty(mem)
	var calls atomic.Int64
	f.SetHook(func(c vfs.Call) {
		if c.Op&mutating != 0 && calls.Add(1) == int64(call) {
			f.SetRules(vfs.Rule{Sticky: true, Err: killed})
		}
	})
	o.FS, o.MemtableBytes = f, 16<<10
	db, err := Open("/a/store", &o)
	if err == nil {
		err = work(db)
		f.SetRules(vfs.Rule{Sticky: true, Err: killed})
		_ = db.Close() // which does nothing any more
	}
	if err != nil && !errors.Is(err, killed) {
		return err
	}
	return nil
}

// TestCurrentSyncedBeforeUse ends the first process between the rename of
// CURRENT and the sync of the directory. If the next one then loses power, no
// file of its own may survive where CURRENT does not: that store would not open
// any more (invariant 15).
func TestCurrentSyncedBeforeUse(t *testing.T) {
	mem := vfs.NewMem()
	f := vfs.NewFaulty(mem)
	f.SetHook(func(c vfs.Call) {
		if c.Op == vfs.OpRename { // it is carried out, and nothing after it
			f.SetRules(vfs.Rule{Ops: vfs.OpSyncDir, Sticky: true})
		}
	})
	if _, err := Open("/a/store", &Options{FS: f}); !errors.Is(err, vfs.ErrInjected) {
		t.Fatal(err)
	}
	var left []*vfs.Mem
	f = vfs.NewFaulty(mem)
	f.SetHook(func(c vfs.Call) {
		if c.Op&mutating != 0 {
			for seed := range uint64(40) {
				left = append(left, mem.CrashClone(seed))
			}
		}
	})
	must(t, mustOpen(t, f, "/a/store", Options{}).Close())
	for _, fs := range left {
		must(t, mustOpen(t, fs, "/a/store", Options{}).Close())
	}
}
