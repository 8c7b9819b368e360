package sievedb

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"sievedb/filter"
	"sievedb/internal/batch"
	"sievedb/internal/commit"
	"sievedb/internal/keys"
	"sievedb/internal/manifest"
	"sievedb/memtable"
)

// Batch collects writes that Apply makes as one: after a crash either all of
// them are there or none. Make it with DB.NewBatch; it is for one goroutine at
// a time. It may be larger than a memtable.
type Batch struct {
	ops        batch.Batch
	conditions []condition
	held       []bool // scratch: which conditions held when they were looked up
	err        error  // the first write that was refused
}

// NewBatch returns an empty batch.
func (db *DB) NewBatch() *Batch {
	b := &Batch{}
	b.ops.Expect(int(db.batchBytes.Load())) // batches are often alike
	return b
}

// maxExpectBytes bounds what a batch expects because of the one before it.
const maxExpectBytes = 32 << 10

// What a batch can hold: encoded, in bytes, and in writes. A memtable has room
// for both, so that no batch is logged that cannot be applied.
const (
	MaxBatchBytes = 1 << 32
	MaxBatchLen   = 1 << 28
)

// Put adds a put; it copies key and value. A key or value that is too long, or
// one too many for the batch, is reported by Apply.
func (b *Batch) Put(key, value []byte) {
	if b.accept(checkKey(key)) && b.accept(checkValue(value)) && b.accept(b.checkSize(len(key)+len(value))) {
		b.ops.Put(key, value)
	}
}

// Delete adds a delete; it copies key.
func (b *Batch) Delete(key []byte) {
	if b.accept(checkKey(key)) && b.accept(b.checkSize(len(key))) {
		b.ops.Delete(key)
	}
}

func (b *Batch) checkSize(more int) error {
	const perOp = 16 // at most, for kind and lengths
	if uint64(len(b.ops.Ops()))+uint64(more)+perOp > MaxBatchBytes || b.ops.Count() == MaxBatchLen {
		return fmt.Errorf("%w: a batch of more than %d bytes or %d writes", ErrInvalidArgument, uint64(MaxBatchBytes), MaxBatchLen)
	}
	return nil
}

func (b *Batch) accept(err error) bool {
	if err != nil && b.err == nil {
		b.err = fmt.Errorf("operation %d of the batch: %w", b.ops.Count(), err)
	}
	return err == nil
}

// Len returns the number of writes in the batch.
func (b *Batch) Len() int { return int(b.ops.Count()) }

// SizeBytes returns the encoded size of the batch, in bytes.
func (b *Batch) SizeBytes() int { return len(b.ops.Ops()) }

// Reset empties the batch for another use.
func (b *Batch) Reset() {
	b.ops.Reset()
	b.conditions = b.conditions[:0]
	b.err = nil
}

func checkKey(key []byte) error {
	if len(key) > MaxKeyBytes {
		return fmt.Errorf("%w: a key of %d bytes, the limit is %d", ErrInvalidArgument, len(key), MaxKeyBytes)
	}
	return nil
}

func checkValue(value []byte) error {
	if len(value) > MaxValueBytes {
		return fmt.Errorf("%w: a value of %d bytes, the limit is %d", ErrInvalidArgument, len(value), MaxValueBytes)
	}
	return nil
}

// Put sets the value of key. With the store's durability at SyncAlways it
// returns once that survives a crash. It copies both slices. A write that
// returned an error other than ErrInvalidArgument, ErrClosed and ErrReadOnly
// may still be found, at once or after a restart.
func (db *DB) Put(key, value []byte) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if err := checkValue(value); err != nil {
		return err
	}
	b := db.single(key)
	b.Put(key, value)
	return db.applyScratch(b)
}

// Delete removes key; that it is not there is no error. Its durability and its
// errors are those of Put.
func (db *DB) Delete(key []byte) error {
	if err := checkKey(key); err != nil {
		return err
	}
	b := db.single(key)
	b.Delete(key)
	return db.applyScratch(b)
}

