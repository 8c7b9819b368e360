package sievedb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"sievedb/internal/invariants"
	"sievedb/vfs"
)

func TestDeleteRange(t *testing.T) {
	db := openMem(t, Options{})
	for _, k := range []string{"", "a", "b", "c", "d", "e"} {
		must(t, db.Put([]byte(k), []byte("v")))
	}
	for _, c := range []struct {
		lo, hi []byte
		want   string
	}{
		{[]byte("c"), []byte("c"), "[=v a=v b=v c=v d=v e=v]"},
		{[]byte("d"), []byte("b"), "[=v a=v b=v c=v d=v e=v]"},
		{[]byte("a"), []byte{}, "[=v a=v b=v c=v d=v e=v]"}, // an empty hi is a bound
		{nil, []byte{}, "[=v a=v b=v c=v d=v e=v]"},
		{[]byte("b"), []byte("d"), "[=v a=v d=v e=v]"},
		{nil, []byte("a"), "[a=v d=v e=v]"},
		{[]byte("dd"), nil, "[a=v d=v]"},
		{nil, nil, "[]"},
	} {
		must(t, db.DeleteRange(c.lo, c.hi))
		if got := fmt.Sprint(collect(t, db.All())); got != c.want {
			t.Errorf("after deleting [%q, %q): %s, want %s", c.lo, c.hi, got, c.want)
		}
	}
	must(t, db.Put([]byte("c"), []byte("new")))
	if v, err := db.Get([]byte("c")); string(v) != "new" || err != nil {
		t.Errorf("put after a range delete: %q, %v", v, err)
	}
}

func TestDeleteRangeRefusals(t *testing.T) {
	db := openMem(t, Options{})
	long := make([]byte, MaxKeyBytes+1)
	for _, bounds := range [][2][]byte{{long, nil}, {nil, long}, {long, []byte("a")}} {
		if err := db.DeleteRange(bounds[0], bounds[1]); !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("a bound too long: %v", err)
		}
		b := db.NewBatch()
		b.DeleteRange(bounds[0], bounds[1])
		if err := db.Apply(b, StoreDefault); !errors.Is(err, ErrInvalidArgument) || b.Len() != 0 {
			t.Errorf("a bound too long in a batch: %v", err)
		}
		err := db.Update(func(tx *Txn) error { _ = tx.DeleteRange(bounds[0], bounds[1]); return nil })
		if !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("a bound too long in a transaction: %v", err)
		}
	}
	if err := db.View(func(tx *Txn) error { return tx.DeleteRange(nil, nil) }); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("in View: %v", err)
	}
	var ended *Txn
	must(t, db.Update(func(tx *Txn) error { ended = tx; return nil }))
	if err := ended.DeleteRange([]byte("b"), []byte("a")); !errors.Is(err, ErrClosed) {
		t.Errorf("after the end of the transaction: %v", err)
	}
	closed := mustOpen(t, vfs.NewMem(), "/store", Options{})
	must(t, closed.Close())
	for _, hi := range []string{"a", "c"} {
		if err := closed.DeleteRange([]byte("b"), []byte(hi)); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
}

// A range delete is one record, whatever it covers, and in a batch it deletes
// what the batch put before.
func TestDeleteRangeInBatch(t *testing.T) {
	db := openMem(t, Options{})
	b := db.NewBatch()
	b.DeleteRange([]byte("c"), []byte("a")) // nothing
	b.Put([]byte("k1"), nil)
	b.DeleteRange([]byte("k"), []byte("l"))
	b.Put([]byte("k2"), []byte("v"))
	if b.Len() != 3 || b.SizeBytes() != 5+5+6 {
		t.Errorf("%d writes, %d bytes", b.Len(), b.SizeBytes())
	}
	must(t, db.Apply(b, SyncAlways))
	if got := fmt.Sprint(collect(t, db.All())); got != "[k2=v]" {
		t.Error(got)
	}
	for range 1000 {
		must(t, db.Put([]byte("m"), nil))
	}
	before := db.Metrics().WrittenBytes
	must(t, db.DeleteRange(nil, nil))
	if got := db.Metrics().WrittenBytes - before; got > 16 {
		t.Errorf("deleting everything wrote %d bytes", got)
	}
}

