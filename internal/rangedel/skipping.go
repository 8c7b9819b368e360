package rangedel

import (
	"bytes"

	"sievedb/internal/iter"
	"sievedb/internal/keys"
)

// maxTrailer sorts before every entry of the same user key.
const maxTrailer keys.Trailer = 1<<64 - 1

// chainLen is the number of stretches, hidden and one after the other, that are
// joined before one seek passes them all. To look up a stretch is cheaper than
// to seek, and fragments of overlapping tombstones come in long rows; but they
// may reach far beyond where the scan ends.
const chainLen = 32

// SkippingOptions says what a Skipping hides.
type SkippingOptions struct {
	// Snapshot is that of the reader. Tombstones beyond it hide nothing.
	Snapshot keys.SeqNum
	// Newer are the tombstones of all runs newer than the iterator's. Since
	// newer runs hold only higher sequence numbers of a user key (invariant 3),
	// they hide whatever they cover. The slice is kept.
	Newer []Source
	// Own are the tombstones of the iterator's run; nil is none. They hide what
	// they cover and is older.
	Own Source
	// OwnLargest is the largest sequence number of an entry of the run, as far
	// as the caller knows; keys.MaxSeqNum is always right. Where Own has a
	// larger one, stretches are passed without looking at their entries.
	OwnLargest keys.SeqNum
}

// Skipped counts what a Skipping passed over.
type Skipped struct {
	Entries uint64 // entries looked at and hidden one by one
	Seeks   uint64 // seeks past stretches that are hidden as a whole
}

// Skipping is the iterator of one run without the entries that range tombstones
// hide at a snapshot. A stretch that is hidden as a whole is passed by one
// seek, in either direction. Entries newer than the snapshot may be shown or
// not: iter.Visible, above, passes over them anyway.
//
// A step where nothing is hidden costs one compare with the end of the stretch
// in which the iterator stands. No call allocates.
//
// The stretch always holds the position of the input or, during a positioning
// call, what the input is coming from; so only the bound ahead is compared.
type Skipping struct {
	in      iter.Iterator
	o       SkippingOptions
	valid   bool
	skipped Skipped

	stretch Stretch // entries in it with sequence numbers < stretch.Seq are hidden
	whole   bool    // all entries in it are hidden
}

var _ iter.Lender = (*Skipping)(nil)

// NewSkipping returns the view of input that o describes. The input belongs to
// it from now on, and Close closes it. Without Newer and Own it hides nothing,
// and the input alone does as well.
func NewSkipping(input iter.Iterator, o SkippingOptions) *Skipping {
	return &Skipping{in: input, o: o}
}

// First implements iter.Iterator.
func (s *Skipping) First() bool {
	s.enter(nil)
	if s.whole {
		return s.forward(s.passForward())
	}
	return s.forward(s.in.First())
}

// Last implements iter.Iterator.
func (s *Skipping) Last() bool {
	ok := s.in.Last()
	if ok {
		s.enter(s.in.Key().UserKey)
	}
	return s.backward(ok)
}

// SeekGE implements iter.Iterator.
func (s *Skipping) SeekGE(userKey []byte, trailer keys.Trailer) bool {
	s.enter(userKey)
	if s.whole {
		return s.forward(s.passForward())
	}
	return s.forward(s.in.SeekGE(userKey, trailer))
}

// SeekLT implements iter.Iterator.
func (s *Skipping) SeekLT(userKey []byte, trailer keys.Trailer) bool {
	s.enter(userKey)
	if s.whole {
		return s.backward(s.passBackward())
	}
	return s.backward(s.in.SeekLT(userKey, trailer))
}

// Next implements iter.Iterator.
func (s *Skipping) Next() bool { return s.valid && s.forward(s.in.Next()) }

// Prev implements iter.Iterator.
func (s *Skipping) Prev() bool { return s.valid && s.backward(s.in.Prev()) }

// Valid implements iter.Iterator.
func (s *Skipping) Valid() bool { return s.valid }

// Key implements iter.Iterator.
func (s *Skipping) Key() keys.InternalKey { return s.in.Key() }

// Value implements iter.Iterator.
func (s *Skipping) Value() []byte { return s.in.Value() }

