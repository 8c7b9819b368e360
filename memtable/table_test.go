package memtable

import (
	"bytes"
	"errors"
	"fmt"
	"math/bits"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"

	"sievedb/internal/keys"
	"sievedb/internal/offheap"
)

// put adds a version and fails the test if that fails.
func put(tb testing.TB, tab *Table, userKey []byte, seq keys.SeqNum, value []byte) {
	tb.Helper()
	if err := tab.Add(userKey, xxhash.Sum64(userKey), keys.MakeTrailer(seq, keys.KindPut), value); err != nil {
		tb.Fatal(err)
	}
}

// countingLock is a writer's lock that counts.
type countingLock int

func (l *countingLock) Lock()   { *l++ }
func (l *countingLock) Unlock() {}

func TestEmpty(t *testing.T) {
	tab := New(Options{})
	var lock countingLock
	it := tab.NewIter(&lock, keys.MaxSeqNum)
	if it.First() || it.Last() || it.SeekGE(nil, 0) || it.SeekLT([]byte("x"), 0) || it.Next() || it.Prev() || it.Valid() {
		t.Error("an iterator over nothing stands on something")
	}
	if err := errors.Join(it.Close(), it.Close(), it.Error()); err != nil {
		t.Error(err)
	}
	if _, _, ok := tab.Get(nil, xxhash.Sum64(nil), keys.MaxSeqNum); ok || !tab.Empty() || tab.Len() != 0 {
		t.Error("an empty table holds something")
	}
	if lock != 0 {
		t.Error("an empty table needs no lock")
	}
	if got := tab.SizeBytes(); got != minIndexSlots*8 {
		t.Errorf("an empty table holds %d bytes", got)
	}
}

// TestViews counts the clones: one per state of the tree, none for overwrites,
// none once immutable.
func TestViews(t *testing.T) {
	tab := New(Options{})
	var lock countingLock
	step := func(want countingLock, what string) {
		t.Helper()
		tab.NewIter(&lock, keys.MaxSeqNum)
		tab.NewIter(&lock, keys.MaxSeqNum)
		if lock != want {
			t.Errorf("%s: %d clones so far, want %d", what, lock, want)
		}
	}
	put(t, tab, []byte("a"), 1, nil)
	step(1, "first key")
	put(t, tab, []byte("a"), 2, nil)
	step(1, "overwrite")
	put(t, tab, []byte("b"), 3, nil)
	step(2, "second key")
	put(t, tab, []byte("c"), 4, nil)
	tab.Freeze()
	tab.Freeze()
	step(2, "immutable")
	if tab.view.Load().tree != tab.tree {
		t.Error("an immutable memtable iterates over a clone")
	}
}

// TestContract breaks the caller's side of Add: an error each, and nothing
// added.
func TestContract(t *testing.T) {
	tab := New(Options{})
	put(t, tab, []byte("k"), 7, []byte("v"))
	for _, c := range []struct {
		trailer keys.Trailer
		want    string
	}{
		{keys.MakeTrailer(7, keys.KindPut), `add of "k" at 7, not above 7`},
		{keys.MakeTrailer(6, keys.KindDelete), `add of "k" at 6, not above 7`},
		{keys.MakeTrailer(7, keys.KindRangeDelete), `add of "k" at 7, not above 7`},
		{keys.MakeTrailer(8, keys.KindRangeDelete), "range tombstone at 8 of nothing"},
		{keys.MakeTrailer(8, keys.KindMerge), "kind merge"},
	} {
		if err := tab.Add([]byte("k"), xxhash.Sum64String("k"), c.trailer, []byte("k")); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Add of %s: %v, want %q", c.trailer, err, c.want)
		}
	}
	if err := tab.Add([]byte("k"), 1, keys.MakeTrailer(8, keys.KindPut), nil); err == nil || !strings.Contains(err.Error(), "hash 0x1") {
		t.Errorf("Add with another hash: %v", err)
	}
	tab.Freeze()
	if err := tab.Add([]byte("k"), xxhash.Sum64String("k"), keys.MakeTrailer(9, keys.KindPut), nil); err == nil || !strings.Contains(err.Error(), "immutable") {
		t.Errorf("Add to an immutable memtable: %v", err)
	}
	if v, trailer, ok := tab.Get([]byte("k"), xxhash.Sum64String("k"), keys.MaxSeqNum); !ok || string(v) != "v" || trailer.SeqNum() != 7 || tab.Len() != 1 {
		t.Errorf("Get = %q#%s, %v; %d entries", v, trailer, ok, tab.Len())
	}
}