// eachWay checks db against want by every entry point.
func eachWay(db *DB, want model, all [][]byte) error {
	s := db.Snapshot()
	defer s.Close()
	check := func(g getter) error {
		for _, k := range all {
			i, found := want.search(k)
			has, err := g.Has(k)
			v, errGet := g.Get(k)
			to, errTo := g.GetTo([]byte("x"), k)
			if err != nil || has != found {
				return fmt.Errorf("has %q: %v, %w", k, has, err)
			}
			if !found && (errGet != ErrNotFound || errTo != ErrNotFound) ||
				found && (errGet != nil || errTo != nil || !bytes.Equal(v, want[i].value) || string(to) != "x"+string(v)) {
				return fmt.Errorf("get %q: %q, %v, %q, %v, there: %v", k, v, errGet, to, errTo, found)
			}
		}
		var forward, backward model
		for k, v := range g.All().All() {
			forward = append(forward, entry{bytes.Clone(k), bytes.Clone(v)})
		}
		for k, v := range g.All().Backward() {
			backward = append(backward, entry{bytes.Clone(k), bytes.Clone(v)})
		}
		slices.Reverse(backward)
		for _, got := range []model{forward, backward} {
			if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
				return fmt.Errorf("scan: %.500q, want %.500q", got, want)
			}
		}
		return nil
	}
	if err := check(db); err != nil {
		return err
	}
	if err := check(s); err != nil {
		return fmt.Errorf("at a snapshot: %w", err)
	}
	if err := db.View(func(tx *Txn) error { return check(tx) }); err != nil {
		return fmt.Errorf("in View: %w", err)
	}
	return db.Update(func(tx *Txn) error { return check(tx) })
}

// TestNothingIsResurrected deletes a range of keys that lie in one place or
// another, puts a few again, and sends the range tombstone on every way that
// there is. After each step every read by every entry point must agree with the
// model, and so must those of a snapshot from before (invariants 3, 4, 5, 21).
func TestNothingIsResurrected(t *testing.T) {
	ctx := context.Background()
	type life struct {
		db  *DB
		mem *vfs.Mem
		o   Options
	}
	reopen := func(t *testing.T, l *life) {
		must(t, l.db.Close())
		l.db = mustOpen(t, l.mem, "/store", l.o)
	}
	steps := map[string]func(t *testing.T, l *life){
		"nothing": func(*testing.T, *life) {},
		"flush":   func(t *testing.T, l *life) { must(t, l.db.Flush(ctx)) },
		"level 0 to the base level": func(t *testing.T, l *life) {
			for i := range 6 {
				must(t, l.db.Put(fmt.Appendf(nil, "zz%d", i), nil))
				must(t, l.db.Put(fmt.Appendf(nil, "!%d", i), nil))
				must(t, l.db.Flush(ctx))
			}
			quiesce(l.db)()
		},
		"compact":           func(t *testing.T, l *life) { must(t, l.db.Compact(ctx, nil, nil)) },
		"compact the left":  func(t *testing.T, l *life) { must(t, l.db.Compact(ctx, nil, []byte("k030"))) },
		"compact the right": func(t *testing.T, l *life) { must(t, l.db.Compact(ctx, []byte("k070"), nil)) },
		"move": func(t *testing.T, l *life) { // beside everything else, so that it moves
			must(t, l.db.Flush(ctx))
			must(t, l.db.Put([]byte("~"), nil))
			must(t, l.db.DeleteRange([]byte("~a"), []byte("~b")))
			must(t, l.db.Flush(ctx))
			quiesce(l.db)()
		},
		"reopen": reopen,
		"crash": func(t *testing.T, l *life) {
			must(t, l.db.Sync())
			left := l.mem.CrashClone(vfs.CrashLost)
			must(t, l.db.Close())
			l.mem = left
			l.db = mustOpen(t, l.mem, "/store", l.o)
		},
		"checkpoint": func(t *testing.T, l *life) {
			must(t, l.db.Checkpoint(ctx, "/copy"))
			must(t, l.db.Close())
			must(t, l.mem.MkdirAll("/old"))
			names, err := l.mem.List("/store")
			must(t, err)
			for _, name := range names {
				must(t, l.mem.Remove("/store/"+name))
			}
			l.db = mustOpen(t, l.mem, "/copy", l.o)
			t.Cleanup(func() { _ = l.db.Close() })
		},
	}
	key := func(i int) []byte { return fmt.Appendf(nil, "k%03d", i) }
	var all [][]byte
	for i := range 110 {
		all = append(all, key(i))
	}
	places := []string{"nothing", "flush", "compact"}
	ways := []string{"nothing", "flush", "level 0 to the base level", "compact", "compact the left", "compact the right", "move", "reopen", "crash"}
	for _, place := range places {
		for _, first := range ways {
			for _, second := range append(ways, "checkpoint") {
				t.Run(place+", "+first+", "+second, func(t *testing.T) {
					l := &life{mem: vfs.NewMem(), o: tiny}
					l.o.L0CompactTables, l.o.Durability = 3, SyncNever
					l.db = mustOpen(t, l.mem, "/store", l.o)
					var m model
					for i := range 100 {
						v := bytes.Repeat(key(i), 20)
						must(t, l.db.Put(key(i), v))
						m.put(key(i), v)
					}
					steps[place](t, l)
					s, old := l.db.Snapshot(), m
					must(t, l.db.DeleteRange(key(20), key(80)))
					m.deleteRange(key(20), key(80))
					for _, i := range []int{25, 50, 51, 90} {
						must(t, l.db.Put(key(i), []byte("new")))
						m.put(key(i), []byte("new"))
					}
					must(t, l.db.DeleteRange(key(51), key(52)))
					m.deleteRange(key(51), key(52))
					for i, step := range []string{first, second, "compact"} {
						db := l.db
						steps[step](t, l)
						if db == l.db && i == 0 {
							for _, e := range old {
								if v, err := s.Get(e.key); err != nil || !bytes.Equal(v, e.value) {
									t.Fatalf("%s: at the snapshot from before: %s, %v", step, show(e.key, v), err)
								}
							}
						}
						if i == 0 {
							must(t, s.Close())
						}
						seen := m
						for _, extra := range []string{"!0", "!1", "!2", "!3", "!4", "!5", "zz0", "zz1", "zz2", "zz3", "zz4", "zz5", "~"} {
							if ok, err := l.db.Has([]byte(extra)); err != nil {
								t.Fatal(err)
							} else if ok {
								seen.put([]byte(extra), nil)
							}
						}
						if err := eachWay(l.db, seen, all); err != nil {
							t.Fatalf("after %s: %v", step, err)
						}
					}
					for _, level := range l.db.Metrics().Levels {
						if level.RangeDeletes > 0 || level.Entries > level.Keys {
							t.Errorf("level %d keeps %d range tombstones and %d entries of %d keys", level.Level, level.RangeDeletes, level.Entries, level.Keys)
						}
					}
					must(t, l.db.Close())
				})
			}
		}
	}
}

