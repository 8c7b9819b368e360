package sievedb

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"sync"
	"testing"

	"sievedb/compaction"
	"sievedb/internal/keys"
	"sievedb/internal/manifest"
	"sievedb/vfs"
	"sievedb/wal"
)

// mutating are the calls before which a crash can leave something else than
// before the call before.
const mutating = vfs.OpCreate | vfs.OpRemove | vfs.OpRename | vfs.OpMkdirAll | vfs.OpSyncDir |
	vfs.OpWrite | vfs.OpSync | vfs.OpTruncate | vfs.OpPreallocate | vfs.OpLock | vfs.OpLink

// counterKey holds the number of the batch that wrote it, in every batch, so
// that a store tells which prefix of the history it holds.
var counterKey = []byte("!counter")

// history is the batches that a store was given, in order.
type history struct {
	mu     sync.Mutex
	models []model // models[n] is what the first n batches amount to
	synced int     // so many batches are acknowledged as durable
	copies []copied
}

// copied is a checkpoint that was made, and how many batches it holds.
type copied struct {
	dir     string
	batches int
}

func newHistory() *history { return &history{models: []model{nil}} }

// next adds a batch of random writes to the history.
func (h *history) next(rng *rand.Rand, pool [][]byte) (n int, changes []change) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n = len(h.models)
	m := h.models[n-1]
	add := func(c change) {
		m.apply(c)
		changes = append(changes, c)
	}
	for range rng.IntN(12) {
		k := pool[rng.IntN(len(pool))]
		switch rng.IntN(16) {
		case 0, 1, 2, 3:
			add(change{kind: keys.KindDelete, key: k})
		case 4:
			lo, hi := m.few(rng, pool)
			add(change{keys.KindRangeDelete, lo, hi})
		default:
			add(change{keys.KindPut, k, bytes.Repeat(binary.AppendUvarint(nil, uint64(n)), rng.IntN(150))})
		}
	}
	add(change{keys.KindPut, counterKey, counter(n)})
	h.models = append(h.models, m)
	return n, changes
}

func counter(n int) []byte { return binary.AppendUvarint(nil, uint64(n)) }

// begin is next as a batch, which is then issued.
func (h *history) begin(db *DB, rng *rand.Rand, pool [][]byte) *Batch {
	b := db.NewBatch()
	_, changes := h.next(rng, pool)
	for _, c := range changes {
		c.batch(b)
	}
	return b
}

// bare adds a batch of one write, which is what some calls can make.
func (h *history) bare() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n = len(h.models)
	m := h.models[n-1]
	m.put(counterKey, counter(n))
	h.models = append(h.models, m)
	return n
}

// commit has db make the next batch in one of the ways that there are, and
// acknowledges it if it is durable then.
func (h *history) commit(db *DB, rng *rand.Rand, pool [][]byte) error {
	d := Durability(rng.IntN(3))
	byDefault := db.o.Durability == SyncAlways
	durable := d == SyncAlways || d == StoreDefault && byDefault
	var err error
	switch rng.IntN(12) {
	case 0:
		durable = byDefault
		err = db.Put(counterKey, counter(h.bare()))
	case 1:
		durable = byDefault
		n := h.bare()
		swap := func() (bool, error) { return db.CompareAndSwap(counterKey, counter(n-1), counter(n)) }
		if n == 1 {
			swap = func() (bool, error) { return db.PutIfAbsent(counterKey, counter(n)) }
		}
		err = wantDone(swap())
	case 2, 3:
		durable = byDefault
		n, changes := h.next(rng, pool)
		err = db.Update(func(tx *Txn) error {
			if v, err := tx.Get(counterKey); n > 1 && !bytes.Equal(v, counter(n-1)) {
				return fmt.Errorf("a transaction found %x before batch %d: %w", v, n, err)
			}
			for _, c := range changes {
				if err := c.txn(tx); err != nil {
					return err
				}
			}
			return nil
		})
	case 4:
		b := h.begin(db, rng, pool)
		if _, n := h.bounds(); n > 1 {
			b.IfValue(counterKey, counter(n-1))
		} else {
			b.IfAbsent(counterKey)
		}
		err = db.Apply(b, d)
	default:
		err = db.Apply(h.begin(db, rng, pool), d)
	}
	if err == nil && durable {
		h.acknowledge()
	}
	return err
}

