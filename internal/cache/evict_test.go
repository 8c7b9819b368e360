package cache

import (
	"testing"
)

// Slots waste at most an eighth of the block, and any class fits its slab.
func TestFitWaste(t *testing.T) {
	for _, capacityBytes := range []int64{1 << 20, 8 << 20, 100 << 20, 1 << 30} {
		s := &New(capacityBytes).shards[0]
		for size := 0; size <= s.slabBytes; size += 1 + size/100 {
			c, slots, slotBytes := s.fit(size)
			need := (max(size, minSlotBytes) + slotAlign - 1) / slotAlign * slotAlign
			if slotBytes < size || slotBytes > need+need/8 {
				t.Fatalf("slabs of %d: a block of %d bytes gets a slot of %d", s.slabBytes, size, slotBytes)
			}
			large := c == &s.classes[largeClass]
			if !large && (slots*slotBytes > s.slabBytes || slots >= slotsInSlab || slots < minSlots) || large && slots != 1 {
				t.Fatalf("slabs of %d: a block of %d bytes gets %d slots of %d", s.slabBytes, size, slots, slotBytes)
			}
			if _, again, _ := s.fit(slotBytes); again != slots {
				t.Fatalf("slabs of %d: slots of %d bytes are of another class", s.slabBytes, slotBytes)
			}
		}
	}
}

// Two slot sizes never share a class.
func TestFitClassesAreDistinct(t *testing.T) {
	s := &New(1 << 30).shards[0]
	seen := map[*class]int{}
	for size := 1; size <= s.slabBytes/minSlots; size++ {
		c, slots, _ := s.fit(size)
		if had, ok := seen[c]; ok && had != slots {
			t.Fatalf("a class has slabs of %d and of %d slots", had, slots)
		}
		seen[c] = slots
	}
	// Rounding to slotAlign joins a few of the smallest ones.
	if len(seen) < largeClass-minSlots {
		t.Fatalf("%d classes are reached of %d", len(seen), largeClass)
	}
}

// blocksOf4K is how many blocks of 4 KiB fit the cache of these tests, which
// has one shard.
const (
	testCapacity = 1 << 20
	blocksOf4K   = testCapacity / 4096
)

// The blocks that were used survive the ones that were not.
func TestUsedBlocksSurvive(t *testing.T) {
	c := New(testCapacity)
	for i := range uint64(blocksOf4K) {
		put(c, 1, i, 4096, nil, false)
	}
	for i := uint64(0); i < blocksOf4K; i += 2 {
		has(c, 1, i)
	}
	for i := range uint64(blocksOf4K / 2) {
		put(c, 2, i, 4096, nil, false)
	}
	for i := range uint64(blocksOf4K) {
		if peek(c, 1, i) != (i%2 == 0) {
			t.Fatalf("block %d: kept %v", i, peek(c, 1, i))
		}
	}
	if m := c.Metrics(); m.Evictions != blocksOf4K/2 || m.Blocks != blocksOf4K {
		t.Fatalf("%+v", m)
	}
	emptied(t, c, 1, 2)
}

// kept counts the blocks of id that are there.
func kept(c *Cache, id uint64, n int) int {
	found := 0
	for i := range uint64(n) {
		if peek(c, id, i) {
			found++
		}
	}
	return found
}

// A scan of ten times the cache, cold, takes an eighth of a cache whose blocks
// are idle meanwhile; the same scan inserted as used takes all of it.
func TestColdScan(t *testing.T) {
	for _, x := range []struct {
		name string
		cold bool
		want int
	}{
		{"cold", true, blocksOf4K - blocksOf4K/coldShare - 1},
		{"warm", false, 0},
	} {
		t.Run(x.name, func(t *testing.T) {
			c := New(testCapacity)
			for i := range uint64(blocksOf4K) {
				put(c, 1, i, 4096, nil, false)
			}
			for i := range uint64(10 * blocksOf4K) {
				put(c, 2, i, 4096, nil, x.cold)
				if !has(c, 2, i) { // as after a readahead
					t.Fatalf("block %d of the scan was gone before its use", i)
				}
			}
			check(t, c)
			if n := kept(c, 1, blocksOf4K); n != x.want {
				t.Fatalf("%d of %d blocks survived the scan, want %d", n, blocksOf4K, x.want)
			}
			emptied(t, c, 1, 2)
		})
	}
}

// A scan whose blocks are of another size than the idle ones gets one slab.
func TestColdScanOfAnotherClass(t *testing.T) {
	for _, size := range []int{1000, 7000, 20000} {
		c := New(testCapacity)
		for i := range uint64(blocksOf4K) {
			put(c, 1, i, 4096, nil, false)
			has(c, 1, i)
		}
		for i := range uint64(10 * testCapacity / size) {
			put(c, 2, i, size, nil, true)
		}
		check(t, c)
		if n := kept(c, 1, blocksOf4K); n != blocksOf4K-minSlabBytes/4096 {
			t.Errorf("blocks of %d bytes: %d of %d survived the scan", size, n, blocksOf4K)
		}
		emptied(t, c, 1, 2)
	}
}

