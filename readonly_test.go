package sievedb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"sievedb/vfs"
)

// frozen is a file system on which nothing may be changed: whoever tries fails
// the test.
type frozen struct {
	vfs.FS
	t *testing.T
}

func (f frozen) fail(what, name string) error {
	f.t.Helper()
	f.t.Errorf("%s of %s on a read-only store", what, name)
	return fs.ErrPermission
}

func (f frozen) Create(name string) (vfs.File, error) { return nil, f.fail("create", name) }
func (f frozen) OpenReadWrite(name string) (vfs.File, error) {
	return nil, f.fail("open to write", name)
}
func (f frozen) Remove(name string) error            { return f.fail("remove", name) }
func (f frozen) Rename(name, _ string) error         { return f.fail("rename", name) }
func (f frozen) Link(name, _ string) error           { return f.fail("link", name) }
func (f frozen) MkdirAll(name string) error          { return f.fail("mkdir", name) }
func (f frozen) SyncDir(name string) error           { return f.fail("sync", name) }
func (f frozen) Lock(name string) (io.Closer, error) { return nil, f.fail("lock", name) }

func (f frozen) Open(name string) (vfs.File, error) {
	file, err := f.FS.Open(name)
	if err != nil {
		return nil, err
	}
	return frozenFile{file, f, name}, nil
}

type frozenFile struct {
	vfs.File
	fs   frozen
	name string
}

func (f frozenFile) Write([]byte) (int, error) { return 0, f.fs.fail("write", f.name) }
func (f frozenFile) Sync() error               { return f.fs.fail("sync", f.name) }
func (f frozenFile) Truncate(int64) error      { return f.fs.fail("truncate", f.name) }
func (f frozenFile) Preallocate(int64) error   { return f.fs.fail("preallocate", f.name) }

// TestReadOnlyAfterCrash opens what crashes left, read-only and without a call
// that could change anything, and wants what a recovery then brings back, no
// more and no less (invariants 17 and 19).
func TestReadOnlyAfterCrash(t *testing.T) {
	rng := newRand(newSeed(t))
	torn := 0
	for range 6 {
		h, mem := newHistory(), vfs.NewMem()
		picker := newRand(rng.Uint64()) // its own: it runs beside the writes
		c := &crashes{mem: mem, hist: h, pick: func(int) []uint64 {
			if picker.IntN(25) > 0 {
				return nil
			}
			return []uint64{[]uint64{vfs.CrashLost, vfs.CrashKept, picker.Uint64()}[picker.IntN(3)]}
		}}
		f := vfs.NewFaulty(mem)
		f.SetHook(c.hook)
		db := mustOpen(t, f, "/a/store", crashOptions(rng))
		must(t, h.write(db, rng, keyPool(rng, 300), 120))
		must(t, db.Close())
		for _, left := range c.takeAll() {
			ro, err := OpenReadOnly("/a/store", &Options{FS: frozen{left.fs, t}})
			if errors.Is(err, fs.ErrNotExist) && left.least == 0 {
				continue
			}
			if err != nil {
				t.Fatalf("%s: %v", left.at, err)
			}
			n, err := h.check(ro, left.least, left.most)
			if err == nil {
				_ = ro.Metrics()
				err = errors.Join(ro.Verify(ctxb), ro.Refresh(), ro.Close())
			}
			if err != nil {
				t.Fatalf("%s: %v", left.at, err)
			}
			if n < left.most {
				torn++
			}
			again, m, err := h.recover(left, tiny, nil)
			if err != nil || m != n {
				t.Fatalf("%s: %d batches read-only, %d recovered, %v", left.at, n, m, err)
			}
			must(t, again.Close())
		}
	}
	if torn == 0 {
		t.Error("no crash lost anything")
	}
}

