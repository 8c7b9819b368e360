// Package offheap gives out large buffers of bytes outside the Go heap. The
// garbage collector lets the heap grow by a share of what is live before it
// runs; memory that holds no pointer and whose life is known, such as the slabs
// of a cache and the arenas of memtables, need not be counted in that.
//
//	type arena struct{ memory *offheap.Memory; … }
//	a.memory = offheap.New(a, offheap.SmallPages) // freed some time after a is unreachable
//	buf := a.memory.Alloc(1 << 20)
//	use(buf)
//	runtime.KeepAlive(a)                          // after the last look at buf
//
// A buffer is freed when its owner is unreachable, so that readers need neither
// a lock nor a reference count: they hold the owner. What is freed too early, or
// read too late, shows other bytes, but never faults: address space that was
// once given out is never unmapped. All buffers of the process come from one pool,
// which gives the pages of freed ones back to the operating system, but for as many
// as [KeepWarm] says: the first touch of a new page is dear.
//
// The collector, which finds out what is unreachable, runs the less often the
// less there is on its heap. [Memory.Retire] and [Collect] see to it that what
// waits for it stays within bounds.
//
// Where there is no such memory (on operating systems other than Linux, under
// the race detector, which does not see it, and when the system refuses it) buffers come
// from the Go heap. Nothing else is different then.
//
// All functions and methods are safe for concurrent use.
package offheap

import (
	"runtime"
	"sync"
	"unsafe"
)

// Buffers are of sizes that double from MinBytes to MaxBytes; a class is those of one
// size in one kind of pages. A smaller or a larger buffer comes from the Go heap.
const (
	MinBytes = 64 << 10
	MaxBytes = 16 << 20

	numSizes   = 9
	numClasses = int(numPages) * numSizes
)

// Memory is the buffers of one owner. A nil Memory gives out heap memory only.
type Memory struct {
	pool  *pool
	pages Pages

	mu      sync.Mutex
	buffers map[*byte]int // class of each, by its first byte; guarded by mu
	bytes   int64         // of them; guarded by mu
	retired int64         // of them, those counted by Retire; guarded by mu
}

// New returns Memory of the given pages that is freed after owner, which must be
// on the heap and not be reachable through what it owns, has become unreachable.
func New[T any](owner *T, pages Pages) *Memory { return newIn(&shared, owner, pages) }

func newIn[T any](p *pool, owner *T, pages Pages) *Memory {
	m := &Memory{pool: p, pages: pages, buffers: map[*byte]int{}}
	runtime.AddCleanup(owner, (*Memory).freeAll, m)
	return m
}

// Alloc returns n bytes, aligned to eight, with arbitrary contents.
func (m *Memory) Alloc(n int) []byte {
	if m == nil || n < MinBytes || n > MaxBytes {
		return onHeap(n)
	}
	class := classOf(n, m.pages)
	buf := m.pool.take(class)
	if buf == nil {
		return onHeap(n)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.buffers[unsafe.SliceData(buf)] = class
	m.bytes += int64(len(buf))
	return buf[:n:n]
}

// onHeap returns n bytes of a type that promises the alignment.
func onHeap(n int) []byte {
	words := make([]uint64, (n+7)/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), n)
}

// Free frees one buffer before its owner. The caller knows that nobody reads it.
func (m *Memory) Free(buf []byte) {
	first := unsafe.SliceData(buf)
	m.mu.Lock()
	class, ok := m.buffers[first]
	delete(m.buffers, first)
	if ok {
		m.bytes -= classBytes(class)
	}
	m.mu.Unlock()
	if ok {
		m.pool.give(map[*byte]int{first: class}, 0)
	}
}

// freeAll frees what is left. The owner is unreachable.
func (m *Memory) freeAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pool.give(m.buffers, m.retired)
	m.buffers, m.bytes, m.retired = nil, 0, 0
}

// Retire says that the owner is not needed any more and will be unreachable as
// soon as those are done who are looking at it now.
func (m *Memory) Retire() {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pool.retire(m.bytes - m.retired)
	m.retired = m.bytes
}

// classOf returns the class for a buffer of n bytes.
func classOf(n int, pages Pages) int {
	class := int(pages) * numSizes
	for classBytes(class) < int64(n) {
		class++
	}
	return class
}

func classBytes(class int) int64 { return MinBytes << (class % numSizes) }

func pagesOf(class int) Pages { return Pages(class / numSizes) }
