package table

import (
	"fmt"
	"testing"

	"sievedb/internal/filecache"
	"sievedb/internal/keys"
	"sievedb/internal/manifest"
	"sievedb/internal/rangedel"
	"sievedb/vfs"
)

// TestBytesInUnopened: what ranges hold of a table that was not opened yet adds up
// to the table, however many they are, and narrow ones hold little. No file is there
// to be read.
func TestBytesInUnopened(t *testing.T) {
	files := filecache.New(vfs.NewMem(), "", func(keys.FileNum) string { return "none" }, 1, func(keys.FileNum) {})
	key := func(i int) []byte { return fmt.Appendf(nil, "key-%04d", i) }
	const size = 1 << 20
	for _, test := range []struct {
		name string
		meta manifest.TableMeta
	}{
		{"closed", manifest.TableMeta{Smallest: key(1000), Largest: key(1999)}},
		{"exclusive", manifest.TableMeta{Smallest: key(1000), Largest: key(2000), LargestExclusive: true}},
		{"to the end", manifest.TableMeta{Smallest: key(1000), ToEnd: true}},
		{"one key", manifest.TableMeta{Smallest: key(1500), Largest: key(1500)}},
	} {
		test.meta.FileNum, test.meta.SizeBytes = 1, size
		tb, err := New(files, &test.meta, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		in := func(lo, hi []byte) uint64 { return tb.BytesIn(rangedel.Span{Start: lo, End: hi}) }
		sum := in(nil, key(0)) + in(key(3000), nil)
		for i := range 3000 {
			n := in(key(i), key(i+1))
			// After 99 comes a gap: as numbers these keys are not spread evenly.
			if test.name == "closed" && n > size/100 && i%100 != 99 {
				t.Fatalf("%s: %d bytes at key %d", test.name, n, i)
			}
			sum += n
		}
		if sum != size || in(nil, nil) != size {
			t.Errorf("%s: %d bytes in parts and %d altogether, want %d", test.name, sum, in(nil, nil), size)
		}
		if n := in([]byte("a"), []byte("b")) + in([]byte{}, []byte("key")); n != 0 {
			t.Errorf("%s: %d bytes before the table", test.name, n)
		}
	}
}
