package compaction

import (
	"bytes"
	"fmt"
	"slices"
	"sort"

	"sievedb/internal/invariants"
	"sievedb/internal/iter"
	"sievedb/internal/keys"
	"sievedb/internal/rangedel"
)

// MergeOptions says what a Merger may drop.
type MergeOptions struct {
	// Snapshots are the sequence numbers at which somebody may read, ascending:
	// the registered snapshots and the visible sequence number, copied after the
	// inputs were fixed (invariant 8).
	Snapshots []keys.SeqNum
	// Elide reports whether no entry outside the input that is older than the
	// input's can have the user key, which it must not keep. It is called with
	// ascending user keys. Nil means never, as in a flush to level 0.
	Elide func(userKey []byte) bool
	// RangeDels are the range tombstones of the input, as rangedel.Fragment makes
	// them of all of its tables with the same Snapshots. What they hide from
	// everybody is dropped.
	RangeDels []rangedel.Span
	// ZeroSeq replaces sequence numbers that no reader can tell from zero, so
	// that trailers compress, but for entries with values of zeroedValueBytes or
	// more. Requires: the output does not go to level 0, whose tables are ordered by
	// sequence number.
	ZeroSeq bool
}

// zeroedValueBytes is the size of a value, in bytes, from which on the entry keeps
// its sequence number. Zero would save half a percent of it at most, and an entry
// that is changed cannot be taken over as it is stored (sstable.WriterOptions.Source).
const zeroedValueBytes = 1 << 10

// MergeStats counts the entries of a merge.
type MergeStats struct {
	Entries    uint64 // read
	Shadowed   uint64 // dropped: every reader sees a newer version
	Tombstones uint64 // dropped: there is nothing left that they could hide
	Hidden     uint64 // dropped: for every reader a range tombstone hides them
	Zeroed     uint64 // kept with sequence number zero
}

// Merger yields the entries of an iterator over merged inputs that some reader
// can still need, in the same order.
//
// The snapshots cut the sequence numbers into stripes: two versions of a user
// key lie in one stripe if no snapshot sees the older and not the newer. Of each
// stripe only the newest version is kept. In the last stripe, that of the
// entries which every snapshot sees, a tombstone too is dropped if nothing
// older can lie below it (invariant 21). An entry is hidden from every reader if
// a newer range tombstone lies in its stripe (invariant 5).
//
// It copies each user key once, allocating only for a longer one than before. It
// is not safe for concurrent use.
type Merger struct {
	input    iter.Iterator
	options  MergeOptions
	key      keys.InternalKey // the buffer belongs to the merger
	value    []byte           // the input's
	previous keys.Trailer     // of the last entry read, as it was read
	stripe   int              // of the last entry read
	spans    []rangedel.Span  // those that have not ended before key
	started  bool             // key holds a user key
	yielded  bool             // an entry of this user key was yielded
	first    bool
	err      error
	stats    MergeStats
}

// NewMerger returns a merger on no entry. The caller still owns input and
// closes it; it must not move it while it uses the merger.
func NewMerger(input iter.Iterator, o MergeOptions) *Merger {
	return &Merger{input: input, options: o, spans: o.RangeDels}
}

// First moves to the first entry that survives.
// Requires: neither First nor Next was called before.
func (m *Merger) First() bool { return m.find(m.input.First()) }

// Next moves to the next entry that survives.
// Requires: the last call of First or Next returned true.
func (m *Merger) Next() bool { return m.find(m.input.Next()) }

// Key returns the entry's key. It is valid until the next call of Next.
func (m *Merger) Key() keys.InternalKey { return m.key }

// Value returns the entry's value. It is valid until the next call of Next.
func (m *Merger) Value() []byte { return m.value }

// FirstOfKey reports whether the entry is the first one yielded for its user
// key, so that an output table may end before it.
func (m *Merger) FirstOfKey() bool { return m.first }

