package sievedb

import (
	"encoding/binary"
	"testing"

	"sievedb/filter"
	"sievedb/vfs"
)

// TestKindIsInThePayload is of invariant 24: tables that were written with
// filters of one kind are read rightly, and their filters asked, whatever kind the
// options name when the store is opened again.
func TestKindIsInThePayload(t *testing.T) {
	const n = 12_000 // enough for a fuse filter
	policies := []filter.Policy{
		{Uniform: true, Kind: filter.KindBlocked},
		{Uniform: true, Kind: filter.KindStandard},
		{Uniform: true, Kind: filter.KindFuse},
	}
	key := func(i uint64) []byte { return binary.BigEndian.AppendUint64(nil, i*0x9e3779b97f4a7c15) }
	for _, written := range policies {
		t.Run(written.Kind.String(), func(t *testing.T) {
			fs := vfs.NewMem()
			o := Options{Durability: SyncNever, FilterBitsPerKey: 12, Filters: written} // of so few keys fuse filters take more than ten
			db := mustOpen(t, fs, "/store", o)
			for i := range uint64(n) {
				must(t, db.Put(key(2*i), nil))
			}
			compactAll(t, db)
			must(t, db.Close())
			for _, read := range policies {
				o.Filters = read
				db := mustOpen(t, fs, "/store", o)
				for i := range uint64(n) {
					if ok, err := db.Has(key(2 * i)); !ok || err != nil {
						t.Fatalf("opened with %v: key %d: %v, %v", read.Kind, i, ok, err)
					}
					if ok, err := db.Has(key(2*i + 1)); ok || err != nil {
						t.Fatalf("opened with %v: absent key %d: %v, %v", read.Kind, i, ok, err)
					}
				}
				m := db.Metrics()
				c := m.Total()
				if got := m.Tables[0].FilterKind; got != written.Kind || c.Unfiltered > 0 || c.Negatives < n*9/10 {
					t.Errorf("opened with %v: a filter of kind %v, %+v", read.Kind, got, c)
				}
				must(t, db.Close())
			}
		})
	}
}
