package sievedb

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"sievedb/vfs"
)

var ctxb = context.Background()

// checkBoth opens a checkpoint read-only and then as a store, and wants model
// m in both.
func checkBoth(t *testing.T, fs vfs.FS, dir string, m model) {
	t.Helper()
	ro, err := OpenReadOnly(dir, &Options{FS: fs})
	must(t, err)
	must(t, checkAll(ro, m))
	must(t, ro.Verify(ctxb))
	must(t, ro.Close())
	db := mustOpen(t, fs, dir, Options{MustExist: true, MemtableBytes: 16 << 10})
	must(t, checkAll(db, m))
	must(t, checkFiles(db))
	must(t, db.Verify(ctxb))
	must(t, db.Close())
}

// TestCheckpoint makes checkpoints of a store in each of its shapes. They stay
// what they are while the store goes on, and the store, while they do.
func TestCheckpoint(t *testing.T) {
	for _, links := range []bool{true, false} {
		for _, set := range optionSets() {
			if set.keys > 0 || set.name == "defaults" || set.name == "small" || set.name == "no filters" {
				t.Run(fmt.Sprintf("%s, links %v", set.name, links), func(t *testing.T) { testCheckpoint(t, set, links) })
			}
		}
	}
}

func testCheckpoint(t *testing.T, set optionSet, links bool) {
	rng := newRand(newSeed(t))
	f := vfs.NewFaulty(vfs.NewMem())
	if !links {
		f.SetRules(vfs.Rule{Ops: vfs.OpLink, Sticky: true})
	}
	db := mustOpen(t, f, "/a/store", set.o)
	pool := keyPool(rng, 400)
	h := newHistory()
	var models []model
	checkpoint := func() {
		must(t, db.Checkpoint(ctxb, fmt.Sprintf("/b/deep/%d", len(models))))
		models = append(models, h.models[len(h.models)-1])
	}
	checkpoint() // of an empty store
	for range 4 {
		must(t, h.write(db, rng, pool, 60))
		checkpoint()
	}
	compactAll(t, db)
	checkpoint() // nothing in the memtable
	for i := range models {
		checkBoth(t, f, fmt.Sprintf("/b/deep/%d", i), models[i])
	}
	// The first grows by what the store holds now, and the store loses it.
	last := models[len(models)-1]
	other := mustOpen(t, f, "/b/deep/0", set.o)
	b := db.NewBatch()
	for _, e := range last {
		must(t, other.Put(e.key, e.value))
		b.Delete(e.key)
	}
	must(t, db.Apply(b, StoreDefault))
	compactAll(t, db)
	must(t, checkAll(db, nil))
	compactAll(t, other)
	must(t, checkAll(other, last))
	must(t, other.Close())
	must(t, checkFiles(db))
	must(t, db.Close())
	for i := 1; i < len(models); i++ {
		checkBoth(t, f, fmt.Sprintf("/b/deep/%d", i), models[i])
	}
}

// Invariant 18: on a real disk, tables are the same files, and nothing else is.
func TestCheckpointLinks(t *testing.T) {
	dir := t.TempDir()
	db := mustOpen(t, vfs.OS(), dir+"/store", tiny)
	fill(t, db, nil, 300, 0)
	flushAll(t, db)
	must(t, db.Put([]byte("in the log"), nil))
	must(t, db.Checkpoint(ctxb, dir+"/copy"))
	must(t, db.Put([]byte("too late"), nil))
	names, err := os.ReadDir(dir + "/copy")
	must(t, err)
	tables := 0
	for _, n := range names {
		kind, _ := parseName(n.Name())
		ours, err := os.Stat(filepath.Join(dir, "store", n.Name()))
		copied, err2 := os.Stat(filepath.Join(dir, "copy", n.Name()))
		must(t, err2)
		if same := err == nil && os.SameFile(ours, copied); same != (kind == kindTable) {
			t.Errorf("%s is the same file: %v", n.Name(), same)
		}
		if kind == kindTable {
			tables++
		}
	}
	if tables == 0 {
		t.Error("no tables")
	}
	must(t, db.Close())
	copied := mustOpen(t, vfs.OS(), dir+"/copy", Options{})
	if _, err := copied.Get([]byte("in the log")); err != nil {
		t.Error(err)
	}
	if ok, _ := copied.Has([]byte("too late")); ok {
		t.Error("the checkpoint saw a later write")
	}
	must(t, copied.Close())
}

