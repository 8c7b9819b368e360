// Package memtable is the sorted write buffer: every write lands here after the
// log, and is found here until a flush has turned the buffer into a table.
//
//	t := memtable.New(memtable.Options{SizeHintBytes: 32 << 20})
//	err := t.Add(key, filter.Hash(key), keys.MakeTrailer(seq, keys.KindPut), value)
//	value, trailer, ok := t.Get(key, filter.Hash(key), snapshot)
//	hidden := t.Covering(key, snapshot) > trailer.SeqNum() // by a range tombstone
//	it := t.NewIter(&commitLock, snapshot)
//
// Range tombstones lie beside the point entries, in a log of their own; what Get
// and the iterators show is not less for them.
//
// None of its three structures holds a Go pointer per entry, so that the
// garbage collector has nothing to walk, and arena and index lie outside its heap. The arena holds a record per entry;
// the versions of a user key form a chain, newest first, from a head in the
// user key's first record. The tree (google/btree) orders the user keys, one
// item of 12 bytes each. The hash index finds a first record without the tree.
//
// An overwrite thus touches neither tree nor index. A tree item per entry, with
// its trailer, was rejected: half as large again, a tree insert for each
// overwrite, and a scan steps over each version of a hot key.
//
// One writer at a time calls [Table.Add] and [Table.Freeze]; a lock of the
// caller's, the writer's lock, sees to that. Everything else may run beside
// the writer and beside itself, without a lock, but for [Table.NewIter], which
// takes the writer's lock when it needs a new view of the tree.
//
// Invariants:
//
//  1. A record that a reader can reach does not change, but for the atomic head.
//  2. Trailers fall strictly along a chain.
//  3. Tree, index and chain, or the log, lead to an entry before Add returns, so
//     before its sequence number is published. A reader that loads the visible sequence
//     number before it calls Get or NewIter misses nothing that it covers.
//  4. Index and chunk directory only gain: a reader of an older one misses only
//     entries that were not published when it loaded it.
package memtable

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/google/btree"

	"sievedb/internal/invariants"
	"sievedb/internal/keys"
	"sievedb/internal/prefetch"
	"sievedb/internal/rangedel"
)

// ErrFull is returned by Add for an entry that the arena cannot address: one of
// more than 1 GiB, or one that needs a chunk beyond the 32,768th.
var ErrFull = errors.New("memtable is full")

// Options configures a table.
type Options struct {
	// SizeHintBytes is the size at which the owner means to flush: the arena's
	// chunks stay below an eighth of it. Zero means chunks of up to 1 MiB.
	SizeHintBytes int64
	// KeysHint is how many user keys are to be expected: those of the memtable
	// before, say. The index then need not grow, copying itself, to hold them;
	// it takes an eighth of SizeHintBytes for that at most.
	KeysHint int64
}

// Table is one memtable. Make it with New.
type Table struct {
	arena arena
	index atomic.Pointer[index]

	tree  *btree.BTreeG[item] // guarded by the writer's lock, as is order
	order *order
	view  atomic.Pointer[view]

	pivots [numPivots]pivot // two iterators with the same one take turns
	iters  atomic.Uint32    // iterators made, to spread them over the pivots

	// rangeDeletes is nil before the first one, so that a table without them pays
	// one load for that.
	rangeDeletes atomic.Pointer[rangedel.Log]

	frozen   atomic.Bool
	entries  atomic.Int64
	deletes  atomic.Int64
	userKeys atomic.Int64
	smallest atomic.Uint64
	largest  atomic.Uint64
}

// New returns an empty table, of about 2 KiB.
func New(o Options) *Table {
	t := &Table{}
	t.arena.init(o.SizeHintBytes)
	slots := int64(minIndexSlots)
	for overloaded(o.KeysHint, slots) && 2*slots*slotBytes <= o.SizeHintBytes/8 {
		slots *= 2
	}
	t.index.Store(newIndex(int(slots)))
	t.order = &order{arena: &t.arena, pivots: &t.pivots}
	t.tree = t.order.newTree()
	// A tree that stays empty: iterators over an empty table need no clone.
	t.view.Store(&view{order: t.order, tree: t.order.newTree()})
	return t
}

