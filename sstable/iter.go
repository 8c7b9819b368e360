package sstable

import (
	"sievedb/internal/iter"
	"sievedb/internal/keys"
	"sievedb/sstable/internal/block"
)

// IterOptions are the settings of an Iter.
type IterOptions struct {
	// Stats, if not nil, is added to as the iterator goes.
	Stats *IterStats
	// NoFill reads past the cache, in large private buffers: for compactions,
	// which read everything once.
	NoFill bool
}

// Iter is the iterator over a table, as package iter defines it. It pins the
// block that it stands on. It is for one goroutine at a time; the table's file
// must stay readable until Close.
type Iter struct {
	r      *Reader
	fetch  fetcher
	own    IterStats // what fetch counts in if nobody wants to know
	closed bool
	err    error

	b        block.View
	blockIdx int // of b; -1: no block
	entry    int // of b
	valid    bool
	keyBuf   []byte // prefix of b, then the current suffix; begins as small
	small    [48]byte
	key      keys.InternalKey
	valueOff int

	// bound, less the prefix of b, ends the steps of the loan; nil: b ends before.
	bound []byte
}

var (
	_ iter.Leaf   = (*Iter)(nil)
	_ iter.Lender = (*Iter)(nil)
	_ iter.Blocks = (*Iter)(nil)
)

// noTable is what a closed Iter walks.
var noTable = &Reader{index: &index{}}

// NewIter returns an iterator over the entries, whether range tombstones hide
// them or not, that stands on none. Close it.
func (r *Reader) NewIter(o IterOptions) *Iter {
	i := new(Iter)
	i.Reset(r, o)
	return i
}

// Reset makes i what r.NewIter(o) returns, in the memory that it has.
// Requires: i is closed or new.
func (i *Iter) Reset(r *Reader, o IterOptions) {
	keyBuf := i.keyBuf[:0]
	if keyBuf == nil {
		keyBuf = i.small[:0]
	}
	*i = Iter{r: r, blockIdx: -1, keyBuf: keyBuf}
	i.fetch = fetcher{r: r, stats: o.Stats, noFill: o.NoFill, next: -1}
	if o.Stats == nil {
		i.fetch.stats = &i.own
	}
}

// load makes block n the current one.
func (i *Iter) load(n int) bool {
	i.valid = false
	if i.err != nil {
		return false
	}
	if i.blockIdx == n {
		return true
	}
	i.blockIdx = -1
	data, err := i.fetch.get(n)
	if err != nil {
		i.err = err
		return false
	}
	i.b = block.Of(data)
	i.blockIdx = n
	i.keyBuf = append(i.keyBuf[:0], i.b.Prefix()...)
	return true
}

// stand moves to entry n of the current block.
func (i *Iter) stand(n int) bool {
	suffix, trailer, valueOff := i.b.Entry(n)
	i.set(n, suffix, trailer, valueOff)
	i.valid = true
	return true
}

// set makes entry n of the current block, which is given, the current one.
func (i *Iter) set(n int, suffix []byte, trailer keys.Trailer, valueOff int) {
	i.entry, i.valueOff, i.key.Trailer = n, valueOff, trailer
	p := len(i.b.Prefix())
	if p == 0 {
		i.key.UserKey = suffix
		return
	}
	i.keyBuf = append(i.keyBuf[:p], suffix...)
	i.key.UserKey = i.keyBuf
}

// First moves to the first entry.
func (i *Iter) First() bool { return i.firstOf(0) }

// Last moves to the last entry.
func (i *Iter) Last() bool { return i.lastOf(i.r.index.n() - 1) }

// seek loads the block in which (userKey, trailer) belongs and returns the
// place in it; Len if it comes after the block's last entry.
func (i *Iter) seek(userKey []byte, trailer keys.Trailer) (entry int, ok bool) {
	for n, _ := i.r.index.find(userKey); n < i.r.index.n(); n++ {
		if !i.load(n) {
			return 0, false
		}
		entry = i.b.SeekGE(userKey, trailer)
		// The versions of one user key may go on in the next block.
		if entry < i.b.Len() || n+1 == i.r.index.n() || !i.r.index.endsWith(n, userKey) || !i.b.LastIs(userKey) {
			return entry, true
		}
	}
	i.valid = false
	return 0, false
}

// SeekGE moves to the first entry at or after the internal key.
func (i *Iter) SeekGE(userKey []byte, trailer keys.Trailer) bool {
	entry, ok := i.seek(userKey, trailer)
	if !ok {
		return false
	}
	if entry < i.b.Len() {
		return i.stand(entry)
	}
	return i.firstOf(i.blockIdx + 1)
}

// SeekLT moves to the last entry before the internal key.
func (i *Iter) SeekLT(userKey []byte, trailer keys.Trailer) bool {
	if n, _ := i.r.index.find(userKey); n == i.r.index.n() {
		return i.Last()
	}
	entry, ok := i.seek(userKey, trailer)
	if !ok {
		return false
	}
	if entry > 0 {
		return i.stand(entry - 1)
	}
	return i.lastOf(i.blockIdx - 1)
}

// firstOf moves to the first entry of block n, if there is such a block.
func (i *Iter) firstOf(n int) bool {
	i.valid = false
	return n < i.r.index.n() && i.load(n) && i.stand(0)
}

// lastOf moves to the last entry of block n, if there is such a block.
func (i *Iter) lastOf(n int) bool {
	i.valid = false
	return n >= 0 && i.load(n) && i.stand(i.b.Len()-1)
}

// Next moves to the following entry.
func (i *Iter) Next() bool {
	if !i.valid {
		return false
	}
	if i.entry+1 < i.b.Len() {
		return i.stand(i.entry + 1)
	}
	return i.firstOf(i.blockIdx + 1)
}

// Prev moves to the preceding entry.
func (i *Iter) Prev() bool {
	if !i.valid {
		return false
	}
	if i.entry > 0 {
		return i.stand(i.entry - 1)
	}
	return i.lastOf(i.blockIdx - 1)
}

// Valid reports whether the iterator stands on an entry.
func (i *Iter) Valid() bool { return i.valid }

// Key returns the current internal key, valid until the next move.
func (i *Iter) Key() keys.InternalKey { return i.key }

// Value returns the current value, valid until the next move.
func (i *Iter) Value() []byte { return i.b.Value(i.entry, i.valueOff) }

// Error returns the first failure, after which the iterator does not move.
func (i *Iter) Error() error { return i.err }

// Close releases the current block and returns the first failure.
func (i *Iter) Close() error {
	if !i.closed {
		i.fetch.close()
		i.closed, i.valid = true, false
		// Whoever keeps i for another use must not keep a block, a table or its cache with it.
		i.b, i.key, i.bound = block.View{}, keys.InternalKey{}, nil
		i.r, i.fetch = noTable, fetcher{}
	}
	return i.err
}