// Tables that lie within a range are dropped unread, as soon as no snapshot needs
// them, and the space comes back; the range tombstone goes then, too.
func TestDropsCoveredTables(t *testing.T) {
	mem := vfs.NewMem()
	var mu sync.Mutex
	reasons := map[string]int{}
	o := tiny
	o.Durability = SyncNever
	o.Events = &EventListener{CompactionEnd: func(i CompactionInfo) {
		mu.Lock()
		defer mu.Unlock()
		if i.Reason == "dropped" && (len(i.OutputTables) > 0 || i.Err != nil || i.Dropped == 0) {
			t.Errorf("%+v", i)
		}
		reasons[i.Reason]++
	}}
	db := mustOpen(t, mem, "/store", o)
	fill(t, db, nil, 4000, 0)
	compactAll(t, db)
	full := db.Metrics()
	s := db.Snapshot()
	must(t, db.DeleteRange(nil, nil))
	flushAll(t, db)
	quiesce(db)()
	if m := db.Metrics(); m.DroppedTables != 0 || m.Disk.Tables < full.Disk.Tables {
		t.Errorf("with a snapshot from before: %d tables dropped, %d bytes of %d", m.DroppedTables, m.Disk.Tables, full.Disk.Tables)
	}
	if n, err := count1(s); n != 4000 || err != nil {
		t.Errorf("%d keys at the snapshot, %v", n, err)
	}
	before, reads := db.Metrics(), mem.Counts().Reads
	must(t, s.Close())
	quiesce(db)()
	m := db.Metrics()
	if m.Disk.Tables+m.Disk.Obsolete != 0 || m.DroppedTables == 0 {
		t.Errorf("%d bytes of tables are left, %d dropped", m.Disk.Tables+m.Disk.Obsolete, m.DroppedTables)
	}
	if got := mem.Counts().Reads - reads; got > 4 {
		t.Errorf("%d reads to drop everything", got)
	}
	if got := m.CompactedBytes - before.CompactedBytes; got > 0 {
		t.Errorf("%d bytes written to drop everything", got)
	}
	must(t, checkFiles(db))
	must(t, db.Close())
	if reasons["dropped"] == 0 {
		t.Errorf("compactions: %v", reasons)
	}
}

