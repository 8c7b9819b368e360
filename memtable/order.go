package memtable

import (
	"bytes"
	"slices"
	"sort"
	"sync"

	"github.com/google/btree"

	"sievedb/internal/keys"
)

const (
	// treeDegree bounds a node to 63 items, 768 bytes. A degree of 64 inserts no
	// faster, halves the nodes, and copies half as much again under scans.
	treeDegree = 32
	// treeBytesPerKey is the tree's memory per user key: 19 measured with
	// random keys, 27 with ascending ones, which leave nodes half full.
	treeBytesPerKey = 23
	// numPivots are the refs that name a pivot: no record is in the first chunk.
	numPivots = 16
	// minRekey and maxRekey bound the numbers of user keys at which bases are
	// chosen. A pass over 16,384 keys holds up the writer for 2 to 3 ms.
	minRekey = 64
	maxRekey = 1 << 14
)

// item stands for one user key in the tree, without a pointer; or for a search
// key, whose bytes are in a pivot. The tree is what a memtable has on the heap, which the
// collector lets double: the prefix is in two halves since a uint64 would leave padding.
type item struct {
	high, low uint32 // halves of order.prefix of the user key
	first     ref    // its first record; below numPivots, the number of a pivot
}

func newItem(prefix uint64, first ref) item {
	return item{high: uint32(prefix >> 32), low: uint32(prefix), first: first}
}

func (it item) prefix() uint64 { return uint64(it.high)<<32 | uint64(it.low) }

// pivot lends a search key, which an item cannot point to, to the compare
// function while one descent of a tree lasts.
type pivot struct {
	mu  sync.Mutex // guards key, from before the descent until after
	key []byte
	_   [32]byte // a cache line each
}

// order compares the items of one tree, and never changes.
//
// Inlined key prefixes decide nothing when keys start alike, so they are taken
// behind a base that many keys share; several bases, because a store often
// holds several families of keys. The bases and the gaps between them are
// consecutive ranges of user keys: a prefix is the number of the key's range
// in its first byte, and seven bytes of key. Ties fall back to a full compare.
// No key ever forces a change of bases: bad ones cost time only.
type order struct {
	arena  *arena
	pivots *[numPivots]pivot
	bases  [][]byte // ascending; none is a prefix of another
}

// newTree returns an empty tree, without a free list: no item is ever deleted.
func (o *order) newTree() *btree.BTreeG[item] {
	return btree.NewWithFreeListG(treeDegree, o.less, btree.NewFreeListG[item](0))
}

// prefix maps user keys to numbers: prefix(a) < prefix(b) implies a < b.
func (o *order) prefix(userKey []byte) uint64 {
	i := sort.Search(len(o.bases), func(i int) bool { return bytes.Compare(o.bases[i], userKey) > 0 })
	interval := 2 * i // the gap below base i
	if i > 0 && bytes.HasPrefix(userKey, o.bases[i-1]) {
		interval--
		userKey = userKey[len(o.bases[i-1]):]
	}
	return uint64(interval)<<56 | keys.Prefix8(userKey)>>8
}

// less orders items by user key.
func (o *order) less(a, b item) bool {
	if a, b := a.prefix(), b.prefix(); a != b {
		return a < b
	}
	return bytes.Compare(o.key(a), o.key(b)) < 0
}

// key returns the user key, or the search key, of an item.
func (o *order) key(it item) []byte {
	if it.first < numPivots {
		return o.pivots[it.first].key
	}
	return o.arena.record(it.first).key()
}

// rekey is called after each insert. At each doubling of the number of keys,
// so that all passes together touch each about once, it chooses bases anew; if
// they differ, it returns an order with them and the tree in that order. The
// old tree is left alone: iterators may be reading it.
func (o *order) rekey(tree *btree.BTreeG[item]) (*order, *btree.BTreeG[item]) {
	n := tree.Len()
	if n < minRekey || n > maxRekey || n&(n-1) != 0 {
		return o, tree
	}
	sample, stride, i := make([][]byte, 0, minRekey), n/minRekey, 0
	tree.Ascend(func(it item) bool {
		if i%stride == stride/2 {
			sample = append(sample, o.key(it))
		}
		i++
		return true
	})
	bases := appendBases(nil, sample, 0)
	if slices.EqualFunc(bases, o.bases, bytes.Equal) {
		return o, tree
	}
	fresh := &order{arena: o.arena, pivots: o.pivots, bases: bases}
	rekeyed := fresh.newTree()
	tree.Ascend(func(it item) bool {
		rekeyed.ReplaceOrInsert(newItem(fresh.prefix(o.key(it)), it.first))
		return true
	})
	return fresh, rekeyed
}

// appendBases appends bases for the user keys that a sorted sample stands for,
// of minLen bytes at least: what all have in common; or, if that leaves neighbours
// too much alike, the bases of each part that goes on with a byte of its own, if it
// is a sixteenth of all.
func appendBases(bases, sample [][]byte, minLen int) [][]byte {
	if len(sample) < minRekey/16 {
		return bases
	}
	common := keys.CommonPrefixLen(sample[0], sample[len(sample)-1])
	alike := 0
	for i := 1; i < len(sample); i++ {
		// Of the seven bytes, three are to tell apart the keys in between.
		if keys.CommonPrefixLen(sample[i-1], sample[i]) >= common+4 {
			alike++
		}
	}
	if alike < len(sample)/4 {
		// Seven bytes are enough for the rest of a shorter base where keys are
		// short, and ascending ones soon leave a longer one behind.
		longest := 0
		for _, k := range sample {
			longest = max(longest, len(k))
		}
		if n := max(minLen, min(common, longest-7)); n > 0 {
			bases = append(bases, bytes.Clone(sample[0][:n]))
		}
		return bases
	}
	start := 0
	for i := 1; i <= len(sample); i++ {
		if i == len(sample) || keys.CommonPrefixLen(sample[i-1], sample[i]) == common {
			bases = appendBases(bases, sample[start:i], common+1)
			start = i
		}
	}
	return bases
}
