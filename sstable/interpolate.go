package sstable

import (
	"math"

	"sievedb/internal/keys"
)

// alphabet makes numbers of keys that lie as the keys do: evenly, if those are
// spread evenly. The bytes of a key, read as one number, lie so only if all values of
// a byte occur. In decimal digits what follows '9' is a '0' with a carry, and so it
// is here: the digits of a number are the ranks of the bytes among those that occur.
type alphabet struct {
	ranks  [256]uint16 // how many lesser bytes occur; with foreign, if the byte itself does not
	radix  uint64      // how many bytes occur, or 256
	lowest uint64      // the least of them, eight times
}

const (
	foreign = 1 << 15
	// maxRadix bytes may occur; if there are more, all count as occurring.
	maxRadix = 128
)

// newAlphabet returns the alphabet of the first eight bytes of n keys.
func newAlphabet(n int, key func(i int) []byte) (a alphabet) {
	var occurs [256]bool
	for i := range n {
		k := key(i)
		for _, b := range k[:min(len(k), 8)] {
			occurs[b] = true
		}
	}
	for b := range occurs {
		a.ranks[b] = uint16(a.radix)
		if !occurs[b] {
			a.ranks[b] |= foreign
			continue
		}
		if a.radix == 0 {
			a.lowest = uint64(b) * 0x0101010101010101
		}
		a.radix++
	}
	if a.radix > maxRadix {
		a.radix = 256
	}
	return a
}

// number returns the number of the first eight bytes of key. If a < b, and the bytes
// of one of them all occur, number(a) <= number(b). Equal numbers decide nothing.
func (a *alphabet) number(key []byte) uint64 {
	x := keys.Prefix8(key)
	if a.radix == 256 {
		return x
	}
	x |= a.lowest >> (8 * uint(len(key))) // not zeros, which are foreign, behind a short key
	r := &a.ranks
	r0, r1, r2, r3 := r[x>>56], r[x>>48&0xff], r[x>>40&0xff], r[x>>32&0xff]
	r4, r5, r6, r7 := r[x>>24&0xff], r[x>>16&0xff], r[x>>8&0xff], r[x&0xff]
	if (r0|r1|r2|r3|r4|r5|r6|r7)&foreign != 0 {
		return a.foreignNumber(x)
	}
	n := a.radix
	front := ((uint64(r0)*n+uint64(r1))*n+uint64(r2))*n + uint64(r3)
	back := ((uint64(r4)*n+uint64(r5))*n+uint64(r6))*n + uint64(r7)
	return front*(n*n*n*n) + back
}

// foreignNumber is number for the eight bytes of x, not all of which occur. The first
// that does not counts like the next greater one that does, and ends the number: all
// keys with the one are before all with the other.
func (a *alphabet) foreignNumber(x uint64) (number uint64) {
	ended := false
	for shift := 56; shift >= 0; shift -= 8 {
		number *= a.radix
		if !ended {
			r := a.ranks[x>>shift&0xff]
			number += uint64(r &^ foreign)
			ended = r&foreign != 0
		}
	}
	return number
}

// spread is a line through ascending numbers, and how far they are from it: the
// interpolation of an interpolation search, with the error known beforehand.
type spread struct {
	slope float64 // positions for each one that a number is greater
	slack int     // that many positions from the line are the numbers, at most
	even  bool    // slack is what it is for keys that are spread evenly
}

func newSpread(numbers []uint64) (s spread) {
	n := len(numbers)
	if n == 0 {
		return s
	}
	if width := numbers[n-1] - numbers[0]; width > 0 {
		s.slope = float64(n-1) / float64(width)
	}
	for i, number := range numbers {
		at := s.position(numbers, number)
		s.slack = max(s.slack, at-i, i-at)
	}
	// Of keys drawn at random the separators stray by less than 2 √n in all but one of a
	// thousand tables (Kolmogorov's distribution), if each is a block, and less if not.
	s.even = float64(s.slack) <= 2*math.Sqrt(float64(n))
	return s
}

// position returns where on the line number is. It rises with number.
func (s *spread) position(numbers []uint64, number uint64) int {
	first, last := numbers[0], numbers[len(numbers)-1]
	return int(float64(min(max(number, first), last)-first) * s.slope)
}

// near returns bounds, both included, of the position of the first number that is
// not below number.
func (s *spread) near(numbers []uint64, number uint64) (lo, hi int) {
	n := len(numbers)
	if !s.even {
		return 0, n
	}
	at := s.position(numbers, number)
	return max(at-s.slack, 0), min(at+s.slack+1, n)
}
