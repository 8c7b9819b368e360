package memtable

import (
	"bytes"
	"runtime"
	"sync"

	"sievedb/internal/iter"
	"sievedb/internal/keys"
)

// Iter walks a table's entries as they were when NewIter was called. Keys and
// values alias the arena: they must not be changed, and are valid for as long as
// the iterator is reachable, which it is before it is closed. It is not safe for
// concurrent use.
type Iter struct {
	arena *arena
	keys  cursor
	bound keys.Trailer // entries with greater trailers are left out
	first ref          // the current user key's first record
	cur   ref          // the current version, or zero
}

var _ iter.Iterator = (*Iter)(nil)

// NewIter returns an iterator over the entries whose sequence numbers are at
// most snapshot, every version of each key, tombstones too; keys.MaxSeqNum
// means all that are there now. Versions above snapshot are jumped over.
//
// A tree that gained user keys since the last call is cloned, and that needs
// the writer's lock, given here; nil when the caller holds it. One clone serves
// all iterators until the next user key is added, whatever is overwritten. An
// empty or an immutable memtable needs neither.
func (t *Table) NewIter(lock sync.Locker, snapshot keys.SeqNum) *Iter {
	// The bound before the view: whatever is at most the bound was in the tree
	// when the bound was stored, and so is in the view.
	it := &Iter{arena: &t.arena, bound: keys.SeekTrailer(min(snapshot, t.LargestSeq()))}
	it.keys.init(&t.arena, t.currentView(lock), t.iters.Add(1)%uint32(len(t.pivots)))
	return it
}

// currentView returns a view of all user keys.
func (t *Table) currentView(lock sync.Locker) *view {
	if v := t.view.Load(); v.userKeys == t.userKeys.Load() {
		return v
	}
	if lock != nil {
		lock.Lock()
		defer lock.Unlock()
	}
	v := t.view.Load()
	if n := t.userKeys.Load(); v.userKeys != n {
		v = &view{order: t.order, tree: t.tree.Clone(), userKeys: n}
		t.view.Store(v)
	}
	return v
}

// First implements iter.Iterator.
func (it *Iter) First() bool { return it.forward(it.keys.seek(nil, true)) }

// Last implements iter.Iterator.
func (it *Iter) Last() bool { return it.backward(it.keys.last()) }

// SeekGE implements iter.Iterator. A seek to an older version of the current
// user key, or past all of them, does not descend the tree.
func (it *Iter) SeekGE(userKey []byte, trailer keys.Trailer) bool {
	first := it.first
	if it.cur == 0 || !bytes.Equal(it.Key().UserKey, userKey) {
		first = it.keys.seek(userKey, true)
		if first == 0 || !bytes.Equal(it.arena.record(first).key(), userKey) {
			return it.forward(first)
		}
	}
	it.first = first
	it.cur = it.arena.newestAtMost(it.arena.newest(first), min(trailer, it.bound))
	if it.cur == 0 {
		return it.forward(it.keys.step(true))
	}
	return true
}

// SeekLT implements iter.Iterator.
func (it *Iter) SeekLT(userKey []byte, trailer keys.Trailer) bool {
	first := it.keys.seek(userKey, false)
	if first == 0 || !bytes.Equal(it.arena.record(first).key(), userKey) {
		return it.backward(first)
	}
	it.first = first
	newest := it.newest()
	if newest == 0 || it.arena.record(newest).trailer() <= trailer {
		return it.backward(it.keys.step(false))
	}
	// The oldest version above trailer is one above the newest that is not.
	var depth uint32
	if r := it.arena.newestAtMost(newest, trailer); r != 0 {
		depth = it.arena.depth(r) + 1
	}
	it.cur = it.arena.atDepth(newest, depth)
	return true
}

// Next implements iter.Iterator.
func (it *Iter) Next() bool {
	if it.cur == 0 {
		return false
	}
	if prev := it.arena.record(it.cur).prev(); prev != 0 {
		it.cur = prev
		return true
	}
	return it.forward(it.keys.step(true))
}

// Prev implements iter.Iterator.
func (it *Iter) Prev() bool {
	if it.cur == 0 {
		return false
	}
	// There are no links to newer versions: a few jumps from the newest instead.
	if newest := it.newest(); newest != it.cur {
		it.cur = it.arena.atDepth(newest, it.arena.depth(it.cur)+1)
		return true
	}
	return it.backward(it.keys.step(false))
}

// newest returns the newest version shown of the current user key, or zero.
func (it *Iter) newest() ref {
	return it.arena.newestAtMost(it.arena.newest(it.first), it.bound)
}

// forward moves to the newest version of the user key at first, or of the
// first one after it that has any within the bound.
func (it *Iter) forward(first ref) bool {
	for it.cur = 0; first != 0; first = it.keys.step(true) {
		it.first = first
		if it.cur = it.newest(); it.cur != 0 {
			return true
		}
	}
	return false
}

// backward moves to the oldest version of the user key at first, or of the
// last one before it that has any within the bound.
func (it *Iter) backward(first ref) bool {
	for it.cur = 0; first != 0; first = it.keys.step(false) {
		if it.arena.record(first).trailer() <= it.bound {
			it.first, it.cur = first, first
			return true
		}
	}
	return false
}

// Valid implements iter.Iterator.
func (it *Iter) Valid() bool { return it.cur != 0 }

// Key implements iter.Iterator.
func (it *Iter) Key() keys.InternalKey {
	k := keys.InternalKey{UserKey: it.arena.record(it.first).key(), Trailer: it.arena.record(it.cur).trailer()}
	runtime.KeepAlive(it)
	return k
}

// Value implements iter.Iterator.
func (it *Iter) Value() []byte {
	value := it.arena.record(it.cur).value()
	runtime.KeepAlive(it)
	return value
}

// Error implements iter.Iterator. Memory does not fail: it returns nil.
func (it *Iter) Error() error { return nil }

// Close implements iter.Iterator. An iterator that is not closed leaks nothing,
// but then its last key and value may go before their user does.
func (it *Iter) Close() error {
	it.cur = 0
	return nil
}
