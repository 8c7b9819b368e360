package sievedb

import (
	"bytes"
	"errors"
	"io/fs"
	"math"
	"strconv"
	"strings"
	"testing"

	"sievedb/vfs"
)

// TestEmptyKey stores the empty key, by both its names.
func TestEmptyKey(t *testing.T) {
	mem := vfs.NewMem()
	db := mustOpen(t, mem, "/store", tiny)
	must(t, db.Put(nil, []byte("v")))
	for _, where := range []string{"memtable", "table", "bottom", "reopened"} {
		for _, k := range [][]byte{nil, {}} {
			if v, err := db.Get(k); err != nil || string(v) != "v" {
				t.Errorf("%s: get: %q, %v", where, v, err)
			}
			if ok, err := db.Has(k); !ok || err != nil {
				t.Errorf("%s: has: %v, %v", where, ok, err)
			}
		}
		it := db.All()
		if !it.First() || len(it.Key()) != 0 || it.Next() || it.Err() != nil {
			t.Errorf("%s: scan: %v", where, it.Err())
		}
		must(t, it.Close())
		if it := db.Scan(nil, []byte{}); it.First() {
			t.Errorf("%s: an empty range shows a key", where)
		} else {
			must(t, it.Close())
		}
		switch where {
		case "memtable":
			flushAll(t, db)
		case "table":
			compactAll(t, db)
		case "bottom":
			must(t, db.Close())
			db = mustOpen(t, mem, "/store", tiny)
		}
	}
	must(t, db.Delete([]byte{}))
	if _, err := db.Get(nil); err != ErrNotFound {
		t.Error(err)
	}
	must(t, db.Close())
}

// TestLimits goes to the limits of keys and values, and past them.
func TestLimits(t *testing.T) {
	db := mustOpen(t, vfs.NewMem(), "/store", tiny)
	longest := bytes.Repeat([]byte{0xff}, MaxKeyBytes)
	tooLong := append(bytes.Clone(longest), 0)
	must(t, db.Put(longest, []byte("v")))
	compactAll(t, db)
	if v, err := db.Get(longest); err != nil || string(v) != "v" {
		t.Errorf("the longest key: %v", err)
	}
	b := db.NewBatch()
	b.Put([]byte("good"), nil)
	b.Put(tooLong, nil)
	for name, err := range map[string]error{
		"put": db.Put(tooLong, nil), "delete": db.Delete(tooLong), "apply": db.Apply(b, SyncNever),
	} {
		if !errors.Is(err, ErrInvalidArgument) || !strings.Contains(err.Error(), strconv.Itoa(MaxKeyBytes)) {
			t.Errorf("%s of a key that is too long: %v", name, err)
		}
	}
	if ok, err := db.Has([]byte("good")); ok || err != nil {
		t.Errorf("a refused batch was applied in part: %v", err)
	}
	if _, err := db.Get(tooLong); err != ErrNotFound {
		t.Errorf("get of a key that is too long: %v", err)
	}
	if ok, err := db.Has(tooLong); ok || err != nil {
		t.Errorf("has of a key that is too long: %v", err)
	}
	it := db.All()
	if it.SeekGE(tooLong) || !it.SeekLT(tooLong) || !bytes.Equal(it.Key(), longest) {
		t.Errorf("seek to a key that is too long: %v", it.Err())
	}
	must(t, it.Close())
	if !testing.Short() && math.MaxInt > math.MaxInt32 {
		// Never touched, so that it takes no memory.
		err := db.Put([]byte("k"), make([]byte, MaxValueBytes+1))
		if !errors.Is(err, ErrInvalidArgument) || !strings.Contains(err.Error(), strconv.Itoa(MaxValueBytes)) {
			t.Errorf("put of a value that is too long: %v", err)
		}
	}
	if err := db.Apply(db.NewBatch(), Durability(9)); err != nil && !errors.Is(err, ErrInvalidArgument) {
		t.Error(err)
	}
	must(t, db.Close())
}

// TestLargeBatch applies batches far larger than a memtable (invariant 13).
func TestLargeBatch(t *testing.T) {
	mem := vfs.NewMem()
	db := mustOpen(t, mem, "/store", tiny)
	var want model
	for n := range 3 {
		want = fill(t, db, want, 20, n)
		b := db.NewBatch()
		for i := range 2000 {
			k, v := strconv.AppendInt([]byte("large-"), int64(i), 10), bytes.Repeat([]byte{byte(n)}, 100)
			b.Put(k, v)
			want.put(k, v)
		}
		b.Delete([]byte("large-7"))
		want.delete([]byte("large-7"))
		must(t, db.Apply(b, SyncAlways))
		must(t, checkAll(db, want))
		crashed := mustOpen(t, mem.CrashClone(vfs.CrashLost), "/store", tiny)
		must(t, checkAll(crashed, want))
		must(t, crashed.Close())
	}
	compactAll(t, db)
	must(t, checkAll(db, want))
	must(t, db.Close())
}

