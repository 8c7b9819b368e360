package manifest

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"sievedb/internal/codec"
	"sievedb/internal/corrupt"
	"sievedb/internal/keys"
)

// FormatVersion is the version of the manifest and of CURRENT that this
// package writes, and the only one that it reads.
const FormatVersion = 1

// VersionError says that a file is of another format version. It is not a
// corruption.
type VersionError struct {
	File string // base name
	Got  uint64 // the file's version
	Want uint64 // the one that this build reads
}

// Error names the file and both versions.
func (e *VersionError) Error() string {
	return fmt.Sprintf("%s has format version %d, this build reads version %d", e.File, e.Got, e.Want)
}

// A manifest is a header and then records, framed as package record says with
// the low 32 bits of the manifest's number. Each record is one edit; the first
// is a snapshot: it makes the whole state out of nothing.
//
//	 0        8         12         20         36      40
//	+--------+---------+----------+----------+-------+- - - - -
//	| magic  | version | number   | store id | crc   | records
//	| 8 byte | u32     | u64      | 16 byte  | u32   |
//	+--------+---------+----------+----------+-------+- - - - -
//
//	magic     "SieveMAN"
//	version   1; nothing behind it is interpreted if it is another
//	number    the manifest's file number
//	store id  the same in every manifest of a store
//	crc       masked CRC-32C over type byte 'M', then bytes 0 to 36
const (
	headerMagic  = "SieveMAN"
	headerLen    = 40
	headerCRCAt  = 36
	headerCRCTyp = 'M'
)

func appendHeader(dst []byte, num keys.FileNum, storeID [16]byte) []byte {
	start := len(dst)
	dst = append(dst, headerMagic...)
	dst = binary.LittleEndian.AppendUint32(dst, FormatVersion)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(num))
	dst = append(dst, storeID[:]...)
	return binary.LittleEndian.AppendUint32(dst, codec.ChecksumOf(headerCRCTyp, dst[start:]))
}

// decodeHeader returns the store ID of the manifest num, whose file is name.
// Corruptions come back without the file's name.
func decodeHeader(b []byte, name string, num keys.FileNum) (storeID [16]byte, err error) {
	r := codec.NewReader(b)
	magic := r.Bytes(len(headerMagic), "manifest magic")
	if r.Err() == nil && string(magic) != headerMagic {
		return storeID, corrupt.At(0, "manifest magic", fmt.Sprintf("%q", headerMagic), fmt.Sprintf("%q", magic))
	}
	version := r.Uint32("manifest version")
	if r.Err() == nil && version != FormatVersion {
		return storeID, &VersionError{File: name, Got: uint64(version), Want: FormatVersion}
	}
	gotNum := keys.FileNum(r.Uint64("manifest number"))
	copy(storeID[:], r.Bytes(len(storeID), "store ID"))
	crc := r.Uint32("manifest header checksum")
	if r.Err() != nil {
		return storeID, r.Err()
	}
	if want := codec.ChecksumOf(headerCRCTyp, b[:headerCRCAt]); crc != want {
		return storeID, corrupt.At(headerCRCAt, "manifest header checksum", want, crc)
	}
	if gotNum != num {
		return storeID, corrupt.At(12, "manifest number", num, gotNum)
	}
	return storeID, nil
}

// An edit is a sequence of fields, without an end mark: its record knows its
// length. Numbers are unsigned varints unless said otherwise; a number in a
// value must fill it, or what the list says must.
//
//	+-----+--------+--------------+
//	| tag | length | value        |
//	| u8  | varint | length bytes |
//	+-----+--------+--------------+
//
//	tag 1  next file number       number                           at most once
//	    2  last sequence number   number                           at most once
//	    3  oldest segment         number                           at most once
//	    4  added segment          number                           ascending
//	    5  sealed segment         number | size in bytes
//	    6  removed table          level | number
//	    7  added table            level | number | size in bytes | checksum u32 |
//	                              smallest key | largest key | smallest and largest
//	                              sequence number | entries | deletes | user keys |
//	                              raw bytes | filter bytes; a key is length | bytes
//	    8  range tombstones       number | how many, at least 1 | what the table's
//	                              largest key is: 0 covered, 1 an exclusive end,
//	                              2 empty, for there is no end; directly behind
//	                              the table of that number
//	    9  ended segment          number | size in bytes
//
// A reader that does not know a tag skips the field if the tag is 128 or
// more, and refuses the manifest otherwise. A field never changes its
// meaning; what has to be said of tables in addition gets a tag of its own.
const (
	tagNextFileNum   = 1
	tagLastSeq       = 2
	tagOldestSegment = 3
	tagAddedSegment  = 4
	tagSealedSegment = 5
	tagRemovedTable  = 6
	tagAddedTable    = 7
	tagRangeDeletes  = 8
	tagEndedSegment  = 9

	tagOptional = 0x80 // a field whose tag has this bit may be skipped
)