func count1(s *Snapshot) (n int, err error) {
	it := s.All()
	for range it.All() {
		n++
	}
	return n, it.Err()
}

// Space comes back by itself where a range covers parts of tables only.
func TestPartlyCoveredTablesShrink(t *testing.T) {
	o := tiny
	o.Durability, o.Compression = SyncNever, NoCompression
	db := openMem(t, o)
	fill(t, db, nil, 4000, 0)
	compactAll(t, db)
	full := db.Metrics().Disk.Tables
	for i := range 40 { // nine tenths, in ranges that are narrower than a table
		must(t, db.DeleteRange(fmt.Appendf(nil, "key-%05d", 100*i+10), fmt.Appendf(nil, "key-%05d", 100*i+100)))
	}
	flushAll(t, db)
	quiesce(db)()
	if got := db.Metrics().Disk.Tables; got > full/4 {
		t.Errorf("%d bytes of %d are left", got, full)
	}
}

// A scan over very many deleted keys reads a few blocks and makes a few steps,
// and a lookup under the range reads none.
func TestScanOverDeletedKeys(t *testing.T) {
	n := 1_000_000
	if invariants.Enabled {
		n = 50_000
	}
	db := openMem(t, Options{Durability: SyncNever, CacheBytes: -1, MemtableBytes: 4 << 20})
	key := func(i int) []byte { return fmt.Appendf(nil, "key-%08d", i) }
	b := db.NewBatch()
	for i := range n {
		b.Put(key(i), key(i))
		if b.Len() == 1000 {
			must(t, db.Apply(b, StoreDefault))
			b.Reset()
		}
	}
	must(t, db.Put([]byte("a"), nil))
	must(t, db.Put([]byte("z"), nil))
	flushAll(t, db)
	keep := db.Snapshot() // or the tables would be gone
	must(t, db.DeleteRange(key(0), key(n)))
	check := func(where string, blocks, steps uint64) {
		t.Helper()
		before := db.Metrics()
		forward, backward := collect(t, db.All()), 0
		for range db.All().Backward() {
			backward++
		}
		if fmt.Sprint(forward) != "[a= z=]" || backward != 2 {
			t.Errorf("%s: %d and %d keys", where, len(forward), backward)
		}
		for i := 0; i < n; i += n / 1000 {
			if ok, err := db.Has(key(i)); ok || err != nil {
				t.Fatal(ok, err)
			}
		}
		m := db.Metrics()
		read, stepped := m.ScanBlocksRead-before.ScanBlocksRead, m.ScanHidden-before.ScanHidden+m.ScanStretches-before.ScanStretches
		all, was := m.Total(), before.Total()
		t.Logf("%s: %d blocks read and %d steps for %d deleted keys in both directions", where, read, stepped, n)
		if read > blocks || stepped > steps || all.BlocksRead != was.BlocksRead {
			t.Errorf("%s: %d blocks read and %d steps, want at most %d and %d; lookups read %d", where, read, stepped, blocks, steps, all.BlocksRead-was.BlocksRead)
		}
	}
	check("in the memtable", 40, 40)
	flushAll(t, db)
	check("in level 0", 40, 40)
	compactAll(t, db)
	check("in the bottom level", 40, 40)
	must(t, keep.Close())
	quiesce(db)()
	// But for the two that hold other keys, the tables are gone, and those no
	// longer hold what was deleted.
	m := db.Metrics()
	var entries uint64
	for _, l := range m.Levels {
		entries += l.Entries
	}
	t.Logf("%d entries and %d bytes are left, %d tables dropped", entries, m.Disk.Tables, m.DroppedTables)
	if entries > uint64(n)/100+2 {
		t.Errorf("%d entries are left", entries)
	}
}

