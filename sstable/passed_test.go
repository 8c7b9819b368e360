package sstable

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"sievedb/compaction"
	"sievedb/internal/iter"
	"sievedb/internal/keys"
	"sievedb/internal/rangedel"
	"sievedb/sstable/internal/block"
)

// mergeTo writes what m shows, the inputs of m being in, to a table.
func mergeTo(t *testing.T, o WriterOptions, in *iter.Merging, m compaction.MergeOptions) (*memFile, Meta) {
	t.Helper()
	f := &memFile{}
	w := NewWriter(f, o)
	merger := compaction.NewMerger(in, m)
	for ok := merger.First(); ok; ok = merger.Next() {
		if err := w.Add(merger.Key(), merger.Value()); err != nil {
			t.Fatal(err)
		}
	}
	if merger.Error() != nil {
		t.Fatal(merger.Error())
	}
	meta, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := open(t, f, meta, nil).Verify(); err != nil {
		t.Fatal(err)
	}
	return f, meta
}

// merged returns the merging iterator over tables of es, newest first.
func merged(t *testing.T, o WriterOptions, tables ...[]entry) *iter.Merging {
	t.Helper()
	var its []iter.Iterator
	for _, es := range tables {
		f, m := build(t, o, es)
		its = append(its, open(t, f, m, nil).NewIter(IterOptions{NoFill: true}))
	}
	return iter.NewMerging(its...)
}

// halfRandom returns n bytes that snappy halves, or cannot compress.
func halfRandom(rng *rand.Rand, n int, compressible bool) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
		if compressible {
			b[i] = b[i-i%40+i%20]
		}
	}
	return b
}

// series returns n puts from the key of number from on, every step-th.
func series(rng *rand.Rand, from, step, n, valueLen int, compressible bool) (es []entry) {
	for i := range n {
		es = append(es, entry{fmt.Sprintf("key%08d", from+i*step), keys.MakeTrailer(keys.SeqNum(100+i), keys.KindPut), halfRandom(rng, valueLen, compressible)})
	}
	return es
}

// A table of which every entry survives comes out of a compaction byte for byte as it
// went in, and none of its full blocks is compressed again.
func TestBlocksArePassed(t *testing.T) {
	rng := seed(t, 11)
	for _, valueLen := range []int{70_000, 5000, 1000, 100} {
		for _, c := range []Compression{NoCompression, SnappyCompression} {
			for _, compressible := range []bool{false, true} {
				o := WriterOptions{FileNum: 7, Compression: c, FilterMillibits: 10_000}
				es := series(rng, 0, 1, 201, valueLen, compressible)
				want, _ := build(t, o, es)
				in := merged(t, o, es)
				o.Source = in
				got, m := mergeTo(t, o, in, compaction.MergeOptions{})
				full := m.Properties.DataBlocks
				if valueLen < 5000 {
					full-- // the last one is not
				}
				if !bytes.Equal(got.data, want.data) || m.PassedBlocks != full {
					t.Errorf("values of %d, %s, compressible %v: %d of %d blocks passed, the same file: %v",
						valueLen, c, compressible, m.PassedBlocks, m.Properties.DataBlocks, bytes.Equal(got.data, want.data))
				}
			}
		}
	}
}

