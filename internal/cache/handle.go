package cache

import "sync/atomic"

// A hint is the reference of a slot in its low 32 bits, the number of its shard
// above, and then the length of the block in units of hintLengthUnit bytes,
// rounded up, for Prefetch. Zero is no hint.
const (
	hintShardShift  = 32
	hintShardMask   = 0xff
	hintLengthShift = 40
	hintLengthUnit  = 64
	hintMaxLength   = 1<<24 - 1
)

// Handle is one pin on one block. The zero Handle holds nothing. A Handle may
// be moved but not duplicated: each one that Get or Reserve returned is
// released once, through whichever copy is current.
type Handle struct {
	slab *slab
	slot uint32
}

// Valid reports whether the handle holds a block.
func (h Handle) Valid() bool { return h.slab != nil }

// Bytes returns the block, nil for the zero Handle. The slice is valid until
// Release. It may be written only between Reserve and Publish.
func (h Handle) Bytes() []byte {
	if h.slab == nil {
		return nil
	}
	return h.slab.bytes(int(h.slot))
}

// Publish makes a reserved block visible to Get and fills hint unless it is
// nil. The handle stays pinned. If the same key was published meanwhile, the
// handle changes to that block and its own buffer is freed: fetch Bytes again.
// cold says that a scan brought the block in: it is kept only beside blocks in
// use, not instead of them, until it is used twice. Publish does nothing to a
// handle that is not reserved.
func (h *Handle) Publish(hint *atomic.Uint64, cold bool) {
	if h.slab != nil {
		h.slab.shard.publish(h, hint, cold)
	}
}

// Release gives the pin back and empties the handle; a reserved block that was
// not published is discarded. Releasing an empty handle does nothing.
func (h *Handle) Release() {
	sl, i := h.slab, int(h.slot)
	if sl == nil {
		return
	}
	*h = Handle{}
	if sl.slots[i].unpin() {
		sl.shard.mu.Lock()
		sl.shard.freeSlot(sl, i)
		sl.shard.mu.Unlock()
	}
}

// remember stores where the block is in hint, unless that is nil.
func (h Handle) remember(hint *atomic.Uint64) {
	if hint != nil {
		units := min((uint64(h.slab.slots[h.slot].length)+hintLengthUnit-1)/hintLengthUnit, hintMaxLength)
		hint.Store(units<<hintLengthShift | h.slab.shard.number<<hintShardShift | uint64(h.slab.at(int(h.slot))))
	}
}
