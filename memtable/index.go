package memtable

import (
	"bytes"
	"math/bits"
	"runtime"
	"sync/atomic"
	"unsafe"

	"sievedb/internal/offheap"
)

// index is an open-addressing hash table from user keys to their first
// records. One writer adds while readers probe; nothing is removed or moved.
//
// A slot is zero, or the upper half of the key's hash, then the record's ref.
// The hash's upper bits are also the slot's home position, which makes growing
// a sequential pass that reads no record.
type index struct {
	slots  []atomic.Uint64
	shift  uint            // of the 32-bit hash, to get the home position
	memory *offheap.Memory // of slots, freed when the index is unreachable; nil for a small one
}

const (
	slotBytes     = 8
	minIndexSlots = 64

	// maxLoadEighths is the share of slots at which an index grows: an absent
	// key's linear probe then meets (1 + 1/(1-5/8)²)/2 = 4.1 slots on average
	// (Knuth, volume 3, section 6.4), mostly of one cache line.
	maxLoadEighths = 5
)

// overloaded reports whether so many slots are too few for userKeys.
func overloaded(userKeys, slots int64) bool { return userKeys > slots/8*maxLoadEighths }

// newIndex returns an empty index. Requires: slots is a power of two.
func newIndex(slots int) *index {
	x := &index{shift: uint(32 - bits.TrailingZeros(uint(slots)))}
	if slotBytes*slots < offheap.MinBytes {
		x.slots = make([]atomic.Uint64, slots)
		return x
	}
	x.memory = offheap.New(x, offheap.SmallPages)
	bytes := x.memory.Alloc(slotBytes * slots)
	clear(bytes)
	x.slots = unsafe.Slice((*atomic.Uint64)(unsafe.Pointer(unsafe.SliceData(bytes))), slots)
	return x
}

// grown returns a copy of twice the size. Readers of the old one, which is
// retired, go on.
func (x *index) grown() *index {
	g := newIndex(2 * len(x.slots))
	for i := range x.slots {
		if s := x.slots[i].Load(); s != 0 {
			g.put(s)
		}
	}
	x.memory.Retire()
	return g
}

// put stores the slot of a new user key, which readers find from now on, in the
// first empty place from its home on.
func (x *index) put(slot uint64) {
	i := uint32(slot>>32) >> x.shift
	for x.slots[i].Load() != 0 {
		i = (i + 1) & uint32(len(x.slots)-1)
	}
	x.slots[i].Store(slot)
}

// find returns the first record of userKey, or zero.
func (x *index) find(a *arena, hash uint64, userKey []byte) ref {
	tag := uint32(hash >> 32)
	for i := tag >> x.shift; ; i = (i + 1) & uint32(len(x.slots)-1) {
		s := x.slots[i].Load()
		if s == 0 || uint32(s>>32) == tag && bytes.Equal(a.record(ref(s)).key(), userKey) {
			runtime.KeepAlive(x)
			return ref(s)
		}
	}
}