// maxScratchBytes bounds the batches that scratch keeps.
const maxScratchBytes = 1 << 20

// scratch holds batches of single writes.
var scratch = sync.Pool{New: func() any { return new(batch.Batch) }}

// single returns an empty batch for one write of key, to be given to
// applyScratch. Where the memtable will look for key is in no cache: it comes
// closer while the value is copied and logged.
func (db *DB) single(key []byte) *batch.Batch {
	db.state.Load().Mutable.Prefetch(filter.Hash(key))
	b := scratch.Get().(*batch.Batch)
	b.Reset()
	return b
}

func (db *DB) applyScratch(b *batch.Batch) error {
	start := db.latencies.clock()
	err := db.logFailure(db.commit.Commit(b, db.o.Durability == SyncAlways))
	if err == nil && db.latencies != nil {
		db.latencies.put.Record(db.latencies.clock() - start)
	}
	if len(b.Ops()) <= maxScratchBytes {
		scratch.Put(b)
	}
	return err
}

// Apply makes all writes of b, in their order and as one, with durability d.
// b stays as it is and may be applied again. An empty batch does nothing. The
// errors are those of Put; if one write of b was refused, or ErrConflict says
// that a condition does not hold, none is made.
func (db *DB) Apply(b *Batch, d Durability) error {
	if b.err != nil {
		return b.err
	}
	if d > SyncNever {
		return fmt.Errorf("%w: %v", ErrInvalidArgument, d)
	}
	if b.ops.Count() == 0 && len(b.conditions) == 0 {
		return db.writable()
	}
	start := db.latencies.clock()
	db.batchBytes.Store(int64(min(b.SizeBytes()+b.SizeBytes()/8, maxExpectBytes)))
	err := db.apply(b, d)
	if err == nil && db.latencies != nil {
		db.latencies.apply.Record(db.latencies.clock() - start)
	}
	return err
}

func (db *DB) apply(b *Batch, d Durability) error {
	if d == StoreDefault {
		d = db.o.Durability
	}
	if len(b.conditions) > 0 {
		return db.logFailure(db.applyIf(b, d == SyncAlways))
	}
	return db.logFailure(db.commit.Commit(&b.ops, d == SyncAlways))
}

// logFailure makes the store read-only if the log has failed, or if err says
// that log and memtable have parted, and returns err.
func (db *DB) logFailure(err error) error {
	if err == nil {
		return nil
	}
	// What became of the log may have come between, and err be a conflict.
	if logErr := db.log.Err(); errors.Is(err, commit.ErrApply) {
		_ = db.fail(err)
	} else if logErr != nil && db.usable() == nil {
		_ = db.fail(logErr)
	}
	db.events.Deliver() // that, or what failed under a lock
	return err
}

// Sync returns once every write that returned before is durable.
func (db *DB) Sync() error {
	if err := db.writable(); err != nil {
		return err
	}
	return db.logFailure(db.log.Sync(db.log.End()))
}

// writes is the DB as the owner of its commit pipeline.
type writes struct{ *DB }

// Admit slows writers down when level 0 grows, and holds them up while there is
// no room for another memtable.
func (db writes) Admit(sizeBytes int64) error {
	if err := db.writable(); err != nil {
		return err
	}
	db.pacer.Wait(sizeBytes, db.closingc)
	if !db.full.Load() {
		return nil
	}
	return db.awaitSpace(context.Background())
}

// Room returns the memtable for a batch, after changing to a new one if it
// would grow too large. A batch that is larger than a memtable gets one of its
// own (invariant 13).
func (db writes) Room(sizeBytes int64) (*memtable.Table, error) {
	if err := db.writable(); err != nil {
		return nil, err
	}
	if db.mutable.Empty() || db.mutable.SizeBytes()+sizeBytes <= db.o.MemtableBytes {
		return db.mutable.Table, nil
	}
	if err := db.rotate(); err != nil {
		return nil, err
	}
	return db.mutable.Table, nil
}

