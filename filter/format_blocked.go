package filter

import (
	"encoding/binary"
	"math/bits"
)

const (
	blockBytes    = 64
	blockBits     = 8 * blockBytes
	blockShift    = 6 // log2 of blockBytes
	maxProbes     = 14
	probeBits     = 9 // log2 of blockBits
	probesPerWord = 64 / probeBits
)

// Kind 1, blocked Bloom filter: nblocks = units blocks of 64 bytes. Normative.
//
//	A     = 0x9E3779B97F4A7C15     B = 0xD6E8FEB86659FD93     (arithmetic modulo 2^64)
//	x     = (h ^ seed) * A
//	block = (x * nblocks) >> 64                               (128-bit product)
//	y     = (x ^ x>>32) * B        y' = (y ^ y>>32) * A
//	probe 0..6  p = (y  >> (55 - 9i)) & 511
//	probe 7..13 p = (y' >> (55 - 9(i-7))) & 511
//	bit   p of a block is bit p&7 (1 << (p&7)) of its byte p>>3

// locate returns the block of hash h and the word that holds its first seven
// probes. The remix by a multiplication keeps hashes that are poor, or that
// were sharded by their own top bits, from crowding into few blocks; taking
// the high half of the product needs no division and uses the best bits.
// nblocks is a uint64 and so is the block, because offsets in bits pass 2^32.
func locate(h, seed, nblocks uint64) (block, y uint64) {
	x := (h ^ seed) * mulA
	block, _ = bits.Mul64(x, nblocks)
	return block, (x ^ x>>32) * mulB
}

// second returns the word that holds probes seven to thirteen.
func second(y uint64) uint64 { return (y ^ y>>32) * mulA }

// probeSteps[i] is the largest size, in thousandths of a bit per key, that
// gets i+1 probes; what is above the last gets maxProbes. The first twelve are
// those of RocksDB (util/bloom_impl.h, ChooseNumProbes). A step that lies
// beside the exact crossover of the model in model.go costs less than 2 % of
// the rate. ln 2 times the bits per key, the rule for a filter without blocks,
// gives too many probes.
var probeSteps = [maxProbes - 1]uint32{
	2_080, 3_580, 5_100, 6_640, 8_300, 10_070, 11_720,
	14_001, 16_050, 18_300, 22_001, 25_501, 28_000,
}

// probesFor returns the number of probes for a size in thousandths of a bit
// per key.
func probesFor(millibits uint32) uint8 {
	for i, top := range probeSteps {
		if millibits <= top {
			return uint8(i + 1)
		}
	}
	return maxProbes
}

// fill sets the bits of hashes and returns their exclusive or. Hashes do not
// wait for one another, so that their cache misses overlap.
func (t trailer) fill(field []byte, hashes []uint64) (xor uint64) {
	if t.kind == KindStandard {
		return fillStandard(field, hashes, t)
	}
	k, nblocks := t.k, uint64(t.units)
	for _, h := range hashes {
		xor ^= h
		block, y := locate(h, t.seed, nblocks)
		line := (*[blockBytes]byte)(field[block*blockBytes:])
		setAll(line, y, min(k, probesPerWord))
		if k > probesPerWord {
			setAll(line, second(y), k-probesPerWord)
		}
	}
	return xor
}

// setAll sets the bits at the first n nine-bit positions of word, from the top.
func setAll(line *[blockBytes]byte, word uint64, n uint8) {
	for ; n > 0; n-- {
		line[word>>58] |= 1 << (word >> 55 & 7)
		word <<= probeBits
	}
}

// probe reports whether all k bits of a hash are set. About half of the bits
// of a block are, so that a branch after each probe, which is how filters are
// mostly written, is mispredicted every other time: 12 to 14 ns for an absent
// key at 10 bits per key, against 7 to 9 without any branch. One branch after
// four probes settles 15 of 16 absent keys in 5 to 7 ns and leaves present
// keys as they were. (1 million and 10,000 keys, hot.)
func probe(line *[blockBytes]byte, y uint64, k uint8) bool {
	if k < 4 {
		return allSet(line, y, k)
	}
	first := line[y>>58] >> (y >> 55 & 7) &
		(line[y>>49&63] >> (y >> 46 & 7)) &
		(line[y>>40&63] >> (y >> 37 & 7)) &
		(line[y>>31&63] >> (y >> 28 & 7))
	if first&1 == 0 {
		return false
	}
	rest := y << (4 * probeBits)
	if k <= probesPerWord {
		return allSet(line, rest, k-4)
	}
	return allSet(line, rest, probesPerWord-4) && allSet(line, second(y), k-probesPerWord)
}

// allSet reports whether the bits at the first n nine-bit positions of word,
// from the top, are set.
func allSet(line *[blockBytes]byte, word uint64, n uint8) bool {
	found := byte(1)
	for ; n > 0; n-- {
		found &= line[word>>58] >> (word >> 55 & 7)
		word <<= probeBits
	}
	return found != 0
}

// realisedBlockedRate is the mean over the blocks of field of (ones/512)^k. Blocks
// are counted by their number of ones first, so that the sum has at most 513
// terms and the same rounding everywhere.
func realisedBlockedRate(field []byte, k uint8) float64 {
	if len(field) == 0 {
		return 0
	}
	var blocksWith [blockBits + 1]uint64
	for p := field; len(p) >= blockBytes; p = p[blockBytes:] {
		blocksWith[onesIn((*[blockBytes]byte)(p))]++
	}
	sum := 0.0
	for ones, n := range blocksWith {
		if n > 0 {
			// The conversion keeps architectures with a fused multiply-add from using it.
			sum += float64(float64(n) * fillPower(ones, blockBits, k))
		}
	}
	return sum / float64(len(field)/blockBytes)
}

// onesIn counts the bits that are set in a block.
func onesIn(line *[blockBytes]byte) int {
	n := 0
	for i := 0; i < blockBytes; i += 8 {
		n += bits.OnesCount64(binary.LittleEndian.Uint64(line[i:]))
	}
	return n
}

// fillPower is (ones/bits)^k.
func fillPower(ones, bits int, k uint8) float64 {
	p := 1.0
	for range k {
		p *= float64(ones) / float64(bits)
	}
	return p
}
