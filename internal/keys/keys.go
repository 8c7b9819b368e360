// Package keys defines sequence numbers, entry kinds, internal keys and their
// order. Everything else in the store sorts by what is written here.
//
// An internal key is a user key followed by an eight-byte trailer that packs
// the sequence number and the kind. Internal keys order by user key ascending
// (bytewise), then by trailer descending, so that the newest version of a user
// key comes first:
//
//	keys.Compare(a, b) < 0 // a is met before b in every run
//
// All functions are pure and safe for concurrent use.
package keys

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
)

// SeqNum numbers one entry of one write. It has 56 bits; zero is the number of
// entries that compaction proved to be older than every snapshot.
type SeqNum uint64

// MaxSeqNum is the largest sequence number that a trailer can hold.
const MaxSeqNum SeqNum = 1<<56 - 1

// FileNum names a file of the store. It is never reused within one store.
type FileNum uint64

// Kind says what an entry does to its key.
type Kind uint8

// On disk: do not renumber. Zero is never written, so that zeroed bytes are
// not an entry. A range delete is in logs and memtables only: tables keep theirs
// apart from their entries. Kinds beyond it are reserved: their numbers are part
// of the format from the first day, and a reader that meets one that it does
// not implement reports it instead of guessing.
const (
	KindPut         Kind = 1
	KindDelete      Kind = 2
	KindRangeDelete Kind = 3
	KindMerge       Kind = 4
	KindPutExpiry   Kind = 5

	// KindSeek is the largest kind. A search key carries it so that it sorts
	// before every entry of the same user key and sequence number. It is
	// never written.
	KindSeek Kind = 0xff
)

// Point reports whether k is a kind that this version of the store can hold
// as an entry of a single key.
func (k Kind) Point() bool { return k == KindPut || k == KindDelete }

// String names the kind as the documentation does.
func (k Kind) String() string {
	switch k {
	case KindPut:
		return "put"
	case KindDelete:
		return "delete"
	case KindRangeDelete:
		return "range delete"
	case KindMerge:
		return "merge"
	case KindPutExpiry:
		return "put-with-expiry"
	case KindSeek:
		return "seek"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Trailer packs a sequence number (upper 56 bits) and a kind (lower 8).
type Trailer uint64

// TrailerLen is the encoded length of a trailer, in bytes.
const TrailerLen = 8

// MakeTrailer packs seq and kind. Requires: seq <= MaxSeqNum.
func MakeTrailer(seq SeqNum, kind Kind) Trailer {
	return Trailer(uint64(seq)<<8 | uint64(kind))
}

// SeekTrailer is the trailer of a search key that finds the newest version
// visible at seq.
func SeekTrailer(seq SeqNum) Trailer { return MakeTrailer(seq, KindSeek) }

// SeqNum returns the sequence number.
func (t Trailer) SeqNum() SeqNum { return SeqNum(t >> 8) }

// Kind returns the kind.
func (t Trailer) Kind() Kind { return Kind(t) }

// Visible reports whether an entry with this trailer can be seen at snapshot.
func (t Trailer) Visible(snapshot SeqNum) bool { return t.SeqNum() <= snapshot }

// String prints "seq,kind".
func (t Trailer) String() string { return fmt.Sprintf("%d,%s", t.SeqNum(), t.Kind()) }

// InternalKey is a user key and its trailer, apart: hot paths compare and copy
// user keys without touching the trailer. The slice belongs to whoever made it.
type InternalKey struct {
	UserKey []byte
	Trailer Trailer
}

// Make returns the internal key of a user key, which it does not copy.
func Make(userKey []byte, seq SeqNum, kind Kind) InternalKey {
	return InternalKey{UserKey: userKey, Trailer: MakeTrailer(seq, kind)}
}

// Compare orders internal keys: user key ascending, trailer descending.
func Compare(a, b InternalKey) int {
	if c := bytes.Compare(a.UserKey, b.UserKey); c != 0 {
		return c
	}
	return CompareTrailers(a.Trailer, b.Trailer)
}

// CompareTrailers orders the trailers of equal user keys: descending.
func CompareTrailers(a, b Trailer) int {
	switch {
	case a > b:
		return -1
	case a < b:
		return 1
	}
	return 0
}

// Clone returns a copy that shares no memory with k.
func (k InternalKey) Clone() InternalKey {
	return InternalKey{UserKey: bytes.Clone(k.UserKey), Trailer: k.Trailer}
}

// String prints the key as `"user"#seq,kind`.
func (k InternalKey) String() string { return fmt.Sprintf("%q#%s", k.UserKey, k.Trailer) }

// Prefix8 returns the first eight bytes of key, big-endian and padded with
// zeros, so that Prefix8(a) < Prefix8(b) implies a < b. Equal prefixes decide
// nothing: callers fall back to a full compare.
func Prefix8(key []byte) uint64 {
	if len(key) >= 8 {
		return binary.BigEndian.Uint64(key)
	}
	return prefixOf(key)
}

// prefixOf is Prefix8 of a key shorter than eight bytes, as it is where keys share
// most of theirs. Two reads that overlap take the place of a loop.
func prefixOf(key []byte) uint64 {
	n := len(key)
	behind := 64 - 8*uint(n)
	switch {
	case n >= 4:
		return uint64(binary.BigEndian.Uint32(key))<<32 | uint64(binary.BigEndian.Uint32(key[n-4:]))<<behind
	case n >= 2:
		return uint64(binary.BigEndian.Uint16(key))<<48 | uint64(binary.BigEndian.Uint16(key[n-2:]))<<behind
	case n == 1:
		return uint64(key[0]) << 56
	}
	return 0
}

// LowerBound returns the position of the first element of ascending that is not
// below v, len(ascending) if all are. Which way a search turns no branch
// predictor knows, so it has no branch for that.
func LowerBound(ascending []uint64, v uint64) int {
	lo, n := 0, len(ascending)
	for n > 0 {
		half := (n + 1) / 2
		_, below := bits.Sub64(ascending[lo+half-1], v, 0)
		lo += half & -int(below)
		n -= half
	}
	return lo
}

// CommonPrefixLen returns the length of the longest common prefix of a and b.
func CommonPrefixLen(a, b []byte) int {
	n := min(len(a), len(b))
	i := 0
	for ; i+8 <= n; i += 8 {
		if binary.LittleEndian.Uint64(a[i:]) != binary.LittleEndian.Uint64(b[i:]) {
			break
		}
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}

// Separator appends to dst a short user key s with a <= s < b, for use as the
// index key between two blocks. Requires: a < b. (The rule of LevelDB's
// FindShortestSeparator: cut after the first differing byte and increment it
// where that stays below b.)
func Separator(dst, a, b []byte) []byte {
	n := CommonPrefixLen(a, b)
	if n < len(a) && n < len(b) && a[n] < 0xff && a[n]+1 < b[n] {
		dst = append(dst, a[:n]...)
		return append(dst, a[n]+1)
	}
	return append(dst, a...)
}
