package sievedb

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"sievedb/vfs"
)

// allOps is every operation of a file system.
const allOps = vfs.OpClose<<1 - 1

// life is a short life of a store, always the same, on a file system of which
// something fails. The steps of it that fail are tried once more.
type life struct {
	hist *history
	rng  *rand.Rand
	pool [][]byte
	mem  *vfs.Mem
	f    *vfs.Faulty

	cause   error // what every failure must wrap
	passing bool  // the fault does: whatever is tried again must work
	lift    func()

	failed      bool // some step failed
	wasReadOnly bool // and it left the store so
	unknown     bool // whether the last batch is there cannot be told before a reopen
	recovered   int  // openings that were checked

	slow   int // the call that is slow
	before int // the failures before the store was opened
	mu     sync.Mutex
	calls  int   // guarded by mu
	again  error // guarded by mu: a sync was tried again
}

func newLife(seed uint64) *life {
	rng := newRand(seed)
	mem := vfs.NewMem()
	l := &life{hist: newHistory(), rng: rng, pool: keyPool(rng, 40), mem: mem, f: vfs.NewFaulty(mem), lift: func() {}}
	l.f.SetHook(l.hook)
	return l
}

// run lives through two sessions, and a third without faults.
func (l *life) run() error {
	for range 2 {
		if err := l.session(); err != nil {
			return err
		}
		if l.failed && !l.passing {
			break
		}
	}
	l.f.SetRules()
	for _, seed := range []uint64{vfs.CrashLost, vfs.CrashKept, l.rng.Uint64()} {
		if err := l.reopen(l.mem.CrashClone(seed)); err != nil {
			return fmt.Errorf("reopened with seed %d: %w", seed, err)
		}
	}
	return nil
}

// session opens the store, works, and closes it.
func (l *life) session() (err error) {
	var db *DB
	least, most := l.hist.bounds()
	l.unknown = false
	o := Options{FS: l.f, Durability: SyncNever, MemtableBytes: 16 << 10, TableBytes: 4 << 10, BlockBytes: 256, CacheBytes: -1, Workers: 1}
	if ok, err := l.try(nil, func() (err error) {
		l.mu.Lock()
		l.before = len(l.f.Faults())
		l.mu.Unlock()
		db, err = Open("/a/store", &o)
		return err
	}); !ok || err != nil {
		return err
	}
	// What the last session left unsynced may be gone, but only the end of it.
	if ok, err := l.try(db, func() error { return l.adopt(db, least, most) }); !ok {
		return errors.Join(err, l.check(db.Close()))
	}
	for i, step := range l.steps(db) {
		if l.unknown {
			break
		}
		if _, err := l.try(db, step); err != nil {
			return fmt.Errorf("step %d: %w (close: %v)", i, err, db.Close())
		}
		// Or no two lives would make the same calls.
		quiesceUnless(db, func() bool { return len(l.f.Faults()) > 0 })()
	}
	if err := l.check(db.Close()); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.again
}

// adopt takes what is there for the history, a prefix of what was written.
func (l *life) adopt(db *DB, least, most int) error {
	n, err := l.hist.check(db, least, most)
	if err == nil {
		l.hist.models = l.hist.models[:n+1]
		l.hist.synced = n // recovery made it durable
	}
	return err
}

func (l *life) steps(db *DB) []func() error {
	ctx := context.Background()
	write := func(d Durability) func() error { return func() error { return l.write(db, d) } }
	durable := func(call func() error) func() error {
		return func() error {
			err := call()
			if err == nil {
				l.hist.acknowledge()
			}
			return err
		}
	}
	flush := durable(func() error { return db.Flush(ctx) })
	read := func() error {
		n := len(l.hist.models) - 1
		_, err := l.hist.check(db, n, n)
		return err
	}
	return []func() error{
		write(SyncAlways), write(SyncNever), flush, write(SyncNever), write(SyncAlways), durable(db.Sync), flush,
		write(SyncNever), durable(func() error { return db.Compact(ctx, nil, nil) }), read,
		write(SyncAlways), flush, write(SyncNever), write(SyncNever),
		func() error { return db.Verify(ctx) },
		write(SyncNever),
	}
}

