package commit

import (
	"sievedb/filter"
	"sievedb/internal/batch"
	"sievedb/memtable"
)

// Apply adds the operations of one batch to a memtable. Recovery uses it, too,
// so that replay and commit cannot differ.
func Apply(mem *memtable.Table, ops batch.Reader) error {
	a := applier{mem: mem, ops: ops}
	return a.apply()
}

// applier adds operations to a memtable, and looks at the next few before it
// does: where the memtable will look for their keys is in no cache.
type applier struct {
	mem   *memtable.Table
	ops   batch.Reader
	ahead [4]struct { // read but not added: those from added up to read, modulo 4
		batch.Op
		hash uint64
	}
	read, added int
}

// readAhead reads operations until ahead is full.
func (a *applier) readAhead() {
	for a.read < a.added+len(a.ahead) {
		op, ok := a.ops.Next()
		if !ok {
			return
		}
		x := &a.ahead[a.read%len(a.ahead)]
		x.Op, x.hash = op, filter.Hash(op.Key)
		a.mem.Prefetch(x.hash)
		a.read++
	}
}

// apply adds all operations.
func (a *applier) apply() error {
	for a.readAhead(); a.added < a.read; a.readAhead() {
		x := &a.ahead[a.added%len(a.ahead)]
		if err := a.mem.Add(x.Key, x.hash, x.Trailer, x.Value); err != nil {
			return err
		}
		a.added++
	}
	return a.ops.Err()
}
