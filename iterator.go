package sievedb

import (
	"errors"
	"iter"
	"sync"
	"sync/atomic"

	"sievedb/internal/filecache"
	internal "sievedb/internal/iter"
	"sievedb/internal/keys"
	"sievedb/internal/rangedel"
	"sievedb/internal/tree"
	"sievedb/memtable"
	"sievedb/sstable"
)

// Iterator walks over keys in order, in both directions, seeing the store as
// it was when the iterator was made. A new one stands on no key. It is for one
// goroutine at a time, and must be closed, unless All or Backward ran to their
// end, which close it. Its errors, that of Scan included, are told by Err.
//
//	for k, v := range db.Scan(lo, hi).All() { … }
//
//	it := db.Scan(lo, hi)
//	defer it.Close()
//	for ok := it.SeekGE(key); ok; ok = it.Next() { use(it.Key(), it.Value()) }
//	err := it.Err()
type Iterator struct {
	db     *DB
	state  *tree.State // referenced until Close
	walk   *walk       // nil after Close
	passed *span       // of a transaction, which is validated by it; or nil
	err    error
}

// walk is what an Iterator works with, to be used again by another after Close:
// a scan of a few keys would else spend a fifth of its time on allocations.
type walk struct {
	visible internal.Visible
	merging internal.Merging
	inputs  []internal.Iterator // of visible
	tables  tree.Iters
	stats   sstable.IterStats
	lower   []byte
	upper   []byte // nil: none
	memory  []byte // of lower and upper
}

// walks begin with some memory, for an empty upper bound is not nil.
var walks = sync.Pool{New: func() any { return &walk{memory: make([]byte, 0, 64)} }}

// Scan returns an iterator over the keys k with lo <= k < hi; a nil hi is no
// bound. The slices are copied.
func (db *DB) Scan(lo, hi []byte) *Iterator { return db.scan(lo, hi, newest) }

// Prefix returns an iterator over the keys that begin with prefix.
func (db *DB) Prefix(prefix []byte) *Iterator { return db.Scan(prefix, prefixEnd(prefix)) }

// All returns an iterator over all keys.
func (db *DB) All() *Iterator { return db.Scan(nil, nil) }

// prefixEnd returns the least key after all keys that begin with prefix, nil if
// there is none.
func prefixEnd(prefix []byte) []byte {
	for n := len(prefix); n > 0; n-- {
		if prefix[n-1] < 0xff {
			end := append([]byte(nil), prefix[:n]...)
			end[n-1]++
			return end
		}
	}
	return nil
}

func (db *DB) scan(lo, hi []byte, snapshot keys.SeqNum) *Iterator {
	if err := db.usable(); err != nil {
		return &Iterator{err: err}
	}
	state := db.acquire()
	if snapshot == newest { // after the state is pinned (invariant 1)
		snapshot = db.visible()
	}
	return db.scanState(state, lo, hi, snapshot, nil)
}

// acquire returns the current read state, referenced.
func (db *DB) acquire() *tree.State {
	for {
		if s := db.state.Load(); s.Acquire() {
			return s
		}
		// It was replaced meanwhile; the next one is there already.
	}
}

// scanState returns an iterator over a referenced state, which belongs to it
// from then on, and over own, if that is not nil, which is newer.
func (db *DB) scanState(state *tree.State, lo, hi []byte, snapshot keys.SeqNum, own *memtable.Table) *Iterator {
	w := walks.Get().(*walk)
	w.memory = append(append(w.memory[:0], lo...), hi...)
	n := len(lo)
	w.lower, w.upper = w.memory[:n:n], nil
	if hi != nil {
		w.upper = w.memory[n:]
	}
	w.stats = sstable.IterStats{}
	w.inputs = state.AppendIters(w.inputs[:0], tree.IterOptions{
		Lower: w.lower, Upper: w.upper, Snapshot: snapshot, CommitLock: &db.commit.Lock, Stats: &w.stats, Memory: &w.tables, Own: own,
	})
	if own != nil {
		// All that the state shows is not newer than the snapshot: its tables
		// are older, and its memtables' iterators end there.
		snapshot = keys.MaxSeqNum
	}
	var in internal.Iterator
	if len(w.inputs) == 1 {
		in = w.inputs[0] // there is nothing to merge
	} else {
		w.merging.Reset(w.inputs...)
		in = &w.merging
	}
	w.visible.Reset(in, internal.VisibleOptions{Snapshot: snapshot, Lower: w.lower, Upper: w.upper})
	it := &Iterator{db: db, state: state, walk: w}
	db.unclosed.Opened(it)
	return it
}

// ready reports whether the iterator may move.
func (it *Iterator) ready() bool {
	if it.err != nil || it.walk == nil {
		return false
	}
	it.err = it.db.usable()
	return it.err == nil
}

// First moves to the first key and reports whether there is one.
func (it *Iterator) First() bool {
	return it.ready() && it.passedUp(it.walk.lower, it.walk.visible.First())
}

// Last moves to the last key and reports whether there is one.
func (it *Iterator) Last() bool {
	return it.ready() && it.passedDown(it.walk.upper, it.walk.visible.Last())
}

// SeekGE moves to the first key at or after key, which may be what Key returned.
func (it *Iterator) SeekGE(key []byte) bool {
	if key == nil {
		key = []byte{}
	}
	return it.ready() && it.passedUp(it.kept(key), it.walk.visible.SeekGE(key))
}