// What must not be passed comes out as if nothing was known of blocks.
func TestBlocksAreNotPassed(t *testing.T) {
	rng := seed(t, 12)
	from := WriterOptions{FileNum: 7, Compression: SnappyCompression, FilterMillibits: 10_000}
	for _, test := range []struct {
		name     string
		valueLen int
		change   func(o *WriterOptions)
		merge    compaction.MergeOptions
	}{
		{"other compression", 1000, func(o *WriterOptions) { o.Compression = NoCompression }, compaction.MergeOptions{}},
		{"larger blocks", 1000, func(o *WriterOptions) { o.BlockSize = 6000 }, compaction.MergeOptions{}},
		{"smaller blocks", 100, func(o *WriterOptions) { o.BlockSize = 2000 }, compaction.MergeOptions{}},
		{"blocks not much smaller", 100, func(o *WriterOptions) { o.BlockSize = 2500 }, compaction.MergeOptions{}},
		{"sequence numbers become zero", 100, func(*WriterOptions) {},
			compaction.MergeOptions{Snapshots: []keys.SeqNum{1000}, Elide: func([]byte) bool { return true }, ZeroSeq: true}},
	} {
		tables := [][]entry{series(rng, 501, 1, 3, test.valueLen, true), series(rng, 0, 100, 200, test.valueLen, true)}
		o := from
		test.change(&o)
		want, _ := mergeTo(t, o, merged(t, from, tables...), test.merge)
		in := merged(t, from, tables...)
		o.Source = in
		got, m := mergeTo(t, o, in, test.merge)
		if m.PassedBlocks != 0 || !test.merge.ZeroSeq && !bytes.Equal(got.data, want.data) { // or blocks made way in vain
			t.Errorf("%s: %d blocks passed, the same file: %v", test.name, m.PassedBlocks, bytes.Equal(got.data, want.data))
		}
	}
}

// A block that is half full makes way for one that can be passed, a smaller one
// does not: that would leave small blocks in tables.
func TestBlocksMakeWay(t *testing.T) {
	rng := seed(t, 13)
	from := WriterOptions{FileNum: 7, Compression: SnappyCompression, FilterMillibits: 10_000}
	const perBlock = 5 // entries with 1,000 bytes each
	for _, test := range []struct {
		more   int // entries of another table within the second block
		passed uint64
		blocks uint64
	}{
		{0, 20, 20}, {1, 1, 21}, {2, 1, 21}, {3, 19, 21}, {4, 19, 21},
	} {
		es := series(rng, 0, 100, 20*perBlock, 1000, true)
		more := series(rng, 100*perBlock+1, 1, test.more, 1000, true)
		tables := [][]entry{es}
		if test.more > 0 {
			tables = [][]entry{more, es}
		}
		in, o := merged(t, from, tables...), from
		o.Source = in
		f, m := mergeTo(t, o, in, compaction.MergeOptions{})
		if m.PassedBlocks != test.passed || m.Properties.DataBlocks != test.blocks {
			t.Errorf("%d more: %d of %d blocks passed, want %d of %d", test.more, m.PassedBlocks, m.Properties.DataBlocks, test.passed, test.blocks)
		}
		sameEntries(t, open(t, f, m, nil), sorted(slices.Concat(es, more)))
	}
}

func sameEntries(t *testing.T, r *Reader, want []entry) {
	t.Helper()
	it := r.NewIter(IterOptions{})
	defer it.Close()
	n := 0
	for ok := it.First(); ok; ok = it.Next() {
		if n == len(want) || want[n].key != string(it.Key().UserKey) || want[n].trl != it.Key().Trailer || !bytes.Equal(want[n].value, it.Value()) {
			t.Fatalf("entry %d is %v", n, it.Key())
		}
		n++
	}
	if it.Error() != nil || n != len(want) {
		t.Fatalf("%d entries, want %d, %v", n, len(want), it.Error())
	}
}

