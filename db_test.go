package sievedb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"sievedb/vfs"
)

// TestModel does random operations on a store and on a sorted slice, and wants
// no difference: reads by every entry point, in both directions, at the present
// and on old snapshots, through flushes, compactions and reopening with other
// options. Each option set is where one run starts.
func TestModel(t *testing.T) {
	seed := newSeed(t)
	sets := optionSets()
	for i, set := range sets {
		t.Run(set.name, func(t *testing.T) {
			var fs vfs.FS = vfs.NewMem()
			dir := "/store"
			if i%8 == 0 {
				fs, dir = vfs.OS(), filepath.Join(t.TempDir(), "store")
			}
			rng := newRand(seed + uint64(i))
			r := &modelRun{t: t, rng: rng, pool: keyPool(rng, max(300, set.keys)), fs: fs, dir: dir, sets: sets, set: set}
			r.run(*modelOps / len(sets))
		})
	}
}

// TestModelShrinks is the same on short histories of few keys, which rapid
// makes: what fails is made as short as it can be before it is shown.
func TestModelShrinks(t *testing.T) {
	pool := keyPool(newRand(1), 40)
	rapid.Check(t, func(t *rapid.T) {
		sets := slices.DeleteFunc(optionSets(), func(s optionSet) bool { return s.keys > 0 })
		rng := drawn{t}
		r := &modelRun{t: t, rng: rng, pool: pool, fs: vfs.NewMem(), dir: "/store", sets: sets, set: sets[rng.IntN(len(sets))]}
		r.open()
		t.Cleanup(func() { r.db.Close() })
		steps := map[string]func(*rapid.T){}
		for _, a := range modelActions {
			steps[a.name] = func(t *rapid.T) { r.op++; a.do(r); t.Log(r.did) }
		}
		t.Repeat(steps)
		r.end()
	})
}

// drawn makes choices that rapid can shrink.
type drawn struct{ t *rapid.T }

func (d drawn) IntN(n int) int { return rapid.IntRange(0, n-1).Draw(d.t, "choice") }

// TestSameHistory does one history with each option set, and wants the same of
// all: options change how a store works, and no answer.
func TestSameHistory(t *testing.T) {
	seed := newSeed(t)
	var first []string
	for _, set := range optionSets() {
		set.keys = 0
		rng := newRand(seed)
		r := &modelRun{t: t, rng: rng, pool: keyPool(rng, 100), fs: vfs.NewMem(), dir: "/store", sets: []optionSet{set}, set: set}
		r.run(250)
		if first == nil {
			first = r.told
		}
		if !slices.Equal(r.told, first) {
			t.Errorf("%s: another history than with the first set", set.name)
		}
	}
	if len(first) < 250 {
		t.Errorf("only %d operations", len(first))
	}
}

// modelRun is one store beside its model.
type modelRun struct {
	t    rapid.TB
	rng  chooser
	pool [][]byte
	fs   vfs.FS
	dir  string
	sets []optionSet
	set  optionSet // in force

	db        *DB
	model     model
	snapshots []pinned
	cursors   []*cursor
	op        int
	did       string
	told      []string // all that was done
}

// pinned is a snapshot and what it should hold.
type pinned struct {
	*Snapshot
	model model
}

func (r *modelRun) run(ops int) {
	r.open()
	r.prefill(r.set.keys)
	for r.op = range ops {
		r.step()
		r.told = append(r.told, r.did)
	}
	r.end()
}

// end compares all that is there, and again after the store was opened once
// more.
func (r *modelRun) end() {
	r.did = "the end"
	r.check(checkAll(r.db, r.model))
	r.reopen()
	r.check(checkAll(r.db, r.model))
	r.close()
}

// prefill puts n keys, and wants the tree to get several levels if that is what
// they are for.
func (r *modelRun) prefill(n int) {
	r.did = "prefill"
	for _, k := range r.pool[:n] {
		v := bytes.Repeat([]byte(r.did), 40+r.rng.IntN(80))
		r.check(r.db.Put(k, v))
		r.model.put(k, v)
	}
	if n == 0 {
		return
	}
	quiesce(r.db)()
	r.check(checkAll(r.db, r.model))
	if levels := len(r.db.state.Load().Runs); levels < 2 {
		r.fail("only %d levels", levels)
	}
}

