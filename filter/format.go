package filter

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"sievedb/internal/corrupt"
)

// Kind says how a payload is read. Zero is never written, so that zeroed bytes
// are not a filter.
type Kind uint8

const (
	// KindNone is the kind of a reader without a filter behind it.
	KindNone Kind = 0
	// KindBlocked is the blocked Bloom filter with 512-bit blocks.
	KindBlocked Kind = 1
)

var kindNames = [...]string{KindNone: "none", KindBlocked: "blocked"}

// String names the kind.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("filter kind(%d)", uint8(k))
}

const (
	blockBytes    = 64
	blockBits     = 8 * blockBytes
	blockShift    = 6 // log2 of blockBytes
	trailerBytes  = 24
	flagWholeKeys = 1
	maxProbes     = 14
	probeBits     = 9 // log2 of blockBits
	probesPerWord = 64 / probeBits

	// Odd multipliers; mulA is 2^64 divided by the golden ratio. Both are part
	// of the format.
	mulA = 0x9E3779B97F4A7C15
	mulB = 0xD6E8FEB86659FD93
)

// Payload of kind 1, blocked Bloom filter. Normative. Integers are
// little-endian; nblocks x 64 bytes of bits, then the trailer, so that blocks
// are aligned to cache lines whenever the payload is.
//
//	0                                                      nblocks*64
//	+----------------+----------------+-- ... --+----------------+---------+
//	| block 0, 64 B  | block 1, 64 B  |         | block nblocks-1| trailer |
//	+----------------+----------------+-- ... --+----------------+---------+
//
//	trailer, 24 bytes
//	 0      1      2      3      4                8               16               24
//	+------+------+------+------+----------------+----------------+----------------+
//	| kind | k    | log2 | flags| nblocks u32    | nkeys u64      | seed u64       |
//	+------+------+------+------+----------------+----------------+----------------+
//	  kind   1                       log2   6, the block's size in bytes as a power of two
//	  k      probes, 1 to 14         flags  bit 0: whole user keys; the others are 0
//	  nkeys  hashes added, equal neighbours counted once
//
//	k = nblocks = nkeys = 0 is the filter of no keys: it answers "no" to all.
//	No other encoding has a zero in any of the three.
//
//	A     = 0x9E3779B97F4A7C15     B = 0xD6E8FEB86659FD93     (arithmetic modulo 2^64)
//	x     = (h ^ seed) * A
//	block = (x * nblocks) >> 64                               (128-bit product)
//	y     = (x ^ x>>32) * B        y' = (y ^ y>>32) * A
//	probe 0..6  p = (y  >> (55 - 9i)) & 511
//	probe 7..13 p = (y' >> (55 - 9(i-7))) & 511
//	bit   p of a block is bit p&7 (1 << (p&7)) of its byte p>>3
type trailer struct {
	kind    Kind
	k       uint8
	nblocks uint32
	nkeys   uint64
	seed    uint64
}

func (t trailer) append(dst []byte) []byte {
	dst = append(dst, byte(t.kind), t.k, blockShift, flagWholeKeys)
	dst = binary.LittleEndian.AppendUint32(dst, t.nblocks)
	dst = binary.LittleEndian.AppendUint64(dst, t.nkeys)
	return binary.LittleEndian.AppendUint64(dst, t.seed)
}

// parse splits a payload into its bits, which alias it, and its trailer. What
// it refuses it reports as a *corrupt.Error with the offset in the payload.
func parse(payload []byte) (bitsOf []byte, t trailer, err error) {
	at := len(payload) - trailerBytes
	if at < 0 {
		return nil, t, corrupt.At(0, "filter length", "at least 24 bytes", len(payload))
	}
	p := payload[at:]
	bad := func(field int, what string, want, got any) ([]byte, trailer, error) {
		return nil, trailer{}, corrupt.At(int64(at+field), what, want, got)
	}
	t = trailer{
		kind:    Kind(p[0]),
		k:       p[1],
		nblocks: binary.LittleEndian.Uint32(p[4:]),
		nkeys:   binary.LittleEndian.Uint64(p[8:]),
		seed:    binary.LittleEndian.Uint64(p[16:]),
	}
	switch {
	case t.kind != KindBlocked:
		return bad(0, "filter kind", int(KindBlocked), int(t.kind))
	case t.k > maxProbes:
		return bad(1, "filter probes", "0 to 14", int(t.k))
	case p[2] != blockShift:
		return bad(2, "filter block size", "log2 6", int(p[2]))
	case p[3] != flagWholeKeys:
		return bad(3, "filter flags", uint8(flagWholeKeys), p[3])
	case uint64(t.nblocks)*blockBytes != uint64(at):
		return bad(4, "filter blocks", at/blockBytes, int64(t.nblocks))
	case (t.k == 0) != (t.nkeys == 0) || (t.nblocks == 0) != (t.nkeys == 0):
		return bad(8, "filter keys", "zero keys, blocks and probes together",
			fmt.Sprintf("%d keys, %d blocks, %d probes", t.nkeys, t.nblocks, t.k))
	}
	return payload[:at:at], t, nil
}

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

// blocksFor is the smallest number of blocks that gives nkeys keys at least
// millibits thousandths of a bit each. millibits is at most MaxMillibits, so
// that the high half of the product stays below the divisor and the division
// cannot overflow.
func blocksFor(nkeys uint64, millibits uint32) (uint32, error) {
	const perBlock = blockBits * 1000
	hi, lo := bits.Mul64(nkeys, uint64(millibits))
	n, rest := bits.Div64(hi, lo, perBlock)
	if rest > 0 {
		n++
	}
	if n >= 1<<32 || n > (maxInt-trailerBytes)/blockBytes {
		return 0, fmt.Errorf("filter: %d keys at %d thousandths of a bit do not fit one filter", nkeys, millibits)
	}
	return uint32(n), nil
}

// maxInt bounds a slice: 2^31-1 where int has 32 bits.
const maxInt = uint64(int(^uint(0) >> 1))

// actualMillibits is what nkeys keys get out of the blocks that blocksFor gave
// them, rounded down to thousandths of a bit: at most 512 bits more than was
// asked for, when one key has a block to itself.
func actualMillibits(nkeys uint64, nblocks uint32) uint32 {
	if nkeys == 0 {
		return 0
	}
	return uint32(uint64(nblocks) * blockBits * 1000 / nkeys)
}

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
