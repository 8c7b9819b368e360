package cache

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"sievedb/internal/offheap"
)

// shard is one part of the cache with its own memory, index and lock, which is
// the package's only one; nothing outside the shard runs under it.
type shard struct {
	// Fixed by init. They are read at every hit, so they keep away from the
	// cache lines that a holder of mu writes.
	number    uint64
	capBytes  int64
	slabBytes int
	slabs     []atomic.Pointer[slab] // by slotRef.slab(); place 0 is never used
	buffers   *offheap.Memory        // of slabs
	_         [64]byte

	mu        sync.Mutex // guards everything below, and class and slab where they say so
	classes   []class
	places    []slotRef // free places of slabs
	spare     [][]byte  // buffers of slabs that emptied, kept for reuse
	slabTotal int64     // bytes of all slabs and spare buffers, at most capBytes
	overflow  int64     // bytes of heap buffers outside the capacity
	index     index
	tick      int64 // bytes reserved so far: the clock of slab.sweptAt
	usedBytes int64 // lengths of the live blocks
	hits      uint64
	misses    uint64
	inserts   uint64
	evictions uint64
	_         [64]byte
}

func (s *shard) init(number int, capBytes int64, buffers *offheap.Memory) {
	s.number, s.capBytes, s.buffers = uint64(number), capBytes, buffers
	size := min(max(capBytes/slabsPerShard, minSlabBytes), maxSlabBytes)
	size = min(int64(1)<<(bits.Len64(uint64(size))-1), capBytes) // a whole buffer, of which nothing is left over
	s.slabBytes = int(size)
	s.classes = make([]class, numClasses)
	s.index.heads = make([]slotRef, 64)
	// The smallest slabs are those of single large blocks, more than
	// 1/minSlots of a normal one each.
	n := capBytes / max(size/minSlots, 1)
	s.slabs = make([]atomic.Pointer[slab], n+1)
	s.places = make([]slotRef, 0, n)
	for i := n; i > 0; i-- {
		s.places = append(s.places, slotRef(i)<<slotBits)
	}
}

// slab returns the slab that ref is in, nil when there is none (now).
func (s *shard) slab(ref slotRef) *slab {
	if i := ref.slab(); i < len(s.slabs) {
		return s.slabs[i].Load()
	}
	return nil
}

// get is Cache.Get by the index.
func (s *shard) get(id, offset uint64, hint *atomic.Uint64) (Handle, bool) {
	s.mu.Lock()
	h, ok := s.pinIndexed(id, offset)
	if ok {
		s.hits++
	} else {
		s.misses++
	}
	s.mu.Unlock()
	if ok {
		h.remember(hint)
	}
	return h, ok
}

// pinIndexed pins the block that the index holds for a key. The pin cannot
// fail: what is in the index is live for as long as the lock is held.
func (s *shard) pinIndexed(id, offset uint64) (Handle, bool) {
	ref := s.index.find(s, id, offset)
	if ref == 0 {
		return Handle{}, false
	}
	sl := s.slab(ref)
	return Handle{slab: sl, slot: uint32(ref.slot())}, sl.slots[ref.slot()].pin()
}

// reserve is Cache.Reserve.
func (s *shard) reserve(id, offset uint64, sizeBytes int) Handle {
	s.mu.Lock()
	sl, i := s.acquire(sizeBytes)
	s.tick += int64(sizeBytes)
	if sl == nil {
		s.overflow += int64(sizeBytes)
	}
	s.mu.Unlock()
	if sl == nil { // allocated without the lock: it may be large
		sl = &slab{shard: s, buf: make([]byte, sizeBytes), slotBytes: sizeBytes, slots: make([]slot, 1)}
	}
	p := &sl.slots[i]
	p.id, p.offset, p.length = id, offset, uint32(sizeBytes)
	p.state.Store(flagReserved | 1)
	return Handle{slab: sl, slot: uint32(i)}
}

// publish is Handle.Publish.
func (s *shard) publish(h *Handle, hint *atomic.Uint64, cold bool) {
	sl, i := h.slab, int(h.slot)
	p := &sl.slots[i]
	if p.state.Load()&flagReserved == 0 {
		return
	}
	s.mu.Lock()
	if other, ok := s.pinIndexed(p.id, p.offset); ok {
		s.freeSlot(sl, i)
		*h = other
	} else if sl.class != nil {
		s.index.insert(s, sl.at(i), p)
		s.inserts++
		s.usedBytes += int64(p.length)
		st := uint64(flagLive | 1)
		if cold {
			st |= flagCold
			sl.class.cold++
		}
		p.state.Store(st)
	}
	s.mu.Unlock()
	if h.slab.class != nil {
		h.remember(hint)
	}
}

// forget takes a slot that has just ceased to be live out of the index and
// the counts. st is its state before.
func (s *shard) forget(sl *slab, i int, st uint64) {
	p := &sl.slots[i]
	s.index.remove(s, sl.at(i), p)
	s.usedBytes -= int64(p.length)
	if st&flagCold != 0 {
		sl.class.cold--
	}
}

// tryEvict takes a slot from its block if that is live and nobody pins it. The
// slot is then the caller's, neither live nor free.
func (s *shard) tryEvict(sl *slab, i int) bool {
	p := &sl.slots[i]
	st := p.state.Load()
	if st&(flagLive|pinMask) != flagLive || !p.state.CompareAndSwap(st, 0) {
		return false
	}
	s.forget(sl, i, st)
	s.evictions++
	return true
}

// drop is Cache.Drop for this shard. The last Release of a pinned block frees
// its slot.
func (s *shard) drop(id uint64) {
	for n := range s.slabs {
		if s.slabs[n].Load() == nil {
			continue // without the lock: most of a table is empty
		}
		s.mu.Lock()
		if sl := s.slabs[n].Load(); sl != nil {
			for i := range sl.slots {
				p := &sl.slots[i]
				if p.state.Load()&flagLive == 0 || p.id != id {
					continue
				}
				st := p.state.And(pinMask)
				s.forget(sl, i, st)
				if st&pinMask == 0 {
					s.freeSlot(sl, i)
				}
			}
		}
		s.mu.Unlock()
	}
}
