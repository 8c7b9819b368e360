package sievedb

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"sievedb/internal/offheap"
	"sievedb/vfs"
)

// reclaim collects until nothing is left outside the heap.
func reclaim(t *testing.T) {
	t.Helper()
	for range 1000 {
		if offheap.Metrics().Granted == 0 {
			if m := offheap.Metrics(); m.Warm != 0 || m.Retired != 0 {
				t.Errorf("no store is open: %+v", m)
			}
			return
		}
		runtime.GC()
	}
	t.Fatalf("%+v that nobody can reach", offheap.Metrics())
}

// Flushed memtables do not pile up for want of a collection: where the heap's own
// growth never has the collector run, the store does.
func TestMemtablesDoNotPileUp(t *testing.T) {
	reclaim(t)
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	const memtable, total = 4 << 20, 96 << 20
	o := Options{MemtableBytes: memtable, CacheBytes: 1 << 20, Durability: SyncNever, Compression: NoCompression}
	db := mustOpen(t, vfs.OS(), filepath.Join(t.TempDir(), "store"), o)
	key, value := make([]byte, 8), make([]byte, 2<<10)
	for i := range uint64(total / len(value)) {
		binary.BigEndian.PutUint64(key, i)
		must(t, db.Put(key, value))
	}
	compactAll(t, db)
	// The last collection may be under way still.
	giveUp := time.Now().Add(time.Minute)
	for offheap.Metrics().Granted > total/2 && time.Now().Before(giveUp) {
		runtime.Gosched()
	}
	if m := offheap.Metrics(); m.Granted > total/2 {
		t.Errorf("%+v after %d bytes written through memtables of %d", m, total, memtable)
	}
	must(t, db.Close())
	db = nil
	reclaim(t)
}

// Nor do those of stores that are opened and closed again, be it only to be read.
func TestMemtablesOfClosedStoresDoNotPileUp(t *testing.T) {
	reclaim(t)
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	const rounds, entries, bound = 20, 128, 256 << 20
	value := make([]byte, 120<<10)
	disk := vfs.NewMem()
	o := Options{FS: disk, Durability: SyncNever}
	writer := mustOpen(t, disk, "/store", o)
	for i := range entries {
		must(t, writer.Put([]byte{byte(i)}, value))
	}
	must(t, writer.Sync())
	for range rounds {
		db, err := OpenReadOnly("/store", &o)
		must(t, err)
		must(t, db.Close())
		if n := offheap.Metrics().Granted; n > bound {
			t.Fatalf("%d bytes outside the heap for %d of one store", n, entries*len(value))
		}
	}
	must(t, writer.Close())
	writer = nil
	reclaim(t)
}

// Lookups and scans, which take no reference to a memtable, see its entries as
// they are while memtables are flushed, freed, and their memory is used again
// (invariant 26).
func TestReadersBesideFreedMemtables(t *testing.T) {
	o := Options{MemtableBytes: 1 << 20, CacheBytes: 1 << 20, Durability: SyncNever}
	db := mustOpen(t, vfs.OS(), filepath.Join(t.TempDir(), "store"), o)
	const keys, rounds = 4096, 6
	key := func(dst []byte, i uint64) []byte { return fmt.Appendf(dst[:0], "key %08d", i) }
	value := func(dst []byte, i uint64) []byte { // 1 KiB that says whose it is
		dst = dst[:0]
		for len(dst) < 1<<10 {
			dst = binary.LittleEndian.AppendUint64(dst, i*0x9e3779b97f4a7c15)
		}
		return dst
	}
	var done atomic.Bool
	var wg sync.WaitGroup
	stop := func() {
		done.Store(true)
		wg.Wait()
	}
	defer stop()
	seed := newSeed(t)
	for r := range uint64(2) {
		wg.Go(func() {
			rng := newRand(seed + r)
			var k, want, got []byte
			for !done.Load() {
				i := rng.Uint64N(keys)
				k, want = key(k, i), value(want, i)
				var err error
				if got, err = db.GetTo(got[:0], k); err == nil && !bytes.Equal(got, want) {
					t.Errorf("%s is %.32q", k, got)
					return
				}
			}
		})
	}
	wg.Go(func() {
		for !done.Load() {
			runtime.GC()
		}
	})
	// Iterators come to the end of what they see two memtables later.
	type scan struct {
		*Iterator
		keys uint64
	}
	var scans []scan
	var k, v []byte
	for n := range uint64(keys * (1 + rounds)) {
		i := n % keys
		if i%512 == 0 {
			scans = append(scans, scan{db.All(), min(n, keys)})
			if len(scans) > 4 {
				at := uint64(0)
				for ok := scans[0].First(); ok; ok = scans[0].Next() {
					if k, v = key(k, at), value(v, at); !bytes.Equal(scans[0].Key(), k) || !bytes.Equal(scans[0].Value(), v) {
						t.Fatalf("after %d writes: %q is %.32q, want %q", n, scans[0].Key(), scans[0].Value(), k)
					}
					at++
				}
				if must(t, scans[0].Close()); at != scans[0].keys {
					t.Fatalf("after %d writes: a scan found %d keys, want %d", n, at, scans[0].keys)
				}
				scans = scans[1:]
			}
		}
		k, v = key(k, i), value(v, i)
		must(t, db.Put(k, v))
	}
	stop()
	for _, s := range scans {
		must(t, s.Close())
	}
	must(t, db.Close())
}

