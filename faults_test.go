package sievedb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"sievedb/internal/manifest"
	"sievedb/vfs"
)

var tiny = Options{MemtableBytes: 16 << 10, TableBytes: 8 << 10, BlockBytes: 512}

// fill puts n keys whose values depend on gen, and returns the model.
func fill(t testing.TB, db *DB, m model, n, gen int) model {
	t.Helper()
	for i := range n {
		k, v := fmt.Appendf(nil, "key-%05d", i), bytes.Repeat(fmt.Appendf(nil, "%d-%d ", gen, i), 8)
		err := db.Put(k, v)
		for errors.Is(err, syscall.ENOSPC) { // refused, until a flush is tried again
			err = db.Put(k, v)
		}
		must(t, err)
		m.put(k, v)
	}
	return m
}

// TestLogFailure has each call on the WAL and the manifest fail: the write that
// meets it fails, the store takes no more, reads go on, and a reopen finds all
// that was acknowledged (invariant 14).
func TestLogFailure(t *testing.T) {
	for _, c := range []struct {
		name string
		rule vfs.Rule
		do   func(db *DB) error // nil: puts until one fails
	}{
		{"write of the log", vfs.Rule{Ops: vfs.OpWrite, Path: "*.wal"}, nil},
		{"half a write of the log", vfs.Rule{Ops: vfs.OpWrite, Path: "*.wal", Bytes: 30}, nil},
		{"sync of the log", vfs.Rule{Ops: vfs.OpSync, Path: "*.wal"}, nil},
		{"sync of the log, late", vfs.Rule{Ops: vfs.OpSync, Path: "*.wal", After: true}, nil},
		{"another segment", vfs.Rule{Ops: vfs.OpCreate, Path: "*.wal"}, nil},
		{"truncate of the log", vfs.Rule{Ops: vfs.OpTruncate, Path: "*.wal"}, nil},
		{"write of the manifest", vfs.Rule{Ops: vfs.OpWrite, Path: "MANIFEST-*"}, nil},
		{"sync of the manifest", vfs.Rule{Ops: vfs.OpSync, Path: "MANIFEST-*"}, nil},
		{"sync of the manifest, late", vfs.Rule{Ops: vfs.OpSync, Path: "MANIFEST-*", After: true}, nil},
		{"second sync of the manifest", vfs.Rule{Ops: vfs.OpSync, Path: "MANIFEST-*", Nth: 2},
			func(db *DB) error { return db.Flush(context.Background()) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			mem := vfs.NewMem()
			f := vfs.NewFaulty(mem)
			db := mustOpen(t, f, "/store", tiny)
			want := fill(t, db, nil, 100, 0)
			cause := errors.New("a cause of its own")
			c.rule.Err = cause
			f.SetRules(c.rule)
			var failed []byte
			err := error(nil)
			if c.do != nil {
				err = c.do(db)
			}
			for i := 0; i < 2000 && err == nil && c.do == nil; i++ {
				k := fmt.Appendf(nil, "new-%05d", i)
				if err = db.Put(k, k); err == nil {
					want.put(k, k)
				} else {
					failed = k
				}
			}
			if !errors.Is(err, cause) {
				t.Fatalf("the write returns %v", err)
			}
			for _, err := range []error{
				db.Put([]byte("k"), nil), db.Delete([]byte("k")), db.Sync(),
				db.Flush(context.Background()), db.Compact(context.Background(), nil, nil), db.Metrics().FatalError,
			} {
				if !errors.Is(err, cause) {
					t.Errorf("afterwards: %v", err)
				}
			}
			if err := db.Put([]byte("k"), nil); !errors.Is(err, ErrReadOnly) {
				t.Errorf("put afterwards: %v", err)
			}
			checkUpTo(t, db, want, failed)
			if err := db.Close(); !errors.Is(err, cause) {
				t.Errorf("close: %v", err)
			}
			if err := db.Put([]byte("k"), nil); !errors.Is(err, ErrClosed) {
				t.Errorf("put after close: %v", err)
			}
			for _, seed := range []uint64{vfs.CrashLost, vfs.CrashKept, 7} {
				db := mustOpen(t, mem.CrashClone(seed), "/store", tiny)
				checkUpTo(t, db, want, failed)
				must(t, db.Put([]byte("k"), nil))
				must(t, db.Close())
			}
		})
	}
}

