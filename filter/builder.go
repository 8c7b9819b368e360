package filter

import (
	"fmt"
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
	Kind      Kind   // as built, which may be another than was asked for
	K         int    // probes per hash
	Bytes     uint64 // of the payload
	Keys      uint64 // hashes, equal neighbours counted once
	Millibits uint32 // thousandths of a bit per key, after rounding up to whole units

	// Rate is the probability that a hash that was not added answers "maybe",
	// computed from the bits as they are: the mean over the blocks of
	// (ones/512)^K, for KindStandard (ones/bits)^K, for KindFuse 2^-8. It is 0
	// for no keys.
	Rate float64
}

// Builder collects the hashes of one table, 8 bytes for each, and builds its
// filter when their exact number is known; for a KindFuse that takes another 24
// bytes for each meanwhile. It is for one goroutine at a time.
type Builder struct {
	seed      uint64
	millibits uint32
	kind      Kind
	xor       uint64 // of all hashes, to notice scratch memory that changed
	last      uint64 // the hash that was added last, if keys > 0
	keys      uint64
	next      int      // the free place in the last chunk
	chunks    []*chunk // all but the last are full
}

// NewBuilder returns a Builder of blocked filters with at least millibits
// thousandths of a bit per key, and with the seed, which is SeedFor the table's
// file number. Finish reports a size that ValidateMillibits refuses.
func NewBuilder(millibits uint32, seed uint64) *Builder {
	return &Builder{kind: KindBlocked, millibits: millibits, seed: seed}
}

// Choose sets another kind and size, in thousandths of a bit per key, for the
// hashes that were added and those to come: both may depend on how many they
// are. The size of a KindFuse is its own: millibits is that of the blocked
// filter which takes its place with fewer than MinFuseKeys, with too many, or if
// its construction fails.
func (b *Builder) Choose(kind Kind, millibits uint32) { b.kind, b.millibits = kind, millibits }

// Release gives the scratch memory back for other builders and forgets all
// hashes. A builder that is not released is garbage like any other.
func (b *Builder) Release() {
	for i, c := range b.chunks {
		chunkPool.Put(c)
		b.chunks[i] = nil
	}
	*b = Builder{kind: b.kind, seed: b.seed, millibits: b.millibits, chunks: b.chunks[:0]}
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
// of hashes. b keeps its hashes, for Verify, until Release. On error
// out is dst.
func (b *Builder) Finish(dst []byte) (out []byte, info Info, err error) {
	if err := ValidateMillibits(b.millibits); err != nil {
		return dst, Info{}, err
	}
	t, err := b.plan()
	if err != nil {
		return dst, Info{}, err
	}
	size := int(t.fieldBytes())
	out = slices.Grow(dst, size+trailerBytes)
	field := out[len(dst) : len(dst)+size]
	clear(field)
	var xor uint64
	if t.kind == KindFuse {
		var ok bool
		if t.seed, xor, ok = buildFuse(field, b.hashes, t); !ok {
			blocked := *b
			blocked.kind = KindBlocked
			return blocked.Finish(dst)
		}
	} else {
		for hashes := range b.hashes {
			xor ^= t.fill(field, hashes)
		}
	}
	if xor != b.xor {
		return dst, Info{}, fmt.Errorf("filter: hashes of %d keys changed in memory: xor %#x became %#x", b.keys, b.xor, xor)
	}
	return t.append(out[:len(dst)+size]), Info{
		Kind: t.kind, K: int(t.k), Bytes: uint64(size) + trailerBytes, Keys: b.keys,
		Millibits: t.actualMillibits(), Rate: t.kind.realisedRate(field, t.k),
	}, nil
}

// plan returns the trailer of the filter that Finish should build.
func (b *Builder) plan() (t trailer, err error) {
	t = trailer{kind: b.kind, nkeys: b.keys, seed: b.seed}
	switch {
	case t.kind == KindFuse && FuseBytes(b.keys) > 0:
		t.k = fuseProbes
		t.units, t.log2 = fuseSize(b.keys)
		return t, nil
	case t.kind == KindFuse:
		t.kind = KindBlocked
	case t.kind != KindBlocked && t.kind != KindStandard:
		return t, fmt.Errorf("filter: %s cannot be built", t.kind)
	}
	t.log2 = limits[t.kind].minLog2
	if t.units, err = unitsFor(b.keys, b.millibits, t.log2); err != nil || b.keys == 0 {
		return t, err
	}
	if t.k = probesFor(t.actualMillibits()); t.kind == KindStandard {
		t.k = standardProbesFor(t.actualMillibits())
	}
	return t, nil
}

// Verify reports, as a *corrupt.Error, any hash that was added to b since the
// last Release and that the filter in payload denies. payload is what Finish
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
