package iter_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"sievedb/internal/iter"
	"sievedb/internal/iter/itertest"
	"sievedb/internal/keys"
)

// history returns n entries over about a third as many user keys, in order,
// without equal internal keys. The user keys share prefixes shorter and longer
// than eight bytes, and the empty one is among them.
func history(rnd *rand.Rand, n int) []itertest.Entry {
	entries := make([]itertest.Entry, 0, n)
	for i := range n {
		entries = append(entries, itertest.Entry{
			Key:   keys.Make(userKey(rnd.IntN(n/3+1)), keys.SeqNum(i+1), keys.KindPut),
			Value: fmt.Appendf(nil, "value of %d", i),
		})
	}
	itertest.Sort(entries)
	return entries
}

// userKey returns user key number i of the tests; number 0 is the empty key.
func userKey(i int) []byte {
	prefixes := []string{"", "key", "a prefix of more than eight bytes/", "\xff\xff"}
	if i < len(prefixes) {
		return []byte(prefixes[i])
	}
	return fmt.Appendf(nil, "%s%03d", prefixes[i%len(prefixes)], i)
}

// deal distributes entries over n inputs, order kept.
func deal(rnd *rand.Rand, entries []itertest.Entry, n int) [][]itertest.Entry {
	inputs := make([][]itertest.Entry, n)
	for _, e := range entries {
		i := rnd.IntN(n)
		if rnd.IntN(3) > 0 {
			i = n - 1 // as in a tree, where the last run holds the most
		}
		inputs[i] = append(inputs[i], e)
	}
	return inputs
}

// open returns an iterator over each input, with poisoned memory.
func open(inputs [][]itertest.Entry) []iter.Iterator {
	var ins []iter.Iterator
	for _, in := range inputs {
		ins = append(ins, itertest.NewPoisoned(itertest.NewSlice(in)))
	}
	return ins
}

func TestMergingKeepsTheContract(t *testing.T) {
	rnd := itertest.Rand(t)
	itertest.Check(t, func() iter.Iterator { return iter.NewMerging() }, nil)
	for _, n := range []int{1, 2, 3, 4, 5, 8, 16, 40} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			for _, size := range []int{0, 1, 5, 200} {
				want := history(rnd, size)
				inputs := deal(rnd, want, n)
				itertest.Check(t, func() iter.Iterator { return iter.NewMerging(open(inputs)...) }, want)
			}
		})
	}
}

// Equal internal keys of several inputs are all met, in the order of inputs.
func TestMergingEqualKeys(t *testing.T) {
	rnd := itertest.Rand(t)
	inputs := make([][]itertest.Entry, 6)
	var want []itertest.Entry
	for _, e := range history(rnd, 60) {
		for i := range inputs {
			if rnd.IntN(2) == 0 {
				d := itertest.Entry{Key: e.Key, Value: fmt.Appendf(nil, "input %d", i)}
				inputs[i] = append(inputs[i], d)
				want = append(want, d)
			}
		}
	}
	itertest.Check(t, func() iter.Iterator { return iter.NewMerging(open(inputs)...) }, want)
}

func TestMergingReset(t *testing.T) {
	rnd := itertest.Rand(t)
	m := iter.NewMerging(itertest.NewFailing(itertest.NewSlice(nil), 0, errors.New("of before")))
	m.First()
	itertest.Check(t, func() iter.Iterator {
		want := history(rnd, 50)
		m.Reset(open(deal(rnd, want, 1+rnd.IntN(6)))...)
		m.SeekLT([]byte("key"), 0)
		m.Prev()
		m.Reset()
		return m
	}, nil)
	want := history(rnd, 50)
	itertest.Check(t, func() iter.Iterator {
		m.Reset(open(deal(rnd, want, 3))...)
		return m
	}, want)
}

// moves are the positioning calls with what decides where they lead.
var moves = []struct {
	name string
	call func(it iter.Iterator, target keys.InternalKey) bool
}{
	{"First", func(it iter.Iterator, _ keys.InternalKey) bool { return it.First() }},
	{"Last", func(it iter.Iterator, _ keys.InternalKey) bool { return it.Last() }},
	{"SeekGE", func(it iter.Iterator, k keys.InternalKey) bool { return it.SeekGE(k.UserKey, k.Trailer) }},
	{"SeekLT", func(it iter.Iterator, k keys.InternalKey) bool { return it.SeekLT(k.UserKey, k.Trailer) }},
	{"Next", func(it iter.Iterator, _ keys.InternalKey) bool { return it.Next() }},
	{"Prev", func(it iter.Iterator, _ keys.InternalKey) bool { return it.Prev() }},
}

