package tree

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"weak"

	"sievedb/explain"
	"sievedb/filter"
	"sievedb/internal/cache"
	"sievedb/internal/counters"
	"sievedb/internal/filecache"
	"sievedb/internal/iter"
	"sievedb/internal/keys"
	"sievedb/internal/manifest"
	"sievedb/internal/rangedel"
	"sievedb/internal/table"
	"sievedb/memtable"
	"sievedb/sstable"
	"sievedb/vfs"
)

// Bounds in flat arrays find what a walk over the tables finds, also where the
// tables share a long prefix, and where user keys are prefixes of it.
func TestRunSearch(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for _, prefix := range []string{"", "a", "https://example.org/"} {
		var ks []string
		for range 400 {
			k := prefix
			for range rng.IntN(12) {
				k += string("\x00\x01ab\xff"[rng.IntN(5)])
			}
			ks = append(ks, k)
		}
		slices.Sort(ks)
		ks = slices.Compact(ks)
		var tables []*table.Table
		for i := 0; i+3 < len(ks); i += 5 - rng.IntN(3) { // gaps between the tables, mostly
			m := &manifest.TableMeta{Smallest: []byte(ks[i]), Largest: []byte(ks[i+2])}
			if rng.IntN(2) == 0 {
				m.Largest, m.LargestExclusive = []byte(ks[i+3]), true
			}
			tables = append(tables, &table.Table{Meta: m})
		}
		if prefix != "a" {
			last := tables[len(tables)-1].Meta
			last.Largest, last.LargestExclusive, last.ToEnd = nil, false, true
		}
		run := newRun(tables)
		probes := append(slices.Clone(ks), "", "a", "https://", "https://example.org", "https://example.orf", "zzz")
		for _, k := range probes {
			for _, key := range [][]byte{[]byte(k), []byte(k + "\x00"), []byte(k + "m")} {
				want := 0
				for want < len(tables) && tables[want].Meta.KeyRange().EndsBefore(key) {
					want++
				}
				if got, _ := run.search(key); got != want {
					t.Fatalf("search(%q) = %d, want %d", key, got, want)
				}
				var wantTable *table.Table
				if want < len(tables) && tables[want].Covers(key) != tables[want].Meta.KeyRange().Contains(key) {
					t.Fatalf("covers(%q) differs from that of %v", key, tables[want].Meta.KeyRange())
				}
				if want < len(tables) && tables[want].Covers(key) {
					wantTable = tables[want]
				}
				if got := run.find(key); got != wantTable {
					t.Fatalf("find(%q) = %v, want %v", key, got, wantTable)
				}
			}
		}
	}
}

func name(num keys.FileNum) string { return fmt.Sprintf("%06d.sst", num) }

// builder builds read states out of entries.
type builder struct {
	t        *testing.T
	fs       *vfs.Mem
	files    *filecache.Cache
	blocks   *cache.Cache
	nextFile keys.FileNum
	version  *manifest.Version
	tables   map[keys.FileNum]*table.Table
	obsolete []keys.FileNum
}

func newBuilder(t *testing.T) *builder {
	b := &builder{t: t, fs: vfs.NewMem(), blocks: cache.New(1 << 20), nextFile: 1, version: &manifest.Version{}, tables: map[keys.FileNum]*table.Table{}}
	b.files = filecache.New(b.fs, "", name, 100, func(num keys.FileNum) { b.obsolete = append(b.obsolete, num) })
	return b
}

type entry struct {
	key   string
	seq   keys.SeqNum
	kind  keys.Kind
	value string // of a range delete its end, "~" being none
}

func put(key string, seq keys.SeqNum) entry {
	return entry{key, seq, keys.KindPut, fmt.Sprintf("%s@%d", key, seq)}
}

func del(key string, seq keys.SeqNum) entry { return entry{key, seq, keys.KindDelete, ""} }

func delRange(lo, hi string, seq keys.SeqNum) entry { return entry{lo, seq, keys.KindRangeDelete, hi} }

func (e entry) end() []byte {
	if e.value == "~" {
		return nil
	}
	return []byte(e.value)
}

