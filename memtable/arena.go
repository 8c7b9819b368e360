package memtable

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"sievedb/internal/offheap"
)

// ref addresses a record in the arena: the chunk's number and, in the lower
// unitBits, the position within it, in units of eight bytes. Zero is none.
type ref uint32

const (
	unitBytes     = 8
	unitBits      = 17 // 2^17 units of 8 bytes: a chunk of 1 MiB
	unitMask      = 1<<unitBits - 1
	maxChunks     = 1 << (32 - unitBits)
	maxChunkBytes = unitBytes << unitBits
	minChunkBytes = 4 << 10
	firstChunk    = 16 << 10

	// A header, the longest key and the longest value of the store, which
	// still fits an int of 32 bits.
	maxRecordBytes = recordHeader + 1<<16 + 1<<30
)

// chunk is one piece of the arena, seen as words for the atomic heads and as
// bytes for all else; no byte of a head is ever touched through bytes.
type chunk struct {
	words []atomic.Uint32
	bytes []byte
}

// newChunk returns a chunk of n bytes, a multiple of unitBytes, with arbitrary contents.
func (a *arena) newChunk(n int) chunk {
	if a.memory == nil && n >= offheap.MinBytes { // small tables, of transactions, do without
		a.memory = offheap.New(a, offheap.SmallPages)
	}
	bytes := a.memory.Alloc(n)
	return chunk{
		words: unsafe.Slice((*atomic.Uint32)(unsafe.Pointer(unsafe.SliceData(bytes))), n/4),
		bytes: bytes,
	}
}

// arena hands out memory for records and never takes any back. One writer
// allocates; readers resolve any ref that was published to them. The memory is
// freed when the arena, and so the Table that it is a part of, is unreachable.
type arena struct {
	// directory lists the chunks. A longer one replaces it before the first ref
	// into a new chunk is published.
	directory atomic.Pointer[[]chunk]
	sizeBytes atomic.Int64 // of all chunks

	// The writer's lock guards the rest.
	memory     *offheap.Memory // nil while all chunks are small
	chunkBytes int             // bound of an ordinary chunk
	hintBytes  int64           // what the arena is expected to reach
	nextBytes  int             // size of the next ordinary chunk
	current    int             // number of the chunk that is being filled
	used       int             // bytes of it that are taken
}

// init sizes the chunks for an arena that is expected to reach sizeHintBytes.
func (a *arena) init(sizeHintBytes int64) {
	a.chunkBytes, a.hintBytes = maxChunkBytes, sizeHintBytes
	for sizeHintBytes > 0 && a.chunkBytes > minChunkBytes && int64(a.chunkBytes) > sizeHintBytes/8 {
		a.chunkBytes /= 2
	}
	a.nextBytes = min(firstChunk, a.chunkBytes)
	// A first chunk that is too small for any record: none has ref zero, or that of a pivot.
	a.directory.Store(&[]chunk{a.newChunk(unitBytes)})
}

// alloc reserves n bytes for one record, with arbitrary contents.
//
// A record beyond a quarter of a chunk gets a chunk of its own, so that no
// chunk is left with more than that unused. Only position zero of such a chunk
// is addressed: it may be larger than the address bits span.
func (a *arena) alloc(n int64) (ref, error) {
	if n > maxRecordBytes {
		return 0, fmt.Errorf("%w: record of %d bytes, limit %d", ErrFull, n, maxRecordBytes)
	}
	size := (int(n) + unitBytes - 1) &^ (unitBytes - 1)
	dir := *a.directory.Load()
	switch {
	case size <= len(dir[a.current].bytes)-a.used:
	case size > a.chunkBytes/4:
		return ref(len(dir)) << unitBits, a.addChunk(size)
	default:
		for a.nextBytes < size {
			a.nextBytes *= 2
		}
		if err := a.addChunk(a.nextBytes); err != nil {
			return 0, err
		}
		a.nextBytes = min(2*a.nextBytes, a.chunkBytes)
		a.current, a.used = len(dir), 0
	}
	r := ref(a.current)<<unitBits | ref(a.used/unitBytes)
	a.used += size
	return r, nil
}

// addChunk appends a chunk of n bytes to the directory.
func (a *arena) addChunk(n int) error {
	dir := *a.directory.Load()
	if len(dir) == maxChunks {
		return fmt.Errorf("%w: %d chunks", ErrFull, len(dir))
	}
	// append may write behind the published slice, where nobody reads yet.
	dir = append(dir, a.newChunk(n))
	a.directory.Store(&dir)
	if a.sizeBytes.Add(int64(n)) > 2*a.hintBytes {
		// One batch can outgrow any expectation: then the number of chunks is
		// what runs out, not their size.
		a.chunkBytes = maxChunkBytes
	}
	return nil
}

// record returns the bytes from r to the end of its chunk.
func (a *arena) record(r ref) record {
	return record((*a.directory.Load())[r>>unitBits].bytes[(r&unitMask)*unitBytes:])
}

// head returns the head word of the user key whose first record is at first.
func (a *arena) head(first ref) *atomic.Uint32 {
	return &(*a.directory.Load())[first>>unitBits].words[(first&unitMask)*(unitBytes/4)]
}