// rotate makes the mutable memtable immutable and starts another, with a
// segment of its own, or returns commit.ErrFull if too many wait to be flushed.
// Called with the commit lock held.
func (db *DB) rotate() error {
	db.mu.Lock()
	if db.crowded() {
		db.full.Store(true)
		db.mu.Unlock()
		return commit.ErrFull
	}
	db.mu.Unlock()
	num := db.newFileNum()
	if err := db.log.Rotate(num, func(old keys.FileNum, size int64) error {
		return db.edit(&manifest.Edit{
			AddedSegments: []keys.FileNum{num},
			EndedSegments: []manifest.SegmentEnd{{FileNum: old, SizeBytes: uint64(size), Sealed: !db.lazyLog()}},
		}, nil)
	}); err != nil {
		if logErr := db.log.Err(); logErr != nil {
			_ = db.fail(logErr)
		}
		return err // if only for want of room, the log goes on as it was
	}
	db.mutable.Freeze()
	next := buffer{memtable.New(memtable.Options{SizeHintBytes: db.o.MemtableBytes, KeysHint: db.mutable.UserKeys()}), num}

	db.mu.Lock()
	defer db.mu.Unlock()
	db.immutables = append(db.immutables, db.mutable)
	db.mutable = next
	db.swapMemtables()
	db.cond.Broadcast()
	return nil
}

// maxImmutables is the number of memtables that may wait to be flushed.
const maxImmutables = 2

// crowded reports whether there is no room for another memtable: too many wait
// to be flushed, or level 0 is too long. Called with mu held.
func (db *DB) crowded() bool {
	return len(db.immutables) >= maxImmutables || len(db.state.Load().L0) >= db.o.L0StopTables
}

// stuck returns why there is no room and will be none soon, or nil: only the
// failure of what would make room counts. Called with mu held.
func (db *DB) stuck() error {
	if len(db.immutables) >= maxImmutables && db.stats.flushError != nil {
		return db.stats.flushError
	}
	if db.stats.compactionError != nil && len(db.state.Load().L0) >= db.o.L0StopTables && !db.compacting() {
		return db.stats.compactionError
	}
	return nil
}

// awaitSpace waits while the store is crowded. It does not wait for what fails
// at present: a full disk is an error of the write, not a hang.
func (db *DB) awaitSpace(ctx context.Context) error {
	defer db.broadcastWhenDone(ctx)()
	db.mu.Lock()
	defer db.mu.Unlock()
	for stalled := false; db.crowded(); stalled = true {
		if err := db.writable(); err != nil {
			return err
		}
		if err := db.stuck(); err != nil {
			return fmt.Errorf("no room for the write: %w", err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if !stalled {
			defer db.beginStall()()
			continue // much may have happened meanwhile
		}
		db.cond.Wait()
	}
	db.full.Store(false)
	return nil
}

// beginStall counts a write that waits and tells of it; the function that it
// returns, of its end. Both are called with mu held and let go of it for a
// while.
func (db *DB) beginStall() (end func()) {
	deliver := func() {
		db.mu.Unlock()
		db.events.Deliver()
		db.mu.Lock()
	}
	reason := StallLevel0
	if len(db.immutables) >= maxImmutables {
		reason = StallMemtables
	}
	info, start := db.stallInfo(reason), time.Now()
	db.stats.stalls++
	db.events.stallBegins(info)
	deliver()
	return func() {
		db.stats.stalled += time.Since(start)
		db.events.stallEnds(info, start)
		deliver()
	}
}

// swapMemtables installs the memtables as they are now. Called with mu held.
func (db *DB) swapMemtables() {
	newestFirst := make([]*memtable.Table, len(db.immutables))
	for i, b := range db.immutables {
		newestFirst[len(db.immutables)-1-i] = b.Table
	}
	db.swap(db.state.Load().WithMemtables(db.mutable.Table, newestFirst))
}
