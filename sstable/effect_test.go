package sstable

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"

	"sievedb/filter"
	"sievedb/internal/cache"
	"sievedb/internal/corrupt"
	"sievedb/internal/keys"
)

// What a lookup or a scan costs, counted exactly: reads, blocks, allocations.

func numbered(n int) (es []entry) {
	for i := range n {
		es = append(es, entry{fmt.Sprintf("user%012d", 2*i), keys.MakeTrailer(keys.SeqNum(i), keys.KindPut), bytes.Repeat([]byte{byte(i)}, 100)})
	}
	return es
}

func TestOpenReads(t *testing.T) {
	for n, want := range map[int]int64{10: 1, 100_000: 2} {
		f, m := build(t, WriterOptions{FileNum: 7, FilterMillibits: 10_000}, numbered(n))
		r := open(t, f, m, nil)
		if got := f.reads.Load(); got != want {
			t.Errorf("%d entries: %d reads to open, want %d", n, got, want)
		}
		if r.FilterState() != FilterUnread || r.FilterBytes() != 0 {
			t.Errorf("open read the filter")
		}
		if s, err := r.LoadFilter(); s != FilterResident || err != nil || f.reads.Load() != want+1 {
			t.Errorf("LoadFilter: %s, %v, %d reads", s, err, f.reads.Load())
		}
		if r.MayContain(1); f.reads.Load() != want+1 || uint64(r.FilterBytes()) != m.FilterBytes {
			t.Errorf("filter of %d bytes, want %d; %d reads", r.FilterBytes(), m.FilterBytes, f.reads.Load())
		}
	}
}

func TestGetCountsBlocks(t *testing.T) {
	es := numbered(1000)
	f, m := build(t, WriterOptions{FileNum: 7, FilterMillibits: 10_000}, es)
	r := open(t, f, m, cache.New(1<<20))
	before := f.reads.Load()
	for round, want := range [][2]int{{0, 1}, {1, 0}} {
		got, err := r.Get(nil, []byte(es[500].key), filter.Hash([]byte(es[500].key)), keys.MaxSeqNum)
		if err != nil || got.BlocksCached != want[0] || got.BlocksRead != want[1] {
			t.Fatalf("round %d: %+v, %v", round, got, err)
		}
	}
	// Beyond the last separator no block is looked at.
	got, err := r.Get(nil, []byte("zzz"), filter.Hash([]byte("zzz")), keys.MaxSeqNum)
	if err != nil || got.BlocksCached+got.BlocksRead != 0 {
		t.Fatalf("past the end: %+v, %v", got, err)
	}
	if n := f.reads.Load() - before; n != 1 {
		t.Fatalf("%d reads", n)
	}
	if n := r.cache.Metrics().HintHits; n != 1 {
		t.Fatalf("%d hits by hint", n)
	}
	// The last key of a block whose separator it is: one block, too.
	for i := range es {
		got, err := r.Get(nil, []byte(es[i].key), filter.Hash([]byte(es[i].key)), keys.MaxSeqNum)
		if err != nil || !got.OK || got.BlocksCached+got.BlocksRead != 1 {
			t.Fatalf("%q: %+v, %v", es[i].key, got, err)
		}
	}
}

// With the filter an absent key within range reads a block about as often as
// the predicted rate says; without it always. The answers are the same.
func TestFilterEffect(t *testing.T) {
	es := numbered(20_000)
	on, mOn := build(t, WriterOptions{FileNum: 7, FilterMillibits: 10_000}, es)
	off, mOff := build(t, WriterOptions{FileNum: 7}, es)
	with, without := open(t, on, mOn, nil), open(t, off, mOff, nil)
	maybes := 0
	for i := range len(es) - 1 {
		key := fmt.Appendf(nil, "user%012d", 2*i+1)
		h := filter.Hash(key)
		may, consulted := with.MayContain(h)
		if !consulted {
			t.Fatal("the filter was not asked")
		}
		if may {
			maybes++
		}
		if may, consulted := without.MayContain(h); !may || consulted {
			t.Fatalf("no filter: %v, %v", may, consulted)
		}
		if f, err := without.Get(nil, key, h, keys.MaxSeqNum); err != nil || f.OK || f.BlocksRead != 1 {
			t.Fatalf("Get(%q): %+v, %v", key, f, err)
		}
	}
	expected := mOn.Properties.FilterRate * float64(len(es)-1)
	if got := float64(maybes); got > expected*1.4 || got < expected*0.6 {
		t.Errorf("%d false positives, predicted %.1f", maybes, expected)
	}
	if mOff.FilterBytes != 0 || mOff.Properties.FilterKind != filter.KindNone {
		t.Errorf("%+v", mOff)
	}
}

