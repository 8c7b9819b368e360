package filter

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

var (
	sinkWord uint64
	sinkBool bool
)

func BenchmarkHash(b *testing.B) {
	for _, n := range []int{8, 16, 24, 64} {
		b.Run(fmt.Sprintf("bytes=%d", n), func(b *testing.B) {
			key := make([]byte, n)
			for b.Loop() {
				sinkWord += Hash(key)
			}
		})
	}
}

func BenchmarkMayContain(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	const queries = 1 << 16
	for _, n := range []int{10_000, 1_000_000} {
		for _, millibits := range []uint32{10_000, 16_000, 20_000} {
			r, present := randomFilter(b, rng, n, millibits, SeedFor(3))
			absent := make([]uint64, queries)
			asked := make([]uint64, queries)
			for i := range absent {
				absent[i] = rng.Uint64()
				asked[i] = present[rng.IntN(n)]
			}
			for name, hashes := range map[string][]uint64{"absent": absent, "present": asked} {
				b.Run(fmt.Sprintf("%s/keys=%d/millibits=%d", name, n, millibits), func(b *testing.B) {
					i := 0
					for b.Loop() {
						sinkBool = r.MayContain(hashes[i%queries])
						i++
					}
				})
			}
		}
	}
}

// Six runs with filters of 64 MiB each: one cold cache line a run. The next
// key depends on the answers for the last, as a client's does.
func BenchmarkMayContainCold(b *testing.B) {
	const runs, blocks = 6, 1 << 20
	var readers [runs]Reader
	for i := range readers {
		field := make([]byte, blocks*blockBytes)
		rand.NewChaCha8([32]byte{byte(i)}).Read(field)
		payload := trailer{kind: KindBlocked, k: 6, log2: blockShift, units: blocks, nkeys: 50 << 20, seed: SeedFor(uint64(i))}.append(field)
		readers[i] = mustOpen(b, payload)
	}
	for _, ahead := range []bool{false, true} {
		b.Run(fmt.Sprintf("runs=%d/prefetch=%v", runs, ahead), func(b *testing.B) {
			h := uint64(1)
			for b.Loop() {
				h = SeedFor(h)
				if ahead {
					for i := range readers {
						readers[i].Prefetch(h)
					}
				}
				hits := uint64(0)
				for i := range readers {
					if readers[i].MayContain(h) {
						hits += readTable(h)
					}
				}
				h += hits
			}
			sinkWord += h
		})
	}
}

// readTable stands for what a "maybe" leads to; a call keeps the branch.
//
//go:noinline
func readTable(h uint64) uint64 { return h | 1 }

func BenchmarkAdd(b *testing.B) {
	builder := NewBuilder(10_000, 0)
	h := uint64(0)
	for b.Loop() {
		h += mulA
		builder.Add(h)
		if builder.Keys() == 1<<20 {
			builder.Release()
		}
	}
}

func BenchmarkFinish(b *testing.B) {
	for _, n := range []int{10_000, 1_000_000} {
		for _, millibits := range []uint32{10_000, 20_000} {
			b.Run(fmt.Sprintf("keys=%d/millibits=%d", n, millibits), func(b *testing.B) {
				builder := NewBuilder(millibits, SeedFor(1))
				for i := range n {
					builder.Add(SeedFor(uint64(i)))
				}
				var payload []byte
				for b.Loop() {
					payload, _, _ = builder.Finish(payload[:0])
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/key")
			})
		}
	}
}

func BenchmarkOpen(b *testing.B) {
	builder := NewBuilder(10_000, 0)
	for i := range 10_000 {
		builder.Add(SeedFor(uint64(i)))
	}
	payload, _, err := builder.Finish(nil)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		r, err := Open(payload)
		sinkBool = err == nil && r.nkeys > 0
	}
}

func BenchmarkExpectedRate(b *testing.B) {
	for _, millibits := range []uint32{1_000, 10_000, 20_000} {
		b.Run(fmt.Sprintf("millibits=%d", millibits), func(b *testing.B) {
			for b.Loop() {
				sinkBool = ExpectedRate(KindBlocked, millibits) > 0
			}
		})
	}
}
