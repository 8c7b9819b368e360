package cache

import (
	"sync/atomic"
	"testing"
)

// filled returns a cache of 32 MiB with n blocks of 4 KiB and their hints.
func filled(n int) (*Cache, []atomic.Uint64) {
	c := New(32 << 20)
	hints := make([]atomic.Uint64, n)
	for i := range hints {
		h := c.Reserve(1, uint64(i)*4096, 4096)
		h.Publish(&hints[i], false)
		h.Release()
	}
	return c, hints
}

const benchBlocks = 4096

// scatter visits the blocks in an order that no prefetcher follows.
func scatter(n int) int { return n * 40503 >> 3 & (benchBlocks - 1) }

// Cold lines of a hit: the hint; the slab table's pointer; the slab; the slot;
// then the block. By the index: the shard, the head and the slots of the chain
// instead of the hint.
func BenchmarkHitByHint(b *testing.B) {
	c, hints := filled(benchBlocks)
	for n := 0; b.Loop(); n++ {
		i := scatter(n)
		h, _ := c.Get(1, uint64(i)*4096, &hints[i])
		h.Release()
	}
	if m := c.Metrics(); m.HintHits != m.Hits || m.Misses != 0 {
		b.Fatalf("%+v", m)
	}
}

func BenchmarkPrefetch(b *testing.B) {
	c, hints := filled(benchBlocks)
	for n := 0; b.Loop(); n++ {
		c.Prefetch(&hints[scatter(n)], 0, 0, 192)
	}
}

func BenchmarkHitByIndex(b *testing.B) {
	c, _ := filled(benchBlocks)
	for n := 0; b.Loop(); n++ {
		h, _ := c.Get(1, uint64(scatter(n))*4096, nil)
		h.Release()
	}
	if m := c.Metrics(); m.Misses != 0 {
		b.Fatalf("%+v", m)
	}
}

func BenchmarkMiss(b *testing.B) {
	c, _ := filled(benchBlocks)
	for n := 0; b.Loop(); n++ {
		c.Get(2, uint64(scatter(n))*4096, nil)
	}
}

func benchmarkInsert(b *testing.B, cold bool) {
	c, _ := filled(2 * benchBlocks)
	for n := uint64(0); b.Loop(); n++ {
		if _, ok := c.Get(2, n, nil); !ok {
			h := c.Reserve(2, n, 4096)
			h.Publish(nil, cold)
			h.Release()
		}
	}
	if m := c.Metrics(); m.Evictions == 0 && b.N > benchBlocks {
		b.Fatalf("%+v", m)
	}
}

func BenchmarkMissInsert(b *testing.B)     { benchmarkInsert(b, false) }
func BenchmarkMissInsertCold(b *testing.B) { benchmarkInsert(b, true) }

func BenchmarkParallel(b *testing.B) {
	c, hints := filled(benchBlocks)
	b.Run("hint", func(b *testing.B) {
		b.RunParallel(func(pb *testing.PB) {
			for n := 0; pb.Next(); n++ {
				i := scatter(n)
				h, _ := c.Get(1, uint64(i)*4096, &hints[i])
				h.Release()
			}
		})
	})
	b.Run("index", func(b *testing.B) {
		b.RunParallel(func(pb *testing.PB) {
			for n := 0; pb.Next(); n++ {
				h, _ := c.Get(1, uint64(scatter(n))*4096, nil)
				h.Release()
			}
		})
	})
}
