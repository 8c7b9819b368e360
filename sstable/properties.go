package sstable

import (
	"encoding/binary"
	"fmt"
	"math"

	"sievedb/filter"
	"sievedb/internal/codec"
	"sievedb/internal/corrupt"
	"sievedb/internal/keys"
)

// Properties: the payload of the properties block, never compressed: a list of
//
//	+-----------+----------------+-------+
//	| tag u16   | length uvarint | value |
//	+-----------+----------------+-------+
//
// with tags ascending. A number is a u64, a rate the bits of a float64, both
// little-endian; a key is its bytes. A reader skips tags that it does not
// know, unless the tag's highest bit says that the table cannot be understood
// without.

// On disk: do not renumber.
const (
	tagEntries         = 1
	tagDeletes         = 2
	tagUserKeys        = 3
	tagRawKeyBytes     = 4
	tagRawValueBytes   = 5
	tagDataBlocks      = 6
	tagDataBytes       = 7
	tagRawBlockBytes   = 8
	tagSmallestKey     = 9
	tagLargestKey      = 10
	tagSmallestSeq     = 11
	tagLargestSeq      = 12
	tagBlockSize       = 13
	tagCompression     = 14
	tagFilterKind      = 15
	tagFilterKeys      = 16
	tagFilterMillibits = 17
	tagFilterProbes    = 18
	tagFilterRate      = 19
	tagFileNum         = 20
	tagRangeDeletes    = 21
	tagMustUnderstand  = 1 << 15
)

// Properties is what a table says of itself. Its slices belong to the table
// and must not be changed. Counts, keys and sequence numbers are those of the
// entries; range tombstones, which are none, count by themselves, and say
// themselves where they are.
type Properties struct {
	FileNum keys.FileNum // under which it was written; a copy keeps it

	Entries       uint64 // puts and deletes
	Deletes       uint64 // of those, tombstones
	UserKeys      uint64 // distinct ones
	RawKeyBytes   uint64 // user keys of all entries
	RawValueBytes uint64 // values of all entries

	DataBlocks     uint64
	DataBytes      uint64 // of the data blocks in the file
	RawBlockBytes  uint64 // of the data blocks once decoded
	BlockSizeBytes uint64 // as asked for
	Compression    Compression

	SmallestKey, LargestKey []byte // user keys, both inclusive
	SmallestSeq, LargestSeq keys.SeqNum

	// RangeDeletes counts the sequence numbers of all spans. Left out if zero.
	RangeDeletes uint64

	FilterKind      filter.Kind // filter.KindNone without a filter
	FilterKeys      uint64      // hashes in the filter
	FilterMillibits uint64      // thousandths of a bit per key, as realised
	FilterProbes    uint64      // per lookup
	FilterRate      float64     // predicted false-positive rate, from the bits as written
}

func (p *Properties) append(dst []byte) []byte {
	num := func(tag uint16, v uint64) {
		dst = binary.LittleEndian.AppendUint16(dst, tag)
		dst = binary.AppendUvarint(dst, 8)
		dst = binary.LittleEndian.AppendUint64(dst, v)
	}
	key := func(tag uint16, k []byte) {
		dst = codec.AppendLenBytes(binary.LittleEndian.AppendUint16(dst, tag), k)
	}
	num(tagEntries, p.Entries)
	num(tagDeletes, p.Deletes)
	num(tagUserKeys, p.UserKeys)
	num(tagRawKeyBytes, p.RawKeyBytes)
	num(tagRawValueBytes, p.RawValueBytes)
	num(tagDataBlocks, p.DataBlocks)
	num(tagDataBytes, p.DataBytes)
	num(tagRawBlockBytes, p.RawBlockBytes)
	key(tagSmallestKey, p.SmallestKey)
	key(tagLargestKey, p.LargestKey)
	num(tagSmallestSeq, uint64(p.SmallestSeq))
	num(tagLargestSeq, uint64(p.LargestSeq))
	num(tagBlockSize, p.BlockSizeBytes)
	num(tagCompression, uint64(p.Compression))
	num(tagFilterKind, uint64(p.FilterKind))
	num(tagFilterKeys, p.FilterKeys)
	num(tagFilterMillibits, p.FilterMillibits)
	num(tagFilterProbes, p.FilterProbes)
	num(tagFilterRate, math.Float64bits(p.FilterRate))
	num(tagFileNum, uint64(p.FileNum))
	if p.RangeDeletes > 0 {
		num(tagRangeDeletes, p.RangeDeletes)
	}
	return dst
}

