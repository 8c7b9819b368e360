package sievedb

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"

	"sievedb/filter"
	"sievedb/internal/batch"
	"sievedb/internal/keys"
	"sievedb/internal/tree"
	"sievedb/memtable"
)

// Txn is a transaction: reads of one instant, and writes that become visible,
// durable and final together, or not at all. Its own reads see its writes. It
// is valid during the call of Update or View and for one goroutine at a time.
type Txn struct {
	db       *DB
	state    *tree.State // held until the end
	snapshot *Snapshot   // registered, so that what came later stays told apart
	readOnly bool

	writes batch.Batch
	own    *memtable.Table // the writes, for the transaction's reads; nil before the first
	err    error           // the first write that was refused

	points map[string]struct{} // keys that were looked up
	ranges []*span             // what iterators passed over
}

// maxAttempts is how often Update tries before it gives up.
const maxAttempts = 20

// Update calls fn with a transaction and commits it if fn returns nil, with the
// store's durability. Transactions are optimistic and serializable: nothing is
// locked, and if another write changed what fn read, fn is called again, at
// most 20 times, before ErrConflict is returned. So fn must have no effect but
// through the transaction. An error of fn ends it, is returned as it is, and
// nothing is written. With SyncAlways what fn read is durable, too, when Update
// returns nil, even if fn wrote nothing.
func (db *DB) Update(fn func(tx *Txn) error) error {
	var err error
	for range maxAttempts {
		err = db.attempt(fn)
		if !errors.Is(err, errTxnConflict) {
			return err
		}
	}
	return fmt.Errorf("transaction, after %d attempts: %w", maxAttempts, ErrConflict)
}

// errTxnConflict is a conflict of the transaction itself, not one that fn
// returns from another call.
var errTxnConflict = errors.New("what the transaction read has changed")

func (db *DB) attempt(fn func(tx *Txn) error) error {
	tx, err := db.begin(false)
	if err != nil {
		return err
	}
	defer tx.end()
	if err := fn(tx); err != nil {
		return err
	}
	return tx.commit()
}

// View calls fn with a transaction that can only read.
func (db *DB) View(fn func(tx *Txn) error) error {
	tx, err := db.begin(true)
	if err != nil {
		return err
	}
	defer tx.end()
	return fn(tx)
}

func (db *DB) begin(readOnly bool) (*Txn, error) {
	check := db.writable
	if readOnly {
		check = db.usable
	}
	if err := check(); err != nil {
		return nil, err
	}
	tx := &Txn{db: db, readOnly: readOnly, points: make(map[string]struct{})}
	for {
		tx.state = db.acquire() // before the sequence number (invariant 1)
		tx.snapshot = db.Snapshot()
		if db.state.Load().Mutable == tx.state.Mutable {
			return tx, nil
		}
		// A memtable came in between: writes that the snapshot covers may be
		// in it and not in the state. A plain read may miss them, being older
		// then; a transaction would take them for read.
		_ = tx.snapshot.Close() // never fails
		db.note(tx.state.Release())
	}
}

func (tx *Txn) end() {
	_ = tx.snapshot.Close() // never fails
	tx.db.note(tx.state.Release())
	tx.db = nil
}

// usable returns ErrClosed once the transaction or the store has ended.
func (tx *Txn) usable() error {
	if tx.db == nil {
		return fmt.Errorf("%w: the transaction has ended", ErrClosed)
	}
	return tx.db.usable()
}

// Get is DB.Get in the transaction.
func (tx *Txn) Get(key []byte) ([]byte, error) { return tx.GetTo(nil, key) }

// GetTo is DB.GetTo in the transaction.
func (tx *Txn) GetTo(dst, key []byte) ([]byte, error) {
	value, found, err := tx.get(dst, key, false)
	if err == nil && !found {
		err = ErrNotFound
	}
	if err == nil && value == nil {
		value = []byte{}
	}
	return value, err
}

// Has is DB.Has in the transaction.
func (tx *Txn) Has(key []byte) (bool, error) {
	_, found, err := tx.get(nil, key, true)
	return found, err
}

func (tx *Txn) get(dst, key []byte, existsOnly bool) (value []byte, found bool, err error) {
	if err := tx.usable(); err != nil {
		return dst, false, err
	}
	if len(key) > MaxKeyBytes {
		return dst, false, nil
	}
	hash := filter.Hash(key)
	if tx.own != nil {
		v, tr, ok := tx.own.Get(key, hash, keys.MaxSeqNum)
		if cover := tx.own.Covering(key, keys.MaxSeqNum); cover > tr.SeqNum() {
			return dst, false, nil
		}
		if ok {
			if found = tr.Kind() == keys.KindPut; found && !existsOnly {
				dst = append(dst, v...)
			}
			runtime.KeepAlive(tx) // v is the memory of tx.own
			return dst, found, nil
		}
	}
	if !tx.readOnly {
		tx.points[string(key)] = struct{}{}
	}
	value, found, err = tx.state.Get(dst, key, hash, tx.snapshot.seq, existsOnly, nil)
	if err != nil {
		err = tx.db.closedError(err)
		tx.db.events.damage(err)
		tx.db.events.Deliver()
	}
	return value, found, err
}

// Put sets the value of key in the transaction. It copies both slices.
func (tx *Txn) Put(key, value []byte) error {
	err := checkKey(key)
	if err == nil {
		err = checkValue(value)
	}
	if err := tx.write(err); err != nil {
		return err
	}
	tx.writes.Put(key, value)
	return tx.add(key, keys.KindPut, value)
}

// Delete removes key in the transaction. It copies key.
func (tx *Txn) Delete(key []byte) error {
	if err := tx.write(checkKey(key)); err != nil {
		return err
	}
	tx.writes.Delete(key)
	return tx.add(key, keys.KindDelete, nil)
}

