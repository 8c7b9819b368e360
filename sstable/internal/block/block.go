// Package block encodes and searches data blocks: a few kilobytes of entries of
// a table, in order.
//
//	var b block.Builder
//	b.Reset(4096)
//	b.Add(userKey, trailer, value, byte(filter.Hash(userKey)))
//	data := b.Finish(nil)
//
//	err := block.Validate(data) // once
//	v := block.Of(data)         // as often as needed
//	value, trailer, ok := v.Get(userKey, byte(filter.Hash(userKey)), snapshot)
//
// A View never writes and is safe for concurrent use as long as nobody changes
// its bytes; what it returns aliases them. A Builder is for one goroutine.
package block

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"unsafe"

	"sievedb/internal/corrupt"
	"sievedb/internal/keys"
	"sievedb/internal/prefetch"
)

// Data block: the entries of a small range of keys, in order, made for one
// random lookup. All integers are little-endian.
//
//	    0 +-----------------------------+
//	      | entry 0                     |  suffix length  uvarint
//	      | …                           |  trailer        uvarint
//	      | entry n-1                   |  suffix         user key less the prefix
//	      |                             |  value          up to the next entry
//	    e +-----------------------------+
//	      | prefix            p bytes   |  what all user keys begin with
//	  e+p +-----------------------------+
//	      | tags              n × u8    |  low byte of filter.Hash(user key)
//	e+p+n +-----------------------------+
//	      | entry offsets     n × u16   |  ascending; the first is 0
//	  s-8 +-----------------------------+
//	      | e u32 | p u16 | n u16       |  n >= 1
//	    s +-----------------------------+
//
// A point lookup scans the tags eight at a time and compares the full key of
// the few that match, one as a rule; a seek is a binary search over the
// offsets; stepping back is as cheap as stepping on. The usual alternative
// (LevelDB: each key against the one before it, restarts every 16) decodes
// half a restart interval on each lookup; docs/decisions/0001-data-block.md has the figures.
//
// The prefix lies beside the tags, not at the front, so that a lookup touches
// one stretch of memory before the entry itself.

// ErrUnsupported marks what is not damaged but unknown to this version of the
// store.
var ErrUnsupported = fmt.Errorf("%w: table needs a later version of the store", corrupt.ErrFormat)

const (
	// MaxUserKeyLen bounds a user key, in bytes.
	MaxUserKeyLen = 65536
	// MaxValueLen bounds a value, in bytes.
	MaxValueLen = 1 << 30
	// MaxSizeBytes bounds the block size: an entry starts below
	// the block size, and its offset is a u16.
	MaxSizeBytes = 32 << 10

	blockTailLen   = 8
	maxPrefixLen   = 1<<16 - 1
	maxEntryHeader = 2 * binary.MaxVarintLen64
	// MaxLen bounds, in bytes, a decoded data block: a full block of entries, a last
	// entry of any size, the prefix, tags and offsets.
	MaxLen = MaxSizeBytes + MaxUserKeyLen + MaxValueLen + maxEntryHeader +
		maxPrefixLen + 3*MaxSizeBytes + blockTailLen

	// aheadBytes is how much of an entry is prefetched when its tag matches: a few
	// cache lines, behind which the processor goes on by itself.
	aheadBytes = 256

	lowBits  = 0x7f7f7f7f7f7f7f7f
	highBits = 0x8080808080808080
	allBytes = 0x0101010101010101
)

// View is a view of a decoded data block that passed Validate. It holds no
// memory of its own, and its methods trust the bytes.
type View struct {
	data    []byte
	prefix  []byte
	offsets []byte // n × u16
	tags    int    // where the tags begin in data
	entries int    // bytes of entries, where the prefix begins
	n       int
}

// Of returns the view of a block that is known to be valid.
func Of(data []byte) View {
	tail := len(data) - blockTailLen
	t := binary.LittleEndian.Uint64(data[tail:])
	b := View{data: data, entries: int(uint32(t)), n: int(t >> 48)}
	b.tags = b.entries + int(t>>32&0xffff)
	b.prefix = data[b.entries:b.tags]
	b.offsets = data[b.tags+b.n : tail]
	return b
}

