package sievedb

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"

	"sievedb/internal/manifest"
	"sievedb/internal/table"
	"sievedb/vfs"
)

// TestTablesAreOpenedWhenRead: opening a store opens the file of no table, a read
// that of the tables that it needs.
func TestTablesAreOpenedWhenRead(t *testing.T) {
	fs := vfs.NewMem()
	o := effectOptions()
	key := func(i int) []byte { return fmt.Appendf(nil, "key-%05d", i) }
	const n = 4000
	db := mustOpen(t, fs, "/store", o)
	for i := range n {
		must(t, db.Put(key(i), bytes.Repeat(key(i), 8)))
	}
	compactAll(t, db)
	if n := len(db.Metrics().Tables); n < 3 {
		t.Fatalf("%d tables", n)
	}
	must(t, db.Close())

	db = mustOpen(t, fs, "/store", o)
	expect := func(what string, want int) {
		t.Helper()
		if got := db.files.Open(); got != want {
			t.Errorf("%s: %d files of tables are open, want %d", what, got, want)
		}
	}
	expect("opened", 0)
	if _, err := db.Get([]byte("a")); err != ErrNotFound {
		t.Error(err)
	}
	expect("a key outside of all tables", 0)
	var wg sync.WaitGroup
	for range 8 { // all at once: one of them opens it
		wg.Go(func() {
			if v, err := db.Get(key(0)); err != nil || len(v) != 72 {
				t.Errorf("%q, %v", v, err)
			}
		})
	}
	wg.Wait()
	expect("a key of the first table", 1)
	it := db.Scan(key(n-1), nil)
	for ok := it.First(); ok; ok = it.Next() {
	}
	must(t, it.Close())
	expect("a scan of the end of the last table", 2)
	if m := db.Metrics(); m.OpenTableFiles < 3 || len(m.Tables) != m.OpenTableFiles {
		t.Errorf("after Metrics %d files of %d tables are open", m.OpenTableFiles, len(m.Tables))
	}
	must(t, db.Close())
}

// TestDamagedTableIsToldWhenRead: a table that cannot be opened is an error, of all
// reads that need it and of no others, as often as it is needed.
func TestDamagedTableIsToldWhenRead(t *testing.T) {
	fs := vfs.NewMem()
	o := effectOptions()
	key := func(i int) []byte { return fmt.Appendf(nil, "key-%05d", i) }
	db := mustOpen(t, fs, "/store", o)
	for i := range 1000 {
		must(t, db.Put(key(i), nil))
	}
	compactAll(t, db)
	must(t, db.Put(key(5000), nil))
	must(t, db.Flush(t.Context()))
	s := db.state.Load()
	file := db.path(tableName(s.Runs[0].Tables[0].Meta.FileNum))
	size := s.Runs[0].Tables[0].Meta.SizeBytes
	must(t, db.Close())
	must(t, flip(fs, file, int64(size)-20))

	db = mustOpen(t, fs, "/store", o)
	for range 2 {
		var c *CorruptionError
		if _, err := db.Get(key(7)); !errors.As(err, &c) || db.path(c.File) != file {
			t.Errorf("Get: %v", err)
		}
		it := db.All()
		for ok := it.First(); ok; ok = it.Next() {
			t.Errorf("a scan shows %q", it.Key())
		}
		if err := it.Close(); !errors.As(err, &c) || db.path(c.File) != file {
			t.Errorf("scan: %v", err)
		}
		if err := db.Verify(t.Context()); !errors.As(err, &c) || db.path(c.File) != file {
			t.Errorf("Verify: %v", err)
		}
		if _, err := db.Get(key(5000)); err != nil {
			t.Errorf("a key of another table: %v", err)
		}
	}
	must(t, db.Close())
}

// TestNarrowRangeDeletesAfterOpen: range tombstones that hide next to nothing do so
// in tables that nobody has opened yet, too: a store that is opened has nothing to
// compact.
func TestNarrowRangeDeletesAfterOpen(t *testing.T) {
	fs := vfs.NewMem()
	o := effectOptions()
	key := func(i int) []byte { return fmt.Appendf(nil, "key-%05d", i) }
	const n = 4000
	db := mustOpen(t, fs, "/store", o)
	for i := range n {
		must(t, db.Put(key(i), bytes.Repeat(key(i), 8)))
	}
	compactAll(t, db)
	for i := 0; i < n; i += 200 {
		must(t, db.DeleteRange(key(i), key(i+1)))
	}
	must(t, db.Flush(t.Context()))
	must(t, db.Close())

	db = mustOpen(t, fs, "/store", o)
	s := db.state.Load()
	if len(s.L0) != 1 || len(s.L0[0].RangeDels.Spans()) == 0 {
		t.Fatalf("%d tables in level 0", len(s.L0))
	}
	all := uint64(0)
	for t := range s.All() {
		all += t.Meta.SizeBytes
	}
	if hidden := s.HiddenBytes(s.L0[0].Meta); hidden > all/50 {
		t.Errorf("%d of %d bytes are hidden by %d deletes of a key each", hidden, all, n/200)
	}
	must(t, db.Close())
}

// TestUntoldRangeDeletes: a table with range tombstones of which the manifest says
// nothing is not read as one without.
func TestUntoldRangeDeletes(t *testing.T) {
	db := mustOpen(t, vfs.NewMem(), "/store", effectOptions())
	must(t, db.Put([]byte("k"), nil))
	before := db.Snapshot() // for which compactions leave the table alone
	must(t, db.DeleteRange([]byte("a"), []byte("b")))
	must(t, db.Flush(t.Context()))
	var meta manifest.TableMeta
	for t := range db.state.Load().All() {
		meta = *t.Meta // the only one
	}
	for _, n := range []uint64{meta.RangeDeletes, 0} {
		meta.RangeDeletes = n
		same, err := table.New(db.files, &meta, 0, db.o.Cache.blocks)
		must(t, err)
		var c *CorruptionError
		if _, err := same.Reader(); errors.As(err, &c) != (n == 0) || (err == nil) != (n > 0) {
			t.Errorf("told of %d range tombstones: %v", n, err)
		}
	}
	must(t, before.Close())
	must(t, db.Close())
}