// TestCheckpointRefuses wants an error and not one call that changes anything.
func TestCheckpointRefuses(t *testing.T) {
	mem := vfs.NewMem()
	f := vfs.NewFaulty(mem)
	o := Options{Durability: SyncNever}
	db := mustOpen(t, f, "/store", o)
	must(t, mem.MkdirAll("/full"))
	for _, name := range []string{"/full/x", "/file"} {
		file, err := mem.Create(name)
		must(t, err)
		must(t, file.Close())
	}
	cancelled, cancel := context.WithCancel(ctxb)
	cancel()
	must(t, db.Sync())
	before := f.Count(mutating)
	for _, dir := range []string{"/full", "/store"} {
		if err := db.Checkpoint(ctxb, dir); !errors.Is(err, ErrInvalidArgument) || !errors.Is(err, fs.ErrExist) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v", dir, err)
		}
	}
	if err := db.Checkpoint(ctxb, "/file"); err == nil {
		t.Error("a file is no directory")
	}
	if err := db.Checkpoint(cancelled, "/new"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if n := f.Count(mutating); n != before {
		t.Errorf("%d calls that change something", n-before)
	}
	must(t, mem.MkdirAll("/empty"))
	must(t, db.Checkpoint(ctxb, "/empty"))
	if err := db.Checkpoint(ctxb, "/empty"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("the second into one directory: %v", err)
	}
	must(t, db.Close())
	if err := db.Checkpoint(ctxb, "/new"); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	ro, err := OpenReadOnly("/store", &Options{FS: f})
	must(t, err)
	if err := ro.Checkpoint(ctxb, "/new"); !errors.Is(err, ErrReadOnly) {
		t.Error(err)
	}
	must(t, ro.Close())
}

// filledForCheckpoint is a store with tables, two segments and no background
// work, so that the calls of a checkpoint are always the same.
func filledForCheckpoint(t *testing.T, f vfs.FS) (*DB, model) {
	t.Helper()
	db := mustOpen(t, f, "/a/store", Options{MemtableBytes: 16 << 10, L0CompactTables: 100, L0SlowTables: 100, L0StopTables: 100})
	var m model
	for i := range 40 {
		k, v := fmt.Appendf(nil, "key-%03d", i), bytes.Repeat([]byte{byte(i)}, 100)
		must(t, db.Put(k, v))
		m.put(k, v)
		if i%15 == 14 {
			flushAll(t, db)
		}
	}
	quiesce(db)()
	return db, m
}

// TestCheckpointFailsAnywhere fails, or cancels, a checkpoint at every call that
// it makes: then its directory is gone, or as empty as it was, and the store is
// as it was.
func TestCheckpointFailsAnywhere(t *testing.T) {
	for _, existed := range []bool{false, true} {
		for _, how := range []string{"fault", "fault after", "cancel", "no links"} {
			t.Run(fmt.Sprintf("%s, directory existed %v", how, existed), func(t *testing.T) {
				mem := vfs.NewMem()
				f := vfs.NewFaulty(mem)
				db, m := filledForCheckpoint(t, f)
				must(t, mem.MkdirAll("/b"))
				failed := 0
				for call := 1; ; call++ {
					dir := fmt.Sprintf("/b/c/%d", call)
					if existed {
						must(t, mem.MkdirAll(dir))
					}
					called, err := failOnce(f, db, dir, call, how)
					if err == nil { // the call may have a substitute, as a link has
						must(t, checkCheckpoint(mem, dir, m))
						must(t, removeAll(mem, dir))
						if !called {
							break
						}
						continue
					}
					failed++
					if !errors.Is(err, vfs.ErrInjected) && !errors.Is(err, context.Canceled) {
						t.Fatalf("call %d: %v", call, err)
					}
					names, listErr := mem.List(dir)
					if existed && (listErr != nil || len(names) > 0) || !existed && !errors.Is(listErr, fs.ErrNotExist) {
						t.Fatalf("call %d: %v; left %v, %v", call, err, names, listErr)
					}
					if !existed {
						if _, err := mem.Stat("/b/c"); !errors.Is(err, fs.ErrNotExist) {
							t.Fatalf("call %d: the parent that it made: %v", call, err)
						}
					}
				}
				if failed < 12 {
					t.Errorf("only %d calls failed", failed)
				}
				must(t, checkAll(db, m))
				must(t, db.Verify(ctxb))
				must(t, db.Close())
			})
		}
	}
}

