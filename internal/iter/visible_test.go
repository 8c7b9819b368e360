package iter_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"testing"

	"sievedb/internal/iter"
	"sievedb/internal/iter/itertest"
	"sievedb/internal/keys"
)

// versions returns a history of puts and deletes in which a few user keys have
// many versions.
func versions(rnd *rand.Rand, n int) []itertest.Entry {
	entries := make([]itertest.Entry, 0, n)
	userKeys := 1 + n/(1+rnd.IntN(8))
	for i := range n {
		k := rnd.IntN(userKeys)
		if rnd.IntN(3) == 0 {
			k = rnd.IntN(3) // the hot ones, the empty key among them
		}
		kind, value := keys.KindPut, fmt.Appendf(nil, "value of %d", i)
		if rnd.IntN(3) == 0 {
			kind, value = keys.KindDelete, nil
		}
		entries = append(entries, itertest.Entry{Key: keys.Make(userKey(k), keys.SeqNum(i+1), kind), Value: value})
	}
	itertest.Sort(entries)
	return entries
}

// shown returns what a Visible over entries must show, the plain way.
func shown(entries []itertest.Entry, o iter.VisibleOptions) (want []itertest.Entry) {
	decided := map[string]bool{}
	for _, e := range entries {
		k := e.Key.UserKey
		if decided[string(k)] || !e.Key.Trailer.Visible(o.Snapshot) {
			continue
		}
		decided[string(k)] = true
		within := bytes.Compare(k, o.Lower) >= 0 && (o.Upper == nil || bytes.Compare(k, o.Upper) < 0)
		if within && e.Key.Trailer.Kind() == keys.KindPut {
			want = append(want, e)
		}
	}
	return want
}

// walker makes random calls to a Visible and knows where it must stand.
type walker struct {
	v    *iter.Visible
	want []itertest.Entry
	pos  int // -1 or len(want): on no key
	rnd  *rand.Rand
}

// step makes one random call and returns its name and what it reported.
func (w *walker) step() (string, bool) {
	at := func(pos int) { w.pos = max(-1, min(pos, len(w.want))) }
	on := w.pos >= 0 && w.pos < len(w.want)
	target := userKey(w.rnd.IntN(60))
	ge := sort.Search(len(w.want), func(i int) bool { return bytes.Compare(w.want[i].Key.UserKey, target) >= 0 })
	own := func(k []byte) []byte { // a seek may be given what Key returned
		if on && bytes.Equal(w.v.Key(), k) {
			return w.v.Key()
		}
		return k
	}
	switch w.rnd.IntN(14) {
	case 0:
		at(0)
		return "First", w.v.First()
	case 1:
		at(len(w.want) - 1)
		return "Last", w.v.Last()
	case 2:
		at(ge)
		return fmt.Sprintf("SeekGE(%q)", target), w.v.SeekGE(own(target))
	case 3:
		at(ge - 1)
		return fmt.Sprintf("SeekLT(%q)", target), w.v.SeekLT(own(target))
	case 4, 5, 6, 7, 8:
		if on {
			at(w.pos + 1)
		}
		return "Next", w.v.Next()
	default:
		if on {
			at(w.pos - 1)
		}
		return "Prev", w.v.Prev()
	}
}

// check compares the Visible with where it must stand.
func (w *walker) check(ok bool) error {
	on := w.pos >= 0 && w.pos < len(w.want)
	if ok != on || w.v.Valid() != on {
		return fmt.Errorf("%t, then Valid() = %t, want %t", ok, w.v.Valid(), on)
	}
	if err := w.v.Err(); err != nil || !on {
		return err
	}
	e := w.want[w.pos]
	if !bytes.Equal(w.v.Key(), e.Key.UserKey) || !bytes.Equal(w.v.Value(), e.Value) {
		return fmt.Errorf("%q = %q, want %s = %q", w.v.Key(), w.v.Value(), e.Key, e.Value)
	}
	return nil
}

// randomOptions returns a snapshot and bounds, some of them empty or crossed.
func randomOptions(rnd *rand.Rand, n int) iter.VisibleOptions {
	o := iter.VisibleOptions{Snapshot: keys.MaxSeqNum}
	if rnd.IntN(2) == 0 {
		o.Snapshot = keys.SeqNum(rnd.IntN(n + 2))
	}
	if rnd.IntN(2) == 0 {
		o.Lower = userKey(rnd.IntN(60))
	}
	if rnd.IntN(2) == 0 {
		o.Upper = userKey(rnd.IntN(60))
	}
	return o
}