// SeekLT moves to the last key before key, which may be what Key returned.
func (it *Iterator) SeekLT(key []byte) bool {
	if key == nil {
		key = []byte{}
	}
	return it.ready() && it.passedDown(it.kept(key), it.walk.visible.SeekLT(key))
}

// Next moves to the following key. On an iterator that stands on no key it
// does nothing and returns false.
func (it *Iterator) Next() bool {
	if !it.ready() {
		return false
	}
	ok := it.walk.visible.Next()
	return ok && it.passed == nil || it.passedUp(nil, ok)
}

// Prev moves to the preceding key. On an iterator that stands on no key it
// does nothing and returns false.
func (it *Iterator) Prev() bool {
	if !it.ready() {
		return false
	}
	ok := it.walk.visible.Prev()
	return ok && it.passed == nil || it.passedDown([]byte{}, ok)
}

// kept returns key, in a transaction a copy: it may be what Key returned, which the
// move gives up before it is noted where it began.
func (it *Iterator) kept(key []byte) []byte {
	if it.passed == nil {
		return key
	}
	return append([]byte{}, key...)
}

// passedUp notes, for a transaction, that the iterator passed over everything
// from from, or from where it was before if that is nil, to where it is.
func (it *Iterator) passedUp(from []byte, valid bool) bool {
	if it.passed != nil && from == nil {
		from = it.passed.lo
	}
	switch {
	case it.passed == nil:
	case valid:
		it.passed.extend(from, it.walk.visible.Key(), false)
	default:
		it.passed.extend(from, it.walk.upper, it.walk.upper == nil)
	}
	return valid
}

// passedDown is passedUp for a move backwards; a nil from is the end.
func (it *Iterator) passedDown(from []byte, valid bool) bool {
	switch {
	case it.passed == nil:
	case valid:
		it.passed.extend(it.walk.visible.Key(), from, from == nil)
	default:
		it.passed.extend(it.walk.lower, from, from == nil)
	}
	return valid
}

// Valid reports whether the iterator stands on a key.
func (it *Iterator) Valid() bool { return it.err == nil && it.walk != nil && it.walk.visible.Valid() }

// Key returns the key that the iterator stands on, nil if on none. The slice
// belongs to the iterator and is valid until it moves or is closed.
func (it *Iterator) Key() []byte {
	if !it.Valid() {
		return nil
	}
	return it.walk.visible.Key()
}

// Value returns the value of Key, nil if the iterator stands on no key. The
// slice belongs to the iterator and is valid until it moves or is closed.
func (it *Iterator) Value() []byte {
	if !it.Valid() {
		return nil
	}
	return it.walk.visible.Value()
}

// Err returns the first failure, also after Close. ErrClosed says that the
// store or the snapshot was closed.
func (it *Iterator) Err() error {
	if it.err != nil || it.walk == nil {
		return it.err
	}
	return it.db.closedError(it.walk.visible.Err())
}

// closedError turns the failure of a read for which Close took the file away
// into ErrClosed.
func (db *DB) closedError(err error) error {
	if errors.Is(err, filecache.ErrGone) && db.usable() != nil {
		return ErrClosed
	}
	return err
}

// Close releases what the iterator holds and returns Err. It may be called
// more than once.
func (it *Iterator) Close() error {
	if it.walk == nil {
		return it.err
	}
	it.err = it.Err()
	it.db.unclosed.Closed(it)
	w := it.walk
	it.walk = nil
	err := it.db.closedError(w.visible.Close())
	it.db.scans.add(&w.stats, w.visible.Skipped(), w.inputs)
	clear(w.inputs)
	walks.Put(w)
	if err = errors.Join(err, it.state.Release()); it.err == nil {
		it.err = err
	}
	it.state = nil
	it.db.events.damage(it.err)
	it.db.events.Deliver()
	return it.err
}

// All yields the keys and values in ascending order, and closes the iterator.
// The slices are valid during the iteration step. Look at Err afterwards.
func (it *Iterator) All() iter.Seq2[[]byte, []byte] { return it.sequence(it.First, it.Next) }

// Backward is All in descending order.
func (it *Iterator) Backward() iter.Seq2[[]byte, []byte] { return it.sequence(it.Last, it.Prev) }

func (it *Iterator) sequence(start, step func() bool) iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		defer it.Close()
		for ok := start(); ok; ok = step() {
			if !yield(it.walk.visible.Key(), it.walk.visible.Value()) {
				return
			}
		}
	}
}

// scanCounts adds up what closed iterators did.
type scanCounts struct {
	blocksCached, blocksRead, bytesRead atomic.Uint64
	tombstones, versions                atomic.Uint64
	hidden, stretches                   atomic.Uint64
}

func (c *scanCounts) add(s *sstable.IterStats, skipped internal.Skipped, inputs []internal.Iterator) {
	for _, in := range inputs {
		if s, ok := in.(*rangedel.Skipping); ok {
			c.hidden.Add(s.Skipped().Entries)
			c.stretches.Add(s.Skipped().Seeks)
		}
	}
	c.blocksCached.Add(s.BlocksCached)
	c.blocksRead.Add(s.BlocksRead)
	c.bytesRead.Add(s.BytesRead)
	c.tombstones.Add(skipped.Tombstones)
	c.versions.Add(skipped.Versions)
}
