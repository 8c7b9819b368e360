package iter

import (
	"bytes"
	"errors"
	"fmt"

	"sievedb/internal/keys"
)

// ErrUnknownKind is what errors.Is finds when the version that decides about a
// user key is neither a put nor a delete.
var ErrUnknownKind = errors.New("unknown kind")

// seekAfter is the number of versions of one user key that are stepped over
// before the rest is passed by a seek. Most keys have few versions, and a step
// is cheaper than a seek; but a key that is overwritten all the time has
// thousands in the memtable, and a scan that steps over each of them stands
// still. The number bounds what is lost either way: eight steps or one seek.
const seekAfter = 8

// keepBytes bounds the buffer that a Visible keeps for the next Reset: a value
// may have a gigabyte.
const keepBytes = 1 << 20

// VisibleOptions says what a Visible shows.
type VisibleOptions struct {
	// Snapshot hides every entry with a larger sequence number.
	// Requires: Snapshot <= keys.MaxSeqNum.
	Snapshot keys.SeqNum
	// Lower and Upper bound the user keys: Lower <= key < Upper. A nil Upper
	// is no bound; an empty one that is not nil leaves nothing, for no user
	// key is smaller. Both are kept, not copied, and must not change.
	Lower, Upper []byte
}

// Skipped counts what a Visible passed over without showing it. The counts
// measure work: what is passed again after a change of direction counts again.
type Skipped struct {
	Tombstones uint64 // user keys whose newest visible version is a delete
	Versions   uint64 // entries stepped over: older than the one that decides, or newer than the snapshot
	Seeks      uint64 // seeks that passed more versions of a key than are worth stepping over
}

// Visible walks the user keys that a snapshot sees, in both directions: of
// each user key the newest version that is not newer than the snapshot, unless
// that is a delete.
//
// Positioning calls report whether the iterator stands on a key; when they
// report false, Err tells apart the end and a failure. A new Visible stands on
// no key. Next past the last key and Prev before the first leave it on none;
// from there only First, Last, SeekGE and SeekLT move it. No call allocates,
// except to grow the buffers for the longest key and value.
//
// Where the input is:
//
//  1. place == onEntry: on the version that is shown, whose key and value are
//     shown from where they lie. If leaf is not nil, it is the input's, lent for
//     the direction that reverse says; only its calls may have led there.
//  2. place == beforeKey: on the last entry before all versions of the user
//     key shown, or before its first entry. Going backwards the newest version
//     of a key is met last, and only the step beyond it tells that it was; so
//     key and value are copies. Where a leaf can look beyond without a step,
//     place is onEntry.
//  3. place == nowhere: anywhere.
type Visible struct {
	in      Iterator
	lender  Lender // in, or nil if that lends nothing
	o       VisibleOptions
	place   place
	leaf    Leaf         // nil except in place onEntry
	reverse bool         // the direction for which leaf was lent
	shown   []byte       // the user key shown: memory of in, or key
	lent    []byte       // the value shown, if leaf is not nil
	trailer keys.Trailer // of the version on which in got to place onEntry
	key     []byte       // buffer: the user key that is being passed or is shown
	value   []byte       // buffer: the value shown in place beforeKey
	skipped Skipped
	closed  bool
	err     error
}

type place uint8

const (
	nowhere place = iota
	onEntry
	beforeKey
)

// NewVisible returns the view of input that o describes. The input belongs to
// it from now on, and Close closes it.
func NewVisible(input Iterator, o VisibleOptions) *Visible {
	v := new(Visible)
	v.Reset(input, o)
	return v
}

// Reset makes v what NewVisible(input, o) returns, in the memory that it has.
// It does not close the input of before; call Close first.
func (v *Visible) Reset(input Iterator, o VisibleOptions) {
	lender, _ := input.(Lender)
	*v = Visible{in: input, lender: lender, o: o, key: v.key[:0], value: v.value[:0]}
}

// First moves to the first key within the bounds.
func (v *Visible) First() bool { return v.SeekGE(nil) }

// Last moves to the last key within the bounds.
func (v *Visible) Last() bool {
	if v.o.Upper != nil {
		return v.SeekLT(v.o.Upper)
	}
	return v.usable() && v.settleBackward(v.in.Last())
}

// SeekGE moves to the first key at or after userKey within the bounds. The
// slice may be one that Key returned.
func (v *Visible) SeekGE(userKey []byte) bool {
	if bytes.Compare(userKey, v.o.Lower) < 0 {
		userKey = v.o.Lower
	}
	if !v.usable() || v.beyond(userKey) {
		return false
	}
	v.mark(userKey)
	return v.settleForward(v.in.SeekGE(v.key, keys.SeekTrailer(v.o.Snapshot)))
}

