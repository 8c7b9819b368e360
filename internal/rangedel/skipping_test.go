package rangedel_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"sievedb/internal/iter"
	"sievedb/internal/iter/itertest"
	"sievedb/internal/keys"
	"sievedb/internal/rangedel"
)

// history is what was written in the time of one run.
type history struct {
	points     []itertest.Entry
	tombstones []rangedel.Tombstone
}

func randomUserKey(rnd *rand.Rand) []byte { return fmt.Appendf(nil, "%02d", rnd.IntN(60)) }

// write makes n random writes, numbered from first on.
func write(rnd *rand.Rand, n int, first keys.SeqNum) (h history) {
	for i := range n {
		seq := first + keys.SeqNum(i)
		key := randomUserKey(rnd)
		switch rnd.IntN(6) {
		case 0:
			end := randomUserKey(rnd)
			if rnd.IntN(5) == 0 {
				end = nil
			}
			if end == nil || bytes.Compare(key, end) < 0 {
				h.tombstones = append(h.tombstones, rangedel.Tombstone{Start: key, End: end, Seq: seq})
			}
		case 1:
			h.points = append(h.points, itertest.Entry{Key: keys.Make(key, seq, keys.KindDelete)})
		default:
			h.points = append(h.points, itertest.Entry{Key: keys.Make(key, seq, keys.KindPut), Value: fmt.Append(nil, seq)})
		}
	}
	itertest.Sort(h.points)
	return h
}

