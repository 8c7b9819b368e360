package memtable

import (
	"encoding/binary"

	"sievedb/internal/keys"
)

// A record holds one entry. It lives in memory only. The first version of a
// user key carries the key; later versions carry links to older ones.
//
//	 0      4        8         16     20         24
//	+------+--------+---------+------+----------+-----+-------+
//	| head | keyLen | trailer |    0 | valueLen | key | value |  first version
//	+------+--------+---------+------+----------+-----+-------+
//	| jump | depth  | trailer | prev | valueLen | value |        later version
//	+------+--------+---------+------+----------+-------+
//
//	head   ref of the user key's newest version; atomic
//	prev   ref of the next older version; zero marks the first version
//	depth  number of older versions
//	jump   ref of some version that is older still, or prev
//
// The jump links are those of Myers, "An applicative random-access stack"
// (Information Processing Letters 17, 1983): they lead from any version to any
// older one in about 2·log2(depth) steps (at most 30 of 10,000). A plain chain
// makes a read at an old snapshot linear in the overwrites since.
type record []byte

const (
	recordKeyLen   = 4
	recordTrailer  = 8
	recordPrev     = 16
	recordValueLen = 20
	recordHeader   = 24
)

// u32 returns the field at off.
func (b record) u32(off int) uint32 { return binary.LittleEndian.Uint32(b[off:]) }

// trailer returns the entry's sequence number and kind.
func (b record) trailer() keys.Trailer {
	return keys.Trailer(binary.LittleEndian.Uint64(b[recordTrailer:]))
}

// prev returns the next older version, or zero.
func (b record) prev() ref { return ref(b.u32(recordPrev)) }

// key returns the user key. Requires: b is a first version.
func (b record) key() []byte {
	end := recordHeader + int(b.u32(recordKeyLen))
	return b[recordHeader:end:end]
}

// value returns the entry's value.
func (b record) value() []byte {
	start := recordHeader
	if b.prev() == 0 {
		start += int(b.u32(recordKeyLen))
	}
	end := start + int(b.u32(recordValueLen))
	return b[start:end:end]
}

// links returns depth and jump of b, the record of r; a first version's jump is
// itself.
func (b record) links(r ref) (depth uint32, jump ref) {
	if b.prev() == 0 {
		return 0, r
	}
	return b.u32(recordKeyLen), ref(b.u32(0))
}

// setHeader writes all of the header but its first word, which is atomic in a
// first version.
func (b record) setHeader(keyLenOrDepth uint32, trailer keys.Trailer, prev ref, value []byte) {
	binary.LittleEndian.PutUint32(b[recordKeyLen:], keyLenOrDepth)
	binary.LittleEndian.PutUint64(b[recordTrailer:], uint64(trailer))
	binary.LittleEndian.PutUint32(b[recordPrev:], uint32(prev))
	binary.LittleEndian.PutUint32(b[recordValueLen:], uint32(len(value)))
}

// addKey writes the first version of a user key.
func (a *arena) addKey(userKey []byte, trailer keys.Trailer, value []byte) (ref, error) {
	r, err := a.alloc(recordHeader + int64(len(userKey)) + int64(len(value)))
	if err != nil {
		return 0, err
	}
	b := a.record(r)
	b.setHeader(uint32(len(userKey)), trailer, 0, value)
	copy(b[recordHeader:], userKey)
	copy(b[recordHeader+len(userKey):], value)
	a.head(r).Store(uint32(r))
	return r, nil
}

// addVersion writes the new newest version of the user key that begins at first.
func (a *arena) addVersion(first ref, trailer keys.Trailer, value []byte) error {
	r, err := a.alloc(recordHeader + int64(len(value)))
	if err != nil {
		return err
	}
	prev := a.newest(first)
	depth, jump := a.record(prev).links(prev)
	jumpDepth, jumpJump := a.record(jump).links(jump)
	jumpJumpDepth, _ := a.record(jumpJump).links(jumpJump)
	link := prev
	if depth-jumpDepth == jumpDepth-jumpJumpDepth {
		link = jumpJump // two equal jumps in a row merge
	}
	b := a.record(r)
	binary.LittleEndian.PutUint32(b, uint32(link))
	b.setHeader(depth+1, trailer, prev, value)
	copy(b[recordHeader:], value)
	a.head(first).Store(uint32(r))
	return nil
}

// newest returns the newest version of the user key that begins at first.
func (a *arena) newest(first ref) ref { return ref(a.head(first).Load()) }

// newestAtMost returns the newest version, among r and those older than r,
// whose trailer is at most bound; zero when there is none.
func (a *arena) newestAtMost(r ref, bound keys.Trailer) ref {
	for {
		b := a.record(r)
		if b.trailer() <= bound {
			return r
		}
		prev := b.prev()
		if prev == 0 {
			return 0
		}
		_, jump := b.links(r)
		if r = prev; jump != prev && a.record(jump).trailer() > bound {
			r = jump
		}
	}
}

// depth returns the number of versions older than r.
func (a *arena) depth(r ref) uint32 {
	depth, _ := a.record(r).links(r)
	return depth
}

// atDepth returns the version, among r and those older than r, that has depth
// older ones. Requires: depth is at most r's.
func (a *arena) atDepth(r ref, depth uint32) ref {
	for {
		b := a.record(r)
		d, jump := b.links(r)
		if d == depth {
			return r
		}
		if r = b.prev(); a.depth(jump) >= depth {
			r = jump
		}
	}
}
