package filter

import (
	"math"
	"math/bits"
)

const (
	fuseProbes      = 3
	fuseRate        = 1.0 / 256 // of fingerprints of 8 bits that agree by chance
	minSegmentShift = 2
	maxSegmentShift = 18

	// MinFuseKeys is the least number of keys for which a fuse filter is built:
	// with fewer it takes more than 10 bits for each, the default of a blocked
	// one, which is read with one cache line and not three.
	MinFuseKeys = 10_000
	// maxFuseKeys bounds the scratch memory, to half a gigabyte; and slots fit
	// in 32 bits.
	maxFuseKeys = 1 << 24
)

// Kind 3, binary fuse filter of three probes with fingerprints of 8 bits (Graf
// and Lemire, "Binary Fuse Filters: Fast and Smaller Than Xor Filters", 2022):
// units segments of 2^log2 slots of one byte. Normative.
//
//	x     = (h ^ seed) * A                                    (A and B of kind 1)
//	y     = (x ^ x>>32) * B        f = y ^ y>>32
//	len   = 1 << log2              mask = len - 1
//	slot 0   s = (f * ((units-2) * len)) >> 64                (128-bit product)
//	slot 1       (s +   len) ^ (f>>18 & mask)
//	slot 2       (s + 2*len) ^ (f     & mask)
//	fingerprint  (f ^ f>>32) & 255
//
// A hash may be in the table if the exclusive or of its three slots is its
// fingerprint. They lie in three segments one behind the other.

// fuseHash mixes a hash so that all bits of the result depend on all bits of
// it. It is a bijection: hashes that differ stay different.
func fuseHash(h, seed uint64) uint64 {
	x := (h ^ seed) * mulA
	y := (x ^ x>>32) * mulB
	return y ^ y>>32
}

// fuseSlots returns the slots of a mixed hash. span is (units-2) << log2.
func fuseSlots(f, span uint64, log2 uint8) (a, b, c uint64) {
	a, _ = bits.Mul64(f, span)
	size := uint64(1) << (log2 & 63)
	b = a + size
	c = b + size
	b ^= f >> maxSegmentShift & (size - 1)
	c ^= f & (size - 1)
	return a, b, c
}

func fingerprint(f uint64) byte { return byte(f ^ f>>32) }

// probeFuse reports whether the slots of h agree with its fingerprint. Requires:
// parse accepted the field.
func probeFuse(field []byte, h, seed uint64, log2 uint8) bool {
	f := fuseHash(h, seed)
	a, b, c := fuseSlots(f, uint64(len(field))-2<<(log2&63), log2)
	return fingerprint(f)^field[a]^field[b]^field[c] == 0
}

// fuseSize returns a shape with which the construction succeeds at the first
// attempt nearly always: segments that grow with ln n / ln 3.33, and so many
// slots for each key, as the authors found by experiment. With less than about
// 30 segments theirs fail up to every other time, at some numbers of keys
// always; segments half as long do not. A reader depends on none of it.
func fuseSize(keys uint64) (units uint32, log2 uint8) {
	const base, first, few = 3.33, 2.4650991, 60_000 // first is 3.33^0.75
	log2 = minSegmentShift
	for bound := first; float64(keys) >= bound && log2 < maxSegmentShift; bound *= base {
		log2++
	}
	if keys < few {
		log2 = max(minSegmentShift, log2-1)
	}
	slots := 0.0
	if n := float64(keys); keys > 1 {
		slots = math.Round(n * max(1.125, 0.875+0.25*math.Log(1e6)/math.Log(n)))
	}
	size := uint64(1) << log2
	return uint32(max(fuseProbes, (uint64(slots)+size-1)/size)), log2
}

// FuseBytes returns the size of the payload of a fuse filter of so many keys, in
// bytes, or zero if they are too few or too many for one.
func FuseBytes(keys uint64) uint64 {
	if keys < MinFuseKeys || keys > maxFuseKeys {
		return 0
	}
	units, log2 := fuseSize(keys)
	return uint64(units)<<log2 + trailerBytes
}
