package sievedb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"runtime"
	"testing"

	"sievedb/internal/damagetest"
	"sievedb/vfs"
)

// fuzzOptions keep stores small, and caches from hiding what is read.
func fuzzOptions(disk vfs.FS) *Options {
	return &Options{FS: disk, MemtableBytes: 16 << 10, BlockBytes: 64, CacheBytes: -1, Compression: NoCompression,
		Workers: 1, L0CompactTables: 1000, L0SlowTables: 1000, L0StopTables: 1000}
}

// fuzzStore returns the files of a small store with tables in two levels, a
// range tombstone, and records in the log.
func fuzzStore(f testing.TB, crash bool) map[string][]byte {
	mem := vfs.NewMem()
	db, err := Open("/store", fuzzOptions(mem))
	must(f, err)
	for i := range 12 {
		must(f, db.Put(fmt.Appendf(nil, "key%02d", i), fmt.Appendf(nil, "value %d", i)))
	}
	compactAll(f, db)
	must(f, db.Delete([]byte("key03")))
	must(f, db.Put([]byte("key05"), nil))
	must(f, db.DeleteRange([]byte("key08"), []byte("key10")))
	flushAll(f, db)
	b := db.NewBatch()
	b.Put([]byte("key01"), []byte("newer"))
	b.Delete([]byte("key02"))
	b.DeleteRange([]byte("key11"), nil)
	must(f, db.Apply(b, SyncAlways))
	must(f, db.Put(nil, []byte("of the empty key")))
	if !crash {
		must(f, db.Close())
	}
	disk := mem.CrashClone(vfs.CrashKept)
	if crash {
		must(f, db.Close())
	}
	names, err := disk.List("/store")
	must(f, err)
	files := map[string][]byte{}
	for _, name := range names {
		file, err := disk.Open(path.Join("/store", name))
		must(f, err)
		size, err := file.Size()
		must(f, err)
		b := make([]byte, size)
		if size > 0 {
			_, err = file.ReadAt(b, 0)
			must(f, err)
		}
		must(f, file.Close())
		if whole := len(bytes.TrimRight(b, "\x00")); len(b) > whole+1000 {
			b = b[:whole+20] // of a segment with the zeros that were preallocated
		}
		files[name] = b
	}
	return files
}

// fuzzDisk returns a disk with the files as those of /store.
func fuzzDisk(t testing.TB, files map[string][]byte) *vfs.Mem {
	mem := vfs.NewMem()
	must(t, mem.MkdirAll("/store"))
	for name, b := range files {
		file, err := mem.Create("/store/" + name)
		must(t, err)
		_, err = file.Write(b)
		must(t, err)
		must(t, file.Close())
	}
	return mem
}

// FuzzOpen opens arbitrary files as a store, with their checksums as they are
// or made right, and does everything with it that a program may. Whatever they
// hold, the errors are those that the documentation names, every scan ends, and
// memory stays in proportion.
func FuzzOpen(f *testing.F) {
	for _, crash := range []bool{false, true} {
		packed := damagetest.Pack(fuzzStore(f, crash))
		f.Add(packed, false)
		f.Add(packed, true)
	}
	f.Fuzz(func(t *testing.T, packed []byte, sealed bool) {
		files := damagetest.Unpack(packed)
		if sealed {
			damagetest.Seal(files)
		}
		mem := fuzzDisk(t, files)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if db, err := OpenReadOnly("/store", fuzzOptions(mem)); known(t, err) {
			useAll(t, db, len(packed))
			known(t, db.Refresh())
			known(t, db.Close())
		}
		if db, err := Open("/store", fuzzOptions(mem)); known(t, err) {
			useAll(t, db, len(packed))
			known(t, db.Put([]byte("key04"), []byte("new")))
			known(t, db.Checkpoint(context.Background(), "/copy"))
			known(t, db.Compact(context.Background(), nil, nil))
			useAll(t, db, len(packed))
			known(t, db.Close())
		}
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 64<<20 {
			t.Fatalf("%d bytes were allocated for a store of %d", n, len(packed))
		}
	})
}

// known reports whether err is nil, and fails the test if it is none of those
// that a damaged store may cause.
func known(t *testing.T, err error) bool {
	t.Helper()
	var c *CorruptionError
	if errors.As(err, &c) && c.File == "" {
		t.Fatalf("without a file: %v", err)
	}
	for _, documented := range []error{nil, ErrCorrupt, ErrFormat, ErrNotFound, ErrReadOnly, fs.ErrNotExist} {
		if errors.Is(err, documented) {
			return err == nil
		}
	}
	t.Fatalf("unexpected: %v", err)
	return false
}

// useAll reads in every way a store whose files have size bytes, and what was
// written since.
func useAll(t *testing.T, db *DB, size int) {
	t.Helper()
	for i := range 13 {
		k := fmt.Appendf(nil, "key%02d", i)
		_, err := db.Get(k)
		known(t, err)
		_, err = db.Has(k)
		known(t, err)
	}
	_, err := db.Get(nil)
	known(t, err)
	for _, backward := range []bool{false, true} {
		it := db.All()
		entries, n := it.All(), 0
		if backward {
			entries = it.Backward()
		}
		for range entries {
			if n++; n > 32*(size+1000) {
				t.Fatal("a scan that does not end")
			}
		}
		known(t, it.Err())
	}
	it := db.Scan([]byte("key02"), []byte("key09"))
	it.SeekGE([]byte("key05"))
	it.Prev()
	it.SeekLT([]byte("key07"))
	it.Next()
	known(t, it.Close())
	known(t, db.Verify(context.Background()))
}

// TestSeal changes values where they are stored: with the checksums made right
// the store reads what it never wrote, so that FuzzOpen gets behind them.
func TestSeal(t *testing.T) {
	for _, crash := range []bool{false, true} {
		files := damagetest.Unpack(damagetest.Pack(fuzzStore(t, crash)))
		for name, b := range files {
			switch path.Ext(name) {
			case ".sst":
				files[name] = bytes.ReplaceAll(b, []byte("value 7"), []byte("VALUE 7"))
			case ".wal":
				files[name] = bytes.ReplaceAll(b, []byte("newer"), []byte("NEWER"))
			}
		}
		damagetest.Seal(files)
		db := mustOpen(t, fuzzDisk(t, files), "/store", Options{MustExist: true})
		must(t, db.Verify(context.Background()))
		for k, want := range map[string]string{"key07": "VALUE 7", "key01": "NEWER"} {
			if v, err := db.Get([]byte(k)); err != nil || string(v) != want {
				t.Errorf("%s is %q, %v, want %q", k, v, err, want)
			}
		}
		must(t, db.Close())
	}
}