// randomInput returns an iterator over entries, put together like those of a store:
// from one run or from several, which are tables one after the other or one
// iterator, and lend their leaves or do not.
func randomInput(t *testing.T, rnd *rand.Rand, entries []itertest.Entry) iter.Iterator {
	var runs []iter.Iterator
	for _, in := range deal(rnd, entries, 1+rnd.IntN(6)) {
		perBlock := 1 + rnd.IntN(20)
		switch rnd.IntN(3) {
		case 0:
			runs = append(runs, itertest.NewPoisoned(itertest.NewSlice(in)))
		case 1:
			runs = append(runs, itertest.NewBlocks(itertest.NewSlice(in), perBlock))
		case 2:
			runs = append(runs, iter.NewConcat(&run{t: t, tables: split(rnd, in, 50), blocks: perBlock}))
		}
	}
	if len(runs) == 1 {
		return runs[0]
	}
	return iter.NewMerging(runs...)
}

func TestVisibleModel(t *testing.T) {
	rnd := itertest.Rand(t)
	var v iter.Visible
	for round := range 150 {
		n := []int{0, 1, 3, 30, 300}[round%5]
		entries := versions(rnd, n)
		o := randomOptions(rnd, n)
		v.Reset(randomInput(t, rnd, entries), o)
		w := &walker{v: &v, want: shown(entries, o), pos: -1, rnd: rnd}
		if v.Valid() || v.Next() || v.Prev() {
			t.Fatal("a new Visible stands on a key")
		}
		for step := range 500 {
			what, ok := w.step()
			if err := w.check(ok); err != nil {
				t.Fatalf("round %d, snapshot %d, bounds %q %q, step %d: %s: %v", round, o.Snapshot, o.Lower, o.Upper, step, what, err)
			}
		}
		if err := v.Close(); err != nil {
			t.Fatal(err)
		}
		if v.Valid() || v.First() || v.Last() || v.Err() != nil || v.Close() != nil {
			t.Fatal("a closed Visible shows a key or fails")
		}
	}
}

// Where a leaf is lent it makes every step that it can, in both directions: over one
// run, and over the larger one of two, between the keys of the smaller.
func TestVisibleUsesLeaves(t *testing.T) {
	var large, small []itertest.Entry
	for i := range 200 {
		large = append(large, put(fmt.Sprintf("%03d", i), 1))
	}
	for i := range 4 {
		small = append(small, put(fmt.Sprintf("%02d5+", 5*i), 2))
	}
	// Ten blocks of 20: the first entry of each is not stepped to forward, and
	// backward, since nothing near tells that it is alone, neither it nor the last.
	const forward, backward = 10 * 19, 10 * 18
	// The first step of a merge, and of each way back from a key of the small
	// run the two steps until an input is met twice in a row.
	const merged = 1 + 2*4
	over := map[string]func(*itertest.Blocks) iter.Iterator{
		"one run": func(b *itertest.Blocks) iter.Iterator { return b },
		"merged":  func(b *itertest.Blocks) iter.Iterator { return iter.NewMerging(b, itertest.NewSlice(small)) },
	}
	for _, c := range []struct {
		over    string
		reverse bool
		want    int
	}{
		{"one run", false, forward},
		{"one run", true, backward},
		{"merged", false, forward - merged},
		{"merged", true, backward - merged},
	} {
		b := itertest.NewBlocks(itertest.NewSlice(large), 20)
		v := iter.NewVisible(over[c.over](b), iter.VisibleOptions{Snapshot: 9})
		start, step := v.First, v.Next
		if c.reverse {
			start, step = v.Last, v.Prev
		}
		for ok := start(); ok; ok = step() {
		}
		if b.Steps() != c.want || v.Err() != nil {
			t.Errorf("%s, reverse %t: %d steps by the leaf, want %d; %v", c.over, c.reverse, b.Steps(), c.want, v.Err())
		}
	}
}

