package sievedb

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"sievedb/vfs"
)

// TestCrashUnderLoad has six writers commit side by side, whose records the log
// syncs in groups, and crashes the store at random calls meanwhile. Whatever was
// acknowledged as durable is there, nothing is there without what was committed
// before it, and no batch is half there (invariants 10, 11, 13).
func TestCrashUnderLoad(t *testing.T) {
	seed := newSeed(t)
	total := newTally()
	lives := uint64(0)
	var appends, syncs uint64
	for ; total.points() < *crashPoints/4; lives++ {
		r := loadRun{seed: seed + lives, tally: total}
		if err := r.run(); err != nil {
			t.Fatalf("%v\nthe same load: SIEVEDB_SEED=%d go test -run='^TestCrashUnderLoad$' -sievedb.crashes=1 .", err, r.seed)
		}
		appends, syncs = appends+r.log.Appends, syncs+r.log.Syncs
	}
	t.Logf("%d lives, %d records of the log in %d syncs\n%v", lives, appends, syncs, total)
}

// loadRun is one life of a store under load, and what became of it.
type loadRun struct {
	seed  uint64
	tally *tally
	log   struct{ Appends, Syncs uint64 }
}

func (r *loadRun) run() error {
	const writers, batches = 6, 40
	rng := newRand(r.seed)
	l := newLoad(r.seed, writers, []Durability{SyncAlways, SyncNever}[rng.IntN(2)])
	mem := vfs.NewMem()
	c := &crashes{mem: mem, hist: l, tally: r.tally, pick: func(int) []uint64 {
		if rand.IntN(4) > 0 {
			return nil
		}
		return []uint64{vfs.CrashLost, rand.Uint64()}
	}}
	f := vfs.NewFaulty(mem)
	f.SetHook(c.hook)
	o := crashOptions(rng)
	o.FS, o.MemtableBytes, o.Durability = f, 16<<10, l.durability
	db, err := Open("/a/store", &o)
	if err != nil {
		return err
	}
	var group sync.WaitGroup
	errs := make([]error, writers)
	for w := range writers {
		group.Go(func() {
			left := batches
			errs[w] = l.run(db, w, 1, l.tell, func() bool { left--; return left < 0 })
		})
	}
	group.Wait()
	m := db.log.Metrics()
	r.log.Appends, r.log.Syncs = m.Appends, m.Syncs
	if err := errors.Join(append(errs, db.Close())...); err != nil {
		return err
	}
	for i, crash := range c.takeAll() {
		db, err := crash.open(crashOptions(rng), nil, func(db *DB) error {
			_, err := l.check(db, crash.least, crash.most)
			return err
		})
		if err == nil && i%16 == 0 {
			err = db.Verify(context.Background())
		}
		if err == nil {
			err = db.Close()
		}
		if err != nil {
			return fmt.Errorf("after a crash at %s: %w", crash.at, err)
		}
		r.tally.recovered(false)
	}
	return nil
}