// SeekLT moves to the last key before userKey within the bounds. The slice may
// be one that Key returned.
func (v *Visible) SeekLT(userKey []byte) bool {
	if v.beyond(userKey) {
		userKey = v.o.Upper
	}
	if !v.usable() || bytes.Compare(userKey, v.o.Lower) <= 0 {
		return false
	}
	v.mark(userKey)
	return v.settleBackward(v.in.SeekLT(v.key, maxTrailer))
}

// Next moves to the following key.
func (v *Visible) Next() bool {
	switch v.place {
	case onEntry:
		if v.leaf != nil && !v.reverse {
			if userKey, value, ok := v.leaf.NextPut(v.o.Snapshot); ok {
				v.shown, v.lent = userKey, value
				return true
			}
		}
		return v.settleForward(v.passShown())
	case beforeKey: // v.key is marked; step onto its newest version
		ok := false
		if v.in.Valid() {
			ok = v.in.Next()
		} else {
			ok = v.in.First()
		}
		return v.settleForward(ok && v.passForward(minTrailer, seekAfter))
	default:
		return false
	}
}

// passShown moves the input from the version shown to the next user key.
func (v *Visible) passShown() bool {
	v.mark(v.shown)
	trailer := v.trailer
	if v.leaf != nil {
		trailer = v.leaf.Key().Trailer
	}
	if !v.in.Next() {
		return false
	}
	// Versions of a user key come in descending order of trailers: what has a
	// larger one belongs to another key, and that needs no compare. The same
	// entry may come twice: from a memtable, and from the table that it became.
	k := v.in.Key()
	if k.Trailer > trailer || !bytes.Equal(k.UserKey, v.key) {
		return true
	}
	v.skipped.Versions++
	return v.passForward(minTrailer, seekAfter-1)
}

// Prev moves to the preceding key.
func (v *Visible) Prev() bool {
	switch v.place {
	case nowhere:
		return false
	case onEntry:
		if v.leaf != nil && v.reverse {
			if userKey, value, ok := v.leaf.PrevPut(v.o.Snapshot); ok {
				v.shown, v.lent = userKey, value
				return true
			}
		}
		v.mark(v.shown)
		return v.settleBackward(v.passBackward())
	default:
		return v.settleBackward(v.in.Valid())
	}
}

// Valid reports whether v stands on a key.
func (v *Visible) Valid() bool { return v.place != nowhere }

// Key returns the user key, valid until the next positioning call and not to
// be changed. Requires: Valid().
func (v *Visible) Key() []byte { return v.shown }

// Value returns the value, valid until the next positioning call and not to be
// changed. Requires: Valid().
func (v *Visible) Value() []byte {
	switch {
	case v.place == beforeKey:
		return v.value
	case v.leaf != nil:
		return v.lent
	}
	return v.in.Value()
}

// Err returns the first failure: one of the input, or ErrUnknownKind.
func (v *Visible) Err() error { return v.err }

// Skipped returns the counts since NewVisible or Reset.
func (v *Visible) Skipped() Skipped { return v.skipped }

// Close closes the input and returns the first failure. It may be called more
// than once; from then on v shows no key.
func (v *Visible) Close() error {
	if v.closed {
		return v.err
	}
	v.leave()
	v.shown, v.lent, v.closed = nil, nil, true // the memory of a block is not kept
	if cap(v.value) > keepBytes {
		v.value = nil
	}
	if err := v.in.Close(); v.err == nil {
		v.err = err
	}
	v.in, v.lender = nil, nil // whoever keeps v for another use must not keep a memtable with it
	return v.err
}

// leave gives up the current key and with it the leaf, which ends with any other
// call that moves the input.
func (v *Visible) leave() { v.place, v.leaf = nowhere, nil }

// usable leaves the current key and reports whether v may move its input.
func (v *Visible) usable() bool {
	v.leave()
	return v.err == nil && !v.closed
}

// beyond reports whether userKey is at or after the upper bound.
func (v *Visible) beyond(userKey []byte) bool {
	return v.o.Upper != nil && bytes.Compare(userKey, v.o.Upper) >= 0
}

// mark copies userKey, which lies in memory that the input is about to reuse,
// as the user key that is being passed.
func (v *Visible) mark(userKey []byte) { v.key = append(v.key[:0], userKey...) }

// settleForward moves to the first key to show, from the input's entry on,
// which is the first one of its user key that has not been ruled out. ok says
// whether the input stands on an entry.
func (v *Visible) settleForward(ok bool) bool {
	v.leave()
	for ok {
		k := v.in.Key()
		if v.beyond(k.UserKey) {
			return false
		}
		switch {
		case !k.Trailer.Visible(v.o.Snapshot):
			v.skipped.Versions++
			v.mark(k.UserKey)
			ok = v.passForward(keys.SeekTrailer(v.o.Snapshot), seekAfter)
		case k.Trailer.Kind() == keys.KindPut:
			v.show(k)
			if v.lender != nil {
				v.borrow(v.lender.Lend(v.o.Upper, false), false)
			}
			return true
		case k.Trailer.Kind() == keys.KindDelete:
			v.skipped.Tombstones++
			v.mark(k.UserKey)
			ok = v.passForward(minTrailer, seekAfter)
		default:
			return v.unknown(k)
		}
	}
	v.err = v.in.Error()
	return false
}

