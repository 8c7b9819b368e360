package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"sievedb"
	"sievedb/vfs"
	"sievedb/wal"
)

// makeEnded returns what a crash left of a store with two segments that had ended,
// and a third one: nothing is lost yet.
func makeEnded(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "db")
	gate := make(chan struct{})
	open := sync.OnceFunc(func() { close(gate) })
	defer open()
	f := vfs.NewFaulty(vfs.OS())
	f.SetHook(func(c vfs.Call) {
		if c.Op == vfs.OpCreate && strings.HasSuffix(c.Name, ".sst") {
			<-gate
		}
	})
	db, err := sievedb.Open(dir, &sievedb.Options{FS: f, MemtableBytes: 16 << 10, Durability: sievedb.SyncNever})
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; len(load(t, dir).Segments) < 3 || i%50 != 0; i++ {
		if err := db.Put(fmt.Appendf(nil, "key-%05d", i), fmt.Appendf(nil, "%0100d", i)); err != nil {
			t.Fatal(err)
		}
	}
	left := copyStore(t, dir)
	open()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return left
}

// TestEndedSegments has a crash take a part of the first of two segments that had
// ended: check notes it, and repair keeps what a store that opens does.
func TestEndedSegments(t *testing.T) {
	whole := makeEnded(t)
	st := load(t, whole)
	name := wal.SegmentName(st.Segments[0].FileNum)
	for what, how := range map[string]func(b []byte) []byte{
		"half of it":            func(b []byte) []byte { return b[:len(b)/2] },
		"all but the header":    func(b []byte) []byte { return b[:wal.HeaderLen] },
		"content, not size":     func(b []byte) []byte { clear(b[5000:]); return b },
		"all content, not size": func(b []byte) []byte { clear(b[wal.HeaderLen:]); return b },
	} {
		dir := copyStore(t, whole)
		change(t, filepath.Join(dir, name), how)
		if code, out, _ := sievectl("check", dir); code != exitOK || !strings.Contains(out, "gone in a crash") {
			t.Errorf("%s: check: exit code %d:\n%s", what, code, out)
		}
		dst := filepath.Join(t.TempDir(), "new")
		if code, out, _ := sievectl("repair", dir, dst); code != exitOK || !strings.Contains(out, "2 later segments are not used") {
			t.Errorf("%s: repair: exit code %d:\n%s", what, code, out)
		}
		if n, repaired := firstKeys(t, dir), firstKeys(t, dst); n != repaired {
			t.Errorf("%s: %d keys where the store opens, %d repaired", what, n, repaired)
		}
	}
	// Records behind the gap do not vouch for it: opening ends the log there, and
	// repair takes what can be read.
	dir := copyStore(t, whole)
	change(t, filepath.Join(dir, name), func(b []byte) []byte { clear(b[4096:4608]); return b })
	if code, out, _ := sievectl("check", dir); code != exitOK || !strings.Contains(out, "torn by a crash") || !strings.Contains(out, "gone in a crash") {
		t.Errorf("a sector: check: exit code %d:\n%s", code, out)
	}
	if code, out, _ := sievectl("repair", dir, filepath.Join(t.TempDir(), "new")); code == exitOK || !strings.Contains(out, "LOST") {
		t.Errorf("a sector: repair: exit code %d:\n%s", code, out)
	}
	if firstKeys(t, dir) == 0 {
		t.Error("a sector: nothing is left in front of it")
	}
}

// firstKeys returns how many keys a store of makeEnded holds, none of which is
// behind one that it lacks.
func firstKeys(t *testing.T, dir string) (n int) {
	t.Helper()
	db, err := sievedb.Open(dir, &sievedb.Options{MustExist: true})
	if err != nil {
		t.Fatal(err)
	}
	it := db.All()
	for k := range it.All() {
		if want := fmt.Sprintf("key-%05d", n); string(k) != want {
			t.Errorf("key %s, want %s", k, want)
		}
		n++
	}
	if err := errors.Join(it.Err(), db.Close()); err != nil {
		t.Fatal(err)
	}
	return n
}
