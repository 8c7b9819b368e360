package decode

import (
	"bytes"
	"fmt"
	"path/filepath"

	"sievedb/internal/codec"
	"sievedb/internal/corrupt"
	"sievedb/internal/keys"
	"sievedb/internal/manifest"
)

// Current is what the file CURRENT says.
type Current struct {
	Manifest     keys.FileNum
	DurableBytes int64 // of the manifest, when the line was written
}

// maxCurrentLen bounds what is read of CURRENT; its longest line is shorter.
const maxCurrentLen = 128

// ReadCurrent reads CURRENT in dir.
func ReadCurrent(dir string) (c Current, err error) {
	f, err := OpenFile(filepath.Join(dir, manifest.CurrentName))
	if err != nil {
		return c, err
	}
	line, err := f.read(0, uint64(min(f.Size, maxCurrentLen)))
	if err != nil {
		return c, err
	}
	var version int
	var sum uint32
	n, _ := fmt.Sscanf(string(line), "sievedb %d MANIFEST-%d %d %x\n", &version, &c.Manifest, &c.DurableBytes, &sum)
	if n > 0 && version != manifest.FormatVersion {
		return c, fmt.Errorf("%s: format version %d, this program reads %d", f.Name, version, manifest.FormatVersion)
	}
	body := line[:bytes.LastIndexByte(line, ' ')+1]
	if n < 4 || codec.ChecksumOf('C', body) != sum || int64(len(body)+len("01234567\n")) != f.Size {
		return c, corrupt.In(corrupt.At(0, "line", "one that the store wrote", fmt.Sprintf("%.*q", maxCurrentLen, line)), f.Name, 0)
	}
	return c, nil
}

// ManifestHeader is the first 40 bytes of a manifest, as docs/format.md has
// them.
type ManifestHeader struct {
	Number keys.FileNum
	Store  [16]byte
}

const (
	manifestMagic     = "SieveMAN"
	manifestHeaderLen = 40
)

// ReadManifestHeader reads the header of a manifest. An error that is no
// *corrupt.Error says that the manifest is of another version.
func ReadManifestHeader(f *File) (h ManifestHeader, err error) {
	b, err := f.read(0, uint64(min(f.Size, manifestHeaderLen)))
	if err != nil {
		return h, err
	}
	r := codec.NewReader(b)
	if m := r.Bytes(len(manifestMagic), "magic"); r.Err() == nil && string(m) != manifestMagic {
		return h, corrupt.In(corrupt.At(0, "magic", fmt.Sprintf("%q", manifestMagic), fmt.Sprintf("%q", m)), f.Name, 0)
	}
	if v := r.Uint32("version"); r.Err() == nil && v != manifest.FormatVersion {
		return h, fmt.Errorf("%s: format version %d, this program reads %d", f.Name, v, manifest.FormatVersion)
	}
	h.Number = keys.FileNum(r.Uint64("number"))
	copy(h.Store[:], r.Bytes(len(h.Store), "store ID"))
	sum := r.Uint32("header checksum")
	if r.Err() != nil {
		return h, corrupt.In(r.Err(), f.Name, 0)
	}
	if got := codec.ChecksumOf('M', b[:manifestHeaderLen-4]); got != sum {
		return h, corrupt.In(corrupt.At(manifestHeaderLen-4, "header checksum", sum, got), f.Name, 0)
	}
	return h, nil
}

// Edit is one record of a manifest.
type Edit struct {
	Offset, End int64 // in the file
	manifest.Edit
	Skipped []uint8 // tags of fields that may be skipped, and were
}

// WalkManifest calls use with each edit that can be read, in the order of the
// file, and returns the gaps between them. An error of use ends the walk.
func WalkManifest(f *File, num keys.FileNum, use func(*Edit) error) ([]Gap, error) {
	l := log{f: f, size: f.Size, headerLen: manifestHeaderLen, number: uint32(num)}
	return l.walk(func(at, end int64, payload []byte) error {
		e, err := decodeEdit(payload)
		if err != nil {
			return err
		}
		e.Offset, e.End = at, end
		return use(e)
	})
}

// Fields of an edit.
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
	tagOptional      = 0x80
)

