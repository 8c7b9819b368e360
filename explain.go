package sievedb

import (
	"sievedb/explain"
	"sievedb/internal/keys"
	"sievedb/internal/tree"
)

// Explain looks key up as Get does, by the same code, and returns what it did on
// the way: which parts of the store it came to, in order, and why it read each of
// them or not. A key that is not there is no error. The lookup counts in Metrics
// like any other, but not in its latencies, since to write everything down takes
// several times as long.
//
// The trace belongs to the caller. After the failure of a read it says how far the
// lookup came. It is nil if the store, or the snapshot, is closed.
func (db *DB) Explain(key []byte) (*explain.Trace, error) {
	return db.explain(key, newest, nil)
}

func (db *DB) explain(key []byte, snapshot keys.SeqNum, pinned *tree.State) (*explain.Trace, error) {
	if err := db.usable(); err != nil {
		return nil, err
	}
	trace := tree.NewTrace(key)
	value, _, err := db.get(nil, key, snapshot, pinned, false, trace)
	return trace.Finish(value, err), err
}

// Explain is DB.Explain at the snapshot.
func (s *Snapshot) Explain(key []byte) (*explain.Trace, error) {
	if s.closed.Load() {
		return nil, ErrClosed
	}
	trace, err := s.db.explain(key, s.seq, s.state)
	if s.closed.Load() { // what it sees may have been compacted away meanwhile
		return nil, ErrClosed
	}
	return trace, err
}