// Metrics says what is outside the heap: what memtables and caches have, the part of it
// that awaits the collector, and what it left for the next memtable.
func TestOffHeapMetrics(t *testing.T) {
	reclaim(t)
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	o := Options{MemtableBytes: 8 << 20, CacheBytes: 4 << 20, Durability: SyncNever}
	db := mustOpen(t, vfs.NewMem(), "/store", o)
	if m := db.Metrics().Memory; m.OffHeap != 0 || m.OffHeapRetired != 0 || m.OffHeapWarm != 0 {
		t.Errorf("outside the heap %d, %d retired, %d warm, and all is empty", m.OffHeap, m.OffHeapRetired, m.OffHeapWarm)
	}
	key, value := make([]byte, 8), make([]byte, 16<<10)
	for i := range uint64(256) { // half a memtable, less than what is worth a collection
		binary.BigEndian.PutUint64(key, i)
		must(t, db.Put(key, value))
	}
	full := db.Metrics().Memory
	if full.OffHeap == 0 {
		must(t, db.Close())
		t.Skip("all memory is the heap's")
	}
	if full.OffHeap > full.Memtables || full.OffHeap < full.Memtables/2 || full.OffHeapRetired != 0 || full.OffHeapWarm != 0 {
		t.Errorf("%+v before the flush", full)
	}
	it := db.All() // reads the memtable, and later on nothing else
	it.First()
	flushAll(t, db)
	must(t, db.await(context.Background(), func() (bool, error) { return db.trash.empty(), nil }))
	retired := db.Metrics().Memory
	if retired.OffHeap != full.OffHeap || retired.OffHeapRetired != full.OffHeap || retired.OffHeapWarm != 0 {
		t.Errorf("%+v after the flush, %d bytes outside before", retired, full.OffHeap)
	}
	text := fmt.Sprintf("outside the heap, of the process: %s, of which %s wait to be freed  kept for the next memtables 0 B\n", size(full.OffHeap), size(full.OffHeap))
	if s := db.Metrics().String(); !strings.Contains(s, text) {
		t.Errorf("%q is not in\n%s", text, s)
	}
	runtime.KeepAlive(it)
	must(t, it.Close())
	it = nil
	for n := 0; db.Metrics().Memory.OffHeap > 0; n++ {
		if n == 1000 {
			t.Fatalf("%+v, and nobody reads the memtable", db.Metrics().Memory)
		}
		runtime.GC()
	}
	if m := db.Metrics().Memory; m.OffHeapRetired != 0 || m.OffHeapWarm != full.OffHeap || m.Total != retired.Total {
		t.Errorf("%+v after it was freed, %d bytes outside before", m, full.OffHeap)
	}
	must(t, db.Close())
}

// A trace is the caller's to keep, and not the memtables of the lookup with it.
func TestTraceKeepsNoMemtable(t *testing.T) {
	db := mustOpen(t, vfs.NewMem(), "/store", Options{})
	fill(t, db, nil, 100, 0)
	trace, err := db.Explain([]byte("absent"))
	must(t, err)
	state := weak.Make(db.state.Load())
	flushAll(t, db)
	for n := 0; state.Value() != nil; n++ {
		if n == 1000 {
			t.Fatal("the state of the lookup is still there")
		}
		runtime.GC()
	}
	runtime.KeepAlive(trace)
	must(t, db.Close())
}

// What an iterator showed may be read after everything is closed and freed: it is
// other bytes then, and no fault.
func TestStaleSlicesDoNotFault(t *testing.T) {
	o := Options{MemtableBytes: 4 << 20, CacheBytes: 4 << 20}
	db := mustOpen(t, vfs.NewMem(), "/store", o)
	fill(t, db, nil, 2000, 0)
	flushAll(t, db)
	fill(t, db, nil, 2000, 1)
	var stale [][]byte
	for _, leak := range []bool{false, true} {
		it := db.All()
		for ok := it.First(); ok; ok = it.Next() {
			stale = append(stale, it.Key(), it.Value())
		}
		if !leak {
			must(t, it.Close())
		}
	}
	_ = db.Close() // which may complain of the iterator
	db = nil
	reclaim(t)
	sum := 0
	for _, s := range stale {
		for _, b := range s {
			sum += int(b)
		}
	}
	t.Logf("%d slices that add up to %d", len(stale), sum)
}