// TestConflictBesideLogFailure has the log fail behind the back of a write whose
// condition does not hold. The store is read-only because of the log: if it were
// because of the conflict, it would tell every later condition that it does not
// hold, too.
func TestConflictBesideLogFailure(t *testing.T) {
	f := vfs.NewFaulty(vfs.NewMem())
	o := tiny
	o.Durability = SyncNever
	db := mustOpen(t, f, "/store", o)
	must(t, db.Put([]byte("there"), nil))
	cause := errors.New("a cause of its own")
	f.SetRules(vfs.Rule{Ops: vfs.OpSync, Path: "*.wal", Err: cause})
	if err := db.log.Sync(db.log.End()); !errors.Is(err, cause) {
		t.Fatalf("sync of the log: %v", err)
	}
	if done, err := db.PutIfAbsent([]byte("there"), nil); done || err != nil {
		t.Errorf("a key that is there: %v, %v", done, err)
	}
	if done, err := db.PutIfAbsent([]byte("absent"), nil); done || !errors.Is(err, ErrReadOnly) || !errors.Is(err, cause) {
		t.Errorf("a key that is absent: %v, %v", done, err)
	}
	if err := db.Metrics().FatalError; !errors.Is(err, cause) || errors.Is(err, ErrConflict) {
		t.Errorf("read-only because of: %v", err)
	}
	if err := db.Close(); !errors.Is(err, cause) {
		t.Errorf("close: %v", err)
	}
}

// TestManifestWithoutRoom has no room for a manifest that is to replace one that
// became long. That one goes on, and is replaced later (invariant 15).
func TestManifestWithoutRoom(t *testing.T) {
	for _, path := range []string{"MANIFEST-*", "CURRENT.tmp"} {
		for _, op := range []vfs.Op{vfs.OpCreate, vfs.OpWrite} {
			mem := vfs.NewMem()
			f := vfs.NewFaulty(mem)
			o := tiny // without compactions
			o.L0CompactTables, o.L0SlowTables, o.L0StopTables = 100, 100, 100
			db := mustOpen(t, f, "/store", o)
			var want model
			put := func() {
				k := slices.Concat(make([]byte, MaxKeyBytes-8), fmt.Appendf(nil, "%08d", len(want)))
				must(t, db.Put(k, nil))
				want.put(k, nil)
				flushAll(t, db)
			}
			current := func() *manifest.Log {
				db.manifestMu.Lock()
				defer db.manifestMu.Unlock()
				return db.manifest
			}
			old := current()
			for !old.ShouldRewrite() { // its edits hold keys
				put()
			}
			f.SetRules(vfs.Rule{Ops: op, Path: path, Err: syscall.ENOSPC})
			must(t, db.edit(&manifest.Edit{}, nil))
			if len(f.Faults()) != 1 || current() != old {
				t.Errorf("%s: %v, and another manifest", path, f.Faults())
			}
			put()
			if current() == old {
				t.Errorf("%s: no other manifest with room for it", path)
			}
			must(t, checkAll(db, want))
			must(t, db.Close())
			db = mustOpen(t, mem, "/store", tiny)
			must(t, checkAll(db, want))
			must(t, db.Close())
		}
	}
}

// TestRefusedRecordIsWritten has no room for a record that was acknowledged to
// nobody but may have been read, and in whose wake others were. It is written when
// there is room, without another call.
func TestRefusedRecordIsWritten(t *testing.T) {
	mem := vfs.NewMem()
	f := vfs.NewFaulty(mem)
	db := mustOpen(t, f, "/store", tiny)
	writes, again := 0, make(chan struct{})
	f.SetHook(func(c vfs.Call) {
		if c.Op == vfs.OpWrite && filepath.Ext(c.Name) == ".wal" {
			if writes++; writes == 2 { // the log makes one at a time
				close(again)
			}
		}
	})
	f.SetRules(vfs.Rule{Ops: vfs.OpWrite, Path: "*.wal", Err: syscall.ENOSPC})
	if err := db.Put([]byte("k"), nil); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("put: %v", err)
	}
	<-again                 // or it waits for ever
	must(t, db.log.Flush()) // which waits for that write
	db2 := mustOpen(t, mem.CrashClone(vfs.CrashKept), "/store", tiny)
	must(t, checkAll(db2, model{{[]byte("k"), nil}}))
	must(t, db2.Close())
	must(t, db.Close())
}

