package sievedb

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"sievedb/vfs"
)

// TestReadsAmidCompaction overwrites some keys for ever, while flushes and
// compactions drop the old versions and few files may be open: no reader may
// miss a key, nor see a value older than one that was there when it began
// (invariants 1, 2, 3, 8).
func TestReadsAmidCompaction(t *testing.T) {
	o := tiny
	o.Durability, o.MaxOpenFiles, o.L0CompactTables = SyncNever, 16, 2
	o.TableBytes = 4 << 10
	db := mustOpen(t, vfs.NewMem(), "/store", o)
	const n = 64
	key := func(i int) []byte { return fmt.Appendf(nil, "key-%03d", i) }
	value := func(gen uint64) []byte {
		return binary.BigEndian.AppendUint64(bytes.Repeat([]byte{byte(gen)}, 300), gen)
	}
	generation := func(v []byte) uint64 { return binary.BigEndian.Uint64(v[len(v)-8:]) }
	var written [n]atomic.Uint64 // the generation that is there for sure
	for i := range n {
		must(t, db.Put(key(i), value(0)))
	}
	var stop atomic.Bool
	var wg sync.WaitGroup
	reader := func(check func(i int) error) {
		wg.Go(func() {
			for i := 0; !stop.Load(); i = (i + 1) % n {
				if err := check(i); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	get := func(g getter, i int) error {
		least := written[i].Load()
		if s, ok := g.(*Snapshot); ok {
			least = 0
			defer s.Close()
		}
		v, err := g.Get(key(i))
		if err != nil {
			return fmt.Errorf("get %s: %w", key(i), err)
		}
		if got := generation(v); got < least {
			return fmt.Errorf("%s is of generation %d, %d was there before", key(i), got, least)
		}
		return nil
	}
	reader(func(i int) error { return get(db, i) })
	reader(func(i int) error { return get(db, n-1-i) })
	reader(func(i int) error { return get(db.Snapshot(), i) })
	reader(func(i int) error {
		var least [n]uint64
		for j := range least {
			least[j] = written[j].Load()
		}
		it, j := db.All(), 0
		for k, v := range it.All() {
			if j == n || !bytes.Equal(k, key(j)) || generation(v) < least[j] {
				return fmt.Errorf("scan: entry %d is %q", j, k)
			}
			j++
		}
		if j != n {
			return fmt.Errorf("scan: %d keys: %w", j, it.Err())
		}
		return it.Err()
	})
	rounds := uint64(60)
	for gen := uint64(1); gen <= rounds; gen++ {
		for i := range n {
			must(t, db.Put(key(i), value(gen)))
			written[i].Store(gen)
		}
		if gen%8 == 0 {
			must(t, db.Compact(context.Background(), nil, nil))
		}
	}
	stop.Store(true)
	wg.Wait()
	if m := db.Metrics(); m.Compactions < 8 || m.Flushes < 8 {
		t.Errorf("too quiet: %d compactions, %d flushes", m.Compactions, m.Flushes)
	}
	must(t, checkFiles(db))
	must(t, db.Close())
}

// TestManyFiles reads more tables than may be open, by lookups and scans side by
// side.
func TestManyFiles(t *testing.T) {
	o := tiny
	o.Durability, o.MaxOpenFiles, o.TableBytes, o.CacheBytes = SyncNever, 16, 4<<10, -1
	o.Compression = NoCompression
	db := mustOpen(t, vfs.NewMem(), "/store", o)
	want := fill(t, db, nil, 1500, 0)
	compactAll(t, db)
	if n := db.Metrics().Levels[6].Tables; n < 17 {
		t.Fatalf("only %d tables", n)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := checkAll(db, want); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := db.Metrics().OpenTableFiles; n > 16 {
		t.Errorf("%d files are open", n)
	}
	must(t, db.Close())
}

// TestStoresSideBySide opens stores that share a cache, in which the same file
// numbers occur (invariant 16).
func TestStoresSideBySide(t *testing.T) {
	mem := vfs.NewMem()
	o := tiny
	o.Cache = NewCache(1 << 20)
	var stores [3]*DB
	var wants [3]model
	for i := range stores {
		stores[i] = mustOpen(t, mem, fmt.Sprintf("/store-%d", i), o)
		wants[i] = fill(t, stores[i], nil, 300, i)
		compactAll(t, stores[i])
	}
	for range 2 { // the second time from the cache
		for i, db := range stores {
			must(t, checkAll(db, wants[i]))
		}
	}
	for _, db := range stores {
		must(t, db.Close())
	}
}
