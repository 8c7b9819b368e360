package iter_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"sievedb/internal/iter"
	"sievedb/internal/iter/itertest"
	"sievedb/internal/keys"
)

// benchEntries returns n puts of random 16-digit keys, in order.
func benchEntries(rnd *rand.Rand, n int) []itertest.Entry {
	entries := make([]itertest.Entry, n)
	for i := range entries {
		entries[i] = itertest.Entry{
			Key:   keys.Make(fmt.Appendf(nil, "%016d", rnd.Uint64N(1e16)), keys.SeqNum(i+1), keys.KindPut),
			Value: make([]byte, 100),
		}
	}
	itertest.Sort(entries)
	return entries
}

// benchInputs deals entries over n inputs: evenly, the worst case, or as a tree
// with ratio 10 does, each run a tenth of the next.
func benchInputs(rnd *rand.Rand, entries []itertest.Entry, n int, tree bool) []iter.Iterator {
	inputs := make([][]itertest.Entry, n)
	for _, e := range entries {
		i := rnd.IntN(n)
		if tree {
			for i = n - 1; i > 0 && rnd.IntN(10) == 0; i-- {
			}
		}
		inputs[i] = append(inputs[i], e)
	}
	var ins []iter.Iterator
	for _, in := range inputs {
		ins = append(ins, itertest.NewSlice(in))
	}
	return ins
}

func BenchmarkMerging(b *testing.B) {
	rnd := rand.New(rand.NewPCG(1, 2))
	entries := benchEntries(rnd, 20_000)
	for _, n := range []int{1, 4, 8, 16} {
		for _, shape := range []string{"even", "tree"} {
			m := iter.NewMerging(benchInputs(rnd, entries, n, shape == "tree")...)
			b.Run(fmt.Sprintf("%s/inputs=%d/forward", shape, n), func(b *testing.B) {
				b.ReportAllocs()
				for range b.N {
					if !m.Next() {
						m.First()
					}
				}
			})
			b.Run(fmt.Sprintf("%s/inputs=%d/reverse", shape, n), func(b *testing.B) {
				b.ReportAllocs()
				for range b.N {
					if !m.Prev() {
						m.Last()
					}
				}
			})
			b.Run(fmt.Sprintf("%s/inputs=%d/turn", shape, n), func(b *testing.B) {
				b.ReportAllocs()
				m.SeekGE([]byte("5"), 0)
				for range b.N { // there and back
					m.Next()
					m.Prev()
				}
			})
		}
	}
}

// BenchmarkConcat walks 20 tables; opening one is a part of it.
func BenchmarkConcat(b *testing.B) {
	rnd := rand.New(rand.NewPCG(1, 2))
	r := &run{tables: split(rnd, benchEntries(rnd, 20_000), 2_000), plain: true}
	c := iter.NewConcat(r)
	b.Run("forward", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			if !c.Next() {
				c.First()
			}
		}
	})
	b.Run("reverse", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			if !c.Prev() {
				c.Last()
			}
		}
	})
}

func BenchmarkVisible(b *testing.B) {
	rnd := rand.New(rand.NewPCG(1, 2))
	v := iter.NewVisible(itertest.NewSlice(benchEntries(rnd, 20_000)), iter.VisibleOptions{Snapshot: keys.MaxSeqNum})
	b.Run("forward", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			if !v.Next() {
				v.First()
			}
		}
	})
	b.Run("reverse", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			if !v.Prev() {
				v.Last()
			}
		}
	})
}

// BenchmarkVisibleHotKey passes one key with 10,000 versions per operation.
func BenchmarkVisibleHotKey(b *testing.B) {
	entries := []itertest.Entry{put("a", 1)}
	for seq := keys.SeqNum(10_000); seq > 0; seq-- {
		entries = append(entries, put("hot", seq))
	}
	entries = append(entries, put("z", 1))
	v := iter.NewVisible(itertest.NewSlice(entries), iter.VisibleOptions{Snapshot: 5_000})
	b.Run("forward", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			v.First()
			v.Next()
			v.Next()
		}
	})
	b.Run("reverse", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			v.Last()
			v.Prev()
			v.Prev()
		}
	})
}