// failOnce makes a checkpoint whose given call, of those in its directory,
// fails, or ends the context, and reports whether it came to that call.
func failOnce(f *vfs.Faulty, db *DB, dir string, call int, how string) (called bool, err error) {
	ctx, cancel := context.WithCancel(ctxb)
	defer cancel()
	var rules []vfs.Rule
	if how == "no links" {
		rules = []vfs.Rule{{Ops: vfs.OpLink, Sticky: true}}
		f.SetRules(rules...)
	}
	calls := 0
	f.SetHook(func(c vfs.Call) {
		if !strings.HasPrefix(c.Name, dir) && c.Name != filepath.Dir(dir) {
			return
		}
		if calls++; calls != call {
			return
		}
		if how == "cancel" {
			cancel()
		} else { // the next call, which is this one
			f.SetRules(append(rules, vfs.Rule{After: how == "fault after"})...)
		}
	})
	defer f.SetHook(nil)
	err = db.Checkpoint(ctx, dir)
	f.SetRules()
	return calls >= call, err
}

// removeAll removes a directory of files, and its parent if that is empty then.
func removeAll(fsys vfs.FS, dir string) error {
	names, err := fsys.List(dir)
	for _, name := range names {
		err = errors.Join(err, fsys.Remove(filepath.Join(dir, name)))
	}
	err = errors.Join(err, fsys.Remove(dir))
	_ = fsys.Remove(filepath.Dir(dir))
	return err
}

func checkCheckpoint(fsys vfs.FS, dir string, m model) error {
	ro, err := OpenReadOnly(dir, &Options{FS: fsys})
	if err != nil {
		return err
	}
	return errors.Join(checkAll(ro, m), ro.Verify(ctxb), ro.Close())
}

// TestCheckpointCrash crashes at every call of a checkpoint. What is left of it
// is no store, or one that does not open and says why, or all of it; and the
// store itself is whole (invariant 18).
func TestCheckpointCrash(t *testing.T) {
	rng := newRand(newSeed(t))
	for _, links := range []bool{true, false} {
		mem := vfs.NewMem()
		f := vfs.NewFaulty(mem)
		if !links {
			f.SetRules(vfs.Rule{Ops: vfs.OpLink, Sticky: true})
		}
		db, m := filledForCheckpoint(t, f)
		var left []*vfs.Mem
		var at []string
		take := func(where string) {
			for i := range 16 {
				seed := []uint64{vfs.CrashLost, vfs.CrashKept}[i%2]
				if i >= 2 {
					seed = rng.Uint64()
				}
				left = append(left, mem.CrashClone(seed))
				at = append(at, fmt.Sprintf("%s, seed %d", where, seed))
			}
		}
		f.SetHook(func(c vfs.Call) {
			if c.Op&mutating != 0 {
				take(fmt.Sprintf("before %v of %s", c.Op, c.Name))
			}
		})
		must(t, db.Checkpoint(ctxb, "/b/c/copy"))
		f.SetHook(nil)
		done := len(left)
		take("afterwards")
		outcomes := map[string]int{}
		for i, fsys := range left {
			outcome := afterCrash(t, fsys, m, at[i])
			if outcomes[outcome]++; i >= done && outcome != "complete" {
				t.Errorf("%s: %s", at[i], outcome)
			}
			src := mustOpen(t, fsys, "/a/store", Options{})
			must(t, checkAll(src, m))
			must(t, src.Close())
		}
		t.Logf("links %v: %v", links, outcomes)
		if outcomes["complete"] < 5 || outcomes["absent"] == 0 || outcomes["damaged"] == 0 {
			t.Errorf("outcomes: %v", outcomes)
		}
		must(t, db.Close())
	}
}