// appendEdit appends the fields of e, those that change nothing left out.
func appendEdit(dst []byte, e *Edit) []byte {
	var value []byte
	field := func(tag byte, numbers ...uint64) {
		value = value[:0]
		for _, n := range numbers {
			value = binary.AppendUvarint(value, n)
		}
		dst = codec.AppendLenBytes(append(dst, tag), value)
	}
	if e.NextFileNum != 0 {
		field(tagNextFileNum, uint64(e.NextFileNum))
	}
	if e.LastSeq != 0 {
		field(tagLastSeq, uint64(e.LastSeq))
	}
	if e.OldestSegment != 0 {
		field(tagOldestSegment, uint64(e.OldestSegment))
	}
	for _, num := range e.AddedSegments {
		field(tagAddedSegment, uint64(num))
	}
	for _, s := range e.EndedSegments {
		tag := byte(tagEndedSegment)
		if s.Sealed {
			tag = tagSealedSegment
		}
		field(tag, uint64(s.FileNum), s.SizeBytes)
	}
	for _, t := range e.Removed {
		field(tagRemovedTable, uint64(t.Level), uint64(t.FileNum))
	}
	for _, t := range e.Added {
		value = appendTable(value[:0], t)
		dst = codec.AppendLenBytes(append(dst, tagAddedTable), value)
		if m := t.Meta; m.RangeDeletes > 0 {
			field(tagRangeDeletes, uint64(m.FileNum), m.RangeDeletes, uint64(endOf(m)))
		}
	}
	return dst
}

// What the largest key of a table is. On disk: do not renumber.
const (
	endCovered = iota
	endExclusive
	endNone
	numEnds
)

func endOf(t *TableMeta) int {
	switch {
	case t.ToEnd:
		return endNone
	case t.LargestExclusive:
		return endExclusive
	}
	return endCovered
}

func appendTable(dst []byte, a LevelTable) []byte {
	t := a.Meta
	dst = binary.AppendUvarint(dst, uint64(a.Level))
	dst = binary.AppendUvarint(dst, uint64(t.FileNum))
	dst = binary.AppendUvarint(dst, t.SizeBytes)
	dst = binary.LittleEndian.AppendUint32(dst, t.Checksum)
	dst = codec.AppendLenBytes(dst, t.Smallest)
	dst = codec.AppendLenBytes(dst, t.Largest)
	dst = binary.AppendUvarint(dst, uint64(t.SmallestSeq))
	dst = binary.AppendUvarint(dst, uint64(t.LargestSeq))
	dst = binary.AppendUvarint(dst, t.Entries)
	dst = binary.AppendUvarint(dst, t.Deletes)
	dst = binary.AppendUvarint(dst, t.UserKeys)
	dst = binary.AppendUvarint(dst, t.RawBytes)
	return binary.AppendUvarint(dst, t.FilterBytes)
}

// decodeEdit decodes the payload of one record, which the edit does not
// alias. Errors are *corrupt.Error with offsets within b.
func decodeEdit(b []byte) (*Edit, error) {
	e := &Edit{}
	r := codec.NewReader(b)
	var seen [tagOldestSegment + 1]bool
	for r.Len() > 0 && r.Err() == nil {
		at := int64(r.Offset())
		tag := r.Uint8("field tag")
		value := r.LenBytes("field value")
		if r.Err() != nil {
			break
		}
		if int(tag) < len(seen) {
			if seen[tag] {
				return nil, corrupt.At(at, "edit", "each number once", fmt.Sprintf("tag %d twice", tag))
			}
			seen[tag] = true
		}
		valueAt := int64(r.Offset() - len(value))
		if err := e.decodeField(tag, value, at, valueAt); err != nil {
			return nil, err
		}
	}
	return e, r.Err()
}

