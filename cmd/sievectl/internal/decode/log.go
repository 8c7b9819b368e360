package decode

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"sievedb/internal/codec"
	"sievedb/internal/corrupt"
	"sievedb/internal/record"
)

// A log is the chunks of package record behind a header of headerLen bytes.
type log struct {
	f         *File
	size      int64 // of the part that is looked at
	headerLen int64
	number    uint32 // low 32 bits of the file number
}

// walk calls use with each whole record, in order, those behind damage
// included. It returns what could not be used, each gap as large as can be; an
// error of use that is a corruption, with an offset in the payload, makes a gap
// of its record. Any other error of use ends the walk.
func (l log) walk(use func(at, end int64, payload []byte) error) (gaps []Gap, err error) {
	add := func(g Gap) {
		if n := len(gaps); n > 0 && gaps[n-1].End == g.Offset {
			gaps[n-1].End = g.End
			return
		}
		g.Cause = corrupt.In(g.Cause, l.f.Name, 0)
		gaps = append(gaps, g)
	}
	for start := l.headerLen; start < l.size; {
		r := record.NewReader(l.f, l.size, start, l.number)
		for err == nil {
			var payload []byte
			at := r.Offset()
			if payload, err = r.Next(); err != nil {
				break
			}
			if bad := use(at, r.Offset(), payload); bad != nil {
				if !errors.Is(bad, corrupt.ErrCorrupt) {
					return gaps, bad
				}
				add(Gap{Offset: at, End: r.Offset(), Cause: inRecord(bad, at)})
			}
		}
		g := Gap{Offset: r.Offset(), Cause: err}
		var torn *record.TornError
		switch {
		case errors.Is(err, io.EOF):
			return gaps, nil
		case errors.As(err, &torn):
			g.Torn, g.Cause = true, torn.Cause
		}
		if g.End, err = l.resync(g.Offset + 1); err != nil {
			return gaps, err
		}
		add(g)
		start = g.End
	}
	return gaps, nil
}

// inRecord moves a corruption within the payload of the record at offset at
// to its offset in the file, past the chunk headers in between.
func inRecord(err error, at int64) error {
	var c *corrupt.Error
	if errors.As(err, &c) {
		return corrupt.In(c, "", at+record.Size(c.Offset)-c.Offset)
	}
	return err
}

// resyncWindow is how much is searched at once, in bytes.
const resyncWindow = 256 << 10

// resync returns the offset of the first whole chunk at or behind from that
// begins a record, or the end of the log. A chunk's checksum covers its offset
// and its file's number, so that a copy of one inside a value is not taken.
func (l log) resync(from int64) (int64, error) {
	for from+record.HeaderLen <= l.size {
		b, err := l.f.read(uint64(from), uint64(min(resyncWindow, l.size-from)))
		if err != nil {
			return 0, err
		}
		i := 0
		for ; i+record.HeaderLen <= len(b); i++ {
			full, first := b[i+7] == 1, b[i+7] == 2
			if !full && !first || binary.LittleEndian.Uint32(b[i+8:]) != l.number {
				continue
			}
			whole, err := l.whole(from+int64(i), b[i:i+record.HeaderLen])
			if err != nil {
				return 0, err
			}
			if whole {
				return from + int64(i), nil
			}
		}
		from += int64(i)
	}
	return l.size, nil
}

// whole reports whether the chunk with that header lies at offset at.
func (l log) whole(at int64, header []byte) (bool, error) {
	n := int64(binary.LittleEndian.Uint32(header[4:]) & 0xffffff)
	if at+record.HeaderLen+n > l.size {
		return false, nil
	}
	chunk, err := l.f.read(uint64(at), uint64(record.HeaderLen+n))
	if err != nil {
		return false, fmt.Errorf("looking for the next record: %w", err)
	}
	sum := codec.ChecksumOf(header[7], chunk[4:]) ^ uint32(at) ^ uint32(at>>32)
	return binary.LittleEndian.Uint32(chunk) == sum, nil
}