func (r *modelRun) open() {
	r.db = mustOpen(r.t, r.fs, r.dir, r.set.o)
}

func (r *modelRun) fail(format string, args ...any) {
	r.t.Helper()
	r.t.Fatalf("operation %d, with %s: %s: %s", r.op, r.set.name, r.did, fmt.Sprintf(format, args...))
}

func (r *modelRun) check(err error) {
	r.t.Helper()
	if err != nil {
		r.fail("%v", err)
	}
}

// modelActions are the operations, and how often of a thousand times each is
// chosen: reads and writes are in balance.
var modelActions = []struct {
	name   string
	weight int
	do     func(*modelRun)
}{
	{"put", 280, (*modelRun).put},
	{"delete", 70, (*modelRun).delete},
	{"delete range", 20, (*modelRun).deleteRange},
	{"put if", 15, (*modelRun).putIf},
	{"update", 10, (*modelRun).update},
	{"batch", 35, (*modelRun).batch},
	{"lookup", 220, (*modelRun).lookup},
	{"scan", 100, (*modelRun).scan},
	{"move a cursor", 100, (*modelRun).move},
	{"at a snapshot", 90, (*modelRun).atSnapshot},
	{"snapshot", 20, (*modelRun).snapshot},
	{"sync", 20, (*modelRun).sync},
	{"flush", 9, (*modelRun).flush},
	{"compact", 6, (*modelRun).compact},
	{"checkpoint", 1, (*modelRun).checkpoint},
	{"follow", 1, (*modelRun).follow},
	{"reopen", 3, (*modelRun).reopen},
}

// step does one operation.
func (r *modelRun) step() {
	n := r.rng.IntN(1000)
	for _, a := range modelActions {
		if n -= a.weight; n < 0 {
			a.do(r)
			return
		}
	}
}

func (r *modelRun) put() {
	k, v := r.key(), r.value()
	r.did = "put " + show(k, v)
	r.check(r.db.Put(k, v))
	r.model.put(k, v)
}

func (r *modelRun) delete() {
	k := r.key()
	r.did = "delete " + show(k, nil)
	r.check(r.db.Delete(k))
	r.model.delete(k)
}

func (r *modelRun) deleteRange() {
	lo, hi := r.model.few(r.rng, r.pool)
	r.did = fmt.Sprintf("delete range %.40q %.40q", lo, hi)
	r.check(r.db.DeleteRange(lo, hi))
	r.model.deleteRange(lo, hi)
}

func (r *modelRun) sync() {
	r.did = "sync"
	r.check(r.db.Sync())
}

func (r *modelRun) flush() {
	r.did = "flush"
	r.check(r.db.Flush(context.Background()))
}

func (r *modelRun) compact() {
	var lo, hi []byte
	if r.rng.IntN(4) > 0 {
		lo, hi = r.bounds()
	}
	r.did = fmt.Sprintf("compact %.40q %.40q", lo, hi)
	r.check(r.db.Compact(context.Background(), lo, hi))
}

// checkpoint opens a checkpoint, with other options, as a store of its own.
func (r *modelRun) checkpoint() {
	dir := fmt.Sprintf("%s-copy-%d", r.dir, r.op)
	r.did = "checkpoint"
	r.check(r.db.Checkpoint(context.Background(), dir))
	r.checkOpen(mustOpen(r.t, r.fs, dir, r.sets[r.rng.IntN(len(r.sets))].o))
}

// follow opens the store read-only beside its writer.
func (r *modelRun) follow() {
	r.sync()
	r.did = "follow"
	ro, err := OpenReadOnly(r.dir, &Options{FS: r.fs})
	r.check(err)
	r.checkOpen(ro)
}

// checkOpen compares another view of the store, and closes it.
func (r *modelRun) checkOpen(db *DB) {
	r.check(checkAll(db, r.model))
	r.check(db.Verify(context.Background()))
	r.check(db.Close())
}

// key returns a key of the pool; some are far more popular than others, so that
// versions pile up.
func (r *modelRun) key() []byte {
	if r.rng.IntN(4) == 0 {
		return r.pool[r.rng.IntN(8)]
	}
	return r.pool[r.rng.IntN(len(r.pool))]
}

