package sievedb

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"sievedb/filter"
	"sievedb/vfs"
)

// effectOptions read each block from the file, so that reads can be counted,
// and keep several tables in level 0 above a bottom level of several tables.
func effectOptions() Options {
	return Options{Durability: SyncNever, CacheBytes: -1, MemtableBytes: 256 << 10, TableBytes: 64 << 10}
}

func totals(db *DB) FilterCounts {
	m := db.Metrics()
	return m.Total()
}

// loadEven puts n random even numbers as keys; the odd ones are absent.
func loadEven(t testing.TB, db *DB, n int) {
	t.Helper()
	rng := newRand(1)
	for range n {
		k := binary.BigEndian.AppendUint64(nil, rng.Uint64()&^1)
		must(t, db.Put(k, bytes.Repeat(k, 8)))
	}
	flushAll(t, db)
}

// expectedReads is what the properties of the tables that cover key say that a
// lookup of the absent key reads, and how many tables those are.
func expectedReads(db *DB, key []byte) (reads float64, tables int) {
	for t := range db.state.Load().All() {
		if bytes.Compare(t.Meta.Smallest, key) <= 0 && bytes.Compare(key, t.Meta.Largest) <= 0 {
			reads += t.Opened().Properties().FilterRate
			tables++
		}
	}
	return reads, tables
}

// TestFilterEffect looks up absent keys inside the key range, after the load
// and after a full compaction: with filters that reads no more blocks than 1.2
// times what the predicted rates of the tables add up to, and three standard
// deviations of that; without, at least one for each table that covers the key.
func TestFilterEffect(t *testing.T) {
	for _, bits := range []float64{0, 4, 10, 16} { // 0 is no filters
		t.Run(fmt.Sprintf("%v bits", bits), func(t *testing.T) {
			o := effectOptions()
			o.FilterBitsPerKey, o.DisableFilters = bits, bits == 0
			mem := vfs.NewMem()
			db := mustOpen(t, mem, "/store", o)
			loadEven(t, db, 30_000)
			quiesce(db)()
			measureEffect(t, db, "loaded", bits > 0)
			compactAll(t, db)
			measureEffect(t, db, "compacted", bits > 0)
			must(t, db.Close())
		})
	}
}

func measureEffect(t *testing.T, db *DB, when string, filters bool) {
	t.Helper()
	rng := newRand(2)
	lookups := 50_000
	if !filters {
		lookups = 3000
	}
	before, files := totals(db), db.fs.(*vfs.Mem).Counts()
	var expected float64
	runs := 0
	for range lookups {
		k := binary.BigEndian.AppendUint64(nil, rng.Uint64()|1)
		reads, tables := expectedReads(db, k)
		expected += reads
		runs += tables
		if ok, err := db.Has(k); ok || err != nil {
			t.Fatalf("%s: an absent key: %v, %v", when, ok, err)
		}
	}
	m := totals(db)
	read := m.BlocksRead - before.BlocksRead
	if m.Probes-before.Probes != uint64(runs) {
		t.Errorf("%s: %d probes of %d tables", when, m.Probes-before.Probes, runs)
	}
	if float64(runs) < 0.99*float64(lookups) { // some fall between two tables
		t.Errorf("%s: %d tables in %d lookups: not inside the key range", when, runs, lookups)
	}
	t.Logf("%s: %d lookups in %d tables read %d blocks, expected %.1f", when, lookups, runs, read, expected)
	if !filters {
		if m.Unfiltered-before.Unfiltered != uint64(runs) || read < uint64(runs) {
			t.Errorf("%s, without filters: %d reads of %d tables", when, read, runs)
		}
		return
	}
	if float64(read) > 1.2*expected+3*math.Sqrt(expected) { // which is little but at 16 bits
		t.Errorf("%s: %d blocks read, expected %.1f", when, read, expected)
	}
	if got := m.ExpectedFalsePositives - before.ExpectedFalsePositives; got < 0.999*expected || got > 1.001*expected {
		t.Errorf("%s: metrics expect %.1f, the tables %.1f", when, got, expected)
	}
	fp := m.FalsePositives - before.FalsePositives
	if neg := m.Negatives - before.Negatives; fp+neg != uint64(runs) || read > fp {
		t.Errorf("%s: %d false positives, %d negatives, %d tables, %d blocks", when, fp, neg, runs, read)
	}
	// The file system agrees, but for the filters, one read of each table.
	reads := db.fs.(*vfs.Mem).Counts().Reads - files.Reads
	if most := int(read) + db.state.Load().Version.Tables(); reads > most {
		t.Errorf("%s: %d reads of files, want at most %d", when, reads, most)
	}
}