// Lend implements iter.Lender: within a stretch in which nothing is hidden.
func (s *Skipping) Lend(bound []byte, reverse bool) iter.Leaf {
	lender, ok := s.in.(iter.Lender)
	if !ok || s.stretch.Seq > 0 {
		return nil
	}
	edge := s.stretch.End
	if reverse {
		edge = s.stretch.Start
	}
	return lender.Lend(iter.Nearer(bound, edge, reverse), reverse)
}

// Block implements iter.Blocks.
func (s *Skipping) Block() iter.Block { return iter.BlockOf(s.in) }

// Whole implements iter.Blocks.
func (s *Skipping) Whole(bound []byte) bool {
	return s.stretch.Seq == 0 && iter.WholeOf(s.in, iter.Nearer(bound, s.stretch.End, false))
}

// Error implements iter.Iterator.
func (s *Skipping) Error() error { return s.in.Error() }

// Close closes the input. From then on s stands on no entry.
func (s *Skipping) Close() error {
	s.valid = false
	return s.in.Close()
}

// Skipped returns the counts since NewSkipping.
func (s *Skipping) Skipped() Skipped { return s.skipped }

// forward moves on to the first entry that is not hidden. ok says whether the
// input stands on an entry.
func (s *Skipping) forward(ok bool) bool {
	for ok {
		k := s.in.Key()
		if s.stretch.End != nil && bytes.Compare(k.UserKey, s.stretch.End) >= 0 {
			s.enter(k.UserKey)
		}
		switch {
		case s.whole:
			ok = s.passForward()
		case k.Trailer.SeqNum() < s.stretch.Seq:
			s.skipped.Entries++
			ok = s.in.Next()
		default:
			s.valid = true
			return true
		}
	}
	s.valid = false
	return false
}

// backward moves back to the last entry that is not hidden. ok says whether the
// input stands on an entry.
func (s *Skipping) backward(ok bool) bool {
	for ok {
		k := s.in.Key()
		if bytes.Compare(k.UserKey, s.stretch.Start) < 0 {
			s.enter(k.UserKey)
		}
		switch {
		case s.whole:
			ok = s.passBackward()
		case k.Trailer.SeqNum() < s.stretch.Seq:
			s.skipped.Entries++
			ok = s.in.Prev()
		default:
			s.valid = true
			return true
		}
	}
	s.valid = false
	return false
}

// passForward moves the input beyond the stretch, which is hidden as a whole,
// and as many like it as follow.
func (s *Skipping) passForward() bool {
	for range chainLen {
		if s.stretch.End == nil {
			return false
		}
		st, whole := s.look(place{key: s.stretch.End})
		if !whole {
			break
		}
		s.stretch.End = st.End
	}
	if s.stretch.End == nil {
		return false
	}
	s.skipped.Seeks++
	return s.in.SeekGE(s.stretch.End, maxTrailer)
}

// passBackward moves the input before the stretch, which is hidden as a whole,
// and as many like it as precede.
func (s *Skipping) passBackward() bool {
	for range chainLen {
		if len(s.stretch.Start) == 0 {
			return false
		}
		st, whole := s.look(place{key: s.stretch.Start, before: true})
		if !whole {
			break
		}
		s.stretch.Start = st.Start
	}
	if len(s.stretch.Start) == 0 {
		return false
	}
	s.skipped.Seeks++
	return s.in.SeekLT(s.stretch.Start, maxTrailer)
}

// enter makes the stretch that holds userKey the current one.
func (s *Skipping) enter(userKey []byte) { s.stretch, s.whole = s.look(place{key: userKey}) }

// look returns a stretch at p in which all that applies is the same: all entries
// are hidden (whole), or those with sequence numbers < Seq.
func (s *Skipping) look(p place) (st Stretch, whole bool) {
	for _, source := range s.o.Newer {
		t := s.ask(source, p)
		if t.Seq > 0 {
			return t, true
		}
		st.narrow(t)
	}
	if s.o.Own != nil {
		t := s.ask(s.o.Own, p)
		if t.Seq > s.o.OwnLargest {
			return t, true
		}
		st.narrow(t)
		st.Seq = t.Seq
	}
	return st, false
}

func (s *Skipping) ask(source Source, p place) Stretch {
	if p.before {
		return source.StretchBefore(p.key, s.o.Snapshot)
	}
	return source.StretchAt(p.key, s.o.Snapshot)
}
