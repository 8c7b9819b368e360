package sstable

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"sievedb/filter"
	"sievedb/internal/iter"
	"sievedb/internal/keys"
	"sievedb/sstable/internal/block"
)

// A file that somebody made, with every checksum right and keys that are not
// where the index has them, is damage: seeks that the index leads backwards
// would send a scan in circles.
func TestMisplacedKeys(t *testing.T) {
	f := &memFile{}
	w := NewWriter(f, WriterOptions{FileNum: 7, FilterMillibits: 10_000})
	del := func(userKey string, seq keys.SeqNum) {
		key := keys.Make([]byte(userKey), seq, keys.KindDelete)
		w.lastHash = filter.Hash(key.UserKey)
		w.props.UserKeys++
		w.filter.Add(w.lastHash)
		w.block.Add(key.UserKey, key.Trailer, nil, byte(w.lastHash))
		w.count(key, nil)
	}
	del("c", 1)
	if err := w.finishBlock(iter.Block{}); err != nil {
		t.Fatal(err)
	}
	if err := w.addPending([]byte("m")); err != nil {
		t.Fatal(err)
	}
	for seq := keys.SeqNum(20); seq > 0; seq-- {
		del("b", seq)
	}
	w.lastKey, w.props.SmallestKey = []byte("z"), []byte("b")
	m, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	for _, noFill := range []bool{false, true} {
		r, err := Open(f, ReaderOptions{Name: "000007.sst", WantSize: m.SizeBytes, WantChecksum: m.Checksum, CheckIdentity: true})
		if err != nil {
			t.Fatal(err)
		}
		v := iter.NewVisible(iter.NewMerging(r.NewIter(IterOptions{NoFill: noFill})), iter.VisibleOptions{Snapshot: 100})
		if v.First() || !isCorrupt(v.Err()) {
			t.Errorf("a scan over misplaced keys: %v", v.Err())
		}
	}
}

// A block is let through if a search of the index for its first key leads to it, or
// to where more versions of that key may be, and one for its last key not past it.
func TestBlocksAreWhereTheIndexHasThem(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	random := func(prefix []byte) []byte {
		key := bytes.Clone(prefix[:max(0, len(prefix)-rng.IntN(3)*rng.IntN(2))])
		for range rng.IntN(3) * rng.IntN(8) {
			key = append(key, "\x00ab\xff"[rng.IntN(4)])
		}
		return key
	}
	let, refused := 0, 0
	for range 200 {
		prefix := bytes.Repeat([]byte{'p'}, rng.IntN(2)*rng.IntN(140))
		var separators [][]byte
		for range 1 + rng.IntN(9) {
			separators = append(separators, append(bytes.Clone(prefix), random(nil)...))
		}
		slices.SortFunc(separators, bytes.Compare)
		var b indexBuilder
		for _, s := range separators {
			if err := b.add(s, 100, 0); err != nil {
				t.Fatal(err)
			}
		}
		x, err := readIndex(b.finish(nil), uint64(100*len(separators)))
		if err != nil {
			t.Fatal(err)
		}
		for range 200 {
			ends := [][]byte{random(prefix), random(prefix)}
			for i := range ends {
				if rng.IntN(3) == 0 {
					ends[i] = separators[rng.IntN(len(separators))]
				}
			}
			slices.SortFunc(ends, bytes.Compare)
			var bb block.Builder
			bb.Reset(4096)
			for i, key := range ends {
				bb.Add(key, keys.MakeTrailer(keys.SeqNum(9-i), keys.KindDelete), nil, 0)
			}
			r := &Reader{index: x, props: &Properties{SmallestKey: ends[0]}}
			i := rng.IntN(x.n())
			at, _ := x.find(ends[0])
			last, _ := x.find(ends[1])
			want := (at >= i || x.endsWith(i-1, ends[0])) && last <= i
			err := r.validate(i, bb.Finish(nil))
			if (err == nil) != want || err != nil && !isCorrupt(err) {
				t.Fatalf("%q as block %d behind separators %q: %v", ends, i, separators, err)
			}
			if want {
				let++
			} else {
				refused++
			}
		}
	}
	if let < 1000 || refused < 1000 {
		t.Errorf("%d blocks were let through, %d refused", let, refused)
	}
}
