// Package record frames opaque records of any size into checksummed chunks,
// for logs that are only ever appended to: the segments of the WAL and the
// manifest.
//
//	buf = record.Append(buf[:0], frame, payload)     // one record, ready to write
//	r := record.NewReader(file, size, start, number)
//	for {
//		payload, err := r.Next() // io.EOF, *TornError or *corrupt.Error at the end
//		…
//	}
//
// What makes the end of a log hard is to tell a torn tail (writes that never
// became durable: to be dropped in silence) from damage (writes that were
// acknowledged: never to be dropped). Each chunk therefore says how much of
// the file before it was known to be durable when it was framed: a bad chunk
// with a later good chunk that vouches for its place is damage; without one it
// is a torn tail.
//
// The functions are pure. A Reader is not safe for concurrent use.
package record

import (
	"encoding/binary"

	"sievedb/internal/codec"
)

// A log is a sequence of chunks; what precedes the first (a file header) is
// the caller's. A record is one full chunk, or a first, any number of middle
// and a last one.
//
//	 0       4        7      8        12         16            16+length
//	+-------+--------+------+--------+----------+-------------+
//	| crc   | length | type | number | unsynced | payload     |
//	| u32   | u24    | u8   | u32    | u32      | length bytes|
//	+-------+--------+------+--------+----------+-------------+
//
//	crc       masked CRC-32C over type, then bytes 4 to the end of the payload,
//	          exclusive-or with both halves of the chunk's offset in the file, so
//	          that a copy of a chunk, in a value for instance, is none elsewhere
//	length    of the payload, in bytes
//	type      1 full, 2 first, 3 middle, 4 last
//	number    low 32 bits of the file's number: bytes of a recycled file never replay
//	unsynced  bytes of the file directly before this chunk that were not known
//	          to be durable when it was framed; 2^32-1 if more, or unknown
//
// A header of zeros is no chunk, so a tail that was preallocated is an end.
const (
	// HeaderLen is the length of a chunk's header, in bytes.
	HeaderLen = 16
	// MaxPayload is the longest payload that Append puts into one chunk, in
	// bytes. Readers accept any length that the file can hold.
	MaxPayload = 1<<20 - HeaderLen
)

const (
	typeFull   = 1
	typeFirst  = 2
	typeMiddle = 3
	typeLast   = 4
)

const unsyncedUnknown = 1<<32 - 1

// Frame says where a record goes.
type Frame struct {
	Number uint32 // low 32 bits of the file's number
	Offset int64  // of the record's first byte in the file
	Synced int64  // length of the file's prefix that is known to be durable
}

// Append appends the chunks of one record, whose payload is head followed by
// body, to dst. It copies both.
func Append(dst []byte, f Frame, head, body []byte) []byte {
	left := len(head) + len(body)
	for first := true; first || left > 0; first = false {
		n := min(left, MaxPayload)
		left -= n
		typ := byte(typeMiddle)
		switch {
		case first && left == 0:
			typ = typeFull
		case first:
			typ = typeFirst
		case left == 0:
			typ = typeLast
		}
		start := len(dst)
		var hdr [HeaderLen]byte
		binary.LittleEndian.PutUint32(hdr[4:], uint32(n)|uint32(typ)<<24)
		binary.LittleEndian.PutUint32(hdr[8:], f.Number)
		binary.LittleEndian.PutUint32(hdr[12:], unsynced(f))
		dst = append(dst, hdr[:]...)
		fromHead := min(n, len(head))
		dst = append(dst, head[:fromHead]...)
		dst = append(dst, body[:n-fromHead]...)
		head, body = head[fromHead:], body[n-fromHead:]
		binary.LittleEndian.PutUint32(dst[start:], checksum(typ, dst[start+4:], f.Offset))
		f.Offset += int64(HeaderLen + n)
	}
	return dst
}

// Size returns the length in the file of a record with a payload of n bytes.
func Size(n int64) int64 {
	chunks := max(1, (n+MaxPayload-1)/MaxPayload)
	return n + chunks*HeaderLen
}

func checksum(typ byte, p []byte, offset int64) uint32 {
	return codec.ChecksumOf(typ, p) ^ uint32(offset) ^ uint32(offset>>32)
}

func unsynced(f Frame) uint32 {
	d := f.Offset - f.Synced
	if d < 0 || d >= unsyncedUnknown {
		return unsyncedUnknown
	}
	return uint32(d)
}