// TestFiltersChangeNoAnswer does the same operations on stores with filters of
// each kind and on one without.
func TestFiltersChangeNoAnswer(t *testing.T) {
	policies := []filter.Policy{
		{}, {Kind: filter.KindStandard}, {BottomKind: filter.KindFuse}, {Uniform: true, Kind: filter.KindFuse}, {SkipBottom: true},
	}
	for _, policy := range policies {
		fuse := policy.Kind == filter.KindFuse || policy.BottomKind == filter.KindFuse
		t.Run(fmt.Sprintf("%+v", policy), func(t *testing.T) {
			seed := newSeed(t)
			rng := newRand(seed)
			with, without := tiny, tiny
			pool := keyPool(rng, 400)
			with.FilterBitsPerKey = 3
			if fuse { // which takes tables of many keys
				for i := range filter.MinFuseKeys * 5 / 4 {
					pool = append(pool, fmt.Appendf(nil, "%06d", i))
				}
				with.FilterBitsPerKey, with.TableBytes = 11, 16<<20
				without.TableBytes = with.TableBytes
			}
			with.Filters, without.DisableFilters = policy, true
			a, b := mustOpen(t, vfs.NewMem(), "/store", with), mustOpen(t, vfs.NewMem(), "/store", without)
			both := func(do func(db *DB) error) {
				must(t, do(a))
				must(t, do(b))
			}
			if fuse {
				for _, k := range pool {
					both(func(db *DB) error { return db.Put(k, nil) })
				}
				both(func(db *DB) error { return db.Compact(context.Background(), nil, nil) })
			}
			built := kindsOf(a)
			for i := range *modelOps / len(policies) {
				k := pool[rng.IntN(len(pool))]
				switch rng.IntN(12) {
				case 0, 1, 2, 3:
					v := bytes.Repeat([]byte{byte(i)}, rng.IntN(200))
					both(func(db *DB) error { return db.Put(k, v) })
				case 4, 5:
					both(func(db *DB) error { return db.Delete(k) })
				case 6:
					if end := append(bytes.Clone(k), 0xff); rng.IntN(10) == 0 {
						both(func(db *DB) error { return db.DeleteRange(k, end) })
					}
				default:
					if rng.IntN(2) == 0 {
						k = append(bytes.Clone(k), 'x') // absent
					}
					va, errA := a.Get(k)
					vb, errB := b.Get(k)
					if errA != errB || !bytes.Equal(va, vb) {
						t.Fatalf("operation %d: %s, %v, without filters %s, %v", i, show(k, va), errA, show(k, vb), errB)
					}
				}
			}
			n := totals(a)
			if n.Negatives == 0 || n.FalsePositives == 0 || n.Unfiltered != 0 && !policy.SkipBottom {
				t.Errorf("the filters did not work: %+v", n)
			}
			if n := totals(b); n.Negatives != 0 || n.Unfiltered == 0 {
				t.Errorf("there were filters: %+v", n)
			}
			if !fuse {
				built = kindsOf(a)
			}
			if want := policy.Kind; fuse && built[filter.KindFuse] == 0 || want == filter.KindStandard && (built[want] == 0 || len(built) > 1) {
				t.Errorf("tables by the kind of their filter: %v", built)
			}
			must(t, a.Close())
			must(t, b.Close())
		})
	}
}

// TestScansAskNoFilter scans forwards and backwards, all of the keys, a range and
// a prefix: a filter knows nothing of ranges, and none is asked.
func TestScansAskNoFilter(t *testing.T) {
	db := mustOpen(t, vfs.NewMem(), "/store", tiny)
	want := fill(t, db, nil, 2000, 0)
	flushAll(t, db)
	before := totals(db)
	n := 0
	for _, it := range []*Iterator{db.All(), db.Scan(want[10].key, want[20].key), db.Prefix(want[30].key[:1])} {
		for range it.All() {
			n++
		}
		for range it.Backward() {
			n++
		}
		must(t, it.Close())
	}
	if after := totals(db); n < 2*len(want) || after.Probes != before.Probes {
		t.Errorf("%d entries, %d tables asked", n, after.Probes-before.Probes)
	}
	must(t, db.Close())
}