// Validate checks a decoded data block completely, once, when it is loaded, so
// that lookups need no bounds errors of their own. It returns a *corrupt.Error
// with an offset in data, or ErrUnsupported for a kind of a later version. The
// tags alone are taken on trust (they need a hash each, and the checksum
// covers them); Reader.Verify checks those.
func Validate(data []byte) error {
	if len(data) < blockTailLen+3 || len(data) > MaxLen {
		return corrupt.At(0, "data block length", fmt.Sprintf("%d to %d", blockTailLen+3, MaxLen), len(data))
	}
	tail := len(data) - blockTailLen
	entries := uint64(binary.LittleEndian.Uint32(data[tail:]))
	prefixLen := uint64(binary.LittleEndian.Uint16(data[tail+4:]))
	n := uint64(binary.LittleEndian.Uint16(data[tail+6:]))
	if n == 0 || entries+prefixLen+3*n != uint64(tail) {
		return corrupt.At(int64(tail), "data block sections",
			fmt.Sprintf("%d bytes, at least one entry", tail),
			fmt.Sprintf("%d + %d + 3 × %d", entries, prefixLen, n))
	}
	b := Of(data)
	last, lastHead := 0, uint64(0)
	for i, off := 0, 0; i < b.n; i++ {
		end := b.end(i)
		if off >= end || end > b.entries || i == 0 && b.offset(0) != 0 {
			return corrupt.At(int64(b.tags+b.n+2*i), "entry offset", "ascending from 0 within the entries", b.offset(i))
		}
		head, ok := b.plainEntry(off, end)
		if !ok || head <= lastHead {
			var err error
			if head, err = b.checkOrder(last, off, end, i); err != nil {
				return err
			}
		}
		last, lastHead, off = off, head, end
	}
	return nil
}

// plainEntry parses the entry from off to end as far as most of them need it, and
// returns the Prefix8 of its suffix. ok is false if it takes more than that to tell
// whether the entry is one. Bytes follow end, more than eight.
func (v *View) plainEntry(off, end int) (head uint64, ok bool) {
	x := binary.LittleEndian.Uint64(v.data[off:])
	n, kind := int(x&0xff), keys.Kind(x>>8&0x7f)
	if (x>>15)&(x>>16)&1 != 0 { // the trailer has a second byte, and with it a kind above 127
		return 0, false
	}
	ends := ^x & highBits &^ 0xff // which of the trailer's bytes may be its last
	from := off + bits.TrailingZeros64(ends)>>3 + 1
	if n > min(0x7f, MaxUserKeyLen-len(v.prefix)) || from+n > end || kind != keys.KindPut && kind != keys.KindDelete || ends == 0 {
		return 0, false
	}
	return keys.Prefix8(v.data[from : from+n]), true
}

// checkOrder checks entry i, which reaches from off to end and of which nothing is
// known, and that it comes after the one at last, which was checked. It returns
// the Prefix8 of its suffix.
func (v *View) checkOrder(last, off, end, i int) (head uint64, err error) {
	suffix, trailer, err := checkEntry(v.data[off:end], v.prefix)
	if err != nil {
		return 0, corrupt.In(err, "", int64(off))
	}
	if i > 0 {
		lastSuffix, lastTrailer, _ := checkEntry(v.data[last:off], v.prefix)
		c := bytes.Compare(lastSuffix, suffix)
		if c > 0 || c == 0 && lastTrailer <= trailer {
			return 0, corrupt.At(int64(off), "entry order", "ascending internal keys",
				fmt.Sprintf("%q#%s after %q#%s", suffix, trailer, lastSuffix, lastTrailer))
		}
	}
	return keys.Prefix8(suffix), nil
}

// checkEntry parses one entry that nothing is known of.
func checkEntry(e, prefix []byte) (suffix []byte, trailer keys.Trailer, err error) {
	suffixLen, k := binary.Uvarint(e)
	if k <= 0 || suffixLen > uint64(MaxUserKeyLen-len(prefix)) {
		return nil, 0, corrupt.At(0, "suffix length", fmt.Sprintf("at most %d", MaxUserKeyLen-len(prefix)), suffixLen)
	}
	t, m := binary.Uvarint(e[k:])
	if m <= 0 {
		return nil, 0, corrupt.At(int64(k), "trailer", "a varint of at most 64 bits", "none")
	}
	k += m
	if suffixLen > uint64(len(e)-k) {
		return nil, 0, corrupt.At(int64(k), "suffix", fmt.Sprintf("%d bytes", suffixLen), fmt.Sprintf("%d left", len(e)-k))
	}
	trailer = keys.Trailer(t)
	if err := checkKind(trailer.Kind()); err != nil {
		return nil, 0, err
	}
	return e[k : k+int(suffixLen)], trailer, nil
}

func checkKind(k keys.Kind) error {
	switch k {
	case keys.KindPut, keys.KindDelete:
		return nil
	case keys.KindRangeDelete, keys.KindMerge, keys.KindPutExpiry:
		return fmt.Errorf("%w: an entry of kind %s", ErrUnsupported, k)
	}
	return corrupt.At(0, "entry kind", "put or delete", k.String())
}

// uvarint decodes a varint that is known to be whole, at a place in a block that
// at least eight bytes follow.
func uvarint(data []byte, off int) (v uint64, next int) {
	x := binary.LittleEndian.Uint64(data[off:])
	if x&0x80 == 0 {
		return x & 0x7f, off + 1
	}
	return uvarint8(data, off, x)
}

