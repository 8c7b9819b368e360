package sstable

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"sync/atomic"
	"unsafe"

	"sievedb/internal/corrupt"
	"sievedb/internal/keys"
)

// Index: the payload of the index block. All integers are little-endian.
//
//	 0 +------------------------------+
//	   | n u32 | p u32 | k u32        |  n: data blocks; none of range tombstones alone
//	12 +------------------------------+
//	   | prefix            p bytes    |  what all separators begin with
//	   | frame lengths     n × u32    |  of the data blocks, which follow one
//	   | frame checksums   n × u32    |  another from offset 0
//	   | separator ends    n × u32    |  ascending within the separators
//	   | separators        k bytes    |  less the prefix
//	   +------------------------------+
//
// Block i holds the user keys above separator i-1 and up to separator i, which
// the last block's last user key is. Separators ascend; two are equal only if
// the versions of one user key go on from block to block.

const indexHeaderLen = 12

// indexBuilder collects one entry per finished data block.
type indexBuilder struct {
	lengths, sums, ends []uint32
	separators          []byte
}

// add appends an entry. separator is copied.
func (b *indexBuilder) add(separator []byte, length, sum uint32) error {
	if len(b.separators) > math.MaxInt32-MaxUserKeyLen || len(b.ends) >= math.MaxInt32/16 {
		return fmt.Errorf("sstable: table too large: %d data blocks", len(b.ends))
	}
	b.separators = append(b.separators, separator...)
	b.ends = append(b.ends, uint32(len(b.separators)))
	b.lengths = append(b.lengths, length)
	b.sums = append(b.sums, sum)
	return nil
}

func (b *indexBuilder) sizeBytes() int { return indexHeaderLen + 12*len(b.ends) + len(b.separators) }

func (b *indexBuilder) separator(i int) []byte {
	start := uint32(0)
	if i > 0 {
		start = b.ends[i-1]
	}
	return b.separators[start:b.ends[i]]
}

// finish appends the payload to dst.
func (b *indexBuilder) finish(dst []byte) []byte {
	n := len(b.ends)
	var prefix []byte
	if n > 0 {
		prefix = b.separator(0)[:keys.CommonPrefixLen(b.separator(0), b.separator(n-1))]
	}
	p := len(prefix)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(n))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(p))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(b.separators)-n*p))
	dst = append(dst, prefix...)
	for _, v := range b.lengths {
		dst = binary.LittleEndian.AppendUint32(dst, v)
	}
	for _, v := range b.sums {
		dst = binary.LittleEndian.AppendUint32(dst, v)
	}
	for i, v := range b.ends {
		dst = binary.LittleEndian.AppendUint32(dst, v-uint32((i+1)*p))
	}
	for i := range n {
		dst = append(dst, b.separator(i)[p:]...)
	}
	return dst
}

// index is the resident form: flat arrays without pointers, so that a search
// touches few cache lines and the garbage collector none. It is an interpolation
// search, but binary where separators are not spread evenly. Immutable but for the
// hints, which lie apart from the places because that is all that a lookup of a
// cached block waits for.
type index struct {
	prefix     []byte
	digits     alphabet
	numbers    []uint64 // of the separators less the prefix, in digits
	spread     spread   // of numbers
	separators []byte   // as on disk
	blocks     []place  // n+1: the last one begins where everything ends
	hints      []atomic.Uint64
}

// place is where a block is: all of it in one cache line, as a rule.
type place struct {
	offset    uint64 // where its frame begins, and that of the block before it ends
	sum       uint32 // of the frame
	separator uint32 // where its separator begins, and that of the block before it ends
}