// write applies a batch. If that fails, it finds out whether the batch is there
// nevertheless.
func (l *life) write(db *DB, d Durability) error {
	err := db.Apply(l.hist.begin(db, l.rng, l.pool), d)
	if err == nil {
		if d == SyncAlways {
			l.hist.acknowledge()
		}
		return nil
	}
	v, getErr := db.Get(counterKey)
	n, _ := binary.Uvarint(v)
	switch last := len(l.hist.models) - 1; {
	case getErr != nil && getErr != ErrNotFound:
		l.unknown = true
	case int(n) != last:
		l.hist.models = l.hist.models[:last]
	}
	return err
}

// try makes a step, once more if it fails and the fault passes. ok says that it
// worked in the end, err that something is wrong with how it failed.
func (l *life) try(db *DB, step func() error) (ok bool, err error) {
	if err = step(); err == nil {
		return true, nil
	}
	if err := l.check(err); err != nil {
		return false, err
	}
	l.lift()
	if db != nil && db.fatal.Load() != nil {
		return false, l.checkReadOnly(db)
	}
	if !l.passing {
		return false, nil
	}
	if err = step(); err != nil {
		return false, fmt.Errorf("tried again: %w", err)
	}
	return true, nil
}

// check wants a failure to be the one that was made.
func (l *life) check(err error) error {
	if err == nil {
		return nil
	}
	l.failed = true
	if l.cause == nil || !errors.Is(err, l.cause) || errors.Is(err, ErrCorrupt) || errors.Is(err, ErrFormat) {
		return fmt.Errorf("failed with: %w", err)
	}
	return nil
}

// checkReadOnly wants a store that failed for good to say so, and to read on.
func (l *life) checkReadOnly(db *DB) error {
	l.wasReadOnly = true
	for range 2 {
		if err := db.Put([]byte("k"), nil); !errors.Is(err, ErrReadOnly) || !errors.Is(err, l.cause) {
			return fmt.Errorf("put after a failure: %v", err)
		}
	}
	_, err := l.hist.check(db, 0, len(l.hist.models)-1)
	if !l.passing && errors.Is(err, l.cause) {
		return nil
	}
	return err
}

// reopen wants everything acknowledged in what a crash left, and a whole store.
func (l *life) reopen(fs *vfs.Mem) error {
	least, most := l.hist.bounds()
	for range 2 {
		db, n, err := l.hist.recover(crash{fs: fs, least: least, most: most}, Options{}, nil)
		if err != nil {
			return err
		}
		err = errors.Join(db.Verify(context.Background()), db.Put([]byte("late"), nil), db.Delete([]byte("late")), db.Close())
		if err != nil {
			return err
		}
		least, most = n, n
		l.recovered++
	}
	return nil
}

// hook counts calls, makes one of them slow, and watches that no sync of a file
// is tried again after it failed.
func (l *life) hook(c vfs.Call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls++; l.calls == l.slow {
		time.Sleep(3 * time.Millisecond)
	}
	if c.Op != vfs.OpSync {
		return
	}
	for _, failed := range l.f.Faults()[l.before:] {
		if failed.Op == vfs.OpSync && failed.Name == c.Name {
			l.again = fmt.Errorf("a failed sync of %s was tried again", c.Name)
		}
	}
}

// growing are the calls for which a full disk has no room. None of them makes a
// store read-only then.
const growing = vfs.OpCreate | vfs.OpWrite | vfs.OpPreallocate | vfs.OpMkdirAll | vfs.OpLink

// injury is a way in which the calls of a file system fail.
type injury struct {
	name    string
	rule    vfs.Rule
	passing bool // it fails once
	slow    bool // it does not fail, but takes long
}

var injuries = []injury{
	{name: "EIO", rule: vfs.Rule{Err: syscall.EIO}, passing: true},
	{name: "EIO, though carried out", rule: vfs.Rule{Err: syscall.EIO, After: true}, passing: true},
	{name: "short write and ENOSPC", rule: vfs.Rule{Err: syscall.ENOSPC, Bytes: 30}, passing: true},
	{name: "EMFILE", rule: vfs.Rule{Err: syscall.EMFILE}, passing: true},
	{name: "EIO from then on", rule: vfs.Rule{Err: syscall.EIO, Sticky: true}},
	{name: "failing syncs from then on", rule: vfs.Rule{Ops: vfs.OpSync | vfs.OpSyncDir, Err: syscall.EIO, Sticky: true}},
	{name: "ENOSPC from then on", rule: vfs.Rule{Ops: growing, Err: syscall.ENOSPC, Sticky: true}},
	{name: "slow", slow: true},
}

