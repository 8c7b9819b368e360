package workload

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
)

// Op is a kind of operation.
type Op int

const (
	// Read looks up a key that was stored, and perhaps deleted since.
	Read Op = iota
	// Absent looks up a key that never was.
	Absent
	// Update overwrites a stored key.
	Update
	// Insert stores a new key.
	Insert
	// Scan reads some keys from a stored one on.
	Scan
	// ReadModifyWrite reads a key and overwrites it.
	ReadModifyWrite
	// Delete removes a stored key.
	Delete
	numOps
)

var opNames = [numOps]string{"read", "absent", "update", "insert", "scan", "rmw", "delete"}

// String names the operation as ParseMix does.
func (o Op) String() string { return opNames[o] }

// Writes reports whether the operation changes the store.
func (o Op) Writes() bool { return o != Read && o != Absent && o != Scan }

// Mix is what share of the operations is of each kind; the shares add up to 1.
type Mix [numOps]float64

// ParseMix reads "read=95,insert=5". The numbers are weights.
func ParseMix(s string) (m Mix, err error) {
	total := 0.0
	for part := range strings.SplitSeq(s, ",") {
		name, number, ok := strings.Cut(strings.TrimSpace(part), "=")
		weight, err := strconv.ParseFloat(number, 64)
		op := opNamed(name)
		switch {
		case op < 0:
			return m, fmt.Errorf("mix %q: no operation is called %q; there are: %s", s, name, strings.Join(opNames[:], " "))
		case !ok || err != nil || !(weight >= 0 && weight <= 1e9):
			return m, fmt.Errorf("mix %q: %q is not a weight", s, number)
		case m[op] > 0:
			return m, fmt.Errorf("mix %q: %s is there twice", s, name)
		}
		m[op] = weight
		total += weight
	}
	if total == 0 {
		return m, fmt.Errorf("mix %q: all weights are 0", s)
	}
	for op := range m {
		m[op] /= total
	}
	return m, nil
}

func opNamed(name string) Op {
	for op, n := range opNames {
		if n == name {
			return Op(op)
		}
	}
	return -1
}

// String is what ParseMix reads, in percent.
func (m Mix) String() string {
	var parts []string
	for op, share := range m {
		if share > 0 {
			parts = append(parts, fmt.Sprintf("%v=%.4g", Op(op), 100*share))
		}
	}
	return strings.Join(parts, ",")
}

// Writes reports whether any operation of the mix changes the store.
func (m Mix) Writes() bool {
	for op, share := range m {
		if share > 0 && Op(op).Writes() {
			return true
		}
	}
	return false
}

// Draw returns one operation.
func (m Mix) Draw(rng *rand.Rand) Op {
	x := rng.Float64()
	last := Op(0)
	for op, share := range m {
		if share > 0 {
			if last = Op(op); x < share {
				return last
			}
			x -= share
		}
	}
	return last // rounding left a little
}

// Distribution says which keys are asked for often.
type Distribution int

const (
	// Uniform asks for all keys alike.
	Uniform Distribution = iota
	// Zipfian asks for few keys very often, wherever they lie.
	Zipfian
	// Latest is Zipfian with the newest keys the most popular.
	Latest
)

var distributionNames = []string{"uniform", "zipfian", "latest"}

// String names the distribution.
func (d Distribution) String() string { return distributionNames[d] }

// ParseDistribution reads what String writes.
func ParseDistribution(s string) (Distribution, error) {
	for i, name := range distributionNames {
		if s == name {
			return Distribution(i), nil
		}
	}
	return 0, fmt.Errorf("no distribution is called %q; there are: %s", s, strings.Join(distributionNames, " "))
}

// YCSB returns the mix and the distribution of a core workload of the Yahoo!
// Cloud Serving Benchmark (Cooper and others, 2010), named a to f.
func YCSB(name string) (Mix, Distribution, error) {
	switch strings.ToLower(name) {
	case "a":
		return Mix{Read: 0.5, Update: 0.5}, Zipfian, nil
	case "b":
		return Mix{Read: 0.95, Update: 0.05}, Zipfian, nil
	case "c":
		return Mix{Read: 1}, Zipfian, nil
	case "d":
		return Mix{Read: 0.95, Insert: 0.05}, Latest, nil
	case "e":
		return Mix{Scan: 0.95, Insert: 0.05}, Zipfian, nil
	case "f":
		return Mix{Read: 0.5, ReadModifyWrite: 0.5}, Zipfian, nil
	}
	return Mix{}, 0, fmt.Errorf("no YCSB workload is called %q; there are: a b c d e f", name)
}

// Chooser draws positions among a growing number of keys.
type Chooser struct {
	distribution Distribution
	rng          *rand.Rand
	zipf         zipf
}

// NewChooser returns a Chooser that draws from rng.
func NewChooser(d Distribution, rng *rand.Rand) *Chooser {
	return &Chooser{distribution: d, rng: rng}
}

// Next returns a position in [0, n). n must be positive and never shrink. The
// popular keys of Zipfian are the first ones; since keys are stored in random
// order, they lie anywhere.
func (c *Chooser) Next(n int) int {
	switch c.distribution {
	case Zipfian:
		return c.zipf.next(c.rng, n)
	case Latest:
		return n - 1 - c.zipf.next(c.rng, n)
	}
	return c.rng.IntN(n)
}

// zipfTheta is the skew that YCSB uses.
const zipfTheta = 0.99

// zipf draws i with a probability proportional to 1/(i+1)^theta, after Gray and
// others, "Quickly Generating Billion-Record Synthetic Databases" (1994), which
// math/rand's Zipf cannot do for an exponent below one. The sum of the weights
// is extended as the number of items grows.
type zipf struct {
	n    int
	zeta float64 // the sum of i^-theta for i from 1 to n
}

func (z *zipf) next(rng *rand.Rand, n int) int {
	for z.n < n {
		z.n++
		z.zeta += math.Pow(float64(z.n), -zipfTheta)
	}
	const alpha = 1 / (1 - zipfTheta)
	zeta2 := 1 + math.Pow(2, -zipfTheta)
	u := rng.Float64()
	switch uz := u * z.zeta; {
	case uz < 1 || n < 2:
		return 0
	case uz < zeta2:
		return 1
	}
	eta := (1 - math.Pow(2/float64(n), 1-zipfTheta)) / (1 - zeta2/z.zeta)
	return min(n-1, int(float64(n)*math.Pow(eta*u-eta+1, alpha)))
}