// add writes a table of entries, which are sorted but for range deletes, into
// level.
func (b *builder) add(level int, bitsPerKey uint32, entries ...entry) *table.Table {
	b.t.Helper()
	num := b.nextFile
	b.nextFile++
	f, err := b.fs.Create(name(num))
	if err != nil {
		b.t.Fatal(err)
	}
	w := sstable.NewWriter(f, sstable.WriterOptions{FileNum: num, FilterMillibits: 1000 * bitsPerKey})
	var tombstones []rangedel.Tombstone
	for _, e := range entries {
		if e.kind == keys.KindRangeDelete {
			tombstones = append(tombstones, rangedel.Tombstone{Start: []byte(e.key), End: e.end(), Seq: e.seq})
			continue
		}
		if err := w.Add(keys.Make([]byte(e.key), e.seq, e.kind), []byte(e.value)); err != nil {
			b.t.Fatal(err)
		}
	}
	if err := w.AddRangeDeletes(rangedel.Fragment(tombstones, allSeqs)); err != nil {
		b.t.Fatal(err)
	}
	m, err := w.Finish()
	if err != nil {
		b.t.Fatal(err)
	}
	meta := &manifest.TableMeta{
		FileNum: num, SizeBytes: m.SizeBytes, Checksum: m.Checksum, Smallest: m.Smallest, Largest: m.Largest,
		LargestExclusive: m.LargestExclusive, ToEnd: m.ToEnd, RangeDeletes: m.RangeDeletes,
		SmallestSeq: m.SmallestSeq, LargestSeq: m.LargestSeq, Entries: m.Entries, FilterBytes: m.FilterBytes,
	}
	if b.version, err = b.version.Apply(&manifest.Edit{Added: []manifest.LevelTable{{Level: level, Meta: meta}}}); err != nil {
		b.t.Fatal(err)
	}
	table, err := table.Open(b.files, meta, level, b.blocks)
	if err != nil {
		b.t.Fatal(err)
	}
	b.tables[num] = table
	return table
}

func (b *builder) state(mutable *memtable.Table, immutables ...*memtable.Table) *State {
	if mutable == nil {
		mutable = memtable.New(memtable.Options{})
	}
	return NewState(mutable, immutables, b.version, func(level int, m *manifest.TableMeta) *table.Table {
		return b.tables[m.FileNum]
	})
}

