package cache

import (
	"runtime"
	"testing"

	"sievedb/internal/offheap"
)

// granted returns the bytes outside the heap, after collections until they are want or
// there is no hope.
func granted(want int64) int64 {
	for range 1000 {
		if offheap.Metrics().Granted == want {
			break
		}
		runtime.GC()
	}
	return offheap.Metrics().Granted
}

// A cache that nobody has any more leaves its memory to those who read a block,
// and after them to others.
func TestMemoryGoesWithTheLastHandle(t *testing.T) {
	if n := granted(0); n != 0 {
		t.Fatalf("other tests left %d bytes", n)
	}
	c := New(8 << 20)
	const blocks, size = 1500, 4096
	for i := range uint64(blocks) {
		put(c, 1, i, size, nil, false)
	}
	slabs := c.Metrics().SlabBytes
	if slabs < blocks*size {
		t.Fatalf("%d bytes for %d blocks", slabs, blocks)
	}
	outside := offheap.Metrics().Granted // none where there is no such memory
	if outside != 0 && outside != slabs {
		t.Fatalf("%d bytes outside the heap, %d in slabs", outside, slabs)
	}
	h, ok := c.Get(1, 7, nil)
	if !ok {
		t.Fatal("a block is gone")
	}
	c = nil
	for range 3 {
		runtime.GC()
	}
	if n := offheap.Metrics().Granted; n != outside {
		t.Fatalf("%d bytes beside a handle, %d before", n, outside)
	}
	stale := h.Bytes()
	if !matches(stale, 1, 7, 0) {
		t.Fatal("the block changed")
	}
	h.Release()
	if n := granted(0); n != 0 {
		t.Fatalf("%d bytes that nobody can reach", n)
	}
	sum := 0
	for _, b := range stale {
		sum += int(b) // whatever that is now
	}
	t.Logf("the stale block adds up to %d", sum)
}

// Memory that the capacity has no room for any more goes at once.
func TestMemoryGoesWithItsSlab(t *testing.T) {
	if n := granted(0); n != 0 {
		t.Fatalf("other tests left %d bytes", n)
	}
	c := New(testCapacity)
	for round := range 4 {
		for i := range uint64(8) {
			put(c, 1, i, 70_000, nil, false)
		}
		for i := range uint64(2 * blocksOf4K) {
			put(c, 2, i, 4096, nil, false)
		}
		// A buffer is less than twice what was asked for.
		if outside := offheap.Metrics().Granted; outside > 2*c.Metrics().SlabBytes {
			t.Fatalf("round %d: %d bytes outside the heap for %d in slabs", round, outside, c.Metrics().SlabBytes)
		}
	}
	check(t, c)
	runtime.KeepAlive(c)
}

// Whatever the capacity, slabs fill the buffers that they lie in.
func TestSlabsFillTheirBuffers(t *testing.T) {
	if n := granted(0); n != 0 {
		t.Fatalf("other tests left %d bytes", n)
	}
	for _, capacity := range []int64{12 << 20, 20 << 20, 24 << 20} {
		for _, size := range []int{4096, 66_000} { // of the latter each has a slab to itself
			c := New(capacity)
			for i := range uint64(capacity) / uint64(size) {
				put(c, 1, i, size, nil, false)
			}
			if outside, slabs := offheap.Metrics().Granted, c.Metrics().SlabBytes; outside > slabs {
				t.Errorf("capacity %d: %d bytes outside the heap for %d in slabs", capacity, outside, slabs)
			}
			runtime.KeepAlive(c)
			c = nil
			granted(0)
		}
	}
}