func TestScanReads(t *testing.T) {
	es := numbered(40_000)
	f, m := build(t, WriterOptions{FileNum: 7}, es)
	r := open(t, f, m, cache.New(16<<20))
	data := int64(m.Properties.DataBytes)
	scan := func(o IterOptions, forward bool) (st IterStats, reads int64) {
		o.Stats = &st
		before := f.reads.Load()
		it := r.NewIter(o)
		n := 0
		if forward {
			for ok := it.First(); ok; ok = it.Next() {
				n++
			}
		} else {
			for ok := it.Last(); ok; ok = it.Prev() {
				n++
			}
		}
		if err := it.Close(); err != nil || n != len(es) {
			t.Fatalf("%d entries, %v", n, err)
		}
		return st, f.reads.Load() - before
	}
	blocks := m.Properties.DataBlocks

	// A compaction: reads of 256 KiB, cut at the end of the last whole block.
	st, reads := scan(IterOptions{NoFill: true}, true)
	if most := data/(maxAheadBytes-8<<10) + 1; st.BlocksRead != blocks || reads > most {
		t.Errorf("private: %+v, %d reads, want at most %d", st, reads, most)
	}
	if got := r.cache.Metrics().Blocks; got != 0 {
		t.Errorf("private: %d blocks in the cache", got)
	}
	// Backwards without a cache reads each block once, alone.
	if st, reads = scan(IterOptions{NoFill: true}, false); uint64(reads) != blocks || st.BlocksRead != blocks {
		t.Errorf("private, backward: %+v, %d reads of %d blocks", st, reads, blocks)
	}
	// A scan: two blocks alone, then 64, 128, 256, 256 … KiB.
	st, reads = scan(IterOptions{}, true)
	if most := 2 + 2 + (data-192<<10)/(maxAheadBytes-8<<10) + 1; st.BlocksRead != blocks || st.BlocksCached != 0 || reads > most || reads < 5 {
		t.Errorf("scan: %+v, %d reads, want at most %d", st, reads, most)
	}
	if st.BytesRead > uint64(data)+uint64(reads)*(8<<10) {
		t.Errorf("scan: %d bytes read of %d", st.BytesRead, data)
	}
	// Everything is cached now, both ways.
	for _, forward := range []bool{true, false} {
		if st, reads = scan(IterOptions{}, forward); reads != 0 || st.BlocksCached != blocks {
			t.Errorf("cached scan: %+v, %d reads", st, reads)
		}
	}
	r.EvictBlocks()
	if _, ok := r.cached(0); ok {
		t.Errorf("an evicted block is in the cache")
	}
}