// Add copies one entry into the table. hash is the store's filter hash of
// userKey. Sequence numbers must rise with every call, and the kind must be a
// point kind or that of a range tombstone: of the keys from userKey up to value,
// exclusive, or without end if value is nil. Such a one must cover something, and
// needs no hash. Only the holder of the writer's lock may call it.
//
// The error wraps ErrFull when there is no room; any other means that the
// caller broke this contract. The table then holds what it held before, except
// after a hash that is not the one the key had earlier.
func (t *Table) Add(userKey []byte, hash uint64, trailer keys.Trailer, value []byte) error {
	if t.frozen.Load() {
		return invariants.Broken("memtable: add of %q to an immutable memtable", userKey)
	}
	isRange := trailer.Kind() == keys.KindRangeDelete
	if !isRange && !trailer.Kind().Point() {
		return invariants.Broken("memtable: add of %q with kind %s", userKey, trailer.Kind())
	}
	if t.entries.Load() > 0 && trailer.SeqNum() <= t.LargestSeq() {
		return invariants.Broken("memtable: add of %q at %d, not above %d", userKey, trailer.SeqNum(), t.LargestSeq())
	}
	var err error
	if isRange {
		err = t.addRange(userKey, value, trailer.SeqNum())
	} else if first := t.index.Load().find(&t.arena, hash, userKey); first != 0 {
		err = t.arena.addVersion(first, trailer, value)
	} else {
		err = t.addKey(userKey, hash, trailer, value)
	}
	if err != nil {
		return fmt.Errorf("memtable: add of %q (value of %d bytes): %w", userKey, len(value), err)
	}
	if trailer.Kind() == keys.KindDelete {
		t.deletes.Add(1)
	}
	if t.entries.Add(1) == 1 {
		t.smallest.Store(uint64(trailer.SeqNum()))
	}
	// Last: NewIter takes it as the bound of what it must show.
	t.largest.Store(uint64(trailer.SeqNum()))
	return nil
}

// addRange adds a range tombstone.
func (t *Table) addRange(lo, hi []byte, seq keys.SeqNum) error {
	if seq == 0 || hi != nil && bytes.Compare(lo, hi) >= 0 {
		return invariants.Broken("range tombstone at %d of nothing, up to %.64q", seq, hi)
	}
	log := t.rangeDeletes.Load()
	if log == nil {
		log = &rangedel.Log{}
	}
	if err := log.Add(rangedel.Tombstone{Start: lo, End: hi, Seq: seq}); err != nil {
		return err
	}
	t.rangeDeletes.Store(log)
	return nil
}

// addKey adds the first version of a user key to arena, tree and index.
func (t *Table) addKey(userKey []byte, hash uint64, trailer keys.Trailer, value []byte) error {
	r, err := t.arena.addKey(userKey, trailer, value)
	if err != nil {
		return err
	}
	if _, replaced := t.tree.ReplaceOrInsert(newItem(t.order.prefix(userKey), r)); replaced {
		return invariants.Broken("hash %#x is not the one that the key was added with", hash)
	}
	n := t.userKeys.Load() + 1
	t.order, t.tree = t.order.rekey(t.tree)
	x := t.index.Load()
	if overloaded(n, int64(len(x.slots))) {
		x = x.grown()
		t.index.Store(x)
	}
	x.put(hash>>32<<32 | uint64(r))
	t.userKeys.Store(n)
	return nil
}

// Prefetch brings what Add and Get with this hash look at first closer, and does
// not wait for it.
func (t *Table) Prefetch(hash uint64) {
	x := t.index.Load()
	prefetch.Lines(unsafe.Pointer(&x.slots[uint32(hash>>32)>>x.shift]), 8)
}

