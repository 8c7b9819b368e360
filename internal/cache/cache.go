// Package cache is a block cache that knows nothing of tables: it keeps byte
// blocks under (identity, offset) keys, within a number of bytes that it never
// exceeds, in memory outside the garbage collector's heap (see offheap; blocks so
// large that each has a slab to itself are on the heap). A cache needs no closing:
// its memory goes once neither it nor a Handle of it is reachable.
//
// Shards divide the keys. A shard cuts its memory into equal slabs and each
// slab into slots of one size class; a block lives in one slot. Eviction is
// CLOCK with a small use counter per block; blocks that a scan brings in are
// cold and replace each other first. Slabs move between classes by age, so a
// change of block size does not leave the memory behind with the old size.
//
// A block is pinned while it is read, and then neither evicted nor written.
// On a miss the caller reserves a buffer, fills it and publishes it:
//
//	h, ok := c.Get(id, offset, &hint)
//	if !ok {
//		h = c.Reserve(id, offset, sizeBytes)
//		if err := fill(h.Bytes()); err != nil {
//			h.Release() // discards the buffer
//			return err
//		}
//		h.Publish(&hint, false)
//	}
//	use(h.Bytes())
//	h.Release()
//
// A hint is a word that the caller keeps beside its own pointer to the block,
// in its index entry say. It remembers the slot, so that the next hit needs
// neither the shard's index nor its lock. A stale hint, or one of another
// block, costs a look-up and nothing else.
//
// Concurrency: every method of Cache is safe for concurrent use, and a hint
// may be shared. A Handle is owned by one goroutine at a time. The package
// starts no goroutine and has no globals, and several stores may share a Cache.
package cache

import (
	"sync/atomic"
	"unsafe"

	"sievedb/internal/offheap"
	"sievedb/internal/prefetch"
)

const (
	maxShards      = 16
	minShardBytes  = 8 << 20 // below it, more shards would only make the slabs too few
	slabsPerShard  = 64      // at least, so that several classes can share a shard
	maxSlabBytes   = 1 << 20
	minSlabBytes   = 64 << 10
	maxCapacity    = 1 << 40 // bytes; keeps every reference to a slot within 32 bits
	counterStripes = 64
)

// Cache is a set of blocks bounded in bytes. Make one with New.
type Cache struct {
	capacityBytes int64
	shards        []shard // a power of two of them
	lastID        atomic.Uint64
	hintHits      [counterStripes]stripe
}

// stripe is one part of a counter that would else be written by all cores.
type stripe struct {
	n atomic.Uint64
	_ [120]byte
}

// New returns an empty cache of at most capacityBytes bytes of blocks; slabs
// are taken as they are needed and then kept. What the cache needs besides
// (about 1 % at blocks of 4 KiB) is reported by Metrics and not part of the
// capacity. With a capacity of zero or less the cache works and keeps nothing.
func New(capacityBytes int64) *Cache {
	capacityBytes = min(max(capacityBytes, 0), maxCapacity)
	n := int64(1)
	for n < maxShards && capacityBytes/(2*n) >= minShardBytes {
		n *= 2
	}
	c := &Cache{capacityBytes: capacityBytes, shards: make([]shard, n)}
	// The shards own the memory and not the Cache: a Handle holds on to them.
	memory := offheap.New(&c.shards[0], offheap.HugePages)
	for i := range c.shards {
		c.shards[i].init(i, capacityBytes/n, memory)
	}
	return c
}

// NewID returns an identity that was not given out before. Each open table
// takes one, so that neither two stores nor two lives of one file share a key.
func (c *Cache) NewID() uint64 { return c.lastID.Add(1) }

// Get returns the block of (id, offset), pinned, or false when it is not there.
// hint may be nil; a valid one makes the hit free of locks, and a hit without
// it refreshes it. Get allocates nothing.
func (c *Cache) Get(id, offset uint64, hint *atomic.Uint64) (Handle, bool) {
	if hint != nil {
		if word := hint.Load(); word != 0 {
			if h, ok := c.pinHinted(word, id, offset); ok {
				return h, true
			}
		}
	}
	return c.shardOf(hashKey(id, offset)).get(id, offset, hint)
}

