package stats

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Quantiles of the Poisson distribution, from tables.
func TestPoissonInterval(t *testing.T) {
	for _, x := range []struct {
		mean      float64
		low, high uint64
	}{
		{0, 0, 0}, {0.01, 0, 0}, {1, 0, 3}, {5, 1, 10}, {10, 4, 17}, {100, 81, 120}, {1000, 938, 1062},
	} {
		if low, high := PoissonInterval(x.mean); low != x.low || high != x.high {
			t.Errorf("mean %v: %d to %d, want %d to %d", x.mean, low, high, x.low, x.high)
		}
	}
	// Far out it is the normal distribution.
	if low, high := PoissonInterval(1e6); low < 998_035 || low > 998_045 || high < 1_001_955 || high > 1_001_965 {
		t.Errorf("mean 1e6: %d to %d", low, high)
	}
}

func near(a, b, relative float64) bool { return math.Abs(a-b) <= relative*math.Abs(b) }

func TestQuantilesFromTables(t *testing.T) {
	for share, want := range map[float64]float64{0.6827: 1, 0.95: 1.959964, 0.99: 2.575829} {
		if got := Z(share); !near(got, want, 1e-4) {
			t.Errorf("Z(%v) = %v, want %v", share, got, want)
		}
	}
	for freedom, want := range map[float64]float64{4: 2.776, 10: 2.228, 20: 2.086, 38: 2.024, 1000: 1.962} {
		if got := studentT(freedom); !near(got, want, 0.01) {
			t.Errorf("t of %v degrees of freedom = %v, want %v", freedom, got, want)
		}
	}
}

// Wilson's interval of 10 out of 100 is a textbook case.
func TestWilson(t *testing.T) {
	if low, high := Wilson(10, 100, Z(0.95)); !near(low, 0.0552, 1e-2) || !near(high, 0.1744, 1e-2) {
		t.Errorf("%v to %v", low, high)
	}
	if low, high := Wilson(0, 100, 1.96); low != 0 || !near(high, 0.0370, 1e-2) {
		t.Errorf("none of 100: %v to %v", low, high)
	}
	for n := range uint64(2000) {
		if low, _ := Wilson(0, n, 3.5); low != 0 {
			t.Errorf("none of %d: from %v", n, low)
		}
		if _, high := Wilson(n, n, 3.5); high != 1 {
			t.Errorf("%d of %d: to %v", n, n, high)
		}
	}
	if low, high := Wilson(0, 0, 1.96); low != 0 || high != 1 {
		t.Errorf("of nothing: %v to %v", low, high)
	}
}

// Of many intervals made from samples, as many hold the truth as they say.
func TestCoverage(t *testing.T) {
	const seed, trials = 7, 4000
	rng := rand.New(rand.NewPCG(seed, 1))
	wilson, ratio, together := 0, 0, 0
	for range trials {
		const n, p = 2000, 0.01
		hits := uint64(0)
		for range n {
			if rng.Float64() < p {
				hits++
			}
		}
		if low, high := Wilson(hits, n, Z(0.95)); low <= p && p <= high {
			wilson++
		}
		if low, high := Wilson(hits, n, Z(Together(0.95, 50))); low <= p && p <= high {
			together++
		}
		var a, b []float64
		for range 10 {
			a, b = append(a, 100+10*rng.NormFloat64()), append(b, 150+10*rng.NormFloat64())
		}
		if _, low, high, ok := RatioInterval(a, b); ok && low <= 1.5 && 1.5 <= high {
			ratio++
		}
	}
	for name, x := range map[string]struct {
		got       int
		low, high float64
	}{"wilson": {wilson, 0.93, 0.97}, "ratio": {ratio, 0.93, 0.97}, "together": {together, 0.997, 1}} {
		if share := float64(x.got) / trials; share < x.low || share > x.high {
			t.Errorf("%s: %v of the intervals hold the truth, want %v to %v (seed %d)", name, share, x.low, x.high, seed)
		}
	}
}

func TestRatioIntervalSaysNothingOfTooLittle(t *testing.T) {
	enough := []float64{1, 2, 3}
	for name, x := range map[string][2][]float64{
		"two": {{1, 2}, enough}, "none": {enough, nil}, "zero": {{0, 0, 0}, enough},
	} {
		if _, _, _, ok := RatioInterval(x[0], x[1]); ok {
			t.Errorf("%s: an interval", name)
		}
	}
	if ratio, low, high, ok := RatioInterval([]float64{2, 2, 2}, []float64{4, 4, 4}); !ok || ratio != 2 || low != 2 || high != 2 {
		t.Errorf("without spread: %v, %v to %v, %v", ratio, low, high, ok)
	}
}
