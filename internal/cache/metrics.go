package cache

import "unsafe"

// Metrics is what a Cache holds and has done. Sizes are bytes now, the other
// counts are totals since New, except Blocks.
type Metrics struct {
	CapacityBytes int64 // what SlabBytes never exceeds
	UsedBytes     int64 // blocks that Get can find, by their own lengths
	SlabBytes     int64 // memory taken for blocks
	OverheadBytes int64 // slots, index and tables, beside the capacity
	PinnedBytes   int64 // blocks and reserved buffers in slabs that somebody holds
	OverflowBytes int64 // heap buffers that somebody holds, beside the capacity
	Blocks        int64 // blocks that Get can find

	Hits      uint64 // by Get
	HintHits  uint64 // those of Hits that the hint answered
	Misses    uint64 // by Get
	Inserts   uint64 // blocks published
	Evictions uint64 // blocks removed for others; not by Drop
}

// Metrics returns the current figures, shard by shard. It looks at every slot:
// it is meant for reports, not for hot paths.
func (c *Cache) Metrics() Metrics {
	m := Metrics{CapacityBytes: c.capacityBytes, OverheadBytes: int64(unsafe.Sizeof(*c))}
	for i := range c.hintHits {
		m.HintHits += c.hintHits[i].n.Load()
	}
	m.Hits = m.HintHits
	for i := range c.shards {
		c.shards[i].addTo(&m)
	}
	return m
}

func (s *shard) addTo(m *Metrics) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.UsedBytes += s.usedBytes
	m.SlabBytes += s.slabTotal
	m.OverflowBytes += s.overflow
	m.Blocks += int64(s.index.count)
	m.Hits += s.hits
	m.Misses += s.misses
	m.Inserts += s.inserts
	m.Evictions += s.evictions
	overhead := unsafe.Sizeof(*s) +
		uintptr(len(s.slabs))*(unsafe.Sizeof(s.slabs[0])+unsafe.Sizeof(s.places[0])) +
		uintptr(len(s.classes))*unsafe.Sizeof(s.classes[0]) +
		uintptr(len(s.index.heads))*unsafe.Sizeof(s.index.heads[0])
	for i := range s.slabs {
		if sl := s.slabs[i].Load(); sl != nil {
			overhead += unsafe.Sizeof(*sl) + uintptr(len(sl.slots))*unsafe.Sizeof(sl.slots[0])
			for j := range sl.slots {
				if p := &sl.slots[j]; p.state.Load()&pinMask != 0 {
					m.PinnedBytes += int64(p.length)
				}
			}
		}
	}
	m.OverheadBytes += int64(overhead)
}
