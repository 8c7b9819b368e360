package sievedb

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"sievedb/filter"
	"sievedb/internal/keys"
	"sievedb/vfs"
)

// modelOps is the number of operations of the model test, over all option
// sets together.
var modelOps = flag.Int("sievedb.ops", 50_000, "operations of the model test")

// newSeed returns the seed of a randomised test: SIEVEDB_SEED, or a fresh one.
// It is part of the test's output, so that a failure can be repeated.
func newSeed(t testing.TB) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("SIEVEDB_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("SIEVEDB_SEED=%d", seed)
	return seed
}

// chooser makes the choices of a random test.
type chooser interface{ IntN(n int) int }

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0x51e7e)) }

// optionSet is a setting of everything that must not change an answer.
type optionSet struct {
	name string
	o    Options
	// keys is how many keys of its pool a run puts before it begins: enough of
	// them and the tree has several levels below level 0.
	keys int
}

// optionSets are extreme in one way each. Memtables are tiny in most, so that
// flushes and compactions run all the time.
func optionSets() []optionSet {
	small := Options{Durability: SyncNever, MemtableBytes: 64 << 10, TableBytes: 16 << 10, BlockBytes: 512, CacheBytes: 64 << 10}
	with := func(name string, change func(o *Options)) optionSet {
		o := small
		change(&o)
		return optionSet{name: name, o: o}
	}
	return []optionSet{
		with("small", func(o *Options) {}),
		{name: "defaults", o: Options{Durability: SyncNever}},
		with("tiny memtable", func(o *Options) { o.MemtableBytes = 16 << 10 }),
		with("tiny blocks", func(o *Options) { o.BlockBytes = 64 }),
		with("large blocks", func(o *Options) { o.BlockBytes = 32 << 10 }),
		with("one bit per key", func(o *Options) { o.FilterBitsPerKey = 1 }),
		with("twenty bits per key", func(o *Options) { o.FilterBitsPerKey = 20 }),
		with("no filters", func(o *Options) { o.DisableFilters = true }),
		with("no filters at the bottom", func(o *Options) { o.Filters.SkipBottom = true }),
		with("few bytes for filters", func(o *Options) { o.Filters.BudgetBytes = 2000 }),
		with("standard filters", func(o *Options) { o.Filters.Kind = filter.KindStandard }),
		with("fuse filters", func(o *Options) { o.Filters.BottomKind = filter.KindFuse }),
		with("no compression", func(o *Options) { o.Compression = NoCompression }),
		with("no cache", func(o *Options) { o.CacheBytes = -1 }),
		with("tiny cache", func(o *Options) { o.CacheBytes = 4 << 10 }),
		with("tiny tables", func(o *Options) { o.TableBytes = 4 << 10 }),
		with("level 0 of one table", func(o *Options) {
			o.L0CompactTables, o.L0SlowTables, o.L0StopTables, o.Workers = 1, 1, 1, 1
		}),
		with("long level 0", func(o *Options) { o.L0CompactTables, o.L0SlowTables, o.L0StopTables = 30, 100, 200 }),
		deep(small),
		with("synced", func(o *Options) { o.Durability = SyncAlways }),
		with("few files, many workers", func(o *Options) { o.MaxOpenFiles, o.Workers = 16, 8 }),
	}
}

// deep makes a tree of several levels below level 0.
func deep(o Options) optionSet {
	o.MemtableBytes, o.TableBytes, o.L0CompactTables = 16<<10, 8<<10, 2
	o.Compression = NoCompression
	return optionSet{name: "several levels", o: o, keys: 3000}
}

// entry is a key and its value in a model.
type entry struct{ key, value []byte }

// model is what a store should hold: entries by ascending key. Its slices are
// never changed in place by put and delete, so that a view stays what it was.
type model []entry

func (m model) search(key []byte) (int, bool) {
	return slices.BinarySearchFunc(m, key, func(e entry, key []byte) int { return bytes.Compare(e.key, key) })
}

func (m *model) put(key, value []byte) {
	i, found := m.search(key)
	next := slices.Clone(*m)
	if found {
		next[i] = entry{key, value}
	} else {
		next = slices.Insert(next, i, entry{key, value})
	}
	*m = next
}

func (m *model) delete(key []byte) {
	if i, found := m.search(key); found {
		*m = slices.Delete(slices.Clone(*m), i, i+1)
	}
}

func (m *model) deleteRange(lo, hi []byte) {
	if gone := m.between(lo, hi); len(gone) > 0 {
		i, _ := m.search(gone[0].key)
		*m = slices.Delete(slices.Clone(*m), i, i+len(gone))
	}
}

// change is one write of a batch; of a range delete, value is the end.
type change struct {
	kind       keys.Kind
	key, value []byte
}

func (m *model) apply(c change) {
	switch c.kind {
	case keys.KindPut:
		m.put(c.key, c.value)
	case keys.KindDelete:
		m.delete(c.key)
	case keys.KindRangeDelete:
		m.deleteRange(c.key, c.value)
	}
}