// kindsOf counts the tables by the kind of their filter.
func kindsOf(db *DB) map[filter.Kind]int {
	n := map[filter.Kind]int{}
	for _, m := range db.Metrics().Tables {
		n[m.FilterKind]++
	}
	return n
}

// TestNewerThanSnapshot looks at a snapshot for a key that came later: that is
// a true positive of the filter (invariant 6).
func TestNewerThanSnapshot(t *testing.T) {
	db := mustOpen(t, vfs.NewMem(), "/store", tiny)
	s := db.Snapshot()
	must(t, db.Put([]byte("k"), nil))
	flushAll(t, db)
	if _, err := s.Get([]byte("k")); err != ErrNotFound {
		t.Fatal(err)
	}
	if m := totals(db); m.TruePositives != 1 || m.FalsePositives != 0 || m.Probes != 1 {
		t.Errorf("%+v", m)
	}
	must(t, s.Close())
	must(t, db.Close())
}

// TestTombstonesGo wants a full compaction to drop tombstones and old versions
// that nobody needs, not those that a snapshot needs, and those once it is
// closed (invariants 20, 21).
func TestTombstonesGo(t *testing.T) {
	db := mustOpen(t, vfs.NewMem(), "/store", tiny)
	want := fill(t, db, nil, 200, 0)
	compactAll(t, db)
	s := db.Snapshot()
	for _, e := range want {
		must(t, db.Delete(e.key))
	}
	compactAll(t, db)
	for _, e := range want {
		if v, err := s.Get(e.key); err != nil || !bytes.Equal(v, e.value) {
			t.Fatalf("at the snapshot: %s: %v", show(e.key, v), err)
		}
		if ok, err := db.Has(e.key); ok || err != nil {
			t.Fatalf("%q came back: %v", e.key, err)
		}
	}
	must(t, s.Close())
	quiesce(db)()
	for _, l := range db.Metrics().Levels {
		if l.Entries != 0 || l.Tables != 0 {
			t.Errorf("level %d holds %d entries, %d tombstones", l.Level, l.Entries, l.Deletes)
		}
	}
	must(t, db.Close())
}

// TestCleanClose leaves no unsealed segment and none that the next open has to
// cut (invariant 12).
func TestCleanClose(t *testing.T) {
	mem := vfs.NewMem()
	db := mustOpen(t, mem, "/store", tiny)
	fill(t, db, nil, 300, 0)
	must(t, db.Close())
	db = &DB{fs: mem, dir: "/store", o: &Options{}}
	st, err := db.load()
	must(t, err)
	if len(st.Segments) == 0 {
		t.Fatal("no segments")
	}
	for _, s := range st.Segments {
		info, err := mem.Stat(db.path(fmt.Sprintf("%06d.wal", s.FileNum)))
		must(t, err)
		if !s.Sealed || uint64(info.SizeBytes) != s.SizeBytes {
			t.Errorf("segment %d of %d bytes: %+v", s.FileNum, info.SizeBytes, s)
		}
	}
}

// TestManifestRewrite grows the manifest, with keys that make large bounds,
// until it is replaced, and crashes before each call meanwhile (invariant 15).
func TestManifestRewrite(t *testing.T) {
	seed := newSeed(t)
	mem := vfs.NewMem()
	h := newHistory()
	c := &crashes{mem: mem, hist: h, pick: func(int) []uint64 { return []uint64{vfs.CrashLost, seed} }}
	f := vfs.NewFaulty(mem)
	db := mustOpen(t, f, "/a/store", tiny)
	rng := newRand(seed)
	pool := [][]byte{bytes.Repeat([]byte{1}, 60_000), bytes.Repeat([]byte{2}, 60_000)}
	first := db.manifest.State().ManifestNum
	f.SetHook(c.hook)
	for i := 0; db.manifest.State().ManifestNum == first; i++ {
		if i == 100 {
			t.Fatal("the manifest is never rewritten")
		}
		must(t, db.Apply(h.begin(db, rng, pool), SyncAlways))
		h.acknowledge()
		must(t, db.Flush(context.Background()))
		quiesce(db)()
		if db.manifest.State().ManifestNum == first && db.manifest.SizeBytes() < 900_000 {
			c.takeAll() // the rewrite is what counts
		}
	}
	taken := c.takeAll()
	must(t, checkFiles(db))
	must(t, db.Close())
	for _, crash := range taken {
		h.recoverAndClose(t, rng, crash, "rewriting the manifest")
	}
	if len(taken) < 20 {
		t.Errorf("only %d crashes", len(taken))
	}
}
