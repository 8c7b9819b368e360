package sstable

import (
	"encoding/binary"
	"fmt"

	"github.com/golang/snappy"

	"sievedb/internal/codec"
	"sievedb/internal/corrupt"
)

// Frame: how every block lies in the file.
//
//	  0 +--------------------+
//	    | payload  n-5 bytes |  as it is, or a snappy block
//	n-5 +--------------------+
//	    | type     u8        |  low 4 bits: Compression; high 4: block kind
//	n-4 +--------------------+
//	    | checksum u32       |  codec.ChecksumOf(type, payload)
//	  n +--------------------+
//
// The kind in the type byte keeps a handle that leads to the wrong block from
// being believed.

// Compression says how data blocks, index and range tombstones are stored.
type Compression uint8

// On disk: do not renumber.
const (
	NoCompression     Compression = 0
	SnappyCompression Compression = 1
)

// String names the compression.
func (c Compression) String() string {
	switch c {
	case NoCompression:
		return "none"
	case SnappyCompression:
		return "snappy"
	}
	return fmt.Sprintf("compression(%d)", uint8(c))
}

// blockKind is the high half of a frame's type byte. On disk: do not renumber.
type blockKind uint8

const (
	kindData       blockKind = 0
	kindIndex      blockKind = 1
	kindFilter     blockKind = 2
	kindProperties blockKind = 3
	kindRangeDels  blockKind = 4
)

func (k blockKind) String() string {
	return [...]string{"data block", "index", "filter", "properties", "range tombstones"}[min(k, kindRangeDels)]
}

const (
	frameTailLen = 5
	// maxSnappyRatio bounds how much a snappy block expands: its densest
	// element is a copy of 64 bytes in 3.
	maxSnappyRatio = 22
)

// keepBufferBytes bounds what a reused buffer may hold on to after a huge block.
const keepBufferBytes = 1 << 20

// reuse empties a buffer, or lets go of it if it grew out of proportion.
func reuse(buf []byte) []byte {
	if cap(buf) > keepBufferBytes {
		return nil
	}
	return buf[:0]
}

// sealFrame turns dst[base:], a payload, into a frame, compressed if asked for
// and if it saves at least an eighth: less is not worth the time of decoding.
// scratch is the compressor's buffer, returned for reuse.
func sealFrame(dst []byte, base int, kind blockKind, c Compression, scratch []byte) (out []byte, sum uint32, newScratch []byte) {
	used := NoCompression
	raw := len(dst) - base
	if c == SnappyCompression {
		if need := snappy.MaxEncodedLen(raw); cap(scratch) < need {
			scratch = make([]byte, need)
		}
		enc := snappy.Encode(scratch[:cap(scratch)], dst[base:])
		if len(enc) <= raw-raw/8 {
			dst = append(dst[:base], enc...)
			used = SnappyCompression
		}
	}
	typ := byte(kind)<<4 | byte(used)
	sum = codec.ChecksumOf(typ, dst[base:])
	dst = append(dst, typ)
	return binary.LittleEndian.AppendUint32(dst, sum), sum, reuse(scratch)
}

// frameSum returns the checksum that a whole frame carries.
func frameSum(frame []byte) uint32 { return binary.LittleEndian.Uint32(frame[len(frame)-4:]) }

// openFrame checks a frame against the checksum that whoever refers to it
// committed to, and returns its stored payload, which aliases frame.
func openFrame(frame []byte, kind blockKind, wantSum uint32) (payload []byte, c Compression, err error) {
	if len(frame) < frameTailLen {
		return nil, 0, corrupt.At(0, kind.String()+" length", fmt.Sprintf("at least %d", frameTailLen), len(frame))
	}
	n := len(frame) - frameTailLen
	typ, stored := frame[n], binary.LittleEndian.Uint32(frame[n+1:])
	if got := codec.ChecksumOf(typ, frame[:n]); got != stored || got != wantSum {
		want := stored
		if got == stored {
			want = wantSum // whole, but not the block that belongs here
		}
		return nil, 0, corrupt.At(int64(n+1), kind.String()+" checksum", want, got)
	}
	c = Compression(typ & 0xf)
	if blockKind(typ>>4) != kind {
		return nil, 0, corrupt.At(int64(n), "block kind", uint8(kind), typ>>4)
	}
	if c > SnappyCompression {
		return nil, 0, fmt.Errorf("%w: %s with %s", ErrUnsupported, kind, c)
	}
	return frame[:n], c, nil
}

// decodedLen returns the length of a payload once decoded, bounded by limit
// and by what snappy can expand to, so that it may be allocated.
func decodedLen(payload []byte, c Compression, limit int) (int, error) {
	n := len(payload)
	if c == SnappyCompression {
		var err error
		if n, err = snappy.DecodedLen(payload); err != nil || n/maxSnappyRatio > len(payload) {
			return 0, corrupt.At(0, "snappy length", fmt.Sprintf("at most %d × %d", maxSnappyRatio, len(payload)), n)
		}
	}
	if n > limit {
		return 0, corrupt.At(0, "decoded length", fmt.Sprintf("at most %d", limit), n)
	}
	return n, nil
}

// decodePayload decodes payload into dst. Requires: len(dst) is what
// decodedLen returned.
func decodePayload(dst, payload []byte, c Compression) error {
	if c == NoCompression {
		copy(dst, payload)
		return nil
	}
	if _, err := snappy.Decode(dst, payload); err != nil {
		return corrupt.At(0, "snappy block", "decodable", err.Error())
	}
	return nil
}
