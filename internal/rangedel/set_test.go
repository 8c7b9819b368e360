package rangedel

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"sievedb/internal/iter/itertest"
	"sievedb/internal/keys"
)

// upTo returns 0, 1, …, n and the largest snapshot.
func upTo(n int) []keys.SeqNum {
	out := []keys.SeqNum{keys.MaxSeqNum}
	for i := range n + 1 {
		out = append(out, keys.SeqNum(i))
	}
	return out
}

// runOf cuts spans at random keys, as tables do, and returns their run.
func runOf(rnd *rand.Rand, spans []Span, prefix string) *Run {
	var sets []*Set
	var lo []byte
	for i := 0; i < len(universe); i += 1 + rnd.IntN(len(universe)) {
		hi := append([]byte(prefix), universe[i]...)
		sets = append(sets, NewSet(Truncate(spans, lo, hi)))
		lo = hi
	}
	return NewRun(append(sets, NewSet(Truncate(spans, lo, nil))))
}

// All sources agree with the model at every key and every snapshot.
func TestSourcesEqualModel(t *testing.T) {
	rnd := itertest.Rand(t)
	for _, prefix := range []string{"", "pre", "a prefix of more than eight bytes"} {
		for range 15 {
			n := rnd.IntN(50)
			m := model(prefixed(prefix, randomTombstones(rnd, n, 1)))
			spans := Fragment(m, upTo(n)[1:]) // keeps all
			set, log := NewSet(spans), &Log{}
			for _, tombstone := range m {
				if err := log.Add(tombstone); err != nil {
					t.Fatal(err)
				}
			}
			if show(set.Spans()) != show(spans) {
				t.Fatalf("the set holds %s, want %s", show(set.Spans()), show(spans))
			}
			checkSource(t, "set", set, m, prefix, upTo(n))
			checkSource(t, "run", runOf(rnd, spans, prefix), m, prefix, upTo(n))
			checkSource(t, "log", log, m, prefix, upTo(n))
			if prefix == "" {
				continue
			}
			for _, key := range []string{"", prefix[:len(prefix)-1], "0", "z", prefix[:len(prefix)-1] + "\xff"} {
				if got, want := set.Covering([]byte(key), keys.MaxSeqNum), m.covering([]byte(key), keys.MaxSeqNum); got != want {
					t.Fatalf("Covering(%q) = %d, want %d", key, got, want)
				}
			}
		}
	}
}

func TestEmptySet(t *testing.T) {
	if NewSet(nil) != nil || NewRun([]*Set{nil, nil}) != nil {
		t.Error("an empty set or run is not nil")
	}
	var s *Set
	if s.Covering([]byte("k"), 9) != 0 || s.Len() != 0 || s.SizeBytes() != 0 || s.Largest() != 0 || s.Spans() != nil {
		t.Error("a nil set has something")
	}
	for name, source := range map[string]Source{"set": s, "run": (*Run)(nil), "log": &Log{}} {
		for _, st := range []Stretch{source.StretchAt([]byte("k"), 9), source.StretchBefore([]byte("k"), 9)} {
			if st.Start != nil || st.End != nil || st.Seq != 0 {
				t.Errorf("%s: %+v", name, st)
			}
		}
	}
}

func TestSetAccounts(t *testing.T) {
	s := NewSet(Fragment(parse(t, "b-e5 c-d7 g-k6"), []keys.SeqNum{5}))
	start, end := s.Bounds()
	if string(start) != "b" || string(end) != "k" || s.Len() != 6 || s.Largest() != 7 {
		t.Errorf("[%s, %s), %d boundaries, largest %d", start, end, s.Len(), s.Largest())
	}
	s = NewSet(Fragment(parse(t, "b-e5 d-~7"), nil))
	if start, end := s.Bounds(); string(start) != "b" || end != nil || s.Len() != 2 {
		t.Errorf("[%s, %s), %d boundaries", start, end, s.Len())
	}
	in := tombstonesOf(func(i int) (int, int) { return i, i + 1000 })
	s = NewSet(Fragment(in, nil))
	// A boundary has 12 bytes of key, its head, two ends, and a number.
	if most := (many + 1) * (12 + 8 + 2*8 + 8 + 4); s.SizeBytes() > most {
		t.Errorf("%d bytes, want at most %d", s.SizeBytes(), most)
	}
	if allocs := testing.AllocsPerRun(1, func() { NewSet(s.Spans()) }); allocs > 200 {
		t.Errorf("%v allocations for %d spans: not those of a few arrays", allocs, many)
	}
}

func TestLookupsDoNotAllocate(t *testing.T) {
	in := tombstonesOf(func(i int) (int, int) { return i, i + 7 })[:5000]
	spans := Fragment(in, nil)
	set, log := NewSet(spans), &Log{}
	for _, tombstone := range in {
		if err := log.Add(tombstone); err != nil {
			t.Fatal(err)
		}
	}
	run := NewRun([]*Set{set})
	key := []byte("key-00002345")
	for name, ask := range map[string]func() keys.SeqNum{
		"set":        func() keys.SeqNum { return set.Covering(key, many) },
		"log":        func() keys.SeqNum { return log.Covering(key, many) },
		"set at":     func() keys.SeqNum { return set.StretchAt(key, many).Seq },
		"run before": func() keys.SeqNum { return run.StretchBefore(key, many).Seq },
		"log at":     func() keys.SeqNum { return log.StretchAt(key, 3000).Seq },
		"log before": func() keys.SeqNum { return log.StretchBefore(key, 2344).Seq },
	} {
		if ask() == 0 {
			t.Errorf("%s: not covered", name)
		}
		if n := testing.AllocsPerRun(20, func() { ask() }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func ExampleSet() {
	set := NewSet(Fragment([]Tombstone{{Start: []byte("a"), End: []byte("m"), Seq: 5}}, nil))
	fmt.Println(set.Covering([]byte("c"), 9), set.Covering([]byte("c"), 4), set.Covering([]byte("m"), 9))
	// Output: 5 0 0
}
