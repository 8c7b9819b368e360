package iter_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sort"
	"testing"

	"sievedb/internal/iter"
	"sievedb/internal/iter/itertest"
	"sievedb/internal/keys"
)

// run is a run of tables in memory. It counts opens and checks that at most
// one table is open.
type run struct {
	t      *testing.T
	tables [][]itertest.Entry
	exact  bool // whether Find minds the trailer
	plain  bool // whether the tables' memory is not poisoned, for benchmarks
	blocks int  // entries in a block of the tables, which are leaves then; zero: none
	last   *itertest.Slice
	opens  int
}

func (r *run) Len() int { return len(r.tables) }

func (r *run) Find(userKey []byte, trailer keys.Trailer) int {
	return sort.Search(len(r.tables), func(i int) bool {
		largest := r.tables[i][len(r.tables[i])-1].Key
		if r.exact {
			return keys.Compare(largest, keys.InternalKey{UserKey: userKey, Trailer: trailer}) >= 0
		}
		return bytes.Compare(largest.UserKey, userKey) >= 0
	})
}

func (r *run) Open(i int) (iter.Iterator, error) {
	if r.last != nil && r.last.Closes() != 1 {
		r.t.Errorf("open of table %d: the one before was closed %d times", i, r.last.Closes())
	}
	r.last = itertest.NewSlice(r.tables[i])
	r.opens++
	switch {
	case r.plain:
		return r.last, nil
	case r.blocks > 0:
		return itertest.NewBlocks(r.last, r.blocks), nil
	}
	return itertest.NewPoisoned(r.last), nil
}

// split cuts entries into tables of up to n entries, never within a user key.
func split(rnd *rand.Rand, entries []itertest.Entry, n int) (tables [][]itertest.Entry) {
	for start := 0; start < len(entries); {
		end := min(len(entries), start+1+rnd.IntN(n))
		for end < len(entries) && bytes.Equal(entries[end].Key.UserKey, entries[end-1].Key.UserKey) {
			end++
		}
		tables = append(tables, entries[start:end])
		start = end
	}
	return tables
}

func TestConcatKeepsTheContract(t *testing.T) {
	rnd := itertest.Rand(t)
	for _, size := range []int{0, 1, 10, 300} {
		for _, n := range []int{1, 7, 1000} {
			for _, exact := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d/%d/%t", size, n, exact), func(t *testing.T) {
					want := history(rnd, size)
					var last *run
					itertest.Check(t, func() iter.Iterator {
						last = &run{t: t, tables: split(rnd, want, n), exact: exact}
						return iter.NewConcat(last)
					}, want)
					if last.last != nil && last.last.Closes() != 1 {
						t.Errorf("the last table was closed %d times", last.last.Closes())
					}
				})
			}
		}
	}
}

// A table without entries is passed over, though no writer makes one.
func TestConcatPassesEmptyTables(t *testing.T) {
	want := history(itertest.Rand(t), 2)
	r := &emptied{run{t: t, tables: [][]itertest.Entry{want[:1], want[:1], want[1:]}}}
	c := iter.NewConcat(r)
	if !c.First() || !c.Next() || keys.Compare(c.Key(), want[1].Key) != 0 || c.Next() || c.Error() != nil {
		t.Error("forward stopped at the empty table")
	}
	if !c.Last() || !c.Prev() || keys.Compare(c.Key(), want[0].Key) != 0 || c.Prev() || c.Error() != nil {
		t.Error("backward stopped at the empty table")
	}
}

// emptied is a run whose table 1 turns out to be empty.
type emptied struct{ run }

func (r *emptied) Open(i int) (iter.Iterator, error) {
	if i == 1 {
		return itertest.NewSlice(nil), nil
	}
	return r.run.Open(i)
}

func TestConcatOpensLazily(t *testing.T) {
	want := history(itertest.Rand(t), 90)
	r := &run{t: t, tables: split(rand.New(rand.NewPCG(1, 1)), want, 4)}
	c := iter.NewConcat(r)
	expect := func(what string, ok bool, opens int) {
		t.Helper()
		if !ok || r.opens != opens {
			t.Errorf("%s: %t after %d opens, want %d", what, ok, r.opens, opens)
		}
		r.opens = 0
	}
	expect("NewConcat", true, 0)
	expect("First", c.First(), 1)
	expect("First again", c.First(), 0)
	second := r.tables[1][0].Key
	expect("SeekGE", c.SeekGE(second.UserKey, second.Trailer), 1)
	expect("SeekGE within the table", c.SeekGE(second.UserKey, second.Trailer), 0)
	expect("Prev into the table before", c.Prev(), 1)
	expect("Next into the table after", c.Next(), 1)
	expect("SeekGE past the end", !c.SeekGE([]byte("\xff\xff\xff\xff"), 0), 0)
	expect("Last", c.Last(), 1)
	expect("Next past the end", !c.Next(), 0)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	expect("First after Close", !c.First(), 0)
	expect("SeekLT after Close", !c.SeekLT([]byte("\xff"), 0), 0)
}

// failingRun fails every positioning call of every table, and every Open and
// Close, once calls are used up.
type failingRun struct {
	run
	calls int
	boom  error
	spent bool
}

// spend uses up one call and returns boom once none is left.
func (r *failingRun) spend() error {
	if r.calls--; r.calls < 0 {
		r.spent = true
		return r.boom
	}
	return nil
}

func (r *failingRun) Open(i int) (iter.Iterator, error) {
	if err := r.spend(); err != nil {
		return nil, err
	}
	in, err := r.run.Open(i)
	return &failingTable{Iterator: in, run: r}, err
}

type failingTable struct {
	iter.Iterator
	run *failingRun
	err error
}

func (f *failingTable) may() bool {
	if f.err == nil {
		f.err = f.run.spend()
	}
	return f.err == nil
}

func (f *failingTable) First() bool { return f.may() && f.Iterator.First() }
func (f *failingTable) Last() bool  { return f.may() && f.Iterator.Last() }
func (f *failingTable) Next() bool  { return f.may() && f.Iterator.Next() }
func (f *failingTable) Prev() bool  { return f.may() && f.Iterator.Prev() }
func (f *failingTable) SeekGE(k []byte, t keys.Trailer) bool {
	return f.may() && f.Iterator.SeekGE(k, t)
}
func (f *failingTable) SeekLT(k []byte, t keys.Trailer) bool {
	return f.may() && f.Iterator.SeekLT(k, t)
}
func (f *failingTable) Error() error { return f.err }
func (f *failingTable) Close() error {
	if err := f.Iterator.Close(); err != nil {
		return err
	}
	f.may()
	return f.err
}

func TestConcatStopsAtAnyFailure(t *testing.T) {
	rnd := itertest.Rand(t)
	boom := errors.New("boom")
	want := history(rnd, 60)
	for calls := range 200 {
		r := &failingRun{run: run{t: t, tables: split(rnd, want, 5)}, calls: calls, boom: boom}
		sameUntilFailure(t, rnd, itertest.NewSlice(want), iter.NewConcat(r), func() bool { return r.spent }, want, boom)
		if r.last != nil && r.last.Closes() != 1 {
			t.Fatalf("the last table was closed %d times", r.last.Closes())
		}
	}
}
