package rangedel

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"sievedb/internal/codec"
	"sievedb/internal/keys"
)

// A range-tombstone payload is the content of a table's range-tombstone block;
// the checksum is that of the block around it. A table without range
// tombstones has no such block.
//
//	+0  +1          +5
//	|   |           |
//	| v | count u32 | boundary | boundary | … |
//	v: version, 1
//	count: boundaries, at least 1
//
// The boundaries ascend strictly. From each one on, up to the next, the
// sequence numbers in it apply:
//
//	| key length uvarint | key | numbers uvarint | newest uvarint | step uvarint | step uvarint | … |
//	numbers: how many sequence numbers follow, newest first
//	newest:  the first of them, 1 to 2^56 - 1
//	step:    by how much the next is smaller, at least 1
//
// Two neighbours never have the same sequence numbers, and the first boundary
// has some. Those of the last, if it has any, apply without end. Keys are whole: a table has few of them, compression
// of the block takes care of what they share, and what is decoded is never
// larger than a small multiple of what was read.
const (
	formatVersion = 1
	headerLen     = 5
	// minBoundaryLen is the length of the shortest boundary: an empty key and
	// no sequence number.
	minBoundaryLen = 2
)

// AppendTo appends the payload of s to dst. Requires: s is not nil.
func (s *Set) AppendTo(dst []byte) []byte {
	dst = append(dst, formatVersion)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(s.Len()))
	for i := range s.Len() {
		dst = codec.AppendLenBytes(dst, s.boundary(i))
		seqs := s.list(i)
		dst = binary.AppendUvarint(dst, uint64(len(seqs)))
		for j, seq := range seqs {
			if j > 0 {
				seq = seqs[j-1] - seq
			}
			dst = binary.AppendUvarint(dst, uint64(seq))
		}
	}
	return dst
}

// Decode returns the set that payload holds. It copies what it needs. The error
// is a *corrupt.Error with the offset in the payload.
func Decode(payload []byte) (*Set, error) {
	r := codec.NewReader(payload)
	if v := r.Uint8("range tombstone version"); v != formatVersion {
		r.Fail("range tombstone version", formatVersion, v)
	}
	count := r.Uint32("range tombstone boundaries")
	if most := r.Len() / minBoundaryLen; count == 0 || uint64(count) > uint64(most) {
		r.Fail("range tombstone boundaries", fmt.Sprintf("1 to %d", most), count)
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	s := &Set{keyEnds: make([]int, 0, count), seqEnds: make([]int, 0, count)}
	var seqs []keys.SeqNum
	for range count {
		key := r.LenBytes("range tombstone boundary")
		seqs = readSeqs(r, seqs[:0])
		if r.Err() != nil {
			break
		}
		s.check(r, key, seqs)
		s.add(key, seqs)
	}
	if r.Len() > 0 {
		r.Fail("end of range tombstones", "no more bytes", fmt.Sprintf("%d left", r.Len()))
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	s.finish()
	return s, nil
}

// readSeqs appends the sequence numbers of one boundary to dst.
func readSeqs(r *codec.Reader, dst []keys.SeqNum) []keys.SeqNum {
	n := r.Uvarint("range tombstone numbers")
	if n > uint64(r.Len()) { // each takes a byte at least
		r.Fail("range tombstone numbers", fmt.Sprintf("at most %d", r.Len()), n)
	}
	most := uint64(keys.MaxSeqNum) // of what is read next
	for i := uint64(0); i < n && r.Err() == nil; i++ {
		v := r.Uvarint("range tombstone sequence number")
		if v == 0 || v > most {
			r.Fail("range tombstone sequence number", fmt.Sprintf("1 to %d", most), v)
			break
		}
		if i == 0 {
			most = v - 1
			dst = append(dst, keys.SeqNum(v))
			continue
		}
		most -= v
		dst = append(dst, dst[len(dst)-1]-keys.SeqNum(v))
	}
	return dst
}

// check fails r unless a boundary keeps the invariants of a Set.
func (s *Set) check(r *codec.Reader, key []byte, seqs []keys.SeqNum) {
	n := s.Len()
	if n > 0 && bytes.Compare(s.boundary(n-1), key) >= 0 {
		r.Fail("range tombstone boundary", fmt.Sprintf("one after %q", s.boundary(n-1)), fmt.Sprintf("%q", key))
	}
	var previous []keys.SeqNum
	if n > 0 {
		previous = s.list(n - 1)
	}
	if slices.Equal(previous, seqs) {
		r.Fail("range tombstone sequence numbers", "others than before the boundary", fmt.Sprint(seqs))
	}
}
