package sievedb

import (
	"context"
	"strings"
	"testing"

	"sievedb/vfs"
)

// The zeros that a synced log is filled with ahead of its records count as what they
// are, writes to the disk, once in each segment that is this small.
func TestZerosAheadAreCounted(t *testing.T) {
	for _, c := range []struct {
		durability Durability
		ahead      uint64 // in each segment
	}{{SyncAlways, 32 << 10}, {SyncNever, 0}} {
		db := mustOpen(t, vfs.NewMem(), "/store", Options{Durability: c.durability})
		for round := range uint64(2) {
			for i := range 10 {
				must(t, db.Put([]byte{byte(i)}, make([]byte, 100)))
			}
			m := db.Metrics()
			if m.LogZeroBytes != (round+1)*c.ahead {
				t.Errorf("%v, round %d: %d zeros, want %d", c.durability, round, m.LogZeroBytes, (round+1)*c.ahead)
			}
			want := float64(m.LogBytes+(round+1)*c.ahead+m.FlushedBytes) / float64(m.WrittenBytes)
			if m.WriteAmplification != want || m.CompactedBytes != 0 {
				t.Errorf("%v, round %d: amplification %v, want %v", c.durability, round, m.WriteAmplification, want)
			}
			if text := ", zeros ahead of it " + size(m.LogZeroBytes) + ","; !strings.Contains(m.String(), text) {
				t.Errorf("%q is not in\n%s", text, m)
			}
			must(t, db.Flush(context.Background()))
		}
		must(t, db.Close())
	}
}
