package cache

// index finds the live slot of a key: a hash table of chains that run through
// the slots themselves (slot.next). Against a Go map it needs 4 to 8 bytes a
// block instead of about 40, and its size is known exactly. Everything is
// guarded by the shard's lock.
type index struct {
	heads []slotRef // a power of two of them, at least one a block
	count int
}

func (x *index) head(id, offset uint64) *slotRef {
	return &x.heads[hashKey(id, offset)&uint64(len(x.heads)-1)]
}

// find returns the slot of a key, zero when there is none.
func (x *index) find(s *shard, id, offset uint64) slotRef {
	for ref := *x.head(id, offset); ref != 0; {
		p := s.slotAt(ref)
		if p.id == id && p.offset == offset {
			return ref
		}
		ref = p.next
	}
	return 0
}

// insert adds a slot, whose key must not be there.
func (x *index) insert(s *shard, ref slotRef, p *slot) {
	if x.count >= len(x.heads) {
		x.grow(s)
	}
	x.count++
	head := x.head(p.id, p.offset)
	p.next, *head = *head, ref
}

// remove takes out a slot that is there.
func (x *index) remove(s *shard, ref slotRef, p *slot) {
	link := x.head(p.id, p.offset)
	for *link != ref {
		link = &s.slotAt(*link).next
	}
	*link = p.next
	x.count--
}

// grow doubles the number of chains.
func (x *index) grow(s *shard) {
	old := x.heads
	x.heads = make([]slotRef, 2*len(old))
	for _, ref := range old {
		for ref != 0 {
			p := s.slotAt(ref)
			next := p.next
			head := x.head(p.id, p.offset)
			p.next, *head = *head, ref
			ref = next
		}
	}
}

// slotAt returns the slot of a reference that is known to be valid.
func (s *shard) slotAt(ref slotRef) *slot {
	return &s.slabs[ref.slab()].Load().slots[ref.slot()]
}
