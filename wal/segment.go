package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"sievedb/internal/codec"
	"sievedb/internal/corrupt"
	"sievedb/internal/keys"
	"sievedb/internal/record"
	"sievedb/vfs"
)

// A segment is a header and then the chunks of package record.
//
//	 0          8         12       16       24         40
//	+----------+---------+--------+--------+----------+-- - - -
//	| magic    | version | crc    | number | store    | chunks
//	| SIEVEWAL | u32     | u32    | u64    | 16 bytes |
//	+----------+---------+--------+--------+----------+-- - - -
//
//	version  of this header and of what follows: 1
//	crc      masked CRC-32C over type byte 'w', number and store
//	number   the segment's file number
//	store    identity of the store, as in its manifest
const (
	// HeaderLen is the length of a segment's header, in bytes.
	HeaderLen = 40

	magic         = "SIEVEWAL"
	formatVersion = 1
	crcType       = 'w'
)

// ErrVersion says that a segment was written by another version of the format.
var ErrVersion = fmt.Errorf("%w: version of a WAL segment", corrupt.ErrFormat)

// SegmentName returns the base name of segment num.
func SegmentName(num keys.FileNum) string { return fmt.Sprintf("%06d.wal", num) }

// StoreID identifies a store, so that a segment of another one is not replayed.
type StoreID [16]byte

func appendHeader(dst []byte, num keys.FileNum, store StoreID) []byte {
	start := len(dst)
	dst = append(dst, magic...)
	dst = binary.LittleEndian.AppendUint32(dst, formatVersion)
	dst = binary.LittleEndian.AppendUint32(dst, 0) // the checksum
	dst = binary.LittleEndian.AppendUint64(dst, uint64(num))
	dst = append(dst, store[:]...)
	binary.LittleEndian.PutUint32(dst[start+12:], codec.ChecksumOf(crcType, dst[start+16:]))
	return dst
}

func checkHeader(hdr []byte, num keys.FileNum, store StoreID) error {
	r := codec.NewReader(hdr)
	if m := r.Bytes(len(magic), "magic"); r.Err() == nil && string(m) != magic {
		return corrupt.At(0, "magic", fmt.Sprintf("%q", magic), fmt.Sprintf("%q", m))
	}
	if v := r.Uint32("version"); r.Err() == nil && v != formatVersion {
		return fmt.Errorf("%w: %d, this program reads %d", ErrVersion, v, formatVersion)
	}
	want := r.Uint32("header checksum")
	body := r.Bytes(HeaderLen-16, "header")
	if err := r.Err(); err != nil {
		return err
	}
	if got := codec.ChecksumOf(crcType, body); got != want {
		return corrupt.At(12, "header checksum", want, got)
	}
	if got := binary.LittleEndian.Uint64(body); got != uint64(num) {
		return corrupt.At(16, "segment number", fmt.Sprint(num), fmt.Sprint(got))
	}
	if got := StoreID(body[8:]); got != store {
		return corrupt.At(24, "store identity", fmt.Sprintf("%x", store), fmt.Sprintf("%x", got))
	}
	return nil
}

// Segment describes a segment to Replay.
type Segment struct {
	Num keys.FileNum
	// SizeBytes is the final size of a segment that has ended, zero of the last
	// one of a log that was not closed.
	SizeBytes int64
	// Sealed says that the segment has ended and is durable. Others may have a
	// torn tail.
	Sealed bool
}

// Replay calls f with each record of a segment, in the order of the appends.
// The payload is valid during the call. It returns the length of the segment's
// good prefix, in bytes. Of a segment that is not sealed that is what a crash left
// of it: the caller must cut off the rest (see Seal) before it writes another
// segment, and if the segment had ended with more, the records of later ones do
// not count.
//
// A missing or damaged segment is a *corrupt.Error, another version ErrVersion.
// An error of f ends the replay and is returned.
func Replay(fsys vfs.FS, dir string, store StoreID, s Segment, f func(payload []byte) error) (goodBytes int64, err error) {
	name := SegmentName(s.Num)
	file, err := fsys.Open(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, corrupt.In(corrupt.At(0, "WAL segment", "the file", "none"), name, 0)
	}
	if err != nil {
		return 0, err
	}
	defer file.Close()
	size, err := file.Size()
	if err != nil {
		return 0, err
	}
	if s.Sealed && size != s.SizeBytes {
		return 0, corrupt.In(corrupt.At(size, "size of a sealed WAL segment", fmt.Sprint(s.SizeBytes), fmt.Sprint(size)), name, 0)
	}
	hdr := make([]byte, min(size, HeaderLen))
	if _, err := file.ReadAt(hdr, 0); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	if err := checkHeader(hdr, s.Num, store); err != nil {
		if errors.Is(err, ErrVersion) {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		return 0, corrupt.In(err, name, 0)
	}
	r := record.NewReader(file, size, HeaderLen, uint32(s.Num))
	for {
		at := r.Offset()
		payload, err := r.Next()
		var torn *record.TornError
		switch {
		case err == nil:
			if err := f(payload); err != nil {
				return at, corrupt.In(err, name, at+record.HeaderLen)
			}
			continue
		case errors.As(err, &torn):
			if s.Sealed {
				return r.Offset(), corrupt.In(torn.Cause, name, 0)
			}
		case !errors.Is(err, io.EOF):
			return r.Offset(), corrupt.In(err, name, 0)
		}
		if s.Sealed && r.Offset() != s.SizeBytes || s.SizeBytes > 0 && r.Offset() > s.SizeBytes {
			return r.Offset(), corrupt.In(corrupt.At(r.Offset(), "end of a WAL segment", fmt.Sprint(s.SizeBytes), fmt.Sprint(r.Offset())), name, 0)
		}
		return r.Offset(), nil
	}
}

// Seal cuts a segment at sizeBytes, which Replay returned, and makes that
// durable: a torn tail that later segments followed would be taken for damage.
func Seal(fsys vfs.FS, dir string, num keys.FileNum, sizeBytes int64) error {
	f, err := fsys.OpenReadWrite(filepath.Join(dir, SegmentName(num)))
	if err != nil {
		return err
	}
	return errors.Join(seal(f, sizeBytes), f.Close())
}

func seal(f vfs.File, sizeBytes int64) error {
	if err := f.Truncate(sizeBytes); err != nil {
		return err
	}
	return f.Sync()
}
