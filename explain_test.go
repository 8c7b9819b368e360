package sievedb

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"sievedb/compaction"
	"sievedb/explain"
	"sievedb/filter"
	"sievedb/internal/counters"
	"sievedb/internal/keys"
	"sievedb/internal/manifest"
	"sievedb/internal/tree"
	"sievedb/memtable"
	"sievedb/vfs"
)

// reading is a way to look into a store: a sequence number, newest for the
// present, and a state, nil for the present one.
type reading struct {
	name     string
	snapshot keys.SeqNum
	state    *tree.State
}

// explainedStore makes a store that has its keys everywhere: in several deep
// levels, a long level 0 and a memtable, overwritten, deleted and range-deleted,
// before and after two snapshots; and readings of it, one of them through
// immutable memtables.
func explainedStore(t *testing.T, rng *rand.Rand, o Options) (db *DB, pool [][]byte, readings []reading) {
	t.Helper()
	o.Durability, o.Compression = SyncNever, NoCompression
	o.MemtableBytes, o.TableBytes, o.BlockBytes, o.L0CompactTables = 16<<10, 8<<10, 512, 2
	o.FilterBitsPerKey = 6
	mem := vfs.NewMem()
	db = mustOpen(t, mem, "/store", o)
	pool = keyPool(rng, 4000)
	write := func(n int) {
		for range n {
			k := pool[rng.IntN(len(pool)*3/4)] // and the rest is absent
			switch rng.IntN(20) {
			case 0, 1, 2, 3:
				must(t, db.Delete(k))
			case 4:
				lo, hi := model{}.few(rng, pool)
				if hi != nil && bytes.Compare(lo, hi) < 0 && len(lo) > 4 {
					must(t, db.DeleteRange(lo, append(bytes.Clone(lo), 0xff)))
				}
			default:
				must(t, db.Put(k, bytes.Repeat([]byte("value"), rng.IntN(150))))
			}
		}
	}
	write(4500)
	compactAll(t, db)
	for n := 4000; ; n = 100 {
		write(n)
		quiesce(db)()
		if s := db.state.Load(); len(s.Runs) > 1 && s.Runs[0].Tables[0].Meta.Entries > 20 {
			break
		}
	}
	must(t, db.Close())
	o.L0CompactTables, o.L0SlowTables, o.L0StopTables = 100, 200, 300
	db = mustOpen(t, mem, "/store", o)
	release := quiesce(db) // and no compaction from now on: one would take counters away
	db.running = append(db.running, compaction.Reservation{OutputLevel: manifest.NumLevels - 1, Keys: keys.AllKeys()})
	release()
	write(160)
	flushAll(t, db)
	a := db.Snapshot()
	write(160)
	flushAll(t, db)
	b := db.Snapshot()
	for range 3 {
		write(60)
		flushAll(t, db)
	}
	must(t, db.DeleteRange([]byte("user:00001"), []byte("user:00002")))
	flushAll(t, db)
	must(t, db.DeleteRange([]byte("user:00003"), []byte("user:000031")))
	write(12) // too little to be flushed

	own := memtable.New(memtable.Options{})
	seq := db.visible()
	for range 150 {
		k := pool[rng.IntN(len(pool))]
		kind := []keys.Kind{keys.KindPut, keys.KindDelete}[rng.IntN(2)]
		seq++
		must(t, own.Add(k, filter.Hash(k), keys.MakeTrailer(seq, kind), nil))
	}
	now := db.state.Load()
	three := now.WithMemtables(memtable.New(memtable.Options{}), []*memtable.Table{own, now.Mutable})
	t.Cleanup(func() {
		must(t, errors.Join(three.Release(), a.Close(), b.Close(), db.Close()))
	})
	return db, pool, []reading{
		{"now", newest, nil}, {"snapshot", a.seq, nil}, {"newer snapshot", b.seq, nil},
		{"immutable memtables", seq, three}, {"the oldest", 1, nil},
	}
}

func counted(s *tree.State) (n counters.Counts) {
	for t := range s.All() {
		n.Add(t.Counters.Load())
	}
	return n
}

// since returns what was counted in between.
func since(before, after counters.Counts) counters.Counts {
	return counters.Counts{
		Negatives: after.Negatives - before.Negatives, TruePositives: after.TruePositives - before.TruePositives,
		FalsePositives: after.FalsePositives - before.FalsePositives, Unfiltered: after.Unfiltered - before.Unfiltered,
		BlocksCached: after.BlocksCached - before.BlocksCached, BlocksRead: after.BlocksRead - before.BlocksRead,
	}
}

func countsOfTrace(trace *explain.Trace) counters.Counts {
	n := trace.Totals()
	return counters.Counts{
		Negatives: uint64(n.Negatives), TruePositives: uint64(n.TruePositives), FalsePositives: uint64(n.FalsePositives),
		Unfiltered: uint64(n.Unfiltered), BlocksCached: uint64(n.BlocksCached), BlocksRead: uint64(n.BlocksRead),
	}
}

