package filter

import (
	"encoding/binary"
	"math/bits"
)

const (
	wordShift         = 3 // log2 of the bytes of a unit
	maxStandardProbes = 30
)

// Kind 2, standard Bloom filter: m = 64 x units bits, to any of which each probe
// may go. Normative.
//
//	x     = (h ^ seed) * A                                    (A and B of kind 1)
//	y     = (x ^ x>>32) * B        z = (y ^ y>>32) * A
//	probe i  p = (y * m) >> 64                                (128-bit product)
//	then     y = y + z             z = z + B*(i+1)
//	bit   p is bit p&7 (1 << (p&7)) of byte p>>3 of the field
//
// This is enhanced double hashing (Dillinger and Manolios, "Bloom Filters in
// Probabilistic Verification", 2004) with 64 bits for the position. Its second
// differences are multiples of B and not of 1, so that they reach the high bits,
// which alone count: with 1, or with none, the probes of a hash are evenly
// spaced, and a filter of 32 keys answers "maybe" a third more often than it
// should.

// probeWords returns the first probe's position in 64 bits, and the step to the
// next.
func probeWords(h, seed uint64) (y, z uint64) {
	x := (h ^ seed) * mulA
	y = (x ^ x>>32) * mulB
	return y, second(y)
}

// standardProbesFor is ln 2 times the bits per key, rounded to the next
// integer: the number of probes that sets half of the bits.
func standardProbesFor(millibits uint32) uint8 {
	const ln2 = 693_147 // millionths
	k := (uint64(millibits)*ln2 + 500_000_000) / 1_000_000_000
	return uint8(min(max(k, 1), maxStandardProbes))
}

// fillStandard sets the bits of hashes and returns their exclusive or.
func fillStandard(field []byte, hashes []uint64, t trailer) (xor uint64) {
	m := uint64(len(field)) * 8
	for _, h := range hashes {
		xor ^= h
		y, z := probeWords(h, t.seed)
		for i := range uint64(t.k) {
			p, _ := bits.Mul64(y, m)
			field[p>>3] |= 1 << (p & 7)
			y += z
			z += mulB * (i + 1)
		}
	}
	return xor
}

// probeStandard reports whether all k bits of h are set. It stops at the first
// that is not: each is another cache line.
func probeStandard(field []byte, h, seed uint64, k uint8) bool {
	m := uint64(len(field)) * 8
	y, z := probeWords(h, seed)
	for i := range uint64(k) {
		p, _ := bits.Mul64(y, m)
		if field[p>>3]>>(p&7)&1 == 0 {
			return false
		}
		y += z
		z += mulB * (i + 1)
	}
	return m > 0 // the filter of no keys has none
}

// realisedStandardRate is (ones/m)^k.
func realisedStandardRate(field []byte, k uint8) float64 {
	if len(field) == 0 {
		return 0
	}
	ones := 0
	for p := field; len(p) > 0; p = p[8:] {
		ones += bits.OnesCount64(binary.LittleEndian.Uint64(p))
	}
	return fillPower(ones, 8*len(field), k)
}