// Of random tables, with snapshots, tombstones and range tombstones, a compaction
// makes the same entries, properties and filter whether blocks are passed or not.
func TestPassedBlocksChangeNothing(t *testing.T) {
	rng := seed(t, 14)
	passed := uint64(0)
	for round := range 120 {
		o := WriterOptions{FileNum: 7, Compression: Compression(round % 2), FilterMillibits: 10_000, BlockSize: []int{512, 4096}[round/2%2]}
		tables, tombstones := randomTables(rng)
		snapshots := []keys.SeqNum{keys.SeqNum(rng.IntN(500)), 1000}
		m := compaction.MergeOptions{
			Snapshots: snapshots, RangeDels: rangedel.Fragment(tombstones, snapshots), ZeroSeq: round%3 > 0,
			Elide: func(userKey []byte) bool { return len(userKey)%5 > 0 },
		}
		inputs := func() *iter.Merging {
			var its []iter.Iterator
			for i, es := range tables {
				f, meta := build(t, o, es)
				it := iter.Iterator(open(t, f, meta, nil).NewIter(IterOptions{NoFill: true}))
				if i > 0 && len(tombstones) > 0 { // those of the first table hide what is in the others
					it = rangedel.NewSkipping(it, rangedel.SkippingOptions{Snapshot: snapshots[0], Newer: []rangedel.Source{rangedel.NewSet(rangedel.Fragment(tombstones, snapshots))}})
				}
				its = append(its, it)
			}
			return iter.NewMerging(its...)
		}
		plain, plainMeta := mergeTo(t, o, inputs(), m)
		o.Source = inputs()
		got, meta := mergeTo(t, o, o.Source.(*iter.Merging), m)
		passed += meta.PassedBlocks

		var want []entry
		it := open(t, plain, plainMeta, nil).NewIter(IterOptions{})
		for ok := it.First(); ok; ok = it.Next() {
			want = append(want, entry{string(it.Key().UserKey), it.Key().Trailer, bytes.Clone(it.Value())})
		}
		if err := it.Close(); err != nil {
			t.Fatal(err)
		}
		a, b := open(t, plain, plainMeta, nil), open(t, got, meta, nil)
		sameEntries(t, b, want)
		p, q := plainMeta.Properties, meta.Properties
		p.DataBlocks, p.DataBytes, p.RawBlockBytes = q.DataBlocks, q.DataBytes, q.RawBlockBytes // blocks may end elsewhere
		if fmt.Sprintf("%+v", p) != fmt.Sprintf("%+v", q) {
			t.Fatalf("round %d: properties %+v, want %+v", round, q, p)
		}
		if !bytes.Equal(plain.data[a.footer.filter.offset:a.footer.filter.end()], got.data[b.footer.filter.offset:b.footer.filter.end()]) {
			t.Fatalf("round %d: another filter", round)
		}
	}
	if passed < 1000 {
		t.Errorf("%d blocks were passed", passed)
	}
}

// randomTables returns up to four tables, newest first, with values of all sizes, and
// range tombstones of the first one.
func randomTables(rng *rand.Rand) (tables [][]entry, tombstones []rangedel.Tombstone) {
	for i := range 1 + rng.IntN(4) {
		es := []entry{{"", keys.MakeTrailer(keys.SeqNum(999-i), keys.KindPut), nil}} // so that no table is empty
		first := rng.IntN(300)
		for k := first; k < first+rng.IntN(300); k++ {
			for seq := 900 - 200*i + rng.IntN(50); ; seq-- {
				e := entry{fmt.Sprintf("%06d", k*k), keys.MakeTrailer(keys.SeqNum(seq), keys.KindPut), halfRandom(rng, []int{10, 200, 1500, 6000}[rng.IntN(4)], rng.IntN(3) > 0)}
				if rng.IntN(8) == 0 {
					e.trl, e.value = keys.MakeTrailer(keys.SeqNum(seq), keys.KindDelete), nil
				}
				es = append(es, e)
				if rng.IntN(6) > 0 {
					break
				}
			}
		}
		tables = append(tables, es)
	}
	for range rng.IntN(3) {
		lo := rng.IntN(300 * 300)
		tombstones = append(tombstones, rangedel.Tombstone{
			Start: fmt.Appendf(nil, "%06d", lo), End: fmt.Appendf(nil, "%06d", lo+1+rng.IntN(30_000)), Seq: keys.SeqNum(860 + rng.IntN(90)),
		})
	}
	return tables, tombstones
}

// spoiled is a source whose blocks went bad in memory after they were checked.
type spoiled struct{ *iter.Merging }

