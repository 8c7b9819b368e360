package compaction

import (
	"flag"
	"math/rand/v2"
	"sort"

	"sievedb/internal/keys"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the randomised tests; 0 takes a new one")

// newSeed returns the seed of a randomised test, which must print it.
func newSeed() uint64 {
	if *seedFlag != 0 {
		return *seedFlag
	}
	return rand.Uint64()
}

type entry struct {
	key   keys.InternalKey
	value []byte
}

// sliceIter is an iter.Iterator over sorted entries.
type sliceIter struct {
	entries []entry
	at      int
	err     error // returned at the end instead of it
}

func newSliceIter(entries []entry) *sliceIter { return &sliceIter{entries: entries, at: -1} }

func (i *sliceIter) First() bool { i.at = 0; return i.Valid() }
func (i *sliceIter) Last() bool  { i.at = len(i.entries) - 1; return i.Valid() }
func (i *sliceIter) Next() bool  { i.at++; return i.Valid() }
func (i *sliceIter) Prev() bool  { i.at--; return i.Valid() }

func (i *sliceIter) SeekGE(userKey []byte, trailer keys.Trailer) bool {
	want := keys.InternalKey{UserKey: userKey, Trailer: trailer}
	i.at = sort.Search(len(i.entries), func(n int) bool { return keys.Compare(i.entries[n].key, want) >= 0 })
	return i.Valid()
}

func (i *sliceIter) SeekLT(userKey []byte, trailer keys.Trailer) bool {
	i.SeekGE(userKey, trailer)
	return i.Prev()
}

func (i *sliceIter) Valid() bool           { return i.at >= 0 && i.at < len(i.entries) }
func (i *sliceIter) Key() keys.InternalKey { return i.entries[i.at].key }
func (i *sliceIter) Value() []byte         { return i.entries[i.at].value }
func (i *sliceIter) Close() error          { return i.Error() }

func (i *sliceIter) Error() error {
	if i.at >= len(i.entries) {
		return i.err
	}
	return nil
}
