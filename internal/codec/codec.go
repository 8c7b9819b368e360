// Package codec is the bounds-checked decoding and the checksum that every
// format of the store shares. Encoders use encoding/binary's Append functions
// directly; decoders read straight down through a Reader, which remembers its
// first error:
//
//	r := codec.NewReader(buf)
//	n := r.Uvarint("entry count")
//	key := r.Bytes(int(r.Uint16("key length")), "key")
//	if err := r.Err(); err != nil { … } // a *corrupt.Error with the offset
//
// Integers are little-endian. Nothing is allocated on the strength of a length
// that was read. A Reader is not safe for concurrent use.
package codec

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"sievedb/internal/corrupt"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum returns the masked CRC-32C over the type byte and then the parts.
// It is masked (rotated and offset, as LevelDB does) because a CRC over bytes
// that themselves hold CRCs is weak.
func Checksum(typ byte, parts ...[]byte) uint32 {
	c := crcOfByte(typ)
	for _, p := range parts {
		c = crc32.Update(c, castagnoli, p)
	}
	return mask(c)
}

// ChecksumOf is Checksum of one part, without the slice of parts.
func ChecksumOf(typ byte, p []byte) uint32 {
	return mask(crc32.Update(crcOfByte(typ), castagnoli, p))
}

// crcOfByte is the CRC-32C of one byte. A slice of one byte would escape to
// the heap on its way through package crc32.
func crcOfByte(b byte) uint32 {
	return ^(castagnoli[0xff^b] ^ 0x00ffffff)
}

func mask(c uint32) uint32 { return (c>>15 | c<<17) + 0xa282ead8 }

// Reader decodes a buffer from front to back. After the first failure every
// call returns a zero value and Err tells what was wrong and where.
type Reader struct {
	buf []byte
	off int
	err error
}

// NewReader returns a Reader over buf, which it keeps and never writes.
func NewReader(buf []byte) *Reader { return &Reader{buf: buf} }

// Err returns the first failure, a *corrupt.Error, or nil.
func (r *Reader) Err() error { return r.err }

// Offset returns the offset of the next byte in the buffer.
func (r *Reader) Offset() int { return r.off }

// Len returns the number of bytes that are left.
func (r *Reader) Len() int { return len(r.buf) - r.off }

// Fail records a failure at the current offset unless there was one before.
func (r *Reader) Fail(what string, want, got any) {
	if r.err == nil {
		r.err = corrupt.At(int64(r.off), what, want, got)
	}
}

// Bytes returns the next n bytes; they alias the buffer.
func (r *Reader) Bytes(n int, what string) []byte {
	if r.err != nil {
		return nil
	}
	if n < 0 || n > r.Len() {
		r.Fail(what, fmt.Sprintf("%d bytes", n), fmt.Sprintf("%d left", r.Len()))
		return nil
	}
	b := r.buf[r.off : r.off+n : r.off+n]
	r.off += n
	return b
}

// Uint8 reads one byte.
func (r *Reader) Uint8(what string) uint8 {
	if b := r.Bytes(1, what); b != nil {
		return b[0]
	}
	return 0
}

// Uint16 reads two bytes.
func (r *Reader) Uint16(what string) uint16 {
	if b := r.Bytes(2, what); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

// Uint32 reads four bytes.
func (r *Reader) Uint32(what string) uint32 {
	if b := r.Bytes(4, what); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

// Uint64 reads eight bytes.
func (r *Reader) Uint64(what string) uint64 {
	if b := r.Bytes(8, what); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// Uvarint reads an unsigned varint of at most 64 bits.
func (r *Reader) Uvarint(what string) uint64 {
	if r.err != nil {
		return 0
	}
	v, n := binary.Uvarint(r.buf[r.off:])
	if n <= 0 {
		r.Fail(what, "a varint of at most 64 bits", fmt.Sprintf("%d bytes left", r.Len()))
		return 0
	}
	r.off += n
	return v
}

// LenBytes reads a varint length and that many bytes, which alias the buffer.
func (r *Reader) LenBytes(what string) []byte {
	n := r.Uvarint(what)
	if r.err != nil {
		return nil
	}
	if n > uint64(r.Len()) {
		r.Fail(what, fmt.Sprintf("%d bytes", n), fmt.Sprintf("%d left", r.Len()))
		return nil
	}
	return r.Bytes(int(n), what)
}

// AppendLenBytes appends a varint length and the bytes.
func AppendLenBytes(dst, p []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(p))), p...)
}