// TestBadOptions wants one error that lists every problem.
func TestBadOptions(t *testing.T) {
	mem := vfs.NewMem()
	_, err := Open("/store", &Options{
		FS: mem, MustExist: true, MustBeNew: true, Durability: 9, MemtableBytes: 1, BlockBytes: -1, Compression: 7,
		FilterBitsPerKey: math.NaN(), TableBytes: 1, L0CompactTables: 9, L0SlowTables: 8, L0StopTables: 7, Workers: 1000, MaxOpenFiles: 1,
	})
	if !errors.Is(err, ErrInvalidArgument) {
		t.Fatal(err)
	}
	for _, name := range []string{"MustExist", "Durability", "MemtableBytes", "BlockBytes", "Compression", "FilterBitsPerKey",
		"TableBytes", "L0CompactTables", "Workers", "MaxOpenFiles"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%s is missing in: %v", name, err)
		}
	}
	if names, _ := mem.List("/"); len(names) > 0 {
		t.Errorf("there is %v", names)
	}
}

// TestMustExist and its opposite write nothing when they fail.
func TestMustExist(t *testing.T) {
	mem := vfs.NewMem()
	if _, err := Open("/store", &Options{FS: mem, MustExist: true}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("MustExist: %v", err)
	}
	if names, _ := mem.List("/"); len(names) > 0 {
		t.Errorf("there is %v", names)
	}
	db := mustOpen(t, mem, "/store", Options{MustBeNew: true})
	must(t, db.Close())
	if _, err := Open("/store", &Options{FS: mem, MustBeNew: true}); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("MustBeNew: %v", err)
	}
	db = mustOpen(t, mem, "/store", Options{MustExist: true})
	must(t, db.Close())
}

// TestForeignDirectory opens directories of other programs and versions: a
// clear error, and nothing written or removed. Other files are left alone.
func TestForeignDirectory(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"LevelDB":               {"CURRENT": "MANIFEST-000004\n", "MANIFEST-000004": "\x56\xf9\xb8\xf8\x1c\x00\x01\x01\x1aleveldb.BytewiseComparator", "000005.ldb": "x", "LOG": "y", "LOCK": ""},
		"Pebble":                {"MANIFEST-000001": "\x56\xf9\xb8\xf8\x1c\x00\x01\x01\x1aleveldb.BytewiseComparator", "marker.manifest.000001.MANIFEST-000001": "", "OPTIONS-000003": "[Version]", "000002.log": ""},
		"tables only":           {"000005.sst": "x"},
		"segments only":         {"000005.wal": "x"},
		"a version of tomorrow": {"CURRENT": "sievedb 2 MANIFEST-000004 99 00000000\n"},
	} {
		t.Run(name, func(t *testing.T) {
			mem := vfs.NewMem()
			must(t, mem.MkdirAll("/store"))
			for name, content := range files {
				writeFile(t, mem, "/store/"+name, []byte(content))
			}
			before := mem.Counts()
			_, err := Open("/store", &Options{FS: mem})
			if !errors.Is(err, ErrFormat) && !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "/store") {
				t.Fatalf("open: %v", err)
			}
			if after := mem.Counts(); after.Creates != before.Creates || after.Removes != before.Removes || after.Writes != before.Writes || after.Renames != before.Renames {
				t.Errorf("it wrote: %+v, before %+v", after, before)
			}
		})
	}
	mem := vfs.NewMem()
	must(t, mem.MkdirAll("/store"))
	for _, name := range []string{"README", "5.sst", "000005.sst.bak", "MANIFEST", "000000.wal"} {
		writeFile(t, mem, "/store/"+name, []byte("not ours"))
	}
	db := mustOpen(t, mem, "/store", tiny)
	fill(t, db, nil, 300, 0)
	compactAll(t, db)
	must(t, db.Close())
	for _, name := range []string{"README", "5.sst", "000005.sst.bak", "MANIFEST", "000000.wal"} {
		if string(readFile(t, mem, "/store/"+name)) != "not ours" {
			t.Errorf("%s was touched", name)
		}
	}
}
