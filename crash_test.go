package sievedb

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"path"
	"sync"
	"testing"

	"sievedb/compaction"
	"sievedb/internal/manifest"
	"sievedb/vfs"
	"sievedb/wal"
)

// mutating are the calls before which a crash can leave something else than
// before the call before.
const mutating = vfs.OpCreate | vfs.OpRemove | vfs.OpRename | vfs.OpMkdirAll | vfs.OpSyncDir |
	vfs.OpWrite | vfs.OpSync | vfs.OpTruncate | vfs.OpPreallocate | vfs.OpLock

// counterKey holds the number of the batch that wrote it, in every batch, so
// that a store tells which prefix of the history it holds.
var counterKey = []byte("!counter")

// history is the batches that a store was given, in order.
type history struct {
	mu     sync.Mutex
	models []model // models[n] is what the first n batches amount to
	synced int     // so many batches are acknowledged as durable
}

func newHistory() *history { return &history{models: []model{nil}} }

// begin adds a batch of random writes, which is then issued.
func (h *history) begin(db *DB, rng *rand.Rand, pool [][]byte) *Batch {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := db.NewBatch()
	n := len(h.models)
	m := h.models[n-1]
	for range rng.IntN(12) {
		k := pool[rng.IntN(len(pool))]
		switch rng.IntN(16) {
		case 0, 1, 2, 3:
			b.Delete(k)
			m.delete(k)
			continue
		case 4:
			lo, hi := m.few(rng, pool)
			b.DeleteRange(lo, hi)
			m.deleteRange(lo, hi)
			continue
		}
		v := bytes.Repeat(binary.AppendUvarint(nil, uint64(n)), rng.IntN(150))
		b.Put(k, v)
		m.put(k, v)
	}
	v := binary.AppendUvarint(nil, uint64(n))
	b.Put(counterKey, v)
	m.put(counterKey, v)
	h.models = append(h.models, m)
	return b
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

// crash is what a crash at some moment left.
type crash struct {
	at          string
	fs          *vfs.Mem
	least, most int // batches that must and may be there
}

// crashes takes clones of a file system at the calls that pick picks.
type crashes struct {
	mem  *vfs.Mem
	hist *history
	pick func(call int) (seeds []uint64)

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
	for _, seed := range c.pick(c.calls) {
		least, _ := c.hist.bounds()
		fs := c.mem.CrashClone(seed)
		_, most := c.hist.bounds()
		c.taken = append(c.taken, crash{fmt.Sprintf("call %d, %v of %s, seed %d", c.calls, call.Op, call.Name, seed), fs, least, most})
	}
}

// crashOptions make background work frequent.
func crashOptions(rng *rand.Rand) Options {
	sets := optionSets()
	return sets[rng.IntN(len(sets))].o
}

// write does random work on db until ops batches are written.
func (h *history) write(t *testing.T, db *DB, rng *rand.Rand, pool [][]byte, ops int) {
	t.Helper()
	for range ops {
		d := []Durability{SyncNever, SyncNever, SyncAlways}[rng.IntN(3)]
		must(t, db.Apply(h.begin(db, rng, pool), d))
		if d == SyncAlways {
			h.acknowledge()
		}
		switch rng.IntN(30) {
		case 0:
			must(t, db.Sync())
			h.acknowledge()
		case 1:
			must(t, db.Flush(context.Background()))
			h.acknowledge() // tables are durable
		case 2:
			must(t, db.Compact(context.Background(), nil, nil))
			h.acknowledge()
		}
	}
}

// recover opens what a crash left, checks it, and returns the store open and
// the file system that counts its calls.
func (h *history) recover(c crash, o Options, hook func(vfs.Call)) (*DB, int, error) {
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
		return nil, 0, err
	}
	n, err := h.check(db, c.least, c.most)
	if err == nil {
		err = reused
	}
	if err == nil {
		err = checkFiles(db)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("%w (close: %v)", err, db.Close())
	}
	return db, n, nil
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
	db.mu.Lock()
	for {
		_, work := compaction.Pick(db.state.Load().Version, db.pickInput(db.state.Load(), false))
		if !work && len(db.running) == 0 && len(db.immutables) == 0 && db.trash.empty() {
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
	rounds := 25
	if *modelOps >= 1_000_000 {
		rounds = 500
	}
	for round := range rounds {
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
	c := &crashes{mem: start.fs, hist: h, pick: func(int) []uint64 {
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
	h.write(t, db, rng, pool, 60+rng.IntN(150))
	if rng.IntN(3) == 0 {
		must(t, db.Close())
		h.acknowledge()
		least, most := h.bounds()
		h.recoverAndClose(t, rng, crash{"the close", start.fs.CrashClone(rng.Uint64()), least, most}, where)
	}
	taken := c.takeAll()
	for _, crash := range taken {
		h.recoverAndClose(t, rng, crash, where)
	}
	least, most := h.bounds()
	last := crash{"the end", start.fs.CrashClone(rng.Uint64()), least, most}
	if len(taken) > 0 && rng.IntN(2) == 0 {
		last = taken[rng.IntN(len(taken))]
		last.fs = last.fs.CrashClone(vfs.CrashKept) // what a close after recovery left
		last.least = max(last.least, 0)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return last
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

// TestCrashAtEveryCall crashes a short life of a store, from the making of its
// directory on, before each call that changes the file system, in three ways,
// and every seventh recovery from there before each of its calls as well
// (invariants 11 to 17).
func TestCrashAtEveryCall(t *testing.T) {
	seed := newSeed(t)
	h := newHistory()
	every := func(int) []uint64 { return []uint64{vfs.CrashLost, vfs.CrashKept, seed} }
	mem := vfs.NewMem()
	c := &crashes{mem: mem, hist: h, pick: every}
	f := vfs.NewFaulty(mem)
	f.SetHook(c.hook)
	o := Options{FS: f, Durability: SyncNever, MemtableBytes: 16 << 10, TableBytes: 4 << 10, BlockBytes: 256}
	rng := newRand(seed)
	pool := keyPool(rng, 60)
	for range 3 {
		db, err := Open("/a/store", &o)
		must(t, err)
		for range 6 {
			must(t, db.Apply(h.begin(db, rng, pool), StoreDefault))
			must(t, db.Apply(h.begin(db, rng, pool), SyncAlways))
			h.acknowledge()
			must(t, db.Apply(h.begin(db, rng, pool), SyncNever))
			must(t, db.Flush(context.Background()))
			h.acknowledge()
		}
		must(t, db.Apply(h.begin(db, rng, pool), SyncNever))
		must(t, db.Compact(context.Background(), nil, nil))
		h.acknowledge()
		must(t, db.Apply(h.begin(db, rng, pool), SyncNever))
		must(t, db.Close())
		h.acknowledge()
	}
	taken := c.takeAll()
	again := 0
	for i, crash := range taken {
		inner := &crashes{mem: crash.fs, hist: h, pick: func(int) []uint64 { return nil }}
		if i%7 == 0 {
			inner.pick = func(call int) []uint64 { return []uint64{vfs.CrashLost, seed + uint64(call)} }
		}
		db, n, err := h.recover(crash, Options{}, inner.hook)
		if err == nil {
			taken := inner.takeAll()
			err = db.Close()
			inner.takeAll() // of the store at rest and its close
			inner.taken = taken
		}
		if err != nil {
			t.Fatalf("after a crash at %s: %v", crash.at, err)
		}
		for _, second := range inner.takeAll() {
			again++
			// An unsynced batch that the first crash left may go with the second.
			second.least, second.most = crash.least, n
			h.recoverAndClose(t, rng, second, "in the recovery from "+crash.at)
		}
	}
	t.Logf("%d crashes, %d more in recoveries", len(taken), again)
	if len(taken) < 300 || again < 300 {
		t.Fatal("too few")
	}
}