// uvarint8 is uvarint for the eight bytes x at off, of which the first is not the
// last. It has no loop over the bytes, whose number no branch predictor knows:
// trailers have four to six.
func uvarint8(data []byte, off int, x uint64) (v uint64, next int) {
	ends := ^x & highBits
	if ends == 0 { // nine or ten bytes
		v, n := binary.Uvarint(data[off:])
		return v, off + n
	}
	end := bits.TrailingZeros64(ends) // the high bit of the last byte
	x &= 2<<end - 1
	// Seven bits of each byte, then 14 of two, 28 of four, 56 of eight.
	x = x&0x007f007f007f007f | x&0x7f007f007f007f00>>1
	x = x&0x00003fff00003fff | x&0x3fff00003fff0000>>2
	x = x&0x000000000fffffff | x&0x0fffffff00000000>>4
	return x, off + end>>3 + 1
}

func (v *View) offset(i int) int { return int(binary.LittleEndian.Uint16(v.offsets[2*i:])) }

// end returns where entry i, and with it its value, ends.
func (v *View) end(i int) int {
	if i+1 < v.n {
		return v.offset(i + 1)
	}
	return v.entries
}

// Entry returns entry i's user key less the prefix, its trailer, and where
// its value begins. Like all that a View returns to keep, the suffix has no room
// behind it: users append to the keys and values that an iterator shows, and what
// follows is the next entry.
func (v *View) Entry(i int) (suffix []byte, trailer keys.Trailer, valueOff int) {
	off := v.offset(i)
	x := binary.LittleEndian.Uint64(v.data[off:])
	n, t, off := x&0x7f, x>>8&0x7f, off+2
	if x&0x8080 != 0 { // not one byte each
		n, off = uvarint(v.data, off-2)
		t, off = uvarint(v.data, off)
	}
	valueOff = off + int(n)
	return v.data[off:valueOff:valueOff], keys.Trailer(t), valueOff
}

// Rest strips the prefix from userKey. c tells where userKey lies: 0, it has
// the prefix and may be among the entries; below or above all of them
// otherwise. What is left aliases userKey and is not nil.
func (v *View) Rest(userKey []byte) (rest []byte, c int) {
	p := len(v.prefix)
	if len(userKey) >= p && string(userKey[:p]) == string(v.prefix) {
		return userKey[p:], 0
	}
	return nil, bytes.Compare(userKey, v.prefix)
}

// Get finds the newest entry of userKey that is visible at snapshot. tag is the
// low byte of the key's hash. Versions are adjacent, the newest first, so the
// first visible match is the one. If all of them are newer, ok is false and
// trailer that of the last one, which is not zero.
func (v *View) Get(userKey []byte, tag byte, snapshot keys.SeqNum) (value []byte, trailer keys.Trailer, ok bool) {
	rest, c := v.Rest(userKey)
	if c != 0 {
		return nil, 0, false
	}
	pattern := uint64(tag) * allBytes
	for base := 0; base < v.n; base += 8 {
		// The tags are followed by 2n+8 bytes, so a load of eight is in bounds.
		x := binary.LittleEndian.Uint64(v.data[v.tags+base:]) ^ pattern
		// The high bit of each byte of x that is zero, exactly: unlike the
		// shorter (x-1)&^x, no borrow makes a false match.
		match := ^((x&lowBits + lowBits) | x | lowBits)
		if left := v.n - base; left < 8 {
			match &= 1<<(8*uint(left)) - 1
		}
		for ; match != 0; match &= match - 1 {
			i := base + bits.TrailingZeros64(match)>>3
			// The value is on its way while the key is waited for and compared.
			from, end := v.offset(i), v.end(i)
			prefetch.Lines(unsafe.Pointer(&v.data[from]), uintptr(min(end-from, aheadBytes)))
			suffix, t, valueOff := v.Entry(i)
			if string(suffix) != string(rest) {
				continue
			}
			if t.Visible(snapshot) {
				return v.data[valueOff:end], t, true
			}
			trailer = t
		}
	}
	return nil, trailer, false
}

// SeekGE returns the first entry at or after (userKey, trailer); Len() if there
// is none.
func (v *View) SeekGE(userKey []byte, trailer keys.Trailer) int {
	rest, c := v.Rest(userKey)
	if c < 0 {
		return 0
	}
	if c > 0 {
		return v.n
	}
	lo, hi := 0, v.n
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		suffix, t, _ := v.Entry(mid)
		c := bytes.Compare(suffix, rest)
		if c < 0 || c == 0 && t > trailer {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// LastIs reports whether the last entry's user key is userKey.
func (v *View) LastIs(userKey []byte) bool {
	rest, c := v.Rest(userKey)
	if c != 0 {
		return false
	}
	suffix, _, _ := v.Entry(v.n - 1)
	return string(suffix) == string(rest)
}

// Len returns the number of entries, at least one.
func (v *View) Len() int { return v.n }

// Data returns the block's bytes.
func (v *View) Data() []byte { return v.data }

// Prefix returns what all user keys begin with.
func (v *View) Prefix() []byte { return v.prefix }

// Tag returns entry i's tag.
func (v *View) Tag(i int) byte { return v.data[v.tags+i] }

// Value returns entry i's value, which begins at valueOff, as Entry says.
func (v *View) Value(i, valueOff int) []byte {
	end := v.end(i)
	return v.data[valueOff:end:end]
}
