package sievedb

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sievedb/internal/invariants"
	"sievedb/vfs"
)

// TestLatencies counts each call that succeeds in its own figures, and nothing
// unless asked to.
func TestLatencies(t *testing.T) {
	for _, on := range []bool{false, true} {
		db := mustOpen(t, vfs.NewMem(), "/store", Options{Latencies: on})
		for range 5 {
			must(t, db.Put([]byte("k"), []byte("v")))
		}
		must(t, db.Delete([]byte("gone")))
		b := db.NewBatch()
		b.Put([]byte("b"), nil)
		must(t, db.Apply(b, SyncNever))
		must(t, db.Apply(b, SyncAlways))

		if _, err := db.Get([]byte("k")); err != nil {
			t.Error(err)
		}
		if _, err := db.Get([]byte("absent")); err != ErrNotFound {
			t.Error(err)
		}
		if ok, err := db.Has([]byte("k")); !ok || err != nil {
			t.Error(err)
		}
		s := db.Snapshot()
		if _, err := s.Get([]byte("k")); err != nil {
			t.Error(err)
		}
		must(t, s.Close())
		must(t, db.Close())
		if err := db.Put([]byte("k"), nil); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}

		m := db.Metrics()
		l := &m.Latencies
		if !on {
			if *l != (LatencyMetrics{}) || strings.Contains(m.String(), "p99") {
				t.Errorf("off: %+v", *l)
			}
			continue
		}
		if l.Get.Count != 4 || l.Put.Count != 6 || l.Apply.Count != 2 {
			t.Errorf("%d gets, %d puts, %d applies", l.Get.Count, l.Put.Count, l.Apply.Count)
		}
		for _, x := range []Latency{l.Get, l.Put, l.Apply} {
			if x.Mean <= 0 || x.P50 > x.P90 || x.P90 > x.P99 || x.P99 > x.P999 || x.P999 > x.Max || x.Mean > x.Max {
				t.Errorf("%+v", x)
			}
		}
		for _, want := range []string{"get: 4 calls  mean ", "put: 6 calls  mean ", "apply: 2 calls  mean "} {
			if !strings.Contains(m.String(), want) {
				t.Errorf("String does not say %q:\n%s", want, m.String())
			}
		}
	}
}

// TestLatencyOfPut lets syncs of the log take a known time, on a clock that
// stands still otherwise.
func TestLatencyOfPut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := vfs.NewFaulty(vfs.NewMem())
		db := mustOpen(t, f, "/store", Options{Latencies: true})
		f.SetHook(func(c vfs.Call) {
			if c.Op == vfs.OpSync && strings.HasSuffix(c.Name, ".wal") {
				time.Sleep(3 * time.Millisecond)
			}
		})
		for range 10 {
			must(t, db.Put([]byte("k"), nil))
		}
		l := db.Metrics().Latencies.Put
		if l.Count != 10 || l.Mean != 3*time.Millisecond || l.Max != 3*time.Millisecond ||
			l.P50 < 2906*time.Microsecond || l.P50 > 3*time.Millisecond {
			t.Errorf("%+v", l)
		}
		must(t, db.Close())
	})
}

// TestLatenciesAllocateNothing holds the hot paths to what they promise, with
// and without measuring.
func TestLatenciesAllocateNothing(t *testing.T) {
	if invariants.Enabled {
		t.Skip("the checks allocate")
	}
	for _, on := range []bool{false, true} {
		db := mustOpen(t, vfs.NewMem(), "/store", Options{Latencies: on, Durability: SyncNever})
		want := fill(t, db, nil, 1000, 0)
		compactAll(t, db)
		must(t, checkAll(db, want))
		must(t, db.Put([]byte("in the memtable"), []byte("v")))
		dst, fresh, absent := make([]byte, 0, 1000), []byte("in the memtable"), []byte("key-00007x")
		b := db.NewBatch()
		b.Put([]byte("in the memtable"), []byte("v"))
		for name, call := range map[string]func(){
			"get":                 func() { _, _ = db.GetTo(dst, want[7].key) },
			"get of the memtable": func() { _, _ = db.GetTo(dst, fresh) },
			"get of an absent":    func() { _, _ = db.GetTo(dst, absent) },
			"has":                 func() { _, _ = db.Has(want[7].key) },
			"put":                 func() { _ = db.Put(fresh, fresh) },
			"delete":              func() { _ = db.Delete(fresh) },
			"apply":               func() { _ = db.Apply(b, SyncNever) },
		} {
			if n := testing.AllocsPerRun(200, call); n != 0 {
				t.Errorf("latencies %v: %s: %v allocations", on, name, n)
			}
		}
		must(t, db.Close())
	}
}

// BenchmarkLatencies compares lookups with and without measuring.
func BenchmarkLatencies(b *testing.B) {
	db := loaded(b)
	defer func() { db.latencies = nil }()
	var dst, k []byte
	for _, c := range []struct {
		name string
		on   *latencies
	}{{"off", nil}, {"on", &latencies{opened: time.Now()}}} {
		db.latencies = c.on
		b.Run(c.name+"/absent", func(b *testing.B) {
			for i := uint64(0); b.Loop(); i++ {
				k = absentKey(k, i%benchKeys)
				dst, _ = db.GetTo(dst[:0], k)
			}
		})
		b.Run(c.name+"/present", func(b *testing.B) {
			for i := uint64(0); b.Loop(); i++ {
				k = benchKey(k, i%benchKeys)
				dst, _ = db.GetTo(dst[:0], k)
			}
		})
	}
}
