package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"sievedb/internal/corrupt"
)

// TornError says that the log ends in bytes that never became durable. The
// records before Offset are whole.
type TornError struct {
	Offset int64          // where the last whole record ends
	Cause  *corrupt.Error // what is wrong with the bytes there
}

// Error tells where the whole records end and why.
func (e *TornError) Error() string {
	return fmt.Sprintf("torn tail after offset %d: %v", e.Offset, e.Cause)
}

// Reader yields the records of a log in order.
type Reader struct {
	src    io.ReaderAt
	size   int64
	number uint32

	buf    []byte // window of the file, reused
	bufAt  int64  // file offset of buf
	off    int64  // of the next chunk
	good   int64  // end of the last whole record
	record []byte // a record of several chunks, reused
	err    error
}

// window is the least that is read at once, in bytes.
const window = 256 << 10

var zeroWindow [window]byte

// NewReader returns a Reader of the size bytes of src from offset start on, in
// the file whose number's low 32 bits are given.
func NewReader(src io.ReaderAt, size, start int64, number uint32) *Reader {
	return &Reader{src: src, size: size, number: number, off: start, good: start}
}

// Offset returns where the last whole record ends.
func (r *Reader) Offset() int64 { return r.good }

// Next returns the payload of the next record, valid until the next call. At
// the end it returns io.EOF if the log ends with a whole record (and perhaps
// zeros), a *TornError if it ends in bytes that were not durable, a
// *corrupt.Error (without a file name) if bytes that were durable are damaged,
// or the error of reading. The end is sticky.
func (r *Reader) Next() ([]byte, error) {
	if r.err != nil {
		return nil, r.err
	}
	p, err := r.next()
	if err != nil {
		r.err = err
		return nil, err
	}
	r.good = r.off
	return p, nil
}

func (r *Reader) next() ([]byte, error) {
	r.record = r.record[:0]
	inside := false
	for {
		typ, payload, bad, err := r.chunk(r.off)
		if err != nil {
			return nil, err
		}
		if bad != nil {
			return nil, r.end(bad)
		}
		if (typ == typeMiddle || typ == typeLast) != inside {
			return nil, corrupt.At(r.off, "chunk type", "the record's next chunk", typ)
		}
		r.off += int64(HeaderLen + len(payload))
		switch typ {
		case typeFull:
			return payload, nil
		case typeLast:
			return append(r.record, payload...), nil
		}
		inside = true
		r.record = append(r.record, payload...)
	}
}

// chunk decodes the chunk at off. bad tells why there is none; err is a
// failure to read. The payload aliases the window.
func (r *Reader) chunk(off int64) (typ byte, payload []byte, bad *corrupt.Error, err error) {
	hdr, err := r.bytes(off, HeaderLen)
	if err != nil {
		return 0, nil, nil, err
	}
	if len(hdr) < HeaderLen {
		return 0, nil, corrupt.At(off, "chunk header", "16 bytes", fmt.Sprintf("%d bytes", len(hdr))), nil
	}
	h := binary.LittleEndian.Uint32(hdr[4:])
	n, typ := int(h&0xffffff), byte(h>>24)
	if typ < typeFull || typ > typeLast {
		return 0, nil, corrupt.At(off, "chunk type", "1 to 4", typ), nil
	}
	if got := binary.LittleEndian.Uint32(hdr[8:]); got != r.number {
		return 0, nil, corrupt.At(off, "chunk's file number", r.number, got), nil
	}
	all, err := r.bytes(off, HeaderLen+n)
	if err != nil {
		return 0, nil, nil, err
	}
	if len(all) < HeaderLen+n {
		return 0, nil, corrupt.At(off, "chunk payload", fmt.Sprintf("%d bytes", n), fmt.Sprintf("%d left", len(all)-HeaderLen)), nil
	}
	want := binary.LittleEndian.Uint32(all)
	if got := checksum(typ, all[4:], off); got != want {
		return 0, nil, corrupt.At(off, "chunk checksum", want, got), nil
	}
	return typ, all[HeaderLen:], nil, nil
}

// end decides what a missing chunk at r.off means, which is the question of
// the package comment: look for a later chunk that vouches for these bytes.
func (r *Reader) end(bad *corrupt.Error) error {
	zeros := true
	var number [4]byte
	binary.LittleEndian.PutUint32(number[:], r.number)
	for off := r.off; off < r.size; {
		b, err := r.bytes(off, window)
		if err != nil {
			return err
		}
		if len(b) == 0 {
			break
		}
		step := int64(max(1, len(b)-HeaderLen+1))
		if bytes.Equal(b, zeroWindow[:len(b)]) { // most of what was preallocated
			off += step
			continue
		}
		zeros = false
		// The window may move when a candidate is checked, so candidates are
		// collected first; a wrong one costs a checksum, not an answer.
		var candidates []int64
		for i := range b {
			if int64(i) < step && i+HeaderLen <= len(b) && b[i+7] >= typeFull && b[i+7] <= typeLast && [4]byte(b[i+8:i+12]) == number {
				candidates = append(candidates, off+int64(i))
			}
		}
		for _, at := range candidates {
			vouches, err := r.vouches(at)
			if err != nil {
				return err
			}
			if vouches {
				return bad
			}
		}
		off += step
	}
	if zeros && r.off == r.good {
		return io.EOF
	}
	return &TornError{Offset: r.good, Cause: bad}
}

// vouches reports whether a whole chunk lies at offset at and says that the
// byte at r.off was durable when it was framed.
func (r *Reader) vouches(at int64) (bool, error) {
	hdr, err := r.bytes(at, HeaderLen)
	if err != nil {
		return false, err
	}
	// First what costs nothing: a checksum for every place that looks like a
	// header would take quadratic time.
	unsynced := binary.LittleEndian.Uint32(hdr[12:])
	if unsynced == unsyncedUnknown || at-int64(unsynced) <= r.off {
		return false, nil
	}
	_, _, bad, err := r.chunk(at)
	return bad == nil && err == nil, err
}

// bytes returns n bytes at off, or as many as the file has; they are valid
// until the next call.
func (r *Reader) bytes(off int64, n int) ([]byte, error) {
	if left := r.size - off; int64(n) > left {
		n = int(max(left, 0))
	}
	if n == 0 {
		return nil, nil
	}
	if i := off - r.bufAt; i >= 0 && i+int64(n) <= int64(len(r.buf)) {
		return r.buf[i : i+int64(n) : i+int64(n)], nil
	}
	want := int(min(int64(max(n, window)), r.size-off))
	if cap(r.buf) < want {
		r.buf = make([]byte, want)
	}
	r.buf = r.buf[:want]
	r.bufAt = off
	got, err := r.src.ReadAt(r.buf, off)
	if err != nil && !(errors.Is(err, io.EOF) && got == want) {
		r.buf = r.buf[:0]
		if errors.Is(err, io.EOF) {
			return nil, corrupt.At(off+int64(got), "log", fmt.Sprintf("%d bytes", r.size), "end of file")
		}
		return nil, err
	}
	return r.buf[:n:n], nil
}