// Many overlapping ranges stay linear, in memory, in tables and in what a scan
// does.
func TestManyOverlappingRanges(t *testing.T) {
	n := 100_000
	if invariants.Enabled {
		n = 20_000
	}
	key := func(i int) []byte { return fmt.Appendf(nil, "key-%08d", i) }
	for _, shape := range []struct {
		name  string
		write func(b *Batch, i int)
	}{
		{"nested", func(b *Batch, i int) { b.DeleteRange(key(n-i), key(n+i+1)) }},
		{"shrinking", func(b *Batch, i int) { b.DeleteRange(key(i), key(2*n-i)) }},
		{"staircase", func(b *Batch, i int) { b.DeleteRange(key(i), key(i+1000)) }},
		{"without end", func(b *Batch, i int) { b.DeleteRange(key(i), nil) }},
		{"identical", func(b *Batch, i int) { b.DeleteRange(key(1), key(2*n)) }},
	} {
		t.Run(shape.name, func(t *testing.T) {
			db := openMem(t, Options{Durability: SyncNever, MemtableBytes: 256 << 20})
			must(t, db.Put(key(n), []byte("hidden")))
			must(t, db.Put([]byte("a"), nil))
			b := db.NewBatch()
			for i := range n {
				shape.write(b, i)
				if b.Len() == 1000 {
					must(t, db.Apply(b, StoreDefault))
					b.Reset()
				}
			}
			must(t, db.Apply(b, StoreDefault))
			if got := db.Metrics().Memory.Memtables; got > uint64(1000*n) {
				t.Errorf("%d bytes of memory a range", got/uint64(n))
			}
			check := func(where string) {
				t.Helper()
				before := db.Metrics()
				if got := fmt.Sprint(collect(t, db.All())); got != "[a=]" {
					t.Errorf("%s: %s", where, got)
				}
				if _, err := db.Get(key(n)); err != ErrNotFound {
					t.Errorf("%s: %v", where, err)
				}
				m := db.Metrics()
				if got := m.ScanHidden + m.ScanStretches - before.ScanHidden - before.ScanStretches; got > uint64(n)/8 {
					t.Errorf("%s: a scan took %d steps", where, got)
				}
			}
			check("in the memtable")
			// A snapshot between two keeps both; without, one a stretch is left.
			flushAll(t, db)
			check("in tables")
			for _, l := range db.Metrics().Levels {
				if l.RangeDeletes > uint64(2*n) || l.Bytes > uint64(100*n) {
					t.Errorf("level %d has %d range tombstones, %d bytes", l.Level, l.RangeDeletes, l.Bytes)
				}
			}
			compactAll(t, db)
			check("compacted")
			if m := db.Metrics(); m.Levels[6].Entries != 1 || m.Levels[6].RangeDeletes != 0 {
				t.Errorf("%+v is left", m.Levels[6])
			}
		})
	}
}

// A store that follows another sees its range deletes, in the log and in tables.
func TestFollowerSeesRangeDeletes(t *testing.T) {
	mem := vfs.NewMem()
	db := mustOpen(t, mem, "/store", tiny)
	m := fill(t, db, nil, 500, 0)
	o := tiny
	o.FS = mem
	ro, err := OpenReadOnly("/store", &o)
	must(t, err)
	if err := ro.DeleteRange(nil, nil); !errors.Is(err, ErrReadOnly) {
		t.Errorf("a range delete of a read-only store: %v", err)
	}
	for i, then := range []func(){func() {}, func() { flushAll(t, db) }, func() { compactAll(t, db) }} {
		lo, hi := fmt.Appendf(nil, "key-%05d", 100*i), fmt.Appendf(nil, "key-%05d", 100*i+90)
		must(t, db.DeleteRange(lo, hi))
		m.deleteRange(lo, hi)
		then()
		must(t, ro.Refresh())
		must(t, checkAll(ro, m))
	}
	must(t, ro.Close())
	must(t, db.Verify(context.Background()))
	must(t, db.Close())
}

// BenchmarkDeleteRange is one range delete, without a sync.
func BenchmarkDeleteRange(b *testing.B) {
	db := openMem(b, Options{Durability: SyncNever})
	rng := newRand(1)
	b.ReportAllocs()
	for b.Loop() {
		lo := rng.Uint32N(1 << 20)
		must(b, db.DeleteRange(fmt.Appendf(nil, "key-%08d", lo), fmt.Appendf(nil, "key-%08d", lo+100)))
	}
}