// checkExplain compares one lookup with its explanation: the same answer, the
// same blocks, and a step for each part of the store.
func checkExplain(db *DB, r reading, key []byte) (*explain.Trace, error) {
	s := r.state
	if s == nil {
		s = db.state.Load()
	}
	start := counted(s)
	value, getErr := db.getTo(nil, key, r.snapshot, r.state)
	middle, files := counted(s), db.fs.(*vfs.Mem).Counts().Reads
	trace, err := db.explain(key, r.snapshot, r.state)
	got := since(middle, counted(s))
	if err != nil {
		return nil, err
	}
	if (trace.Result == explain.Found) != (getErr == nil) || trace.ValueBytes != len(value) || getErr != nil && getErr != ErrNotFound {
		return trace, fmt.Errorf("Get: %d bytes, %w", len(value), getErr)
	}
	if want := since(start, middle); got != want {
		return trace, fmt.Errorf("Explain counted %+v, Get %+v", got, want)
	}
	if n := db.fs.(*vfs.Mem).Counts().Reads - files; uint64(n) != got.BlocksRead { // Get has loaded the filters
		return trace, fmt.Errorf("%d reads of files for %d blocks", n, got.BlocksRead)
	}
	if got != countsOfTrace(trace) {
		return trace, fmt.Errorf("the trace says %+v, the counters %+v", countsOfTrace(trace), got)
	}
	if want := 1 + len(s.Immutables) + len(s.L0) + len(s.Runs); len(trace.Steps) != want {
		return trace, fmt.Errorf("%d steps for %d parts", len(trace.Steps), want)
	}
	if n := trace.Totals(); n.Tables != s.Version.Tables() {
		return trace, fmt.Errorf("%d tables of %d", n.Tables, s.Version.Tables())
	}
	return trace, nil
}

// TestExplainIsGet looks up many keys with Get and with Explain: both count the
// same and find the same. With -sievedb.ops above its default it looks up that
// many.
func TestExplainIsGet(t *testing.T) {
	seed := newSeed(t)
	lookups := 20_000
	if *modelOps > 50_000 {
		lookups = *modelOps
	}
	for _, c := range []struct {
		name                 string
		o                    Options // without a cache, each block is read again
		filtered, unfiltered bool
	}{
		{"filters", Options{CacheBytes: -1}, true, false},
		{"no filters", Options{CacheBytes: -1, DisableFilters: true}, false, true},
		{"none at the bottom", Options{CacheBytes: -1, Filters: filter.Policy{SkipBottom: true}}, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			rng := newRand(seed)
			db, pool, readings := explainedStore(t, rng, c.o)
			outcomes := map[explain.Outcome]int{}
			answers := map[string]int{}
			start := counted(readings[3].state)
			for range lookups / 3 {
				r, key := readings[rng.IntN(len(readings))], pool[rng.IntN(len(pool))]
				trace, err := checkExplain(db, r, key)
				if err != nil {
					t.Fatalf("%s, %.40q: %v\n%v", r.name, key, err, trace)
				}
				for i := range trace.Steps {
					s := &trace.Steps[i]
					outcomes[s.Outcome]++
					if s.Outcome == explain.Put {
						answers[fmt.Sprint(s.Part, s.Level)]++
					}
				}
			}
			for _, o := range []explain.Outcome{explain.NotReached, explain.OutOfRange, explain.Put, explain.Tombstone,
				explain.RangeTombstone, explain.Missing, explain.Newer} {
				if outcomes[o] == 0 {
					t.Errorf("the outcome %s did not come up: %v", o, outcomes)
				}
			}
			if len(answers) < 4 { // two kinds of memtables, level 0, a deeper one at least
				t.Errorf("answers came from %v", answers)
			}
			got := since(start, counted(readings[3].state))
			if (got.Negatives > 0) != c.filtered || (got.TruePositives > 0) != c.filtered || (got.FalsePositives > 0) != c.filtered ||
				(got.Unfiltered > 0) != c.unfiltered || got.BlocksRead == 0 || got.BlocksCached != 0 {
				t.Errorf("%+v", got)
			}
			t.Logf("%v, answers from %v, %+v", outcomes, answers, got)
		})
	}
}

// explained is the text of an explanation with all times zero.
func explained(t *testing.T, trace *explain.Trace, err error) string {
	t.Helper()
	must(t, err)
	trace.Duration = 0
	for i := range trace.Steps {
		trace.Steps[i].Duration = 0
	}
	return trace.String()
}

