// Package rangedel fragments, truncates and looks up range tombstones.
//
// A range tombstone [Start, End) with sequence number s hides the entries of
// the user keys in it that have smaller sequence numbers, for reads at s and
// later (invariant 5). However wide it is, it is one record. A memtable keeps
// its tombstones in a Log, which answers while it grows. A flush or compaction
// cuts what it has into spans that do not overlap, and each table holds those
// within its bounds as a Set:
//
//	spans := rangedel.Fragment(log.All(), snapshots)
//	set := rangedel.NewSet(rangedel.Truncate(spans, smallest, upper))
//	if set.Covering(key, snapshot) > entrySeq {
//		// hidden: no filter, no index and no block is asked
//	}
//
// A compaction fragments what AppendTombstones lists of all its inputs, merges
// the points against the result, and only then drops with Elide what has
// nothing left to hide. A scan wraps the iterator of each run in a Skipping.
//
// Functions are pure. A Set and a Run are immutable and safe for concurrent
// use; a Log has one writer beside any number of readers; a Skipping is not
// safe for concurrent use. Key slices that are returned belong to whoever holds
// them: they must not be changed, and stay as they are.
package rangedel

import (
	"bytes"

	"sievedb/internal/keys"
)

// Tombstone is one range tombstone: user keys Start <= key < End. A nil End is
// no bound: it cannot be given as a key, for after every key comes another. A
// tombstone hides nothing, and is dropped wherever it is met, unless Start <
// End and Seq > 0. The slices belong to whoever made it.
type Tombstone struct {
	Start, End []byte
	Seq        keys.SeqNum
}

// hides reports whether t can hide an entry.
func (t Tombstone) hides() bool { return t.Seq > 0 && isAfter(t.End, t.Start) }

// isAfter reports whether an end, which may be nil, comes after key.
func isAfter(end, key []byte) bool { return end == nil || bytes.Compare(end, key) > 0 }

// Span is a range of user keys, Start <= key < End, throughout which the same
// tombstones apply; a nil End is no bound. Seqs are their sequence numbers,
// descending and never empty.
type Span struct {
	Start, End []byte
	Seqs       []keys.SeqNum
}

// Stretch is a range of user keys, Start <= key < End, throughout which a
// reader meets the same newest tombstone, whose sequence number is Seq; it is
// zero where there is none. A nil Start or End is no bound on that side.
// Neighbours may have the same Seq.
type Stretch struct {
	Start, End []byte
	Seq        keys.SeqNum
}

// narrow cuts st down to what it has in common with t.
func (st *Stretch) narrow(t Stretch) {
	if bytes.Compare(t.Start, st.Start) > 0 {
		st.Start = t.Start
	}
	if t.End != nil && (st.End == nil || bytes.Compare(t.End, st.End) < 0) {
		st.End = t.End
	}
}

// Source tells what the tombstones of one run do at any point of the key
// space. Tombstones with sequence numbers beyond the snapshot do not count.
type Source interface {
	// StretchAt returns the stretch that holds key.
	StretchAt(key []byte, snapshot keys.SeqNum) Stretch
	// StretchBefore returns the stretch that holds what lies immediately
	// before key: Start < key <= End. Requires: key is not empty.
	StretchBefore(key []byte, snapshot keys.SeqNum) Stretch
}

var (
	_ Source = (*Set)(nil)
	_ Source = (*Run)(nil)
	_ Source = (*Log)(nil)
)

// place is a place in the key space to look at: on key, or immediately before
// it.
type place struct {
	key    []byte
	before bool
}

// reached reports whether a range that begins at bound has begun at p; so has
// one that ends there ended.
func (p place) reached(bound []byte) bool {
	c := bytes.Compare(bound, p.key)
	return c < 0 || c == 0 && !p.before
}
