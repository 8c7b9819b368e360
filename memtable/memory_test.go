package memtable

import (
	"bytes"
	"runtime"
	"testing"

	"sievedb/internal/keys"
	"sievedb/internal/offheap"
)

// A table that nobody has any more leaves its memory to its iterators, and
// after them to others.
func TestMemoryGoesWithTheLastIterator(t *testing.T) {
	settled := func(want int64) int64 {
		for range 1000 {
			if offheap.Metrics().Granted == want {
				break
			}
			runtime.GC()
		}
		return offheap.Metrics().Granted
	}
	if n := settled(0); n != 0 {
		t.Fatalf("other tests left %d bytes", n)
	}
	userKeys, hashes := benchKeys(2, 20_000)
	tab := fillTable(t, userKeys, hashes)
	got, _, ok := tab.Get(userKeys[7], hashes[7], keys.MaxSeqNum)
	if !ok || len(got) != 114 {
		t.Fatal("no value")
	}
	tab.Freeze()
	it := tab.NewIter(nil, keys.MaxSeqNum)
	outside := offheap.Metrics().Granted // none where there is no such memory
	if outside != 0 && outside < tab.arena.sizeBytes.Load()*9/10 {
		t.Fatalf("%d bytes outside the heap, %d in the arena", outside, tab.arena.sizeBytes.Load())
	}
	tab.Retire()
	if n := offheap.Metrics().Retired; n != outside {
		t.Fatalf("%d bytes retired of %d", n, outside)
	}
	tab = nil
	for range 3 {
		runtime.GC()
	}
	i := 0
	for ok := it.First(); ok; ok = it.Next() {
		if !bytes.Equal(it.Key().UserKey, userKeys[i]) || len(it.Value()) != 114 {
			t.Fatalf("key %d is %q", i, it.Key().UserKey)
		}
		i++
	}
	if i != len(userKeys) {
		t.Fatalf("%d keys of %d", i, len(userKeys))
	}
	it = nil
	if n := settled(0); n != 0 {
		t.Fatalf("%d bytes that nobody can reach", n)
	}
	if m := offheap.Metrics(); m.Retired != 0 {
		t.Fatalf("freed, and still %d bytes retired", m.Retired)
	}
	t.Logf("the stale value is %q…", got[:8]) // whatever that is now
}

// An index that was made for as many keys as come does not grow.
func TestKeysHint(t *testing.T) {
	userKeys, hashes := benchKeys(0, 5000)
	tab := New(Options{SizeHintBytes: 4 << 20, KeysHint: int64(len(userKeys))})
	first := tab.index.Load()
	for i, k := range userKeys {
		if err := tab.Add(k, hashes[i], keys.MakeTrailer(keys.SeqNum(i+1), keys.KindPut), nil); err != nil {
			t.Fatal(err)
		}
	}
	if tab.index.Load() != first {
		t.Error("it grew")
	}
	if n, want := len(New(Options{SizeHintBytes: 4 << 20, KeysHint: 1 << 40}).index.Load().slots), 4<<20/8/slotBytes; n != want {
		t.Errorf("%d slots for very many keys, want %d", n, want)
	}
}
