package filter

import (
	"encoding/binary"
	"fmt"
	mathbits "math/bits"
	"slices"
	"sync"

	"sievedb/internal/corrupt"
)

// hashesPerChunk makes a chunk 128 KiB: large enough to make the pool cheap,
// small enough not to matter for a table of few keys.
const hashesPerChunk = 16_384

type chunk [hashesPerChunk]uint64

// chunkPool recycles scratch memory between tables: the first touch of a fresh
// page costs more than all of the hashing on it.
var chunkPool = sync.Pool{New: func() any { return new(chunk) }}

// Info describes a finished filter.
type Info struct {
	Kind      Kind
	K         int    // probes per hash
	Blocks    uint64 // of 64 bytes
	Keys      uint64 // hashes, equal neighbours counted once
	Millibits uint32 // thousandths of a bit per key, after rounding up to whole blocks

	// Rate is the probability that a hash that was not added answers "maybe",
	// computed from the bits as they are: the mean over the blocks of
	// (ones/512)^K. It is 0 for no keys.
	Rate float64
}

// Builder collects the hashes of one table and builds its filter when their
// exact number is known. It is for one goroutine at a time.
type Builder struct {
	seed      uint64
	millibits uint32
	xor       uint64 // of all hashes, to notice scratch memory that changed
	last      uint64 // the hash that was added last, if keys > 0
	keys      uint64
	next      int      // the free place in the last chunk
	chunks    []*chunk // all but the last are full
}

// NewBuilder returns a Builder of filters with at least millibits thousandths
// of a bit per key, and with the seed, which is SeedFor the table's file
// number. Finish reports a size that ValidateMillibits refuses.
func NewBuilder(millibits uint32, seed uint64) *Builder {
	return &Builder{millibits: millibits, seed: seed}
}

// Reset forgets all hashes and prepares b for another table.
func (b *Builder) Reset(millibits uint32, seed uint64) {
	b.Release()
	b.millibits, b.seed = millibits, seed
}

// Resize sets another size, in thousandths of a bit per key, for the hashes
// that were added and those to come: it may depend on how many they are.
func (b *Builder) Resize(millibits uint32) { b.millibits = millibits }

// Release gives the scratch memory back for other builders and forgets all
// hashes. A builder that is not released is garbage like any other.
func (b *Builder) Release() {
	for i, c := range b.chunks {
		chunkPool.Put(c)
		b.chunks[i] = nil
	}
	*b = Builder{seed: b.seed, millibits: b.millibits, chunks: b.chunks[:0]}
}

// Add adds the Hash of a user key. Entries of a table are sorted, so that the
// versions of one user key are neighbours: a hash equal to the one before is
// not counted again. Every point entry is added, tombstones included: a
// tombstone that its filter denies lets the older value below it through.
func (b *Builder) Add(h uint64) {
	if h == b.last && b.keys > 0 {
		return
	}
	if len(b.chunks) == 0 || b.next == hashesPerChunk {
		b.chunks = append(b.chunks, chunkPool.Get().(*chunk))
		b.next = 0
	}
	b.chunks[len(b.chunks)-1][b.next] = h
	b.next++
	b.keys++
	b.last = h
	b.xor ^= h
}

// Keys returns the number of hashes, equal neighbours counted once.
func (b *Builder) Keys() uint64 { return b.keys }

// ScratchBytes returns the memory that b holds for hashes.
func (b *Builder) ScratchBytes() int { return len(b.chunks) * hashesPerChunk * 8 }

// hashes yields the chunks' hashes in the order in which they were added.
func (b *Builder) hashes(yield func([]uint64) bool) {
	for i, c := range b.chunks {
		n := hashesPerChunk
		if i == len(b.chunks)-1 {
			n = b.next
		}
		if !yield(c[:n]) {
			return
		}
	}
}

