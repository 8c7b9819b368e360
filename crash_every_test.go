package sievedb

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"sievedb/vfs"
)

// crashPoints is the number of calls of the file system, at least, before which
// TestCrashAtEveryCall crashes a store; TestCrashUnderLoad does a fourth of them.
var crashPoints = flag.Int("sievedb.crashes", 700, "crash points of the crash tests")

// tally counts what the crash tests did, by what the crash came before.
type tally struct {
	mu     sync.Mutex
	kinds  map[string]*tallied
	total  tallied
	opened int // stores that a crash left, recovered and checked
	inside int // of these, crashed inside a recovery or after one
}

type tallied struct{ points, left int }

func newTally() *tally { return &tally{kinds: map[string]*tallied{}} }

func (c *tally) add(call vfs.Call, left int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := opNames[call.Op] + " of " + fileClass(call.Name)
	kind := c.kinds[name]
	if kind == nil {
		kind = &tallied{}
		c.kinds[name] = kind
	}
	for _, n := range []*tallied{kind, &c.total} {
		n.points++
		n.left += left
	}
}

func (c *tally) points() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.total.points
}

// recovered counts a store that was recovered and checked, after a second crash
// or the first.
func (c *tally) recovered(again bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opened++
	if again {
		c.inside++
	}
}

func (c *tally) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var names []string
	for name := range c.kinds {
		names = append(names, name)
	}
	slices.Sort(names)
	var s strings.Builder
	fmt.Fprintf(&s, "%-32s %9s %9s\n", "crash before", "points", "stores")
	for _, name := range names {
		fmt.Fprintf(&s, "%-32s %9d %9d\n", name, c.kinds[name].points, c.kinds[name].left)
	}
	fmt.Fprintf(&s, "%-32s %9d %9d\n", "all", c.total.points, c.total.left)
	fmt.Fprintf(&s, "recovered and checked: %d stores, of which %d crashed again in a recovery or after one", c.opened, c.inside)
	return s.String()
}

var opNames = map[vfs.Op]string{
	vfs.OpCreate: "create", vfs.OpRemove: "remove", vfs.OpRename: "rename", vfs.OpLink: "link", vfs.OpMkdirAll: "make",
	vfs.OpSyncDir: "sync", vfs.OpLock: "lock", vfs.OpWrite: "write", vfs.OpSync: "sync", vfs.OpTruncate: "truncate",
	vfs.OpPreallocate: "preallocate",
}

func callName(call vfs.Call) string { return opNames[call.Op] + " of " + call.Name }

// fileClass says what kind of file a store, or a checkpoint of it, calls so.
func fileClass(name string) string {
	in := ""
	if strings.HasPrefix(name, "/a/copy-") {
		in = ", checkpoint"
	}
	kind, _ := parseName(path.Base(name))
	class := map[fileKind]string{kindTable: "table", kindSegment: "segment", kindManifest: "manifest", kindTemp: "CURRENT.tmp"}[kind]
	if class == "" {
		switch base := path.Base(name); base {
		case "CURRENT", lockName:
			class = base
		default:
			class = "directory"
		}
	}
	return class + in
}

// TestCrashAtEveryCall leads short lives of stores, each from the making of its
// directory on, and crashes them before each call that changes the file system,
// in three ways: everything that is not synced is lost, or a random part of it,
// with torn writes and single names. Every store that this leaves is opened and
// checked: all that was acknowledged as durable is there, the rest is a prefix
// of the commits, no batch is half there, no file is left over, damaged, or has
// a number that was used before (invariants 10 to 18). Some of them are verified,
// and some crash again, before each call of the recovery or after more writes.
func TestCrashAtEveryCall(t *testing.T) {
	seed := newSeed(t)
	total := newTally()
	var lives atomic.Uint64
	var failed atomic.Bool
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), 1+*crashPoints/1000) {
		workers.Go(func() {
			for total.points() < *crashPoints && !failed.Load() {
				l := crashLife{seed: seed + lives.Add(1) - 1, tally: total, h: newHistory()}
				if err := l.run(t); err != nil {
					failed.Store(true)
					t.Errorf("%v\nthis life again, but for how its background work falls: SIEVEDB_SEED=%d go test -run='^TestCrashAtEveryCall$' -sievedb.crashes=1 .",
						err, l.seed)
				}
			}
		})
	}
	workers.Wait()
	t.Logf("%d lives\n%v", lives.Load(), total)
	if !failed.Load() && total.inside < total.points()/2 {
		t.Error("too few crashes in recoveries")
	}
}

