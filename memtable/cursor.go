package memtable

import (
	"unsafe"

	"github.com/google/btree"

	"sievedb/internal/prefetch"
)

// view is a tree that no longer changes, with the order of its items: a
// copy-on-write clone, or the tree of an immutable memtable.
type view struct {
	order    *order
	tree     *btree.BTreeG[item]
	userKeys int64 // in tree
}

// Fetches, in items: the first of a direction, the growth of later ones, the largest.
const minFetch, fetchGrowth, maxFetch = 4, 4, 256

// Records are prefetched aheadItems steps ahead, each with so much of its value.
const aheadItems, aheadBytes = 4, 128

// cursor walks the user keys of a view in both directions. The tree has none,
// and a descent per step would cost more than all the rest, so items are
// fetched ahead, more each time.
type cursor struct {
	arena *arena
	view  *view
	pivot uint32 // which of the table's pivots to search with

	buf       []item // consecutive ones
	pos       int    // of the current one in buf
	ascending bool   // the order in buf

	// The fetch that filled buf, or is filling it.
	want    int  // items asked for
	skip    ref  // item to leave out: the one that the fetch starts from
	done    bool // there are no more items in its direction
	collect btree.ItemIteratorG[item]
	small   [minFetch]item // the first buf
}

// init puts the cursor on no key of v.
func (c *cursor) init(a *arena, v *view, pivot uint32) {
	c.arena, c.view, c.pivot = a, v, pivot
	c.buf = c.small[:0]
	// Made once: a function literal at each fetch would be an allocation each.
	c.collect = func(it item) bool {
		if it.first != c.skip {
			c.buf = append(c.buf, it)
		}
		return len(c.buf) < c.want
	}
}

// last moves to the last user key and returns its first record, or zero.
func (c *cursor) last() ref {
	c.begin(false)
	c.view.tree.Descend(c.collect)
	return c.landed()
}

// seek moves to the first user key at or after userKey when ascending, to the
// last at or before it otherwise, and returns that one's first record, or zero.
func (c *cursor) seek(userKey []byte, ascending bool) ref {
	c.begin(ascending)
	p := &c.view.order.pivots[c.pivot]
	p.mu.Lock()
	defer p.mu.Unlock()
	p.key = userKey
	c.descend(newItem(c.view.order.prefix(userKey), ref(c.pivot)))
	p.key = nil
	return c.landed()
}

// step moves to the next user key, or to the one before, and returns its first
// record, or zero. Requires: the cursor is on a key.
func (c *cursor) step(ascending bool) ref {
	next := c.pos + 1
	if ascending != c.ascending {
		next = c.pos - 1
	}
	if next >= 0 && next < len(c.buf) {
		c.pos = next
		c.prefetch(next + aheadItems)
		return c.buf[next].first
	}
	from := c.buf[c.pos]
	switch {
	case ascending != c.ascending:
		c.begin(ascending)
	case c.done:
		c.buf = c.buf[:0]
		return 0
	default:
		c.want = min(c.want*fetchGrowth, maxFetch)
		if cap(c.buf) < c.want {
			c.buf = make([]item, 0, c.want)
		}
		c.buf = c.buf[:0]
	}
	c.skip = from.first
	c.descend(from)
	return c.landed()
}

// begin prepares the first fetch of a direction.
func (c *cursor) begin(ascending bool) {
	c.ascending, c.want, c.skip = ascending, minFetch, 0
	c.buf = c.buf[:0]
}

// descend fetches from an item on, which need not be in the tree.
func (c *cursor) descend(from item) {
	if c.ascending {
		c.view.tree.AscendGreaterOrEqual(from, c.collect)
	} else {
		c.view.tree.DescendLessOrEqual(from, c.collect)
	}
}

// landed ends a fetch: the cursor stands on its first item, if there is one.
func (c *cursor) landed() ref {
	c.pos, c.done = 0, len(c.buf) < c.want
	if len(c.buf) == 0 {
		return 0
	}
	for i := range aheadItems {
		c.prefetch(i)
	}
	return c.buf[0].first
}

// prefetch has the CPU bring closer the first record of the user key at i in buf,
// if there is one.
func (c *cursor) prefetch(i int) {
	if i < len(c.buf) {
		prefetch.Lines(unsafe.Pointer(unsafe.SliceData(c.arena.record(c.buf[i].first))), aheadBytes)
	}
}
