package cache

import (
	"encoding/binary"
	"iter"
	"math/rand/v2"
	"sync/atomic"
	"testing"
)

// fill writes a pattern that depends on the key, the version and the place.
func fill(buf []byte, id, offset, version uint64) {
	x := hashKey(id*31+version, offset)
	for ; len(buf) >= 8; buf = buf[8:] {
		binary.LittleEndian.PutUint64(buf, x)
		x = x*6364136223846793005 + 1442695040888963407
	}
	for i := range buf {
		buf[i] = byte(x >> (8 * i))
	}
}

// matches reports whether buf holds the pattern of fill.
func matches(buf []byte, id, offset, version uint64) bool {
	x := hashKey(id*31+version, offset)
	for ; len(buf) >= 8; buf = buf[8:] {
		if binary.LittleEndian.Uint64(buf) != x {
			return false
		}
		x = x*6364136223846793005 + 1442695040888963407
	}
	for i := range buf {
		if buf[i] != byte(x>>(8*i)) {
			return false
		}
	}
	return true
}

// put publishes a block and releases it.
func put(c *Cache, id, offset uint64, sizeBytes int, hint *atomic.Uint64, cold bool) {
	h := c.Reserve(id, offset, sizeBytes)
	fill(h.Bytes(), id, offset, 0)
	h.Publish(hint, cold)
	h.Release()
}

// has uses a block if it is there.
func has(c *Cache, id, offset uint64) bool {
	h, ok := c.Get(id, offset, nil)
	h.Release()
	return ok
}

// peek reports whether a block is there without using it.
func peek(c *Cache, id, offset uint64) bool {
	s := c.shardOf(hashKey(id, offset))
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.index.find(s, id, offset) != 0
}

// ring goes through the slabs of a class.
func ring(c *class) iter.Seq[*slab] {
	return func(yield func(*slab) bool) {
		for sl := c.warm.slab; sl != nil && yield(sl); sl = sl.next {
			if sl.next.prev != sl {
				panic("the ring of slabs is broken")
			}
			if sl.next == c.warm.slab {
				return
			}
		}
	}
}

// check verifies everything that a shard counts against what it holds.
func check(t *testing.T, c *Cache) {
	t.Helper()
	for i := range c.shards {
		checkShard(t, &c.shards[i])
	}
}

func checkShard(t *testing.T, s *shard) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var total, used int64
	live, slabs := 0, 0
	for _, buf := range s.spare {
		total += int64(len(buf))
	}
	for i := range s.classes {
		c := &s.classes[i]
		slots, free, cold := 0, 0, 0
		for sl := range ring(c) {
			slabs++
			total += int64(len(sl.buf))
			if s.slab(sl.at(0)) != sl || sl.class != c || sl.shard != s {
				t.Fatalf("class %d: slab at place %d is not the one in the table", i, sl.place.slab())
			}
			if sl.slotBytes*len(sl.slots) > len(sl.buf) {
				t.Fatalf("class %d: %d slots of %d bytes in %d", i, len(sl.slots), sl.slotBytes, len(sl.buf))
			}
			listed := 0
			for ref := sl.free; ref != 0; ref = sl.slots[ref.slot()].next {
				if st := sl.slots[ref.slot()].state.Load(); st != flagFree {
					t.Fatalf("class %d: slot in the free list has state %#x", i, st)
				}
				listed++
			}
			slots += len(sl.slots)
			free += listed
			if sl.used != len(sl.slots)-listed || sl.used == 0 {
				t.Fatalf("class %d: slab counts %d used of %d, %d in the free list", i, sl.used, len(sl.slots), listed)
			}
			for j := range sl.slots {
				p := &sl.slots[j]
				st := p.state.Load()
				if st&flagLive == 0 {
					continue
				}
				live++
				used += int64(p.length)
				if st&flagCold != 0 {
					cold++
				}
				if s.index.find(s, p.id, p.offset) != sl.at(j) {
					t.Fatalf("live block %d/%d is not in the index", p.id, p.offset)
				}
			}
		}
		if c.slots != slots || c.free != free || c.cold != cold {
			t.Fatalf("class %d counts %d slots %d free %d cold, has %d %d %d", i, c.slots, c.free, c.cold, slots, free, cold)
		}
		for _, h := range []hand{c.warm, c.chill, {slab: c.roomy}} {
			if (h.slab == nil) != (slots == 0) || h.slab != nil && (h.slab.class != c || s.slab(h.slab.at(0)) != h.slab || h.slot >= len(h.slab.slots)) {
				t.Fatalf("class %d: hand at %v", i, h)
			}
		}
	}
	if total != s.slabTotal || total > s.capBytes {
		t.Fatalf("slabs take %d bytes, counted %d, capacity %d", total, s.slabTotal, s.capBytes)
	}
	if used != s.usedBytes || live != s.index.count {
		t.Fatalf("%d live blocks of %d bytes, counted %d of %d", live, used, s.index.count, s.usedBytes)
	}
	if s.index.count > len(s.index.heads) {
		t.Fatalf("%d chains for %d blocks", len(s.index.heads), s.index.count)
	}
	if slabs+len(s.places)+1 != len(s.slabs) {
		t.Fatalf("%d slabs and %d free places in a table of %d", slabs, len(s.places), len(s.slabs))
	}
}