// Finish appends the payload of the filter of all hashes to dst, which the
// caller gets back, grown, as out. The filter is sized from the exact number
// of hashes. b keeps its hashes, for Verify, until Reset or Release. On error
// out is dst.
func (b *Builder) Finish(dst []byte) (out []byte, info Info, err error) {
	if err := ValidateMillibits(b.millibits); err != nil {
		return dst, Info{}, err
	}
	nblocks, err := blocksFor(b.keys, b.millibits)
	if err != nil {
		return dst, Info{}, err
	}
	t := trailer{kind: KindBlocked, nblocks: nblocks, nkeys: b.keys, seed: b.seed}
	actual := actualMillibits(b.keys, nblocks)
	if b.keys > 0 {
		t.k = probesFor(actual)
	}
	size := int(nblocks) * blockBytes
	out = slices.Grow(dst, size+trailerBytes)
	field := out[len(dst) : len(dst)+size]
	clear(field)
	var xor uint64
	for hashes := range b.hashes {
		xor ^= fill(field, hashes, t)
	}
	if xor != b.xor {
		return dst, Info{}, fmt.Errorf("filter: hashes of %d keys changed in memory: xor %#x became %#x", b.keys, b.xor, xor)
	}
	out = t.append(out[:len(dst)+size])
	return out, Info{
		Kind: KindBlocked, K: int(t.k), Blocks: uint64(nblocks), Keys: b.keys,
		Millibits: actual, Rate: realisedRate(field, t.k),
	}, nil
}

// fill sets the bits of hashes and returns their exclusive or. Hashes do not
// wait for one another, so that their cache misses overlap.
func fill(field []byte, hashes []uint64, t trailer) (xor uint64) {
	k, nblocks := t.k, uint64(t.nblocks)
	for _, h := range hashes {
		xor ^= h
		block, y := locate(h, t.seed, nblocks)
		line := (*[blockBytes]byte)(field[block*blockBytes:])
		setAll(line, y, min(k, probesPerWord))
		if k > probesPerWord {
			setAll(line, second(y), k-probesPerWord)
		}
	}
	return xor
}

// setAll sets the bits at the first n nine-bit positions of word, from the top.
func setAll(line *[blockBytes]byte, word uint64, n uint8) {
	for ; n > 0; n-- {
		line[word>>58] |= 1 << (word >> 55 & 7)
		word <<= probeBits
	}
}

// Verify reports, as a *corrupt.Error, any hash that was added to b since the
// last Reset and that the filter in payload denies. payload is what Finish
// appended.
func (b *Builder) Verify(payload []byte) error {
	r, err := Open(payload)
	if err != nil {
		return err
	}
	if r.Keys() != b.keys {
		return corrupt.At(int64(len(payload)-trailerBytes+8), "filter keys", b.keys, r.Keys())
	}
	for hashes := range b.hashes {
		for _, h := range hashes {
			if !r.MayContain(h) {
				return corrupt.At(0, "filter answer to an added hash", "maybe", fmt.Sprintf("no to %#x", h))
			}
		}
	}
	return nil
}

// realisedRate is the mean over the blocks of field of (ones/512)^k. Blocks
// are counted by their number of ones first, so that the sum has at most 513
// terms and the same rounding everywhere.
func realisedRate(field []byte, k uint8) float64 {
	if len(field) == 0 {
		return 0
	}
	var blocksWith [blockBits + 1]uint64
	for p := field; len(p) >= blockBytes; p = p[blockBytes:] {
		blocksWith[onesIn((*[blockBytes]byte)(p))]++
	}
	sum := 0.0
	for ones, n := range blocksWith {
		if n > 0 {
			// The conversion keeps architectures with a fused multiply-add from using it.
			sum += float64(float64(n) * fillPower(ones, k))
		}
	}
	return sum / float64(len(field)/blockBytes)
}

// onesIn counts the bits that are set in a block.
func onesIn(line *[blockBytes]byte) int {
	n := 0
	for i := 0; i < blockBytes; i += 8 {
		n += mathbits.OnesCount64(binary.LittleEndian.Uint64(line[i:]))
	}
	return n
}

// fillPower is (ones/512)^k.
func fillPower(ones int, k uint8) float64 {
	p := 1.0
	for range k {
		p *= float64(ones) / blockBits
	}
	return p
}