// explainable makes a small store that is the same each time: a bottom level,
// two tables in level 0 and a memtable.
func explainable(t testing.TB, fs vfs.FS, o Options) *DB {
	t.Helper()
	o.Durability, o.Compression, o.BlockBytes, o.FilterBitsPerKey = SyncNever, NoCompression, 256, 6
	db := mustOpen(t, fs, "/store", o)
	put := func(from, to, step int, value string) {
		for i := from; i < to; i += step {
			must(t, db.Put(fmt.Appendf(nil, "user:%03d", i), []byte(value)))
		}
	}
	put(0, 200, 1, "first")
	compactAll(t, db)
	put(0, 200, 10, "second")
	must(t, db.Delete([]byte("user:021")))
	flushAll(t, db)
	must(t, db.DeleteRange([]byte("user:050"), []byte("user:060")))
	put(100, 150, 5, "third")
	flushAll(t, db)
	put(100, 101, 1, "fourth")
	return db
}

// TestExplainGolden shows one lookup of each kind.
func TestExplainGolden(t *testing.T) {
	db := explainable(t, vfs.NewMem(), Options{})
	before := db.Snapshot()
	must(t, db.Put([]byte("user:300"), nil))
	var got strings.Builder
	for _, key := range []string{"user:100", "user:110", "user:021", "user:055", "user:065x", "zebra"} {
		trace, err := db.Explain([]byte(key))
		fmt.Fprintln(&got, explained(t, trace, err))
	}
	trace, err := before.Explain([]byte("user:300"))
	fmt.Fprintln(&got, explained(t, trace, err))
	if got.String() != explainGolden {
		t.Errorf("got:\n%s", &got)
	}
	must(t, errors.Join(before.Close(), db.Close()))
}

const explainGolden = `Executing single-key query on "user:100", as of sequence number 234
0 ns  memtable       Merging memtable contents (2 keys): found, put #233
      L0 000008.sst  not reached: what is newer has decided
      L0 000006.sst  not reached: what is newer has decided
      L6 000004.sst  not reached: what is newer has decided
Found: put #233, a value of 6 bytes, in 0 ns.
3 sstables: 0 ruled out by key range, 0 by filter, 0 read, 3 not reached.
Blocks: 0 from disk (0 B), 0 from cache.

Executing single-key query on "user:110", as of sequence number 234
0 ns  memtable       Merging memtable contents (2 keys): not there
0 ns  L0 000008.sst  Merging data from sstable 8: Bloom filter says maybe (filter read from disk, 88 B), block 0 from disk (159 B), found, put #225
      L0 000006.sst  not reached: what is newer has decided
      L6 000004.sst  not reached: what is newer has decided
Found: put #225, a value of 5 bytes, in 0 ns.
3 sstables: 0 ruled out by key range, 0 by filter, 1 read, 2 not reached.
Blocks: 1 from disk (159 B), 0 from cache.

Executing single-key query on "user:021", as of sequence number 234
0 ns  memtable       Merging memtable contents (2 keys): not there
0 ns  L0 000008.sst  Check against min and max keys allows skipping sstable 8 ["user:050", "user:145"]
0 ns  L0 000006.sst  Merging data from sstable 6: Bloom filter says maybe (filter read from disk, 88 B), block 0 from disk (268 B), found, tombstone #221
      L6 000004.sst  not reached: what is newer has decided
Not found: deleted by tombstone #221, in 0 ns.
3 sstables: 1 ruled out by key range, 0 by filter, 1 read, 1 not reached.
Blocks: 1 from disk (268 B), 0 from cache.

Executing single-key query on "user:055", as of sequence number 234
0 ns  memtable       Merging memtable contents (2 keys): not there
0 ns  L0 000008.sst  Bloom filter allows skipping sstable 8; range tombstone #222 hides all that is older
      L0 000006.sst  not reached: what is newer has decided
      L6 000004.sst  not reached: what is newer has decided
Not found: deleted by range tombstone #222, in 0 ns.
3 sstables: 0 ruled out by key range, 1 by filter, 0 read, 2 not reached.
Blocks: 0 from disk (0 B), 0 from cache. False positives: 0, under 0.001 expected.

Executing single-key query on "user:065x", as of sequence number 234
0 ns  memtable       Merging memtable contents (2 keys): not there
0 ns  L0 000008.sst  Bloom filter allows skipping sstable 8
0 ns  L0 000006.sst  Bloom filter allows skipping sstable 6
0 ns  L6 000004.sst  Index lookup complete (Bloom filter false positive) for sstable 4 (filter read from disk, 216 B): block 3 from disk (268 B), not there
Not found, in 0 ns.
3 sstables: 0 ruled out by key range, 2 by filter, 1 read, 0 not reached.
Blocks: 1 from disk (268 B), 0 from cache. False positives: 1, 0.029 expected.

Executing single-key query on "zebra", as of sequence number 234
0 ns  memtable       Merging memtable contents (2 keys): not there
0 ns  L0 000008.sst  Check against min and max keys allows skipping sstable 8 ["user:050", "user:145"]
0 ns  L0 000006.sst  Check against min and max keys allows skipping sstable 6 ["user:000", "user:190"]
0 ns  L6             Check against min and max keys allows skipping 1 sstable
Not found, in 0 ns.
3 sstables: 3 ruled out by key range, 0 by filter, 0 read, 0 not reached.
Blocks: 0 from disk (0 B), 0 from cache.

Executing single-key query on "user:300", as of sequence number 233
0 ns  memtable       Merging memtable contents (2 keys): only newer versions than this lookup may see
0 ns  L0 000008.sst  Check against min and max keys allows skipping sstable 8 ["user:050", "user:145"]
0 ns  L0 000006.sst  Check against min and max keys allows skipping sstable 6 ["user:000", "user:190"]
0 ns  L6             Check against min and max keys allows skipping 1 sstable
Not found, in 0 ns.
3 sstables: 3 ruled out by key range, 0 by filter, 0 read, 0 not reached.
Blocks: 0 from disk (0 B), 0 from cache.

`

