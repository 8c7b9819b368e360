package cache

import (
	"math/bits"
	"slices"
)

// Size classes. A slab holds k slots, k going from minSlots to twice that in
// steps of one, from there to the double in steps of two, and so on: minSlots
// classes per doubling. A slot is so at most 1/minSlots = 12.5 % larger than a
// block that needs it (rounded up to slotAlign), and no slab ends in a piece
// too short to use, as it would if classes were made from sizes. A block
// larger than 1/minSlots of a slab gets a slab of its own.
const (
	minSlots     = 8
	minSlotBytes = 512 // below it the slot's own 32 bytes begin to matter
	slotAlign    = 64  // a cache line

	// The most slots are maxSlabBytes/minSlotBytes = 2,048 = minSlots<<8.
	largeClass = 8*minSlots + 1
	numClasses = largeClass + 1
)

// class is the slabs of one slot size, in a ring in the order in which the
// hands come by. Everything is guarded by the shard's lock.
type class struct {
	slots    int   // in all slabs
	free     int   // of them free
	cold     int   // of them live and cold
	pressure int   // evictions since the class last tried to get another slab
	warm     hand  // sweeps the blocks that are not cold
	chill    hand  // sweeps the cold ones
	roomy    *slab // where a free slot was found last
}

// fit returns the class for a block, and the slots of its slabs and their size.
func (s *shard) fit(sizeBytes int) (c *class, slots, slotBytes int) {
	need := (max(sizeBytes, minSlotBytes) + slotAlign - 1) &^ (slotAlign - 1)
	k := s.slabBytes / need
	if k < minSlots {
		return &s.classes[largeClass], 1, need
	}
	doublings := bits.Len(uint(k/minSlots)) - 1
	step := k >> doublings // minSlots to 2*minSlots-1
	slots = step << doublings
	return &s.classes[doublings*minSlots+step-minSlots], slots, s.slabBytes / slots &^ (slotAlign - 1)
}

// acquire returns a slot for a block of sizeBytes, a free one or one taken from
// another block; its state is zero. It returns nil when nothing can be had.
func (s *shard) acquire(sizeBytes int) (*slab, int) {
	if int64(sizeBytes) > s.capBytes/2 {
		return nil, 0
	}
	c, slots, slotBytes := s.fit(sizeBytes)
	large := slots == 1
	switch {
	case large && c.cold > 1 && c.overCold() && !s.hasRoom(slotBytes):
		// Cold large blocks make room for each other; past that, whatever has
		// gone unused for longest does.
		if sl, i := s.evict(c, &c.chill); sl != nil {
			s.freeSlot(sl, i)
		}
	case large:
	case c.free > 0:
		return s.takeFree(c)
	case c.slots > 0 && !s.hasRoom(s.slabBytes):
		if sl, i := s.replace(c, slots); sl != nil {
			return sl, i
		}
	}
	slabBytes := s.slabBytes
	if large {
		slabBytes = slotBytes
	}
	buf := s.memory(slabBytes)
	if buf == nil {
		return nil, 0
	}
	s.addSlab(&slab{shard: s, class: c, buf: buf, slotBytes: slotBytes, slots: make([]slot, slots)})
	return s.takeFree(c)
}

// replace takes a slot from another block of c. It returns nil when every block
// is pinned, or when c has just won the memory of a slab from another class.
func (s *shard) replace(c *class, slots int) (*slab, int) {
	if c.overCold() {
		if sl, i := s.evict(c, &c.chill); sl != nil {
			return sl, i
		}
	}
	if c.pressure++; c.pressure >= slots {
		c.pressure = 0
		if s.claim(c) {
			return nil, 0
		}
	}
	if sl, i := s.evict(c, &c.warm); sl != nil {
		return sl, i
	}
	return s.evict(c, &c.chill)
}

// hasRoom reports whether the capacity allows another slab of slabBytes.
func (s *shard) hasRoom(slabBytes int) bool {
	room := s.capBytes - s.slabTotal
	for _, buf := range s.spare {
		room += int64(len(buf))
	}
	return room >= int64(slabBytes)
}

// memory returns a buffer of slabBytes, or up to an eighth more, within the
// capacity: a spare one, else a new one, else that of slabs given up for it.
// It returns nil when it cannot.
func (s *shard) memory(slabBytes int) []byte {
	for {
		for i, buf := range slices.Backward(s.spare) {
			if len(buf) >= slabBytes && len(buf) <= slabBytes+slabBytes/minSlots {
				s.spare = slices.Delete(s.spare, i, i+1)
				return buf
			}
		}
		switch {
		case s.slabTotal+int64(slabBytes) <= s.capBytes:
			s.slabTotal += int64(slabBytes)
			if slabBytes != s.slabBytes { // of one large block, which might fill but half of a buffer
				return make([]byte, slabBytes)
			}
			return s.buffers.Alloc(slabBytes)
		case len(s.spare) > 0:
			s.slabTotal -= int64(len(s.spare[0]))
			s.buffers.Free(s.spare[0]) // no slot of it is in use
			s.spare = slices.Delete(s.spare, 0, 1)
		case !s.giveUp():
			return nil
		}
	}
}

// takeFree takes a free slot of c, which has one.
func (s *shard) takeFree(c *class) (*slab, int) {
	for c.roomy.free == 0 {
		c.roomy = c.roomy.next
	}
	sl := c.roomy
	i := sl.free.slot()
	sl.free = sl.slots[i].next
	sl.used++
	c.free--
	sl.slots[i].state.Store(0)
	return sl, i
}

// freeSlot returns a slot that nobody holds, and its slab if it was the last
// one in use.
func (s *shard) freeSlot(sl *slab, i int) {
	if sl.class == nil {
		s.overflow -= int64(len(sl.buf))
		return
	}
	sl.slots[i].state.Store(flagFree)
	sl.slots[i].next, sl.free = sl.free, sl.at(i)
	sl.used--
	sl.class.free++
	if sl.used == 0 {
		s.removeSlab(sl)
	}
}

// addSlab puts a new slab, all of it free, where the warm hand comes last.
func (s *shard) addSlab(sl *slab) {
	// There is a place: they outnumber the slabs that fit the capacity.
	last := len(s.places) - 1
	sl.place, s.places = s.places[last], s.places[:last]
	sl.sweptAt = s.tick
	for i := range sl.slots {
		sl.slots[i].state.Store(flagFree)
		sl.slots[i].next, sl.free = sl.free, sl.at(i)
	}
	c := sl.class
	c.slots += len(sl.slots)
	c.free += len(sl.slots)
	c.roomy = sl
	if next := c.warm.slab; next == nil {
		sl.prev, sl.next = sl, sl
		c.warm.slab, c.chill.slab = sl, sl
	} else {
		sl.prev, sl.next = next.prev, next
		sl.prev.next, next.prev = sl, sl
	}
	s.slabs[sl.place.slab()].Store(sl)
}

// removeSlab takes a slab, all of it free, away and keeps its memory.
func (s *shard) removeSlab(sl *slab) {
	s.slabs[sl.place.slab()].Store(nil)
	s.places = append(s.places, sl.place)
	s.spare = append(s.spare, sl.buf)
	c, next := sl.class, sl.next
	if next == sl {
		next = nil
	}
	sl.prev.next, sl.next.prev = sl.next, sl.prev
	for _, h := range []*hand{&c.warm, &c.chill} {
		if h.slab == sl {
			*h = hand{slab: next}
		}
	}
	if c.roomy == sl {
		c.roomy = next
	}
	c.slots -= len(sl.slots)
	c.free -= len(sl.slots)
}