// crashLife is one life of a store, and what became of it.
type crashLife struct {
	seed  uint64
	tally *tally
	h     *history
	pool  [][]byte
}

func (l *crashLife) run(t *testing.T) error {
	rng := newRand(l.seed)
	l.pool = keyPool(rng, 60)
	mem := vfs.NewMem()
	c := &crashes{mem: mem, hist: l.h, copies: l.h.checkpoints, tally: l.tally, pick: func(call int) []uint64 {
		if call%4 == 0 {
			return []uint64{vfs.CrashLost, vfs.CrashKept, rand.Uint64()}
		}
		return []uint64{vfs.CrashLost, rand.Uint64(), rand.Uint64()}
	}}
	f := vfs.NewFaulty(mem)
	f.SetHook(c.hook)
	for range 3 {
		o := crashOptions(rng)
		o.FS, o.MemtableBytes, o.Durability = f, 16<<10, Durability(rng.IntN(3))
		db, err := Open("/a/store", &o)
		if err != nil {
			return err
		}
		for range 5 {
			err = errors.Join(err, l.h.write(db, rng, l.pool, 6), db.Flush(context.Background()))
			l.h.acknowledge()
		}
		err = errors.Join(err, l.h.write(db, rng, l.pool, 3), db.Close())
		if err != nil {
			return err
		}
		l.h.acknowledge()
	}
	taken := c.takeAll()
	for i, left := range taken {
		taken[i].fs = nil // not kept longer than it is needed
		before := left.fs.CrashClone(vfs.CrashKept)
		if err := l.examine(left, i); err != nil {
			return fmt.Errorf("after a crash at %s: %w\nwhat it left, if -artifacts is set: %s", left.at, err, keep(t, before))
		}
	}
	return nil
}

// examine recovers and checks the i-th store that a crash left. Some are
// crashed before each call of the recovery, go on and crash, or are verified.
func (l *crashLife) examine(first crash, i int) error {
	rng := newRand(l.seed ^ uint64(i)<<32)
	inner := &crashes{mem: first.fs, hist: l.h, copies: func() []copied { return first.copies }, pick: func(call int) []uint64 { return nil }}
	if i%79 == 0 {
		inner.pick = func(call int) []uint64 { return []uint64{vfs.CrashLost, rand.Uint64()} }
	}
	db, n, err := l.h.recover(first, crashOptions(rng), inner.hook)
	if err != nil {
		return err
	}
	l.tally.recovered(false)
	again := inner.takeAll()
	for j := range again {
		// An unsynced batch that the first crash left may go with the second.
		again[j].least, again[j].most = first.least, n
	}
	h := l.h
	if i%20 == 1 {
		h = l.h.fork(n, first.copies) // recovery made it durable
		inner.follow(h, func(int) []uint64 {
			if rand.IntN(8) > 0 {
				return nil
			}
			return []uint64{rand.Uint64()}
		})
		err = h.write(db, rng, l.pool, 4+rng.IntN(8))
		least, most := h.bounds()
		again = append(append(again, inner.takeAll()...), crash{"the end", first.fs.CrashClone(rng.Uint64()), least, most, h.checkpoints()})
	}
	if i%64 == 3 { // what takes most of it is the rates of the filters
		err = errors.Join(err, db.Verify(context.Background()))
	}
	if err = errors.Join(err, db.Close()); err != nil {
		return err
	}
	for _, second := range again {
		db, _, err := h.recover(second, crashOptions(rng), nil)
		if err == nil {
			err = db.Close()
		}
		if err != nil {
			return fmt.Errorf("recovery, and then a crash at %s: %w", second.at, err)
		}
		l.tally.recovered(true)
	}
	return nil
}

// keep copies what a crash left to a directory of the test's artifacts, and
// returns that.
func keep(t *testing.T, mem *vfs.Mem) string {
	to := t.ArtifactDir()
	var walk func(dir string) error
	walk = func(dir string) error {
		names, err := mem.List(dir)
		for _, name := range names {
			name = path.Join(dir, name)
			if info, statErr := mem.Stat(name); statErr == nil && info.IsDir {
				err = errors.Join(err, walk(name))
				continue
			}
			f, openErr := mem.Open(name)
			if openErr != nil {
				return openErr
			}
			size, _ := f.Size()
			data, readErr := io.ReadAll(io.NewSectionReader(f, 0, size))
			out := filepath.Join(to, filepath.FromSlash(name))
			err = errors.Join(err, readErr, f.Close(), os.MkdirAll(filepath.Dir(out), 0o777), os.WriteFile(out, data, 0o666))
		}
		return err
	}
	if err := walk("/"); err != nil {
		t.Log(err)
	}
	return to
}
