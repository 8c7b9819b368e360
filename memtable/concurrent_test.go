package memtable

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cespare/xxhash/v2"

	"sievedb/internal/keys"
)

// history is a sequence of writes that can be computed instead of stored:
// every fourth sequence number overwrites one of eight hot keys in turn, the
// others each bring a user key of their own.
type history struct{}

func (history) key(s keys.SeqNum) []byte {
	if s%4 == 0 {
		return fmt.Appendf(nil, "hot%d", s/4%8)
	}
	return fmt.Appendf(nil, "key%08d", uint64(s)*7919%100_003)
}

func (history) value(s keys.SeqNum) []byte { return fmt.Appendf(nil, "value of %d", s) }

// newest returns the newest version of the key of s that is visible at v, or
// zero.
func (history) newest(s, v keys.SeqNum) keys.SeqNum {
	if s%4 != 0 {
		if s > v {
			return 0
		}
		return s
	}
	slot, turn := s/4%8, v/4
	for turn > 0 && turn%8 != slot {
		turn--
	}
	return turn * 4
}

// TestConcurrentReaders runs gets and iterators beside the writer, across
// every growth of arena, index and tree, and across Freeze.
func TestConcurrentReaders(t *testing.T) {
	const writes = 30_000
	var (
		h       history
		tab     = New(Options{})
		commit  sync.Mutex
		visible atomic.Uint64
		done    atomic.Bool
		wg      sync.WaitGroup
	)
	wg.Go(func() {
		defer done.Store(true)
		for s := keys.SeqNum(1); s <= writes; s++ {
			k := h.key(s)
			commit.Lock()
			err := tab.Add(k, xxhash.Sum64(k), keys.MakeTrailer(s, keys.KindPut), h.value(s))
			visible.Store(uint64(s))
			commit.Unlock()
			if err != nil {
				t.Error(err)
				return
			}
		}
		commit.Lock()
		tab.Freeze()
		commit.Unlock()
	})
	for range 2 {
		rng := testSeed(t)
		wg.Go(func() {
			for ok, last := true, false; ok && !last; {
				last = done.Load()
				for range 200 {
					ok = ok && readOne(t, h, tab, rng, keys.SeqNum(visible.Load()), writes)
				}
			}
		})
		wg.Go(func() {
			for ok, last := true, false; ok && !last; {
				last = done.Load()
				ok = scanSome(t, h, tab, rand.New(rand.NewPCG(visible.Load(), 1)), &commit, keys.SeqNum(visible.Load()))
			}
		})
	}
	wg.Wait()
	if !scanAll(t, h, tab.NewIter(nil, keys.MaxSeqNum), writes) || tab.Len() != writes {
		t.Fatalf("%d entries after the last write, want %d", tab.Len(), writes)
	}
}

// readOne checks one Get at the visible sequence number v.
func readOne(t *testing.T, h history, tab *Table, rng *rand.Rand, v keys.SeqNum, writes int) bool {
	s := keys.SeqNum(1 + rng.IntN(writes))
	want := h.newest(s, v)
	k := h.key(s)
	value, trailer, ok := tab.Get(k, xxhash.Sum64(k), v)
	if ok != (want != 0) || ok && (trailer.SeqNum() != want || !bytes.Equal(value, h.value(want))) {
		t.Errorf("Get(%q, %d) = %q#%s, %v, want version %d", k, v, value, trailer, ok, want)
		return false
	}
	return true
}

// scanSome checks short scans in both directions at the visible sequence
// number v, and now and then a whole one.
func scanSome(t *testing.T, h history, tab *Table, rng *rand.Rand, commit *sync.Mutex, v keys.SeqNum) bool {
	if rng.IntN(10) == 0 { // all there is, published or not
		it := tab.NewIter(commit, keys.MaxSeqNum)
		return it.bound.SeqNum() >= v && scanAll(t, h, it, it.bound.SeqNum())
	}
	it := tab.NewIter(commit, v)
	for range 10 {
		s := keys.SeqNum(1 + rng.IntN(int(v)+1))
		want := h.newest(s, v)
		ok := it.SeekGE(h.key(s), keys.SeekTrailer(v))
		if want != 0 && (!ok || it.Key().Trailer.SeqNum() != want || !bytes.Equal(it.Value(), h.value(want))) {
			t.Errorf("SeekGE(%q, %d) misses version %d", h.key(s), v, want)
			return false
		}
		forward := rng.IntN(2) == 0
		for range rng.IntN(100) {
			if !ok {
				break
			}
			before := it.Key()
			if forward {
				ok = it.Next()
			} else {
				ok = it.Prev()
			}
			if ok && (keys.Compare(before, it.Key()) < 0) != forward || ok && !it.Key().Trailer.Visible(v) {
				t.Errorf("from %s to %s (forward %v, visible %d)", before, it.Key(), forward, v)
				return false
			}
		}
	}
	return true
}

// scanAll checks that a scan shows v entries, in order and with their values.
func scanAll(t *testing.T, h history, it *Iter, v keys.SeqNum) bool {
	var n keys.SeqNum
	var before keys.InternalKey
	for ok := it.First(); ok; ok = it.Next() {
		k := it.Key()
		if n++; n > 1 && keys.Compare(before, k) >= 0 {
			t.Errorf("%s before %s", before, k)
			return false
		}
		if s := k.Trailer.SeqNum(); !bytes.Equal(k.UserKey, h.key(s)) || !bytes.Equal(it.Value(), h.value(s)) {
			t.Errorf("%s has value %q", k, it.Value())
			return false
		}
		before = k
	}
	if n != v {
		t.Errorf("scan at %d shows %d entries", v, n)
	}
	return n == v
}

// TestSharedPivots lets more iterators search at a time than there are pivots,
// over keys too few to have a base, so that each compare reads a pivot.
func TestSharedPivots(t *testing.T) {
	tab := New(Options{})
	for i := range minRekey - 1 {
		put(t, tab, fmt.Appendf(nil, "all alike %d", i), keys.SeqNum(i), nil)
	}
	tab.Freeze()
	var wg sync.WaitGroup
	for n := range 4 * len(tab.pivots) {
		it := tab.NewIter(nil, keys.MaxSeqNum)
		wg.Go(func() {
			for i := range 2000 {
				k := fmt.Appendf(nil, "all alike %d", (i*7+n)%(minRekey-1))
				if !it.SeekGE(k, keys.SeekTrailer(keys.MaxSeqNum)) || !bytes.Equal(it.Key().UserKey, k) {
					t.Errorf("SeekGE(%q) misses it", k)
					return
				}
			}
		})
	}
	wg.Wait()
}
