package sievedb

import (
	"bytes"
	"context"
	"encoding/binary"
	"sync"
	"testing"

	"sievedb/internal/invariants"
	"sievedb/vfs"
)

const benchKeys = 300_000

// benchKey is the i-th key of the benchmarks: scattered, and even. The odd
// numbers between them are absent.
func benchKey(dst []byte, i uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dst[:0], "bench:"...), i*0x9e3779b97f4a7c15&^1)
}

func absentKey(dst []byte, i uint64) []byte {
	dst = benchKey(dst, i)
	dst[len(dst)-1] |= 1
	return dst
}

// benchStore is loaded once, compacted, and cached in full.
var benchStore = sync.OnceValue(func() *DB {
	db, err := Open("/bench", &Options{FS: vfs.NewMem(), Durability: SyncNever, CacheBytes: 256 << 20})
	if err != nil {
		return nil
	}
	value := bytes.Repeat([]byte("value "), 17)
	var k []byte
	for i := range uint64(benchKeys) {
		k = benchKey(k, i)
		if db.Put(k, value) != nil {
			return nil
		}
	}
	if db.Compact(context.Background(), nil, nil) != nil {
		return nil
	}
	for range db.All().All() {
	}
	for i := range uint64(benchKeys) {
		k = benchKey(k, i)
		if ok, err := db.Has(k); !ok || err != nil {
			return nil
		}
	}
	return db
})

func loaded(tb testing.TB) *DB {
	tb.Helper()
	db := benchStore()
	if db == nil {
		tb.Fatal("no store")
	}
	return db
}

func BenchmarkGetPresent(b *testing.B) {
	db := loaded(b)
	b.ReportAllocs()
	var k, v []byte
	i := uint64(0)
	for b.Loop() {
		k = benchKey(k, i*7919%benchKeys)
		i++
		var err error
		if v, err = db.GetTo(v[:0], k); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkGetAbsent(b *testing.B) {
	db := loaded(b)
	b.ReportAllocs()
	var k, v []byte
	i := uint64(0)
	for b.Loop() {
		k = absentKey(k, i*7919%benchKeys)
		i++
		if _, err := db.GetTo(v, k); err != ErrNotFound {
			b.Fatal(err)
		}
	}
}

func benchPut(b *testing.B, fs vfs.FS, dir string, d Durability) {
	db := mustOpen(b, fs, dir, Options{Durability: d})
	value := bytes.Repeat([]byte("value "), 17)
	b.ReportAllocs()
	b.SetBytes(int64(14 + len(value)))
	var k []byte
	i := uint64(0)
	for b.Loop() {
		k = benchKey(k, i)
		i++
		if err := db.Put(k, value); err != nil {
			b.Fatal(err)
		}
	}
	must(b, db.Close())
}

func BenchmarkPut(b *testing.B)     { benchPut(b, vfs.NewMem(), "/store", SyncNever) }
func BenchmarkPutSync(b *testing.B) { benchPut(b, vfs.OS(), b.TempDir(), SyncAlways) }

func BenchmarkIterate(b *testing.B) {
	db := loaded(b)
	b.ReportAllocs()
	it := db.All()
	for b.Loop() {
		if !it.Next() && !it.First() {
			b.Fatal(it.Err())
		}
	}
	must(b, it.Close())
}

func BenchmarkScan100(b *testing.B) {
	db := loaded(b)
	b.ReportAllocs()
	var k []byte
	i := uint64(0)
	for b.Loop() {
		k = benchKey(k, i*7919%(benchKeys/2))
		i++
		n := 0
		for range db.Scan(k, nil).All() {
			if n++; n == 100 {
				break
			}
		}
	}
}

// TestAllocations holds the hot paths to what they may allocate.
func TestAllocations(t *testing.T) {
	if invariants.Enabled {
		t.Skip("the checks allocate")
	}
	o := effectOptions()
	o.CacheBytes = 32 << 20
	db := mustOpen(t, vfs.NewMem(), "/store", o)
	var k []byte
	value := bytes.Repeat([]byte{'v'}, 100)
	for i := range uint64(5000) {
		k = benchKey(k, i)
		must(t, db.Put(k, value))
	}
	for _, where := range []string{"memtable and tables", "tables"} {
		if where == "tables" {
			compactAll(t, db)
		}
		for i := range uint64(5000) { // fills the cache
			k = benchKey(k, i)
			if _, err := db.Get(k); err != nil {
				t.Fatal(err)
			}
			k = absentKey(k, i)
			if _, err := db.Get(k); err != ErrNotFound {
				t.Fatal(err)
			}
		}
		quiesce(db)()
		dst := make([]byte, 0, 200)
		var bad error
		i := uint64(0)
		count := func(name string, want float64, f func()) {
			if got := testing.AllocsPerRun(2000, f); got != want || bad != nil {
				t.Errorf("%s: %s allocates %v times, want %v (%v)", where, name, got, want, bad)
			}
		}
		count("a present GetTo", 0, func() {
			i++
			k = benchKey(k, i)
			_, bad = db.GetTo(dst, k)
		})
		count("a present Get", 1, func() { // the caller's copy
			_, bad = db.Get(k)
		})
		count("a present Has", 0, func() { _, bad = db.Has(k) })
		i = 0
		count("an absent Get", 0, func() {
			i++
			k = absentKey(k, i)
			if _, err := db.Get(k); err != ErrNotFound {
				bad = err
			}
		})
		count("an absent Has", 0, func() { _, bad = db.Has(k) })
		if where == "tables" {
			count("a scan of ten keys", 1, func() { // the iterator
				it := db.All()
				it.First()
				for range 9 {
					it.Next()
				}
				bad = it.Close()
			})
		}
	}
	if got := testing.AllocsPerRun(500, func() { must(t, db.Put(k, value)) }); got > 2 {
		t.Errorf("a put allocates %v times, want 2 at most", got)
	}
	must(t, db.Close())
}

// A lookup that has to read its block allocates nothing either.
func TestReadingABlockAllocatesNothing(t *testing.T) {
	if invariants.Enabled {
		t.Skip("the checks allocate")
	}
	const n = 20_000
	db := mustOpen(t, vfs.NewMem(), "/store", Options{Durability: SyncNever, CacheBytes: 256 << 10})
	value := bytes.Repeat([]byte{'v'}, 100)
	var k []byte
	for i := range uint64(n) {
		k = benchKey(k, i)
		must(t, db.Put(k, value))
	}
	compactAll(t, db)
	dst := make([]byte, 0, 200)
	i := uint64(0)
	get := func() {
		k = benchKey(k, i%n)
		i++
		if _, err := db.GetTo(dst, k); err != nil {
			t.Error(err)
		}
	}
	for range n { // the cache has all the slabs that it will have
		get()
	}
	quiesce(db)()
	read := func() uint64 {
		m := db.Metrics()
		return m.Total().BlocksRead
	}
	before := read()
	if got := testing.AllocsPerRun(n, get); got != 0 {
		t.Errorf("%v allocations", got)
	}
	if got := read() - before; got < n/2 {
		t.Errorf("%d of %d lookups read a block", got, n)
	}
	must(t, db.Close())
}
