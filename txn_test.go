package sievedb

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"sievedb/vfs"
)

func openMem(t testing.TB, o Options) *DB {
	t.Helper()
	o.FS = vfs.NewMem()
	db, err := Open("db", &o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func collect(t *testing.T, it *Iterator) (got []string) {
	t.Helper()
	for k, v := range it.All() {
		got = append(got, string(k)+"="+string(v))
	}
	if err := it.Err(); err != nil {
		t.Fatal(err)
	}
	return got
}

// A transaction sees its own writes, through every read, and nobody else sees
// them before it commits; a failed one leaves nothing.
func TestTxnSeesItsOwnWrites(t *testing.T) {
	db := openMem(t, Options{MemtableBytes: 16 << 10})
	for _, k := range []string{"a", "b", "c", "d"} {
		if err := db.Put([]byte(k), []byte("old")); err != nil {
			t.Fatal(err)
		}
	}
	boom := errors.New("boom")
	for _, end := range []error{boom, nil} {
		err := db.Update(func(tx *Txn) error {
			for _, err := range []error{tx.Put([]byte("b"), []byte("1")), tx.Put([]byte("b"), []byte("new")), tx.Delete([]byte("c")), tx.Put([]byte("bb"), nil)} {
				if err != nil {
					return err
				}
			}
			if v, err := tx.Get([]byte("b")); string(v) != "new" || err != nil {
				t.Errorf("own put: %q, %v", v, err)
			}
			if v, err := tx.Get([]byte("bb")); v == nil || len(v) != 0 || err != nil {
				t.Errorf("own empty value: %v, %v", v, err)
			}
			if _, err := tx.Get([]byte("c")); !errors.Is(err, ErrNotFound) {
				t.Errorf("own delete: %v", err)
			}
			if ok, err := tx.Has([]byte("a")); !ok || err != nil {
				t.Errorf("Has: %v, %v", ok, err)
			}
			want := "[a=old b=new bb= d=old]"
			if got := fmt.Sprint(collect(t, tx.All())); got != want {
				t.Errorf("scan: %s, want %s", got, want)
			}
			var back []string
			for k := range tx.Scan([]byte("b"), []byte("d")).Backward() {
				back = append(back, string(k))
			}
			if fmt.Sprint(back) != "[bb b]" {
				t.Errorf("backward: %v", back)
			}
			if v, err := db.Get([]byte("b")); string(v) != "old" || err != nil {
				t.Errorf("from outside: %q, %v", v, err)
			}
			return end
		})
		if !errors.Is(err, end) {
			t.Fatal(err)
		}
	}
	if got := fmt.Sprint(collect(t, db.All())); got != "[a=old b=new bb= d=old]" {
		t.Errorf("after the commit: %s", got)
	}
}

func TestTxnRefusals(t *testing.T) {
	db := openMem(t, Options{})
	if err := db.View(func(tx *Txn) error { return tx.Put([]byte("k"), nil) }); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("a write in View: %v", err)
	}
	// A refused write is not forgotten, even if fn does not look.
	err := db.Update(func(tx *Txn) error {
		_ = tx.Put([]byte("k"), nil)
		_ = tx.Put(make([]byte, MaxKeyBytes+1), nil)
		return nil
	})
	if ok, _ := db.Has([]byte("k")); ok || !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("a refused write: %v, committed: %v", err, ok)
	}
	var kept *Txn
	if err := db.Update(func(tx *Txn) error { kept = tx; return nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := kept.Get([]byte("k")); !errors.Is(err, ErrClosed) {
		t.Errorf("a read after the end: %v", err)
	}
	if err := kept.Put([]byte("k"), nil); !errors.Is(err, ErrClosed) {
		t.Errorf("a write after the end: %v", err)
	}
	if it := kept.All(); it.First() || !errors.Is(it.Err(), ErrClosed) {
		t.Errorf("a scan after the end: %v", it.Err())
	}
}

// What conflicts and what does not: each case reads, lets another write come
// in between, and writes.
func TestTxnConflicts(t *testing.T) {
	for _, c := range []struct {
		name     string
		read     func(tx *Txn)
		write    string // the other write, or a delete with -
		conflict bool
	}{
		{"nothing read", func(tx *Txn) {}, "k5", false},
		{"same key", func(tx *Txn) { tx.Get([]byte("k5")) }, "k5", true},
		{"same key deleted", func(tx *Txn) { tx.Get([]byte("k5")) }, "-k5", true},
		{"absent key appears", func(tx *Txn) { tx.Has([]byte("new")) }, "new", true},
		{"other key", func(tx *Txn) { tx.Get([]byte("k5")) }, "k6", false},
		{"own write only", func(tx *Txn) { tx.Put([]byte("k5"), nil); tx.Get([]byte("k5")) }, "k5", false},
		{"phantom in a scan", func(tx *Txn) { drain(tx.Scan([]byte("k2"), []byte("k4"))) }, "k33", true},
		{"phantom at the end of a bounded scan", func(tx *Txn) { drain(tx.Scan([]byte("k2"), []byte("k4"))) }, "k39", true},
		{"beyond the scan", func(tx *Txn) { drain(tx.Scan([]byte("k2"), []byte("k4"))) }, "k5", false},
		{"below the scan", func(tx *Txn) { drain(tx.Scan([]byte("k2"), []byte("k4"))) }, "k1", false},
		{"end of everything", func(tx *Txn) { drain(tx.All()) }, "zzz", true},
		{"first key only: behind it", func(tx *Txn) { it := tx.All(); it.First(); it.Close() }, "k1", false},
		{"first key only: before it", func(tx *Txn) { it := tx.All(); it.First(); it.Close() }, "a", true},
		{"last key only: before it", func(tx *Txn) { it := tx.All(); it.Last(); it.Close() }, "k5", false},
		{"last key only: behind it", func(tx *Txn) { it := tx.All(); it.Last(); it.Close() }, "z", true},
		{"seek before: passed", func(tx *Txn) { it := tx.All(); it.SeekLT([]byte("k5")); it.Close() }, "k45", true},
		{"seek before: behind", func(tx *Txn) { it := tx.All(); it.SeekLT([]byte("k5")); it.Close() }, "k55", false},
		{"steps back", func(tx *Txn) { it := tx.All(); it.SeekGE([]byte("k5")); it.Prev(); it.Prev(); it.Close() }, "k35", true},
	} {
		for _, flush := range []bool{false, true} {
			db := openMem(t, Options{})
			for i := range 9 {
				if err := db.Put([]byte(fmt.Sprint("k", i)), []byte("v")); err != nil {
					t.Fatal(err)
				}
			}
			attempts := 0
			err := db.Update(func(tx *Txn) error {
				attempts++
				c.read(tx)
				if attempts == 1 {
					var err error
					if c.write[0] == '-' {
						err = db.Delete([]byte(c.write[1:]))
					} else {
						err = db.Put([]byte(c.write), []byte("other"))
					}
					if err == nil && flush {
						err = db.Flush(t.Context())
					}
					if err != nil {
						return err
					}
				}
				return tx.Put([]byte("out"), []byte("mine"))
			})
			if err != nil || (attempts == 2) != c.conflict {
				t.Errorf("%s (flush %v): %d attempts, %v", c.name, flush, attempts, err)
			}
		}
	}
}

func drain(it *Iterator) {
	for range it.All() {
	}
}

// Beyond the retry bound nothing is applied.
func TestTxnGivesUp(t *testing.T) {
	db := openMem(t, Options{Durability: SyncNever})
	attempts := 0
	err := db.Update(func(tx *Txn) error {
		attempts++
		if _, err := tx.Has([]byte("contended")); err != nil {
			return err
		}
		if err := db.Put([]byte("contended"), nil); err != nil {
			return err
		}
		return tx.Put([]byte("out"), nil)
	})
	if ok, _ := db.Has([]byte("out")); ok || !errors.Is(err, ErrConflict) || attempts != maxAttempts {
		t.Errorf("%v after %d attempts, applied: %v", err, attempts, ok)
	}
}

// Serializable: money moves between accounts while memtables are flushed under
// the transactions; every transaction that looks at all of them sees the sum,
// and so do scans in both directions, snapshots and followers whenever they
// look, since each is of one instant.
func TestTxnTransfers(t *testing.T) {
	db := openMem(t, Options{MemtableBytes: 16 << 10, Durability: SyncNever, TableBytes: 8 << 10})
	const accounts, workers, transfers = 20, 6, 150
	key := func(i int) []byte { return []byte(fmt.Sprintf("account%02d", i)) }
	for i := range accounts {
		if err := db.Put(key(i), []byte{100}); err != nil {
			t.Fatal(err)
		}
	}
	sum := func(tx *Txn) (n int) {
		for _, v := range tx.Prefix([]byte("account")).All() {
			n += int(v[0])
		}
		return n
	}
	must(t, db.Sync()) // or a follower may not see all accounts
	var stop atomic.Bool
	var watchers, wg sync.WaitGroup
	watch := func(what string, look func() (getter, func() error)) {
		watchers.Go(func() {
			for looked := 0; looked < 3 || !stop.Load(); looked++ {
				view, done := look()
				for range 2 { // what a view shows stays so
					forward, backward := 0, 0
					up, down := view.Prefix([]byte("account")), view.Prefix([]byte("account"))
					for _, v := range up.All() {
						forward += int(v[0])
					}
					for _, v := range down.Backward() {
						backward += int(v[0])
					}
					if err := errors.Join(up.Err(), down.Err()); err != nil || forward != 100*accounts || backward != forward {
						t.Errorf("%s shows %d, %d backward, %v", what, forward, backward, err)
					}
				}
				if err := done(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	watch("a scan", func() (getter, func() error) { return db, func() error { return nil } })
	watch("a snapshot", func() (getter, func() error) { s := db.Snapshot(); return s, s.Close })
	watch("a follower", func() (getter, func() error) {
		ro, err := OpenReadOnly(db.dir, &Options{FS: db.fs})
		if err != nil {
			t.Error(err)
			return db, func() error { return nil }
		}
		return ro, func() error { return errors.Join(ro.Refresh(), ro.Close()) }
	})
	for w := range workers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 5))
			for i := range transfers {
				from, to := rng.IntN(accounts), rng.IntN(accounts)
				err := db.Update(func(tx *Txn) error {
					if i%10 == 0 && sum(tx) != 100*accounts {
						t.Errorf("a transaction sees %d", sum(tx))
					}
					a, err := tx.Get(key(from))
					if err != nil {
						return err
					}
					if a[0] == 0 {
						return nil
					}
					a[0]--
					if err := tx.Put(key(from), a); err != nil {
						return err
					}
					b, err := tx.Get(key(to))
					if err != nil {
						return err
					}
					b[0]++
					if err := tx.Put(key(to), b); err != nil {
						return err
					}
					return tx.Put([]byte(fmt.Sprint("filler", w, i)), make([]byte, 200))
				})
				if err != nil && !errors.Is(err, ErrConflict) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	stop.Store(true)
	watchers.Wait()
	if err := db.View(func(tx *Txn) error {
		if n := sum(tx); n != 100*accounts {
			t.Errorf("in the end there are %d", n)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// TestInvariant10 has a write that nobody synced observed by calls that are
// synced: when they have answered, no crash takes it away any more.
func TestInvariant10(t *testing.T) {
	key, value := []byte("seen"), []byte("1")
	for name, observe := range map[string]func(db *DB) (done bool, err error){
		"put if absent":    func(db *DB) (bool, error) { return db.PutIfAbsent(key, nil) },
		"compare and swap": func(db *DB) (bool, error) { return db.CompareAndSwap(key, nil, nil) },
		"conditional batch": func(db *DB) (bool, error) {
			var b Batch
			b.IfAbsent(key)
			err := db.Apply(&b, SyncAlways)
			if errors.Is(err, ErrConflict) {
				return false, nil
			}
			return true, err
		},
		"transaction that writes": func(db *DB) (bool, error) {
			return false, db.Update(func(tx *Txn) error {
				_, err := tx.Get(key)
				return errors.Join(err, tx.Put([]byte("after"), nil))
			})
		},
		"transaction that only reads": func(db *DB) (bool, error) {
			return false, db.Update(func(tx *Txn) error { _, err := tx.Get(key); return err })
		},
	} {
		t.Run(name, func(t *testing.T) {
			mem := vfs.NewMem()
			db := mustOpen(t, mem, "/store", Options{})
			var b Batch
			b.Put(key, value)
			must(t, db.Apply(&b, SyncNever))
			done, err := observe(db)
			must(t, err)
			if done {
				t.Error("the key was taken for absent")
			}
			left := mustOpen(t, mem.CrashClone(vfs.CrashLost), "/store", Options{})
			if _, err := left.Get(key); err != nil {
				t.Errorf("what was observed is gone: %v", err)
			}
			must(t, errors.Join(left.Close(), db.Close()))
		})
	}
}
