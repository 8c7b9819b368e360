package rangedel

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"sievedb/internal/iter/itertest"
	"sievedb/internal/keys"
)

func TestFragment(t *testing.T) {
	for _, test := range []struct {
		name, in  string
		snapshots []keys.SeqNum
		want      string
	}{
		{name: "nothing"},
		{name: "one", in: "b-d5", want: "b-d5"},
		{name: "what hides nothing", in: "d-b5 c-c6 a-c0"},
		{name: "apart", in: "e-g3 b-d5", want: "b-d5 e-g3"},
		{name: "the newer inside", in: "a-z5 c-f7", want: "a-c5 c-f7 f-z5"},
		{name: "the older inside", in: "a-z7 c-f5", want: "a-z7"},
		{name: "overlapping", in: "a-d5 c-f7", want: "a-c5 c-f7"},
		{name: "adjacent parts of one", in: "a-c5 c-f5 g-h5", want: "a-f5 g-h5"},
		{name: "identical", in: "a-c5 a-c7 a-c6", want: "a-c7"},
		{name: "a snapshot between", in: "a-d5 c-f7", snapshots: []keys.SeqNum{5}, want: "a-c5 c-d7,5 d-f7"},
		{name: "a snapshot sees its own number", in: "a-d5 a-d6 a-d7", snapshots: []keys.SeqNum{6}, want: "a-d7,6"},
		{name: "snapshots without tombstones between", in: "a-d5 b-c7", snapshots: []keys.SeqNum{1, 8, 9}, want: "a-b5 b-c7 c-d5"},
		{name: "a change in the older stripe only", in: "a-z9 c-d3", snapshots: []keys.SeqNum{4}, want: "a-c9 c-d9,3 d-z9"},
		{name: "two change at one key", in: "a-c9 c-z8 a-c3 c-z2", snapshots: []keys.SeqNum{4}, want: "a-c9,3 c-z8,2"},
		{name: "one ends as an equal one begins", in: "a-c9 a-z3 c-f9", snapshots: []keys.SeqNum{4}, want: "a-f9,3 f-z3"},
		{name: "no end", in: "c-~5", want: "c-~5"},
		{name: "no end over one with", in: "a-f5 c-~7", want: "a-c5 c-~7"},
		{name: "no end under one with", in: "a-~5 c-f7", want: "a-c5 c-f7 f-~5"},
		{name: "two without end", in: "a-~5 c-~7", want: "a-c5 c-~7"},
		{name: "the older without end later", in: "a-~7 c-~5", want: "a-~7"},
		{name: "no end, and a snapshot between", in: "a-~5 c-~7 b-d9", snapshots: []keys.SeqNum{6}, want: "a-b5 b-d9,5 d-~7,5"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := show(Fragment(parse(t, test.in), test.snapshots)); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func randomSnapshots(rnd *rand.Rand, limit int) (out []keys.SeqNum) {
	for range rnd.IntN(6) {
		out = append(out, keys.SeqNum(rnd.IntN(limit)))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// checkSpans checks what every result must have: order, no overlap, and a cut
// only where something changes.
func checkSpans(t *testing.T, spans []Span) {
	t.Helper()
	for i, s := range spans {
		if !isAfter(s.End, s.Start) || len(s.Seqs) == 0 {
			t.Fatalf("span %d of %s", i, show(spans))
		}
		for j := 1; j < len(s.Seqs); j++ {
			if s.Seqs[j-1] <= s.Seqs[j] {
				t.Fatalf("span %d of %s: sequence numbers", i, show(spans))
			}
		}
		if i == 0 {
			continue
		}
		c := bytes.Compare(spans[i-1].End, s.Start)
		if spans[i-1].End == nil || c > 0 || c == 0 && slices.Equal(spans[i-1].Seqs, s.Seqs) {
			t.Fatalf("span %d of %s: overlaps the one before or continues it", i, show(spans))
		}
	}
}

// Invariant 5: at each snapshot, and at every later one, each key is covered
// exactly as before; and each span has one sequence number a stripe at most.
func TestFragmentEqualsModel(t *testing.T) {
	rnd := itertest.Rand(t)
	for range 150 {
		n := rnd.IntN(30)
		m := model(randomTombstones(rnd, n, 1))
		snapshots := randomSnapshots(rnd, n+2)
		rnd.Shuffle(n, func(i, j int) { m[i], m[j] = m[j], m[i] })
		spans := Fragment(m, snapshots)
		checkSpans(t, spans)
		for _, s := range spans {
			stripes := map[int]bool{}
			for _, seq := range s.Seqs {
				i, _ := slices.BinarySearch(snapshots, seq)
				if stripes[i] {
					t.Fatalf("two of one stripe in %s, snapshots %v", show(spans), snapshots)
				}
				stripes[i] = true
			}
		}
		wanted := append(slices.Clone(snapshots), keys.MaxSeqNum)
		checkSource(t, "fragments", NewSet(spans), m, "", wanted)
		// To cut again what was cut changes nothing, whatever the parts.
		cut := randomKey(rnd)
		var again []Tombstone
		again = AppendTombstones(again, Truncate(spans, cut, nil))
		again = AppendTombstones(again, Truncate(spans, nil, cut))
		if got := Fragment(again, snapshots); show(got) != show(spans) {
			t.Fatalf("cut at %q and together again: %s, want %s", cut, show(got), show(spans))
		}
	}
}

// However tombstones overlap, output and memory are linear, and with so many
// of them anything quadratic does not end.
func TestFragmentMany(t *testing.T) {
	for _, shape := range shapes {
		t.Run(shape.name, func(t *testing.T) {
			in := tombstonesOf(shape.key)
			for _, snapshots := range [][]keys.SeqNum{nil, {10, 1000, many / 2, many - 1}} {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				spans := Fragment(in, snapshots)
				runtime.ReadMemStats(&after)
				perTombstone := (after.TotalAlloc - before.TotalAlloc) / many
				t.Logf("%d snapshots: %d spans, %d bytes a tombstone", len(snapshots), len(spans), perTombstone)
				if len(snapshots) == 0 && shape.spans > 0 && len(spans) != shape.spans {
					t.Errorf("%d spans, want %d", len(spans), shape.spans)
				}
				seqs := 0
				for _, s := range spans {
					seqs += len(s.Seqs)
				}
				if len(spans) > 2*many || seqs > 2*many*(len(snapshots)+1) {
					t.Errorf("%d spans with %d sequence numbers", len(spans), seqs)
				}
				// Two sorted copies and a heap that grew by doubling; the
				// spans and their sequence numbers, which grew likewise.
				if limit := uint64(1500 + 100*(len(snapshots)+1)); perTombstone > limit {
					t.Errorf("%d bytes a tombstone, want at most %d", perTombstone, limit)
				}
			}
		})
	}
}

// Each tombstone in a stripe of its own, none overlapping: the output is linear
// and so must the work be, though there are as many stripes.
func TestFragmentManySnapshots(t *testing.T) {
	in := tombstonesOf(func(i int) (int, int) { return 2 * i, 2*i + 1 })
	snapshots := make([]keys.SeqNum, many)
	for i := range snapshots {
		snapshots[i] = keys.SeqNum(i + 1)
	}
	if spans := Fragment(in, snapshots); len(spans) != many {
		t.Errorf("%d spans, want %d", len(spans), many)
	}
}

func TestTruncate(t *testing.T) {
	spans := Fragment(parse(t, "b-e5 c-d7 g-k6"), []keys.SeqNum{5})
	const all = "b-c5 c-d7,5 d-e5 g-k6"
	for _, test := range []struct{ lo, hi, want string }{
		{"", "", all}, {"a", "z", all}, {"b", "k", all},
		{"c", "", "c-d7,5 d-e5 g-k6"}, {"", "d", "b-c5 c-d7,5"},
		{"bb", "cc", "bb-c5 c-cc7,5"}, {"h", "i", "h-i6"}, {"e", "g", ""}, {"f", "gg", "g-gg6"},
		{"k", "", ""}, {"", "b", ""}, {"i", "h", ""}, {"h", "h", ""}, {"e", "h", "g-h6"},
	} {
		var hi []byte
		if test.hi != "" {
			hi = []byte(test.hi)
		}
		if got := show(Truncate(spans, []byte(test.lo), hi)); got != test.want {
			t.Errorf("[%s, %s): %q, want %q", test.lo, test.hi, got, test.want)
		}
	}
	open := Fragment(parse(t, "b-e5 d-~7"), nil)
	if got := show(Truncate(open, []byte("c"), []byte("f"))) + " " + show(Truncate(open, []byte("x"), nil)); got != "c-d5 d-f7 x-~7" {
		t.Errorf("of what has no end: %q", got)
	}
	if got := show(Truncate(spans, nil, []byte{})); got != "" {
		t.Errorf("before the empty key: %q", got)
	}
	if got := show(spans); got != all {
		t.Errorf("the spans given became %q", got)
	}
}

// Invariant 21.
func TestElide(t *testing.T) {
	spans := Fragment(parse(t, "a-z3 c-e7 e-g8 m-p5"), []keys.SeqNum{4, 7})
	const all = "a-c3 c-e7,3 e-g8,3 g-m3 m-p5,3 p-z3"
	if got := show(spans); got != all {
		t.Fatal(got)
	}
	for _, test := range []struct {
		name, below string
		oldest      keys.SeqNum
		want        string
	}{
		{"nothing below", "", 4, "c-e7 e-g8 m-p5"},
		{"no snapshot", "", keys.MaxSeqNum, ""},
		{"an older snapshot", "", 2, all},
		{"something below", "dn", 4, "c-e7,3 e-g8 m-p5,3"},
		{"everything below", "bdfhnq", keys.MaxSeqNum, all},
	} {
		t.Run(test.name, func(t *testing.T) {
			asked := ""
			got := Elide(spans, test.oldest, func(lo, hi []byte) bool {
				if string(lo) < asked || string(lo) >= string(hi) {
					t.Errorf("asked for [%s, %s) after %s", lo, hi, asked)
				}
				asked = string(hi)
				for _, k := range test.below {
					if string(lo) <= string(k) && string(k) < string(hi) {
						return false
					}
				}
				return true
			})
			if show(got) != test.want {
				t.Errorf("got %q, want %q", show(got), test.want)
			}
			if show(spans) != all {
				t.Errorf("the spans given became %q", show(spans))
			}
		})
	}
	open := Fragment(parse(t, "a-f3 d-~5"), nil)
	if got := show(Elide(open, 9, func(lo, hi []byte) bool { return hi == nil })); got != "a-d3" {
		t.Errorf("what has no end: %q", got)
	}
	joined := Elide([]Span{
		{[]byte("a"), []byte("b"), []keys.SeqNum{9, 3}}, {[]byte("b"), []byte("c"), []keys.SeqNum{9, 2}},
	}, 3, func(_, _ []byte) bool { return true })
	if show(joined) != "a-c9" {
		t.Errorf("what became equal: %q", show(joined))
	}
}

func ExampleFragment() {
	tombstones := []Tombstone{
		{Start: []byte("a"), End: []byte("m"), Seq: 5},
		{Start: []byte("g"), End: []byte("t"), Seq: 9},
	}
	for _, s := range Fragment(tombstones, []keys.SeqNum{7}) {
		fmt.Printf("[%s, %s) %v\n", s.Start, s.End, s.Seqs)
	}
	// Output:
	// [a, g) [5]
	// [g, m) [9 5]
	// [m, t) [9]
}