func decodeEdit(payload []byte) (*Edit, error) {
	e := &Edit{}
	r := codec.NewReader(payload)
	for r.Len() > 0 && r.Err() == nil {
		at := int64(r.Offset())
		tag := r.Uint8("field tag")
		value := r.LenBytes("field value")
		if r.Err() != nil {
			break
		}
		v := codec.NewReader(value)
		switch tag {
		case tagNextFileNum:
			e.NextFileNum = keys.FileNum(v.Uvarint("next file number"))
		case tagLastSeq:
			e.LastSeq = keys.SeqNum(v.Uvarint("last sequence number"))
		case tagOldestSegment:
			e.OldestSegment = keys.FileNum(v.Uvarint("oldest segment"))
		case tagAddedSegment:
			e.AddedSegments = append(e.AddedSegments, keys.FileNum(v.Uvarint("added segment")))
		case tagSealedSegment:
			e.decodeEnd(v, true)
		case tagEndedSegment:
			e.decodeEnd(v, false)
		case tagRemovedTable:
			e.Removed = append(e.Removed, manifest.LevelFile{Level: decodeLevel(v), FileNum: keys.FileNum(v.Uvarint("removed table"))})
		case tagAddedTable:
			e.Added = append(e.Added, decodeTable(v))
		case tagRangeDeletes:
			e.decodeRangeDeletes(v)
		default:
			if tag&tagOptional == 0 {
				return nil, corrupt.At(at, "field of an edit", "one that this program knows or may skip", tag)
			}
			e.Skipped = append(e.Skipped, tag)
			continue
		}
		if v.Len() > 0 {
			v.Fail("field value", "its end", fmt.Sprintf("%d bytes left", v.Len()))
		}
		if v.Err() != nil {
			return nil, corrupt.In(v.Err(), "", int64(r.Offset()-len(value)))
		}
	}
	return e, r.Err()
}

func (e *Edit) decodeEnd(r *codec.Reader, sealed bool) {
	e.EndedSegments = append(e.EndedSegments, manifest.SegmentEnd{
		FileNum: keys.FileNum(r.Uvarint("segment")), SizeBytes: r.Uvarint("size of a segment"), Sealed: sealed})
}

func decodeTable(r *codec.Reader) manifest.LevelTable {
	level := decodeLevel(r)
	return manifest.LevelTable{Level: level, Meta: &manifest.TableMeta{
		FileNum:     keys.FileNum(r.Uvarint("added table")),
		SizeBytes:   r.Uvarint("table size"),
		Checksum:    r.Uint32("table checksum"),
		Smallest:    bytes.Clone(r.LenBytes("smallest key")),
		Largest:     bytes.Clone(r.LenBytes("largest key")),
		SmallestSeq: keys.SeqNum(r.Uvarint("smallest sequence number")),
		LargestSeq:  keys.SeqNum(r.Uvarint("largest sequence number")),
		Entries:     r.Uvarint("entries"),
		Deletes:     r.Uvarint("deletes"),
		UserKeys:    r.Uvarint("user keys"),
		RawBytes:    r.Uvarint("raw bytes"),
		FilterBytes: r.Uvarint("filter bytes"),
	}}
}

// decodeRangeDeletes adds to the table before what is said of its range
// tombstones.
func (e *Edit) decodeRangeDeletes(r *codec.Reader) {
	num := keys.FileNum(r.Uvarint("table with range tombstones"))
	if n := len(e.Added); n == 0 || e.Added[n-1].Meta.FileNum != num {
		r.Fail("table with range tombstones", "the one added before", num)
		return
	}
	m := e.Added[len(e.Added)-1].Meta
	m.RangeDeletes = r.Uvarint("range tombstones")
	switch end := r.Uvarint("end of a table"); end {
	case 0:
	case 1:
		m.LargestExclusive = true
	case 2:
		m.ToEnd, m.Largest = true, nil
	default:
		r.Fail("end of a table", "below 3", end)
	}
}

func decodeLevel(r *codec.Reader) int {
	level := r.Uvarint("level")
	if level >= manifest.NumLevels {
		r.Fail("level", fmt.Sprintf("below %d", manifest.NumLevels), level)
		return 0
	}
	return int(level)
}
