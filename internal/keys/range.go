package keys

import (
	"bytes"
	"cmp"
	"strconv"
)

// Range is a range of user keys, from Lo on, up to Hi. The empty user key is a
// key like any other and the smallest, and a nil slice means it: a range without
// a lower end has an empty Lo, but one without an upper end needs ToEnd. The zero
// Range holds the empty key only. No range is empty: Lo <= Hi, and Lo < Hi if
// Hi is exclusive.
type Range struct {
	Lo, Hi      []byte
	HiExclusive bool // Hi is not in the range, as the end of a range tombstone
	ToEnd       bool // there is no upper end and Hi does not count
}

// AllKeys returns the range of every user key.
func AllKeys() Range { return Range{ToEnd: true} }

// EndsBefore reports whether all of r lies before key.
func (r Range) EndsBefore(key []byte) bool {
	if r.ToEnd {
		return false
	}
	c := bytes.Compare(r.Hi, key)
	return c < 0 || c == 0 && r.HiExclusive
}

// Contains reports whether key is in r.
func (r Range) Contains(key []byte) bool {
	return bytes.Compare(r.Lo, key) <= 0 && !r.EndsBefore(key)
}

// Overlaps reports whether some user key could be in both ranges.
func (r Range) Overlaps(o Range) bool { return !r.EndsBefore(o.Lo) && !o.EndsBefore(r.Lo) }

// CompareEnds orders ranges by their ends alone.
func (r Range) CompareEnds(o Range) int {
	if r.ToEnd || o.ToEnd {
		return cmp.Compare(bit(r.ToEnd), bit(o.ToEnd))
	}
	return cmp.Or(bytes.Compare(r.Hi, o.Hi), cmp.Compare(bit(o.HiExclusive), bit(r.HiExclusive)))
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Union returns the least range that covers r and o. It shares their slices.
func (r Range) Union(o Range) Range {
	u := r
	if r.CompareEnds(o) < 0 {
		u = o
	}
	u.Lo = r.Lo
	if bytes.Compare(o.Lo, r.Lo) < 0 {
		u.Lo = o.Lo
	}
	return u
}

// String prints "[a..b]", "[a..b)" or "[a..)".
func (r Range) String() string {
	lo := "[" + printKey(r.Lo) + ".."
	switch {
	case r.ToEnd:
		return lo + ")"
	case r.HiExclusive:
		return lo + printKey(r.Hi) + ")"
	}
	return lo + printKey(r.Hi) + "]"
}

// printKey prints a user key without quotes, and what is not printable escaped.
func printKey(key []byte) string {
	q := strconv.Quote(string(key))
	return q[1 : len(q)-1]
}