func (r *modelRun) value() []byte {
	n := r.rng.IntN(120)
	switch r.rng.IntN(100) {
	case 0:
		n = 4000 + r.rng.IntN(20000)
	case 1, 2, 3:
		n = 0
	}
	v := make([]byte, n)
	for i := range v {
		v[i] = byte(r.op + i/7)
	}
	return v
}

func (r *modelRun) bounds() (lo, hi []byte) {
	lo, hi = r.key(), r.key()
	if r.rng.IntN(5) > 0 && bytes.Compare(lo, hi) > 0 {
		lo, hi = hi, lo
	}
	if r.rng.IntN(6) == 0 {
		hi = nil
	}
	if r.rng.IntN(6) == 0 {
		lo = nil
	}
	return lo, hi
}

func (r *modelRun) batch() {
	b := r.db.NewBatch()
	next := r.model
	n := r.rng.IntN(40)
	for range n {
		k := r.key()
		switch r.rng.IntN(24) {
		case 0, 1, 2, 3, 4, 5, 6:
			b.Delete(k)
			next.delete(k)
			continue
		case 7:
			lo, hi := next.few(r.rng, r.pool)
			if hi != nil && bytes.Compare(lo, hi) >= 0 {
				hi = append(bytes.Clone(lo), 0)
			}
			b.DeleteRange(lo, hi)
			next.deleteRange(lo, hi)
			continue
		}
		v := r.value()
		b.Put(k, v)
		next.put(k, v)
	}
	d := Durability(r.rng.IntN(3))
	r.did = fmt.Sprintf("apply %d with %v", n, d)
	if b.Len() != n {
		r.fail("the batch has %d", b.Len())
	}
	r.check(r.db.Apply(b, d))
	r.model = next
}

// putIf makes a conditional write of one key.
func (r *modelRun) putIf() {
	k, v := r.key(), r.value()
	i, found := r.model.search(k)
	var done bool
	var err error
	if r.rng.IntN(2) == 0 || !found {
		r.did = "put if absent " + show(k, v)
		done, err = r.db.PutIfAbsent(k, v)
		found = !found
	} else {
		old := r.model[i].value
		if r.rng.IntN(3) == 0 {
			old = append(bytes.Clone(old), 1)
			found = false
		}
		r.did = "swap " + show(k, v)
		done, err = r.db.CompareAndSwap(k, old, v)
	}
	r.check(err)
	if done != found {
		r.fail("done is %v", done)
	}
	if done {
		r.model.put(k, v)
	}
}

// update reads and writes in a transaction, which sees its own writes.
func (r *modelRun) update() {
	var next model
	err := r.db.Update(func(tx *Txn) error {
		next = r.model
		for range r.rng.IntN(12) {
			k := r.key()
			switch r.rng.IntN(8) {
			case 0, 1:
				v := r.value()
				r.check(tx.Put(k, v))
				next.put(k, v)
			case 2:
				r.check(tx.Delete(k))
				next.delete(k)
			case 3:
				lo, hi := next.few(r.rng, r.pool)
				r.check(tx.DeleteRange(lo, hi))
				next.deleteRange(lo, hi)
			case 4:
				r.scanIn(tx, next, "a transaction")
			default:
				r.lookupIn(tx, next, "a transaction")
			}
		}
		return nil
	})
	r.did = "commit a transaction"
	r.check(err)
	r.model = next
}

// getter is what a store, a snapshot and a transaction have in common.
type getter interface {
	Get(key []byte) ([]byte, error)
	GetTo(dst, key []byte) ([]byte, error)
	Has(key []byte) (bool, error)
	Scan(lo, hi []byte) *Iterator
	Prefix(prefix []byte) *Iterator
	All() *Iterator
}

func (r *modelRun) lookup() { r.lookupIn(r.db, r.model, "the store") }

func (r *modelRun) lookupIn(g getter, m model, where string) {
	k := r.key()
	if r.rng.IntN(3) == 0 { // most likely absent
		k = append(bytes.Clone(k), byte(r.rng.IntN(256)))
	}
	i, found := m.search(k)
	var want []byte
	if found {
		want = m[i].value
	}
	r.did = fmt.Sprintf("look in %s for %.40q", where, k)
	has, err := g.Has(k)
	r.check(err)
	if has != found {
		r.fail("has is %v", has)
	}
	dst := []byte("kept")
	got, err := g.GetTo(dst, k)
	if found && (err != nil || string(got) != "kept"+string(want)) || !found && (err != ErrNotFound || string(got) != "kept") {
		r.fail("GetTo returns %.40q, %v, want %v %.40q", got, err, found, want)
	}
	got, err = g.Get(k)
	if found && (err != nil || !bytes.Equal(got, want) || got == nil) || !found && (err != ErrNotFound || got != nil) {
		r.fail("Get returns %.40q, %v, want %v %.40q", got, err, found, want)
	}
}

