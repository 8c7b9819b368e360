package itertest

import (
	"bytes"

	"sievedb/internal/iter"
	"sievedb/internal/keys"
)

// Blocks is a Poisoned over entries that lie in blocks of the same number of
// them, as those of a table do: within a block it is a Leaf, which it lends.
type Blocks struct {
	*Poisoned
	s        *Slice
	perBlock int
	lent     bool
	reverse  bool
	bound    []byte
	steps    int
}

var (
	_ iter.Leaf   = (*Blocks)(nil)
	_ iter.Lender = (*Blocks)(nil)
)

// notLent is shown by steps of a leaf that was not lent for them.
var notLent = []byte("a step of a leaf that was not lent")

// NewBlocks returns an iterator over the entries of s. Requires: perBlock > 0.
func NewBlocks(s *Slice, perBlock int) *Blocks {
	return &Blocks{Poisoned: NewPoisoned(s), s: s, perBlock: perBlock}
}

// Steps returns how many steps the leaf made.
func (b *Blocks) Steps() int { return b.steps }

// Lend implements iter.Lender.
func (b *Blocks) Lend(bound []byte, reverse bool) iter.Leaf {
	b.lent, b.bound, b.reverse = true, bound, reverse
	return b
}

// First implements iter.Iterator.
func (b *Blocks) First() bool { return b.end().First() }

// Last implements iter.Iterator.
func (b *Blocks) Last() bool { return b.end().Last() }

// SeekGE implements iter.Iterator.
func (b *Blocks) SeekGE(userKey []byte, trailer keys.Trailer) bool {
	return b.end().SeekGE(userKey, trailer)
}

// SeekLT implements iter.Iterator.
func (b *Blocks) SeekLT(userKey []byte, trailer keys.Trailer) bool {
	return b.end().SeekLT(userKey, trailer)
}

// Next implements iter.Iterator.
func (b *Blocks) Next() bool { return b.end().Next() }

// Prev implements iter.Iterator.
func (b *Blocks) Prev() bool { return b.end().Prev() }

// end ends the loan.
func (b *Blocks) end() *Poisoned {
	b.lent = false
	return b.Poisoned
}

// NextPut implements iter.Leaf.
func (b *Blocks) NextPut(snapshot keys.SeqNum) (userKey, value []byte, ok bool) {
	if !b.lent || b.reverse {
		return notLent, nil, true
	}
	k, ok := b.near(b.s.pos + 1)
	if !ok || bytes.Equal(k.UserKey, b.s.Key().UserKey) || b.bound != nil && bytes.Compare(k.UserKey, b.bound) >= 0 {
		return nil, nil, false
	}
	return b.show(k, snapshot, b.Poisoned.Next)
}

// PrevPut implements iter.Leaf.
func (b *Blocks) PrevPut(snapshot keys.SeqNum) (userKey, value []byte, ok bool) {
	if !b.Alone() {
		return notLent, nil, true
	}
	k, ok := b.near(b.s.pos - 1)
	if !ok || !b.alone(b.s.pos-1) {
		return nil, nil, false
	}
	return b.show(k, snapshot, b.Poisoned.Prev)
}

// show moves to k by step if that is a put and visible.
func (b *Blocks) show(k keys.InternalKey, snapshot keys.SeqNum, step func() bool) (userKey, value []byte, ok bool) {
	if k.Trailer.Kind() != keys.KindPut || !k.Trailer.Visible(snapshot) {
		return nil, nil, false
	}
	b.steps++
	step()
	return b.key, b.value, true
}

// Alone implements iter.Leaf.
func (b *Blocks) Alone() bool { return b.lent && b.reverse && b.alone(b.s.pos) }

func (b *Blocks) alone(pos int) bool {
	k := b.s.entries[pos].Key.UserKey
	before, ok := b.near(pos - 1)
	return ok && !bytes.Equal(before.UserKey, k) && (b.bound == nil || bytes.Compare(k, b.bound) > 0)
}

// near returns the key at pos if it is in the block of the current one.
func (b *Blocks) near(pos int) (keys.InternalKey, bool) {
	if pos < 0 || pos >= len(b.s.entries) || pos/b.perBlock != b.s.pos/b.perBlock {
		return keys.InternalKey{}, false
	}
	return b.s.entries[pos].Key, true
}
