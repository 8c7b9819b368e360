package sievedb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"sievedb/internal/invariants"
	"sievedb/vfs"
)

// TestCloseAmidEverything closes a store, several times at once, while readers,
// writers, iterators, snapshots, flushes and compactions run: they get their
// answer or ErrClosed, nothing hangs, and no goroutine stays (invariant 7).
func TestCloseAmidEverything(t *testing.T) {
	seed := newSeed(t)
	for round := range 8 {
		base := goleak.IgnoreCurrent()
		mem := vfs.NewMem()
		o := tiny
		o.Durability = Durability(1 + round%2)
		db := mustOpen(t, mem, "/store", o)
		fill(t, db, nil, 200, 0)
		leaked := db.All()
		leaked.First()
		snap := db.Snapshot()

		var done atomic.Uint64
		var wg sync.WaitGroup
		work := func(name string, f func(i uint64) error) {
			wg.Go(func() {
				for i := uint64(0); ; i++ {
					err := f(i)
					if errors.Is(err, ErrClosed) {
						return
					}
					if err != nil && !errors.Is(err, ErrNotFound) {
						t.Errorf("%s: %v", name, err)
						return
					}
					done.Add(1)
				}
			})
		}
		key := func(i uint64) []byte { return fmt.Appendf(nil, "key-%05d", (i*7919+seed)%300) }
		for w := range uint64(3) {
			work("put", func(i uint64) error { return db.Put(key(i+w), fmt.Appendf(nil, "%0200d", i)) })
		}
		work("delete", func(i uint64) error { return db.Delete(key(i)) })
		work("apply", func(i uint64) error {
			b := db.NewBatch()
			b.Put([]byte("pair-1"), fmt.Append(nil, i))
			b.Put([]byte("pair-2"), fmt.Append(nil, i))
			return db.Apply(b, StoreDefault)
		})
		work("get", func(i uint64) error { _, err := db.Get(key(i)); return err })
		work("has", func(i uint64) error { _, err := db.Has(key(i)); return err })
		work("get at a snapshot", func(i uint64) error {
			s := db.Snapshot()
			defer s.Close()
			a, errA := s.Get([]byte("pair-1"))
			b, errB := s.Get([]byte("pair-2"))
			if errA == nil && errB == nil && string(a) != string(b) {
				return fmt.Errorf("half a batch: %s and %s", a, b)
			}
			return errors.Join(errA, errB)
		})
		work("scan", func(i uint64) error {
			it := db.Prefix([]byte("key-"))
			last := ""
			for k := range it.All() {
				if string(k) <= last {
					return fmt.Errorf("%s after %s", k, last)
				}
				last = string(k)
			}
			return it.Err()
		})
		work("scan backward", func(i uint64) error {
			it := db.Scan(key(i), nil)
			defer it.Close()
			for ok := it.Last(); ok && it.Key() != nil; ok = it.Prev() {
			}
			return it.Err()
		})
		work("flush", func(i uint64) error { return db.Flush(context.Background()) })
		work("compact", func(i uint64) error { return db.Compact(context.Background(), key(i), nil) })
		work("sync", func(i uint64) error { return db.Sync() })
		work("metrics", func(i uint64) error { _ = db.Metrics(); return db.usable() })

		for done.Load() < 400 { // let all get going; a writer drives on
			must(t, db.Put(key(done.Load()), nil))
		}
		var closers sync.WaitGroup
		for range 3 {
			closers.Go(func() {
				if err := db.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			})
		}
		closers.Wait()
		wg.Wait()
		if leaked.Next() || !errors.Is(leaked.Err(), ErrClosed) || !errors.Is(leaked.Close(), ErrClosed) {
			t.Errorf("an iterator that outlived the store: %v", leaked.Err())
		}
		must(t, snap.Close())
		if err := goleak.Find(base); err != nil {
			t.Fatal(err)
		}
		db = mustOpen(t, mem, "/store", o)
		must(t, checkFiles(db))
		must(t, db.Close())
	}
}