// emptied drops every id, and checks that nothing is left in use.
func emptied(t *testing.T, c *Cache, ids ...uint64) {
	t.Helper()
	for _, id := range ids {
		c.Drop(id)
	}
	check(t, c)
	m := c.Metrics()
	if m.UsedBytes != 0 || m.PinnedBytes != 0 || m.OverflowBytes != 0 || m.Blocks != 0 {
		t.Fatalf("after everything was released and dropped: %+v", m)
	}
	for i := range c.shards {
		for j := range c.shards[i].classes {
			if n := c.shards[i].classes[j].slots; n != 0 {
				t.Fatalf("shard %d class %d still has %d slots", i, j, n)
			}
		}
	}
}

func TestGetPublishRelease(t *testing.T) {
	c := New(1 << 20)
	id := c.NewID()
	var hint atomic.Uint64
	if h, ok := c.Get(id, 0, &hint); ok || h.Valid() || h.Bytes() != nil || hint.Load() != 0 {
		t.Fatal("an empty cache has a block")
	}
	h := c.Reserve(id, 0, 1000)
	if len(h.Bytes()) != 1000 || cap(h.Bytes()) != 1000 {
		t.Fatalf("reserved %d bytes, capacity %d", len(h.Bytes()), cap(h.Bytes()))
	}
	if has(c, id, 0) {
		t.Fatal("a reserved block can be found")
	}
	fill(h.Bytes(), id, 0, 0)
	h.Publish(&hint, false)
	h.Publish(&hint, false) // nothing more to publish
	check(t, c)
	if m := c.Metrics(); m.PinnedBytes != 1000 || m.UsedBytes != 1000 || m.Blocks != 1 || m.Inserts != 1 {
		t.Fatalf("%+v", m)
	}
	h.Release()
	h.Release()   // empty by now
	for range 2 { // first by the hint, then by the index
		g, ok := c.Get(id, 0, &hint)
		if !ok || !matches(g.Bytes(), id, 0, 0) || len(g.Bytes()) != 1000 {
			t.Fatal("the block is not there")
		}
		g.Release()
		hint.Store(0)
	}
	if hint.Store(0); !has(c, id, 0) {
		t.Fatal("no hint, no block")
	}
	m := c.Metrics()
	if m.Hits != 3 || m.HintHits != 1 || m.Misses != 2 || m.PinnedBytes != 0 || m.SlabBytes != minSlabBytes {
		t.Fatalf("%+v", m)
	}
	emptied(t, c, id)
}

func TestDiscardAndEmptyBlock(t *testing.T) {
	c := New(1 << 20)
	h := c.Reserve(1, 0, 5000)
	h.Release()
	if has(c, 1, 0) {
		t.Fatal("a discarded block can be found")
	}
	put(c, 1, 1, 0, nil, false)
	if g, ok := c.Get(1, 1, nil); !ok || len(g.Bytes()) != 0 || g.Bytes() == nil {
		t.Fatal("a block of no bytes is a block")
	} else {
		g.Release()
	}
	emptied(t, c, 1)
}