func wantDone(done bool, err error) error {
	if err == nil && !done {
		return errors.New("a condition that holds did not")
	}
	return err
}

// observe has db answer from the last batch without writing anything. If the
// answer is synced, so is what it says (invariant 10).
func (h *history) observe(db *DB, rng *rand.Rand) error {
	_, n := h.bounds()
	if n == 0 {
		return nil
	}
	var err error
	if rng.IntN(2) == 0 {
		var done bool
		if done, err = db.PutIfAbsent(counterKey, nil); done {
			return errors.New("a key that is there was put as absent")
		}
	} else {
		err = db.Update(func(tx *Txn) error { _, err := tx.Get(counterKey); return err })
	}
	if err == nil && db.o.Durability == SyncAlways {
		h.acknowledge()
	}
	return err
}

// acknowledge notes that everything so far is durable.
func (h *history) acknowledge() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.synced = len(h.models) - 1
}

// bounds returns how many batches a crash now must leave, and may leave.
func (h *history) bounds() (least, most int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.synced, len(h.models) - 1
}

// check wants db to hold a prefix of the history of at least least and at most
// most batches, and returns its length.
func (h *history) check(db *DB, least, most int) (int, error) {
	n := uint64(0)
	v, err := db.Get(counterKey)
	if err == nil {
		n, _ = binary.Uvarint(v)
	} else if err != ErrNotFound {
		return 0, err
	}
	if n < uint64(least) || n > uint64(most) {
		return 0, fmt.Errorf("%d batches are there, want %d to %d", n, least, most)
	}
	h.mu.Lock()
	m := h.models[n]
	h.mu.Unlock()
	if err := checkAll(db, m); err != nil {
		return 0, fmt.Errorf("after %d batches: %w", n, err)
	}
	return int(n), nil
}

// fork returns a history of the first n batches, all durable.
func (h *history) fork(n int, copies []copied) *history {
	h.mu.Lock()
	defer h.mu.Unlock()
	return &history{models: slices.Clip(h.models[:n+1]), synced: n, copies: slices.Clip(copies)}
}

// crash is what a crash at some moment left.
type crash struct {
	at          string
	fs          *vfs.Mem
	least, most int      // batches that must and may be there
	copies      []copied // checkpoints that must be there
}

// crashes takes clones of a file system at the calls that pick picks.
type crashes struct {
	mem    *vfs.Mem
	hist   interface{ bounds() (least, most int) }
	pick   func(call int) (seeds []uint64)
	copies func() []copied // nil: there are none
	tally  *tally          // nil: nobody counts

	mu    sync.Mutex
	calls int
	taken []crash
}

func (c *crashes) hook(call vfs.Call) {
	if call.Op&mutating == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	seeds := c.pick(c.calls)
	for _, seed := range seeds {
		least, _ := c.hist.bounds()
		var copies []copied
		if c.copies != nil {
			copies = c.copies()
		}
		fs := c.mem.CrashClone(seed)
		_, most := c.hist.bounds()
		at := fmt.Sprintf("call %d, before %s, seed %d", c.calls, callName(call), seed)
		c.taken = append(c.taken, crash{at, fs, least, most, copies})
	}
	if len(seeds) > 0 && c.tally != nil {
		c.tally.add(call, len(seeds))
	}
}

// crashOptions make background work frequent.
func crashOptions(rng *rand.Rand) Options {
	sets := optionSets()
	return sets[rng.IntN(len(sets))].o
}

// write does random work on db until ops batches are written.
func (h *history) write(db *DB, rng *rand.Rand, pool [][]byte, ops int) error {
	for range ops {
		// A batch that was refused is not acknowledged by what succeeds after it.
		if err := h.commit(db, rng, pool); err != nil {
			return err
		}
		if err := h.maintain(db, rng); err != nil {
			return err
		}
	}
	return nil
}