func buffer(t *testing.T, entries ...entry) *memtable.Table {
	t.Helper()
	m := memtable.New(memtable.Options{})
	for _, e := range entries {
		value := []byte(e.value)
		if e.kind == keys.KindRangeDelete {
			value = e.end()
		}
		if err := m.Add([]byte(e.key), filter.Hash([]byte(e.key)), keys.MakeTrailer(e.seq, e.kind), value); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// allSeqs are snapshots so many that fragmenting drops nothing.
var allSeqs = func() (all []keys.SeqNum) {
	for seq := range keys.SeqNum(3000) {
		all = append(all, seq)
	}
	return all
}()

func get(t *testing.T, s *State, key string, seq keys.SeqNum) string {
	t.Helper()
	v, found, err := s.Get(nil, []byte(key), filter.Hash([]byte(key)), seq, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	has, found2, err := s.Get(nil, []byte(key), filter.Hash([]byte(key)), seq, true, nil)
	if err != nil || found2 != found || has != nil {
		t.Fatalf("exists only: %q, %v, %v", has, found2, err)
	}
	if !found {
		return "-"
	}
	return string(v)
}

// One key in every place: the newest version that the snapshot sees decides,
// and a tombstone hides what lies below it.
func TestGetNewestRunFirst(t *testing.T) {
	b := newBuilder(t)
	b.add(6, 10, put("a", 1), put("k", 1), put("z", 1))
	b.add(5, 10, del("k", 3))
	b.add(0, 10, put("k", 5))
	b.add(0, 10, del("k", 7))
	imm := buffer(t, put("k", 9))
	s := b.state(buffer(t, del("k", 11), put("m", 12)), imm)
	for seq, want := range map[keys.SeqNum]string{
		0: "-", 1: "k@1", 2: "k@1", 3: "-", 4: "-", 5: "k@5", 6: "k@5", 7: "-", 8: "-", 9: "k@9", 10: "k@9", 11: "-", 99: "-",
	} {
		if got := get(t, s, "k", seq); got != want {
			t.Errorf("at %d: %s, want %s", seq, got, want)
		}
	}
	if got := get(t, s, "m", 11); got != "-" {
		t.Errorf("an entry newer than the snapshot: %s", got)
	}
	if got := get(t, s, "a", 99); got != "a@1" {
		t.Errorf("a key of the bottom: %s", got)
	}
}

// Invariant 6, and what else the counts say.
func TestCounts(t *testing.T) {
	b := newBuilder(t)
	var present []entry
	for i := range 1000 {
		present = append(present, put(fmt.Sprintf("k%04d", 2*i), 5))
	}
	filtered := b.add(5, 10, present...)
	plain := b.add(6, 0, present...)
	s := b.state(nil)
	get1 := func(key string, seq keys.SeqNum) {
		if _, _, err := s.Get(nil, []byte(key), filter.Hash([]byte(key)), seq, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	get1("k0002", 5) // found in level 5
	if c := filtered.Counters.Load(); c.TruePositives != 1 || c.BlocksRead != 1 {
		t.Errorf("a present key: %+v", c)
	}
	get1("k0002", 4) // there, but newer than the snapshot: a true positive
	if c := filtered.Counters.Load(); c.TruePositives != 2 || c.BlocksCached != 1 || c.FalsePositives != 0 {
		t.Errorf("a key newer than the snapshot: %+v", c)
	}
	get1("a", 5) // outside the bounds: counted nowhere
	for i := range 999 {
		get1(fmt.Sprintf("k%04d", 2*i+1), 5)
	}
	c := filtered.Counters.Load()
	if c.Negatives+c.FalsePositives != 999 || c.Unfiltered != 0 || c.BlocksRead+c.BlocksCached != 2+c.FalsePositives {
		t.Errorf("absent keys with a filter: %+v", c)
	}
	if c := plain.Counters.Load(); c.Unfiltered != 1+999 || c.Negatives != 0 || c.BlocksRead+c.BlocksCached != 1000 {
		t.Errorf("absent keys without a filter: %+v", c)
	}
	moved := filtered.In(4)
	if moved.Counters.Load() != (counters.Counts{}) || moved.Opened() != filtered.Opened() {
		t.Error("a moved table starts with counts of its own")
	}
}

// likely reports whether some stripe of t expects a hit.
func likely(t *table.Table) bool {
	for stripe := range 8 {
		if t.Counters.Line(stripe).HitLikely() {
			return true
		}
	}
	return false
}

// A lookup begins with the block of a table that was right of late, which changes
// neither what it finds nor what it counts, whether the guess was good or not.
func TestExpectedHits(t *testing.T) {
	b := newBuilder(t)
	var all, even []entry
	for i := range 600 {
		all = append(all, put(fmt.Sprintf("k%04d", i), 5))
		if i%2 == 0 {
			even = append(even, put(fmt.Sprintf("k%04d", i), 7))
		}
	}
	even[3] = del(even[3].key, 7) // k0006
	upper := b.add(5, 10, append(even, put("kk", 8))...)
	lower := b.add(6, 10, append(all, put("kk", 1))...)
	for _, ignore := range []bool{false, true} {
		s := b.state(nil)
		s.IgnoreFilters = ignore
		check := func(i int, seq keys.SeqNum) {
			t.Helper()
			key := fmt.Sprintf("k%04d", i)
			want := key + "@5"
			switch {
			case i >= 600:
				want = "-"
			case i == 6 && seq >= 7:
				want = "-"
			case i%2 == 0 && seq >= 7:
				want = key + "@7"
			}
			if got := get(t, s, key, seq); got != want {
				t.Fatalf("%s at %d: %s, want %s", key, seq, got, want)
			}
		}
		for _, seq := range []keys.SeqNum{9, 6} { // at 6, all versions of the upper table are too new
			for i := range 600 { // in turns
				check(i, seq)
			}
			for i := range 100 { // in a row, the one table and then the other
				check(2*i, seq)
			}
			for i := range 100 {
				check(2*i+1, seq)
			}
			if !ignore && !likely(upper) && !likely(lower) {
				t.Error("no table expects a hit")
			}
			for i := range 100 { // and nothing, at last
				check(600+i, seq)
			}
		}
	}
	// Every key was looked up twice, by get, at two snapshots. With filters the
	// lower table was asked when the upper one had nothing to show.
	u, l := upper.Counters.Load(), lower.Counters.Load()
	const evens, odds, gone = 400, 400, 100 // in each of the passes
	if got, want := u.TruePositives, uint64(2*2*evens); got != want {
		t.Errorf("%d hits in the upper table, want %d", got, want)
	}
	if got, want := l.TruePositives, uint64(2*(odds+odds+evens)); got != want {
		t.Errorf("%d hits in the lower table, want %d", got, want)
	}
	if got, want := u.Negatives+u.FalsePositives, uint64(2*2*(odds+gone)); got != want {
		t.Errorf("%d misses in the upper table, want %d", got, want)
	}
	if got, want := l.Negatives+l.FalsePositives, uint64(2*2*gone); got != want {
		t.Errorf("%d misses in the lower table, want %d", got, want)
	}
	if got, want := u.BlocksCached+u.BlocksRead-u.Unfiltered, u.TruePositives+u.FalsePositives; got != want {
		t.Errorf("%d blocks of the upper table were looked into, want %d", got, want)
	}
}

// More candidates than a lookup keeps at once are asked in order all the same.
func TestManyCandidates(t *testing.T) {
	b := newBuilder(t)
	const n = 30
	for i := range n {
		b.add(0, 10, put("a", keys.SeqNum(3*i+1)), put("k", keys.SeqNum(3*i+2)), put("z", keys.SeqNum(3*i+3)))
	}
	s := b.state(nil)
	for i := range n {
		seq := keys.SeqNum(3*i + 2)
		if got, want := get(t, s, "k", seq), fmt.Sprintf("k@%d", seq); got != want {
			t.Errorf("at %d: %s, want %s", seq, got, want)
		}
	}
	if got := get(t, s, "kk", 999); got != "-" {
		t.Errorf("an absent key: %s", got)
	}
}

// A state holds its tables; the last one that has a table gives it up, whoever
// lets go of it.
func TestStatesHoldTables(t *testing.T) {
	b := newBuilder(t)
	b.add(6, 10, put("a", 1))
	b.add(5, 10, put("a", 2))
	first := b.state(nil)
	version, err := b.version.Apply(&manifest.Edit{Removed: []manifest.LevelFile{{Level: 5, FileNum: 2}}})
	if err != nil {
		t.Fatal(err)
	}
	b.version = version
	second := b.state(nil)
	third := second.WithMemtables(buffer(t, put("b", 3)), nil)
	if !first.Acquire() {
		t.Fatal("a live state cannot be acquired")
	}
	for _, s := range []*State{first, second} {
		if err := s.Release(); err != nil {
			t.Fatal(err)
		}
	}
	if len(b.obsolete) != 0 {
		t.Fatalf("an iterator still holds %v", b.obsolete)
	}
	if got := get(t, first, "a", 9); got != "a@2" {
		t.Errorf("through the held state: %s", got)
	}
	if err := first.Release(); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(b.obsolete, []keys.FileNum{2}) {
		t.Errorf("obsolete: %v", b.obsolete)
	}
	if first.Acquire() {
		t.Error("invariant 2: a state that was given up was acquired")
	}
	b.blocks = nil
	trace := NewTrace([]byte("a"))
	_, _, err = first.Get(nil, []byte("a"), filter.Hash([]byte("a")), 9, false, trace)
	if !errors.Is(err, filecache.ErrGone) {
		t.Errorf("a lookup through a state that was given up: %v", err)
	}
	v, found, err := third.Get(nil, []byte("a"), filter.Hash([]byte("a")), 8, false, trace)
	if got := trace.Finish(v, err); !found || got.Result != explain.Found || got.Restarts != 1 || got.Visible != 8 || len(got.Steps) != 2 {
		t.Errorf("began again: %v\n%s", err, got)
	}
	if got := get(t, third, "a", 9) + get(t, third, "b", 9); got != "a@1b@3" {
		t.Errorf("through the current state: %s", got)
	}
}

func TestNewItersLeavesOutWhatIsBeyond(t *testing.T) {
	b := newBuilder(t)
	for i := range 5 {
		b.add(6, 10, put(fmt.Sprintf("%c1", 'a'+i), 1), put(fmt.Sprintf("%c9", 'a'+i), 1))
	}
	b.add(0, 10, put("b5", 10), put("c5", 10))
	s := b.state(nil)
	var lock sync.Mutex
	scan := func(lo, hi string) (got []string, inputs int) {
		o := IterOptions{Lower: []byte(lo), Snapshot: keys.MaxSeqNum, CommitLock: &lock}
		if hi != "" {
			o.Upper = []byte(hi)
		}
		its := s.AppendIters(nil, o)
		v := iter.NewVisible(iter.NewMerging(its...), iter.VisibleOptions{Snapshot: keys.MaxSeqNum, Lower: o.Lower, Upper: o.Upper})
		for ok := v.First(); ok; ok = v.Next() {
			got = append(got, string(v.Key()))
		}
		if err := v.Close(); err != nil {
			t.Fatal(err)
		}
		return got, len(its)
	}
	for _, c := range []struct {
		lo, hi string
		want   string
		inputs int
	}{
		{"", "", "[a1 a9 b1 b5 b9 c1 c5 c9 d1 d9 e1 e9]", 2},
		{"b9", "c5", "[b9 c1]", 2},
		{"c6", "d2", "[c9 d1]", 1},
		{"a91", "b1", "[]", 0},
		{"e91", "", "[]", 0},
		{"", "a1", "[]", 0},
	} {
		got, inputs := scan(c.lo, c.hi)
		if fmt.Sprint(got) != c.want || inputs != c.inputs {
			t.Errorf("[%q, %q): %v from %d inputs, want %s from %d", c.lo, c.hi, got, inputs, c.want, c.inputs)
		}
	}
}

// The memory of iterators that are closed keeps no table, and with that no cache, of
// a state that is gone.
func TestMemoryOfItersKeepsNoTables(t *testing.T) {
	memory := new(Iters)
	gone := func() (tables []weak.Pointer[table.Table], readers []weak.Pointer[sstable.Reader]) {
		b := newBuilder(t)
		b.add(0, 10, put("a", 7), put("m", 8))
		b.add(1, 10, put("b", 1), put("c", 2))
		b.add(1, 10, put("d", 3), put("e", 4))
		s := b.state(nil)
		its := s.AppendIters(nil, IterOptions{Snapshot: 9, CommitLock: &sync.Mutex{}, Memory: memory})
		if len(its) != 2 {
			t.Fatalf("%d iterators", len(its))
		}
		for _, it := range its {
			for ok := it.First(); ok; ok = it.Next() {
			}
			it.First()
			if err := it.Close(); err != nil {
				t.Fatal(err)
			}
			if it.First() || it.Last() || it.Next() || it.Prev() || it.Valid() ||
				it.SeekGE([]byte("b"), keys.SeekTrailer(9)) || it.SeekLT([]byte("c"), keys.SeekTrailer(9)) || it.Close() != nil {
				t.Error("a closed iterator moved")
			}
		}
		for table := range s.All() {
			tables = append(tables, weak.Make(table))
			readers = append(readers, weak.Make(table.Opened()))
		}
		if err := s.Release(); err != nil {
			t.Fatal(err)
		}
		return tables, readers
	}
	tables, readers := gone()
	runtime.GC()
	for i := range tables {
		if tables[i].Value() != nil || readers[i].Value() != nil {
			t.Errorf("table %d is kept: %v, its reader: %v", i, tables[i].Value() != nil, readers[i].Value() != nil)
		}
	}
	runtime.KeepAlive(memory)
}

func TestGetAllocatesNothing(t *testing.T) {
	b := newBuilder(t)
	b.add(6, 10, put("a", 1), put("k", 1), put("z", 1))
	b.add(5, 10, put("a", 2), put("z", 2))
	s := b.state(buffer(t, put("m", 3)))
	dst := make([]byte, 0, 64)
	for _, key := range []string{"k", "m", "q", "0"} {
		k, h := []byte(key), filter.Hash([]byte(key))
		if n := testing.AllocsPerRun(100, func() {
			if _, _, err := s.Get(dst, k, h, 9, false, nil); err != nil {
				t.Error(err)
			}
		}); n != 0 {
			t.Errorf("Get(%q) allocates %v times", key, n)
		}
	}
}
