package rangedel

import (
	"fmt"
	"math/bits"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"sievedb/internal/iter/itertest"
	"sievedb/internal/keys"
)

func fill(t testing.TB, in []Tombstone) *Log {
	t.Helper()
	l := &Log{}
	for _, tombstone := range in {
		if err := l.Add(tombstone); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// logBits is the number of levels of nodes over n tombstones, rounded up.
func logBits(n int) int {
	return (bits.Len(uint(n/leafLen)) + 1) / bits.Len(uint(fanOut-1))
}

// However many tombstones overlap, the log stays O(n log n): its nodes are
// counted, the boundaries in them, and every byte allocated on the way.
func TestLogMany(t *testing.T) {
	for _, shape := range shapes {
		t.Run(shape.name, func(t *testing.T) {
			in := tombstonesOf(shape.key)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			l := fill(t, in)
			runtime.ReadMemStats(&after)
			allocated := (after.TotalAlloc - before.TotalAlloc) / many

			s := l.state.Load()
			nodes, boundaries := 0, 0
			var count func(nodes []*node)
			count = func(list []*node) {
				for _, n := range list {
					nodes++
					boundaries += len(n.ats)
					count(n.children)
				}
			}
			count(s.roots)
			t.Logf("%d roots, %d nodes, %d boundaries; %d bytes a tombstone kept, %d allocated",
				len(s.roots), nodes, boundaries, l.SizeBytes()/many, allocated)
			levels := logBits(many)
			if len(s.roots) > levels*(fanOut-1) {
				t.Errorf("%d roots, want at most %d", len(s.roots), levels*(fanOut-1))
			}
			if most := many / leafLen * fanOut / (fanOut - 1); nodes > most {
				t.Errorf("%d nodes, want at most %d", nodes, most)
			}
			if most := 2 * many * levels; boundaries > most {
				t.Errorf("%d boundaries, want at most %d", boundaries, most)
			}
			if l.SizeBytes() > 500*many {
				t.Errorf("%d bytes a tombstone", l.SizeBytes()/many)
			}
			if allocated > 2000 {
				t.Errorf("%d bytes allocated a tombstone", allocated)
			}
			// At every snapshot a sample of keys has the right answer.
			rnd := itertest.Rand(t)
			m := model(in)
			for range 20 {
				key := fmt.Appendf(nil, "key-%08d", rnd.IntN(2*many))
				snapshot := keys.SeqNum(rnd.IntN(many + 2))
				if got, want := l.Covering(key, snapshot), m.covering(key, snapshot); got != want {
					t.Fatalf("Covering(%q, %d) = %d, want %d", key, snapshot, got, want)
				}
			}
		})
	}
}

// What the newest hide takes nothing in the nodes above.
func TestLogForgetsWhatIsHidden(t *testing.T) {
	l := fill(t, tombstonesOf(func(i int) (int, int) { return many - i, many + i + 1 }))
	for _, n := range l.state.Load().roots {
		if len(n.ats) != 2 {
			t.Errorf("a node of %d tombstones, each hidden by the next, has %d boundaries", n.len(), len(n.ats))
		}
	}
}

func TestLogAccounts(t *testing.T) {
	l := &Log{}
	if l.Len() != 0 || l.SizeBytes() != 0 || l.All() != nil {
		t.Error("an empty log has something")
	}
	in := parse(t, "a-c1 c-a2 b-b3 d-e0 b-d4")
	l = fill(t, in)
	if got := fmt.Sprint(l.All()); got != fmt.Sprint(parse(t, "a-c1 b-d4")) {
		t.Errorf("the log holds %s", got)
	}
	size := l.SizeBytes()
	if size < 2*56 || size > 2*56+4*firstKeyBytes {
		t.Errorf("%d bytes for two tombstones", size)
	}
	big := Tombstone{Start: []byte("x"), End: []byte("y" + strings.Repeat("y", 3*keyChunkBytes)), Seq: 9}
	if err := l.Add(big); err != nil {
		t.Fatal(err)
	}
	if got := l.SizeBytes() - size; got < 3*keyChunkBytes || got > 4*keyChunkBytes {
		t.Errorf("%d bytes more for a key of %d", got, len(big.End))
	}
	big.End[0] = 'a' // the log has a copy
	if l.Covering([]byte("xx"), 9) != 9 {
		t.Error("the log kept the caller's key")
	}
	for _, seq := range []keys.SeqNum{9, 8} {
		err := l.Add(Tombstone{Start: []byte("k"), End: []byte("l"), Seq: seq})
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf(`["k", "l"): sequence number %d after 9`, seq)) {
			t.Errorf("sequence number %d after 9: %v", seq, err)
		}
	}
}

// Readers beside the writer find every tombstone up to the number that was
// published, and none beyond their snapshot. (Run with -race.)
func TestLogConcurrently(t *testing.T) {
	const n = 3000
	l := &Log{}
	var published atomic.Uint64
	key := func(i int) []byte { return fmt.Appendf(nil, "k%05d", i) }
	var readers sync.WaitGroup
	for range 4 {
		rnd := itertest.Rand(t)
		readers.Go(func() {
			for {
				visible := int(published.Load())
				if visible == n {
					return
				}
				// Tombstone i covers the keys i..2i-1, so key k is last
				// covered by tombstone k.
				k := 1 + rnd.IntN(n)
				want := keys.SeqNum(0)
				if last := min(k, visible); k < 2*last {
					want = keys.SeqNum(last)
				}
				if got := l.Covering(key(k), keys.SeqNum(visible)); got != want {
					t.Errorf("Covering(%d, %d) = %d, want %d", k, visible, got, want)
					return
				}
				if st := l.StretchAt(key(k), keys.SeqNum(visible)); st.Seq != want {
					t.Errorf("StretchAt(%d, %d) = %+v, want %d", k, visible, st, want)
					return
				}
				if got := len(l.All()); got < visible || l.SizeBytes() < 0 {
					t.Errorf("%d of %d tombstones", got, visible)
					return
				}
			}
		})
	}
	for i := 1; i <= n; i++ {
		if err := l.Add(Tombstone{Start: key(i), End: key(2 * i), Seq: keys.SeqNum(i)}); err != nil {
			t.Error(err)
		}
		published.Store(uint64(i))
	}
	published.Store(n)
	readers.Wait()
}
