package sievedb

import (
	"bytes"
	"fmt"
	"testing"

	"sievedb/vfs"
)

// TestBlocksArePassed compacts tables in which each value fills a block, and wants
// every block that survives to be taken over as it is stored, in a full compaction
// too; and the store to hold what it should, with snapshots, tombstones and range
// tombstones about.
func TestBlocksArePassed(t *testing.T) {
	var ends []CompactionInfo
	db := mustOpen(t, vfs.NewMem(), "/store", Options{
		L0CompactTables: 100, L0SlowTables: 200, L0StopTables: 300, BlockBytes: 4096,
		Events: &EventListener{CompactionEnd: func(i CompactionInfo) { ends = append(ends, i) }},
	})
	rng := newRand(newSeed(t))
	var want model
	put := func(from, n int) {
		for i := from; i < from+4*n; i += 4 {
			key, value := fmt.Appendf(nil, "%06d", i), bytes.Repeat([]byte{byte(rng.Uint32()), byte(rng.Uint32())}, 2100+rng.IntN(3000))
			must(t, db.Put(key, value))
			want.put(key, value)
		}
		flushAll(t, db)
	}
	compact := func(what string, blocks, passed uint64) {
		t.Helper()
		before := db.Metrics()
		compactAll(t, db)
		after := db.Metrics()
		if got, gotPassed := after.CompactedBlocks-before.CompactedBlocks, after.PassedBlocks-before.PassedBlocks; got != blocks || gotPassed != passed {
			t.Errorf("%s: %d of %d blocks were passed, want %d of %d", what, gotPassed, got, passed, blocks)
		}
		if i := ends[len(ends)-1]; i.OutputBlocks != blocks || i.PassedBlocks != passed {
			t.Errorf("%s: %d of %d blocks were passed, says the event", what, i.PassedBlocks, i.OutputBlocks)
		}
		if err := checkAll(db, want); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		must(t, db.Verify(t.Context()))
	}
	put(0, 50)
	put(1, 50)
	compact("interleaved", 100, 100)
	put(2, 50)
	put(4, 10) // overwrites ten
	compact("overwritten", 150, 150)

	s, old := db.Snapshot(), append(model(nil), want...)
	for i := range 10 { // of the first fifty, one in four
		key := fmt.Appendf(nil, "%06d", 16*i)
		must(t, db.Delete(key))
		want.delete(key)
	}
	must(t, db.DeleteRange([]byte("000190"), nil))
	want.deleteRange([]byte("000190"), nil)
	compact("with a snapshot", 150, 140) // a tombstone lies in the block of what it hides
	for _, e := range old {
		if v, err := s.Get(e.key); err != nil || !bytes.Equal(v, e.value) {
			t.Fatalf("at the snapshot: %s: %v", show(e.key, v), err)
		}
	}
	must(t, s.Close())
	compact("after the snapshot", uint64(len(want)), uint64(len(want)))
	must(t, db.Close())
}
