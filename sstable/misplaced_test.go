package sstable

import (
	"testing"

	"sievedb/filter"
	"sievedb/internal/iter"
	"sievedb/internal/keys"
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
	if err := w.finishBlock(); err != nil {
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