func TestAllocations(t *testing.T) {
	es := numbered(5000)
	f, m := build(t, WriterOptions{FileNum: 7, FilterMillibits: 10_000}, es)
	r := open(t, f, m, cache.New(8<<20))
	dst := make([]byte, 0, 256)
	present, absent := []byte(es[777].key), []byte(es[777].key+"x")
	it := r.NewIter(IterOptions{})
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() { // fills the cache
	}
	for name, f := range map[string]func(){
		"present":  func() { r.Get(dst, present, filter.Hash(present), keys.MaxSeqNum) },
		"absent":   func() { r.Get(dst, absent, filter.Hash(absent), keys.MaxSeqNum) },
		"filtered": func() { r.MayContain(filter.Hash(absent)) },
		"seek":     func() { it.SeekGE(present, keys.SeekTrailer(1000)); it.Next(); it.Prev() },
		"scan": func() {
			for ok := it.First(); ok; ok = it.Next() {
			}
		},
	} {
		if n := testing.AllocsPerRun(20, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// discard is a file of which only the size is kept.
type discard struct{ memFile }

func (d *discard) Write(p []byte) (int, error) { return len(p), nil }

func TestAddDoesNotAllocate(t *testing.T) {
	for _, c := range []Compression{NoCompression, SnappyCompression} {
		w := NewWriter(&discard{}, WriterOptions{FileNum: 7, Compression: c})
		key := []byte("user000000000000")
		value := bytes.Repeat([]byte("v"), 100)
		n := 0
		add := func() {
			for range 1000 {
				n++
				for i, v := len(key)-1, n; v > 0; i, v = i-1, v/10 {
					key[i] = byte('0' + v%10)
				}
				if err := w.Add(keys.Make(key, 1, keys.KindPut), value); err != nil {
					t.Fatal(err)
				}
			}
		}
		for range 40 {
			add()
		}
		// The index grows by doubling: less than one allocation in a thousand.
		if got := testing.AllocsPerRun(40, add); got > 1 {
			t.Errorf("%s: %v allocations for 1000 entries", c, got)
		}
	}
}

func TestEstimatedSize(t *testing.T) {
	f := &memFile{}
	w := NewWriter(f, WriterOptions{FileNum: 7, FilterMillibits: 10_000})
	for _, e := range numbered(10_000) {
		if err := w.Add(keys.InternalKey{UserKey: []byte(e.key), Trailer: e.trl}, e.value); err != nil {
			t.Fatal(err)
		}
	}
	est := float64(w.EstimatedSize())
	m, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	if got := float64(m.SizeBytes); est < got*0.99 || est > got*1.01 {
		t.Errorf("estimated %.0f, got %.0f", est, got)
	}
	if f.writes > len(f.data)/writeChunkBytes+1 {
		t.Errorf("%d writes for %d bytes", f.writes, len(f.data))
	}
	r := open(t, f, m, nil)
	if a, z := r.ApproximateOffset(nil), r.ApproximateOffset([]byte("z")); a != 0 || z != m.Properties.DataBytes {
		t.Errorf("offsets from %d to %d", a, z)
	}
	if mid := r.ApproximateOffset([]byte("user000000010000")); mid < m.Properties.DataBytes*49/100 || mid > m.Properties.DataBytes*51/100 {
		t.Errorf("the middle is at %d of %d", mid, m.Properties.DataBytes)
	}
}

// A key that undoes the prefix that all others share must not push offsets
// past 16 bits.
func TestPrefixThatShrinks(t *testing.T) {
	var es []entry
	for i := range 20 {
		es = append(es, entry{string(bytes.Repeat([]byte("k"), 60_000)) + fmt.Sprint(10+i), keys.MakeTrailer(1, keys.KindPut), nil})
	}
	es = append(es, entry{"kz", keys.MakeTrailer(1, keys.KindPut), nil})
	f, m := build(t, WriterOptions{FileNum: 7, BlockSize: MaxBlockSizeBytes, FilterMillibits: 10_000}, es)
	if m.Properties.DataBlocks != 2 || m.SizeBytes > 70_000*2 {
		t.Errorf("%d blocks, %d bytes", m.Properties.DataBlocks, m.SizeBytes)
	}
	if err := answers(open(t, f, m, nil), es); err != nil {
		t.Fatal(err)
	}
}

func TestConcurrentReaders(t *testing.T) {
	es := numbered(3000)
	f, m := build(t, WriterOptions{FileNum: 7, Compression: SnappyCompression, FilterMillibits: 10_000}, es)
	c := cache.New(64 << 10) // a fifth of the table: evictions all the time
	r := open(t, f, m, c)
	var wg sync.WaitGroup
	errs := make(chan error, 8)
	for g := range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range 1500 {
				e := es[(i*37+g*991)%len(es)]
				h := filter.Hash([]byte(e.key))
				may, consulted := r.MayContain(h)
				got, err := r.Get(nil, []byte(e.key), h, keys.MaxSeqNum)
				if err != nil || !may || !consulted || !bytes.Equal(got.Value, e.value) {
					errs <- fmt.Errorf("%q: %v %v %+v %w", e.key, may, consulted, got, err)
					return
				}
			}
			it := r.NewIter(IterOptions{NoFill: g%2 == 0})
			n := 0
			for ok := it.First(); ok; ok = it.Next() {
				if !bytes.Equal(it.Value(), es[n].value) {
					errs <- fmt.Errorf("entry %d: %s", n, it.Key())
					return
				}
				n++
			}
			if err := it.Close(); err != nil || n != len(es) {
				errs <- fmt.Errorf("%d entries: %w", n, err)
			}
		}()
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
	if got := c.Metrics().PinnedBytes; got != 0 {
		t.Errorf("%d bytes stay pinned", got)
	}
}

// A filter of no keys says no to everything, so it must not be believed of a
// table that has some.
func TestEmptyFilterIsNotBelieved(t *testing.T) {
	f := &memFile{}
	w := NewWriter(f, WriterOptions{FileNum: 7, FilterMillibits: 10_000})
	if err := w.Add(keys.Make([]byte("a"), 1, keys.KindPut), nil); err != nil {
		t.Fatal(err)
	}
	w.filter.Release()
	m, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	r := open(t, f, m, nil)
	if may, consulted := r.MayContain(filter.Hash([]byte("a"))); !may || consulted {
		t.Errorf("MayContain: %v, %v", may, consulted)
	}
	s, err := r.LoadFilter()
	if s != FilterBad {
		t.Errorf("filter %s", s)
	}
	located(t, err, len(f.data))
}

// Verify finds what a writer with a bug would produce: structure and checksums
// are right, the content is not.
func TestVerifyFindsWriterBugs(t *testing.T) {
	es := smallEntries()
	for name, spoil := range map[string]func(w *Writer){
		"tag": func(w *Writer) {
			key := keys.Make([]byte("zz"), 1, keys.KindPut)
			h := filter.Hash(key.UserKey)
			w.filter.Add(h)
			w.block.Add(key.UserKey, key.Trailer, nil, byte(h)^1)
			w.props.UserKeys++
			w.count(key, nil)
		},
		"filter":      func(w *Writer) { w.filter.Release(); w.filter.Add(42) },
		"filter keys": func(w *Writer) { w.filter.Add(42) },
		"entries":     func(w *Writer) { w.props.Entries++ },
		"deletes":     func(w *Writer) { w.props.Deletes++ },
		"sequence":    func(w *Writer) { w.props.LargestSeq++ },
		"smallest":    func(w *Writer) { w.props.SmallestKey = []byte("a") },
	} {
		f := &memFile{}
		w := NewWriter(f, WriterOptions{FileNum: 7, FilterMillibits: 10_000})
		for _, e := range es {
			if err := w.Add(keys.InternalKey{UserKey: []byte(e.key), Trailer: e.trl}, e.value); err != nil {
				t.Fatal(err)
			}
		}
		spoil(w)
		m, err := w.Finish()
		if err != nil {
			t.Fatal(err)
		}
		r := open(t, f, m, nil)
		if err := r.Verify(); !errors.Is(err, corrupt.ErrCorrupt) {
			t.Errorf("%s: Verify says %v", name, err)
		}
	}
}

// manglingFile spoils what it was given to write, once it has it.
type manglingFile struct{ memFile }

func (f *manglingFile) Write(p []byte) (int, error) {
	defer spoil(p)
	return f.memFile.Write(p)
}

func spoil(p []byte) {
	for i := range p {
		p[i] ^= 0xa5
	}
}

// A file may do what it likes with the bytes that it is given: neither a filter
// nor a block is written from them again.
func TestMangledOutput(t *testing.T) {
	for _, kind := range []filter.Kind{filter.KindBlocked, filter.KindStandard, filter.KindFuse} {
		f := &manglingFile{}
		w := NewWriter(f, WriterOptions{FileNum: 7, FilterMillibits: 10_000, SizeFilter: sizeOf(kind), VerifyFilter: true})
		for _, e := range numbered(filter.MinFuseKeys) {
			if err := w.Add(keys.InternalKey{UserKey: []byte(e.key), Trailer: e.trl}, e.value); err != nil {
				t.Fatal(err)
			}
		}
		m, err := w.Finish()
		if err != nil {
			t.Fatal(err)
		}
		if err := open(t, &f.memFile, m, nil).Verify(); err != nil || m.Properties.FilterKind != kind {
			t.Errorf("%v: %v, %v", kind, m.Properties.FilterKind, err)
		}
	}
}
