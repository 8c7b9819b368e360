package cache

// Eviction. Within a class a hand goes round and takes the first block that
// was not used since it last came by (CLOCK, with a counter of up to three
// uses instead of one bit). Cold blocks have a hand of their own: once they
// are more than an eighth of their class, they are the ones to go, so that a
// scan of any length costs the blocks in use an eighth of the class at most.
//
// Between classes the measure is age: how long ago, in bytes reserved in the
// shard, the hand was last at the slab that it comes to next. A block that is
// never used again stays about that long, so equal ages are what one LRU over
// all sizes would give. A class that keeps evicting while another's age is
// more than twice its own takes a slab from it. Rejected: LRU lists, which
// write shared memory at each hit.

const (
	patience     = 64 // steps of a hand after which it takes a block in use too: the cost of one Reserve under the lock
	slabPatience = 8  // the same for slabs that are mostly in use
	coldShare    = 8  // cold blocks beyond one of so many slots go first
	promotion    = 2  // uses of a cold block that make it warm; the first is the scan's own, after its readahead
)

// hand is a position in the slots of a class; slab is nil when it has none.
type hand struct {
	slab *slab
	slot int
}

// next returns the slot at the hand and moves the hand on.
func (h *hand) next() (*slab, int) {
	sl, i := h.slab, h.slot
	if h.slot++; h.slot == len(sl.slots) {
		*h = hand{slab: sl.next}
	}
	return sl, i
}

func (c *class) overCold() bool { return c.cold > c.slots/coldShare }

// evict takes a slot from a block of c: from a cold one if h is the hand of
// those. It returns nil when it finds none that it may take.
func (s *shard) evict(c *class, h *hand) (*slab, int) {
	wantCold := h == &c.chill
	for step := range 2 * c.slots {
		if !wantCold && h.slot == 0 {
			h.slab.sweptAt = s.tick
		}
		sl, i := h.next()
		p := &sl.slots[i]
		st := p.state.Load()
		if st&flagLive == 0 || st&pinMask != 0 || wantCold != (st&flagCold != 0) {
			continue
		}
		if wantCold && st&useMask >= promotion*useUnit {
			p.state.And(^uint64(flagCold))
			c.cold--
			continue
		}
		if (wantCold || st&useMask == 0 || step >= min(patience, c.slots)) && s.tryEvict(sl, i) {
			return sl, i
		}
		p.decay(st)
	}
	return nil, 0
}

// oldest returns the class whose slab at the hand was swept longest ago, nil
// when there are none.
func (s *shard) oldest() *class {
	var found *class
	for i := range s.classes {
		c := &s.classes[i]
		if c.slots > 0 && (found == nil || c.age(s.tick) > found.age(s.tick)) {
			found = c
		}
	}
	return found
}

func (c *class) age(tick int64) int64 { return tick - c.warm.slab.sweptAt }

// claim empties one slab of the oldest class if that is more than twice as old
// as c, which has slabs too, and the slab is mostly out of use. Its memory is
// then spare.
func (s *shard) claim(c *class) bool {
	o := s.oldest()
	return o != c && o.age(s.tick) > 2*c.age(s.tick) && s.visit(o, false)
}

// giveUp empties a slab, in the order of age, whatever its class: at first only
// one that is mostly out of use. It reports false when every slab has a block
// that is pinned or being filled.
func (s *shard) giveUp() bool {
	for n := range slabPatience + len(s.slabs) - len(s.places) {
		o := s.oldest()
		if o == nil {
			return false
		}
		s.tick++ // makes each slab younger than the one visited before it, so that all get their visit
		if s.visit(o, n >= slabPatience) {
			return true
		}
	}
	return false
}

// visit moves the hand of c past its slab, counting a use less of each block in
// it, and empties the slab unless more than half of its slots were in use; with
// force, in any case. It reports whether it did.
func (s *shard) visit(c *class, force bool) bool {
	sl := c.warm.slab
	c.warm = hand{slab: sl.next}
	sl.sweptAt = s.tick
	inUse := 0
	for i := range sl.slots {
		st := sl.slots[i].state.Load()
		if st&useMask != 0 {
			inUse++
			sl.slots[i].decay(st)
		}
	}
	return (force || inUse <= len(sl.slots)/2) && s.empty(sl)
}

// empty evicts every block of a slab, which removes the slab. It reports false,
// evicting nothing if it can tell in advance, when one cannot go.
func (s *shard) empty(sl *slab) bool {
	for i := range sl.slots {
		st := sl.slots[i].state.Load()
		if st&flagFree == 0 && st&(flagLive|pinMask) != flagLive {
			return false
		}
	}
	for i := range sl.slots {
		if s.tryEvict(sl, i) {
			s.freeSlot(sl, i)
		}
	}
	return sl.used == 0
}