func put(userKey string, seq keys.SeqNum) itertest.Entry {
	return itertest.Entry{Key: keys.Make([]byte(userKey), seq, keys.KindPut), Value: fmt.Appendf(nil, "%s@%d", userKey, seq)}
}

func del(userKey string, seq keys.SeqNum) itertest.Entry {
	return itertest.Entry{Key: keys.Make([]byte(userKey), seq, keys.KindDelete)}
}

func TestVisibleBounds(t *testing.T) {
	entries := []itertest.Entry{put("", 1), put("a", 2), put("b", 3), put("c", 4)}
	for _, c := range []struct {
		lower, upper []byte
		want         string
	}{
		{nil, nil, "@1 a@2 b@3 c@4"},
		{[]byte{}, nil, "@1 a@2 b@3 c@4"},
		{nil, []byte{}, ""}, // no user key is below the empty one
		{nil, []byte("a"), "@1"},
		{[]byte("a"), []byte("c"), "a@2 b@3"},
		{[]byte("a\x00"), []byte("b\x00"), "b@3"},
		{[]byte("b"), []byte("b"), ""},
		{[]byte("c"), []byte("a"), ""},
		{[]byte("d"), nil, ""},
	} {
		v := iter.NewVisible(itertest.NewSlice(entries), iter.VisibleOptions{Snapshot: 9, Lower: c.lower, Upper: c.upper})
		var forward, backward []string
		for ok := v.First(); ok; ok = v.Next() {
			forward = append(forward, string(v.Value()))
		}
		for ok := v.Last(); ok; ok = v.Prev() {
			backward = append(backward, string(v.Value()))
		}
		slices.Reverse(backward)
		if f, b := strings.Join(forward, " "), strings.Join(backward, " "); f != c.want || b != c.want {
			t.Errorf("[%q, %q): forward %q, backward %q, want %q", c.lower, c.upper, f, b, c.want)
		}
	}
}

// A seek that the bounds leave nothing to find does not touch the input.
func TestVisibleBoundsSpareTheInput(t *testing.T) {
	f := itertest.NewFailing(itertest.NewSlice(nil), 0, errors.New("touched"))
	v := iter.NewVisible(f, iter.VisibleOptions{Snapshot: 9, Lower: []byte("b"), Upper: []byte("d")})
	for _, k := range []string{"", "a", "b"} {
		if v.SeekLT([]byte(k)) || v.Err() != nil {
			t.Errorf("SeekLT(%q): %v", k, v.Err())
		}
	}
	for _, k := range []string{"d", "e"} {
		if v.SeekGE([]byte(k)) || v.Err() != nil {
			t.Errorf("SeekGE(%q): %v", k, v.Err())
		}
	}
	if v.SeekGE([]byte("c")) || v.Err() == nil {
		t.Error("SeekGE within the bounds did not ask the input")
	}
}

// A closed Visible leaves its input alone, whose memory may be in other hands.
func TestVisibleClosed(t *testing.T) {
	in := unclosable{itertest.NewSlice([]itertest.Entry{put("a", 1)})}
	v := iter.NewVisible(in, iter.VisibleOptions{Snapshot: 9})
	if !v.First() || v.Close() != nil {
		t.Fatal(v.Err())
	}
	if v.Valid() || v.First() || v.Last() || v.SeekGE(nil) || v.SeekLT([]byte("b")) || v.Next() || v.Prev() {
		t.Error("shows a key after Close")
	}
}

// unclosable can still be walked after Close.
type unclosable struct{ *itertest.Slice }

func (unclosable) Close() error { return nil }

// TestVisibleSameEntryTwice merges an input with itself, as a memtable and the
// table that it became are for a moment: every key is shown once.
func TestVisibleSameEntryTwice(t *testing.T) {
	entries := []itertest.Entry{put("a", 7), put("b", 5), put("b", 2), put("c", 9), put("c", 3), del("d", 4), put("d", 1), put("e", 6)}
	for _, c := range []struct {
		snapshot keys.SeqNum
		want     string
	}{
		{9, "a@7 b@5 c@9 e@6"},
		{8, "a@7 b@5 c@3 e@6"},
		{3, "b@2 c@3 d@1"},
	} {
		m := iter.NewMerging(itertest.NewSlice(entries), itertest.NewSlice(entries))
		v := iter.NewVisible(m, iter.VisibleOptions{Snapshot: c.snapshot})
		var forward, backward []string
		for ok := v.First(); ok; ok = v.Next() {
			forward = append(forward, string(v.Value()))
		}
		for ok := v.Last(); ok; ok = v.Prev() {
			backward = append(backward, string(v.Value()))
		}
		slices.Reverse(backward)
		if f, b := strings.Join(forward, " "), strings.Join(backward, " "); f != c.want || b != c.want {
			t.Errorf("at %d: %s, backwards %s, want %s", c.snapshot, f, b, c.want)
		}
	}
}

