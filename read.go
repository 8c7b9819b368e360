package sievedb

import (
	"errors"
	"fmt"

	"sievedb/filter"
	"sievedb/internal/filecache"
	"sievedb/internal/keys"
	"sievedb/internal/tree"
)

// Get returns the value of key, in memory that belongs to the caller, or
// ErrNotFound.
func (db *DB) Get(key []byte) ([]byte, error) { return db.GetTo(nil, key) }

// GetTo appends the value of key to dst and returns the result, or dst and
// ErrNotFound. It allocates nothing if dst has room and the block is cached.
func (db *DB) GetTo(dst, key []byte) ([]byte, error) {
	return db.getTo(dst, key, newest, nil)
}

func (db *DB) getTo(dst, key []byte, snapshot keys.SeqNum, pinned *tree.State) ([]byte, error) {
	value, found, err := db.get(dst, key, snapshot, pinned, false, nil)
	if err == nil && !found {
		err = ErrNotFound
	}
	if err == nil && value == nil {
		value = []byte{} // there, and empty: not nil
	}
	return value, err
}

// Has reports whether key is in the store. It is exact, costs the disk reads
// of Get, and copies no value.
func (db *DB) Has(key []byte) (bool, error) {
	_, found, err := db.get(nil, key, newest, nil, true, nil)
	return found, err
}

// newest stands for the newest published sequence number.
const newest = keys.MaxSeqNum

// visible returns the newest sequence number that reads may see. Load the read
// state first (invariant 1).
func (db *DB) visible() keys.SeqNum {
	if db.follow != nil {
		return keys.SeqNum(db.follow.visible.Load())
	}
	return db.commit.Visible()
}

// get is the point lookup behind every entry point. It takes no lock and no
// reference; when a table's file is given up under its eyes, it starts again. A
// pinned state, which the caller holds, is looked at instead of the present one.
// A trace, which may be nil, is told of every step.
func (db *DB) get(dst, key []byte, snapshot keys.SeqNum, pinned *tree.State, existsOnly bool, trace *tree.Trace) (value []byte, found bool, err error) {
	if err := db.usable(); err != nil {
		return dst, false, err
	}
	if len(key) > MaxKeyBytes {
		return dst, false, nil // it cannot be there
	}
	start := db.latencies.clock()
	hash := filter.Hash(key)
	for {
		// The state first, then the sequence number (invariant 1): the other
		// way round, a compaction in between may have dropped the version that
		// this sequence number sees.
		s := pinned
		if s == nil {
			s = db.state.Load()
		}
		seq := snapshot
		if seq == newest {
			seq = db.visible()
		}
		value, found, err = s.Get(dst, key, hash, seq, existsOnly, trace)
		if err == nil {
			if db.latencies != nil && trace == nil {
				db.latencies.get.Record(db.latencies.clock() - start)
			}
			return value, found, nil
		}
		if !errors.Is(err, filecache.ErrGone) {
			db.events.damage(err)
			db.events.Deliver()
			return value, found, err
		}
		if err := db.usable(); err != nil {
			return dst, false, err
		}
		if pinned != nil || db.state.Load() == s {
			return dst, false, fmt.Errorf("looking for %.64q: %w", key, err)
		}
	}
}