// TestExplainWithoutFilters looks up a key that all filters deny through other
// stores over the same files: with filters off, with one damaged, and with a
// damaged block behind that.
func TestExplainWithoutFilters(t *testing.T) {
	mem := vfs.NewMem()
	db := explainable(t, mem, Options{})
	bottom := db.state.Load().Runs[0].Tables[0]
	dataBytes := bottom.Opened().Properties().DataBytes
	must(t, db.Close())
	key := []byte("user:120x")
	look := func(fs vfs.FS, o Options) (trace *explain.Trace, filters []explain.Filter, err error) {
		t.Helper()
		o.FS, o.CacheBytes = fs, -1
		ro, err := OpenReadOnly("/store", &o)
		must(t, err)
		for range 2 { // what is loaded is loaded the first time
			trace, err = ro.Explain(key)
		}
		for _, s := range trace.Steps {
			if s.Filter != "" {
				filters = append(filters, s.Filter)
			}
		}
		if n := trace.Totals(); n.BlocksCached != 0 || n.FilterBytesRead != 0 {
			t.Errorf("%+v", n)
		}
		must(t, ro.Close())
		return trace, filters, err
	}
	expect := func(name string, fs vfs.FS, o Options, blocks int, want ...explain.Filter) {
		t.Helper()
		trace, filters, err := look(fs, o)
		if err != nil || trace.Result != explain.Absent || trace.Totals().BlocksRead != blocks || !slices.Equal(filters, want) {
			t.Errorf("%s: %v, filters said %v\n%s", name, err, filters, trace)
		}
	}
	expect("whole", mem, Options{}, 0, explain.No, explain.No, explain.No)
	expect("off", mem, Options{DisableFilters: true}, 3, explain.Off, explain.Off, explain.Off)
	damaged := mem.CrashClone(vfs.CrashKept)
	name := "/store/" + tableName(bottom.Meta.FileNum)
	must(t, flip(damaged, name, int64(dataBytes)+10))
	expect("damaged filter", damaged, Options{}, 1, explain.No, explain.No, explain.Damaged)

	block := bottom.Opened().ApproximateOffset(key)
	must(t, flip(damaged, name, int64(block)+20))
	trace, _, err := look(damaged, Options{})
	if last := trace.Steps[len(trace.Steps)-1]; !errors.Is(err, ErrCorrupt) || trace.Result != explain.Failed || trace.Error != err.Error() ||
		last.Outcome != explain.Error || len(last.Blocks) != 0 {
		t.Errorf("a damaged block: %v\n%s", err, trace)
	}
}

// TestExplainRefuses holds Explain to what other reads do of what is closed, and
// of keys that cannot be there.
func TestExplainRefuses(t *testing.T) {
	db := explainable(t, vfs.NewMem(), Options{})
	trace, err := db.Explain(make([]byte, MaxKeyBytes+1))
	if err != nil || trace.Result != explain.Absent || len(trace.Steps) != 0 {
		t.Errorf("a key that is too long: %v, %v", err, trace)
	}
	closed, open := db.Snapshot(), db.Snapshot()
	must(t, closed.Close())
	if trace, err := closed.Explain(nil); trace != nil || err != ErrClosed {
		t.Errorf("on a closed snapshot: %v, %v", trace, err)
	}
	must(t, db.Close())
	if trace, err := open.Explain(nil); trace != nil || err != ErrClosed {
		t.Errorf("on a snapshot of a closed store: %v, %v", trace, err)
	}
	if trace, err := db.Explain(nil); trace != nil || err != ErrClosed {
		t.Errorf("on a closed store: %v, %v", trace, err)
	}
	must(t, open.Close())
}
