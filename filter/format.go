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
	// KindNone is the kind of a reader without a filter behind it: a table
	// without a filter says it of itself.
	KindNone Kind = 0
	// KindBlocked is the blocked Bloom filter with 512-bit blocks.
	KindBlocked Kind = 1
	// KindStandard is the Bloom filter of the textbooks.
	KindStandard Kind = 2
	// KindFuse is the binary fuse filter with 8-bit fingerprints.
	KindFuse Kind = 3
)

var kindNames = [...]string{KindNone: "none", KindBlocked: "blocked", KindStandard: "standard", KindFuse: "fuse"}

// String names the kind.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("filter kind(%d)", uint8(k))
}

const (
	trailerBytes  = 24
	flagWholeKeys = 1

	// Odd multipliers; mulA is 2^64 divided by the golden ratio. Both are part
	// of the format.
	mulA = 0x9E3779B97F4A7C15
	mulB = 0xD6E8FEB86659FD93
)

// Payload of every kind. Normative. Integers are little-endian. A field of
// units of 2^log2 bytes, then the trailer, so that the units are aligned
// whenever the payload is.
//
//	0                                              units << log2
//	+---------+---------+-- ... --+----------------+---------+
//	| unit 0  | unit 1  |         | unit units-1   | trailer |
//	+---------+---------+-- ... --+----------------+---------+
//
//	trailer, 24 bytes
//	 0      1      2      3      4                8               16               24
//	+------+------+------+------+----------------+----------------+----------------+
//	| kind | k    | log2 | flags| units u32      | nkeys u64      | seed u64       |
//	+------+------+------+------+----------------+----------------+----------------+
//	  kind   1 to 3                  log2   a unit's size in bytes as a power of two
//	  k      probes for a hash       flags  bit 0: whole user keys; the others are 0
//	  nkeys  hashes added, equal neighbours counted once
//
//	kind          unit      log2      k         units
//	1 blocked     block     6         1 to 14   any number
//	2 standard    word      3         1 to 30   any number
//	3 fuse        segment   2 to 18   3         at least 3, and units << log2 >= nkeys
//
//	k = units = nkeys = 0 is the filter of no keys, of kind 1 or 2: it answers
//	"no" to all. No other encoding has a zero in any of the three.
type trailer struct {
	kind  Kind
	k     uint8
	log2  uint8
	units uint32
	nkeys uint64
	seed  uint64
}

// fieldBytes returns the length of what stands before the trailer.
func (t trailer) fieldBytes() uint64 { return uint64(t.units) << t.log2 }

func (t trailer) append(dst []byte) []byte {
	dst = append(dst, byte(t.kind), t.k, t.log2, flagWholeKeys)
	dst = binary.LittleEndian.AppendUint32(dst, t.units)
	dst = binary.LittleEndian.AppendUint64(dst, t.nkeys)
	return binary.LittleEndian.AppendUint64(dst, t.seed)
}

// limit bounds the trailer's fields for a kind; the zero limit is that of a kind
// which is not known.
type limit struct{ minK, maxK, minLog2, maxLog2 uint8 }

var limits = [...]limit{
	KindBlocked:  {0, maxProbes, blockShift, blockShift},
	KindStandard: {0, maxStandardProbes, wordShift, wordShift},
	KindFuse:     {fuseProbes, fuseProbes, minSegmentShift, maxSegmentShift},
}

// decodeTrailer reads the fields, whatever they are, and what bounds them.
func decodeTrailer(p []byte) (t trailer, l limit) {
	t = trailer{
		kind:  Kind(p[0]),
		k:     p[1],
		log2:  p[2],
		units: binary.LittleEndian.Uint32(p[4:]),
		nkeys: binary.LittleEndian.Uint64(p[8:]),
		seed:  binary.LittleEndian.Uint64(p[16:]),
	}
	if int(t.kind) < len(limits) {
		l = limits[t.kind]
	}
	return t, l
}

// parse splits a payload into its field, which aliases it, and its trailer.
// What it refuses it reports as a *corrupt.Error with the offset in the payload.
func parse(payload []byte) (field []byte, t trailer, err error) {
	at := len(payload) - trailerBytes
	if at < 0 {
		return nil, t, corrupt.At(0, "filter length", "at least 24 bytes", len(payload))
	}
	p := payload[at:]
	bad := func(offset int, what string, want, got any) ([]byte, trailer, error) {
		return nil, trailer{}, corrupt.At(int64(at+offset), what, want, got)
	}
	t, l := decodeTrailer(p)
	switch {
	case l.maxK == 0:
		return bad(0, "filter kind", "1 to 3", int(t.kind))
	case t.k < l.minK || t.k > l.maxK:
		return bad(1, "filter probes", fmt.Sprintf("%d to %d", l.minK, l.maxK), int(t.k))
	case t.log2 < l.minLog2 || t.log2 > l.maxLog2:
		return bad(2, "filter unit size", fmt.Sprintf("log2 %d to %d", l.minLog2, l.maxLog2), int(t.log2))
	case p[3] != flagWholeKeys:
		return bad(3, "filter flags", uint8(flagWholeKeys), p[3])
	case t.fieldBytes() != uint64(at):
		return bad(4, "filter units", at>>t.log2, int64(t.units))
	case (t.k == 0) != (t.nkeys == 0) || (t.units == 0) != (t.nkeys == 0):
		return bad(8, "filter keys", "zero keys, units and probes together",
			fmt.Sprintf("%d keys, %d units, %d probes", t.nkeys, t.units, t.k))
	case t.kind == KindFuse && (t.units < fuseProbes || t.nkeys > uint64(at)):
		return bad(4, "fuse filter", "at least 3 segments and a slot for each key", fmt.Sprintf("%d segments, %d keys, %d slots", t.units, t.nkeys, at))
	}
	return payload[:at:at], t, nil
}

// PayloadBytes returns the length of the payload that ends like tail, or zero
// if no payload does: what the trailer promises, so that a payload can be found
// of which only the end is known. It says nothing of the bytes before.
func PayloadBytes(tail []byte) uint64 {
	if len(tail) < trailerBytes {
		return 0
	}
	p := tail[len(tail)-trailerBytes:]
	t, l := decodeTrailer(p)
	if l.maxK == 0 || t.log2 < l.minLog2 || t.log2 > l.maxLog2 || p[3] != flagWholeKeys {
		return 0
	}
	return t.fieldBytes() + trailerBytes
}

// maxInt bounds a slice: 2^31-1 where int has 32 bits.
const maxInt = uint64(int(^uint(0) >> 1))

// unitsFor is the smallest number of units that gives nkeys keys at least
// millibits thousandths of a bit each. millibits is at most MaxMillibits, so
// that the high half of the product stays below the divisor and the division
// cannot overflow.
func unitsFor(nkeys uint64, millibits uint32, log2 uint8) (uint32, error) {
	hi, lo := bits.Mul64(nkeys, uint64(millibits))
	n, rest := bits.Div64(hi, lo, 8000<<log2)
	if rest > 0 {
		n++
	}
	if n >= 1<<32 || n > (maxInt-trailerBytes)>>log2 {
		return 0, fmt.Errorf("filter: %d keys at %d thousandths of a bit do not fit one filter", nkeys, millibits)
	}
	return uint32(n), nil
}

// actualMillibits is what the keys get out of the units, rounded down to
// thousandths of a bit: more than was asked for by what rounding up to whole
// units gives.
func (t trailer) actualMillibits() uint32 {
	return uint32(t.fieldBytes() * 8000 / max(1, t.nkeys))
}
