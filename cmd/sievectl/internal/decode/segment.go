package decode

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"sievedb/internal/batch"
	"sievedb/internal/codec"
	"sievedb/internal/corrupt"
	"sievedb/internal/keys"
	"sievedb/wal"
)

// SegmentHeader is the first 40 bytes of a WAL segment, as docs/format.md has
// them.
type SegmentHeader struct {
	Number keys.FileNum
	Store  wal.StoreID
}

const (
	segmentMagic   = "SIEVEWAL"
	segmentVersion = 1
)

// ParseNum returns the file number in a base name such as 000012.sst, with
// that suffix, or false.
func ParseNum(name, suffix string) (keys.FileNum, bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	n, err := strconv.ParseUint(digits, 10, 64)
	return keys.FileNum(n), ok && err == nil && n > 0 && fmt.Sprintf("%06d", n) == digits
}

// ReadSegmentHeader reads the header of a segment. An error that is no
// *corrupt.Error says that the segment is of another version.
func ReadSegmentHeader(f *File) (h SegmentHeader, err error) {
	b, err := f.read(0, uint64(min(f.Size, wal.HeaderLen)))
	if err != nil {
		return h, err
	}
	r := codec.NewReader(b)
	if m := r.Bytes(len(segmentMagic), "magic"); r.Err() == nil && string(m) != segmentMagic {
		return h, corrupt.In(corrupt.At(0, "magic", fmt.Sprintf("%q", segmentMagic), fmt.Sprintf("%q", m)), f.Name, 0)
	}
	if v := r.Uint32("version"); r.Err() == nil && v != segmentVersion {
		return h, fmt.Errorf("%s: WAL format version %d, this program reads %d", f.Name, v, segmentVersion)
	}
	want := r.Uint32("header checksum")
	body := r.Bytes(wal.HeaderLen-16, "header")
	if r.Err() == nil && codec.ChecksumOf('w', body) != want {
		return h, corrupt.In(corrupt.At(12, "header checksum", want, codec.ChecksumOf('w', body)), f.Name, 0)
	}
	if r.Err() != nil {
		return h, corrupt.In(r.Err(), f.Name, 0)
	}
	h.Number = keys.FileNum(binary.LittleEndian.Uint64(body))
	copy(h.Store[:], body[8:])
	return h, nil
}

// Batch is one record of a segment. Its slices are valid during the call that
// gets it.
type Batch struct {
	Offset, End int64 // in the file
	Seq         keys.SeqNum
	Ops         []batch.Op
}

// LastSeq returns the sequence number of the last operation; of a batch
// without any, the one before Seq.
func (b *Batch) LastSeq() keys.SeqNum { return b.Seq + keys.SeqNum(len(b.Ops)) - 1 }

// WalkSegment calls use with each batch that can be read, in the order of the
// file, up to size, and returns the gaps between them. A batch is used as a
// whole or not at all. An error of use ends the walk.
func WalkSegment(f *File, num keys.FileNum, size int64, use func(*Batch) error) ([]Gap, error) {
	l := log{f: f, size: min(size, f.Size), headerLen: wal.HeaderLen, number: uint32(num)}
	return l.walk(func(at, end int64, payload []byte) error {
		r, err := batch.Decode(payload)
		if err != nil {
			return err
		}
		b := &Batch{Offset: at, End: end, Seq: r.Seq()}
		for op, ok := r.Next(); ok; op, ok = r.Next() {
			b.Ops = append(b.Ops, op)
		}
		if r.Err() != nil {
			return r.Err()
		}
		return use(b)
	})
}
