package itertest

import (
	"sievedb/internal/iter"
	"sievedb/internal/keys"
)

// base forwards what the wrappers leave alone. It has no positioning calls, so
// that a wrapper cannot forget one.
type base struct{ in iter.Iterator }

func (b *base) Valid() bool           { return b.in.Valid() }
func (b *base) Key() keys.InternalKey { return b.in.Key() }
func (b *base) Value() []byte         { return b.in.Value() }
func (b *base) Error() error          { return b.in.Error() }
func (b *base) Close() error          { return b.in.Close() }

// Failing fails one positioning call and all that follow.
type Failing struct {
	base
	left   int
	err    error
	failed bool
}

var (
	_ iter.Iterator = (*Failing)(nil)
	_ iter.Lender   = (*Failing)(nil)
)

// NewFailing returns an iterator that behaves like in for the first n
// positioning calls and then fails with err.
func NewFailing(in iter.Iterator, n int, err error) *Failing {
	return &Failing{base: base{in}, left: n, err: err}
}

// First implements iter.Iterator.
func (f *Failing) First() bool { return f.pass() && f.in.First() }

// Last implements iter.Iterator.
func (f *Failing) Last() bool { return f.pass() && f.in.Last() }

// SeekGE implements iter.Iterator.
func (f *Failing) SeekGE(userKey []byte, trailer keys.Trailer) bool {
	return f.pass() && f.in.SeekGE(userKey, trailer)
}

// SeekLT implements iter.Iterator.
func (f *Failing) SeekLT(userKey []byte, trailer keys.Trailer) bool {
	return f.pass() && f.in.SeekLT(userKey, trailer)
}

// Next implements iter.Iterator.
func (f *Failing) Next() bool { return f.pass() && f.in.Next() }

// Prev implements iter.Iterator.
func (f *Failing) Prev() bool { return f.pass() && f.in.Prev() }

// Valid implements iter.Iterator.
func (f *Failing) Valid() bool { return !f.failed && f.in.Valid() }

// Error implements iter.Iterator.
func (f *Failing) Error() error {
	if f.failed {
		return f.err
	}
	return f.in.Error()
}

// Lend implements iter.Lender. Steps of a leaf do not fail.
func (f *Failing) Lend(bound []byte, reverse bool) iter.Leaf {
	if l, ok := f.in.(iter.Lender); ok {
		return l.Lend(bound, reverse)
	}
	return nil
}

// Failed reports whether the failure has happened.
func (f *Failing) Failed() bool { return f.failed }

// pass uses up one positioning call and reports whether it may go on.
func (f *Failing) pass() bool {
	if f.left == 0 {
		f.failed = true
		return false
	}
	f.left--
	return true
}

// Poisoned hands out keys and values in buffers of its own and overwrites them
// at the next positioning call, as a block iterator may: who uses them for too
// long gets garbage.
type Poisoned struct {
	base
	key, value []byte
}

var _ iter.Iterator = (*Poisoned)(nil)

// NewPoisoned returns an iterator over the entries of in.
func NewPoisoned(in iter.Iterator) *Poisoned { return &Poisoned{base: base{in}} }

// First implements iter.Iterator.
func (p *Poisoned) First() bool {
	p.poison()
	return p.fill(p.in.First())
}

// Last implements iter.Iterator.
func (p *Poisoned) Last() bool {
	p.poison()
	return p.fill(p.in.Last())
}

// SeekGE implements iter.Iterator.
func (p *Poisoned) SeekGE(userKey []byte, trailer keys.Trailer) bool {
	p.poison()
	return p.fill(p.in.SeekGE(userKey, trailer))
}

// SeekLT implements iter.Iterator.
func (p *Poisoned) SeekLT(userKey []byte, trailer keys.Trailer) bool {
	p.poison()
	return p.fill(p.in.SeekLT(userKey, trailer))
}

// Next implements iter.Iterator.
func (p *Poisoned) Next() bool {
	p.poison()
	return p.fill(p.in.Next())
}

// Prev implements iter.Iterator.
func (p *Poisoned) Prev() bool {
	p.poison()
	return p.fill(p.in.Prev())
}

// Key implements iter.Iterator.
func (p *Poisoned) Key() keys.InternalKey {
	return keys.InternalKey{UserKey: p.key, Trailer: p.in.Key().Trailer}
}

// Value implements iter.Iterator.
func (p *Poisoned) Value() []byte { return p.value }

// Close implements iter.Iterator.
func (p *Poisoned) Close() error {
	p.poison()
	return p.in.Close()
}

func (p *Poisoned) poison() {
	for _, b := range [][]byte{p.key, p.value} {
		for i := range b {
			b[i] ^= 0xa5
		}
	}
}

func (p *Poisoned) fill(ok bool) bool {
	if ok {
		p.key = append(p.key[:0], p.in.Key().UserKey...)
		p.value = append(p.value[:0], p.in.Value()...)
	}
	return ok
}
