package workload

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestParseMix(t *testing.T) {
	m, err := ParseMix("read=3, absent=1")
	if err != nil || m[Read] != 0.75 || m[Absent] != 0.25 || m.Writes() {
		t.Errorf("%v %v", m, err)
	}
	again, err := ParseMix(m.String())
	if err != nil || again != m {
		t.Errorf("%q parsed as %v, %v", m.String(), again, err)
	}
	for bad, says := range map[string]string{
		"": `called ""`, "read": `"" is not a weight`, "read=x": `"x"`, "read=-1": `"-1"`, "read=NaN": `"NaN"`,
		"dance=1": `"dance"`, "read=1,read=2": "twice", "read=0": "all weights",
	} {
		if _, err := ParseMix(bad); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want a word of %s", bad, err, says)
		}
	}
}

func TestYCSB(t *testing.T) {
	for name, want := range map[string]string{
		"a": "read=50,update=50 zipfian", "b": "read=95,update=5 zipfian", "C": "read=100 zipfian",
		"d": "read=95,insert=5 latest", "e": "insert=5,scan=95 zipfian", "f": "read=50,rmw=50 zipfian",
	} {
		m, d, err := YCSB(name)
		if got := m.String() + " " + d.String(); err != nil || got != want {
			t.Errorf("%s: %s %v, want %s", name, got, err, want)
		}
		if parsed, err := ParseDistribution(d.String()); err != nil || parsed != d {
			t.Errorf("%v parsed as %v, %v", d, parsed, err)
		}
		if m.Writes() == (name == "C") {
			t.Errorf("%s writes: %v", name, m.Writes())
		}
	}
	if _, _, err := YCSB("g"); err == nil {
		t.Error("there is no workload g")
	}
	if _, err := ParseDistribution("normal"); err == nil {
		t.Error("there is no normal distribution")
	}
}

func TestDrawFollowsShares(t *testing.T) {
	m, err := ParseMix("read=50,update=30,scan=20")
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	var counts [numOps]float64
	const n = 100_000
	for range n {
		counts[m.Draw(rng)]++
	}
	for op := range counts {
		if math.Abs(counts[op]/n-m[op]) > 0.01 {
			t.Errorf("%v: %v of the draws, want %v", Op(op), counts[op]/n, m[op])
		}
	}
}

// The share of each rank is what the distribution says, also while the number
// of keys grows.
func TestChooser(t *testing.T) {
	const n, draws = 1000, 400_000
	zeta := 0.0
	for i := 1; i <= n; i++ {
		zeta += math.Pow(float64(i), -zipfTheta)
	}
	rank := func(i int) float64 { return math.Pow(float64(i+1), -zipfTheta) / zeta }
	for d, want := range map[Distribution]func(i int) float64{
		Uniform: func(int) float64 { return 1.0 / n },
		Zipfian: rank,
		Latest:  func(i int) float64 { return rank(n - 1 - i) },
	} {
		c := NewChooser(d, rand.New(rand.NewPCG(1, 1)))
		for small := 1; small < n; small++ {
			if i := c.Next(small); i < 0 || i >= small {
				t.Fatalf("%v: %d of %d", d, i, small)
			}
		}
		var counts [n]float64
		for range draws {
			counts[c.Next(n)]++
		}
		// The approximation of the paper is exact for the first two ranks and
		// within a few percent for decades of the others.
		for _, span := range [][2]int{{0, 1}, {1, 2}, {10, 100}, {100, 900}, {990, 999}, {999, 1000}} {
			got, expected := 0.0, 0.0
			for i := span[0]; i < span[1]; i++ {
				got += counts[i] / draws
				expected += want(i)
			}
			if noise := 5 * math.Sqrt(expected/draws); math.Abs(got-expected) > 0.06*expected+noise {
				t.Errorf("%v: ranks %v have a share of %v, want %v", d, span, got, expected)
			}
		}
	}
}