// decodeField adds one field to e. The tag lies at offset at, the value at
// valueAt.
func (e *Edit) decodeField(tag byte, value []byte, at, valueAt int64) error {
	r := codec.NewReader(value)
	switch tag {
	case tagNextFileNum:
		e.NextFileNum = keys.FileNum(r.Uvarint("next file number"))
	case tagLastSeq:
		e.LastSeq = decodeSeq(r, "last sequence number")
	case tagOldestSegment:
		e.OldestSegment = keys.FileNum(r.Uvarint("oldest segment"))
	case tagAddedSegment:
		e.AddedSegments = append(e.AddedSegments, keys.FileNum(r.Uvarint("added segment")))
	case tagSealedSegment:
		e.decodeEnd(r, "sealed segment", true)
	case tagEndedSegment:
		e.decodeEnd(r, "ended segment", false)
	case tagRemovedTable:
		e.Removed = append(e.Removed, LevelFile{
			Level:   decodeLevel(r),
			FileNum: keys.FileNum(r.Uvarint("removed table")),
		})
	case tagAddedTable:
		e.Added = append(e.Added, decodeTable(r))
	case tagRangeDeletes:
		e.decodeRangeDeletes(r)
	default:
		if tag&tagOptional == 0 {
			return corrupt.At(at, "field tag", "one that this build knows or may skip", tag)
		}
		return nil
	}
	if r.Len() > 0 {
		r.Fail("field value", "its end", fmt.Sprintf("%d bytes left", r.Len()))
	}
	return corrupt.In(r.Err(), "", valueAt)
}

func (e *Edit) decodeEnd(r *codec.Reader, what string, sealed bool) {
	e.EndedSegments = append(e.EndedSegments, SegmentEnd{
		FileNum: keys.FileNum(r.Uvarint(what)), SizeBytes: r.Uvarint("size of " + what), Sealed: sealed,
	})
}

func decodeTable(r *codec.Reader) LevelTable {
	level := decodeLevel(r)
	return LevelTable{Level: level, Meta: &TableMeta{
		FileNum:     keys.FileNum(r.Uvarint("added table")),
		SizeBytes:   r.Uvarint("table size"),
		Checksum:    r.Uint32("table checksum"),
		Smallest:    bytes.Clone(r.LenBytes("smallest key")),
		Largest:     bytes.Clone(r.LenBytes("largest key")),
		SmallestSeq: decodeSeq(r, "smallest sequence number"),
		LargestSeq:  decodeSeq(r, "largest sequence number"),
		Entries:     r.Uvarint("entries"),
		Deletes:     r.Uvarint("deletes"),
		UserKeys:    r.Uvarint("user keys"),
		RawBytes:    r.Uvarint("raw bytes"),
		FilterBytes: r.Uvarint("filter bytes"),
	}}
}

// decodeRangeDeletes adds to the last table of e what is said of its range
// tombstones.
func (e *Edit) decodeRangeDeletes(r *codec.Reader) {
	num := keys.FileNum(r.Uvarint("table with range tombstones"))
	if n := len(e.Added); n == 0 || e.Added[n-1].Meta.FileNum != num || e.Added[n-1].Meta.RangeDeletes > 0 {
		r.Fail("table with range tombstones", "the one added before, once", fmt.Sprint(num))
		return
	}
	t := e.Added[len(e.Added)-1].Meta
	if t.RangeDeletes = r.Uvarint("range tombstones"); t.RangeDeletes == 0 {
		r.Fail("range tombstones", "at least 1", "0")
	}
	end := r.Uvarint("end of a table")
	if end >= numEnds || end == endNone && len(t.Largest) > 0 {
		r.Fail("end of a table", fmt.Sprintf("below %d, and no largest key without one", numEnds), fmt.Sprint(end))
	}
	t.LargestExclusive, t.ToEnd = end == endExclusive, end == endNone
}

func decodeLevel(r *codec.Reader) int {
	level := r.Uvarint("level")
	if level >= NumLevels {
		r.Fail("level", fmt.Sprintf("below %d", NumLevels), fmt.Sprint(level))
		return 0
	}
	return int(level)
}

func decodeSeq(r *codec.Reader, what string) keys.SeqNum {
	seq := keys.SeqNum(r.Uvarint(what))
	if seq > keys.MaxSeqNum {
		r.Fail(what, "at most 56 bits", fmt.Sprint(seq))
		return 0
	}
	return seq
}
