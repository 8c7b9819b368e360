package sievedb

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	"sievedb/vfs"
)

// TestAppendToKeysAndValues: what an iterator shows may be appended to, as in
// Write(append(value, '\n')), wherever it lies: that changes no memory of the store.
func TestAppendToKeysAndValues(t *testing.T) {
	key := func(i int) []byte { return fmt.Appendf(nil, "%x-%05d", i%16, i) }
	value := func(i int) []byte { return fmt.Appendf(nil, "value-%05d", i) }
	const n = 1000
	db := mustOpen(t, vfs.NewMem(), "/store", effectOptions())
	for i := range n {
		must(t, db.Put(key(i), value(i)))
	}
	write := func(k, v []byte) {
		t.Helper()
		for _, line := range [][]byte{k, v} {
			if _, err := io.Discard.Write(append(line, "XXXXXXXXXXXXXXXX\n"...)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, where := range []string{"memtable", "tables"} {
		for k, v := range db.All().All() {
			write(k, v)
		}
		for k, v := range db.All().Backward() {
			write(k, v)
		}
		it, shown := db.All(), 0
		for ok := it.First(); ok; ok = it.Next() {
			write(it.Key(), it.Value())
			shown++
		}
		must(t, it.Close())
		if shown != n {
			t.Errorf("%s: %d entries are shown, want %d", where, shown, n)
		}
		for i := range n {
			if v, err := db.Get(key(i)); err != nil || !bytes.Equal(v, value(i)) {
				t.Fatalf("%s: %s is %q, %v", where, key(i), v, err)
			}
		}
		compactAll(t, db)
	}
	must(t, db.Close())
}