// sameUntilFailure makes the same random calls to a good iterator and to one
// of which a part fails with boom at some time. Until failed says that it has,
// both agree; from then on the second is on no entry and reports boom.
func sameUntilFailure(t *testing.T, rnd *rand.Rand, good, bad iter.Iterator, failed func() bool, want []itertest.Entry, boom error) {
	t.Helper()
	after := 0
	for step := 0; after < 5; step++ {
		if step > 100_000 {
			t.Fatal("no failure")
		}
		target := want[rnd.IntN(len(want))].Key.Clone()
		n := rnd.IntN(len(moves) + 8) // more steps than seeks
		if n >= len(moves) {
			n = 4 + n%2
		}
		g, b := moves[n].call(good, target), moves[n].call(bad, target)
		if failed() {
			after++
			if b || bad.Valid() || !errors.Is(bad.Error(), boom) {
				t.Fatalf("%s after the failure: %t, %t, error %v", moves[n].name, b, bad.Valid(), bad.Error())
			}
			continue
		}
		if g != b || bad.Error() != nil || g && keys.Compare(good.Key(), bad.Key()) != 0 {
			t.Fatalf("step %d, %s: %t and %t, error %v", step, moves[n].name, g, b, bad.Error())
		}
	}
	if err := bad.Close(); !errors.Is(err, boom) {
		t.Fatalf("Close = %v", err)
	}
}

func TestMergingStopsAtAnyFailure(t *testing.T) {
	rnd := itertest.Rand(t)
	boom := errors.New("boom")
	want := history(rnd, 60)
	for n := range 150 {
		inputs := deal(rnd, want, 3)
		ins := open(inputs)
		f := itertest.NewFailing(ins[n%3], n/3, boom)
		ins[n%3] = f
		sameUntilFailure(t, rnd, itertest.NewSlice(want), iter.NewMerging(ins...), f.Failed, want, boom)
	}
}

// flaky fails its first Next and works from then on, as a read may.
type flaky struct {
	*itertest.Slice
	boom, err error
}

func (f *flaky) Next() bool {
	f.err, f.boom = f.boom, nil
	return f.err == nil && f.Slice.Next()
}

func (f *flaky) Error() error { return f.err }

// flakyRun is a run of one flaky table.
type flakyRun struct{ table *flaky }

func (r flakyRun) Len() int                        { return 1 }
func (r flakyRun) Find([]byte, keys.Trailer) int   { return 0 }
func (r flakyRun) Open(int) (iter.Iterator, error) { return r.table, nil }

// A failure is final even if the input recovers: what follows would have a
// gap that nobody sees.
func TestFailureIsFinal(t *testing.T) {
	boom := errors.New("boom")
	newFlaky := func() *flaky {
		return &flaky{Slice: itertest.NewSlice([]itertest.Entry{put("a", 1), put("b", 1)}), boom: boom}
	}
	for name, it := range map[string]iter.Iterator{
		"Merging": iter.NewMerging(newFlaky(), itertest.NewSlice([]itertest.Entry{put("c", 1)})),
		"Concat":  iter.NewConcat(flakyRun{newFlaky()}),
	} {
		if !it.First() || it.Next() || it.Error() != boom {
			t.Fatalf("%s: %v, want a failure", name, it.Error())
		}
		for _, m := range moves {
			if m.call(it, put("a", 1).Key) || it.Valid() || it.Error() != boom {
				t.Errorf("%s: %s after the failure: %v", name, m.name, it.Error())
			}
		}
	}
	v := iter.NewVisible(newFlaky(), iter.VisibleOptions{Snapshot: 9})
	if !v.First() || v.Next() || v.Err() != boom {
		t.Fatalf("Visible: %v, want a failure", v.Err())
	}
	if v.First() || v.Last() || v.SeekGE(nil) || v.SeekLT([]byte("z")) || v.Next() || v.Prev() || v.Err() != boom {
		t.Error("Visible went on after the failure")
	}
}

// closing is an empty iterator whose Close fails.
type closing struct {
	*itertest.Slice
	err error
}

func (c closing) Close() error {
	c.Slice.Close()
	return c.err
}

func TestMergingClosesAllInputs(t *testing.T) {
	one, two := errors.New("one"), errors.New("two")
	slices := []*itertest.Slice{itertest.NewSlice(nil), itertest.NewSlice(nil), itertest.NewSlice(nil)}
	m := iter.NewMerging(closing{slices[0], nil}, closing{slices[1], one}, closing{slices[2], two})
	for range 2 {
		if err := m.Close(); err != one {
			t.Errorf("Close = %v, want the first failure", err)
		}
	}
	for i, s := range slices {
		if s.Closes() != 1 {
			t.Errorf("input %d was closed %d times", i, s.Closes())
		}
	}
}

func TestMergingDoesNotAllocate(t *testing.T) {
	rnd := itertest.Rand(t)
	want := history(rnd, 300)
	var ins []iter.Iterator
	for _, in := range deal(rnd, want, 9) {
		ins = append(ins, itertest.NewSlice(in))
	}
	m := iter.NewMerging(ins...)
	target := want[100].Key
	allocs := testing.AllocsPerRun(20, func() {
		m.Reset(ins...)
		for ok := m.First(); ok; ok = m.Next() {
		}
		for ok := m.Last(); ok; ok = m.Prev() {
		}
		m.SeekGE(target.UserKey, target.Trailer)
		m.Prev()
		m.SeekLT(target.UserKey, target.Trailer)
		m.Next()
	})
	if allocs != 0 {
		t.Errorf("%v allocations, want none", allocs)
	}
}