// TestReadOnlyMedia opens a directory without write permission, of a store that
// was not closed, and finds every file as it was afterwards.
func TestReadOnlyMedia(t *testing.T) {
	dir := t.TempDir()
	db := mustOpen(t, vfs.OS(), dir+"/store", tiny)
	m := fill(t, db, nil, 300, 0)
	quiesce(db)()
	must(t, os.CopyFS(dir+"/media", os.DirFS(dir+"/store"))) // while it is open, as a crash leaves it
	must(t, db.Close())
	var before []string
	list := func() (all []string) {
		names, err := os.ReadDir(dir + "/media")
		must(t, err)
		for _, n := range names {
			info, err := n.Info()
			must(t, err)
			all = append(all, fmt.Sprint(n.Name(), info.Size(), info.ModTime(), info.Mode()))
		}
		return all
	}
	names, err := os.ReadDir(dir + "/media")
	must(t, err)
	for _, n := range names {
		must(t, os.Chmod(filepath.Join(dir, "media", n.Name()), 0o444))
	}
	must(t, os.Chmod(dir+"/media", 0o555))
	defer func() { must(t, os.Chmod(dir+"/media", 0o755)) }()
	before = list()
	ro, err := OpenReadOnly(dir+"/media", nil)
	must(t, err)
	must(t, checkAll(ro, m))
	must(t, ro.Verify(ctxb))
	must(t, ro.Close())
	if after := list(); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("before: %v\nafter: %v", before, after)
	}
}

// TestReadOnlyWrites wants ErrReadOnly from everything that writes, and the
// other errors of a read-only store.
func TestReadOnlyWrites(t *testing.T) {
	base := goleak.IgnoreCurrent()
	mem := vfs.NewMem()
	db := mustOpen(t, mem, "/store", tiny)
	m := fill(t, db, nil, 300, 0)
	flushAll(t, db)
	if err := db.Refresh(); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("Refresh of a writable store: %v", err)
	}
	must(t, db.Close())

	ro, err := OpenReadOnly("/store", &Options{FS: frozen{mem, t}, Latencies: true})
	must(t, err)
	k, v := []byte("key-00001"), []byte("v")
	b := ro.NewBatch()
	b.Put(k, v)
	for what, err := range map[string]error{
		"Put": ro.Put(k, v), "Delete": ro.Delete(k), "Apply": ro.Apply(b, SyncAlways), "empty Apply": ro.Apply(ro.NewBatch(), StoreDefault),
		"Flush": ro.Flush(ctxb), "Compact": ro.Compact(ctxb, nil, nil), "empty Compact": ro.Compact(ctxb, k, k), "Sync": ro.Sync(),
		"Checkpoint":     ro.Checkpoint(ctxb, "/copy"),
		"PutIfAbsent":    second(ro.PutIfAbsent([]byte("new"), v)),
		"CompareAndSwap": second(ro.CompareAndSwap(k, v, v)),
		"Update":         ro.Update(func(tx *Txn) error { return tx.Put(k, v) }),
	} {
		if !errors.Is(err, ErrReadOnly) {
			t.Errorf("%s: %v", what, err)
		}
	}
	must(t, ro.View(func(tx *Txn) error { _, err := tx.Get(k); return err }))
	must(t, checkAll(ro, m))
	if got := ro.Metrics(); got.FatalError != nil || got.BackgroundError != nil || got.OpenTableFiles == 0 {
		t.Errorf("metrics: %v", got)
	}
	must(t, ro.Close())
	must(t, ro.Close())
	for what, err := range map[string]error{
		"Refresh": ro.Refresh(), "Verify": ro.Verify(ctxb), "Put": ro.Put(k, v), "Get": second(ro.Get(k)), "All": ro.All().Err(),
		"Checkpoint": ro.Checkpoint(ctxb, "/copy"),
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s after Close: %v", what, err)
		}
	}
	if _, err := OpenReadOnly("/nothing", &Options{FS: frozen{mem, t}}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no store: %v", err)
	}
	if _, err := OpenReadOnly("/store", &Options{FS: frozen{mem, t}, MustBeNew: true}); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("MustBeNew: %v", err)
	}
	if err := goleak.Find(base); err != nil {
		t.Error(err)
	}
}

func second[T any](_ T, err error) error { return err }