// Get returns the newest version of userKey whose sequence number is at most
// snapshot; ok is false when there is none. A tombstone is a version: its
// trailer says so. Whether a range tombstone hides it is not asked: Covering
// tells. hash is the store's filter hash of userKey.
//
// The value aliases the arena: it must not be changed, and is valid for as long
// as the caller keeps the table reachable (runtime.KeepAlive). Get takes no lock and
// allocates nothing. Cold cache lines: one of the index; for a present key, one
// or two of its record; and about 2·log2(v) below v versions that are too new.
func (t *Table) Get(userKey []byte, hash uint64, snapshot keys.SeqNum) (value []byte, trailer keys.Trailer, ok bool) {
	var r ref
	if first := t.index.Load().find(&t.arena, hash, userKey); first != 0 {
		r = t.arena.newestAtMost(t.arena.newest(first), keys.SeekTrailer(snapshot))
	}
	if r != 0 {
		rec := t.arena.record(r)
		value, trailer, ok = rec.value(), rec.trailer(), true
	}
	runtime.KeepAlive(t)
	return value, trailer, ok
}

// NewestSeq returns the sequence number of the newest version of userKey, or of
// a range tombstone that covers it, published or not, for the validation of
// transactions; hash is as for Get. ok is false when there is neither. Without
// the writer's lock the answer may be out of date when it comes.
func (t *Table) NewestSeq(userKey []byte, hash uint64) (seq keys.SeqNum, ok bool) {
	_, trailer, ok := t.Get(userKey, hash, keys.MaxSeqNum)
	cover := t.Covering(userKey, keys.MaxSeqNum)
	return max(trailer.SeqNum(), cover), ok || cover > 0
}

// Covering returns the largest sequence number <= snapshot of a range tombstone
// that covers userKey, zero if there is none. It allocates nothing.
func (t *Table) Covering(userKey []byte, snapshot keys.SeqNum) keys.SeqNum {
	if log := t.rangeDeletes.Load(); log != nil {
		return log.Covering(userKey, snapshot)
	}
	return 0
}

// RangeDeletes returns the range tombstones, nil before the first one. The log
// goes on to grow.
func (t *Table) RangeDeletes() *rangedel.Log { return t.rangeDeletes.Load() }

// LargestPoint returns a sequence number that no entry of an iterator exceeds
// that was made before. It is below that of a range tombstone for as long as
// that is the newest entry: then nothing that it covers needs to be looked at.
func (t *Table) LargestPoint() keys.SeqNum {
	largest := t.LargestSeq() // before the log, to which more may be added
	if log := t.rangeDeletes.Load(); log != nil {
		if all := log.All(); all[len(all)-1].Seq == largest {
			return largest - 1
		}
	}
	return largest
}

// Freeze makes the table immutable: Add fails, and iterators read the tree
// itself. Only the holder of the writer's lock may call it; again if it likes.
func (t *Table) Freeze() {
	t.frozen.Store(true)
	t.view.Store(&view{order: t.order, tree: t.tree, userKeys: t.userKeys.Load()})
}

// Retire says that the table is not needed any more, except by those who are
// reading it now. The owner of an immutable table calls it once.
func (t *Table) Retire() {
	t.arena.memory.Retire()
	t.index.Load().memory.Retire()
}

// Empty reports whether the table holds no entry.
func (t *Table) Empty() bool { return t.entries.Load() == 0 }

// Len returns the number of entries, every version and range tombstone counted.
func (t *Table) Len() int64 { return t.entries.Load() }

// Deletes returns the number of entries that are tombstones of single keys.
func (t *Table) Deletes() int64 { return t.deletes.Load() }

// UserKeys returns the exact number of distinct user keys.
func (t *Table) UserKeys() int64 { return t.userKeys.Load() }

// SmallestSeq returns the sequence number of the oldest entry; zero if empty.
func (t *Table) SmallestSeq() keys.SeqNum { return keys.SeqNum(t.smallest.Load()) }

// LargestSeq returns the sequence number of the newest entry; zero if empty.
func (t *Table) LargestSeq() keys.SeqNum { return keys.SeqNum(t.largest.Load()) }

// SizeBytes returns the memory that the table holds: arena, index and range
// tombstones exactly, the tree by treeBytesPerKey, without the copies of nodes
// that views cause.
func (t *Table) SizeBytes() int64 {
	size := t.arena.sizeBytes.Load() + int64(len(t.index.Load().slots))*slotBytes + t.userKeys.Load()*treeBytesPerKey
	if log := t.rangeDeletes.Load(); log != nil {
		size += int64(log.SizeBytes())
	}
	return size
}
