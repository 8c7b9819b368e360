// Package itertest helps to test implementations and users of iter.Iterator: a
// model to compare with, a checker that walks at random, and wrappers that
// fail on demand or punish the use of memory beyond its lifetime.
//
//	entries := []itertest.Entry{{Key: keys.Make([]byte("a"), 7, keys.KindPut)}}
//	itertest.Check(t, func() iter.Iterator { return table.NewIter() }, entries)
//
// Nothing in it is safe for concurrent use.
package itertest

import (
	"slices"
	"sort"

	"sievedb/internal/iter"
	"sievedb/internal/keys"
)

// Entry is an internal key and its value.
type Entry struct {
	Key   keys.InternalKey
	Value []byte
}

// Sort sorts entries into the order of internal keys, in place; equal keys
// keep their order.
func Sort(entries []Entry) {
	slices.SortStableFunc(entries, func(a, b Entry) int { return keys.Compare(a.Key, b.Key) })
}

// Slice iterates over sorted entries in memory.
type Slice struct {
	entries []Entry
	pos     int // -1 or len(entries): on no entry
	closes  int
}

var _ iter.Iterator = (*Slice)(nil)

// NewSlice returns an iterator over entries, which it keeps and never changes.
// Requires: entries are in the order of internal keys.
func NewSlice(entries []Entry) *Slice { return &Slice{entries: entries, pos: -1} }

// First implements iter.Iterator.
func (s *Slice) First() bool { return s.at(0) }

// Last implements iter.Iterator.
func (s *Slice) Last() bool { return s.at(len(s.entries) - 1) }

// SeekGE implements iter.Iterator.
func (s *Slice) SeekGE(userKey []byte, trailer keys.Trailer) bool {
	return s.at(firstGE(s.entries, userKey, trailer))
}

// SeekLT implements iter.Iterator.
func (s *Slice) SeekLT(userKey []byte, trailer keys.Trailer) bool {
	return s.at(firstGE(s.entries, userKey, trailer) - 1)
}

// Next implements iter.Iterator.
func (s *Slice) Next() bool { return s.Valid() && s.at(s.pos+1) }

// Prev implements iter.Iterator.
func (s *Slice) Prev() bool { return s.Valid() && s.at(s.pos-1) }

// Valid implements iter.Iterator.
func (s *Slice) Valid() bool { return s.pos >= 0 && s.pos < len(s.entries) }

// Key implements iter.Iterator.
func (s *Slice) Key() keys.InternalKey { return s.entries[s.pos].Key }

// Value implements iter.Iterator.
func (s *Slice) Value() []byte { return s.entries[s.pos].Value }

// Error implements iter.Iterator. It is always nil.
func (s *Slice) Error() error { return nil }

// Close implements iter.Iterator. It counts; from then on s is empty.
func (s *Slice) Close() error {
	s.closes++
	s.entries, s.pos = nil, -1
	return nil
}

// Closes returns how many times Close was called.
func (s *Slice) Closes() int { return s.closes }

func (s *Slice) at(pos int) bool {
	s.pos = pos
	return s.Valid()
}

// firstGE returns the position of the first entry at or after the internal
// key (userKey, trailer).
func firstGE(entries []Entry, userKey []byte, trailer keys.Trailer) int {
	target := keys.InternalKey{UserKey: userKey, Trailer: trailer}
	return sort.Search(len(entries), func(i int) bool { return keys.Compare(entries[i].Key, target) >= 0 })
}