// TestSizes covers keys and values around every bound of the arena.
func TestSizes(t *testing.T) {
	for _, hint := range []int64{1, 100 << 10, 0} {
		tab := New(Options{SizeHintBytes: hint})
		chunk := tab.arena.chunkBytes
		var want [][2][]byte
		seq := keys.SeqNum(0)
		add := func(keyLen, valueLen int) {
			seq++
			k, v := bytes.Repeat([]byte("k"), keyLen), bytes.Repeat([]byte{byte(seq)}, valueLen)
			if keyLen >= 2 {
				k[keyLen-2], k[keyLen-1] = byte(seq>>8), byte(seq)
			}
			put(t, tab, k, seq, v)
			want = append(want, [2][]byte{k, v})
		}
		add(0, 0)
		add(1, 0)
		add(64<<10, 10)
		add(10, 5<<20)
		for d := -unitBytes - 1; d <= unitBytes+1; d++ {
			for _, size := range []int{chunk / 4, chunk / 2, chunk, minChunkBytes, firstChunk} {
				add(8, max(0, size-recordHeader-8+d))
				add(8, 100)
			}
		}
		var live int64
		for i, w := range want {
			v, trailer, ok := tab.Get(w[0], xxhash.Sum64(w[0]), keys.MaxSeqNum)
			if !ok || trailer.SeqNum() != keys.SeqNum(i+1) || !bytes.Equal(v, w[1]) || cap(v) != len(v) {
				t.Fatalf("hint %d: entry %d (key of %d bytes, value of %d): %s, %v", hint, i, len(w[0]), len(w[1]), trailer, ok)
			}
			live += int64(recordHeader + len(w[0]) + len(w[1]))
		}
		if got := tab.arena.sizeBytes.Load(); got < live || got > live*4/3+2*int64(chunk) {
			t.Errorf("hint %d: arena of %d bytes for %d", hint, got, live)
		}
	}
}

// TestFull fills the directory of chunks, and asks for too large a record.
func TestFull(t *testing.T) {
	tab := New(Options{})
	value := make([]byte, maxChunkBytes/4)
	seq := keys.SeqNum(1)
	put(t, tab, []byte("k"), seq, value)
	dir := *tab.arena.directory.Load()
	for len(dir) < maxChunks-1 {
		dir = append(dir, chunk{})
	}
	tab.arena.directory.Store(&dir)
	seq++
	put(t, tab, []byte("k"), seq, value)
	seq++
	err := tab.Add([]byte("k"), xxhash.Sum64String("k"), keys.MakeTrailer(seq, keys.KindPut), value)
	if !errors.Is(err, ErrFull) || tab.Len() != 2 {
		t.Errorf("Add beyond the last chunk: %v, %d entries", err, tab.Len())
	}
	if _, trailer, ok := tab.Get([]byte("k"), xxhash.Sum64String("k"), keys.MaxSeqNum); !ok || trailer.SeqNum() != seq-1 {
		t.Errorf("Get from a full table: %s, %v", trailer, ok)
	}
	if _, err := New(Options{}).arena.alloc(recordHeader + 1<<16 + 1<<30); err != nil {
		t.Errorf("a value of 1 GiB beside the longest key: %v", err)
	}
	if _, err := New(Options{}).arena.alloc(maxRecordBytes + 1); !errors.Is(err, ErrFull) {
		t.Errorf("a record of %d bytes: %v", maxRecordBytes+1, err)
	}
}

// A small table that one batch makes large must not run out of chunks: once it
// outgrew its hint, chunks have full size.
func TestChunksGrowBeyondTheHint(t *testing.T) {
	tab := New(Options{SizeHintBytes: 1})
	for seq := keys.SeqNum(1); seq <= 20_000; seq++ {
		put(t, tab, []byte("k"), seq, make([]byte, 1000))
	}
	if n := len(*tab.arena.directory.Load()); n > 60 {
		t.Errorf("%d chunks for 20 MB", n)
	}
}

