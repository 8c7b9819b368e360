package sievedb

import (
	"slices"
	"sync/atomic"

	"sievedb/internal/keys"
	"sievedb/internal/tree"
)

// Snapshot is the store at one instant: its reads see exactly the writes that
// were visible when it was made. Keep it no longer than needed: compactions
// cannot drop what it sees. It is safe for concurrent use.
type Snapshot struct {
	db     *DB
	seq    keys.SeqNum
	state  *tree.State // of a read-only store, held: no writer keeps its entries
	closed atomic.Bool
}

// Snapshot returns a snapshot of the present. Close it. Reads on a snapshot of
// a closed store return ErrClosed. On a read-only store it is what the last
// Refresh saw, and holds the files for it whatever the writer does.
func (db *DB) Snapshot() *Snapshot {
	// Read and registered under one lock, or a compaction in between would not
	// know of it (invariant 1).
	db.mu.Lock()
	defer db.mu.Unlock()
	s := &Snapshot{db: db}
	db.unclosed.Opened(s)
	if db.follow != nil {
		s.state = db.acquire()
	}
	s.seq = db.visible()
	i, _ := slices.BinarySearch(db.snapshots, s.seq)
	db.snapshots = slices.Insert(db.snapshots, i, s.seq)
	return s
}

// Close releases the snapshot; its reads return ErrClosed from then on. It may
// be called more than once.
func (s *Snapshot) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.db.unclosed.Closed(s)
	if s.state != nil {
		s.db.note(s.state.Release())
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	if i, ok := slices.BinarySearch(s.db.snapshots, s.seq); ok {
		s.db.snapshots = slices.Delete(s.db.snapshots, i, i+1)
	}
	s.db.cond.Broadcast() // what it pinned may be compacted (invariant 20)
	return nil
}

// Get is DB.Get at the snapshot.
func (s *Snapshot) Get(key []byte) ([]byte, error) { return s.GetTo(nil, key) }

// GetTo is DB.GetTo at the snapshot.
func (s *Snapshot) GetTo(dst, key []byte) ([]byte, error) {
	if s.closed.Load() {
		return dst, ErrClosed
	}
	value, err := s.db.getTo(dst, key, s.seq, s.state)
	if s.closed.Load() { // what it sees may have been compacted away meanwhile
		return dst, ErrClosed
	}
	return value, err
}

// Has is DB.Has at the snapshot.
func (s *Snapshot) Has(key []byte) (bool, error) {
	if s.closed.Load() {
		return false, ErrClosed
	}
	_, found, err := s.db.get(nil, key, s.seq, s.state, true, nil)
	if s.closed.Load() {
		return false, ErrClosed
	}
	return found, err
}

// Scan is DB.Scan at the snapshot. The iterator outlives the snapshot.
func (s *Snapshot) Scan(lo, hi []byte) *Iterator {
	if s.closed.Load() {
		return &Iterator{err: ErrClosed}
	}
	it := s.scan(lo, hi)
	if s.closed.Load() { // before the state was pinned, perhaps
		_ = it.Close() // it has read nothing
		return &Iterator{err: ErrClosed}
	}
	return it
}

func (s *Snapshot) scan(lo, hi []byte) *Iterator {
	if s.state == nil || !s.state.Acquire() { // closed just now, if it cannot be acquired
		return s.db.scan(lo, hi, s.seq)
	}
	return s.db.scanState(s.state, lo, hi, s.seq, nil)
}

// Prefix is DB.Prefix at the snapshot.
func (s *Snapshot) Prefix(prefix []byte) *Iterator {
	return s.Scan(prefix, prefixEnd(prefix))
}

// All is DB.All at the snapshot.
func (s *Snapshot) All() *Iterator { return s.Scan(nil, nil) }