// TestVerify flips bytes all over the files of a store: Verify names the file,
// on the store that has it open and on a read-only one.
func TestVerify(t *testing.T) {
	rng := newRand(newSeed(t))
	mem := vfs.NewMem()
	db := mustOpen(t, mem, "/store", tiny)
	fill(t, db, nil, 300, 0)
	compactAll(t, db)
	fill(t, db, nil, 20, 1)
	quiesce(db)()
	must(t, db.Verify(ctxb))
	ro, err := OpenReadOnly("/store", &Options{FS: frozen{mem, t}})
	must(t, err)
	must(t, ro.Verify(ctxb))

	cancelled, cancel := context.WithCancel(ctxb)
	cancel()
	if err := db.Verify(cancelled); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	names, err := mem.List("/store")
	must(t, err)
	kinds := map[fileKind]int{}
	for _, name := range names {
		kind, _ := parseName(name)
		if kind == kindOther && name != "CURRENT" {
			continue
		}
		kinds[kind]++
		size := verifiedBytes(t, db, mem, kind, "/store/"+name)
		for range 30 {
			at := rng.Int64N(size)
			must(t, flip(mem, "/store/"+name, at))
			for what, store := range map[string]*DB{"writable": db, "read-only": ro} {
				err := store.Verify(ctxb)
				var damage *CorruptionError
				var other = errors.Is(err, ErrCorrupt) && errors.As(err, &damage) && damage.File != name && kind != kindManifest && name != "CURRENT"
				if err == nil || other {
					t.Fatalf("byte %d of %s, %s: %v", at, name, what, err)
				}
			}
			must(t, flip(mem, "/store/"+name, at))
		}
	}
	if kinds[kindTable] < 2 || kinds[kindSegment] == 0 || kinds[kindManifest] != 1 {
		t.Errorf("files by kind: %v", kinds)
	}
	must(t, db.Verify(ctxb))
	must(t, ro.Verify(ctxb))
	must(t, ro.Close())
	must(t, db.Close())
	if err := db.Verify(ctxb); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

// verifiedBytes returns how much of a file is known to be durable: the open
// segment is longer, and the last edit of a manifest is not vouched for.
func verifiedBytes(t *testing.T, db *DB, fsys vfs.FS, kind fileKind, name string) int64 {
	info, err := fsys.Stat(name)
	must(t, err)
	switch kind {
	case kindSegment:
		c, err := db.cut()
		must(t, err)
		defer c.release()
		for _, s := range c.manifest.Segments {
			if _, num := parseName(filepath.Base(name)); num == s.FileNum {
				return int64(s.SizeBytes)
			}
		}
		t.Fatalf("%s is not live", name)
	case kindManifest:
		return 40 // the header
	}
	return info.SizeBytes
}

// flip inverts one byte of a file.
func flip(fsys vfs.FS, name string, at int64) error {
	f, err := fsys.Open(name)
	if err != nil {
		return err
	}
	size, err := f.Size()
	content := make([]byte, size)
	if _, readErr := f.ReadAt(content, 0); readErr != nil && !errors.Is(readErr, io.EOF) {
		err = errors.Join(err, readErr)
	}
	err = errors.Join(err, f.Close())
	content[at] ^= 0xff
	// In place: those who have the file open must see it.
	w, openErr := fsys.OpenReadWrite(name)
	if openErr != nil {
		return errors.Join(err, openErr)
	}
	err = errors.Join(err, w.Truncate(0))
	_, writeErr := w.Write(content)
	return errors.Join(err, writeErr, w.Close())
}

// BenchmarkRefresh follows a writer that has written one batch more, with 8 MiB
// in the segment and 100 tables.
func BenchmarkRefresh(b *testing.B) {
	mem := vfs.NewMem()
	db := mustOpen(b, mem, "/store", Options{Durability: SyncNever, L0CompactTables: 500, L0SlowTables: 500, L0StopTables: 500})
	for range 100 {
		must(b, db.Put([]byte("key"), []byte("value")))
		flushAll(b, db)
	}
	for i := range 8 << 10 {
		must(b, db.Put(fmt.Append(nil, i), make([]byte, 1<<10)))
	}
	must(b, db.Sync())
	ro := mustFollow(b, mem, "/store", Options{})
	b.ReportAllocs()
	for b.Loop() {
		must(b, db.Put([]byte("key"), []byte("value")))
		must(b, db.Sync())
		must(b, ro.Refresh())
	}
	must(b, errors.Join(ro.Close(), db.Close()))
}

// BenchmarkCheckpoint makes checkpoints of a store with 100 tables.
func BenchmarkCheckpoint(b *testing.B) {
	dir := b.TempDir()
	db := mustOpen(b, vfs.OS(), dir+"/store", Options{Durability: SyncNever, L0CompactTables: 500, L0SlowTables: 500, L0StopTables: 500})
	for range 100 {
		must(b, db.Put([]byte("key"), []byte("value")))
		flushAll(b, db)
	}
	n := 0
	for b.Loop() {
		n++
		must(b, db.Checkpoint(ctxb, fmt.Sprintf("%s/%d", dir, n)))
	}
	must(b, db.Close())
}