func (s spoiled) Block() iter.Block {
	b := s.Merging.Block()
	b.Frame = bytes.Clone(b.Frame)
	b.Frame[len(b.Frame)/2] ^= 1
	return b
}

// Damage is noticed where a block is read, or where it is read next: its checksum is
// passed with it, not made anew.
func TestPassedBlocksKeepTheirChecksum(t *testing.T) {
	o := WriterOptions{FileNum: 7, Compression: SnappyCompression}
	in := merged(t, o, series(seed(t, 15), 0, 1, 5, 5000, true))
	o.Source = spoiled{in}
	f := &memFile{}
	w := NewWriter(f, o)
	for ok := in.First(); ok; ok = in.Next() {
		if err := w.Add(in.Key(), in.Value()); err != nil {
			t.Fatal(err)
		}
	}
	m, err := w.Finish()
	if err != nil || m.PassedBlocks != 5 {
		t.Fatalf("%d blocks passed, %v", m.PassedBlocks, err)
	}
	it := open(t, f, m, nil).NewIter(IterOptions{})
	defer it.Close()
	if it.First() || !isCorrupt(it.Error()) {
		t.Errorf("a spoiled block was read: %v", it.Error())
	}
}

// Whole of an iterator, through all layers, is true only where the entries of a block
// are shown one after the other from there on, and always so unless range
// tombstones, or another version of the last user key, are near.
func TestWholeBlocks(t *testing.T) {
	rng := seed(t, 16)
	o := WriterOptions{FileNum: 7, BlockSize: 512}
	type step struct {
		data  string
		left  int
		key   string
		whole bool
	}
	said, so := 0, 0
	for range 60 {
		tables, tombstones := randomTables(rng)
		var its []iter.Iterator
		for i, es := range tables {
			f, m := build(t, o, es)
			r := open(t, f, m, nil)
			it := iter.Iterator(iter.NewConcat(singleTable{r}))
			if tombstones != nil {
				set := rangedel.NewSet(rangedel.Fragment(tombstones, nil))
				o := rangedel.SkippingOptions{Snapshot: 1000, Newer: []rangedel.Source{set}}
				if i == 0 {
					o = rangedel.SkippingOptions{Snapshot: 1000, Own: set, OwnLargest: keys.MaxSeqNum}
				}
				it = rangedel.NewSkipping(it, o)
			}
			its = append(its, it)
		}
		in := iter.NewMerging(its...)
		var steps []step
		for ok := in.First(); ok; ok = in.Next() {
			b := in.Block()
			steps = append(steps, step{string(b.Data), b.Left, string(in.Key().UserKey), in.Whole(nil)})
			if in.Whole(in.Key().UserKey) {
				t.Fatalf("%v: a whole block before its first entry", in.Key())
			}
		}
		if err := in.Close(); err != nil {
			t.Fatal(err)
		}
		for i, s := range steps {
			end, b := i+s.left, block.Of([]byte(s.data))
			whole := s.left == b.Len()-1 && end < len(steps)
			for j := i; whole && j <= end; j++ {
				whole = steps[j].data == s.data && steps[j].left == end-j
			}
			if whole && (end+1 == len(steps) || steps[end+1].key != steps[end].key) && tombstones == nil {
				so++
			}
			if s.whole {
				said++
			}
			if s.whole && !whole || whole && !s.whole && tombstones == nil && end+1 < len(steps) && steps[end+1].key != steps[end].key {
				t.Fatalf("entry %d, %q, with %d to follow: whole %v", i, s.key, s.left, s.whole)
			}
		}
	}
	if said < 1000 || so < 300 {
		t.Errorf("%d blocks were said to be whole, %d were", said, so)
	}
}

// singleTable is a run of one table.
type singleTable struct{ r *Reader }

func (s singleTable) Len() int                      { return 1 }
func (s singleTable) Find([]byte, keys.Trailer) int { return 0 }
func (s singleTable) Open(int) (iter.Iterator, error) {
	return s.r.NewIter(IterOptions{NoFill: true}), nil
}