// pinHinted pins the slot that a hint names and then verifies that it holds
// the wanted block. The order matters: see slot.
func (c *Cache) pinHinted(word, id, offset uint64) (Handle, bool) {
	ref := slotRef(word)
	sl, i := c.hinted(word)
	if sl == nil {
		return Handle{}, false
	}
	s := &sl.slots[i]
	if !s.pin() {
		return Handle{}, false
	}
	h := Handle{slab: sl, slot: uint32(i)}
	if s.id != id || s.offset != offset {
		h.Release()
		return Handle{}, false
	}
	c.hintHits[(ref^ref>>slotBits)%counterStripes].n.Add(1)
	return h, true
}

// hinted returns the slot that a hint names, and nil for the slab if there is
// none (now).
func (c *Cache) hinted(word uint64) (sl *slab, i int) {
	number := word >> hintShardShift & hintShardMask
	if number >= uint64(len(c.shards)) {
		return nil, 0
	}
	ref := slotRef(word)
	sl = c.shards[number].slab(ref)
	i = ref.slot()
	if sl == nil || i >= len(sl.slots) {
		return nil, 0
	}
	return sl, i
}

// Prefetch tells the CPU that the block that a hint names will be asked for
// soon, and read in two places: bodyBytes of it that begin the earlier the less at
// is, at the front if it is 0 and up to the end if it is 1, and tailBytes at the end.
// It pins nothing and waits for nothing. A wrong hint costs some memory traffic.
func (c *Cache) Prefetch(hint *atomic.Uint64, at float64, bodyBytes, tailBytes int) {
	word := hint.Load()
	if word == 0 {
		return
	}
	sl, i := c.hinted(word)
	if sl == nil {
		return
	}
	prefetch.Lines(unsafe.Pointer(&sl.slots[i]), unsafe.Sizeof(slot{}))
	// At most a unit too long.
	n := min(int(word>>hintLengthShift)*hintLengthUnit, sl.slotBytes)
	block := sl.buf[i*sl.slotBytes:][:n]
	// The end first: it tells where in the rest to look.
	body, tail := min(bodyBytes, n), min(tailBytes, n)
	prefetch.Lines(unsafe.Pointer(unsafe.SliceData(block[n-tail:])), uintptr(tail))
	from := int(at * float64(n-body))
	prefetch.Lines(unsafe.Pointer(unsafe.SliceData(block[from:])), uintptr(body))
}

// Reserve returns an unpublished buffer of exactly sizeBytes (at least zero)
// for the block of (id, offset), with arbitrary contents. It is the caller's,
// who fills it and then calls Publish, or Release to discard it. When no slot
// can be had, because the block is larger than half a shard or everything is
// pinned, the buffer comes from the heap: it works the same, and is not kept.
func (c *Cache) Reserve(id, offset uint64, sizeBytes int) Handle {
	return c.shardOf(hashKey(id, offset)).reserve(id, offset, max(sizeBytes, 0))
}

// Drop removes every published block of id; call it when the table is deleted.
// A pinned block stays readable and is freed by its last Release. Blocks that
// are published while Drop runs may remain, and age out like any other. It
// looks at every block of the cache, locking a shard for one slab at a time.
func (c *Cache) Drop(id uint64) {
	for i := range c.shards {
		c.shards[i].drop(id)
	}
}

func (c *Cache) shardOf(hash uint64) *shard {
	return &c.shards[(hash>>56)&uint64(len(c.shards)-1)]
}

// hashKey mixes a key into 64 well-spread bits: the finalizer of SplitMix64
// over a multiplicative combination. The top bits choose the shard, the low
// ones the chain of its index.
func hashKey(id, offset uint64) uint64 {
	h := id*0x9e3779b97f4a7c15 ^ offset
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