// show shows the version k, on which the input stands.
func (v *Visible) show(k keys.InternalKey) {
	v.place, v.shown, v.trailer = onEntry, k.UserKey, k.Trailer
}

// borrow has the next steps in one direction made by a leaf, nil for none, that
// stands on the version shown.
func (v *Visible) borrow(leaf Leaf, reverse bool) {
	if leaf != nil {
		v.leaf, v.reverse, v.lent = leaf, reverse, leaf.Value()
	}
}

// passForward moves the input, which stands on a version of v.key, to the
// first entry at or after (v.key, trailer), by so many steps or a seek.
func (v *Visible) passForward(trailer keys.Trailer, steps int) bool {
	for range steps {
		if !v.in.Next() {
			return false
		}
		k := v.in.Key()
		if k.Trailer <= trailer || !bytes.Equal(k.UserKey, v.key) {
			return true
		}
		v.skipped.Versions++
	}
	v.skipped.Seeks++
	return v.in.SeekGE(v.key, trailer)
}

// settleBackward moves to the last key to show, from the input's entry
// backwards, which is the oldest version of its user key. ok says whether the
// input stands on an entry.
func (v *Visible) settleBackward(ok bool) bool {
	v.leave()
	for ok {
		k := v.in.Key()
		if bytes.Compare(k.UserKey, v.o.Lower) < 0 {
			return false
		}
		if v.alone(k) {
			return true
		}
		v.mark(k.UserKey)
		var newest keys.Trailer
		var found bool
		newest, found, ok = v.collect()
		if !ok && v.in.Error() != nil {
			break // a newer version may be behind the failure
		}
		switch {
		case !found:
		case newest.Kind() == keys.KindPut:
			v.place, v.shown = beforeKey, v.key
			return true
		case newest.Kind() == keys.KindDelete:
			v.skipped.Tombstones++
		default:
			return v.unknown(keys.InternalKey{UserKey: v.key, Trailer: newest})
		}
	}
	v.err = v.in.Error()
	return false
}

// alone shows k, on which the input stands, the oldest version of its user key,
// from where it lies, if a leaf can tell that it is the only one.
func (v *Visible) alone(k keys.InternalKey) bool {
	if v.lender == nil || k.Trailer.Kind() != keys.KindPut || !k.Trailer.Visible(v.o.Snapshot) {
		return false
	}
	leaf := v.lender.Lend(v.o.Lower, true)
	if leaf == nil || !leaf.Alone() {
		return false
	}
	v.show(k)
	v.borrow(leaf, true)
	return true
}

// collect copies the newest visible version of v.key, whose oldest version the
// input stands on, to v.value, and moves the input before all its versions. It
// returns the trailer of that version, whether there is one, and whether the
// input stands on an entry.
func (v *Visible) collect() (newest keys.Trailer, found, ok bool) {
	for range seekAfter {
		if !v.in.Key().Trailer.Visible(v.o.Snapshot) {
			v.skipped.Versions++
			return newest, found, v.passBackward()
		}
		if found {
			v.skipped.Versions++ // the older one
		}
		newest, found = v.take(), true
		if !v.in.Prev() {
			return newest, true, false
		}
		if !bytes.Equal(v.in.Key().UserKey, v.key) {
			return newest, true, true
		}
	}
	v.skipped.Versions++
	v.skipped.Seeks++
	if !v.in.SeekGE(v.key, keys.SeekTrailer(v.o.Snapshot)) {
		return newest, true, false
	}
	return v.take(), true, v.passBackward()
}

// take copies the value that the input stands on and returns the trailer.
func (v *Visible) take() keys.Trailer {
	v.value = append(v.value[:0], v.in.Value()...)
	return v.in.Key().Trailer
}

// passBackward moves the input, which stands on a version of v.key, to the
// last entry before all of them.
func (v *Visible) passBackward() bool {
	for range seekAfter {
		if !v.in.Prev() {
			return false
		}
		if !bytes.Equal(v.in.Key().UserKey, v.key) {
			return true
		}
		v.skipped.Versions++
	}
	v.skipped.Seeks++
	return v.in.SeekLT(v.key, maxTrailer)
}

// unknown fails v because of the entry k.
func (v *Visible) unknown(k keys.InternalKey) bool {
	v.err = fmt.Errorf("entry %s: %w: %s", k, ErrUnknownKind, k.Trailer.Kind())
	return false
}
