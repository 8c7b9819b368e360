package sievedb

import (
	"testing"

	"sievedb/vfs"
)

// A batch makes room at once for what the one applied last took, but not for
// more than a bound: the next is small, perhaps.
func TestBatchesExpectWhatTheLastTook(t *testing.T) {
	db := mustOpen(t, vfs.NewMem(), "/store", Options{})
	for _, c := range []struct{ puts, least, most int }{
		{0, 0, 1 << 10}, // there was none
		{1, 130, 1 << 10},
		{100, 100 * 130, 16 << 10},
		{10_000, maxExpectBytes, maxExpectBytes * 5 / 4},
		{1, 130, 1 << 10},
	} {
		before := db.NewBatch()
		for i := range c.puts {
			before.Put([]byte{16: byte(i)}, make([]byte, 110))
		}
		must(t, db.Apply(before, SyncNever))
		b := db.NewBatch()
		b.Put([]byte("key"), nil)
		if n := cap(b.ops.Ops()); n > 100 {
			t.Errorf("a batch of one has room for %d bytes", n)
		}
		b.Put([]byte("key"), make([]byte, 60))
		if n := cap(b.ops.Ops()); n < c.least || n > c.most {
			t.Errorf("room for %d bytes after a batch of %d, want %d to %d", n, before.SizeBytes(), c.least, c.most)
		}
	}
	must(t, db.Close())
}