// TestUseAfterClose wants ErrClosed from everything that can return an error.
func TestUseAfterClose(t *testing.T) {
	db := mustOpen(t, vfs.NewMem(), "/store", tiny)
	snap, it := db.Snapshot(), db.All()
	b := db.NewBatch()
	b.Put([]byte("k"), nil)
	must(t, db.Close())
	must(t, db.Close())
	ctx := context.Background()
	late := db.Snapshot()
	get := func(_ any, err error) error { return err }
	for name, err := range map[string]error{
		"put": db.Put(nil, nil), "delete": db.Delete(nil), "apply": db.Apply(b, SyncAlways), "apply nothing": db.Apply(db.NewBatch(), SyncNever),
		"get": get(db.Get(nil)), "get to": get(db.GetTo(nil, nil)), "has": get(db.Has(nil)),
		"sync": db.Sync(), "flush": db.Flush(ctx), "compact": db.Compact(ctx, nil, nil), "compact nothing": db.Compact(ctx, nil, []byte{}),
		"scan": db.Scan(nil, nil).Err(), "prefix": db.Prefix(nil).Close(), "iterator": func() error { it.First(); return it.Err() }(),
		"snapshot get": get(snap.Get(nil)), "snapshot has": get(snap.Has(nil)), "snapshot scan": snap.All().Err(), "late snapshot": get(late.Get(nil)),
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	must(t, snap.Close())
	must(t, late.Close())
	_ = db.Metrics()
	_ = db.Options()
	for range db.All().All() {
		t.Error("a closed store shows a key")
	}
}

// TestClosedSnapshot wants ErrClosed from a snapshot that was closed, while its
// iterators go on.
func TestClosedSnapshot(t *testing.T) {
	db := mustOpen(t, vfs.NewMem(), "/store", tiny)
	want := fill(t, db, nil, 50, 0)
	s := db.Snapshot()
	it := s.All()
	must(t, s.Close())
	must(t, s.Close())
	if _, err := s.Get(nil); !errors.Is(err, ErrClosed) {
		t.Errorf("get: %v", err)
	}
	if _, err := s.Has(nil); !errors.Is(err, ErrClosed) {
		t.Errorf("has: %v", err)
	}
	if s.All().First() || !errors.Is(s.All().Err(), ErrClosed) {
		t.Error("a scan of a closed snapshot")
	}
	fill(t, db, want, 50, 1)
	compactAll(t, db)
	n := 0
	for _, v := range it.All() {
		if string(v) != string(want[n].value) {
			t.Fatalf("%q, want %q", v, want[n].value)
		}
		n++
	}
	if n != len(want) {
		t.Fatalf("%d entries", n)
	}
	must(t, db.Close())
}

// TestLocked opens a store twice: at once ErrLocked, with the holder's PID.
func TestLocked(t *testing.T) {
	for _, c := range []struct {
		fs  vfs.FS
		dir string
	}{{vfs.OS(), t.TempDir()}, {vfs.NewMem(), "/store"}} {
		db := mustOpen(t, c.fs, c.dir, tiny)
		must(t, db.Put([]byte("k"), []byte("v")))
		_, err := Open(c.dir, &Options{FS: c.fs})
		var locked *vfs.LockedError
		if !errors.Is(err, ErrLocked) || !errors.As(err, &locked) || locked.PID != os.Getpid() ||
			!strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) || !strings.Contains(err.Error(), c.dir) {
			t.Errorf("open twice: %v", err)
		}
		if v, err := db.Get([]byte("k")); err != nil || string(v) != "v" {
			t.Error(err)
		}
		must(t, db.Close())
		db = mustOpen(t, c.fs, c.dir, tiny)
		must(t, db.Close())
	}
}

// TestObsoleteFiles holds a compacted-away table by an iterator: it stays until
// the iterator is closed, and then goes (invariant 17).
func TestObsoleteFiles(t *testing.T) {
	db := mustOpen(t, vfs.NewMem(), "/store", tiny)
	want := fill(t, db, nil, 300, 0)
	compactAll(t, db)
	it := db.All()
	if !it.First() {
		t.Fatal(it.Err())
	}
	fill(t, db, want, 300, 1)
	compactAll(t, db)
	if err := checkFiles(db); err == nil || !strings.Contains(err.Error(), "orphan") {
		t.Fatalf("the tables of an open iterator: %v", err)
	}
	if m := db.Metrics(); m.Disk.Obsolete == 0 {
		t.Error("metrics show nothing obsolete")
	}
	n := 0
	for ok := it.First(); ok; ok = it.Next() {
		if string(it.Value()) != string(want[n].value) {
			t.Fatalf("%q, want %q", it.Value(), want[n].value)
		}
		n++
	}
	if n != len(want) {
		t.Fatalf("%d entries: %v", n, it.Err())
	}
	must(t, it.Close())
	must(t, checkFiles(db))
	if m := db.Metrics(); m.Disk.Obsolete != 0 {
		t.Errorf("%d bytes are obsolete", m.Disk.Obsolete)
	}
	must(t, db.Close())
}

// TestUnclosed wants to be told which iterators and snapshots were still open at
// Close, and where they were made; without the checks nothing is noted.
func TestUnclosed(t *testing.T) {
	var told []string
	db := mustOpen(t, vfs.NewMem(), "/store", Options{Events: &EventListener{
		BackgroundError: func(err error) { told = append(told, err.Error()) },
	}})
	must(t, db.All().Close())
	must(t, db.Snapshot().Close())
	for range db.Prefix(nil).All() {
		t.Error("an empty store shows a key")
	}
	leakIterator(db)
	leakSnapshot(db)
	must(t, db.Close())
	if !invariants.Enabled {
		if len(told) > 0 {
			t.Errorf("without checks: %q", told)
		}
		return
	}
	all := strings.Join(told, "\n")
	if len(told) != 2 || !strings.Contains(all, "leakIterator") || !strings.Contains(all, "leakSnapshot") || !strings.Contains(all, "close_test.go:") {
		t.Errorf("%d errors: %s", len(told), all)
	}
}

func leakIterator(db *DB) { db.All().First() }
func leakSnapshot(db *DB) { db.Snapshot() }