// Error returns the error that ended the merge: one of the input, a kind that
// cannot be merged, or an input out of order.
func (m *Merger) Error() error { return m.err }

// Stats returns the counts so far.
func (m *Merger) Stats() MergeStats { return m.stats }

// find moves to the next entry that survives, from the one the input is on.
func (m *Merger) find(ok bool) bool {
	for ; ok; ok = m.input.Next() {
		if m.admit(m.input.Key()) {
			m.first, m.yielded = !m.yielded, true
			return true
		}
		if m.err != nil {
			return false
		}
	}
	m.err = m.input.Error()
	return false
}

// admit takes note of the input's entry and reports whether it survives.
func (m *Merger) admit(k keys.InternalKey) bool {
	m.stats.Entries++
	kind := k.Trailer.Kind()
	if !kind.Point() { // to pass it on would be to guess what it hides
		m.err = fmt.Errorf("compaction: merge entry %v: kind %v is not supported", k, kind)
		return false
	}
	sameKey := m.follow(k)
	stripe := m.stripeOf(k.Trailer.SeqNum())
	switch {
	case m.err != nil:
		return false
	case sameKey && stripe == m.stripe:
		m.stats.Shadowed++
		return false
	}
	m.stripe = stripe
	m.key.Trailer = k.Trailer
	if m.hidden(k.Trailer.SeqNum()) {
		m.stats.Hidden++
		return false
	}
	m.value = m.input.Value()
	switch {
	case stripe > 0 || m.options.Elide == nil:
	case kind == keys.KindDelete:
		if m.options.Elide(m.key.UserKey) {
			m.stats.Tombstones++
			return false
		}
	case m.options.ZeroSeq && k.Trailer.SeqNum() > 0 && len(m.value) < zeroedValueBytes && m.options.Elide(m.key.UserKey):
		m.key.Trailer = keys.MakeTrailer(0, kind)
		m.stats.Zeroed++
	}
	return true
}

// follow makes k's user key the current one and reports whether it was so
// already. An input out of order is an error: it would let versions that hide
// each other survive, and the Elider miss tables.
func (m *Merger) follow(k keys.InternalKey) (sameKey bool) {
	order := 1
	if m.started {
		order = bytes.Compare(k.UserKey, m.key.UserKey)
	}
	if order < 0 || order == 0 && k.Trailer >= m.previous {
		m.err = invariants.Broken("compaction: merge input out of order: %v after %v",
			k, keys.InternalKey{UserKey: m.key.UserKey, Trailer: m.previous})
	}
	m.previous = k.Trailer
	if order == 0 {
		return true
	}
	m.key.UserKey = append(m.key.UserKey[:0], k.UserKey...)
	m.started, m.yielded = true, false
	for len(m.spans) > 0 && spanRange(m.spans[0]).EndsBefore(m.key.UserKey) {
		m.spans = m.spans[1:]
	}
	return false
}

// hidden reports whether a range tombstone hides the version seq of the current
// user key from everybody who could see it: the newest one up to the end of the
// stripe is newer.
func (m *Merger) hidden(seq keys.SeqNum) bool {
	if len(m.spans) == 0 || bytes.Compare(m.spans[0].Start, m.key.UserKey) > 0 {
		return false
	}
	end := keys.MaxSeqNum
	if m.stripe < len(m.options.Snapshots) {
		end = m.options.Snapshots[m.stripe]
	}
	seqs := m.spans[0].Seqs // descending
	i := sort.Search(len(seqs), func(i int) bool { return seqs[i] <= end })
	return i < len(seqs) && seqs[i] > seq
}

// stripeOf returns the number of snapshots that do not see seq.
func (m *Merger) stripeOf(seq keys.SeqNum) int {
	if len(m.options.Snapshots) == 0 || seq <= m.options.Snapshots[0] {
		return 0
	}
	stripe, _ := slices.BinarySearch(m.options.Snapshots, seq)
	return stripe
}
