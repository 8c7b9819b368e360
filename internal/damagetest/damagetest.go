// Package damagetest makes stores out of arbitrary bytes, for fuzz targets; only
// tests import it.
//
//	f.Add(damagetest.Pack(files), true)
//	f.Fuzz(func(t *testing.T, packed []byte, sealed bool) {
//		files := damagetest.Unpack(packed)
//		if sealed {
//			damagetest.Seal(files)
//		}
//
// Most of what a fuzzer changes is refused for a checksum. Seal makes the
// checksums right again, so that what lies behind them is reached, too.
//
// All functions are safe for concurrent use.
package damagetest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"sievedb/internal/codec"
)

// The names of files, by the first byte of an entry of a pack: a printf verb
// stands for the number that is its second byte.
var names = []string{"CURRENT", "MANIFEST-%06d", "%06d.wal", "%06d.sst", "CURRENT.tmp", "LOCK", "note-%d"}

// A pack is a sequence of files, of which the last may be cut:
//
//	 0      1        2        4        4+length
//	+------+--------+--------+--------+
//	| name | number | length | content|
//	| u8   | u8     | u16    |        |
//	+------+--------+--------+--------+
const headLen = 4

// Pack encodes files with names of the store's own and numbers below 256.
func Pack(files map[string][]byte) (packed []byte) {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		for kind, format := range names {
			for num := range 256 {
				if name == fileName(format, num) {
					packed = append(packed, byte(kind), byte(num))
					packed = binary.LittleEndian.AppendUint16(packed, uint16(len(files[name])))
					packed = append(packed, files[name]...)
				}
				if !strings.Contains(format, "%") {
					break
				}
			}
		}
	}
	return packed
}

// Unpack makes files of any bytes.
func Unpack(packed []byte) map[string][]byte {
	files := map[string][]byte{}
	for len(packed) >= headLen {
		name := fileName(names[int(packed[0])%len(names)], int(packed[1]))
		n := min(int(binary.LittleEndian.Uint16(packed[2:])), len(packed)-headLen)
		files[name] = bytes.Clone(packed[headLen : headLen+n])
		packed = packed[headLen+n:]
	}
	return files
}

func fileName(format string, num int) string {
	if strings.Contains(format, "%") {
		return fmt.Sprintf(format, num)
	}
	return format
}

// Seal makes all checksums of files right, as far as what they cover can be
// made out, in place: those of frames, of the index and of footers, those that
// manifests have of tables, of chunks and headers of logs, and that of CURRENT.
func Seal(files map[string][]byte) {
	sums := map[uint32]uint32{} // of footers, by what they were
	for name, b := range files {
		if path.Ext(name) == ".sst" {
			sealTable(b, sums)
		}
	}
	for name, b := range files {
		switch {
		case strings.HasPrefix(name, "MANIFEST"):
			for old, sum := range sums {
				for i := range len(b) - 3 {
					if binary.LittleEndian.Uint32(b[i:]) == old {
						put(b[i:], sum)
					}
				}
			}
			if len(b) >= logHeaderLen {
				put(b[36:], codec.ChecksumOf('M', b[:36]))
			}
			sealLog(b)
		case path.Ext(name) == ".wal":
			if len(b) >= logHeaderLen {
				put(b[12:], codec.ChecksumOf('w', b[16:logHeaderLen]))
			}
			sealLog(b)
		case strings.HasPrefix(name, "CURRENT"):
			if i := bytes.LastIndexByte(b, ' ') + 1; i > 0 {
				files[name] = fmt.Appendf(b[:i:i], "%08x\n", codec.ChecksumOf('C', b[:i]))
			}
		}
	}
}

var put = binary.LittleEndian.PutUint32

const (
	logHeaderLen = 40
	chunkHead    = 16
	footerLen    = 96
	frameTail    = 5
	rawIndex     = 1 << 4 // type byte of an index that is not compressed
)

func sealLog(b []byte) {
	for at := logHeaderLen; at+chunkHead <= len(b); {
		n := int(binary.LittleEndian.Uint32(b[at+4:]) & 0xffffff)
		if n > len(b)-at-chunkHead {
			return
		}
		chunk := b[at : at+chunkHead+n]
		put(chunk, codec.ChecksumOf(chunk[7], chunk[4:])^uint32(at))
		at += len(chunk)
	}
}

func sealTable(b []byte, sums map[uint32]uint32) {
	if len(b) < footerLen {
		return
	}
	footer := b[len(b)-footerLen:]
	old := binary.LittleEndian.Uint32(footer[84:])
	for h := 0; h < 80; h += 20 {
		offset, length := binary.LittleEndian.Uint64(footer[h:]), binary.LittleEndian.Uint64(footer[h+8:])
		if offset > uint64(len(b)) || length > uint64(len(b))-offset || length < frameTail {
			continue
		}
		frame := b[offset : offset+length]
		if frame[length-frameTail] == rawIndex {
			sealBlocks(b, frame[:length-frameTail])
		}
		put(footer[h+16:], sealFrame(frame))
	}
	sum := codec.Checksum(0xf0, footer[:84], footer[88:])
	put(footer[84:], sum)
	sums[old] = sum
}

// sealBlocks seals the data blocks of an index, and tells it.
func sealBlocks(b, index []byte) {
	if len(index) < 12 {
		return
	}
	n, prefix := uint64(binary.LittleEndian.Uint32(index)), uint64(binary.LittleEndian.Uint32(index[4:]))
	if n > uint64(len(b)) || 12+prefix+8*n > uint64(len(index)) {
		return
	}
	lengths, at := index[12+prefix:], uint64(0)
	for i := range n {
		length := uint64(binary.LittleEndian.Uint32(lengths[4*i:]))
		if length < frameTail || length > uint64(len(b))-at {
			return
		}
		put(lengths[4*(n+i):], sealFrame(b[at:at+length]))
		at += length
	}
}

func sealFrame(frame []byte) uint32 {
	n := len(frame) - frameTail
	sum := codec.ChecksumOf(frame[n], frame[:n])
	put(frame[n+1:], sum)
	return sum
}
