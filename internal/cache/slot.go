package cache

import "sync/atomic"

// slot is the place of one block. Its life:
//
//	free ──reserve──▶ reserved ──Publish──▶ live ──evict (no pins)──▶ taken by the evictor
//	  ▲                  │                   │
//	  └───last Release───┴──◀── doomed ◀──Drop, pinned
//
// state holds the pins, the use counter and the flags in one word, so that a
// pin and its condition are one compare-and-swap. Rules:
//
//  1. Flags change under the shard's lock, or while the slot is reserved by its
//     owner. Pins change without it: pinning needs flagLive, evicting needs
//     flagLive and no pins, and each is a compare-and-swap on the whole word.
//  2. id, offset, length and the bytes are written only by the owner of a
//     reserved slot, which nobody else can pin.
//  3. A slot that is neither live nor pinned belongs to whoever took the later
//     of the two away, who returns it to the free list: exactly one, because a
//     slot that is not live gains no pins.
//
// Why to pin first and verify afterwards is enough, without a lock. Go's
// atomics are sequentially consistent. The publisher writes identity and bytes
// and then sets flagLive (release); a successful pin has read that flag
// (acquire), so it sees the identity and bytes of the block that is live now.
// From the pin on nobody can evict, and so nobody can write them. The last
// unpin (release) comes before the eviction's compare-and-swap that reads zero
// pins (acquire), and so before the next owner's writes. Between the load of
// the hint and the pin the slot may have gone to another block any number of
// times (ABA): then the identity differs and the pin is undone. If the same
// block came back to the same slot, it is the right block. To verify first and
// pin afterwards would leave that gap open; a generation number in the hint
// would close it too, but says nothing that the identity does not.
//
// A slot never moves: a slab that changes its class gets a new array of slots,
// and the old one stays dead in the hands of whoever still looks at it.
type slot struct {
	state  atomic.Uint64
	id     uint64
	offset uint64
	length uint32  // bytes of the block
	next   slotRef // in its chain of the index when live, in its slab's free list when free; guarded by shard.mu
}

const (
	pinMask = 1<<32 - 1 // the number of pins: more than handles fit in memory
	useUnit = 1 << 32   // hits since the hand came by, saturating at 3
	useMask = 3 * useUnit

	flagLive     = 1 << 40 // published: in the index, may be pinned
	flagCold     = 1 << 41 // live, brought in by a scan, and not promoted since
	flagReserved = 1 << 42 // being filled by its owner
	flagFree     = 1 << 43 // in its slab's free list
)

// pin adds a pin and counts a use if the slot is live.
func (s *slot) pin() bool {
	for st := s.state.Load(); st&flagLive != 0; st = s.state.Load() {
		next := st + 1
		if st&useMask != useMask {
			next += useUnit
		}
		if s.state.CompareAndSwap(st, next) {
			return true
		}
	}
	return false
}

// unpin takes one pin away. It reports true when the slot was not live and
// this was the last pin: then the caller must free it (rule 3).
func (s *slot) unpin() bool {
	return s.state.Add(^uint64(0))&(pinMask|flagLive) == 0
}

// decay counts one use less, unless somebody changes the slot meanwhile.
func (s *slot) decay(st uint64) {
	if st&useMask != 0 {
		s.state.CompareAndSwap(st, st-useUnit)
	}
}

// slotRef names a slot within its shard: the slab's place in the shard's
// table, and the slot within the slab. Zero names none.
type slotRef uint32

const (
	slotBits    = 12
	slotsInSlab = 1 << slotBits // no slab has more
)

func (r slotRef) slab() int { return int(r >> slotBits) }
func (r slotRef) slot() int { return int(r & (slotsInSlab - 1)) }

// slab is a piece of memory cut into slots of one size. The first
// fields are fixed before it is in shard.slabs, and read at every hit.
type slab struct {
	shard     *shard
	class     *class // nil: a heap buffer outside the capacity
	place     slotRef
	buf       []byte
	slotBytes int
	slots     []slot
	_         [64]byte

	// Guarded by shard.mu.
	prev, next *slab   // in the ring of its class
	free       slotRef // first free slot
	used       int     // slots that are not free
	sweptAt    int64   // shard.tick when the warm hand last came by
}

// at returns the reference of slot i.
func (sl *slab) at(i int) slotRef { return sl.place | slotRef(i) }

// bytes returns the block of slot i.
func (sl *slab) bytes(i int) []byte {
	if sl.class == nil {
		return sl.buf
	}
	from := i * sl.slotBytes
	to := from + int(sl.slots[i].length)
	return sl.buf[from:to:to]
}