// maintain has db do something else than a batch, or mostly nothing.
func (h *history) maintain(db *DB, rng *rand.Rand) error {
	var err error
	switch rng.IntN(60) {
	default:
		return nil
	case 0, 1:
		err = db.Sync()
	case 2, 3:
		err = db.Flush(context.Background()) // tables are durable
	case 4, 5:
		err = db.Compact(context.Background(), nil, nil)
	case 6, 7:
		return h.observe(db, rng)
	case 8:
		return rewriteManifest(db)
	case 9:
		_, n := h.bounds()
		dir := fmt.Sprintf("/a/copy-%d-%d", n, rng.Uint32())
		if err = db.Checkpoint(context.Background(), dir); err == nil {
			h.mu.Lock()
			h.copies = append(h.copies, copied{dir, n})
			h.mu.Unlock()
		}
	}
	if err == nil {
		h.acknowledge()
	}
	return err
}

func (h *history) checkpoints() []copied {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clip(h.copies)
}

// recover opens what a crash left, checks it, and returns the store open and
// the file system that counts its calls.
func (h *history) recover(c crash, o Options, hook func(vfs.Call)) (db *DB, n int, err error) {
	db, err = c.open(o, hook, func(db *DB) (err error) {
		// A copy that was made is at rest: few looks at it are enough.
		if n, err = h.check(db, c.least, c.most); err == nil && len(c.copies) > 0 && n%4 == 0 {
			err = h.checkCopy(c.fs, c.copies[len(c.copies)-1])
		}
		return err
	})
	return db, n, err
}

// checkCopy wants a checkpoint to hold what it did when it was made.
func (h *history) checkCopy(fs vfs.FS, c copied) error {
	db, err := OpenReadOnly(c.dir, &Options{FS: fs})
	if err == nil {
		_, err = h.check(db, c.batches, c.batches)
		err = errors.Join(err, db.Close())
	}
	if err != nil {
		return fmt.Errorf("checkpoint %s: %w", c.dir, err)
	}
	return nil
}

// open opens what a crash left. It wants check to find no fault, nor any in the
// files: none that no state has, and none with a number that was used before.
func (c *crash) open(o Options, hook func(vfs.Call), check func(db *DB) error) (*DB, error) {
	used := usedNumbers(c.fs)
	f := vfs.NewFaulty(c.fs)
	var reused error
	f.SetHook(func(call vfs.Call) {
		if call.Op == vfs.OpCreate { // invariant 16
			if kind, num := parseName(path.Base(call.Name)); kind != kindOther && kind != kindTemp && used[uint64(num)] {
				reused = fmt.Errorf("the file number of %s was used before", call.Name)
			}
		}
		if hook != nil {
			hook(call)
		}
	})
	o.FS = f
	db, err := Open("/a/store", &o)
	if err != nil {
		return nil, err
	}
	err = check(db)
	if err == nil {
		err = reused
	}
	if err == nil {
		err = checkFiles(db)
	}
	if err != nil {
		return nil, fmt.Errorf("%w (close: %v)", err, db.Close())
	}
	return db, nil
}

func usedNumbers(fs vfs.FS) map[uint64]bool {
	used := map[uint64]bool{}
	names, _ := fs.List("/a/store") // a crash may have left no directory
	for _, name := range names {
		if kind, num := parseName(name); kind != kindOther {
			used[uint64(num)] = true
		}
	}
	return used
}

// quiesce waits until nothing goes on in the background and nothing is left to
// be done there. It returns with db.mu held.
func quiesce(db *DB) (release func()) {
	return quiesceUnless(db, func() bool { return false })
}

// quiesceUnless is quiesce until something else has happened.
func quiesceUnless(db *DB, happened func() bool) (release func()) {
	db.mu.Lock()
	for {
		_, work := compaction.Pick(db.state.Load().Version, db.pickInput(db.state.Load(), false))
		if !work && len(db.running) == 0 && len(db.immutables) == 0 && db.trash.empty() || happened() {
			return db.mu.Unlock
		}
		db.cond.Wait()
	}
}

