// Package commit is the commit pipeline: it gives batches their order, logs
// them, applies them to the memtable, publishes them, and then waits for the
// log to be durable if the caller wants that.
//
//	p := commit.New(log, lastSeq, owner)
//	err := p.Commit(&b, true) // durable when it returns nil
//
// Everything but the last step happens under one lock, the commit lock, in the
// order in which the batches will be replayed. Waiting for durability does
// not: while one group syncs, the next ones are logged and applied. So a write
// may be visible to readers before it is durable (invariant 10), and one that
// returned an error may still survive a crash.
//
// A Pipeline is safe for concurrent use.
package commit

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"sievedb/internal/batch"
	"sievedb/internal/keys"
	"sievedb/memtable"
	"sievedb/wal"
)

// Pipeline orders the writes of one store.
type Pipeline struct {
	// Lock is the commit lock. Its holder may rotate the log and the memtable.
	Lock sync.Mutex

	log   *wal.Log
	owner Owner

	// Guarded by Lock:
	last   keys.SeqNum // assigned
	failed error       // ErrApply: those sequence numbers must not be logged again
	head   []byte      // scratch for the header of a batch

	visible atomic.Uint64 // the newest published sequence number
}

// Owner decides when and where a batch may be applied. The errors of its
// methods are those of Commit, which then has changed nothing.
type Owner interface {
	// Admit is called before the lock is taken and may wait, for sizeBytes
	// bytes of operations. Waiting outside the lock keeps a writer that is held
	// up from holding up those who only need the lock for a moment.
	Admit(sizeBytes int64) error
	// Room is called under the lock and returns the memtable to apply the batch
	// to, or ErrFull if Admit has to wait again.
	Room(sizeBytes int64) (*memtable.Table, error)
}

var (
	// ErrFull is what an Owner's Room returns to have Admit called again.
	ErrFull = errors.New("no room for another memtable")
	// ErrApply says that a batch was logged but could not be applied as a
	// whole. The store must take no further write: what the log replays and
	// what the memtable holds have parted.
	ErrApply = errors.New("a logged batch could not be applied")
)

// New returns a pipeline that appends to log and gives its first entry the
// sequence number after last.
func New(log *wal.Log, last keys.SeqNum, owner Owner) *Pipeline {
	p := &Pipeline{log: log, owner: owner, last: last}
	p.visible.Store(uint64(last))
	return p
}

// Visible returns the newest published sequence number. Whoever reads at it
// pins the read state first (invariant 1).
func (p *Pipeline) Visible() keys.SeqNum { return keys.SeqNum(p.visible.Load()) }

// Commit applies b, whole or not at all. With sync it returns once b is
// durable.
func (p *Pipeline) Commit(b *batch.Batch, sync bool) error { return p.CommitIf(b, sync, nil) }

// CommitIf is Commit on a condition: holds is called with the lock held, when
// everything before b is applied and published and nothing else can come in
// between (invariant 9). It must not do I/O. Its error is that of CommitIf:
// then nothing of b was logged.
func (p *Pipeline) CommitIf(b *batch.Batch, sync bool, holds func() error) error {
	pos, err := p.apply(b, sync, holds)
	if err != nil || !sync {
		return err
	}
	return p.log.Sync(pos)
}

func (p *Pipeline) apply(b *batch.Batch, willSync bool, holds func() error) (pos wal.Position, err error) {
	size := int64(len(b.Ops()))
	var mem *memtable.Table
	for {
		if err := p.owner.Admit(size); err != nil {
			return 0, err
		}
		p.Lock.Lock()
		mem, err = p.owner.Room(size)
		if err == nil {
			break
		}
		p.Lock.Unlock()
		if !errors.Is(err, ErrFull) {
			return 0, err
		}
	}
	defer p.Lock.Unlock()
	if p.failed != nil {
		return 0, p.failed
	}
	if holds != nil {
		if err := holds(); err != nil {
			return 0, err
		}
	}
	n := b.Count()
	if n == 0 {
		return p.log.End(), nil // only conditions
	}
	if keys.SeqNum(n) > keys.MaxSeqNum-p.last {
		return 0, fmt.Errorf("sequence numbers are used up at %d", p.last)
	}
	p.head = batch.AppendHeader(p.head[:0], p.last+1, n)
	pos, err = p.log.Append(p.head, b.Ops(), willSync)
	if err != nil {
		return 0, err
	}
	if err := Apply(mem, batch.Ops(b.Ops(), p.last+1, n)); err != nil {
		p.failed = fmt.Errorf("%w: %w", ErrApply, err)
		return 0, p.failed
	}
	p.last += keys.SeqNum(n)
	p.visible.Store(uint64(p.last))
	return pos, nil
}
