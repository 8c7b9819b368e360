// Package batch encodes and decodes the payload of a write batch: what one
// atomic write puts into the WAL and then into the memtable.
//
//	var b batch.Batch
//	b.Put(key, value)
//	b.Delete(other)
//	b.DeleteRange(lo, hi)
//	head := batch.AppendHeader(nil, firstSeq, b.Count())
//	… append head and b.Ops() to the WAL …
//
//	r, err := batch.Decode(payload)
//	for op, ok := r.Next(); ok; op, ok = r.Next() { … }
//	err = r.Err()
//
// A Batch is not safe for concurrent use.
package batch

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"sievedb/internal/codec"
	"sievedb/internal/keys"
)

// A payload is a header and then count operations. The operation with index i
// has sequence number seq+i.
//
//	 0          8       12
//	+----------+-------+------------+-- - - -
//	| seq      | count | operations
//	| u64      | u32   |
//	+----------+-------+------------+-- - - -
//
//	operation: kind u8 · key length uvarint · key
//	           and of a put also: value length uvarint · value
//	           of a range delete: end length uvarint · end
//
// Kinds are those of package keys. A range delete is of the keys from key up to
// the end, exclusive. It is above key, or empty, which is no bound: no key is
// below the empty one.
const HeaderLen = 12

// Batch collects operations.
type Batch struct {
	ops      []byte
	count    uint32
	expected int // bytes
}

// Expect has the second operation make room for sizeBytes bytes of operations: a
// batch of one has no use for it. It is no bound.
func (b *Batch) Expect(sizeBytes int) { b.expected = sizeBytes }

// Put appends a put. It copies both slices.
func (b *Batch) Put(key, value []byte) {
	b.grow(1 + 2*binary.MaxVarintLen32 + len(key) + len(value)) // once, not in steps
	b.ops = append(b.ops, byte(keys.KindPut))
	b.ops = codec.AppendLenBytes(b.ops, key)
	b.ops = codec.AppendLenBytes(b.ops, value)
	b.count++
}

// grow makes room for n bytes more. It doubles the memory, where append adds a
// quarter to what is large: a batch of a hundred puts is then made from three times
// its size, and not from seven times.
func (b *Batch) grow(n int) {
	if free := cap(b.ops) - len(b.ops); free < n {
		if b.count > 0 {
			n = max(n, cap(b.ops), b.expected-len(b.ops))
		}
		b.ops = slices.Grow(b.ops, n)
	}
}

// Delete appends a tombstone. It copies key.
func (b *Batch) Delete(key []byte) {
	b.grow(1 + binary.MaxVarintLen32 + len(key))
	b.ops = append(b.ops, byte(keys.KindDelete))
	b.ops = codec.AppendLenBytes(b.ops, key)
	b.count++
}

// DeleteRange appends a range tombstone of the keys from lo up to hi, exclusive;
// a nil hi is no bound. It copies both slices. Requires: hi is nil or above lo.
func (b *Batch) DeleteRange(lo, hi []byte) {
	b.grow(1 + 2*binary.MaxVarintLen32 + len(lo) + len(hi))
	b.ops = append(b.ops, byte(keys.KindRangeDelete))
	b.ops = codec.AppendLenBytes(b.ops, lo)
	b.ops = codec.AppendLenBytes(b.ops, hi)
	b.count++
}

// Count returns the number of operations.
func (b *Batch) Count() uint32 { return b.count }

// Ops returns the encoded operations, which belong to the batch.
func (b *Batch) Ops() []byte { return b.ops }

// Reset empties the batch and keeps its memory.
func (b *Batch) Reset() { b.ops, b.count = b.ops[:0], 0 }

// AppendHeader appends the header of a payload to dst.
func AppendHeader(dst []byte, seq keys.SeqNum, count uint32) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, uint64(seq))
	return binary.LittleEndian.AppendUint32(dst, count)
}

// Op is one operation; its slices alias the payload. The value of a range
// delete is its end, nil if it has none.
type Op struct {
	Key, Value []byte
	Trailer    keys.Trailer
}

// Reader walks over the operations of a payload.
type Reader struct {
	r     codec.Reader
	seq   keys.SeqNum
	count uint32
	next  uint32
}

// Decode returns a Reader of a payload. The error is a *corrupt.Error with the
// offset in the payload.
func Decode(payload []byte) (*Reader, error) {
	c := codec.NewReader(payload)
	r := &Reader{seq: keys.SeqNum(c.Uint64("sequence number")), count: c.Uint32("count")}
	if c.Err() == nil && (r.seq == 0 || r.seq > keys.MaxSeqNum-keys.SeqNum(r.count)) {
		c.Fail("sequence number", "1 to 2^56-1", uint64(r.seq))
	}
	r.r = *c
	return r, c.Err()
}

// Ops returns a Reader of encoded operations, the first of which has sequence
// number seq.
func Ops(ops []byte, seq keys.SeqNum, count uint32) Reader {
	return Reader{r: *codec.NewReader(ops), seq: seq, count: count}
}

// Count returns the number of operations that the header promises.
func (r *Reader) Count() uint32 { return r.count }

// Seq returns the sequence number of the first operation.
func (r *Reader) Seq() keys.SeqNum { return r.seq }

// Next returns the next operation, or false at the end or at damage.
func (r *Reader) Next() (op Op, ok bool) {
	if r.next == r.count {
		if left := r.r.Len(); left > 0 {
			r.r.Fail("end of the batch", fmt.Sprintf("%d operations", r.count), fmt.Sprintf("%d bytes more", left))
		}
		return op, false
	}
	kind := keys.Kind(r.r.Uint8("kind"))
	if r.r.Err() == nil && !kind.Point() && kind != keys.KindRangeDelete {
		r.r.Fail("kind", "put, delete or range delete", kind)
	}
	op.Key = r.r.LenBytes("key")
	switch kind {
	case keys.KindPut:
		op.Value = r.r.LenBytes("value")
	case keys.KindRangeDelete:
		if op.Value = r.r.LenBytes("end of the range"); len(op.Value) == 0 {
			op.Value = nil
		}
		if op.Value != nil && bytes.Compare(op.Key, op.Value) >= 0 {
			r.r.Fail("end of the range", fmt.Sprintf("above %.64q, or empty", op.Key), fmt.Sprintf("%.64q", op.Value))
		}
	}
	op.Trailer = keys.MakeTrailer(r.seq+keys.SeqNum(r.next), kind)
	r.next++
	return op, r.r.Err() == nil
}

// Err returns the first damage, a *corrupt.Error, or nil.
func (r *Reader) Err() error { return r.r.Err() }