// write returns why a write is refused: refused, or what else stands against
// it. A transaction of which a write was refused does not commit.
func (tx *Txn) write(refused error) error {
	err := tx.usable()
	if err == nil && tx.readOnly {
		err = fmt.Errorf("%w: a write in View", ErrInvalidArgument)
	}
	if err == nil {
		err = refused
	}
	if err != nil && tx.err == nil {
		tx.err = err
	}
	return err
}

// add makes a write visible to the transaction's own reads. Its sequence
// number lies above the snapshot, where the state shows nothing else: all of
// its tables were there before the snapshot, and the iterators over its
// memtables end at it.
func (tx *Txn) add(key []byte, kind keys.Kind, value []byte) error {
	if tx.own == nil {
		tx.own = memtable.New(memtable.Options{})
	}
	seq := tx.snapshot.seq + keys.SeqNum(tx.writes.Count())
	if err := tx.own.Add(key, filter.Hash(key), keys.MakeTrailer(seq, kind), value); err != nil {
		tx.err = err
		return err
	}
	return nil
}

// Scan is DB.Scan in the transaction. The iterator sees the writes that the
// transaction made before, not later ones, and must be closed before the
// transaction ends.
func (tx *Txn) Scan(lo, hi []byte) *Iterator {
	if err := tx.usable(); err != nil {
		return &Iterator{err: err}
	}
	if !tx.state.Acquire() {
		return &Iterator{err: ErrClosed} // the transaction holds it: never
	}
	it := tx.db.scanState(tx.state, lo, hi, tx.snapshot.seq, tx.own)
	if !tx.readOnly {
		it.passed = &span{}
		tx.ranges = append(tx.ranges, it.passed)
	}
	return it
}

// Prefix is DB.Prefix in the transaction.
func (tx *Txn) Prefix(prefix []byte) *Iterator { return tx.Scan(prefix, prefixEnd(prefix)) }

// All is DB.All in the transaction.
func (tx *Txn) All() *Iterator { return tx.Scan(nil, nil) }

// span is the range of user keys over which an iterator has told what is
// there, and that nothing else is: lo <= key <= hi.
type span struct {
	used   bool
	lo, hi []byte
	toEnd  bool // there is no upper end
}

// extend makes the span hold everything from a to b, inclusive; toEnd says
// that there is no upper end.
func (s *span) extend(a, b []byte, toEnd bool) {
	if !s.used || bytes.Compare(a, s.lo) < 0 {
		s.lo = append(s.lo[:0], a...)
	}
	if !s.used || bytes.Compare(b, s.hi) > 0 {
		s.hi = append(s.hi[:0], b...)
	}
	s.toEnd = s.toEnd || toEnd
	s.used = true
}

// commit applies the writes if nothing that the transaction read has changed.
// What came between its snapshot and now is looked for outside the commit
// lock, again and again until little or nothing is left to be looked for under
// it, in the memtables (invariant 9).
func (tx *Txn) commit() error {
	if tx.err != nil {
		return tx.err
	}
	db := tx.db
	sync := db.o.Durability == SyncAlways
	if tx.writes.Count() == 0 { // its reads are those of its snapshot
		if sync {
			return db.Sync() // and may be acted on, as those of a failed condition (invariant 10)
		}
		return nil
	}
	seen := tx.snapshot.seq
	for {
		now, err := tx.unchanged(seen)
		if err == nil {
			seen = now
			err = db.commit.CommitIf(&tx.writes, sync, func() error { return tx.unchangedSince(seen) })
		}
		if errors.Is(err, errStale) {
			continue
		}
		if errors.Is(err, errTxnConflict) && sync {
			// The next attempt reads what it lost to, which is to be durable
			// before it is acted on (invariant 10).
			if syncErr := db.Sync(); syncErr != nil {
				return syncErr
			}
		}
		return db.logFailure(err)
	}
}

// unchanged returns an error if anything that was read got a version after
// seen, and otherwise a sequence number up to which that is certain. It may
// read tables.
func (tx *Txn) unchanged(seen keys.SeqNum) (keys.SeqNum, error) {
	// Before the state, other than for a read: the state then holds everything
	// up to it. What is newer is found or not, and a conflict if it is.
	now := tx.db.commit.Visible()
	if now == seen {
		return now, nil
	}
	s := tx.db.acquire()
	err := tx.changed(s, tree.Changes{After: seen, Tables: true, CommitLock: &tx.db.commit.Lock})
	return now, errors.Join(err, s.Release())
}

// unchangedSince is unchanged under the commit lock: everything after seen must
// be in memtables.
func (tx *Txn) unchangedSince(seen keys.SeqNum) error {
	db := tx.db
	if db.commit.Visible() == seen {
		return nil
	}
	db.mu.Lock()
	s, flushed := db.state.Load(), db.flushed
	db.mu.Unlock()
	if flushed > seen {
		return errStale
	}
	return tx.changed(s, tree.Changes{After: seen})
}

// changed looks for changes of what the transaction read.
func (tx *Txn) changed(s *tree.State, c tree.Changes) error {
	for key := range tx.points {
		k := []byte(key)
		if changed, err := c.Key(s, k, filter.Hash(k)); changed || err != nil {
			return tx.conflict(k, err)
		}
	}
	for _, r := range tx.ranges {
		if !r.used {
			continue
		}
		if key, changed, err := c.Range(s, r.lo, r.hi, r.toEnd); changed || err != nil {
			return tx.conflict(key, err)
		}
	}
	return nil
}

func (tx *Txn) conflict(key []byte, err error) error {
	if err != nil {
		return tx.db.closedError(err)
	}
	return fmt.Errorf("%w: %.64q", errTxnConflict, key)
}