// A cold block that is used twice outlives the scan.
func TestColdBlockIsPromoted(t *testing.T) {
	c := New(testCapacity)
	for i := range uint64(blocksOf4K) {
		put(c, 1, i, 4096, nil, true)
		if has(c, 1, i); i%16 == 0 {
			has(c, 1, i)
		}
	}
	for i := range uint64(blocksOf4K * 15 / 16) {
		put(c, 2, i, 4096, nil, true)
	}
	for i := range uint64(blocksOf4K) {
		if peek(c, 1, i) != (i%16 == 0) {
			t.Fatalf("block %d: kept %v", i, peek(c, 1, i))
		}
	}
	emptied(t, c, 1, 2)
}

// With every block much used, an insert still finds a victim, after a bounded
// number of steps.
func TestSweepIsBounded(t *testing.T) {
	c := New(testCapacity)
	for i := range uint64(blocksOf4K) {
		put(c, 1, i, 4096, nil, false)
		for range 5 {
			has(c, 1, i)
		}
	}
	put(c, 2, 0, 4096, nil, false)
	decayed := 0
	for i := range c.shards[0].slabs {
		if sl := c.shards[0].slabs[i].Load(); sl != nil {
			for i := range sl.slots {
				if sl.slots[i].state.Load()&useMask == 2*useUnit {
					decayed++
				}
			}
		}
	}
	if m := c.Metrics(); m.Evictions != 1 || decayed != patience {
		t.Fatalf("%d blocks decayed: %+v", decayed, m)
	}
	emptied(t, c, 1, 2)
}

// The memory follows the sizes that are in use: no class keeps what it does
// not use, however the sizes change.
func TestSlabsMoveBetweenClasses(t *testing.T) {
	c := New(testCapacity)
	for phase, size := range []int{600, 4096, 1500, 7000, 30000, 600, 100000, 4200} {
		id := uint64(phase + 1)
		n := uint64(testCapacity / size)
		for i := range 4 * n {
			put(c, id, i, size, nil, false)
			has(c, id, i)
		}
		check(t, c)
		var own int64
		for i := range n {
			if peek(c, id, 3*n+i) {
				own += int64(size)
			}
		}
		if own < testCapacity*3/4 {
			t.Errorf("phase %d: blocks of %d bytes hold %d of %d bytes after four times the capacity", phase, size, own, testCapacity)
		}
	}
}

// A class in use is not robbed by one that only inserts.
func TestUsedClassKeepsItsSlabs(t *testing.T) {
	c := New(testCapacity)
	const n = blocksOf4K / 2
	for i := range uint64(n) {
		put(c, 1, i, 4096, nil, false)
	}
	for i := range uint64(20 * testCapacity / 1500) {
		put(c, 2, i, 1500, nil, false)
		has(c, 1, i%n)
	}
	check(t, c)
	if got := kept(c, 1, n); got != n {
		t.Fatalf("%d of %d blocks in use remain", got, n)
	}
	emptied(t, c, 1, 2)
}

// When everything is pinned, Reserve falls back to the heap and capacity holds;
// nothing that is pinned is touched, in its own class or another's claim.
func TestEverythingPinned(t *testing.T) {
	c := New(testCapacity)
	var pins []Handle
	for i := range uint64(blocksOf4K) {
		h := c.Reserve(1, i, 4096)
		fill(h.Bytes(), 1, i, 0)
		h.Publish(nil, i%2 == 0)
		pins = append(pins, h)
	}
	for _, size := range []int{4096, 1000, 100000} {
		h := c.Reserve(2, 0, size)
		fill(h.Bytes(), 2, 0, 0)
		h.Publish(nil, false)
		if m := c.Metrics(); m.OverflowBytes != int64(size) || m.SlabBytes != testCapacity || m.PinnedBytes != testCapacity {
			t.Fatalf("%+v", m)
		}
		h.Release()
	}
	for i := range pins {
		if !matches(pins[i].Bytes(), 1, uint64(i), 0) {
			t.Fatalf("pinned block %d changed", i)
		}
	}
	// One block free in each slab is not enough for another class, but is for its own.
	for i := 0; i < len(pins); i += 16 {
		pins[i].Release()
	}
	put(c, 2, 1, 1000, nil, false)
	put(c, 2, 2, 4096, nil, false)
	if has(c, 2, 1) || !has(c, 2, 2) || c.Metrics().Evictions != 1 {
		t.Fatalf("%+v", c.Metrics())
	}
	for i := range pins {
		pins[i].Release()
	}
	emptied(t, c, 1, 2)
}