// readProperties decodes a payload; the result shares no memory with it.
func readProperties(payload []byte) (*Properties, error) {
	p := &Properties{}
	r := codec.NewReader(payload)
	for last := -1; r.Len() > 0 && r.Err() == nil; {
		tag := r.Uint16("property tag")
		if r.Err() == nil && int(tag) <= last {
			r.Fail("property order", fmt.Sprintf("a tag above %d", last), tag)
		}
		last = int(tag)
		at := int64(r.Offset())
		v := r.LenBytes("property value")
		if r.Err() != nil {
			break
		}
		if known, err := p.set(tag, v, at); err != nil {
			return nil, err
		} else if !known && tag&tagMustUnderstand != 0 {
			return nil, fmt.Errorf("%w: property %#x, which must be understood", ErrUnsupported, tag)
		}
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	return p, p.check()
}

// set stores one property, and reports whether the tag is known.
func (p *Properties) set(tag uint16, v []byte, at int64) (known bool, err error) {
	switch tag {
	case tagSmallestKey, tagLargestKey:
		if len(v) > MaxUserKeyLen {
			return true, corrupt.At(at, "property key", fmt.Sprintf("at most %d bytes", MaxUserKeyLen), len(v))
		}
		k := append([]byte{}, v...)
		if tag == tagSmallestKey {
			p.SmallestKey = k
		} else {
			p.LargestKey = k
		}
		return true, nil
	}
	if tag == 0 || tag > tagRangeDeletes {
		return false, nil
	}
	if len(v) != 8 {
		return true, corrupt.At(at, "property length", "8 bytes", len(v))
	}
	n := binary.LittleEndian.Uint64(v)
	switch tag {
	case tagSmallestSeq:
		p.SmallestSeq = keys.SeqNum(n)
	case tagLargestSeq:
		p.LargestSeq = keys.SeqNum(n)
	case tagCompression:
		p.Compression = Compression(n)
	case tagFilterKind:
		p.FilterKind = filter.Kind(n)
	case tagFilterRate:
		p.FilterRate = math.Float64frombits(n)
	case tagFileNum:
		p.FileNum = keys.FileNum(n)
	default:
		*p.counter(tag) = n
	}
	return true, nil
}

// counter returns the field of a plain number. Requires: tag names one.
func (p *Properties) counter(tag uint16) *uint64 {
	return [...]*uint64{
		tagEntries: &p.Entries, tagDeletes: &p.Deletes, tagUserKeys: &p.UserKeys,
		tagRawKeyBytes: &p.RawKeyBytes, tagRawValueBytes: &p.RawValueBytes,
		tagDataBlocks: &p.DataBlocks, tagDataBytes: &p.DataBytes, tagRawBlockBytes: &p.RawBlockBytes,
		tagBlockSize: &p.BlockSizeBytes, tagFilterKeys: &p.FilterKeys,
		tagFilterMillibits: &p.FilterMillibits, tagFilterProbes: &p.FilterProbes, tagRangeDeletes: &p.RangeDeletes,
	}[tag]
}

// check refuses properties that cannot be true together. The rate of a table
// with a filter is a probability.
func (p *Properties) check() error {
	switch {
	case (p.Entries == 0) != (p.UserKeys == 0) || p.UserKeys > p.Entries || p.Deletes > p.Entries:
		return corrupt.At(0, "properties", "deletes and user keys within the entries",
			fmt.Sprintf("%d entries, %d deletes, %d user keys", p.Entries, p.Deletes, p.UserKeys))
	case p.Entries == 0 && p.RangeDeletes == 0:
		return corrupt.At(0, "properties", "entries or range tombstones", "neither")
	case string(p.SmallestKey) > string(p.LargestKey):
		return corrupt.At(0, "properties", "smallest key up to largest key", fmt.Sprintf("%q, %q", p.SmallestKey, p.LargestKey))
	case p.SmallestSeq > p.LargestSeq || p.LargestSeq > keys.MaxSeqNum:
		return corrupt.At(0, "properties", "smallest sequence number up to largest",
			fmt.Sprintf("%d, %d", p.SmallestSeq, p.LargestSeq))
	case !(p.FilterRate >= 0 && p.FilterRate <= 1):
		return corrupt.At(0, "filter rate", "0 to 1", p.FilterRate)
	}
	return nil
}
