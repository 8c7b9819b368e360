package sstable

import (
	"encoding/binary"
	"fmt"

	"sievedb/internal/codec"
	"sievedb/internal/corrupt"
)

// Table file, and its footer: the last 96 bytes. All integers are
// little-endian.
//
//	data blocks | filter | range tombstones | index | properties | footer
//
//	 0 +---------------------------------------+
//	   | filter            handle              |  handle: offset u64
//	20 +---------------------------------------+          length u64
//	   | range tombstones  handle              |          checksum u32
//	40 +---------------------------------------+
//	   | index             handle              |  The parts follow one another
//	60 +---------------------------------------+  without a gap, from the end of
//	   | properties        handle              |  the data blocks to the footer.
//	80 +---------------------------------------+  A filter, or range tombstones,
//	   | version   u32     | checksum u32      |  of length zero: none.
//	88 +---------------------------------------+
//	   | magic     u64                         |
//	96 +---------------------------------------+
//
// The payload of the range tombstones is that of package rangedel.
//
// Magic and version come last, where every later version will have them too,
// whatever the length of its footer, and are looked at first. The checksum
// covers all other bytes of the footer. It commits to each handle, each handle
// to its frame, and the index to the frame of each data block: the footer's
// checksum, which the manifest keeps, therefore identifies the whole file.

const (
	// FormatVersion is the version of the table format that is written.
	FormatVersion = 1

	footerLen   = 96
	footerMagic = 0x4c42544556454953 // the bytes "SIEVETBL"
	footerType  = 0xf0               // the type byte of its checksum: no block's

	handleLen = 20
)

// handle says where a frame lies, its frame tail included.
type handle struct {
	offset, length uint64
	sum            uint32
}

func (h handle) append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, h.offset)
	dst = binary.LittleEndian.AppendUint64(dst, h.length)
	return binary.LittleEndian.AppendUint32(dst, h.sum)
}

func readHandle(r *codec.Reader, what string) handle {
	return handle{offset: r.Uint64(what), length: r.Uint64(what), sum: r.Uint32(what)}
}

func (h handle) end() uint64 { return h.offset + h.length }

type footer struct {
	filter, rangeTombstones, index, properties handle
}

// append appends the encoded footer and returns its checksum, too.
func (f footer) append(dst []byte) (out []byte, sum uint32) {
	base := len(dst)
	for _, h := range []handle{f.filter, f.rangeTombstones, f.index, f.properties} {
		dst = h.append(dst)
	}
	dst = binary.LittleEndian.AppendUint32(dst, FormatVersion)
	magic := binary.LittleEndian.AppendUint64(nil, footerMagic)
	sum = codec.Checksum(footerType, dst[base:], magic)
	dst = binary.LittleEndian.AppendUint32(dst, sum)
	return append(dst, magic...), sum
}

// readFooter decodes the last footerLen bytes of a table of fileSize bytes. An
// error that is a *corrupt.Error has its offset within buf.
func readFooter(buf []byte, fileSize uint64) (f footer, sum uint32, err error) {
	if len(buf) != footerLen {
		return f, 0, corrupt.At(0, "footer", fmt.Sprintf("%d bytes", footerLen), len(buf))
	}
	if m := binary.LittleEndian.Uint64(buf[88:]); m != footerMagic {
		return f, 0, corrupt.At(88, "table magic", uint64(footerMagic), m)
	}
	if v := binary.LittleEndian.Uint32(buf[80:]); v != FormatVersion {
		return f, 0, fmt.Errorf("%w: table format version %d, this one reads %d", ErrUnsupported, v, FormatVersion)
	}
	sum = binary.LittleEndian.Uint32(buf[84:])
	if got := codec.Checksum(footerType, buf[:84], buf[88:]); got != sum {
		return f, 0, corrupt.At(84, "footer checksum", sum, got)
	}
	r := codec.NewReader(buf)
	f.filter = readHandle(r, "filter handle")
	f.rangeTombstones = readHandle(r, "range tombstone handle")
	f.index = readHandle(r, "index handle")
	f.properties = readHandle(r, "properties handle")
	if err := r.Err(); err != nil {
		return f, 0, err
	}
	end := fileSize - footerLen
	for i, h := range []handle{f.properties, f.index, f.rangeTombstones, f.filter} {
		if h.length > end || h.offset != end-h.length {
			return f, 0, corrupt.At(int64(60-handleLen*i), "block handle",
				fmt.Sprintf("a block that ends at %d", end), fmt.Sprintf("offset %d, length %d", h.offset, h.length))
		}
		end = h.offset
	}
	return f, sum, nil
}
