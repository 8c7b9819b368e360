package filter

import (
	"fmt"
	"math"
	"math/bits"
	"unsafe"

	"sievedb/internal/corrupt"
	"sievedb/internal/prefetch"
)

// Reader answers from a payload. It is a small value that may be copied; the
// zero Reader is match-all. It is immutable and safe for concurrent use.
type Reader struct {
	field []byte // aliases the payload
	seed  uint64
	units uint64
	nkeys uint64
	k     uint8
	log2  uint8 // of the bytes of a unit
	kind  Kind
}

// Open returns a Reader over payload, without copying it: the caller keeps the
// bytes unchanged for as long as the Reader lives. Open looks at the trailer's
// kind, never at an option. A payload that is short, of an unknown kind or at
// odds with itself gives a *corrupt.Error, with offsets within the payload,
// and a Reader that is match-all and may be used.
func Open(payload []byte) (Reader, error) {
	field, t, err := parse(payload)
	if err != nil {
		return MatchAll(), err
	}
	return Reader{field: field, seed: t.seed, units: uint64(t.units), nkeys: t.nkeys, k: t.k, log2: t.log2, kind: t.kind}, nil
}

// MatchAll returns the Reader that answers "maybe" to every hash. It stands in
// for a filter that is missing, unknown or damaged.
func MatchAll() Reader { return Reader{} }

// IsMatchAll reports whether no filter is behind r. It is false for the filter
// of no keys, which answers "no".
func (r *Reader) IsMatchAll() bool { return r.kind == KindNone }

// Kind returns the payload's kind, KindNone for match-all.
func (r *Reader) Kind() Kind { return r.kind }

// Keys returns the number of hashes in the filter, equal neighbours counted
// once.
func (r *Reader) Keys() uint64 { return r.nkeys }

// Bytes returns the bytes of the payload that r keeps alive.
func (r *Reader) Bytes() int {
	if r.IsMatchAll() {
		return 0
	}
	return len(r.field) + trailerBytes
}

// Rate returns the false-positive rate that the bits give, as Info.Rate does:
// for the payload that Finish made it is the same number. It is 1 for
// match-all. It reads the whole payload.
func (r *Reader) Rate() float64 {
	if r.IsMatchAll() {
		return 1
	}
	return r.kind.realisedRate(r.field, r.k)
}

// CheckRate asks r about made-up hashes, as many as 1,000 false positives
// need but no more than 200,000, and reports as a *corrupt.Error an outcome
// more than six standard deviations and ten from what Rate says, a fifth at
// most rates, and a share of 16 of its bits: where there are only 64 of them, probes of one
// hash meet each other, and it may be off by a quarter. Then probes are not where the bits are, or hashes meet blocks that
// are fuller than others. Chance alone comes to that less than once in 10^9
// filters, and always with the same ones, since the hashes are the same.
func (r *Reader) CheckRate() error {
	rate := r.Rate()
	n := 200_000
	if rate > 0 {
		n = int(min(float64(n), math.Ceil(1000/rate)))
	}
	maybe := 0
	for i := range n {
		if r.MayContain(SeedFor(uint64(i) + 1<<63)) { // no table has such a number
			maybe++
		}
	}
	expected := float64(n) * rate
	if math.Abs(float64(maybe)-expected) > 6*math.Sqrt(expected*(1-rate))+10+2*expected/float64(max(len(r.field), 8)) {
		return corrupt.At(0, fmt.Sprintf("filter answers to %d absent hashes", n), fmt.Sprintf("about %.0f times maybe", expected), maybe)
	}
	return nil
}

// MayContain reports whether a key with hash h may be in the table: false is
// certain, true is not. It takes no lock and allocates nothing. A blocked filter
// has one cache line of the payload touched, two if the payload is not aligned
// to 64 bytes; a fuse filter three, a standard one up to K.
func (r *Reader) MayContain(h uint64) bool {
	switch r.kind {
	case KindBlocked:
		block, y := locate(h, r.seed, r.units)
		off := block * blockBytes
		if off >= uint64(len(r.field)) { // the filter of no keys
			return false
		}
		return probe((*[blockBytes]byte)(r.field[off:]), y, r.k)
	case KindFuse:
		return probeFuse(r.field, h, r.seed, r.log2)
	case KindStandard:
		return probeStandard(r.field, h, r.seed, r.k)
	}
	return true
}

// Prefetch asks for what MayContain reads first of the payload, and does not wait for
// it. Asking for the lines of all candidate runs before the first is tested overlaps
// their cache misses: six cold runs take half the time.
func (r *Reader) Prefetch(h uint64) {
	var off uint64
	switch r.kind {
	case KindFuse:
		off, _, _ = fuseSlots(fuseHash(h, r.seed), (r.units-2)<<(r.log2&63), r.log2)
	case KindStandard:
		y, _ := probeWords(h, r.seed)
		off, _ = bits.Mul64(y, uint64(len(r.field)))
	default:
		block, _ := locate(h, r.seed, r.units)
		off = block * blockBytes
	}
	if off < uint64(len(r.field)) {
		prefetch.Lines(unsafe.Pointer(&r.field[off]), 1)
	}
}