func (r *modelRun) scan() { r.scanIn(r.db, r.model, "the store") }

func (r *modelRun) scanIn(g getter, m model, where string) {
	it, view := r.iterator(g, m, where)
	limit := 1 + r.rng.IntN(len(view)+20)
	i := 0
	if r.rng.IntN(2) == 0 {
		for k, v := range it.All() {
			if i == len(view) || !bytes.Equal(k, view[i].key) || !bytes.Equal(v, view[i].value) {
				r.fail("entry %d is %s, want %s", i, show(k, v), view.at(i))
			}
			if i++; i == limit {
				break
			}
		}
	} else {
		r.did += " backward"
		for k, v := range it.Backward() {
			e := len(view) - 1 - i
			if e < 0 || !bytes.Equal(k, view[e].key) || !bytes.Equal(v, view[e].value) {
				r.fail("entry %d is %s, want %s", e, show(k, v), view.at(e))
			}
			if i++; i == limit {
				break
			}
		}
	}
	r.check(it.Err())
	if want := min(limit, len(view)); i != want {
		r.fail("%d entries, want %d", i, want)
	}
}

// iterator returns one by a random entry point, and what it should show.
func (r *modelRun) iterator(g getter, m model, where string) (*Iterator, model) {
	switch r.rng.IntN(4) {
	case 0:
		r.did = "all of " + where
		return g.All(), m
	case 1:
		p := r.key()
		p = p[:r.rng.IntN(len(p)+1)]
		r.did = fmt.Sprintf("prefix %.40q of %s", p, where)
		var view model
		for _, e := range m {
			if bytes.HasPrefix(e.key, p) {
				view = append(view, e)
			}
		}
		return g.Prefix(p), view
	default:
		lo, hi := r.bounds()
		r.did = fmt.Sprintf("scan %.40q %.40q of %s", lo, hi, where)
		return g.Scan(lo, hi), m.between(lo, hi)
	}
}

// snapshot takes a snapshot, or closes one.
func (r *modelRun) snapshot() {
	if len(r.snapshots) < 3 || r.rng.IntN(2) == 0 && len(r.snapshots) < 10 {
		r.did = "snapshot"
		r.snapshots = append(r.snapshots, pinned{r.db.Snapshot(), r.model})
		return
	}
	r.did = "close a snapshot"
	i := r.rng.IntN(len(r.snapshots))
	r.check(r.snapshots[i].Close())
	r.snapshots = append(r.snapshots[:i], r.snapshots[i+1:]...)
}

func (r *modelRun) atSnapshot() {
	if len(r.snapshots) == 0 {
		return
	}
	s := r.snapshots[r.rng.IntN(len(r.snapshots))]
	if r.rng.IntN(2) == 0 {
		r.lookupIn(s, s.model, "a snapshot")
	} else {
		r.scanIn(s, s.model, "a snapshot")
	}
}

func (r *modelRun) close() {
	r.check(r.db.Close())
	r.check(r.db.Close())
	for _, c := range r.cursors {
		if c.Next() || c.First() || !errors.Is(c.Err(), ErrClosed) || !errors.Is(c.Close(), ErrClosed) {
			r.fail("an iterator of a closed store: %v", c.Err())
		}
	}
	for _, s := range r.snapshots {
		if _, err := s.Get(r.key()); !errors.Is(err, ErrClosed) {
			r.fail("a snapshot of a closed store: %v", err)
		}
		r.check(s.Close())
	}
	r.cursors, r.snapshots = nil, nil
}

// reopen closes the store and opens it with other options.
func (r *modelRun) reopen() {
	r.did = "reopen"
	r.close()
	r.set = r.sets[r.rng.IntN(len(r.sets))]
	r.open()
	if r.rng.IntN(3) == 0 {
		r.check(checkAll(r.db, r.model))
	}
}