// checkUpTo is checkAll, but for the write that failed, which may be there or
// not (invariant 10).
func checkUpTo(t *testing.T, db *DB, want model, failed []byte) {
	t.Helper()
	if failed != nil {
		if ok, err := db.Has(failed); err != nil {
			t.Fatal(err)
		} else if ok {
			want.put(failed, failed)
		}
	}
	must(t, checkAll(db, want))
}

// TestOutputFailure has calls on tables fail, once: the output is discarded and
// written again, the store stays writable, and nothing is lost (invariant 14).
func TestOutputFailure(t *testing.T) {
	for _, ops := range []vfs.Op{vfs.OpCreate, vfs.OpWrite, vfs.OpSync, vfs.OpClose, vfs.OpOpen, vfs.OpRead, vfs.OpRemove} {
		for nth := 1; nth <= 5; nth += 2 {
			t.Run(fmt.Sprintf("%v, %d", ops, nth), func(t *testing.T) {
				mem := vfs.NewMem()
				f := vfs.NewFaulty(mem)
				db := mustOpen(t, f, "/store", tiny)
				f.SetRules(vfs.Rule{Ops: ops, Path: "*.sst", Nth: nth, Err: syscall.ENOSPC})
				var want model
				for gen := range 3 {
					want = fill(t, db, want, 400, gen)
				}
				if err := db.Compact(context.Background(), nil, nil); err != nil { // what failed before is not tried again otherwise
					compactAll(t, db)
				}
				if len(f.Faults()) == 0 {
					t.Fatal("nothing failed")
				}
				must(t, checkAll(db, want))
				if err := db.Metrics().FatalError; err != nil {
					t.Fatal(err)
				}
				if ops != vfs.OpRemove {
					must(t, checkFiles(db))
				}
				if err := db.Close(); err != nil && !errors.Is(err, syscall.ENOSPC) {
					t.Fatal(err)
				}
				db = mustOpen(t, mem, "/store", tiny)
				must(t, checkAll(db, want))
				must(t, checkFiles(db)) // what could not be removed is gone now
				must(t, db.Close())
			})
		}
	}
}

// TestDiskFull fills the disk for tables only: writers get an error instead of
// waiting for ever, every kind of read goes on, Flush obeys its context, Close
// returns, and once there is room again writes go on.
func TestDiskFull(t *testing.T) {
	mem := vfs.NewMem()
	f := vfs.NewFaulty(mem)
	db := mustOpen(t, f, "/store", tiny)
	want := fill(t, db, nil, 100, 0)
	f.SetRules(vfs.Rule{Ops: vfs.OpWrite, Path: "*.sst", Sticky: true, Err: syscall.ENOSPC})
	var err error
	for i := 0; i < 5000 && err == nil; i++ {
		k := fmt.Appendf(nil, "more-%05d", i)
		if err = db.Put(k, k); err == nil {
			want.put(k, k)
		}
	}
	if !errors.Is(err, syscall.ENOSPC) || errors.Is(err, ErrReadOnly) {
		t.Fatalf("writing to a full disk: %v", err)
	}
	must(t, checkAll(db, want))
	if err := db.Flush(context.Background()); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("flush to a full disk: %v", err)
	}
	f.SetRules()
	must(t, db.Flush(context.Background())) // which tries at once
	want = fill(t, db, want, 400, 1)
	must(t, checkAll(db, want))
	must(t, db.Close())
	db = mustOpen(t, mem, "/store", tiny)
	must(t, checkAll(db, want))
	must(t, db.Close())
}

