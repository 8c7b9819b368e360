package sievedb

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"sievedb/vfs"
)

// rewriteManifestOf makes the writer begin a new manifest, as it does when the
// old one has grown.
func rewriteManifestOf(t *testing.T, db *DB) {
	t.Helper()
	must(t, rewriteManifest(db))
}

func rewriteManifest(db *DB) error {
	db.manifestMu.Lock()
	defer db.manifestMu.Unlock()
	return db.rewriteManifest()
}

func mustFollow(t testing.TB, fsys vfs.FS, dir string, o Options) *DB {
	t.Helper()
	o.FS = fsys
	ro, err := OpenReadOnly(dir, &o)
	must(t, err)
	return ro
}

// TestFollower follows a store through all that a writer does to its files:
// flushes, compactions, rotations of the log, new manifests, restarts with and
// without a clean close. It always holds a prefix of the history, which has
// everything that was handed to the system, and never goes back.
func TestFollower(t *testing.T) {
	for _, set := range optionSets() {
		t.Run(set.name, func(t *testing.T) {
			t.Parallel()
			rng := newRand(newSeed(t))
			h, mem := newHistory(), vfs.NewMem()
			pool := keyPool(rng, 300)
			disk := vfs.NewFaulty(mem)
			writer := mustOpen(t, disk, "/a/store", set.o)
			followers := []*DB{
				mustFollow(t, frozen{mem, t}, "/a/store", Options{}),
				mustFollow(t, frozen{mem, t}, "/a/store", Options{DisableFilters: true, CacheBytes: -1}),
			}
			seen, killed := make([]int, len(followers)), 0
			for i := 0; i < 60 || killed < 2; i++ {
				must(t, h.write(writer, rng, pool, 1+rng.IntN(30)))
				switch rng.IntN(8) {
				case 0:
					rewriteManifestOf(t, writer)
				case 1:
					must(t, writer.Close())
					h.acknowledge()
					writer = mustOpen(t, disk, "/a/store", set.o)
				case 2: // killed: what it had not written yet is lost
					disk.SetRules(vfs.Rule{Sticky: true})
					_ = writer.Close()
					disk = vfs.NewFaulty(mem)
					writer = mustOpen(t, disk, "/a/store", set.o)
					n, err := h.check(writer, h.synced, len(h.models)-1)
					must(t, err)
					h.models = h.models[:n+1]
					killed++
				}
				for i, ro := range followers {
					if i > 0 && rng.IntN(3) > 0 {
						continue // it has more to catch up with
					}
					least, most := h.bounds()
					must(t, ro.Refresh())
					n, err := h.check(ro, max(least, seen[i]), most)
					if err != nil {
						t.Fatalf("follower %d: %v", i, err)
					}
					seen[i] = n
				}
			}
			must(t, writer.Close())
			for _, ro := range followers {
				must(t, ro.Refresh())
				_, most := h.bounds()
				_, err := h.check(ro, most, most)
				must(t, err)
				must(t, ro.Verify(ctxb))
				must(t, ro.Close())
			}
		})
	}
}

