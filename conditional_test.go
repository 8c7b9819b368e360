package sievedb

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

func TestPutIfAbsent(t *testing.T) {
	db := openMem(t, Options{})
	step := func(key, value string, want bool) {
		t.Helper()
		if done, err := db.PutIfAbsent([]byte(key), []byte(value)); done != want || err != nil {
			t.Errorf("PutIfAbsent(%q): %v, %v", key, done, err)
		}
	}
	step("k", "1", true)
	step("k", "2", false)
	if v, err := db.Get([]byte("k")); string(v) != "1" || err != nil {
		t.Errorf("%q, %v", v, err)
	}
	if err := db.Flush(t.Context()); err != nil { // found on disk now
		t.Fatal(err)
	}
	step("k", "3", false)
	if err := db.Delete([]byte("k")); err != nil {
		t.Fatal(err)
	}
	step("k", "4", true)
	step("", "empty key", true)
	step("", "again", false)
	if _, err := db.PutIfAbsent(make([]byte, MaxKeyBytes+1), nil); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("a key too long: %v", err)
	}
}

func TestCompareAndSwap(t *testing.T) {
	db := openMem(t, Options{})
	step := func(old, value string, want bool) {
		t.Helper()
		if done, err := db.CompareAndSwap([]byte("k"), []byte(old), []byte(value)); done != want || err != nil {
			t.Errorf("CompareAndSwap(%q, %q): %v, %v", old, value, done, err)
		}
	}
	step("", "1", false) // absent is not empty
	if err := db.Put([]byte("k"), nil); err != nil {
		t.Fatal(err)
	}
	step("x", "1", false)
	step("", "1", true)
	if err := db.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	step("", "2", false)
	step("1", "2", true)
	step("2", "3", true)
	if v, err := db.Get([]byte("k")); string(v) != "3" || err != nil {
		t.Errorf("%q, %v", v, err)
	}
}

// All conditions of a batch hold, or nothing of it is written, logged or
// counted.
func TestBatchConditions(t *testing.T) {
	db := openMem(t, Options{})
	if err := db.Put([]byte("a"), []byte("1")); err != nil {
		t.Fatal(err)
	}
	apply := func(fill func(b *Batch)) error {
		b := db.NewBatch()
		fill(b)
		return db.Apply(b, SyncAlways)
	}
	before := db.Metrics().Batches
	for name, fill := range map[string]func(b *Batch){
		"present, not absent":    func(b *Batch) { b.IfAbsent([]byte("a")); b.Put([]byte("x"), nil) },
		"another value":          func(b *Batch) { b.IfValue([]byte("a"), []byte("2")); b.Put([]byte("x"), nil) },
		"one of two":             func(b *Batch) { b.IfValue([]byte("a"), []byte("1")); b.IfAbsent([]byte("a")); b.Put([]byte("x"), nil) },
		"absent, not a value":    func(b *Batch) { b.IfValue([]byte("b"), nil); b.Put([]byte("x"), nil) },
		"conditions and no more": func(b *Batch) { b.IfAbsent([]byte("a")) },
	} {
		if err := apply(fill); !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), "condition on") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if ok, _ := db.Has([]byte("x")); ok || db.Metrics().Batches != before {
		t.Error("a batch whose condition failed left something behind")
	}
	if err := apply(func(b *Batch) {
		b.IfAbsent([]byte("b"))
		b.IfValue([]byte("a"), []byte("1"))
		b.Put([]byte("b"), []byte("2"))
		b.Delete([]byte("a"))
	}); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(collect(t, db.All())); got != "[b=2]" {
		t.Errorf("after: %s", got)
	}
	if err := apply(func(b *Batch) { b.IfAbsent([]byte("a")) }); err != nil {
		t.Errorf("conditions that hold, and nothing to write: %v", err)
	}
}

// Of many that insert the same keys at once exactly one wins each, and a
// counter swapped by many loses no step (invariant 9), while memtables are
// flushed and compacted under them.
func TestConditionsUnderContention(t *testing.T) {
	for name, o := range map[string]Options{
		"tiny memtable": {MemtableBytes: 16 << 10, TableBytes: 4 << 10},
		"no sync":       {MemtableBytes: 64 << 10, Durability: SyncNever},
	} {
		db := openMem(t, o)
		const workers, urls, steps = 8, 300, 60
		var won [urls]atomic.Int32
		var wg sync.WaitGroup
		if err := db.Put([]byte("counter"), []byte("0")); err != nil {
			t.Fatal(err)
		}
		for w := range workers {
			wg.Go(func() {
				for i := range urls {
					n := (i*7 + w*31) % urls
					done, err := db.PutIfAbsent([]byte(fmt.Sprint("url", n)), make([]byte, 100))
					if err != nil {
						t.Error(err)
						return
					}
					if done {
						won[n].Add(1)
					}
				}
				for done := 0; done < steps; {
					old, err := db.Get([]byte("counter"))
					if err != nil {
						t.Error(err)
						return
					}
					var n int
					fmt.Sscan(string(old), &n)
					ok, err := db.CompareAndSwap([]byte("counter"), old, []byte(fmt.Sprint(n+1)))
					if err != nil {
						t.Error(err)
						return
					}
					if ok {
						done++
					}
				}
			})
		}
		wg.Wait()
		for n := range won {
			if got := won[n].Load(); got != 1 {
				t.Errorf("%s: url %d was inserted %d times", name, n, got)
			}
		}
		if v, err := db.Get([]byte("counter")); string(v) != fmt.Sprint(workers*steps) || err != nil {
			t.Errorf("%s: the counter is %s, want %d: %v", name, v, workers*steps, err)
		}
	}
}

func BenchmarkPutIfAbsent(b *testing.B) {
	db := openMem(b, Options{Durability: SyncNever})
	key := []byte("key-000000000000")
	value := make([]byte, 100)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		for j, n := len(key)-1, i; n > 0; j, n = j-1, n/10 {
			key[j] = byte('0' + n%10)
		}
		if done, err := db.PutIfAbsent(key, value); err != nil || !done {
			b.Fatal(done, err)
		}
	}
}
