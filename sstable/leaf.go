package sstable

import (
	"bytes"

	"sievedb/internal/iter"
	"sievedb/internal/keys"
)

// Lend implements iter.Lender: an Iter lends itself, for steps within the block.
func (i *Iter) Lend(bound []byte, reverse bool) iter.Leaf {
	i.bound = nil
	if bound == nil {
		return i
	}
	rest, side := i.b.Rest(bound)
	switch {
	case side == 0:
		i.bound = rest
	case side < 0 != reverse: // no entry of the block is on this side
		return nil
	}
	return i
}

// NextPut implements iter.Leaf.
func (i *Iter) NextPut(snapshot keys.SeqNum) (userKey, value []byte, ok bool) {
	n := i.entry + 1
	if n >= i.b.Len() {
		return nil, nil, false
	}
	suffix, trailer, valueOff := i.b.Entry(n)
	if trailer.Kind() != keys.KindPut || !trailer.Visible(snapshot) {
		return nil, nil, false
	}
	// Versions of a user key come in descending order of trailers.
	if trailer < i.key.Trailer && bytes.Equal(suffix, i.key.UserKey[len(i.b.Prefix()):]) {
		return nil, nil, false
	}
	if i.bound != nil && bytes.Compare(suffix, i.bound) >= 0 {
		return nil, nil, false
	}
	i.set(n, suffix, trailer, valueOff)
	return i.key.UserKey, i.b.Value(n, valueOff), true
}

// PrevPut implements iter.Leaf.
func (i *Iter) PrevPut(snapshot keys.SeqNum) (userKey, value []byte, ok bool) {
	n := i.entry - 1
	if n < 0 {
		return nil, nil, false
	}
	suffix, trailer, valueOff := i.b.Entry(n)
	if trailer.Kind() != keys.KindPut || !trailer.Visible(snapshot) || !i.alone(n, suffix, trailer) {
		return nil, nil, false
	}
	i.set(n, suffix, trailer, valueOff)
	return i.key.UserKey, i.b.Value(n, valueOff), true
}

// Alone implements iter.Leaf.
func (i *Iter) Alone() bool {
	return i.alone(i.entry, i.key.UserKey[len(i.b.Prefix()):], i.key.Trailer)
}

func (i *Iter) alone(n int, suffix []byte, trailer keys.Trailer) bool {
	if n == 0 || i.bound != nil && bytes.Compare(suffix, i.bound) <= 0 {
		return false
	}
	before, newer, _ := i.b.Entry(n - 1)
	return newer <= trailer || !bytes.Equal(before, suffix)
}

// Block implements iter.Blocks, if the iterator reads past the cache.
func (i *Iter) Block() iter.Block {
	if i.fetch.stored == nil {
		return iter.Block{}
	}
	return iter.Block{
		Data: i.b.Data(), Frame: i.fetch.stored, Compression: uint8(i.r.props.Compression),
		SizeBytes: i.r.props.BlockSizeBytes, Left: i.b.Len() - 1 - i.entry,
	}
}

// Whole implements iter.Blocks.
func (i *Iter) Whole(bound []byte) bool {
	if i.entry > 0 || bound == nil {
		return i.entry == 0
	}
	rest, side := i.b.Rest(bound)
	if side != 0 {
		return side > 0
	}
	last, _, _ := i.b.Entry(i.b.Len() - 1)
	return bytes.Compare(last, rest) < 0
}
