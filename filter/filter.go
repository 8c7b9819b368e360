// Package filter builds and probes the filters that say "that key is not
// here" before anything touches the disk. A filter knows hashes of user keys
// only: no sequence numbers, no kinds, no order. "Maybe" may be wrong, "no"
// never is.
//
// There are three kinds. All probes of a blocked Bloom filter, the default, fall
// into one 512-bit block, so that a look-up costs one cache line. A binary fuse
// filter takes a tenth less memory for less than half of the false positives, and
// needs longer to be built: it is for the bottom of the tree. A standard Bloom
// filter is what textbooks describe; the others are held against it. What they
// have in common on disk stands above the codec in format.go, each kind in a
// file of its own.
//
//	b := filter.NewBuilder(10_000, filter.SeedFor(fileNum)) // 10 bits per key
//	b.Add(filter.Hash(userKey))                             // for every entry, in key order
//	payload, info, err := b.Finish(nil)
//	b.Release()
//
//	r, err := filter.Open(payload) // on error r is match-all: count it, go on
//	if !r.MayContain(filter.Hash(userKey)) { … } // not in the table
//
// Checksums and the place of a payload within a file belong to the caller.
//
// A Builder belongs to one goroutine at a time. A Reader is immutable, and its
// methods and all functions are safe for concurrent use.
package filter

import (
	"fmt"

	"github.com/cespare/xxhash/v2"
)

// Bounds of a filter's size in thousandths of a bit per key. Below one bit a
// filter answers "maybe" nearly always; the upper bound catches a total number
// of bits that was given as bits per key.
const (
	MinMillibits = 1_000
	MaxMillibits = 100_000
)

// Hash is the only way from a user key to a filter hash, when a table is
// written and when it is read. It hashes the whole user key, without sequence
// number and kind, with xxhash64 (seed 0). It does not keep userKey.
func Hash(userKey []byte) uint64 { return xxhash.Sum64(userKey) }

// SeedFor returns the seed of the filter of a table: splitmix64 (Steele, Lea
// and Flood, "Fast Splittable Pseudorandom Number Generators", 2014) of its
// file number. Seeds that differ make the false positives of the runs
// independent of one another; without them a key that is unlucky in one run is
// unlucky in every run of equal size that holds the same keys.
func SeedFor(fileNum uint64) uint64 {
	z := fileNum + mulA
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// ValidateMillibits returns an error unless millibits (thousandths of a bit
// per key) lies in [MinMillibits, MaxMillibits].
func ValidateMillibits(millibits uint32) error {
	if millibits < MinMillibits || millibits > MaxMillibits {
		return fmt.Errorf("filter: %d thousandths of a bit per key: want %d to %d", millibits, MinMillibits, MaxMillibits)
	}
	return nil
}