// A Visible that is reused gives back what one huge value took, and keeps what
// most take.
func TestVisibleKeepsNoHugeBuffer(t *testing.T) {
	over := func(value []byte) iter.Iterator {
		return itertest.NewSlice([]itertest.Entry{{Key: keys.Make([]byte("k"), 1, keys.KindPut), Value: value}})
	}
	o := iter.VisibleOptions{Snapshot: keys.MaxSeqNum}
	var v iter.Visible
	for _, n := range []int{4 << 20, 4 << 10} {
		for _, value := range [][]byte{make([]byte, n), []byte("small")} {
			v.Reset(over(value), o)
			if !v.Last() || !bytes.Equal(v.Value(), value) {
				t.Fatalf("%d bytes are shown, want %d: %v", len(v.Value()), len(value), v.Err())
			}
			if kept := cap(v.Value()); len(value) < n && (kept >= n) != (n <= 1<<20) {
				t.Errorf("after a value of %d bytes the buffer has %d", n, kept)
			}
			if err := v.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Of a key with many versions few are looked at: the rest is passed by seeks.
func TestVisibleSkipsHotKeys(t *testing.T) {
	hot := make([]itertest.Entry, 0, 10_002)
	hot = append(hot, put("a", 1))
	for seq := keys.SeqNum(10_000); seq > 0; seq-- {
		hot = append(hot, put("hot", seq))
	}
	hot = append(hot, put("z", 1))
	for _, c := range []struct {
		name     string
		snapshot keys.SeqNum
		start    func(*iter.Visible) bool
		want     string
		skipped  iter.Skipped
	}{
		{"newest, forward", 10_000, (*iter.Visible).First, "a@1 hot@10000 z@1", iter.Skipped{Versions: 8, Seeks: 1}},
		{"middle, forward", 5_000, (*iter.Visible).First, "a@1 hot@5000 z@1", iter.Skipped{Versions: 17, Seeks: 2}},
		{"newest, backward", 10_000, (*iter.Visible).Last, "z@1 hot@10000 a@1", iter.Skipped{Versions: 8, Seeks: 1}},
		{"middle, backward", 5_000, (*iter.Visible).Last, "z@1 hot@5000 a@1", iter.Skipped{Versions: 16, Seeks: 2}},
	} {
		v := iter.NewVisible(itertest.NewSlice(hot), iter.VisibleOptions{Snapshot: c.snapshot})
		next := v.Next
		if strings.HasSuffix(c.name, "backward") {
			next = v.Prev
		}
		var got []string
		for ok := c.start(v); ok; ok = next() {
			got = append(got, string(v.Value()))
		}
		if s := strings.Join(got, " "); s != c.want || v.Skipped() != c.skipped {
			t.Errorf("%s: %s, %+v, want %s, %+v", c.name, s, v.Skipped(), c.want, c.skipped)
		}
	}
}

func TestVisibleCountsTombstones(t *testing.T) {
	entries := []itertest.Entry{
		del("a", 3), put("a", 1), // hidden by a tombstone
		put("b", 4), del("b", 2), // an old tombstone hides nothing
		del("c", 9), put("c", 5), // the tombstone is too new to be seen
		del("d", 6), // hides nothing, is met all the same
	}
	want := iter.Skipped{Tombstones: 2, Versions: 3}
	v := iter.NewVisible(itertest.NewSlice(entries), iter.VisibleOptions{Snapshot: 8})
	n := 0
	for ok := v.Last(); ok; ok = v.Prev() {
		n++
	}
	if n != 2 || v.Skipped() != want {
		t.Errorf("backward: %d keys, %+v, want 2, %+v", n, v.Skipped(), want)
	}
	v.Reset(itertest.NewSlice(entries), iter.VisibleOptions{Snapshot: 8})
	n = 0
	for ok := v.First(); ok; ok = v.Next() {
		n++
	}
	if n != 2 || v.Skipped() != want {
		t.Errorf("forward: %d keys, %+v, want 2, %+v", n, v.Skipped(), want)
	}
}

// A version of a kind that cannot be read is reported where it decides, and
// only there.
func TestVisibleUnknownKind(t *testing.T) {
	odd := func(seq keys.SeqNum, kind keys.Kind) itertest.Entry {
		return itertest.Entry{Key: keys.Make([]byte("b"), seq, kind)}
	}
	for _, kind := range []keys.Kind{0, keys.KindRangeDelete, keys.KindMerge, keys.KindPutExpiry, 77, keys.KindSeek} {
		for _, start := range []func(*iter.Visible) bool{(*iter.Visible).First, (*iter.Visible).Last} {
			v := iter.NewVisible(itertest.NewSlice([]itertest.Entry{put("b", 9), odd(5, kind), put("b", 1)}), iter.VisibleOptions{Snapshot: 9})
			if !start(v) || string(v.Value()) != "b@9" || v.Err() != nil {
				t.Errorf("%s that decides nothing: %v", kind, v.Err())
			}
			v.Reset(itertest.NewSlice([]itertest.Entry{put("b", 9), odd(5, kind), put("b", 1)}), iter.VisibleOptions{Snapshot: 8})
			if start(v) || !errors.Is(v.Err(), iter.ErrUnknownKind) || !strings.Contains(v.Err().Error(), kind.String()) {
				t.Errorf("%s that decides: %v", kind, v.Err())
			}
			if v.First() || v.Last() || v.SeekGE(nil) || v.SeekLT([]byte("z")) || v.Next() || v.Prev() || v.Close() == nil {
				t.Errorf("%s: went on after the failure", kind)
			}
		}
	}
	// Trailer zero is where the seek past the versions of a key ends.
	zero := []itertest.Entry{del("b", 9), odd(0, 0)}
	v := iter.NewVisible(itertest.NewSlice(zero), iter.VisibleOptions{Snapshot: 9})
	if v.First() || !errors.Is(v.Err(), iter.ErrUnknownKind) {
		t.Errorf("trailer zero: %v", v.Err())
	}
}

// Whatever input call fails, the walk is right up to the failure, reports it,
// and shows nothing from then on.
func TestVisibleStopsAtAnyFailure(t *testing.T) {
	rnd := itertest.Rand(t)
	boom := errors.New("boom")
	for n := range 300 {
		entries := versions(rnd, 60)
		o := randomOptions(rnd, 60)
		f := itertest.NewFailing(itertest.NewBlocks(itertest.NewSlice(entries), 1+n%20), n, boom)
		w := &walker{v: iter.NewVisible(f, o), want: shown(entries, o), pos: -1, rnd: rnd}
		for range 1000 {
			what, ok := w.step()
			if f.Failed() {
				if ok || w.v.Valid() || w.v.Err() != boom {
					t.Fatalf("%s after the failure: %t, %t, %v", what, ok, w.v.Valid(), w.v.Err())
				}
				w.pos = -1
				continue
			}
			if err := w.check(ok); err != nil {
				t.Fatalf("failure after %d: %s: %v", n, what, err)
			}
		}
		if err := w.v.Close(); f.Failed() && err != boom {
			t.Fatalf("Close = %v", err)
		}
	}
}

func TestVisibleDoesNotAllocate(t *testing.T) {
	rnd := itertest.Rand(t)
	entries := versions(rnd, 500)
	in := itertest.NewSlice(entries)
	v := iter.NewVisible(in, iter.VisibleOptions{})
	walk := func() {
		v.Reset(in, iter.VisibleOptions{Snapshot: 400})
		for ok := v.First(); ok; ok = v.Next() {
		}
		for ok := v.Last(); ok; ok = v.Prev() {
		}
		v.SeekGE(entries[250].Key.UserKey)
		v.Prev()
		v.SeekLT(entries[250].Key.UserKey)
		v.Next()
	}
	walk() // grows the buffers
	if allocs := testing.AllocsPerRun(20, walk); allocs != 0 {
		t.Errorf("%v allocations, want none", allocs)
	}
}