func (c change) batch(b *Batch) {
	switch c.kind {
	case keys.KindPut:
		b.Put(c.key, c.value)
	case keys.KindDelete:
		b.Delete(c.key)
	case keys.KindRangeDelete:
		b.DeleteRange(c.key, c.value)
	}
}

func (c change) txn(tx *Txn) error {
	switch c.kind {
	case keys.KindDelete:
		return tx.Delete(c.key)
	case keys.KindRangeDelete:
		return tx.DeleteRange(c.key, c.value)
	}
	return tx.Put(c.key, c.value)
}

// few returns bounds of a range with few entries of m, or, rarely, of any range.
func (m model) few(rng chooser, pool [][]byte) (lo, hi []byte) {
	lo, hi = pool[rng.IntN(len(pool))], pool[rng.IntN(len(pool))]
	switch rng.IntN(40) {
	case 0:
		return lo, nil
	case 1:
		return nil, hi
	case 2:
		return lo, hi // empty or wide
	}
	i, _ := m.search(lo)
	if i += rng.IntN(6); i < len(m) {
		hi = m[i].key
	} else {
		hi = append(bytes.Clone(lo), 0xff)
	}
	return lo, hi
}

// between returns the entries with lo <= key < hi; a nil hi is no bound.
func (m model) between(lo, hi []byte) model {
	i, _ := m.search(lo)
	j := len(m)
	if hi != nil {
		j, _ = m.search(hi)
	}
	return m[i:max(i, j)]
}

// keyPool returns n keys made to be difficult: the empty key, prefixes of one
// another, zero and 0xff bytes at the edges, long common prefixes, long keys.
func keyPool(rng chooser, n int) [][]byte {
	pool := [][]byte{
		{}, {0}, {0, 0}, {0, 0, 0}, {0xff}, {0xff, 0xff}, {0xff, 0xff, 0xff}, {0, 0xff}, {0xff, 0},
		[]byte("a"), []byte("aa"), []byte("a\x00"), []byte("aaaaaaaa"), []byte("aaaaaaaa\x00"), []byte("aaaaaaaaa"), []byte("b"),
		bytes.Repeat([]byte("long"), 700), append(bytes.Repeat([]byte("long"), 700), 0),
		bytes.Repeat([]byte{0xff}, 900),
	}
	for i := len(pool); i < n; i++ {
		switch rng.IntN(4) {
		case 0:
			pool = append(pool, fmt.Appendf(nil, "user:%08d", rng.IntN(5000)))
		case 1:
			pool = append(pool, fmt.Appendf(nil, "https://example.org/a/long/common/prefix/%d", rng.IntN(500)))
		case 2:
			k := make([]byte, rng.IntN(6))
			for j := range k {
				k[j] = []byte{0, 1, 'a', 0xfe, 0xff}[rng.IntN(5)]
			}
			pool = append(pool, k)
		default:
			pool = append(pool, append(slices.Clone(pool[rng.IntN(len(pool))]), byte(rng.IntN(256))))
		}
	}
	return pool
}

// mustOpen opens a store for a test that is about something else.
func mustOpen(t rapid.TB, fs vfs.FS, dir string, o Options) *DB {
	t.Helper()
	o.FS = fs
	db, err := Open(dir, &o)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// checkAll compares everything that db holds with want, by scans in both
// directions and by lookups.
func checkAll(db *DB, want model) error {
	i := 0
	it := db.All()
	for k, v := range it.All() {
		if i == len(want) || !bytes.Equal(k, want[i].key) || !bytes.Equal(v, want[i].value) {
			return fmt.Errorf("scan: entry %d is %s, want %s", i, show(k, v), want.at(i))
		}
		i++
	}
	if err := it.Err(); err != nil || i != len(want) {
		return fmt.Errorf("scan: %d entries, want %d: %w", i, len(want), err)
	}
	it = db.All()
	for k, v := range it.Backward() {
		i--
		if i < 0 || !bytes.Equal(k, want[i].key) || !bytes.Equal(v, want[i].value) {
			return fmt.Errorf("backward scan: entry %d is %s, want %s", i, show(k, v), want.at(i))
		}
	}
	if err := it.Err(); err != nil || i != 0 {
		return fmt.Errorf("backward scan: %d entries short: %w", i, err)
	}
	for _, e := range want {
		if v, err := db.Get(e.key); err != nil || !bytes.Equal(v, e.value) {
			return fmt.Errorf("get: %s: %w, want %s", show(e.key, v), err, show(e.key, e.value))
		}
	}
	return nil
}

func (m model) at(i int) string {
	if i < 0 || i >= len(m) {
		return "none"
	}
	return show(m[i].key, m[i].value)
}

func show(k, v []byte) string { return fmt.Sprintf("%.40q (%d) = %.40q (%d)", k, len(k), v, len(v)) }

func flushAll(t testing.TB, db *DB) {
	t.Helper()
	must(t, db.Flush(context.Background()))
}

func compactAll(t testing.TB, db *DB) {
	t.Helper()
	must(t, db.Compact(context.Background(), nil, nil))
}

// TestMain fails if a test leaves a goroutine behind, that of a store which it
// did not close included.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
