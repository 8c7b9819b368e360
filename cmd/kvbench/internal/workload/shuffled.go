package workload

import (
	"math/bits"
	"math/rand/v2"
)

// shuffled is an order of the numbers below n that is computed, not stored: a
// Feistel network permutes the numbers of an even number of bits, and what
// falls beyond n goes through it again until it does not (cycle walking: Black
// and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002), which is less
// than four times in the mean.
type shuffled struct {
	n    uint64
	half int    // bits of half a number
	mask uint64 // of half a number
	keys [4]uint64
}

// newShuffled returns an order of n >= 1 numbers that depends on seed and
// stream only.
func newShuffled(n int, seed, stream uint64) *shuffled {
	half := max(1, (bits.Len64(uint64(n-1))+1)/2)
	s := &shuffled{n: uint64(n), half: half, mask: 1<<half - 1}
	rng := rand.New(rand.NewPCG(seed, stream))
	for i := range s.keys {
		s.keys[i] = rng.Uint64()
	}
	return s
}

// at returns the i-th number.
func (s *shuffled) at(i int) uint64 {
	x := uint64(i)
	for {
		left, right := x>>s.half, x&s.mask
		for _, key := range s.keys {
			h := (right ^ key) * 0x9e3779b97f4a7c15
			h = (h ^ h>>32) * 0xbf58476d1ce4e5b9
			left, right = right, left^h>>32&s.mask
		}
		if x = left<<s.half | right; x < s.n {
			return x
		}
	}
}