// checkFiles wants exactly those files in the directory that are part of the
// state (invariant 17). Nobody writes meanwhile, and no iterator is open.
func checkFiles(db *DB) error {
	defer quiesce(db)()
	st := db.manifest.State() // nobody edits now
	want := map[string]bool{"CURRENT": true, "LOCK": true, manifest.ManifestName(st.ManifestNum): true}
	for _, level := range st.Version.Levels {
		for _, m := range level {
			want[tableName(m.FileNum)] = true
		}
	}
	for _, s := range st.Segments {
		want[wal.SegmentName(s.FileNum)] = true
	}
	names, err := db.fs.List(db.dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !want[name] {
			return fmt.Errorf("%s is an orphan", name)
		}
		delete(want, name)
	}
	for name := range want {
		return fmt.Errorf("%s is missing", name)
	}
	return nil
}

// TestCrashAnywhere crashes a busy store at random calls of the file system,
// those of flushes and compactions included, opens what is left, writes on,
// and crashes again, in the middle of the recovery too. Every synced batch must
// be there, every batch whole, and nothing without what came before it
// (invariants 11, 12, 13, 14, 16, 17).
func TestCrashAnywhere(t *testing.T) {
	seed := newSeed(t)
	rng := newRand(seed)
	for round := range 10 + *crashPoints/2000 {
		h := newHistory()
		pool := keyPool(rng, 120)
		start := crash{at: "nothing", fs: vfs.NewMem()}
		for depth := range 4 {
			start = h.crashOnce(t, rng, pool, start, fmt.Sprintf("round %d, depth %d", round, depth))
		}
	}
}

// crashOnce recovers from one crash, works, and returns another one.
func (h *history) crashOnce(t *testing.T, rng *rand.Rand, pool [][]byte, start crash, where string) crash {
	t.Helper()
	o := crashOptions(rng)
	source := newRand(rng.Uint64())
	h.copies = start.copies
	c := &crashes{mem: start.fs, hist: h, copies: h.checkpoints, pick: func(int) []uint64 {
		if source.IntN(40) > 0 {
			return nil
		}
		return []uint64{source.Uint64N(6), source.Uint64()}
	}}
	db, n, err := h.recover(start, o, c.hook)
	if err != nil {
		t.Fatalf("%s: after a crash at %s: %v", where, start.at, err)
	}
	// What is there now goes on as the history. Crashes during the recovery
	// still may leave other prefixes.
	during := c.takeAll()
	for _, again := range during {
		again.least, again.most = start.least, start.most
		h.recoverAndClose(t, rng, again, where+", during the recovery from "+start.at)
	}
	h.mu.Lock()
	h.models = h.models[:n+1]
	h.synced = n // recovery made it durable
	h.mu.Unlock()
	must(t, h.write(db, rng, pool, 60+rng.IntN(150)))
	if rng.IntN(3) == 0 {
		must(t, db.Close())
		h.acknowledge()
		least, most := h.bounds()
		h.recoverAndClose(t, rng, crash{"the close", start.fs.CrashClone(rng.Uint64()), least, most, h.checkpoints()}, where)
	}
	taken := c.takeAll()
	for _, crash := range taken {
		h.recoverAndClose(t, rng, crash, where)
	}
	least, most := h.bounds()
	last := crash{"the end", start.fs.CrashClone(rng.Uint64()), least, most, h.checkpoints()}
	if len(taken) > 0 && rng.IntN(2) == 0 {
		last = taken[rng.IntN(len(taken))]
		last.fs = last.fs.CrashClone(vfs.CrashKept) // what a close after recovery left
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return last
}

// follow goes on with another history and other picks. Nothing of what pick uses
// may be used beside it.
func (c *crashes) follow(h *history, pick func(call int) (seeds []uint64)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hist, c.copies, c.pick = h, h.checkpoints, pick
}

func (c *crashes) takeAll() []crash {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := c.taken
	c.taken = nil
	return taken
}

func (h *history) recoverAndClose(t *testing.T, rng *rand.Rand, c crash, where string) {
	t.Helper()
	db, _, err := h.recover(c, crashOptions(rng), nil)
	if err == nil {
		err = db.Close()
	}
	if err != nil {
		t.Fatalf("%s: after a crash at %s: %v", where, c.at, err)
	}
}
