package filter

import (
	"fmt"
	"math"

	"sievedb/internal/corrupt"
)

// Reader answers from a payload. It is a small value that may be copied; the
// zero Reader is match-all. It is immutable and safe for concurrent use.
type Reader struct {
	bits    []byte // nblocks x 64 bytes, aliasing the payload
	seed    uint64
	nblocks uint64
	nkeys   uint64
	k       uint8
	kind    Kind
}

// Open returns a Reader over payload, without copying it: the caller keeps the
// bytes unchanged for as long as the Reader lives. Open looks at the trailer's
// kind, never at an option. A payload that is short, of an unknown kind or at
// odds with itself gives a *corrupt.Error, with offsets within the payload,
// and a Reader that is match-all and may be used.
func Open(payload []byte) (Reader, error) {
	b, t, err := parse(payload)
	if err != nil {
		return MatchAll(), err
	}
	return Reader{bits: b, seed: t.seed, nblocks: uint64(t.nblocks), nkeys: t.nkeys, k: t.k, kind: t.kind}, nil
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

// Blocks returns the number of 64-byte blocks.
func (r *Reader) Blocks() uint64 { return r.nblocks }

// K returns the number of probes per hash.
func (r *Reader) K() int { return int(r.k) }

// Bytes returns the bytes of the payload that r keeps alive.
func (r *Reader) Bytes() int {
	if r.IsMatchAll() {
		return 0
	}
	return len(r.bits) + trailerBytes
}

// Rate returns the false-positive rate that the bits give, as Info.Rate does:
// for the payload that Finish made it is the same number. It is 1 for
// match-all. It reads the whole payload.
func (r *Reader) Rate() float64 {
	if r.IsMatchAll() {
		return 1
	}
	return realisedRate(r.bits, r.k)
}

// CheckRate asks r about made-up hashes, as many as 1,000 false positives
// need but no more than 200,000, and reports as a *corrupt.Error an outcome
// more than six standard deviations and ten from what Rate says: a fifth at
// most rates. Then probes are not where the bits are, or hashes meet blocks that
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
	if math.Abs(float64(maybe)-expected) > 6*math.Sqrt(expected*(1-rate))+10 {
		return corrupt.At(0, fmt.Sprintf("filter answers to %d absent hashes", n), fmt.Sprintf("about %.0f times maybe", expected), maybe)
	}
	return nil
}

// MayContain reports whether a key with hash h may be in the table: false is
// certain, true is not. It takes no lock, allocates nothing and touches one
// cache line of the payload, two if the payload is not aligned to 64 bytes.
func (r *Reader) MayContain(h uint64) bool {
	block, y := locate(h, r.seed, r.nblocks)
	off := block * blockBytes
	if off >= uint64(len(r.bits)) { // no blocks: match-all, or a filter of no keys
		return r.kind == KindNone
	}
	return probe((*[blockBytes]byte)(r.bits[off:]), y, r.k)
}

// Touch starts to bring the block of h into the processor's cache. A look-up
// that touches the block of every candidate run before it tests the first
// overlaps its cache misses: six cold runs take 280 ns instead of 400 to 440.
// The result means nothing and may be ignored; it is there, and the function
// is not inlined, so that the compiler keeps the load.
//
//go:noinline
func (r *Reader) Touch(h uint64) byte {
	block, _ := locate(h, r.seed, r.nblocks)
	off := block * blockBytes
	if off >= uint64(len(r.bits)) {
		return 0
	}
	return r.bits[off]
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
