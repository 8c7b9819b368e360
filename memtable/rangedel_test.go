package memtable

import (
	"bytes"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cespare/xxhash/v2"

	"sievedb/internal/keys"
)

func deleteRange(t testing.TB, tab *Table, lo, hi []byte, seq keys.SeqNum) {
	t.Helper()
	if err := tab.Add(lo, 0, keys.MakeTrailer(seq, keys.KindRangeDelete), hi); err != nil {
		t.Fatal(err)
	}
}

// A range tombstone alone makes a memtable something that has to be flushed.
func TestOnlyARangeDelete(t *testing.T) {
	tab := New(Options{})
	empty := tab.SizeBytes()
	if tab.RangeDeletes() != nil || tab.Covering([]byte("k"), keys.MaxSeqNum) != 0 {
		t.Error("an empty table has range tombstones")
	}
	deleteRange(t, tab, []byte("a"), []byte("m"), 5)
	if tab.Empty() || tab.Len() != 1 || tab.Deletes() != 0 || tab.UserKeys() != 0 || tab.SmallestSeq() != 5 || tab.LargestSeq() != 5 {
		t.Errorf("empty %v, %d entries, %d to %d", tab.Empty(), tab.Len(), tab.SmallestSeq(), tab.LargestSeq())
	}
	if got := tab.SizeBytes() - empty; got != int64(tab.RangeDeletes().SizeBytes()) || got == 0 {
		t.Errorf("it takes %d bytes", got)
	}
	var lock countingLock
	if it := tab.NewIter(&lock, keys.MaxSeqNum); it.First() || it.Last() || lock != 0 {
		t.Error("an iterator shows it, or needed a clone")
	}
	deleteRange(t, tab, []byte("x"), nil, 6)
	for key, want := range map[string]keys.SeqNum{"": 0, "a": 5, "l": 5, "m": 0, "x": 6, "\xff\xff": 6} {
		if got := tab.Covering([]byte(key), keys.MaxSeqNum); got != want {
			t.Errorf("%q is covered by %d, want %d", key, got, want)
		}
		if seq, ok := tab.NewestSeq([]byte(key), xxhash.Sum64String(key)); seq != want || ok != (want > 0) {
			t.Errorf("the newest of %q is %d, %v", key, seq, ok)
		}
	}
	if got := tab.Covering([]byte("y"), 5); got != 0 {
		t.Errorf("a tombstone beyond the snapshot covers: %d", got)
	}
}

// LargestPoint promises nothing beyond what an iterator shows.
func TestLargestPoint(t *testing.T) {
	tab := New(Options{})
	step := func(want keys.SeqNum) {
		t.Helper()
		if got := tab.LargestPoint(); got != want {
			t.Errorf("%d, want %d", got, want)
		}
	}
	step(0)
	put(t, tab, []byte("k"), 3, nil)
	step(3)
	deleteRange(t, tab, []byte("a"), []byte("z"), 7)
	step(6)
	deleteRange(t, tab, []byte("a"), []byte("b"), 8)
	step(7)
	put(t, tab, []byte("k"), 9, nil)
	step(9)
}

// Readers beside the writer find each range tombstone at and above the number
// that was published, and the point entries as before. (Run with -race.)
func TestRangeDeletesConcurrently(t *testing.T) {
	const n = 2000
	tab := New(Options{})
	var published atomic.Uint64
	key := func(i uint64) []byte { return fmt.Appendf(nil, "k%05d", i) }
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			for visible := uint64(0); visible < 2*n; {
				visible = published.Load()
				if visible < 2 {
					continue
				}
				i := visible / 2 // put at 2i-1, deleted at 2i with all before it
				seq := keys.SeqNum(2 * i)
				if got := tab.Covering(key(i), seq); got != seq {
					t.Errorf("key %d is covered by %d", i, got)
					return
				}
				_, trailer, ok := tab.Get(key(i), xxhash.Sum64(key(i)), seq)
				if !ok || trailer.SeqNum() != seq-1 || tab.Covering(key(i), seq-1) != 0 || tab.LargestPoint() < seq-1 {
					t.Errorf("key %d: %s, %v", i, trailer, ok)
					return
				}
			}
		})
	}
	for i := uint64(1); i <= n; i++ {
		put(t, tab, key(i), keys.SeqNum(2*i-1), nil)
		deleteRange(t, tab, nil, append(bytes.Clone(key(i)), 0), keys.SeqNum(2*i))
		published.Store(2 * i)
	}
	readers.Wait()
}

// A table without range tombstones pays one load and one branch.
func BenchmarkCovering(b *testing.B) {
	for _, n := range []int{0, 1, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			tab := New(Options{})
			for i := range n {
				deleteRange(b, tab, fmt.Appendf(nil, "k%07d", i), fmt.Appendf(nil, "k%07d", i+1000), keys.SeqNum(i+1))
			}
			key := []byte("k0050000")
			b.ReportAllocs()
			for b.Loop() {
				tab.Covering(key, keys.MaxSeqNum)
			}
		})
	}
}
