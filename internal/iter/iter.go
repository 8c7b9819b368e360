// Package iter holds the contract of internal iterators and the iterator that
// merges many of them.
//
//	m := iter.NewMerging(memtableIter, tableIter)
//	for ok := m.SeekGE(key, keys.SeekTrailer(seq)); ok; ok = m.Next() {
//		use(m.Key(), m.Value())
//	}
//	err := m.Close() // the first error of any input
//
// Iterators are not safe for concurrent use.
package iter

import "sievedb/internal/keys"

// Iterator walks internal keys in both directions. A new iterator is on no
// entry. Positioning calls report whether the iterator stands on an entry;
// when they report false, Error tells apart the end and a failure.
//
// Key and Value may be called only while the iterator stands on an entry;
// what they return is valid until the next positioning call and must not be
// changed. Next past the last entry and Prev before the first leave the
// iterator on no entry; from there only an absolute call (First, Last,
// SeekGE, SeekLT) moves it.
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
