package sstable

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"

	"sievedb/filter"
	"sievedb/internal/cache"
	"sievedb/internal/corrupt"
	"sievedb/internal/keys"
	"sievedb/internal/rangedel"
)

// memFile is a vfs.File in memory that counts its reads and can fail them.
type memFile struct {
	data   []byte
	writes int
	synced bool
	reads  atomic.Int64
	bytes  atomic.Int64
	fail   atomic.Pointer[error]
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	if e := f.fail.Load(); e != nil {
		return 0, *e
	}
	f.reads.Add(1)
	f.bytes.Add(int64(len(p)))
	if off >= int64(len(f.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) Write(p []byte) (int, error) {
	if e := f.fail.Load(); e != nil {
		return 0, *e
	}
	f.writes++
	f.synced = false
	f.data = append(f.data, p...)
	return len(p), nil
}

func (f *memFile) Sync() error {
	f.synced = true
	return nil
}
func (f *memFile) Size() (int64, error)      { return int64(len(f.data)), nil }
func (f *memFile) Truncate(n int64) error    { f.data = f.data[:n]; return nil }
func (f *memFile) Preallocate(n int64) error { return nil }
func (f *memFile) Close() error              { return nil }

// entry is one entry of the model: a sorted slice.
type entry struct {
	key   string
	trl   keys.Trailer
	value []byte
}

func compareEntries(a, b entry) int {
	return keys.Compare(keys.InternalKey{UserKey: []byte(a.key), Trailer: a.trl}, keys.InternalKey{UserKey: []byte(b.key), Trailer: b.trl})
}

func sorted(es []entry) []entry {
	slices.SortFunc(es, compareEntries)
	return slices.CompactFunc(es, func(a, b entry) bool { return compareEntries(a, b) == 0 })
}

// seed returns the seed of a randomised test: SIEVEDB_SEED, or the given one.
func seed(t testing.TB, fallback uint64) *rand.Rand {
	if s, err := strconv.ParseUint(os.Getenv("SIEVEDB_SEED"), 0, 64); err == nil {
		fallback = s
	}
	t.Logf("seed %d (SIEVEDB_SEED repeats another)", fallback)
	return rand.New(rand.NewPCG(fallback, 1))
}

func build(t testing.TB, o WriterOptions, es []entry, spans ...rangedel.Span) (*memFile, Meta) {
	t.Helper()
	f := &memFile{}
	w := NewWriter(f, o)
	for _, e := range es {
		if err := w.Add(keys.InternalKey{UserKey: []byte(e.key), Trailer: e.trl}, e.value); err != nil {
			t.Fatal(err)
		}
	}
	if spans != nil {
		if err := w.AddRangeDeletes(spans); err != nil {
			t.Fatal(err)
		}
	}
	m, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	if !f.synced || m.SizeBytes != uint64(len(f.data)) {
		t.Fatalf("synced %v, size %d of %d", f.synced, m.SizeBytes, len(f.data))
	}
	return f, m
}

func open(t testing.TB, f *memFile, m Meta, c *cache.Cache) *Reader {
	t.Helper()
	r, err := Open(f, ReaderOptions{Name: "000007.sst", Cache: c, WantSize: m.SizeBytes, WantChecksum: m.Checksum, CheckIdentity: true})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// shapes are families of user keys.
var shapes = map[string]func(r *rand.Rand, n int) []string{
	"digits": func(r *rand.Rand, n int) (ks []string) {
		for range n {
			ks = append(ks, fmt.Sprintf("user%016d", r.Uint64N(1e15)))
		}
		return ks
	},
	"binary": func(r *rand.Rand, n int) (ks []string) {
		for range n {
			k := make([]byte, r.IntN(4))
			for i := range k {
				k[i] = [...]byte{0, 1, 0x7f, 0x80, 0xfe, 0xff}[r.IntN(6)]
			}
			ks = append(ks, string(k))
		}
		return ks
	},
	"nested": func(r *rand.Rand, n int) (ks []string) {
		for i := range n {
			ks = append(ks, string(bytes.Repeat([]byte("a"), i)))
		}
		return ks
	},
	"urls": func(r *rand.Rand, n int) (ks []string) {
		for range n {
			ks = append(ks, fmt.Sprintf("https://example.org/%s/%d", [...]string{"a", "articles", "articles/new"}[r.IntN(3)], r.IntN(n)))
		}
		return ks
	},
	"huge": func(r *rand.Rand, n int) (ks []string) {
		long := bytes.Repeat([]byte("k"), MaxUserKeyLen-2)
		for i := range min(n, 8) {
			ks = append(ks, string(long)+strconv.Itoa(10+i))
		}
		return append(ks, "", "k", "zz", string(bytes.Repeat([]byte("z"), MaxUserKeyLen)))
	},
}

func modelEntries(r *rand.Rand, ks []string) (es []entry) {
	for _, k := range ks {
		versions := 1
		if r.IntN(4) == 0 {
			versions = 1 + r.IntN(6)
		}
		if r.IntN(60) == 0 {
			versions = 80
		}
		for range versions {
			kind := keys.KindPut
			var v []byte
			if r.IntN(5) == 0 {
				kind = keys.KindDelete
			} else {
				v = bytes.Repeat([]byte{byte(r.Uint32())}, r.IntN(60))
			}
			seq := keys.SeqNum(r.Uint64N(1000))
			if r.IntN(50) == 0 {
				seq = keys.MaxSeqNum - seq
			}
			es = append(es, entry{k, keys.MakeTrailer(seq, kind), v})
		}
	}
	return sorted(es)
}

func modelGet(es []entry, key string, snapshot keys.SeqNum) (entry, bool) {
	i, _ := slices.BinarySearchFunc(es, entry{key: key, trl: keys.SeekTrailer(snapshot)}, compareEntries)
	if i < len(es) && es[i].key == key {
		return es[i], true
	}
	return entry{}, false
}

func optionSets() (sets []WriterOptions) {
	for _, size := range []int{1, 64, 300, 4096, MaxBlockSizeBytes} {
		for _, c := range []Compression{NoCompression, SnappyCompression} {
			sets = append(sets, WriterOptions{FileNum: 7, BlockSize: size, Compression: c, FilterMillibits: 10_000, VerifyFilter: true})
		}
	}
	return append(sets, WriterOptions{FileNum: 7, BlockSize: 256})
}

func TestModel(t *testing.T) {
	for name, shape := range shapes {
		t.Run(name, func(t *testing.T) {
			rnd := seed(t, 11)
			es := modelEntries(rnd, shape(rnd, 150))
			for _, o := range optionSets() {
				f, m := build(t, o, es)
				r := open(t, f, m, cache.New(256<<10))
				label := fmt.Sprintf("block size %d, %s", o.BlockSize, o.Compression)
				checkMeta(t, r, m, es)
				checkGets(t, label, rnd, r, es)
				for _, noFill := range []bool{false, true} {
					checkIter(t, label, rnd, r, es, noFill)
				}
				if err := r.Verify(); err != nil {
					t.Fatalf("%s: %v", label, err)
				}
			}
		})
	}
}

func checkMeta(t *testing.T, r *Reader, m Meta, es []entry) {
	t.Helper()
	var raw, deletes uint64
	users := map[string]bool{}
	lo, hi := keys.MaxSeqNum, keys.SeqNum(0)
	for _, e := range es {
		raw += uint64(len(e.key) + len(e.value))
		users[e.key] = true
		if e.trl.Kind() == keys.KindDelete {
			deletes++
		}
		lo, hi = min(lo, e.trl.SeqNum()), max(hi, e.trl.SeqNum())
	}
	want := Meta{
		FileNum: 7, SizeBytes: m.SizeBytes, Checksum: m.Checksum,
		Bounds:  Bounds{Smallest: []byte(es[0].key), Largest: []byte(es[len(es)-1].key), SmallestSeq: lo, LargestSeq: hi},
		Entries: uint64(len(es)), Deletes: deletes, UserKeys: uint64(len(users)), RawBytes: raw,
		FilterBytes: m.FilterBytes, Properties: m.Properties,
	}
	if fmt.Sprintf("%+v", m) != fmt.Sprintf("%+v", want) {
		t.Fatalf("meta\n%.2000s\nwant\n%.2000s", fmt.Sprintf("%+v", m), fmt.Sprintf("%+v", want))
	}
	if got := fmt.Sprintf("%+v", *r.Properties()); got != fmt.Sprintf("%+v", m.Properties) {
		t.Fatalf("properties\n%.2000s\nwant\n%.2000s", got, fmt.Sprintf("%+v", m.Properties))
	}
}

// probes returns keys that are there and keys next to them.
func probes(rnd *rand.Rand, es []entry) (ps []string) {
	for i := 0; i < len(es); i += 1 + rnd.IntN(3) {
		k := es[i].key
		ps = append(ps, k, k+"\x00", k+"\xff")
		if k != "" {
			ps = append(ps, k[:len(k)-1], k[:len(k)-1]+string(rune(k[len(k)-1]+1)))
		}
	}
	return append(ps, "", "\xff\xff\xff\xff\xff\xff\xff\xff\xff")
}

func checkGets(t *testing.T, label string, rnd *rand.Rand, r *Reader, es []entry) {
	t.Helper()
	for _, p := range probes(rnd, es) {
		h := filter.Hash([]byte(p))
		for _, snap := range []keys.SeqNum{0, 1, keys.SeqNum(rnd.Uint64N(1000)), 999, keys.MaxSeqNum} {
			want, ok := modelGet(es, p, snap)
			got, err := r.Get([]byte("dst"), []byte(p), h, snap)
			if err != nil {
				t.Fatalf("%s: %v", label, err)
			}
			if got.OK != ok || ok && (got.Trailer != want.trl || string(got.Value) != "dst"+string(want.value)) {
				t.Fatalf("%s: Get(%.50q, %d) = %v %s %q, want %v %s %q", label, p, snap, got.OK, got.Trailer, got.Value, ok, want.trl, want.value)
			}
			// A key that is there, but newer than the snapshot, is no false positive.
			if _, there := modelGet(es, p, keys.MaxSeqNum); got.HasKey != there {
				t.Fatalf("%s: Get(%.50q, %d) has the key: %v, want %v", label, p, snap, got.HasKey, there)
			}
			has, err := r.Has([]byte(p), h, snap)
			if err != nil || has.OK != got.OK || has.Trailer != got.Trailer || has.Value != nil {
				t.Fatalf("%s: Has(%.50q, %d) = %+v, %v", label, p, snap, has, err)
			}
			r.PrefetchFilter(h)
			if may, _ := r.MayContain(h); ok && !may {
				t.Fatalf("%s: the filter denies %.50q", label, p)
			}
		}
	}
}

func checkIter(t *testing.T, label string, rnd *rand.Rand, r *Reader, es []entry, noFill bool) {
	t.Helper()
	var st IterStats
	it := r.NewIter(IterOptions{Stats: &st, NoFill: noFill})
	pos := -1
	check := func(op string, ok bool) {
		t.Helper()
		wantOK := pos >= 0 && pos < len(es)
		if ok != wantOK || it.Valid() != wantOK || it.Error() != nil {
			t.Fatalf("%s: %s: %v, Valid %v, want %v at %d of %d, error %v", label, op, ok, it.Valid(), wantOK, pos, len(es), it.Error())
		}
		if ok && (string(it.Key().UserKey) != es[pos].key || it.Key().Trailer != es[pos].trl || !bytes.Equal(it.Value(), es[pos].value)) {
			t.Fatalf("%s: %s: at %.60s %q, want %.60q#%s %q", label, op, it.Key(), it.Value(), es[pos].key, es[pos].trl, es[pos].value)
		}
	}
	for ok := it.First(); ; ok = it.Next() {
		pos++
		check("Next", ok)
		if !ok {
			break
		}
	}
	if it.Prev() || it.Next() {
		t.Fatalf("%s: moved from the end", label)
	}
	pos = len(es)
	for ok := it.Last(); ; ok = it.Prev() {
		pos--
		check("Prev", ok)
		if !ok {
			break
		}
	}
	for _, p := range probes(rnd, es) {
		for _, trl := range []keys.Trailer{keys.SeekTrailer(keys.MaxSeqNum), keys.SeekTrailer(keys.SeqNum(rnd.Uint64N(1000))), 0} {
			at, _ := slices.BinarySearchFunc(es, entry{key: p, trl: trl}, compareEntries)
			pos = at
			check("SeekGE", it.SeekGE([]byte(p), trl))
			for range rnd.IntN(4) {
				if pos < len(es) && it.Valid() {
					pos++
					check("Next", it.Next())
				}
			}
			pos = at - 1
			check("SeekLT", it.SeekLT([]byte(p), trl))
			for range rnd.IntN(4) {
				if it.Valid() {
					pos--
					check("Prev", it.Prev())
				}
			}
		}
	}
	if err := it.Close(); err != nil {
		t.Fatal(err)
	}
	if it.First() || it.Close() != nil {
		t.Fatalf("%s: moved after Close", label)
	}
	it.Reset(r, IterOptions{Stats: &st, NoFill: noFill})
	if it.Valid() || it.Next() || it.Prev() {
		t.Fatalf("%s: on an entry after Reset", label)
	}
	pos = len(es) - 1
	check("Last", it.Last())
	if err := it.Close(); err != nil {
		t.Fatal(err)
	}
	if r.cache.Metrics().PinnedBytes != 0 {
		t.Fatalf("%s: blocks stay pinned", label)
	}
}

// A value of a megabyte, in the middle of small ones, and versions of one key
// over many blocks.
func TestLargeValuesAndManyVersions(t *testing.T) {
	var es []entry
	for i := range 50 {
		es = append(es, entry{fmt.Sprintf("a%02d", i), keys.MakeTrailer(5, keys.KindPut), []byte("small")})
	}
	es = append(es, entry{"a25x", keys.MakeTrailer(9, keys.KindPut), bytes.Repeat([]byte("v"), 1<<20)})
	for s := range 2000 {
		es = append(es, entry{"b", keys.MakeTrailer(keys.SeqNum(2*s), keys.KindPut), []byte(strconv.Itoa(s))})
	}
	es = sorted(es)
	for _, o := range optionSets() {
		f, m := build(t, o, es)
		r := open(t, f, m, cache.New(8<<20))
		step := keys.SeqNum(7)
		if o.BlockSize < 300 { // a lookup goes from block to block: keep it short
			step = 401
		}
		for s := keys.SeqNum(0); s < 4100; s += step {
			want, ok := modelGet(es, "b", s)
			got, err := r.Get(nil, []byte("b"), filter.Hash([]byte("b")), s)
			if err != nil || got.OK != ok || string(got.Value) != string(want.value) {
				t.Fatalf("Get at %d: %v %q %v, want %q", s, got.OK, got.Value, err, want.value)
			}
		}
		// The iterator over all versions; the seeks of checkIter over some.
		it := r.NewIter(IterOptions{NoFill: o.BlockSize == 4096})
		n := 0
		for ok := it.First(); ok; ok = it.Next() {
			if it.Key().Trailer != es[n].trl || !bytes.Equal(it.Value(), es[n].value) {
				t.Fatalf("entry %d is %s", n, it.Key())
			}
			n++
		}
		for s := keys.SeqNum(1); s < 4000; s += 397 {
			at, _ := slices.BinarySearchFunc(es, entry{key: "b", trl: keys.SeekTrailer(s)}, compareEntries)
			if !it.SeekLT([]byte("b"), keys.SeekTrailer(s)) || it.Key().Trailer != es[at-1].trl {
				t.Fatalf("SeekLT(b, %d) at %s", s, it.Key())
			}
			if !it.SeekGE([]byte("b"), keys.SeekTrailer(s)) || it.Key().Trailer != es[at].trl {
				t.Fatalf("SeekGE(b, %d) at %s", s, it.Key())
			}
		}
		if err := it.Close(); err != nil || n != len(es) {
			t.Fatalf("%d entries of %d, %v", n, len(es), err)
		}
		got, err := r.Get(nil, []byte("a25x"), filter.Hash([]byte("a25x")), 9)
		if err != nil || len(got.Value) != 1<<20 {
			t.Fatalf("large value: %d bytes, %v", len(got.Value), err)
		}
	}
}

func TestAddRefuses(t *testing.T) {
	put := func(k string, seq keys.SeqNum) keys.InternalKey { return keys.Make([]byte(k), seq, keys.KindPut) }
	for name, c := range map[string]struct {
		o     WriterOptions
		first []keys.InternalKey
		bad   keys.InternalKey
	}{
		"lower user key":  {first: []keys.InternalKey{put("b", 1)}, bad: put("a", 1)},
		"same key":        {first: []keys.InternalKey{put("b", 1)}, bad: put("b", 1)},
		"newer version":   {first: []keys.InternalKey{put("b", 1)}, bad: put("b", 2)},
		"long key":        {bad: put(string(make([]byte, MaxUserKeyLen+1)), 1)},
		"merge":           {bad: keys.Make([]byte("a"), 1, keys.KindMerge)},
		"block size":      {o: WriterOptions{BlockSize: MaxBlockSizeBytes + 1}, bad: put("a", 1)},
		"negative size":   {o: WriterOptions{BlockSize: -1}, bad: put("a", 1)},
		"filter bits":     {o: WriterOptions{FilterMillibits: 1}, bad: put("a", 1)},
		"no such packing": {o: WriterOptions{Compression: 9}, bad: put("a", 1)},
	} {
		w := NewWriter(&memFile{}, c.o)
		for _, k := range c.first {
			if err := w.Add(k, nil); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		err := w.Add(c.bad, nil)
		if err == nil {
			t.Errorf("%s: added", name)
		}
		if _, again := w.Finish(); !errors.Is(again, err) {
			t.Errorf("%s: Finish forgot the error: %v", name, again)
		}
	}
	if _, err := NewWriter(&memFile{}, WriterOptions{}).Finish(); err == nil {
		t.Error("an empty table was finished")
	}
}

func TestWriteAndReadErrorsPassThrough(t *testing.T) {
	cause := errors.New("no space")
	f := &memFile{}
	f.fail.Store(&cause)
	w := NewWriter(f, WriterOptions{})
	if err := w.Add(keys.Make([]byte("a"), 1, keys.KindPut), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Finish(); !errors.Is(err, cause) {
		t.Fatalf("Finish: %v", err)
	}

	f, m := build(t, WriterOptions{FilterMillibits: 10_000}, []entry{{"a", keys.MakeTrailer(1, keys.KindPut), nil}})
	r := open(t, f, m, nil)
	f.fail.Store(&cause)
	if _, err := r.Get(nil, []byte("a"), filter.Hash([]byte("a")), 1); !errors.Is(err, cause) || isCorrupt(err) {
		t.Fatalf("Get: %v", err)
	}
	it := r.NewIter(IterOptions{})
	if it.First() || !errors.Is(it.Error(), cause) || !errors.Is(it.Close(), cause) {
		t.Fatalf("iterator: %v", it.Error())
	}
	// The filter is tried once and then matches all.
	if may, consulted := r.MayContain(12345); !may || consulted {
		t.Fatalf("MayContain: %v %v", may, consulted)
	}
	f.fail.Store(nil)
	if s, err := r.LoadFilter(); s != FilterBad || !errors.Is(err, cause) {
		t.Fatalf("LoadFilter: %s %v", s, err)
	}
	if _, err := Open(f, ReaderOptions{WantSize: m.SizeBytes, WantChecksum: m.Checksum + 1, CheckIdentity: true}); !errors.Is(err, corrupt.ErrCorrupt) {
		t.Fatalf("another table: %v", err)
	}
}
