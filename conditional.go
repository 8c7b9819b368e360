package sievedb

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"sievedb/filter"
	"sievedb/internal/filecache"
	"sievedb/internal/keys"
)

// ErrConflict says that a condition of a batch did not hold, or that what a
// transaction read was changed by another write. Nothing was written.
var ErrConflict = errors.New("sievedb: conflict")

// PutIfAbsent sets the value of key if it has none, and reports whether it
// did. Of several that run at once for one key, exactly one does. Where the
// filters know that the key is absent, no disk is read. With SyncAlways it
// returns once the write, or the value that it found, is durable. Its errors
// are those of Put.
func (db *DB) PutIfAbsent(key, value []byte) (done bool, err error) {
	return db.putIf(condition{key: key, absent: true}, value)
}

// CompareAndSwap sets the value of key to value if it is old, and reports
// whether it did. A key that is absent has no value, not even an empty one:
// for it CompareAndSwap reports false, and PutIfAbsent is what sets it. As
// PutIfAbsent it is atomic, and durable when it returns.
func (db *DB) CompareAndSwap(key, old, value []byte) (done bool, err error) {
	return db.putIf(condition{key: key, value: old}, value)
}

func (db *DB) putIf(c condition, value []byte) (done bool, err error) {
	b := conditionals.Get().(*Batch)
	b.Reset()
	b.conditions = append(b.conditions, c)
	b.Put(c.key, value)
	err = db.Apply(b, StoreDefault)
	if b.SizeBytes() <= maxScratchBytes {
		b.conditions[0] = condition{} // the caller's slices
		conditionals.Put(b)
	}
	if errors.Is(err, ErrConflict) {
		return false, nil
	}
	return err == nil, err
}

// conditionals holds batches of single conditional writes.
var conditionals = sync.Pool{New: func() any { return new(Batch) }}

// IfAbsent makes Apply write the batch only if key is not in the store then.
// It copies key.
func (b *Batch) IfAbsent(key []byte) {
	b.conditions = append(b.conditions, condition{key: bytes.Clone(key), absent: true})
}

// IfValue makes Apply write the batch only if the value of key is value then.
// It copies both slices.
func (b *Batch) IfValue(key, value []byte) {
	b.conditions = append(b.conditions, condition{key: bytes.Clone(key), value: bytes.Clone(value)})
}

// condition is what must hold for one key before a batch is applied.
type condition struct {
	key    []byte
	absent bool
	value  []byte // if not absent
}

// holds reports whether the condition holds for what was found.
func (c *condition) holds(value []byte, found bool) bool {
	if c.absent || !found {
		return c.absent && !found
	}
	return bytes.Equal(c.value, value)
}

// errStale says that the memtables do not reach back any more to where a
// condition was looked up: look it up again.
var errStale = errors.New("looked up too long ago")

// applyIf applies b if its conditions hold. They are looked up outside the
// commit lock, on disk perhaps; under it, only writes that came since are
// looked for, which are all in memtables (invariant 9).
func (db *DB) applyIf(b *Batch, sync bool) error {
	conditions := b.conditions
	for i := range conditions {
		if err := checkKey(conditions[i].key); err != nil {
			return fmt.Errorf("condition %d of the batch: %w", i, err)
		}
	}
	b.held = slices.Grow(b.held[:0], len(conditions))[:len(conditions)]
	held := b.held
	for {
		if err := db.writable(); err != nil {
			return err
		}
		at, err := db.evaluate(conditions, held)
		if err == nil {
			err = db.commit.CommitIf(&b.ops, sync, func() error { return db.recheck(conditions, held, at) })
		}
		switch {
		case errors.Is(err, errStale) || errors.Is(err, filecache.ErrGone):
			continue
		case errors.Is(err, ErrConflict) && sync:
			// What it saw may not be durable yet, and must be before the
			// answer is acted on (invariant 10).
			if syncErr := db.Sync(); syncErr != nil {
				return syncErr
			}
		}
		return err
	}
}

// evaluate looks all conditions up, and returns a sequence number up to which
// nothing was missed. It is loaded before the state, other than for a read: the
// state then holds everything up to it, while what is newer, published or not,
// may be seen or missed, and is what recheck is for.
func (db *DB) evaluate(conditions []condition, held []bool) (keys.SeqNum, error) {
	at := db.commit.Visible()
	s := db.state.Load()
	var value []byte
	for i := range conditions {
		c := &conditions[i]
		var found bool
		var err error
		value, found, err = s.Get(value[:0], c.key, filter.Hash(c.key), keys.MaxSeqNum, c.absent, nil)
		if err != nil {
			return 0, err
		}
		held[i] = c.holds(value, found)
	}
	return at, nil
}

// recheck decides, under the commit lock, whether all conditions hold: those
// whose key was written since at by what the memtables say, the others as they
// were found then.
func (db *DB) recheck(conditions []condition, held []bool, at keys.SeqNum) error {
	db.mu.Lock()
	s, flushed := db.state.Load(), db.flushed
	db.mu.Unlock()
	if flushed > at {
		return errStale
	}
	for i := range conditions {
		c := &conditions[i]
		ok := held[i]
		if value, seq, found := s.Recent(c.key, filter.Hash(c.key)); seq > at {
			ok = c.holds(value, found)
			runtime.KeepAlive(s) // value is its memory
		}
		if !ok {
			return fmt.Errorf("%w: condition on %.64q", ErrConflict, c.key)
		}
	}
	return nil
}
