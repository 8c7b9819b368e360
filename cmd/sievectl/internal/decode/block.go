package decode

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/golang/snappy"

	"sievedb/internal/codec"
	"sievedb/internal/corrupt"
	"sievedb/internal/keys"
	"sievedb/sstable"
)

// Kinds of frames, the high half of the type byte.
const (
	kindData       = 0
	kindIndex      = 1
	kindFilter     = 2
	kindProperties = 3
	kindRangeDels  = 4
)

const (
	frameTailLen   = 5
	maxSnappyRatio = 22 // of a decoded block to its encoding
	blockTailLen   = 8
)

// frame is a frame whose checksum is right.
type frame struct {
	kind       uint8
	compressed bool
	sum        uint32
	payload    []byte // decoded
}

// openFrame decodes a frame. Offsets in errors are within b.
func openFrame(b []byte) (f frame, err error) {
	n := len(b) - frameTailLen
	if n < 0 {
		return f, corrupt.At(0, "frame", fmt.Sprintf("at least %d bytes", frameTailLen), len(b))
	}
	typ := b[n]
	f.kind, f.sum, f.payload = typ>>4, binary.LittleEndian.Uint32(b[n+1:]), b[:n]
	if got := codec.ChecksumOf(typ, f.payload); got != f.sum {
		return f, corrupt.At(int64(n+1), "checksum", f.sum, got)
	}
	switch typ & 0xf {
	case byte(sstable.NoCompression):
		return f, nil
	case byte(sstable.SnappyCompression):
	default:
		return f, corrupt.At(int64(n), "compression", "none or snappy", typ&0xf)
	}
	f.compressed = true
	if size, err := snappy.DecodedLen(f.payload); err != nil || size/maxSnappyRatio > n {
		return f, corrupt.At(0, "snappy length", fmt.Sprintf("at most %d × %d", maxSnappyRatio, n), size)
	}
	if f.payload, err = snappy.Decode(nil, f.payload); err != nil {
		return f, corrupt.At(0, "snappy block", "decodable", err)
	}
	return f, nil
}

// Entry is one entry of a table. Its slices belong to whoever asked for the
// block.
type Entry struct {
	keys.InternalKey
	Value []byte
}

// decodeBlock decodes the payload of a data block. Offsets in errors are
// within it.
func decodeBlock(p []byte) ([]Entry, error) {
	tail := len(p) - blockTailLen
	if tail < 0 {
		return nil, corrupt.At(0, "data block", fmt.Sprintf("at least %d bytes", blockTailLen), len(p))
	}
	entriesLen := uint64(binary.LittleEndian.Uint32(p[tail:]))
	prefixLen := uint64(binary.LittleEndian.Uint16(p[tail+4:]))
	n := uint64(binary.LittleEndian.Uint16(p[tail+6:]))
	if n == 0 || entriesLen+prefixLen+3*n != uint64(tail) {
		return nil, corrupt.At(int64(tail), "sections of the data block", fmt.Sprintf("%d bytes", tail),
			fmt.Sprintf("%d + %d + 3 × %d", entriesLen, prefixLen, n))
	}
	prefix := p[entriesLen : entriesLen+prefixLen]
	offsets := p[tail-2*int(n) : tail]
	entries := make([]Entry, n)
	for i := range entries {
		start, end := uint64(binary.LittleEndian.Uint16(offsets[2*i:])), entriesLen
		if i+1 < len(entries) {
			end = uint64(binary.LittleEndian.Uint16(offsets[2*i+2:]))
		}
		if i == 0 && start != 0 || start >= end || end > entriesLen {
			return nil, corrupt.At(int64(tail-2*int(n)+2*i), "entry offset", "ascending from 0", start)
		}
		r := codec.NewReader(p[start:end])
		suffixLen := r.Uvarint("suffix length")
		trailer := keys.Trailer(r.Uvarint("trailer"))
		if r.Err() == nil && suffixLen > uint64(r.Len()) {
			r.Fail("suffix", fmt.Sprintf("%d bytes", suffixLen), r.Len())
		}
		suffix := r.Bytes(int(suffixLen), "suffix")
		if r.Err() != nil {
			return nil, corrupt.In(r.Err(), "", int64(start))
		}
		entries[i] = Entry{keys.InternalKey{UserKey: concat(prefix, suffix), Trailer: trailer}, r.Bytes(r.Len(), "value")}
		if i > 0 && keys.Compare(entries[i-1].InternalKey, entries[i].InternalKey) >= 0 {
			return nil, corrupt.At(int64(start), "entry order", "after "+entries[i-1].String(), entries[i].String())
		}
	}
	return entries, nil
}

// concat is slices.Concat, but never nil: the empty key is a key.
func concat(a, b []byte) []byte { return append(append(make([]byte, 0, len(a)+len(b)), a...), b...) }

// Block says where the frame of a data block lies.
type Block struct {
	Offset, Length uint64
	Sum            uint32 // of the frame, as the index has it
	Separator      []byte // the block's user keys go up to it; nil if found without the index
}

// End returns where the frame ends.
func (b *Block) End() uint64 { return b.Offset + b.Length }

const indexHeaderLen = 12

// decodeIndex decodes the payload of an index whose data blocks end at dataEnd.
func decodeIndex(p []byte, dataEnd uint64) ([]Block, error) {
	r := codec.NewReader(p)
	n, prefixLen, sepLen := uint64(r.Uint32("blocks")), uint64(r.Uint32("prefix")), uint64(r.Uint32("separators"))
	if r.Err() == nil && indexHeaderLen+prefixLen+12*n+sepLen != uint64(len(p)) {
		r.Fail("sections of the index", fmt.Sprintf("%d bytes", len(p)), fmt.Sprintf("%d + %d + 12 × %d + %d", indexHeaderLen, prefixLen, n, sepLen))
	}
	if r.Err() != nil {
		return nil, r.Err()
	}
	prefix := r.Bytes(int(prefixLen), "prefix")
	lengths := codec.NewReader(r.Bytes(4*int(n), "lengths"))
	sums := codec.NewReader(r.Bytes(4*int(n), "checksums"))
	ends := codec.NewReader(r.Bytes(4*int(n), "separator ends"))
	separators := r.Bytes(int(sepLen), "separators")
	blocks := make([]Block, n)
	at, sepAt := uint64(0), uint64(0)
	for i := range blocks {
		length, end := uint64(lengths.Uint32("length")), uint64(ends.Uint32("separator end"))
		if end < sepAt || end > sepLen || length > dataEnd-at {
			return nil, corrupt.At(0, "index", fmt.Sprintf("blocks up to %d, separators up to %d", dataEnd, sepLen),
				fmt.Sprintf("block %d: %d bytes at %d, separator %d to %d", i, length, at, sepAt, end))
		}
		blocks[i] = Block{Offset: at, Length: length, Sum: sums.Uint32("checksum"), Separator: concat(prefix, separators[sepAt:end])}
		if i > 0 && bytes.Compare(blocks[i-1].Separator, blocks[i].Separator) > 0 {
			return nil, corrupt.At(0, "separator order", "ascending", Key(blocks[i].Separator))
		}
		at, sepAt = at+length, end
	}
	if at != dataEnd {
		return nil, corrupt.At(0, "end of the data blocks", dataEnd, at)
	}
	return blocks, nil
}
