package rangedel_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"sievedb/internal/iter/itertest"
	"sievedb/internal/keys"
	"sievedb/internal/rangedel"
)

// stairs returns n tombstones, each overlapping its neighbours, in an order at
// random.
func stairs(n int) []rangedel.Tombstone {
	rnd := rand.New(rand.NewPCG(1, 2))
	out := make([]rangedel.Tombstone, n)
	for i, at := range rnd.Perm(n) {
		out[i] = between(10*at, 10*at+35, keys.SeqNum(i+1))
	}
	return out
}

func benchLog(b *testing.B, tombstones []rangedel.Tombstone) *rangedel.Log {
	l := &rangedel.Log{}
	for _, t := range tombstones {
		if err := l.Add(t); err != nil {
			b.Fatal(err)
		}
	}
	return l
}

func BenchmarkFragment(b *testing.B) {
	in := stairs(100_000)
	b.ReportAllocs()
	for b.Loop() {
		rangedel.Fragment(in, []keys.SeqNum{50_000})
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100_000, "ns/tombstone")
}

func BenchmarkLogAdd(b *testing.B) {
	in := stairs(100_000)
	b.ReportAllocs()
	for b.Loop() {
		benchLog(b, in)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100_000, "ns/tombstone")
}

// BenchmarkCovering asks with random keys. Cold lines of a set: two or three of
// heads beyond those that stay in the cache, one of keyEnds, keyBytes, seqEnds
// and seqs; of a log: a tombstone and its key at each step of each search.
func BenchmarkCovering(b *testing.B) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var none *rangedel.Set
	key := []byte("key-00000001")
	b.Run("set=0", func(b *testing.B) {
		for b.Loop() {
			none.Covering(key, keys.MaxSeqNum)
		}
	})
	for _, n := range []int{1, 100, 10_000, 100_000} {
		var ask [4096][]byte
		for i := range ask {
			ask[i] = fmt.Appendf(nil, "key-%08d", rnd.IntN(10*n+40))
		}
		in := stairs(n)
		set, log := setOf(in...), benchLog(b, in)
		for name, covering := range map[string]func([]byte, keys.SeqNum) keys.SeqNum{"set": set.Covering, "log": log.Covering} {
			b.Run(fmt.Sprintf("%s=%d", name, n), func(b *testing.B) {
				for i := 0; b.Loop(); i++ {
					covering(ask[i%len(ask)], keys.MaxSeqNum)
				}
			})
		}
		b.Run(fmt.Sprintf("log=%d/old", n), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				log.Covering(ask[i%len(ask)], keys.SeqNum(n/3))
			}
		})
	}
}

// BenchmarkSkipping steps over entries of which none is hidden, and compares
// with the input alone.
func BenchmarkSkipping(b *testing.B) {
	entries := numbered(100_000)
	input := itertest.NewSlice(entries)
	newer := rangedel.SkippingOptions{Snapshot: 9, Newer: []rangedel.Source{setOf(between(200_000, 200_001, 5))}}
	b.Run("input alone", func(b *testing.B) {
		for b.Loop() {
			if !input.Next() {
				input.First()
			}
		}
	})
	b.Run("nothing hidden", func(b *testing.B) {
		s := rangedel.NewSkipping(itertest.NewSlice(entries), newer)
		for b.Loop() {
			if !s.Next() {
				s.First()
			}
		}
	})
	b.Run("all but 2 of 100000", func(b *testing.B) {
		o := rangedel.SkippingOptions{Snapshot: 9, Newer: []rangedel.Source{setOf(between(1, 99_999, 5))}}
		s := rangedel.NewSkipping(itertest.NewSlice(entries), o)
		for b.Loop() {
			s.First()
			s.Next()
		}
	})
}