// TestHashCollisions gives every key the same hash, and then hashes that all
// have their home in the last slot.
func TestHashCollisions(t *testing.T) {
	for _, hash := range []uint64{0, 1<<64 - 1} {
		tab := New(Options{})
		for i := range 500 {
			if err := tab.Add(fmt.Append(nil, i), hash, keys.MakeTrailer(keys.SeqNum(i), keys.KindPut), nil); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 600 {
			_, trailer, ok := tab.Get(fmt.Append(nil, i), hash, keys.MaxSeqNum)
			if ok != (i < 500) || ok && trailer.SeqNum() != keys.SeqNum(i) {
				t.Fatalf("hash %#x, key %d: %s, %v", hash, i, trailer, ok)
			}
		}
	}
}

// TestHotKey counts the links followed from the newest of many versions to
// each: about 2·log2 of their number, where a plain chain takes as many as
// there are versions.
func TestHotKey(t *testing.T) {
	const versions = 10_000
	tab := New(Options{})
	for s := range keys.SeqNum(versions) {
		put(t, tab, []byte("hot"), s, nil)
	}
	a := &tab.arena
	first := tab.index.Load().find(a, xxhash.Sum64String("hot"), []byte("hot"))
	limit := 3 * bits.Len(versions)
	longest, total := 0, 0
	for depth := range uint32(versions) {
		steps := 0
		for r := a.newest(first); a.depth(r) != depth; steps++ {
			_, jump := a.record(r).links(r)
			if r = a.record(r).prev(); a.depth(jump) >= depth {
				r = jump
			}
		}
		longest, total = max(longest, steps), total+steps
		if steps > limit {
			t.Fatalf("%d links to version %d of %d, limit %d", steps, depth, versions, limit)
		}
		if r := a.newestAtMost(a.newest(first), keys.SeekTrailer(keys.SeqNum(depth))); a.depth(r) != depth {
			t.Fatalf("version %d found at depth %d", depth, a.depth(r))
		}
	}
	t.Logf("links to a version of %d: longest way %d, mean %d", versions, longest, total/versions)
}

// TestBases checks the bases that are chosen, and that a few odd keys spoil
// none.
func TestBases(t *testing.T) {
	user := func(i int) string { return fmt.Sprintf("user%04d", i*7919%10000) }
	long := func(i int) string { return user(i) + "/name" }
	for _, c := range []struct {
		name string
		key  func(i int) string
		n    int
		want string
	}{
		{"too few", user, minRekey - 1, ""},
		{"shared prefix", long, 1000, "user"},
		{"short keys", user, 1000, "u"},
		{"no more than seven bytes", func(i int) string { return fmt.Sprintf("k%04d", i) }, 1000, ""},
		// Which is still the base of the ten-millionth key.
		{"sequential", func(i int) string { return fmt.Sprintf("%016d", i) }, 1500, "000000000"},
		{"odd keys", func(i int) string {
			if i%20 == 0 {
				return fmt.Sprintf("%c%d", "\x00z"[i/20%2], i)
			}
			return long(i)
		}, 1000, "user"},
		{"families", func(i int) string {
			return []string{"a/order/", "a/orders/", "user/"}[i%3] + long(i)
		}, 1000, "a/order/user a/orders/user user/user"},
		{"families of short keys", func(i int) string {
			return []string{"a/order/", "a/orders/", "user/"}[i%3] + strconv.Itoa(i%1000+1000)
		}, 1000, "a/order/ a/orders us"},
		{"nothing shared", func(i int) string { return fmt.Sprintf("%c%d", byte(i*37), i) }, 1000, ""},
		{"prefixes of one key", func(i int) string { return strings.Repeat("x", i) }, 129, ""},
	} {
		tab := New(Options{})
		for i := range c.n {
			put(t, tab, []byte(c.key(i)), keys.SeqNum(i), nil)
		}
		if got := string(bytes.Join(tab.order.bases, []byte(" "))); got != c.want {
			t.Errorf("%s: bases %q, want %q", c.name, got, c.want)
		}
	}
}

// TestPrefixOrder checks prefix(a) < prefix(b) only where a < b, over short
// strings of few letters, which meet every case.
func TestPrefixOrder(t *testing.T) {
	rng := testSeed(t)
	word := func() []byte {
		b := make([]byte, rng.IntN(14))
		for i := range b {
			b[i] = "\x00\x00\x00\x00a\xff"[rng.IntN(6)]
		}
		return b
	}
	for range 100_000 {
		o := order{}
		for range rng.IntN(4) {
			if b := word(); len(b) > 2 {
				o.bases = append(o.bases, b[:3]) // of one length: none is a prefix of another
			}
		}
		slices.SortFunc(o.bases, bytes.Compare)
		o.bases = slices.CompactFunc(o.bases, bytes.Equal)
		pick := func() []byte {
			if len(o.bases) == 0 || rng.IntN(2) == 0 {
				return word()
			}
			return append(bytes.Clone(o.bases[rng.IntN(len(o.bases))]), word()...)
		}
		if a, b := pick(), pick(); o.prefix(a) < o.prefix(b) && bytes.Compare(a, b) >= 0 {
			t.Fatalf("bases %q: prefix(%q) < prefix(%q)", o.bases, a, b)
		}
	}
}

// TestAllocs counts allocations exactly.
func TestAllocs(t *testing.T) {
	userKeys, hashes := benchKeys(0, 5000)
	tab := fillTable(t, userKeys, hashes)
	tab.Freeze()
	it := tab.NewIter(nil, keys.MaxSeqNum)
	it.First()
	for it.Next() { // until its buffer is at its largest
	}
	i := 0
	for _, c := range []struct {
		name string
		run  func()
		want float64
	}{
		{"Get hit", func() { tab.Get(userKeys[i], hashes[i], keys.MaxSeqNum); i++ }, 0},
		{"Get miss", func() { tab.Get([]byte("absent"), hashes[0], keys.MaxSeqNum) }, 0},
		{"NewestSeq", func() { tab.NewestSeq(userKeys[i], hashes[i]) }, 0},
		{"NewIter", func() { tab.NewIter(nil, keys.MaxSeqNum) }, 2},
		{"SeekGE", func() { it.SeekGE(userKeys[i], 0); i++ }, 0},
		{"SeekLT", func() { it.SeekLT(userKeys[i], 0); i++ }, 0},
		{"scan", func() {
			for ok := it.First(); ok; ok = it.Next() {
			}
		}, 0},
		{"scan of a new iterator", func() {
			it := tab.NewIter(nil, keys.MaxSeqNum)
			for ok := it.First(); ok; ok = it.Next() {
			}
		}, 2 + 3}, // buffers of 16, 64 and 256
	} {
		if got := testing.AllocsPerRun(100, c.run); got != c.want {
			t.Errorf("%s: %v allocations, want %v", c.name, got, c.want)
		}
	}
}

// TestAddAllocs checks that overwrites allocate chunks and nothing else.
func TestAddAllocs(t *testing.T) {
	tab := New(Options{})
	key, value, hash, seq := []byte("k"), make([]byte, 1000), xxhash.Sum64String("k"), keys.SeqNum(0)
	for ; tab.arena.nextBytes < maxChunkBytes || seq < 3000; seq++ {
		put(t, tab, key, seq, value)
	}
	chunks := len(*tab.arena.directory.Load())
	total := testing.AllocsPerRun(1, func() { // runs it twice
		for range 10_000 {
			seq++
			if err := tab.Add(key, hash, keys.MakeTrailer(seq, keys.KindPut), value); err != nil {
				t.Fatal(err)
			}
		}
	})
	chunks = (len(*tab.arena.directory.Load()) - chunks) / 2
	// Each chunk: the new directory's header; its memory, if that is from the
	// heap; at times the directory's array.
	if int(total) < chunks || int(total) > 3*chunks || chunks < 9 {
		t.Errorf("%v allocations for %d chunks", total, chunks)
	}
}

// TestHeap counts what a table really holds: SizeBytes must come close, and
// the collector must find little to visit.
func TestHeap(t *testing.T) {
	const entries = 50_000
	for shape, c := range keyShapes {
		userKeys, hashes := benchKeys(shape, entries)
		var before, after runtime.MemStats
		for offheap.Metrics().Granted > 0 { // to the tables of before
			runtime.GC()
		}
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&before)
		tab := fillTable(t, userKeys, hashes)
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&after)
		held, objects := int64(after.HeapAlloc)-int64(before.HeapAlloc)+offheap.Metrics().Granted, int64(after.HeapObjects)-int64(before.HeapObjects)
		t.Logf("%s: %d bytes held, SizeBytes %d, %d heap objects per million entries", c.name, held, tab.SizeBytes(), objects*1_000_000/entries)
		if size := tab.SizeBytes(); size < held*95/100 || size > held*105/100 {
			t.Errorf("%s: SizeBytes is %d, the memory grew by %d", c.name, size, held)
		}
		if objects > entries*70/1000 {
			t.Errorf("%s: %d heap objects for %d entries", c.name, objects, entries)
		}
		runtime.KeepAlive(userKeys)
		runtime.KeepAlive(hashes)
		runtime.KeepAlive(tab)
	}
}