// source returns the tombstones in one of the forms that a run has.
func (h history) source(t *testing.T, rnd *rand.Rand, all []keys.SeqNum) rangedel.Source {
	spans := rangedel.Fragment(h.tombstones, all)
	switch rnd.IntN(3) {
	case 0:
		return rangedel.NewSet(spans)
	case 1:
		cut := randomUserKey(rnd)
		return rangedel.NewRun([]*rangedel.Set{
			rangedel.NewSet(rangedel.Truncate(spans, nil, cut)), rangedel.NewSet(rangedel.Truncate(spans, cut, nil)),
		})
	}
	l := &rangedel.Log{}
	for _, tombstone := range h.tombstones {
		if err := l.Add(tombstone); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// hidden reports whether a visible tombstone of h hides an entry.
func (h history) hidden(k keys.InternalKey, snapshot keys.SeqNum) bool {
	for _, t := range h.tombstones {
		if t.Seq <= snapshot && t.Seq > k.Trailer.SeqNum() &&
			bytes.Compare(t.Start, k.UserKey) <= 0 && (t.End == nil || bytes.Compare(k.UserKey, t.End) < 0) {
			return true
		}
	}
	return false
}

func (h history) largest() (seq keys.SeqNum) {
	for _, e := range h.points {
		seq = max(seq, e.Key.Trailer.SeqNum())
	}
	return seq
}

// Whatever the history and the snapshot, each run shows exactly the entries
// that no visible tombstone hides, in both directions and from any seek.
func TestSkippingEqualsModel(t *testing.T) {
	rnd := itertest.Rand(t)
	for range 40 {
		checkRuns(t, rnd, 1+rnd.IntN(4), 1+rnd.IntN(60))
	}
}

func checkRuns(t *testing.T, rnd *rand.Rand, runs, writes int) {
	t.Helper()
	var all []keys.SeqNum
	for i := range runs * writes {
		all = append(all, keys.SeqNum(i+1))
	}
	snapshot := keys.SeqNum(rnd.IntN(len(all) + 2))
	var newer []rangedel.Source
	var above []history
	var inputs []iter.Iterator
	var left []itertest.Entry
	for i := range runs { // newest first, as reads go
		h := write(rnd, writes, keys.SeqNum((runs-1-i)*writes+1))
		own := h.source(t, rnd, all)
		above = append(above, h)
		var want []itertest.Entry
		for _, e := range h.points {
			hides := false
			for _, a := range above {
				hides = hides || a.hidden(e.Key, snapshot)
			}
			if !hides {
				want = append(want, e)
			}
		}
		o := rangedel.SkippingOptions{Snapshot: snapshot, Newer: newer[:len(newer):len(newer)], Own: own, OwnLargest: keys.MaxSeqNum}
		if rnd.IntN(2) == 0 {
			o.OwnLargest = h.largest()
		}
		itertest.Check(t, func() iter.Iterator {
			return rangedel.NewSkipping(itertest.NewPoisoned(itertest.NewSlice(h.points)), o)
		}, want)
		inputs = append(inputs, rangedel.NewSkipping(itertest.NewBlocks(itertest.NewSlice(h.points), 1+rnd.IntN(20)), o))
		left = append(left, want...)
		newer = append(newer, own)
	}
	itertest.Sort(left)
	checkVisible(t, rnd, iter.NewMerging(inputs...), left, snapshot)
}

// checkVisible walks over what snapshot sees of entries, which input has, with the
// help of leaves that it lends.
func checkVisible(t *testing.T, rnd *rand.Rand, input iter.Iterator, entries []itertest.Entry, snapshot keys.SeqNum) {
	t.Helper()
	var want []itertest.Entry
	var decided []byte
	for _, e := range entries {
		if bytes.Equal(e.Key.UserKey, decided) || !e.Key.Trailer.Visible(snapshot) {
			continue
		}
		if decided = e.Key.UserKey; e.Key.Trailer.Kind() == keys.KindPut {
			want = append(want, e)
		}
	}
	v := iter.NewVisible(input, iter.VisibleOptions{Snapshot: snapshot})
	at := -1
	check := func(ok bool) {
		t.Helper()
		if on := at >= 0 && at < len(want); ok != on || v.Err() != nil {
			t.Fatalf("at %d of %d: %t, %v", at, len(want), ok, v.Err())
		} else if on && (!bytes.Equal(v.Key(), want[at].Key.UserKey) || !bytes.Equal(v.Value(), want[at].Value)) {
			t.Fatalf("at %d: %q = %q, want %s = %q", at, v.Key(), v.Value(), want[at].Key, want[at].Value)
		}
	}
	for range 60 {
		if at < 0 || at >= len(want) {
			if rnd.IntN(2) == 0 {
				at = 0
				check(v.First())
			} else {
				at = len(want) - 1
				check(v.Last())
			}
		}
		step, move := 1, v.Next
		if rnd.IntN(2) == 0 {
			step, move = -1, v.Prev
		}
		for range 1 + rnd.IntN(12) {
			if at >= 0 && at < len(want) {
				at += step
				check(move())
			}
		}
	}
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
}

func numbered(n int) (entries []itertest.Entry) {
	for i := range n {
		entries = append(entries, itertest.Entry{Key: keys.Make(fmt.Appendf(nil, "key-%08d", i), 1, keys.KindPut)})
	}
	return entries
}

func setOf(tombstones ...rangedel.Tombstone) *rangedel.Set {
	return rangedel.NewSet(rangedel.Fragment(tombstones, nil))
}

func between(start, end int, seq keys.SeqNum) rangedel.Tombstone {
	return rangedel.Tombstone{Start: fmt.Appendf(nil, "key-%08d", start), End: fmt.Appendf(nil, "key-%08d", end), Seq: seq}
}

// One seek passes whatever is hidden as a whole, in either direction.
func TestSkippingSeeks(t *testing.T) {
	const n = 10_000
	entries := numbered(n)
	var stairs []rangedel.Tombstone
	for i := range 20 {
		stairs = append(stairs, between(100+400*i, 100+400*i+500, keys.SeqNum(10+i)))
	}
	var rows []rangedel.Tombstone
	for i := range 320 {
		rows = append(rows, between(100+10*i, 100+10*i+15, keys.SeqNum(10+i)))
	}
	wide := between(100, 9000, 10)
	for _, test := range []struct {
		name  string
		o     rangedel.SkippingOptions
		shown int
		want  rangedel.Skipped // in each direction
	}{
		{"one newer", rangedel.SkippingOptions{Newer: []rangedel.Source{setOf(wide)}}, 1100, rangedel.Skipped{Seeks: 1}},
		{"twenty that overlap", rangedel.SkippingOptions{Newer: []rangedel.Source{setOf(stairs...)}}, 1900, rangedel.Skipped{Seeks: 1}},
		{"two runs that overlap", rangedel.SkippingOptions{
			Newer: []rangedel.Source{setOf(between(100, 5000, 20)), setOf(between(4000, 9000, 10))},
		}, 1100, rangedel.Skipped{Seeks: 1}},
		// The first, and then chainLen more, to a seek.
		{"a row longer than a chain", rangedel.SkippingOptions{Newer: []rangedel.Source{setOf(rows...)}}, n - 3205, rangedel.Skipped{Seeks: 10}},
		{"own, all newer", rangedel.SkippingOptions{Own: setOf(wide), OwnLargest: 9}, 1100, rangedel.Skipped{Seeks: 1}},
		{"own, one by one", rangedel.SkippingOptions{Own: setOf(wide), OwnLargest: keys.MaxSeqNum}, 1100, rangedel.Skipped{Entries: 8900}},
		{"everything", rangedel.SkippingOptions{Newer: []rangedel.Source{setOf(rangedel.Tombstone{End: []byte("z"), Seq: 9})}}, 0, rangedel.Skipped{Seeks: 1}},
		{"nothing", rangedel.SkippingOptions{Newer: []rangedel.Source{setOf(between(n, n+5, 9)), (*rangedel.Set)(nil)}}, n, rangedel.Skipped{}},
		{"nothing that is visible", rangedel.SkippingOptions{Newer: []rangedel.Source{setOf(between(0, n, 5000))}}, n, rangedel.Skipped{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.o.Snapshot = 4000
			forward := rangedel.NewSkipping(itertest.NewSlice(entries), test.o)
			shown := 0
			for ok := forward.First(); ok; ok = forward.Next() {
				shown++
			}
			if shown != test.shown || forward.Skipped() != test.want {
				t.Errorf("forward: %d shown, %+v; want %d, %+v", shown, forward.Skipped(), test.shown, test.want)
			}
			backward := rangedel.NewSkipping(itertest.NewSlice(entries), test.o)
			shown = 0
			for ok := backward.Last(); ok; ok = backward.Prev() {
				shown++
			}
			want := test.want
			if test.name == "everything" {
				want.Seeks = 0 // there is no key before the empty one to seek to
			}
			if shown != test.shown || backward.Skipped() != want {
				t.Errorf("backward: %d shown, %+v; want %d, %+v", shown, backward.Skipped(), test.shown, want)
			}
		})
	}
}

// countingSource counts how often it is asked.
type countingSource struct {
	rangedel.Source
	asked int
}

func (c *countingSource) StretchAt(key []byte, snapshot keys.SeqNum) rangedel.Stretch {
	c.asked++
	return c.Source.StretchAt(key, snapshot)
}

func (c *countingSource) StretchBefore(key []byte, snapshot keys.SeqNum) rangedel.Stretch {
	c.asked++
	return c.Source.StretchBefore(key, snapshot)
}

// Where nothing is hidden, tombstones are looked up once a stretch and not once
// an entry.
func TestSkippingAsksOnce(t *testing.T) {
	c := &countingSource{Source: setOf(between(5000, 5001, 9))}
	s := rangedel.NewSkipping(itertest.NewSlice(numbered(10_000)), rangedel.SkippingOptions{Snapshot: 9, Newer: []rangedel.Source{c}})
	for ok := s.First(); ok; ok = s.Next() {
	}
	// At the first key; at the hidden one and at its end; beyond it.
	if c.asked != 4 {
		t.Errorf("forward: asked %d times, want 4", c.asked)
	}
	c.asked = 0
	for ok := s.Last(); ok; ok = s.Prev() {
	}
	if c.asked != 4 {
		t.Errorf("backward: asked %d times, want 4", c.asked)
	}
}

// Whichever call of the input fails, the walk shows nothing wrong before it,
// and nothing after.
func TestSkippingFails(t *testing.T) {
	rnd := itertest.Rand(t)
	boom := errors.New("boom")
	o := rangedel.SkippingOptions{Snapshot: 20, OwnLargest: keys.MaxSeqNum,
		Newer: []rangedel.Source{setOf(between(10, 20, 15))}, Own: setOf(between(15, 30, 7))}
	for n := range 60 {
		f := itertest.NewFailing(itertest.NewSlice(numbered(50)), n, boom)
		s := rangedel.NewSkipping(f, o)
		for range 200 {
			calls := []func() bool{s.First, s.Last, s.Next, s.Prev,
				func() bool { return s.SeekGE([]byte("key-00000012"), 0) }, func() bool { return s.SeekLT([]byte("key-00000033"), 0) }}
			ok := calls[rnd.IntN(len(calls))]()
			if f.Failed() && (ok || s.Valid() || s.Error() != boom) {
				t.Fatalf("after the failure of call %d: %t, %t, %v", n, ok, s.Valid(), s.Error())
			}
			if ok {
				if k := string(s.Key().UserKey); k >= "key-00000010" && k < "key-00000030" {
					t.Fatalf("shows %s", k)
				}
			}
		}
	}
}

func TestSkippingCloses(t *testing.T) {
	s := rangedel.NewSkipping(itertest.NewSlice(numbered(5)), rangedel.SkippingOptions{})
	if !s.First() {
		t.Fatal("shows nothing")
	}
	if err := s.Close(); err != nil || s.Valid() || s.Next() || s.Prev() {
		t.Errorf("after Close = %v it stands on an entry", err)
	}

}

func TestSkippingDoesNotAllocate(t *testing.T) {
	entries := numbered(2000)
	l := &rangedel.Log{}
	for i := range 100 {
		if err := l.Add(between(20*i, 20*i+5, keys.SeqNum(i+5))); err != nil {
			t.Fatal(err)
		}
	}
	s := rangedel.NewSkipping(itertest.NewSlice(entries), rangedel.SkippingOptions{Snapshot: 80,
		Newer: []rangedel.Source{l, setOf(between(30, 37, 3))}, Own: setOf(between(900, 1000, 4)), OwnLargest: keys.MaxSeqNum})
	allocs := testing.AllocsPerRun(10, func() {
		for ok := s.First(); ok; ok = s.Next() {
		}
		for ok := s.Last(); ok; ok = s.Prev() {
		}
		s.SeekGE(entries[33].Key.UserKey, 0)
		s.SeekLT(entries[33].Key.UserKey, 0)
	})
	if allocs != 0 {
		t.Errorf("%v allocations, want none", allocs)
	}
}