// Two that load the same block: the later one gets the block of the first.
func TestPublishTwice(t *testing.T) {
	c := New(1 << 20)
	var hintA, hintB atomic.Uint64
	a, b := c.Reserve(1, 8, 100), c.Reserve(1, 8, 100)
	fill(a.Bytes(), 1, 8, 1)
	fill(b.Bytes(), 1, 8, 2)
	b.Publish(&hintB, false)
	a.Publish(&hintA, false)
	if !matches(a.Bytes(), 1, 8, 2) || &a.Bytes()[0] != &b.Bytes()[0] || hintA.Load() != hintB.Load() {
		t.Fatal("the second to publish did not switch to the first")
	}
	check(t, c)
	if m := c.Metrics(); m.PinnedBytes != 100 || m.Inserts != 1 {
		t.Fatalf("%+v", m)
	}
	a.Release()
	b.Release()
	emptied(t, c, 1)
}

// A reserved heap buffer, too, gives way to a published block.
func TestOverflowSwitchesToPublished(t *testing.T) {
	c := New(64 << 10)
	var pins []Handle
	for c.Metrics().OverflowBytes == 0 {
		pins = append(pins, c.Reserve(1, uint64(len(pins)), 4096))
	}
	last := len(pins) - 1
	if last != 16 {
		t.Fatalf("%d blocks of 4 KiB fit 64 KiB", last)
	}
	// The key of the buffer that did not fit is published through another slot.
	pins[0].Release()
	put(c, 1, uint64(last), 4096, nil, false)
	pins[last].Publish(nil, false)
	if !matches(pins[last].Bytes(), 1, uint64(last), 0) || c.Metrics().OverflowBytes != 0 {
		t.Fatal("did not switch")
	}
	for i := range pins {
		pins[i].Release()
	}
	emptied(t, c, 1)
}

func TestDropKeepsPinnedBlocks(t *testing.T) {
	c := New(1 << 20)
	var hint atomic.Uint64
	put(c, 1, 0, 3000, &hint, false)
	put(c, 1, 1, 3000, nil, true)
	put(c, 2, 0, 3000, nil, false)
	h, _ := c.Get(1, 0, &hint)
	reserved := c.Reserve(1, 2, 3000)
	c.Drop(1)
	check(t, c)
	if _, ok := c.Get(1, 0, &hint); ok || has(c, 1, 1) || !has(c, 2, 0) {
		t.Fatal("Drop dropped too little or too much")
	}
	h.Publish(nil, false) // a dropped block does not come back
	if has(c, 1, 0) || !matches(h.Bytes(), 1, 0, 0) {
		t.Fatal("the pinned block changed")
	}
	if m := c.Metrics(); m.PinnedBytes != 6000 || m.Blocks != 1 || m.Evictions != 0 {
		t.Fatalf("%+v", m)
	}
	h.Release()
	reserved.Release()
	emptied(t, c, 1, 2)
}

// The memory of dropped blocks is used again before anything is evicted.
func TestDroppedMemoryIsUsedFirst(t *testing.T) {
	c := New(1 << 20)
	for i := range uint64(256) {
		put(c, 1+i/128, i, 4096, nil, false)
	}
	c.Drop(1)
	for i := range uint64(128) {
		put(c, 3, i, 4096, nil, false)
	}
	if m := c.Metrics(); m.Evictions != 0 || m.Blocks != 256 || m.SlabBytes != 1<<20 {
		t.Fatalf("%+v", m)
	}
	emptied(t, c, 2, 3)
}

// A hint whose slot went to another block must not find that block, nor leave
// a pin on it, and one that is garbage does no harm.
func TestHintAfterReuse(t *testing.T) {
	c := New(64 << 10)
	var hint, other atomic.Uint64
	put(c, 1, 0, 4096, &hint, false)
	put(c, 1, 1, 4096, nil, false) // keeps the slab
	c.Drop(1)
	put(c, 2, 0, 4096, &other, false)
	put(c, 2, 1, 4096, nil, false)
	if hint.Load() != other.Load() {
		t.Fatalf("the slot was not used again: %#x, %#x", hint.Load(), other.Load())
	}
	if _, ok := c.Get(1, 0, &hint); ok {
		t.Fatal("the hint found another block")
	}
	if m := c.Metrics(); m.PinnedBytes != 0 || m.HintHits != 0 || m.Misses != 1 {
		t.Fatalf("%+v", m)
	}
	// The slab is cut anew into fewer slots: the hint's slot may be none.
	c.Drop(2)
	var high atomic.Uint64
	for i := range uint64(128) {
		put(c, 3, i, 512, &high, false)
	}
	c.Drop(3)
	put(c, 4, 0, 8192, nil, false)
	for _, word := range []uint64{high.Load(), 1 << 32, ^uint64(0), 1, 1<<32 - 1, 7 << 12} {
		hint.Store(word)
		if h, ok := c.Get(4, 0, &hint); !ok || !matches(h.Bytes(), 4, 0, 0) {
			t.Fatalf("hint %#x hides the block", word)
		} else {
			h.Release()
		}
		hint.Store(word)
		if _, ok := c.Get(3, 127, &hint); ok {
			t.Fatalf("hint %#x finds a dropped block", word)
		}
	}
	emptied(t, c, 4)
}