func afterCrash(t *testing.T, fsys *vfs.Mem, m model, at string) string {
	ro, err := OpenReadOnly("/b/c/copy", &Options{FS: fsys})
	var damage *CorruptionError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		names, _ := fsys.List("/b/c/copy")
		for _, name := range names {
			if kind, _ := parseName(name); kind == kindTable || kind == kindSegment || kind == kindManifest {
				t.Errorf("%s: %v are taken for no store", at, names)
			}
		}
		return "absent"
	case errors.As(err, &damage):
		return "damaged"
	case err != nil:
		t.Errorf("%s: %v", at, err)
		return "error"
	}
	if err := errors.Join(checkAll(ro, m), ro.Verify(ctxb), ro.Close()); err != nil {
		t.Errorf("%s: %v", at, err)
	}
	return "complete"
}

// TestCheckpointBesideWriters makes checkpoints while batches write pairs that
// are always equal: each has whole batches, without a gap, all that returned
// before, and leaves no file behind.
func TestCheckpointBesideWriters(t *testing.T) {
	for _, d := range []Durability{SyncNever, SyncAlways} {
		t.Run(d.String(), func(t *testing.T) {
			mem := vfs.NewMem()
			o := tiny
			o.Durability = d
			db := mustOpen(t, mem, "/store", o)
			const writers = 3
			var wg sync.WaitGroup
			var mu sync.Mutex
			var acknowledged [writers]uint64
			stop := make(chan struct{})
			end := sync.OnceFunc(func() { close(stop); wg.Wait() })
			defer end()
			for w := range writers {
				wg.Go(func() {
					for n := uint64(1); ; n++ {
						select {
						case <-stop:
							return
						default:
						}
						b := db.NewBatch()
						pair(b, w, n)
						if err := db.Apply(b, StoreDefault); err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						acknowledged[w] = n
						mu.Unlock()
					}
				})
			}
			for i := range 25 {
				mu.Lock()
				least := acknowledged
				mu.Unlock()
				dir := fmt.Sprintf("/c/%d", i)
				must(t, db.Checkpoint(ctxb, dir))
				ro, err := OpenReadOnly(dir, &Options{FS: mem, DisableFilters: i%2 == 1})
				must(t, err)
				for w := range writers {
					n, err := checkPair(ro, w)
					if err != nil || n < least[w] {
						t.Errorf("checkpoint %d, writer %d: %d, %v, want at least %d", i, w, n, err, least[w])
					}
				}
				must(t, ro.Verify(ctxb))
				must(t, ro.Close())
				if i%5 == 0 {
					compactAll(t, db)
				}
			}
			end()
			must(t, checkFiles(db))
			must(t, db.Close())
		})
	}
}

// pair puts number n of a writer under two keys, and once more under one of
// their own.
func pair(b *Batch, w int, n uint64) {
	v := binary.BigEndian.AppendUint64(nil, n)
	b.Put(fmt.Appendf(nil, "a-%d", w), v)
	b.Put(fmt.Appendf(nil, "log-%d-%08d", w, n%500), append(v, make([]byte, 100)...))
	b.Put(fmt.Appendf(nil, "z-%d", w), v)
}

// checkPair wants whole batches of a writer, without a gap, and returns the
// last number.
func checkPair(g getter, w int) (n uint64, err error) {
	a, errA := g.Get(fmt.Appendf(nil, "a-%d", w))
	z, errZ := g.Get(fmt.Appendf(nil, "z-%d", w))
	if errors.Is(errA, ErrNotFound) && errors.Is(errZ, ErrNotFound) {
		return 0, nil
	}
	if errA != nil || errZ != nil || !bytes.Equal(a, z) {
		return 0, fmt.Errorf("torn: %x, %v and %x, %v", a, errA, z, errZ)
	}
	n = binary.BigEndian.Uint64(a)
	it := g.Scan(fmt.Appendf(nil, "log-%d-", w), fmt.Appendf(nil, "log-%d~", w))
	seen := uint64(0)
	for _, v := range it.All() {
		got := binary.BigEndian.Uint64(v)
		if got > n || got+500 <= n {
			return n, fmt.Errorf("entry of batch %d after batch %d", got, n)
		}
		seen++
	}
	if seen != min(n, 500) {
		return n, fmt.Errorf("%d entries after batch %d", seen, n)
	}
	return n, it.Err()
}
