package block

import (
	"encoding/binary"
	"math/bits"

	"sievedb/internal/keys"
)

// Builder collects the entries of one data block; Reset comes first. The prefix that they
// share is known only at the end, so it keeps whole keys and encodes in one
// pass; the copy costs less than encoding again each time the prefix shrinks.
// Its buffers are reused from block to block.
type Builder struct {
	target  int      // block size in bytes
	raw     []byte   // user key and value of each entry, one after the other
	last    []byte   // the value of the entry that filled the block: the caller's
	entries []rawKey // their places in raw
	tags    []byte
	starts  []int // scratch of Finish

	prefixLen int // what all user keys so far have in common
	fullBytes int // upper bound of the entries' bytes before prefixes are stripped
}

type rawKey struct {
	trailer       keys.Trailer
	keyOff, keyLn int
	valueLen      int // in raw
}

// keepBufferBytes bounds what a reused buffer may hold on to after a block
// with a huge value.
const keepBufferBytes = 1 << 20

func uvarintLen(x uint64) int { return (bits.Len64(x|1) + 6) / 7 }

// Empty reports whether nothing was added since Reset or Finish.
func (b *Builder) Empty() bool { return len(b.entries) == 0 }

// sharedWith returns the prefix length if userKey came to the block.
func (b *Builder) sharedWith(userKey []byte) int {
	if b.Empty() {
		return min(len(userKey), maxPrefixLen)
	}
	first := b.entries[0]
	return keys.CommonPrefixLen(b.raw[first.keyOff:first.keyOff+b.prefixLen], userKey)
}

// sizeWith bounds the block's size without its prefix, if that were prefixLen.
func (b *Builder) sizeWith(prefixLen int) int {
	n := len(b.entries)
	return b.fullBytes - n*prefixLen + 3*n + blockTailLen
}

// Full reports whether the block must be finished before userKey is added. It
// looks at the prefix as it would be then: one odd key can undo the saving of
// all others and push offsets past their 16 bits.
func (b *Builder) Full(userKey []byte) bool {
	return !b.Empty() && b.sizeWith(b.sharedWith(userKey)) >= b.target
}

// Add appends an entry and reports whether the block is full now, whatever comes
// next. It copies userKey, and value unless the block is full: then Finish comes
// next, while value is still what it is. Requires: the internal key is greater
// than the last one, and !Full(userKey).
func (b *Builder) Add(userKey []byte, trailer keys.Trailer, value []byte, tag byte) (full bool) {
	b.prefixLen = b.sharedWith(userKey)
	e := rawKey{trailer: trailer, keyOff: len(b.raw), keyLn: len(userKey)}
	b.raw = append(b.raw, userKey...)
	b.entries = append(b.entries, e)
	b.tags = append(b.tags, tag)
	b.fullBytes += uvarintLen(uint64(e.keyLn)) + uvarintLen(uint64(trailer)) + e.keyLn + len(value)
	if b.Size() >= b.target { // a key that shares less of the prefix makes it only larger
		b.last = value
		return true
	}
	b.raw = append(b.raw, value...)
	b.entries[len(b.entries)-1].valueLen = len(value)
	return false
}

// LastKey returns the user key that was added last. It aliases the builder.
func (b *Builder) LastKey() []byte {
	e := b.entries[len(b.entries)-1]
	return b.raw[e.keyOff : e.keyOff+e.keyLn]
}

// Finish appends the encoded block to dst and empties the builder.
func (b *Builder) Finish(dst []byte) []byte {
	base := len(dst)
	b.starts = b.starts[:0]
	for _, e := range b.entries {
		b.starts = append(b.starts, len(dst)-base)
		keyEnd := e.keyOff + e.keyLn
		dst = binary.AppendUvarint(dst, uint64(e.keyLn-b.prefixLen))
		dst = binary.AppendUvarint(dst, uint64(e.trailer))
		dst = append(dst, b.raw[e.keyOff+b.prefixLen:keyEnd+e.valueLen]...)
	}
	dst = append(dst, b.last...)
	entriesLen := len(dst) - base
	first := b.entries[0].keyOff
	dst = append(dst, b.raw[first:first+b.prefixLen]...)
	dst = append(dst, b.tags...)
	for _, s := range b.starts {
		dst = binary.LittleEndian.AppendUint16(dst, uint16(s))
	}
	dst = binary.LittleEndian.AppendUint32(dst, uint32(entriesLen))
	dst = binary.LittleEndian.AppendUint16(dst, uint16(b.prefixLen))
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(b.entries)))
	b.Reset(b.target)
	return dst
}

// Size bounds the block's size in bytes, less its prefix, if it were finished
// now.
func (b *Builder) Size() int { return b.sizeWith(b.prefixLen) }

// Reset empties the builder and sets the block size in bytes, at most
// MaxSizeBytes. It lets go of a buffer that grew out of proportion.
func (b *Builder) Reset(target int) {
	b.target = target
	if cap(b.raw) > keepBufferBytes {
		b.raw = nil
	}
	b.raw = b.raw[:0]
	b.entries = b.entries[:0]
	b.tags = b.tags[:0]
	b.prefixLen, b.fullBytes, b.last = 0, 0, nil
}