// readIndex decodes the payload of an index block whose data blocks end at
// dataEnd. The result shares no memory with it.
func readIndex(p []byte, dataEnd uint64) (*index, error) {
	if len(p) < indexHeaderLen {
		return nil, corrupt.At(0, "index", fmt.Sprintf("at least %d bytes", indexHeaderLen), len(p))
	}
	n := uint64(binary.LittleEndian.Uint32(p))
	prefixLen := uint64(binary.LittleEndian.Uint32(p[4:]))
	sepLen := uint64(binary.LittleEndian.Uint32(p[8:]))
	if indexHeaderLen+prefixLen+12*n+sepLen != uint64(len(p)) {
		return nil, corrupt.At(0, "index sections", fmt.Sprintf("%d bytes", len(p)),
			fmt.Sprintf("%d + %d + 12 × %d + %d", indexHeaderLen, prefixLen, n, sepLen))
	}
	count := int(n)
	x := &index{
		prefix:  bytes.Clone(p[indexHeaderLen : indexHeaderLen+prefixLen]),
		numbers: make([]uint64, count),
		blocks:  make([]place, count+1),
		hints:   make([]atomic.Uint64, count),
	}
	lengths := p[indexHeaderLen+prefixLen:]
	sums, ends := lengths[4*n:], lengths[8*n:]
	x.separators = bytes.Clone(lengths[12*n:])
	for i := range count {
		b, next := &x.blocks[i], &x.blocks[i+1]
		length := binary.LittleEndian.Uint32(lengths[4*i:])
		next.offset = b.offset + uint64(length)
		b.sum = binary.LittleEndian.Uint32(sums[4*i:])
		next.separator = binary.LittleEndian.Uint32(ends[4*i:])
		at := int64(len(p)-len(lengths)) + int64(4*i)
		if length <= frameTailLen || length > math.MaxInt32 || next.offset > dataEnd {
			return nil, corrupt.At(at, "data block length", fmt.Sprintf("blocks up to %d", dataEnd), length)
		}
		if next.separator < b.separator || uint64(next.separator) > sepLen {
			return nil, corrupt.At(at+8*int64(n), "separator end", fmt.Sprintf("%d to %d", b.separator, sepLen), next.separator)
		}
		if i > 0 && bytes.Compare(x.separator(i-1), x.separator(i)) > 0 {
			return nil, corrupt.At(at+8*int64(n), "separator order", "ascending", fmt.Sprintf("%q", x.separator(i)))
		}
	}
	end := &x.blocks[count]
	if end.offset != dataEnd || uint64(end.separator) != sepLen || count == 0 && sepLen+prefixLen > 0 {
		return nil, corrupt.At(0, "index", fmt.Sprintf("data blocks up to %d", dataEnd), fmt.Sprintf("up to %d", end.offset))
	}
	x.digits = newAlphabet(count, x.separator)
	for i := range x.numbers {
		x.numbers[i] = x.digits.number(x.separator(i))
	}
	x.spread = newSpread(x.numbers)
	return x, nil
}

// n returns the number of data blocks.
func (x *index) n() int { return len(x.numbers) }

// sizeBytes is what the index keeps in memory.
func (x *index) sizeBytes() int64 {
	return int64(unsafe.Sizeof(*x)) + int64(len(x.prefix)+len(x.separators)+16*len(x.numbers)) + int64(len(x.blocks))*int64(unsafe.Sizeof(place{}))
}

// separator returns separator i less the prefix.
func (x *index) separator(i int) []byte {
	return x.separators[x.blocks[i].separator:x.blocks[i+1].separator]
}

// find returns the first block whose separator is at or after userKey, the
// only one with userKey's newest version; n if all of the table is before it.
// at is about where in the block that would be, from 0 to 1, or negative if
// there is no telling.
func (x *index) find(userKey []byte) (block int, at float64) {
	p := len(x.prefix)
	if len(userKey) < p || string(userKey[:p]) != string(x.prefix) {
		if bytes.Compare(userKey, x.prefix) < 0 {
			return 0, -1
		}
		return x.n(), -1
	}
	rest := userKey[p:]
	number := x.digits.number(rest)
	lo, hi := x.spread.near(x.numbers, number)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if x.numbers[mid] < number {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	// Equal numbers decide nothing: compare in full among those.
	if lo == x.n() || x.numbers[lo] != number || bytes.Compare(x.separator(lo), rest) >= 0 {
		return lo, x.within(lo, number)
	}
	lo, hi = lo+1, x.n()
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if x.numbers[mid] == number && bytes.Compare(x.separator(mid), rest) < 0 {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, -1
}

// within returns how far the number is from the separator before block to its own, 0 to 1,
// or negative if that says nothing about where in the block its key is.
func (x *index) within(block int, number uint64) float64 {
	if !x.spread.even || block == 0 || block == x.n() || x.numbers[block-1] == x.numbers[block] {
		return -1
	}
	from, to := x.numbers[block-1], x.numbers[block]
	return float64(number-from) / float64(to-from)
}

// compare compares separator i with userKey, whose first bytes decide as a rule,
// without the separator, which is likely to be in no cache.
func (x *index) compare(i int, userKey []byte) int {
	n := min(len(x.prefix), len(userKey))
	if c := bytes.Compare(x.prefix, userKey[:n]); c != 0 {
		return c
	}
	rest := userKey[n:]
	if c := cmp.Compare(x.numbers[i], x.digits.number(rest)); c != 0 {
		return c
	}
	return bytes.Compare(x.separator(i), rest)
}

// endsWith reports whether separator i is userKey: only then can block i+1
// hold more of its versions.
func (x *index) endsWith(i int, userKey []byte) bool {
	p, s := len(x.prefix), x.separator(i)
	return len(userKey) == p+len(s) && string(userKey[p:]) == string(s) && string(userKey[:p]) == string(x.prefix)
}

// frame returns where block i's frame lies.
func (x *index) frame(i int) handle {
	b := &x.blocks[i]
	return handle{offset: b.offset, length: x.blocks[i+1].offset - b.offset, sum: b.sum}
}