// TestFollowerBesideWriter reads through a follower while it is refreshed and
// while the store that it follows is written, compacted and restarted. No
// snapshot, scan or transaction ever sees a part of a batch, a gap, or less than
// one before it.
func TestFollowerBesideWriter(t *testing.T) {
	base := goleak.IgnoreCurrent()
	refreshes := 150
	if *modelOps >= 1_000_000 {
		refreshes = 20_000
	}
	mem := vfs.NewMem()
	o := tiny
	o.Durability = SyncNever
	db := mustOpen(t, mem, "/store", o)
	ro := mustFollow(t, frozen{mem, t}, "/store", Options{})
	const writers = 2
	var wg sync.WaitGroup
	var done, reads atomic.Int64
	stop := make(chan struct{})
	end := sync.OnceFunc(func() { close(stop); wg.Wait() })
	defer end()
	loop := func(f func(i uint64) error) {
		wg.Go(func() {
			for i := uint64(1); ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				if err := f(i); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for w := range writers {
		loop(func(i uint64) error {
			b := db.NewBatch()
			pair(b, w, i)
			done.Add(1)
			return db.Apply(b, []Durability{SyncNever, SyncAlways}[i%2])
		})
	}
	loop(func(i uint64) error {
		if i%4 == 0 {
			return db.Compact(ctxb, nil, nil)
		}
		return db.Flush(ctxb)
	})
	last := [3][writers]uint64{}
	for r := range 3 {
		loop(func(i uint64) (err error) {
			w := int(i) % writers
			n := uint64(0)
			switch reads.Add(1); r {
			case 0:
				s := ro.Snapshot()
				defer s.Close()
				n, err = checkPair(s, w)
			case 1:
				err = ro.View(func(tx *Txn) error { n, err = checkPair(tx, w); return err })
			case 2:
				found := map[string]uint64{}
				it := ro.All()
				for k, v := range it.All() {
					found[string(k)] = binary.BigEndian.Uint64(v)
				}
				a, z := found[fmt.Sprintf("a-%d", w)], found[fmt.Sprintf("z-%d", w)]
				if n, err = a, it.Err(); a != z || a > 0 && found[fmt.Sprintf("log-%d-%08d", w, a%500)] != a {
					err = fmt.Errorf("a scan saw %d and %d", a, z)
				}
			}
			if err == nil && n < last[r][w] {
				err = fmt.Errorf("reader %d went back from %d to %d", r, last[r][w], n)
			}
			last[r][w] = n
			return err
		})
	}
	for i := 0; i < refreshes || done.Load() < 2000 || reads.Load() < 200; i++ {
		must(t, ro.Refresh())
		if i%20 == 0 {
			rewriteManifestOf(t, db)
			must(t, ro.Verify(ctxb))
			_ = ro.Metrics()
		}
	}
	end()
	must(t, db.Sync())
	must(t, ro.Refresh())
	for w := range writers {
		ours, err := checkPair(db, w)
		theirs, err2 := checkPair(ro, w)
		if err != nil || err2 != nil || ours != theirs || ours == 0 {
			t.Errorf("in the end: %d, %v, and followed %d, %v", ours, err, theirs, err2)
		}
	}
	t.Logf("%d batches, %d reads", done.Load(), reads.Load())
	must(t, checkFiles(db))
	must(t, ro.Close())
	must(t, db.Close())
	if err := goleak.Find(base); err != nil {
		t.Error(err)
	}
}

// TestFollowerPublishes stops a Refresh between the two things that it changes
// for readers. The state that is then in force shows whole batches, with the old
// versions that the writer has dropped.
func TestFollowerPublishes(t *testing.T) {
	mem := vfs.NewMem()
	db := mustOpen(t, mem, "/store", tiny)
	write := func(n uint64) {
		b := db.NewBatch()
		pair(b, 0, n)
		must(t, db.Apply(b, SyncAlways))
	}
	write(1)
	ro := mustFollow(t, frozen{mem, t}, "/store", Options{})
	write(2)
	compactAll(t, db)
	write(3)
	was := ro.visible()
	ro.mu.Lock()
	var wg sync.WaitGroup
	refresh := func() {
		if err := ro.catchUp(); err != nil {
			t.Error(err)
		}
	}
	wg.Go(refresh)
	for ro.visible() == was { // the number comes first: the other way round this never ends
		runtime.Gosched()
	}
	n, err := checkPair(ro, 0)
	if err != nil || n == 0 || n == 3 {
		t.Errorf("in between: %d, %v", n, err)
	}
	ro.mu.Unlock()
	wg.Wait()
	if n, err := checkPair(ro, 0); err != nil || n != 3 {
		t.Errorf("afterwards: %d, %v", n, err)
	}
	must(t, ro.Close())
	must(t, db.Close())
}

// TestFollowerKeepsWhatItReads holds a snapshot, an iterator and a transaction
// while the writer replaces everything and removes the files.
func TestFollowerKeepsWhatItReads(t *testing.T) {
	for _, onDisk := range []bool{false, true} {
		var fsys vfs.FS = vfs.NewMem()
		dir := "/store"
		if onDisk {
			fsys, dir = vfs.OS(), t.TempDir()
		}
		o := Options{Durability: SyncNever, MemtableBytes: 16 << 10, L0CompactTables: 200, L0SlowTables: 200, L0StopTables: 200}
		db := mustOpen(t, fsys, dir, o)
		old := fill(t, db, nil, 2500, 0)
		old = fill(t, db, old, 20, 1) // in the log only
		must(t, db.Sync())
		quiesce(db)()
		ro := mustFollow(t, frozen{fsys, t}, dir, Options{CacheBytes: -1, MaxOpenFiles: 16})
		if n := ro.Metrics().OpenTableFiles; n <= 16 {
			t.Errorf("%d open tables", n) // all of them, whatever the option says
		}
		snap, it := ro.Snapshot(), ro.All()
		now := fill(t, db, old, 2500, 2)
		for range 100 {
			must(t, db.Delete(now[0].key))
			now.delete(now[0].key)
		}
		check := func(where string) {
			for _, e := range old {
				if v, err := snap.Get(e.key); err != nil || string(v) != string(e.value) {
					t.Fatalf("%s: snapshot: %s: %v", where, show(e.key, v), err)
				}
			}
			i := 0
			for ok := it.First(); ok; ok = it.Next() {
				if string(it.Key()) != string(old[i].key) || string(it.Value()) != string(old[i].value) {
					t.Fatalf("%s: iterator: %s", where, show(it.Key(), it.Value()))
				}
				i++
			}
			if it.Err() != nil || i != len(old) {
				t.Fatalf("%s: iterator: %d entries, %v", where, i, it.Err())
			}
			all := 0
			for range snap.All().All() {
				all++
			}
			if has, err := snap.Has(old[0].key); !has || err != nil || all != len(old) {
				t.Fatalf("%s: snapshot: %v, %v, %d entries", where, has, err, all)
			}
		}
		must(t, ro.View(func(tx *Txn) error {
			compactAll(t, db)
			must(t, checkAll(ro, old)) // not refreshed, though its files are gone
			must(t, ro.Verify(ctxb))
			must(t, db.Sync())
			must(t, ro.Refresh())
			must(t, checkAll(ro, now))
			v, err := tx.Get(old[0].key)
			if string(v) != string(old[0].value) {
				t.Errorf("transaction: %q", v)
			}
			return err
		}))
		check("refreshed")
		must(t, db.Close())
		must(t, ro.Refresh())
		check("the writer is closed")
		before := ro.Metrics().OpenTableFiles
		must(t, it.Close())
		must(t, snap.Close())
		must(t, snap.Close())
		if _, err := snap.Get(old[0].key); !errors.Is(err, ErrClosed) || !errors.Is(snap.All().Err(), ErrClosed) {
			t.Errorf("closed snapshot: %v", err)
		}
		if after := ro.Metrics().OpenTableFiles; after >= before {
			t.Errorf("%d files open while held, %d afterwards", before, after)
		}
		must(t, checkAll(ro, now))
		must(t, ro.Close())
	}
}

// TestFollowerPartlyFlushed follows a store whose recovery made a table of the
// first half of a segment: what is in tables is in no memtable (invariant 3).
func TestFollowerPartlyFlushed(t *testing.T) {
	mem := vfs.NewMem()
	db := mustOpen(t, mem, "/store", Options{Durability: SyncNever})
	m := fill(t, db, nil, 300, 0)
	must(t, db.Sync())
	before := mustFollow(t, frozen{mem, t}, "/store", Options{})
	must(t, db.Close())
	db = mustOpen(t, mem, "/store", tiny)
	st := db.manifest.State()
	if len(st.Segments) != 2 || st.LastSeq == 0 || st.LastSeq >= 300 {
		t.Fatalf("%d segments, tables up to %d", len(st.Segments), st.LastSeq)
	}
	must(t, before.Refresh())
	for what, ro := range map[string]*DB{"before": before, "after": mustFollow(t, frozen{mem, t}, "/store", Options{})} {
		s := ro.state.Load()
		for _, table := range append(s.Immutables, s.Mutable) {
			if !table.Empty() && table.SmallestSeq() <= st.LastSeq {
				t.Errorf("opened %s: a memtable from %d on, tables up to %d", what, table.SmallestSeq(), st.LastSeq)
			}
		}
		must(t, checkAll(ro, m))
		must(t, ro.Close())
	}
	must(t, db.Close())
}

// TestFollowerRestarts removes tables and segments between the follower's look
// at the manifest and its look at the file (invariant 19).
func TestFollowerRestarts(t *testing.T) {
	for _, c := range []struct {
		name string
		op   vfs.Op
		ext  string
	}{{"table", vfs.OpStat, ".sst"}, {"opened table", vfs.OpOpen, ".sst"}, {"segment", vfs.OpOpen, ".wal"}, {"manifest", vfs.OpOpen, ""}} {
		t.Run(c.name, func(t *testing.T) {
			mem := vfs.NewMem()
			db := mustOpen(t, mem, "/store", tiny)
			m := fill(t, db, nil, 300, 0)
			compactAll(t, db)
			m = fill(t, db, m, 10, 1)
			f := vfs.NewFaulty(mem)
			moves, gen, size := 1, 2, 300
			f.SetHook(func(call vfs.Call) {
				name := filepath.Base(call.Name)
				hit := strings.HasSuffix(name, c.ext) && c.ext != "" || c.ext == "" && strings.HasPrefix(name, "MANIFEST-")
				if call.Op != c.op || !hit || moves == 0 {
					return
				}
				moves--
				m = fill(t, db, m, size, gen)
				gen++
				compactAll(t, db)
				rewriteManifestOf(t, db)
				m = fill(t, db, m, 3, gen)
			})
			ro := mustFollow(t, frozen{f, t}, "/store", Options{})
			must(t, checkAll(ro, m))
			if moves != 0 {
				t.Fatal("the writer was not called")
			}
			moves = 3
			m = fill(t, db, m, 300, gen)
			must(t, ro.Refresh())
			must(t, checkAll(ro, m))
			if c.name != "manifest" && moves != 0 {
				t.Errorf("%d moves are left", moves)
			}

			// A writer that is always faster: an error that is not damage, and
			// the store as it was.
			was := m
			m = fill(t, db, m, 300, gen)
			moves, size = 1<<20, 20
			err := ro.Refresh()
			if err == nil || errors.Is(err, ErrCorrupt) {
				t.Errorf("a writer that is always faster: %v", err)
			}
			if moves < 1<<20-200 { // a few files for each
				t.Errorf("%d attempts", 1<<20-moves)
			}
			moves = 0
			must(t, checkAll(ro, was))
			must(t, ro.Refresh())
			must(t, checkAll(ro, m))
			must(t, ro.Close())
			must(t, db.Close())
		})
	}
}

// overtaken is a file system on which a writer overtakes a reader: the first
// read of a segment ends in bytes that were not written yet when it began, and
// the next one finds them, and later ones that vouch for them.
type overtaken struct {
	vfs.FS
	from  int64 // of the segment, from where the first read sees zeros
	reads *int
}

func (o overtaken) Open(name string) (vfs.File, error) {
	f, err := o.FS.Open(name)
	if err != nil || filepath.Ext(name) != ".wal" {
		return f, err
	}
	return overtakenFile{f, o}, nil
}

type overtakenFile struct {
	vfs.File
	o overtaken
}

func (f overtakenFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	if n > 1000 { // not the header
		if *f.o.reads++; *f.o.reads == 1 {
			clear(p[max(0, f.o.from-off):n])
		}
	}
	return n, err
}

// TestFollowerOvertaken reads a log while it is written: what looks like damage
// that a later record vouches for is none.
func TestFollowerOvertaken(t *testing.T) {
	for _, resumed := range []bool{false, true} {
		mem := vfs.NewMem()
		db := mustOpen(t, mem, "/store", Options{})
		var m model
		put := func(from, to int) {
			for i := from; i < to; i++ {
				k, v := fmt.Appendf(nil, "%05d", i), make([]byte, 600)
				must(t, db.Put(k, v)) // synced: each vouches for the one before it
				m.put(k, v)
			}
		}
		put(0, 400)
		c, err := db.cut()
		must(t, err)
		at := int64(c.manifest.Segments[0].SizeBytes)
		must(t, c.release())
		reads := 1 << 20
		fsys := overtaken{FS: mem, from: at + 700, reads: &reads}
		var ro *DB
		if resumed {
			ro = mustFollow(t, fsys, "/store", Options{})
		}
		put(400, 900) // past the first window of the reader
		reads = 0
		if resumed {
			must(t, ro.Refresh())
		} else {
			ro = mustFollow(t, fsys, "/store", Options{})
		}
		if reads < 3 {
			t.Errorf("%d reads", reads)
		}
		must(t, checkAll(ro, m))
		must(t, ro.Close())
		must(t, db.Close())
	}
}

// TestFollowerDamage damages what is followed, or puts something else in its
// place: an error that says so, each time, and reads go on as before.
func TestFollowerDamage(t *testing.T) {
	remove := func(suffix string) func(*testing.T, *vfs.Mem) {
		return func(t *testing.T, mem *vfs.Mem) {
			names, err := mem.List("/store")
			must(t, err)
			for _, name := range names {
				if strings.HasSuffix(name, suffix) {
					must(t, mem.Remove("/store/"+name))
				}
			}
		}
	}
	replaceBy := func(dir string) func(*testing.T, *vfs.Mem) {
		return func(t *testing.T, mem *vfs.Mem) {
			remove("")(t, mem)
			names, err := mem.List(dir)
			must(t, err)
			for _, name := range names {
				must(t, mem.Link(dir+"/"+name, "/store/"+name))
			}
		}
	}
	for _, c := range []struct {
		name   string
		damage func(*testing.T, *vfs.Mem)
		want   string
	}{
		{"table missing", remove(".sst"), "table: want the file, got none"},
		{"segment missing", remove(".wal"), "want the file, got none"},
		{"older copy", replaceBy("/older"), "newest sequence number of the store that is followed"},
		{"another store", replaceBy("/other"), "store ID of the store that is followed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			mem := vfs.NewMem()
			other := mustOpen(t, mem, "/other", tiny)
			fill(t, other, nil, 10, 0)
			must(t, other.Close())
			db := mustOpen(t, mem, "/store", tiny)
			m := fill(t, db, nil, 300, 0)
			must(t, db.Checkpoint(ctxb, "/older"))
			m = fill(t, db, m, 100, 1)
			flushAll(t, db)
			m = fill(t, db, m, 10, 2)
			ro := mustFollow(t, frozen{mem, t}, "/store", Options{CacheBytes: -1})
			fill(t, db, m, 300, 3)
			compactAll(t, db)
			must(t, db.Close())
			c.damage(t, mem)
			for range 2 {
				err := ro.Refresh()
				var damage *CorruptionError
				if !errors.As(err, &damage) || damage.File == "" || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v, want %s", err, c.want)
				}
				must(t, checkAll(ro, m))
			}
			must(t, ro.Close())
		})
	}
}

// TestFollowerKeepsItsFiles: a follower that meets the limit of open files does not
// make room with the files of what it shows, whose names may be gone (invariant 19).
func TestFollowerKeepsItsFiles(t *testing.T) {
	mem := vfs.NewMem()
	o := effectOptions()
	o.TableBytes = 4 << 10
	writer := mustOpen(t, mem, "/store", o)
	key := func(i int) []byte { return fmt.Appendf(nil, "key-%05d", i) }
	const n = 2000
	write := func(value string) {
		for i := range n {
			must(t, writer.Put(key(i), []byte(value)))
		}
		compactAll(t, writer)
	}
	write("old")
	disk := vfs.NewFaulty(mem)
	follower := mustFollow(t, disk, "/store", o)
	expect := func(want string) {
		t.Helper()
		for i := range n {
			if v, err := follower.Get(key(i)); err != nil || string(v) != want {
				t.Fatalf("%s is %q, %v, want %q", key(i), v, err, want)
			}
		}
	}
	expect("old")
	write("new") // and the names of the old tables are gone
	disk.SetRules(vfs.Rule{Ops: vfs.OpOpen, Path: "*.sst", Err: syscall.EMFILE, Sticky: true})
	if err := follower.Refresh(); !errors.Is(err, syscall.EMFILE) {
		t.Errorf("Refresh: %v", err)
	}
	expect("old")
	disk.SetRules()
	must(t, follower.Refresh())
	expect("new")
	must(t, follower.Close())
	must(t, writer.Close())
}