// TestPrefetchAnyHint gives Prefetch hints of every kind: it must not fail, and
// may change nothing.
func TestPrefetchAnyHint(t *testing.T) {
	c := New(1 << 20)
	var hint atomic.Uint64
	put(c, 1, 0, 5000, &hint, false)
	good := hint.Load()
	if n := good >> hintLengthShift * hintLengthUnit; n != 5056 {
		t.Errorf("the hint says %d bytes, want 5000 in whole units of %d", n, hintLengthUnit)
	}
	var large atomic.Uint64
	put(c, 1, 1, 300<<10, &large, false)
	before := c.Metrics()
	seed := [32]byte{1}
	r := rand.New(rand.NewChaCha8(seed))
	for i := range 100_000 {
		switch i % 4 {
		case 0:
			hint.Store(r.Uint64())
		case 1: // one bit wrong
			hint.Store(good ^ 1<<r.IntN(64))
		case 2:
			hint.Store(large.Load() ^ 1<<r.IntN(64))
		default:
			hint.Store(r.Uint64() & (1<<40 - 1))
		}
		c.Prefetch(&hint, r.Float64(), r.IntN(10_000), r.IntN(10_000))
	}
	if after := c.Metrics(); after != before {
		t.Errorf("metrics changed from %+v to %+v", before, after)
	}
	hint.Store(good)
	if n := testing.AllocsPerRun(100, func() { c.Prefetch(&hint, 0.5, 1024, 512) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestZeroCapacity(t *testing.T) {
	for _, capacityBytes := range []int64{0, -5, 1, 63, 100} {
		c := New(capacityBytes)
		var hint atomic.Uint64
		h := c.Reserve(1, 0, 4096)
		if len(h.Bytes()) != 4096 || c.Metrics().OverflowBytes != 4096 {
			t.Fatalf("capacity %d: %+v", capacityBytes, c.Metrics())
		}
		fill(h.Bytes(), 1, 0, 0)
		h.Publish(&hint, false)
		if !matches(h.Bytes(), 1, 0, 0) || hint.Load() != 0 || has(c, 1, 0) {
			t.Fatalf("capacity %d: a block was kept", capacityBytes)
		}
		h.Release()
		if m := c.Metrics(); m.OverflowBytes != 0 || m.SlabBytes != 0 || m.Inserts != 0 {
			t.Fatalf("capacity %d: %+v", capacityBytes, m)
		}
	}
}

// Large blocks are cached in slabs of their own, up to half a shard.
func TestLargeBlocks(t *testing.T) {
	const mib = 1 << 20
	c := New(8 * mib)
	for i := range uint64(8) {
		put(c, 1, i, mib, nil, false)
	}
	check(t, c)
	if m := c.Metrics(); m.Blocks != 8 || m.SlabBytes != 8*mib || m.Evictions != 0 {
		t.Fatalf("%+v", m)
	}
	put(c, 1, 8, 4*mib, nil, false)
	check(t, c)
	if m := c.Metrics(); m.Blocks != 5 || m.Evictions != 4 || !has(c, 1, 8) || m.UsedBytes != 8*mib {
		t.Fatalf("%+v", m)
	}
	h := c.Reserve(1, 9, 4*mib+1)
	h.Publish(nil, false)
	if c.Metrics().OverflowBytes != 4*mib+1 || has(c, 1, 9) {
		t.Fatal("more than half a shard was kept")
	}
	h.Release()
	// Small blocks take the memory back, and large ones after them.
	for i := range uint64(2 * 8 * mib / 4096) {
		put(c, 2, i, 4096, nil, false)
	}
	check(t, c)
	if m := c.Metrics(); m.Blocks != 8*mib/4096 || has(c, 1, 8) {
		t.Fatalf("small blocks did not take the slabs of large ones: %+v", m)
	}
	put(c, 1, 10, 4*mib, nil, false)
	if check(t, c); !has(c, 1, 10) {
		t.Fatal("a large block did not take the slabs of small ones")
	}
	emptied(t, c, 1, 2)
}

func TestNewIDIsUnique(t *testing.T) {
	c := New(0)
	if a, b := c.NewID(), c.NewID(); a == b || a == 0 {
		t.Fatalf("%d, %d", a, b)
	}
}

func TestShardsAndSlabs(t *testing.T) {
	for _, x := range []struct {
		capacityBytes int64
		shards        int
		slabBytes     int
	}{
		{100, 1, 100}, {1 << 20, 1, 64 << 10}, {8 << 20, 1, 128 << 10}, {16 << 20, 2, 128 << 10},
		{32 << 20, 4, 128 << 10}, {100 << 20, 8, 128 << 10}, {512 << 20, 16, 512 << 10}, {64 << 30, 16, 1 << 20},
	} {
		c := New(x.capacityBytes)
		if len(c.shards) != x.shards || c.shards[0].slabBytes != x.slabBytes {
			t.Errorf("capacity %d: %d shards, slabs of %d bytes", x.capacityBytes, len(c.shards), c.shards[0].slabBytes)
		}
	}
}

func TestAllocations(t *testing.T) {
	c := New(1 << 20)
	var hint atomic.Uint64
	put(c, 1, 0, 4096, &hint, false)
	get := func(hint *atomic.Uint64) func() {
		return func() {
			h, ok := c.Get(1, 0, hint)
			if !ok || len(h.Bytes()) != 4096 {
				t.Fatal("miss")
			}
			h.Release()
		}
	}
	if n := testing.AllocsPerRun(100, get(&hint)); n != 0 {
		t.Errorf("a hit by the hint allocates %v times", n)
	}
	if n := testing.AllocsPerRun(100, get(nil)); n != 0 {
		t.Errorf("a hit by the index allocates %v times", n)
	}
	if n := testing.AllocsPerRun(100, func() { c.Get(1, 1, nil) }); n != 0 {
		t.Errorf("a miss allocates %v times", n)
	}
	next := uint64(0)
	insert := func() {
		h := c.Reserve(2, next, 4096)
		h.Publish(&hint, false)
		h.Release()
		next++
	}
	for range 1000 { // more than fit, so that memory and index have their size
		insert()
	}
	if n := testing.AllocsPerRun(1000, insert); n != 0 {
		t.Errorf("an insert into a full cache allocates %v times", n)
	}
	// A large block takes over the memory of the one that it replaces; only the
	// slab and its slot are made anew.
	large := func() {
		h := c.Reserve(3, next, 100_000)
		h.Publish(nil, false)
		h.Release()
		next++
	}
	for range 1000 {
		large()
	}
	if n := testing.AllocsPerRun(1000, large); n != 2 {
		t.Errorf("a large insert into a full cache allocates %v times, want 2", n)
	}
}

// Whatever a hand saw a moment ago, a slot is taken only if it is live and not
// pinned at that instant.
func TestTryEvict(t *testing.T) {
	c := New(1 << 20)
	s := &c.shards[0]
	h := c.Reserve(1, 0, 4096)
	sl, i := h.slab, int(h.slot)
	try := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.tryEvict(sl, i)
	}
	if try() {
		t.Fatal("took a reserved slot")
	}
	h.Publish(nil, false)
	if try() {
		t.Fatal("took a pinned slot")
	}
	h.Release()
	if !try() || try() || peek(c, 1, 0) {
		t.Fatal("a live slot without pins is taken exactly once")
	}
	s.mu.Lock()
	s.freeSlot(sl, i)
	s.mu.Unlock()
	emptied(t, c, 1)
}

// What the cache needs beside its capacity, at its default size and blocks of
// 4 KiB: 32 bytes a slot, 4 a chain of the index, and the tables.
func TestOverhead(t *testing.T) {
	c, _ := filled(3 * 32 << 20 / 4096)
	m := c.Metrics()
	if m.SlabBytes != m.CapacityBytes || m.UsedBytes != m.CapacityBytes || m.OverheadBytes > m.CapacityBytes*15/1000 {
		t.Fatalf("%+v", m)
	}
	t.Logf("%d bytes beside %d", m.OverheadBytes, m.CapacityBytes)
}
