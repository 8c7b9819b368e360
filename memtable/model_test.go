package memtable

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/cespare/xxhash/v2"

	"sievedb/internal/keys"
)

// entry is what the model holds of an Add.
type entry struct {
	key   keys.InternalKey
	value []byte
}

// model is a memtable that is too simple to be wrong: a sorted slice.
type model []entry

func (m *model) add(e entry) {
	i, _ := slices.BinarySearchFunc(*m, e.key, func(a entry, k keys.InternalKey) int { return keys.Compare(a.key, k) })
	*m = slices.Insert(*m, i, e)
}

// at returns the entries that are visible at snapshot.
func (m model) at(snapshot keys.SeqNum) model {
	var out model
	for _, e := range m {
		if e.key.Trailer.Visible(snapshot) {
			out = append(out, e)
		}
	}
	return out
}

// search returns the position of the first entry at or after k.
func (m model) search(k keys.InternalKey) int {
	i, _ := slices.BinarySearchFunc(m, k, func(a entry, k keys.InternalKey) int { return keys.Compare(a.key, k) })
	return i
}

// testSeed returns the seed of a randomised test: that of SIEVEDB_SEED, or a
// fresh one. It is printed when the test fails.
func testSeed(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("SIEVEDB_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("SIEVEDB_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// modelKeys are the ways in which the model test makes user keys. Each is one
// that inline prefixes could get wrong.
var modelKeys = map[string]func(rng *rand.Rand) []byte{
	"few":       func(rng *rand.Rand) []byte { return fmt.Appendf(nil, "%d", rng.IntN(5)) },
	"digits":    func(rng *rand.Rand) []byte { return fmt.Appendf(nil, "%016d", rng.IntN(2000)) },
	"two bytes": func(rng *rand.Rand) []byte { return []byte{byte(rng.Uint32()), byte(rng.Uint32())}[:rng.IntN(3)] },
	"prefixes":  func(rng *rand.Rand) []byte { return bytes.Repeat([]byte("a"), rng.IntN(400)) },
	"zeros":     func(rng *rand.Rand) []byte { return make([]byte, rng.IntN(300)) },
	"ones":      func(rng *rand.Rand) []byte { return bytes.Repeat([]byte{0xff}, rng.IntN(300)) },
	"base and odd": func(rng *rand.Rand) []byte {
		if rng.IntN(10) == 0 {
			return []byte("https://example.org/")[:rng.IntN(21)]
		}
		return fmt.Appendf(nil, "https://example.org/%d", rng.IntN(1000))
	},
	"moving base": func() func(rng *rand.Rand) []byte {
		n := 0
		return func(*rand.Rand) []byte { n++; return fmt.Appendf(nil, "%04d%08d", n/300, n) }
	}(),
}

// TestModel runs random operations on a table and on the model.
func TestModel(t *testing.T) {
	for name, makeKey := range modelKeys {
		t.Run(name, func(t *testing.T) {
			rng := testSeed(t)
			tab := New(Options{SizeHintBytes: 1 << (10 + rng.IntN(12))})
			var m model
			var lock sync.Mutex
			type held struct {
				it   *Iter
				want model
			}
			var iters []held
			seq := keys.SeqNum(rng.IntN(2))
			for range 1500 {
				kind := keys.KindPut
				if rng.IntN(4) == 0 {
					kind = keys.KindDelete
				}
				k, v := makeKey(rng), make([]byte, rng.IntN(200))
				for i := range v {
					v[i] = byte(rng.Uint32())
				}
				e := entry{key: keys.Make(k, seq, kind), value: v}
				if err := tab.Add(k, xxhash.Sum64(k), e.key.Trailer, v); err != nil {
					t.Fatal(err)
				}
				m.add(entry{key: e.key.Clone(), value: bytes.Clone(v)})
				for i := range v {
					v[i] = 0 // Add copied it
				}
				seq += keys.SeqNum(1 + rng.IntN(2))
				if rng.IntN(100) == 0 {
					snapshot := seq - keys.SeqNum(rng.IntN(int(seq)+1))
					if rng.IntN(2) == 0 {
						snapshot = keys.MaxSeqNum
					}
					iters = append(iters, held{tab.NewIter(&lock, snapshot), m.at(snapshot)})
				}
			}
			checkCounts(t, tab, m)
			checkGets(t, rng, tab, m, seq)
			tab.Freeze()
			iters = append(iters, held{tab.NewIter(nil, keys.MaxSeqNum), m}, held{tab.NewIter(nil, seq/2), m.at(seq / 2)})
			for _, h := range iters {
				checkScan(t, h.it, h.want)
				checkWalk(t, rng, h.it, h.want, func() keys.InternalKey {
					if len(h.want) > 0 && rng.IntN(2) == 0 {
						k := h.want[rng.IntN(len(h.want))].key
						k.Trailer += keys.Trailer(rng.IntN(3)) - 1
						return k
					}
					if rng.IntN(8) == 0 {
						return keys.InternalKey{UserKey: m[rng.IntN(len(m))].key.UserKey}
					}
					return keys.Make(makeKey(rng), keys.SeqNum(rng.IntN(int(seq)+2)), keys.KindSeek)
				})
			}
		})
	}
}

func checkCounts(t *testing.T, tab *Table, m model) {
	t.Helper()
	var deletes, userKeys int64
	smallest, largest := keys.MaxSeqNum, keys.SeqNum(0)
	for i, e := range m {
		if e.key.Trailer.Kind() == keys.KindDelete {
			deletes++
		}
		if i == 0 || !bytes.Equal(e.key.UserKey, m[i-1].key.UserKey) {
			userKeys++
			got, ok := tab.NewestSeq(e.key.UserKey, xxhash.Sum64(e.key.UserKey))
			if !ok || got != e.key.Trailer.SeqNum() {
				t.Fatalf("NewestSeq(%q) = %d, %v, want %d", e.key.UserKey, got, ok, e.key.Trailer.SeqNum())
			}
		}
		smallest, largest = min(smallest, e.key.Trailer.SeqNum()), max(largest, e.key.Trailer.SeqNum())
	}
	got := []int64{tab.Len(), tab.Deletes(), tab.UserKeys(), int64(tab.SmallestSeq()), int64(tab.LargestSeq())}
	want := []int64{int64(len(m)), deletes, userKeys, int64(smallest), int64(largest)}
	if !slices.Equal(got, want) || tab.Empty() {
		t.Fatalf("entries, deletes, user keys, smallest, largest = %d, want %d; empty %v", got, want, tab.Empty())
	}
}

// checkGets compares Get for every user key, and some absent ones, at random
// snapshots and at each side of every version.
func checkGets(t *testing.T, rng *rand.Rand, tab *Table, m model, seq keys.SeqNum) {
	t.Helper()
	check := func(userKey []byte, snapshot keys.SeqNum) {
		value, trailer, ok := tab.Get(userKey, xxhash.Sum64(userKey), snapshot)
		i := m.search(keys.InternalKey{UserKey: userKey, Trailer: keys.SeekTrailer(snapshot)})
		want := i < len(m) && bytes.Equal(m[i].key.UserKey, userKey)
		if ok != want {
			t.Fatalf("Get(%q, %d): found %v, want %v", userKey, snapshot, ok, want)
		}
		if ok && (trailer != m[i].key.Trailer || !bytes.Equal(value, m[i].value)) {
			t.Fatalf("Get(%q, %d) = %q#%s, want %s %q", userKey, snapshot, value, trailer, m[i].key, m[i].value)
		}
	}
	for _, e := range m {
		s := e.key.Trailer.SeqNum()
		check(e.key.UserKey, s)
		if s > 0 {
			check(e.key.UserKey, s-1)
		}
		check(e.key.UserKey, keys.SeqNum(rng.Uint64N(uint64(seq)+2)))
		check(append([]byte("x"), e.key.UserKey...), keys.MaxSeqNum)
		check(append(bytes.Clone(e.key.UserKey), 0), keys.MaxSeqNum)
	}
}

// checkScan compares whole scans in both directions.
func checkScan(t *testing.T, it *Iter, want model) {
	t.Helper()
	n := 0
	for ok := it.First(); ok; ok = it.Next() {
		checkEntry(t, it, want, n)
		n++
	}
	if n != len(want) {
		t.Fatalf("forward scan of %d entries, want %d", n, len(want))
	}
	for ok := it.Last(); ok; ok = it.Prev() {
		n--
		checkEntry(t, it, want, n)
	}
	if n != 0 {
		t.Fatalf("backward scan left out %d entries", n)
	}
	if it.Valid() || it.Next() || it.Prev() {
		t.Fatal("an iterator off the end moved")
	}
}

// checkWalk compares a random walk.
func checkWalk(t *testing.T, rng *rand.Rand, it *Iter, want model, target func() keys.InternalKey) {
	t.Helper()
	pos := -1 // on no entry: -1 or len(want)
	for range 1000 {
		var got bool
		var op string
		switch n := rng.IntN(40); {
		case n == 0:
			op, got, pos = "First", it.First(), 0
		case n == 1:
			op, got, pos = "Last", it.Last(), len(want)-1
		case n < 5:
			k := target()
			op, got, pos = "SeekGE "+k.String(), it.SeekGE(k.UserKey, k.Trailer), want.search(k)
		case n < 8:
			k := target()
			op, got, pos = "SeekLT "+k.String(), it.SeekLT(k.UserKey, k.Trailer), want.search(k)-1
		case pos < 0 || pos >= len(want):
			continue
		case n < 25:
			op, got, pos = "Next", it.Next(), pos+1
		default:
			op, got, pos = "Prev", it.Prev(), pos-1
		}
		if on := pos >= 0 && pos < len(want); got != on || it.Valid() != on {
			t.Fatalf("%s = %v, valid %v, want %v (position %d of %d)", op, got, it.Valid(), on, pos, len(want))
		} else if on {
			checkEntry(t, it, want, pos)
		}
	}
	if err := it.Error(); err != nil {
		t.Fatal(err)
	}
}

func checkEntry(t *testing.T, it *Iter, want model, pos int) {
	t.Helper()
	if pos < 0 || pos >= len(want) {
		t.Fatalf("on %s, beyond the %d entries", it.Key(), len(want))
	}
	if keys.Compare(it.Key(), want[pos].key) != 0 || !bytes.Equal(it.Value(), want[pos].value) {
		t.Fatalf("entry %d of %d is %s %x, want %s %x", pos, len(want), it.Key(), it.Value(), want[pos].key, want[pos].value)
	}
}
