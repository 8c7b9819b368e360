package histogram

import (
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
	"unsafe"
)

func newSeed(t testing.TB) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("SIEVEDB_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("SIEVEDB_SEED=%d", seed)
	return seed
}

// TestBuckets walks over the edges of all buckets: none is skipped, none
// overlaps, and the middle is within MaxError of both ends.
func TestBuckets(t *testing.T) {
	low := uint64(0)
	for b := range buckets {
		if got := bucketOf(low); got != b {
			t.Fatalf("%d ns is in bucket %d, want %d", low, got, b)
		}
		next := low + 1
		if low >= 1<<subBits {
			next = low + uint64(1)<<(b>>subBits-1)
		}
		middle := middleOf(b)
		for _, edge := range []uint64{low, next - 1} {
			if bucketOf(edge) != b || bucketOf(middle) != b {
				t.Fatalf("bucket %d: the edge %d is in %d, the middle %d in %d", b, edge, bucketOf(edge), middle, bucketOf(middle))
			}
			if off := math.Abs(float64(middle) - float64(edge)); off > MaxError*float64(edge) {
				t.Fatalf("bucket %d: the middle %d is %.1f%% off the edge %d", b, middle, 100*off/float64(edge), edge)
			}
		}
		low = next
	}
	if low != 1<<maxBits {
		t.Errorf("the buckets end at %d, want %d", low, uint64(1)<<maxBits)
	}
	if got := bucketOf(math.MaxInt64); got != buckets-1 {
		t.Errorf("the longest duration is in bucket %d, want %d", got, buckets-1)
	}
}

// TestQuantiles compares with the sorted durations, for distributions of many
// shapes: uniform, spread over all magnitudes, two peaks, all the same.
func TestQuantiles(t *testing.T) {
	rng := rand.New(rand.NewPCG(newSeed(t), 0))
	shapes := map[string]func() time.Duration{
		"uniform":    func() time.Duration { return time.Duration(rng.Int64N(1e6)) },
		"magnitudes": func() time.Duration { return time.Duration(math.Exp(rng.Float64() * 27)) },
		"two peaks":  func() time.Duration { return []time.Duration{80, 4e6}[rng.IntN(50)/49] + time.Duration(rng.IntN(30)) },
		"constant":   func() time.Duration { return 12_345 },
		"tiny":       func() time.Duration { return time.Duration(rng.IntN(20)) },
	}
	for name, next := range shapes {
		for _, n := range []int{1, 2, 10, 999, 20_000} {
			var h Histogram
			var all []time.Duration
			var sum time.Duration
			for range n {
				d := next()
				h.Record(d)
				all = append(all, d)
				sum += d
			}
			slices.Sort(all)
			got := h.Load()
			if got.Count != uint64(n) || got.Sum != sum || got.Max != all[n-1] || got.Mean() != sum/time.Duration(n) {
				t.Errorf("%s, %d: count %d, sum %d, max %d, mean %d", name, n, got.Count, got.Sum, got.Max, got.Mean())
			}
			for _, q := range []float64{0, 0.001, 0.5, 0.9, 0.99, 0.999, 1} {
				want := all[max(int(math.Ceil(q*float64(n))), 1)-1]
				if off := math.Abs(float64(got.Quantile(q) - want)); off > MaxError*float64(want) {
					t.Errorf("%s, %d: quantile %v is %d, want %d within %.1f%%", name, n, q, got.Quantile(q), want, 100*MaxError)
				}
			}
		}
	}
}

// TestExtremes records what is out of range: nothing, less than nothing, more
// than the buckets tell apart.
func TestExtremes(t *testing.T) {
	var h Histogram
	if d := h.Load(); d.Count != 0 || d.Mean() != 0 || d.Quantile(0.5) != 0 || d.Max != 0 {
		t.Errorf("empty: %d, %v, %v, %v", d.Count, d.Mean(), d.Quantile(0.5), d.Max)
	}
	h.Record(-5)
	if d := h.Load(); d.Count != 1 || d.Sum != 0 || d.Quantile(1) != 0 {
		t.Errorf("a negative duration: %d, %v, %v", d.Count, d.Sum, d.Quantile(1))
	}
	h.Record(100 * time.Hour)
	if d := h.Load(); d.Count != 2 || d.Sum != 100*time.Hour || d.Max != 100*time.Hour || d.Quantile(1) < 17*time.Minute {
		t.Errorf("a very long one: %d, %v, %v, %v", d.Count, d.Sum, d.Max, d.Quantile(1))
	}
}

// TestConcurrent loses no recording of goroutines that share stripes.
func TestConcurrent(t *testing.T) {
	var h Histogram
	var wg sync.WaitGroup
	const goroutines, each = 16, 2000
	for g := range goroutines {
		wg.Go(func() {
			for i := range each {
				h.Record(time.Duration(g*each + i))
			}
		})
	}
	wg.Wait()
	const n = goroutines * each
	if d := h.Load(); d.Count != n || d.Sum != n*(n-1)/2 || d.Max != n-1 {
		t.Errorf("count %d, sum %d, max %d", d.Count, d.Sum, d.Max)
	}
}

// TestRecordCosts holds what the package promises: no allocation, and stripes
// that begin and end with a cache line.
func TestRecordCosts(t *testing.T) {
	var h Histogram
	if n := testing.AllocsPerRun(100, func() { h.Record(1234) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if size := unsafe.Sizeof(h.lines[0]); size%64 != 0 || stripes*size > 38<<10 {
		t.Errorf("a stripe takes %d bytes", size)
	}
}

func BenchmarkRecord(b *testing.B) {
	var h Histogram
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		h.Record(time.Duration(i & 0xffff))
	}
}

func BenchmarkRecordParallel(b *testing.B) {
	var h Histogram
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			h.Record(time.Duration(i & 0xffff))
		}
	})
}
