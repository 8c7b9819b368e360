package decode

import (
	"encoding/binary"

	"sievedb/filter"
	"sievedb/internal/codec"
	"sievedb/internal/rangedel"
	"sievedb/sstable"
)

// What follows finds frames where no index says where they are: a frame has
// neither a mark nor a length. But what is in it tells its length, from its
// beginning if it is a snappy block, and from its end if it is a data block or
// a filter that is not compressed; and then the checksum tells whether it is
// one. A frame right behind the one before is looked for first, because values
// may hold copies of frames: within a frame that is whole none is found.

// scan returns the data blocks in b and, if it found the end of them, a filter,
// where that is; otherwise dataEnd is len(b).
func scan(b []byte) (blocks []Block, dataEnd int) {
	for at := 0; at < len(b); {
		start, f, end := nextFrame(b, at)
		if end == 0 {
			break
		}
		if f.kind != kindData {
			return blocks, start
		}
		blocks = append(blocks, Block{Offset: uint64(start), Length: uint64(end - start), Sum: f.sum})
		at = end
	}
	return blocks, len(b)
}

// nextFrame returns the frame at offset at, or else the first one behind it;
// end is zero if there is none.
func nextFrame(b []byte, at int) (start int, f frame, end int) {
	if f, end = compressedAt(b, at); end > 0 {
		return at, f, end
	}
	for end = at + 1; end <= len(b); end++ {
		if at == end-rawLen(b[:end]) {
			if f, err := openFrame(b[at:end]); err == nil {
				return at, f, end
			}
		}
	}
	for q := at + 1; q <= len(b); q++ {
		if start := q - rawLen(b[:q]); start < q && start > at {
			if f, err := openFrame(b[start:q]); err == nil {
				return start, f, q
			}
		}
		if f, end = compressedAt(b, q); end > 0 {
			return q, f, end
		}
	}
	return 0, frame{}, 0
}

// compressedAt returns the compressed frame that begins at offset at; end is
// zero if there is none.
func compressedAt(b []byte, at int) (f frame, end int) {
	n := snappyLen(b[at:])
	if end = at + n + frameTailLen; n == 0 || end > len(b) {
		return f, 0
	}
	f, err := openFrame(b[at:end])
	if err != nil || !f.compressed {
		return f, 0
	}
	return f, end
}

// scanRangeDels returns the range tombstones of a frame in b, which holds what
// follows the data blocks, or nil. Of several it is the last: one before it can
// only be a copy in what is left of a block.
func scanRangeDels(b []byte) (found *rangedel.Set) {
	for at := range b {
		f, end := compressedAt(b, at)
		if n := rangeDelsLen(b[at:]); end == 0 && n > 0 && n+frameTailLen <= len(b)-at {
			f, _ = openFrame(b[at : at+n+frameTailLen])
		}
		if f.kind != kindRangeDels {
			continue
		}
		if s, err := rangedel.Decode(f.payload); err == nil {
			found = s
		}
	}
	return found
}

// rangeDelsLen returns the length of the payload at the beginning of b, as
// docs/format.md has it, or zero if there is none.
func rangeDelsLen(b []byte) int {
	r := codec.NewReader(b)
	if r.Uint8("version") != 1 {
		return 0
	}
	for n := r.Uint32("count"); n > 0 && r.Err() == nil; n-- {
		r.LenBytes("boundary")
		for m := r.Uvarint("sequence numbers"); m > 0 && r.Err() == nil; m-- {
			r.Uvarint("sequence number")
		}
	}
	if r.Err() != nil {
		return 0
	}
	return r.Offset()
}

// rawLen returns the length of the frame at the end of b, not compressed, that
// its last bytes promise; zero if they promise none that fits.
func rawLen(b []byte) int {
	n := len(b) - frameTailLen
	if n < blockTailLen {
		return 0
	}
	length := uint64(frameTailLen)
	switch b[n] {
	case kindData<<4 | byte(sstable.NoCompression):
		tail := b[n-blockTailLen : n]
		entries := uint64(binary.LittleEndian.Uint16(tail[6:]))
		if entries == 0 {
			return 0
		}
		length += uint64(binary.LittleEndian.Uint32(tail)) + uint64(binary.LittleEndian.Uint16(tail[4:])) + 3*entries + blockTailLen
	case kindFilter<<4 | byte(sstable.NoCompression):
		promised := filter.PayloadBytes(b[:n])
		if promised == 0 {
			return 0
		}
		length += promised
	default:
		return 0
	}
	if length > uint64(len(b)) {
		return 0
	}
	return int(length)
}

// snappyLen returns the length of the snappy block at the beginning of b, of
// which every element makes sense, or zero if there is none.
func snappyLen(b []byte) int {
	want, i := binary.Uvarint(b)
	if i <= 0 || want == 0 || want/maxSnappyRatio > uint64(len(b)) {
		return 0
	}
	for made := uint64(0); made < want; {
		if i >= len(b) {
			return 0
		}
		tag := b[i]
		n, extra := uint64(tag>>2)+1, 0
		switch tag & 3 {
		case 0: // a literal; long ones have their length in up to 4 bytes more
			extra = max(int(tag>>2)-59, 0)
		case 1:
			n, extra = uint64(tag>>2&7)+4, 1
		case 2:
			extra = 2
		case 3:
			extra = 4
		}
		if i += 1 + extra; i > len(b) {
			return 0
		}
		var word uint64
		for j := 1; j <= extra; j++ {
			word = word<<8 | uint64(b[i-j])
		}
		switch tag & 3 {
		case 0:
			if extra > 0 {
				n = word + 1
			}
			if n > uint64(len(b)-i) {
				return 0
			}
			i += int(n)
		default:
			if tag&3 == 1 {
				word |= uint64(tag&0xe0) << 3
			}
			if word == 0 || word > made {
				return 0
			}
		}
		made += n
		if made > want {
			return 0
		}
	}
	return i
}