// TestReadFailure has reads of tables fail: an error, never a wrong answer, and
// right answers afterwards.
func TestReadFailure(t *testing.T) {
	mem := vfs.NewMem()
	db := mustOpen(t, mem, "/store", tiny)
	want := fill(t, db, nil, 400, 0)
	compactAll(t, db)
	must(t, db.Close())
	for nth := 1; nth < 40; nth += 3 {
		f := vfs.NewFaulty(mem.CrashClone(vfs.CrashKept))
		o := tiny
		o.CacheBytes = -1
		db := mustOpen(t, f, "/store", o)
		f.SetRules(vfs.Rule{Ops: vfs.OpRead, Path: "*.sst", Nth: nth, Err: syscall.EIO})
		failures := 0
		for _, e := range want {
			v, err := db.Get(e.key)
			if errors.Is(err, syscall.EIO) {
				failures++
			} else if err != nil || !bytes.Equal(v, e.value) {
				t.Fatalf("read %d fails: %s: %v", nth, show(e.key, v), err)
			}
		}
		f.SetRules(vfs.Rule{Ops: vfs.OpRead, Path: "*.sst", Nth: nth, Err: syscall.EIO})
		it := db.All()
		n := 0
		for k, v := range it.All() {
			if !bytes.Equal(k, want[n].key) || !bytes.Equal(v, want[n].value) {
				t.Fatalf("read %d fails: scan: %s, want %s", nth, show(k, v), want.at(n))
			}
			n++
		}
		if err := it.Err(); n < len(want) && !errors.Is(err, syscall.EIO) {
			t.Fatalf("read %d fails: a scan ends after %d: %v", nth, n, err)
		}
		f.SetRules()
		must(t, checkAll(db, want))
		must(t, db.Close())
	}
}

// TestDamagedFile damages each file of a small store, one byte or the length at
// a time. Then either everything is right, or the first thing that goes wrong is
// a *CorruptionError with the name of that file, or, where the version is hit,
// ErrFormat. A damaged filter changes no answer, and is counted (invariant 22).
func TestDamagedFile(t *testing.T) {
	mem := vfs.NewMem()
	db := mustOpen(t, mem, "/store", tiny)
	want := fill(t, db, nil, 60, 0)
	compactAll(t, db)
	want = fill(t, db, want, 20, 1)
	must(t, db.Close())
	names, err := mem.List("/store")
	must(t, err)
	badFilters := 0
	for _, name := range names {
		if name == lockName {
			continue
		}
		content := readFile(t, mem, "/store/"+name)
		for off := 0; off < len(content); off += 1 + len(content)/300 {
			for _, damage := range []func() []byte{
				func() []byte { b := bytes.Clone(content); b[off] ^= 0x41; return b },
				func() []byte { return content[:off] },
			} {
				fs := mem.CrashClone(vfs.CrashKept)
				writeFile(t, fs, "/store/"+name, damage())
				bad, err := tryAll(fs, want)
				badFilters += bad
				var c *CorruptionError
				switch {
				case err == nil || errors.Is(err, ErrFormat):
				case !errors.As(err, &c):
					t.Fatalf("%s damaged at %d: %v", name, off, err)
				case c.File != name && !(name == "CURRENT" || strings.HasPrefix(name, "MANIFEST")):
					t.Fatalf("%s damaged at %d: the error names %s: %v", name, off, c.File, err)
				}
			}
		}
		fs := mem.CrashClone(vfs.CrashKept)
		must(t, fs.Remove("/store/"+name))
		var c *CorruptionError
		if _, err := tryAll(fs, want); !errors.As(err, &c) {
			t.Errorf("without %s: %v", name, err)
		}
	}
	if badFilters == 0 {
		t.Error("no damage hit a filter")
	}
}

// tryAll opens a store, compares everything, and looks for absent keys.
func tryAll(fs vfs.FS, want model) (badFilters int, err error) {
	o := tiny
	o.FS = fs
	db, err := Open("/store", &o)
	if err != nil {
		return 0, err
	}
	err = checkAll(db, want)
	for i := 0; i < len(want) && err == nil; i++ {
		var has bool
		if has, err = db.Has(append(bytes.Clone(want[i].key), 'x')); has {
			err = errors.New("an absent key is there")
		}
	}
	m := db.Metrics()
	for _, l := range m.Levels {
		badFilters += l.BadFilters
	}
	return badFilters, errors.Join(err, db.Close())
}

func readFile(t *testing.T, fs vfs.FS, name string) []byte {
	t.Helper()
	f, err := fs.Open(name)
	must(t, err)
	defer f.Close()
	size, err := f.Size()
	must(t, err)
	b := make([]byte, size)
	_, err = f.ReadAt(b, 0)
	must(t, err)
	return b
}

func writeFile(t *testing.T, fs vfs.FS, name string, content []byte) {
	t.Helper()
	f, err := fs.Create(name)
	must(t, err)
	_, err = f.Write(content)
	must(t, err)
	must(t, f.Close())
}
