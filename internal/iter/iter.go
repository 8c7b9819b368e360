// Package iter holds the contract of internal iterators and what is built of
// them: Concat walks the tables of one level, Merging walks many runs as one,
// and Visible shows what a snapshot sees of the result.
//
//	m := iter.NewMerging(memtableIter, tableIter, iter.NewConcat(level))
//	v := iter.NewVisible(m, iter.VisibleOptions{Snapshot: seq, Upper: hi})
//	for ok := v.SeekGE(lo); ok; ok = v.Next() {
//		use(v.Key(), v.Value())
//	}
//	err := v.Close() // the first error of any input
//
// Iterators are not safe for concurrent use. After the first failure an
// iterator of this package stands on no entry for good, so that no caller can
// take half a result for a whole one.
package iter

import (
	"bytes"

	"sievedb/internal/keys"
)

// maxTrailer sorts before every entry of the same user key, minTrailer after
// every one, because kinds start at one.
const (
	maxTrailer keys.Trailer = 1<<64 - 1
	minTrailer keys.Trailer = 0
)

// Iterator walks internal keys in both directions. A new iterator is on no
// entry. Positioning calls report whether the iterator stands on an entry;
// when they report false, Error tells apart the end and a failure.
//
// Key and Value may be called only while the iterator stands on an entry;
// what they return is valid until the next positioning call and must not be
// changed. For the same reason the user key given to a seek must not be memory
// that Key or Value returned; it is not kept beyond the call. Next past the
// last entry and Prev before the first leave the iterator on no entry; from
// there only an absolute call (First, Last, SeekGE, SeekLT) moves it.
type Iterator interface {
	// First moves to the first entry.
	First() bool
	// Last moves to the last entry.
	Last() bool
	// SeekGE moves to the first entry at or after the internal key
	// (userKey, trailer).
	SeekGE(userKey []byte, trailer keys.Trailer) bool
	// SeekLT moves to the last entry before the internal key
	// (userKey, trailer).
	SeekLT(userKey []byte, trailer keys.Trailer) bool
	// Next moves to the following entry.
	Next() bool
	// Prev moves to the preceding entry.
	Prev() bool
	// Valid reports whether the iterator stands on an entry.
	Valid() bool
	// Key returns the entry's internal key.
	Key() keys.InternalKey
	// Value returns the entry's value.
	Value() []byte
	// Error returns the first failure.
	Error() error
	// Close releases what the iterator holds and returns the first failure.
	// It may be called more than once.
	Close() error
}

// Leaf is an iterator that can make the usual step of a scan at once: to an entry
// in the same block that is the only version of its user key, a put, and visible.
// A scan that goes through the layers of iterators for it, some of which look at the
// key, takes twice as long.
//
// NextPut and PrevPut make such a step or none. When they report false, nothing has
// changed, and Next or Prev of the lender goes on.
type Leaf interface {
	Iterator
	// NextPut moves to the following entry if that is in the block, of another
	// user key, within the bound, a put, and visible at snapshot.
	NextPut(snapshot keys.SeqNum) (userKey, value []byte, ok bool)
	// PrevPut moves to the preceding entry if that is in the block, Alone, a put,
	// and visible at snapshot. Requires: the current entry is Alone.
	PrevPut(snapshot keys.SeqNum) (userKey, value []byte, ok bool)
	// Alone reports whether the current entry is within the bound and seen to
	// have no newer version: the one before it is in the block, and of another
	// user key.
	Alone() bool
}

// Lender is an Iterator that may stand on the entry of a Leaf.
type Lender interface {
	// Lend returns that Leaf, or nil. Its steps, in the direction of the
	// lender's last move, will show only user keys that lie strictly before bound
	// (in reverse: after), nil being none, and before what else the lender has
	// to show. Requires: the lender stands on an entry.
	//
	// The next positioning call of the lender ends the loan, and goes on from where
	// the leaf then is. Until then Key and Value are to be asked of the leaf.
	Lend(bound []byte, reverse bool) Leaf
}

// Nearer returns which of two bounds of a loan, nil for none, is met first.
func Nearer(a, b []byte, reverse bool) []byte {
	if a == nil || b != nil && (bytes.Compare(b, a) < 0) != reverse {
		return b
	}
	return a
}