// TestFaultAtEveryCall has the calls that a store makes of its file system fail,
// one after the other, in every way. The call that the user made fails with that
// error and works when it is made again, or the store is read-only from then on
// and says why, or nobody notices; and a store that is opened when the fault has
// passed, or after a crash, holds all that was acknowledged (invariant 14).
func TestFaultAtEveryCall(t *testing.T) {
	seed := newSeed(t)
	perInjury := 10
	if *modelOps >= 1_000_000 {
		perInjury = 1 << 30
	}
	for _, injury := range injuries {
		t.Run(injury.name, func(t *testing.T) {
			counting := newLife(seed)
			must(t, counting.run())
			ops := allOps
			if injury.rule.Ops != 0 {
				ops = injury.rule.Ops
			}
			total := counting.f.Count(ops)
			stride := max(1, total/perInjury)
			lives, unnoticed, failed, readOnly, recovered := 0, 0, 0, 0, 0
			for nth := 1 + int(seed%uint64(stride)); nth <= total; nth += stride {
				l := newLife(seed)
				if l.passing = injury.passing; injury.slow {
					l.slow = nth
				} else {
					r := injury.rule
					r.Nth, l.cause = nth, r.Err
					l.f.SetRules(r)
				}
				if err := l.run(); err != nil {
					t.Fatalf("call %d of %d, %v: %v", nth, total, l.f.Faults(), err)
				}
				if len(l.f.Faults()) == 0 && !injury.slow {
					// What runs in the background has this life make some calls more
					// or fewer than the one that was counted.
					if made := l.f.Count(ops); made >= nth || made < total*9/10 {
						t.Errorf("call %d of %d: nothing failed in %d calls", nth, total, made)
					}
					continue
				}
				if faults := l.f.Faults(); l.wasReadOnly && vfs.Exhausted(injury.rule.Err) && faults[0].Op&growing != 0 {
					t.Errorf("call %d of %d, %v: the store became read-only", nth, total, faults[0])
				}
				lives++
				recovered += l.recovered
				switch {
				case l.wasReadOnly:
					readOnly++
				case l.failed:
					failed++
				default:
					unnoticed++
				}
			}
			t.Logf("%d calls, %d of them injured: %d times nobody noticed, %d times a call failed, %d times the store became read-only; %d reopenings",
				total, lives, unnoticed, failed, readOnly, recovered)
			if injury.slow && unnoticed != lives || !injury.slow && stride == 1 && (failed == 0 || readOnly == 0 && injury.rule.Ops != growing) {
				t.Error("that is lopsided")
			}
		})
	}
}

// TestDiskFullAtEveryByte fills the disk at any byte that a store writes, and
// makes room once a call has failed: that call works then, and no store becomes
// read-only nor loses anything (invariant 14).
func TestDiskFullAtEveryByte(t *testing.T) {
	seed := newSeed(t)
	const enough = 1 << 40
	counting := newLife(seed)
	counting.f.LimitSpace(enough)
	must(t, counting.run())
	free, _ := counting.f.Free("")
	total := enough - int64(free)
	disks := int64(25)
	if *modelOps >= 1_000_000 {
		disks = 3000
	}
	full, failed, recovered := 0, 0, 0
	for space := int64(seed % uint64(total/disks)); space < total; space += total / disks {
		l := newLife(seed)
		l.passing, l.cause = true, syscall.ENOSPC
		var crashed error // while the disk was full
		l.lift = func() {
			crashed = errors.Join(crashed, l.reopen(l.mem.CrashClone(vfs.CrashLost)), l.reopen(l.mem.CrashClone(uint64(space))))
			l.f.AddSpace(enough)
		}
		l.f.LimitSpace(space)
		if err := errors.Join(l.run(), crashed); err != nil || l.wasReadOnly {
			t.Fatalf("%d bytes of %d, %v, read-only: %v: %v", space, total, l.f.Faults(), l.wasReadOnly, err)
		}
		if len(l.f.Faults()) > 0 {
			full++
		}
		if l.failed {
			failed++
		}
		recovered += l.recovered
	}
	t.Logf("%d bytes: %d times the disk was full, %d times a call failed; %d reopenings", total, full, failed, recovered)
	if failed < int(disks)/2 {
		t.Error("that is lopsided")
	}
}
