package rangedel

import (
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"unsafe"

	"sievedb/internal/keys"
)

// Log holds the range tombstones of a memtable, in the order in which they were
// written. The zero Log is empty and ready.
//
// One goroutine at a time may call Add. All other methods may run beside it,
// take no lock, and find every tombstone whose Add returned before they began;
// thus a writer that publishes a sequence number after Add leaves no reader of
// that number without the tombstone.
//
// Tombstones come with ascending sequence numbers, so whatever covers a key,
// the last one written that the snapshot sees is the answer. Nodes over ever
// longer stretches of the log hold what their tombstones do to the key space
// taken together: boundaries, and from each one on which tombstone is the
// newest. fanOut equal nodes become the children of a new one, so that there
// are O(log n) roots. A node all of whose tombstones are visible is asked by
// one binary search; the one node that the snapshot divides passes the question
// on to its children. To keep but one step function over the whole log would
// make n tombstones cost O(n²), and it could not answer for older snapshots.
//
// Adding takes O(log n) steps amortised, a question O(log² n), and all of it
// O(n log n) memory, less where tombstones overlap: what newer ones hide is not
// in a node.
type Log struct {
	state atomic.Pointer[logState]
	// keyBytes is the tail of the memory for keys. Only the writer uses it.
	keyBytes []byte
}

const (
	// leafLen is the number of tombstones that are looked at one by one: fewer
	// nodes, and no node is made for the first few.
	leafLen = 8
	// fanOut trades memory, of which each level of nodes takes the same in the
	// worst case, for nodes to ask: at most fanOut-1 on each level.
	fanOut = 4
	// The pieces of memory for keys double in size: a memtable with a few
	// tombstones is not to take for full what they do not need.
	firstKeyBytes, keyChunkBytes = 256, 16 << 10
	// maxTombstones keeps a boundary within 32 bits.
	maxTombstones = math.MaxInt32 / 2
)

// logState is what readers see. It never changes: appending to tombstones
// writes only behind the length that an older state has.
type logState struct {
	tombstones []Tombstone // ascending sequence numbers
	roots      []*node     // oldest first; what follows them is not in a node yet
	keyBytes   int         // memory for keys
	nodeBytes  int         // memory of all nodes
}

// Add appends a tombstone, whose keys it copies. One that hides nothing is
// left out. It fails if the sequence number is not above all those before.
func (l *Log) Add(t Tombstone) error {
	if !t.hides() {
		return nil
	}
	next := logState{}
	if old := l.state.Load(); old != nil {
		next = *old
	}
	n := len(next.tombstones)
	if n > 0 && t.Seq <= next.tombstones[n-1].Seq {
		return fmt.Errorf("rangedel: add range tombstone [%.64q, %.64q): sequence number %d after %d",
			t.Start, t.End, t.Seq, next.tombstones[n-1].Seq)
	}
	if n >= maxTombstones {
		return fmt.Errorf("rangedel: add range tombstone [%.64q, %.64q): the log has %d already", t.Start, t.End, n)
	}
	t.Start = l.keep(&next, t.Start)
	if t.End != nil {
		t.End = l.keep(&next, t.End)
	}
	next.tombstones = append(next.tombstones, t)
	if n++; n%leafLen == 0 {
		next.grow(n)
	}
	l.state.Store(&next)
	return nil
}

// keep copies a key.
func (l *Log) keep(s *logState, key []byte) []byte {
	if cap(l.keyBytes)-len(l.keyBytes) < len(key) {
		size := max(min(max(s.keyBytes, firstKeyBytes), keyChunkBytes), len(key))
		l.keyBytes = make([]byte, 0, size)
		s.keyBytes += size
	}
	from := len(l.keyBytes)
	l.keyBytes = append(l.keyBytes, key...)
	return l.keyBytes[from:len(l.keyBytes):len(l.keyBytes)]
}

// grow puts the last leafLen of n tombstones in a node, and then, as long as
// there are fanOut roots of one size, those in another.
func (s *logState) grow(n int) {
	leaf := s.leaf(n-leafLen, n)
	s.nodeBytes += leaf.sizeBytes()
	roots := append(slices.Clone(s.roots), leaf)
	for {
		from := len(roots) - fanOut
		if from < 0 || roots[from].len() != leaf.len() {
			break
		}
		leaf = s.parent(slices.Clone(roots[from:]))
		s.nodeBytes += leaf.sizeBytes()
		roots = append(roots[:from], leaf)
	}
	s.roots = roots
}

// Covering returns the largest sequence number <= snapshot of a tombstone that
// covers key, zero if there is none. It allocates nothing.
func (l *Log) Covering(key []byte, snapshot keys.SeqNum) keys.SeqNum {
	s := l.state.Load()
	if s == nil {
		return 0
	}
	q := question{place: place{key: key}, snapshot: snapshot}
	q.ask(s)
	return q.answer.Seq
}

// StretchAt implements Source. It allocates nothing.
func (l *Log) StretchAt(key []byte, snapshot keys.SeqNum) Stretch {
	return l.stretch(place{key: key}, snapshot)
}

// StretchBefore implements Source. It allocates nothing.
func (l *Log) StretchBefore(key []byte, snapshot keys.SeqNum) Stretch {
	return l.stretch(place{key: key, before: true}, snapshot)
}

func (l *Log) stretch(p place, snapshot keys.SeqNum) Stretch {
	s := l.state.Load()
	if s == nil {
		return Stretch{}
	}
	q := question{place: p, snapshot: snapshot, bounds: true}
	q.ask(s)
	return q.answer
}

// All returns the tombstones in ascending order of their sequence numbers. The
// slice is the log's own and must not be changed; what is added later is not in
// it.
func (l *Log) All() []Tombstone {
	s := l.state.Load()
	if s == nil {
		return nil
	}
	return s.tombstones[:len(s.tombstones):len(s.tombstones)]
}

// Len returns the number of tombstones.
func (l *Log) Len() int { return len(l.All()) }

// SizeBytes returns the memory that the log takes, in bytes.
func (l *Log) SizeBytes() int {
	s := l.state.Load()
	if s == nil {
		return 0
	}
	return int(unsafe.Sizeof(*l)+unsafe.Sizeof(*s)) + cap(s.tombstones)*int(unsafe.Sizeof(Tombstone{})) +
		cap(s.roots)*int(unsafe.Sizeof(s.roots[0])) + s.keyBytes + s.nodeBytes
}
