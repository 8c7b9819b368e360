package salvage

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"sievedb"
	"sievedb/internal/manifest"
	"sievedb/vfs"
)

// What range deletes removed stays away, whether they are in tables or in the
// log, and whether the manifest that lists them is whole or not.
func TestRepairKeepsRangeDeletes(t *testing.T) {
	for _, wholeManifest := range []bool{true, false} {
		dir := filepath.Join(t.TempDir(), "store")
		db, err := sievedb.Open(dir, options(sievedb.Snappy, 1000))
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		must(err)
		want := map[string]bool{}
		key := func(i int) []byte { return fmt.Appendf(nil, "k%04d", i) }
		for i := range 1000 {
			must(db.Put(key(i), []byte("v")))
			want[string(key(i))] = true
		}
		must(db.Compact(t.Context(), nil, nil))
		remove := func(lo, hi int) {
			t.Helper()
			for i := lo; i < min(hi, 1000); i++ {
				delete(want, string(key(i)))
			}
			if hi > 1000 {
				must(db.DeleteRange(key(lo), nil))
			} else {
				must(db.DeleteRange(key(lo), key(hi)))
			}
		}
		keep := db.Snapshot() // or the tables would be dropped
		remove(100, 200)
		remove(900, 1001)
		must(db.Put(key(150), []byte("again")))
		want[string(key(150))] = true
		must(db.Flush(t.Context()))
		remove(300, 310) // only in the log
		must(keep.Close())
		must(db.Close())
		st, err := manifest.Load(vfs.OS(), dir)
		must(err)
		if m := st.Version.Levels[0][0]; m.RangeDeletes == 0 || !m.ToEnd {
			t.Fatalf("the table of level 0 is %+v", m)
		}
		if !wholeManifest { // cut in the middle of its last edit
			name := filepath.Join(dir, manifest.ManifestName(st.ManifestNum))
			b, err := os.ReadFile(name)
			must(err)
			must(os.WriteFile(name, b[:len(b)-3], 0o644))
		}
		dst := filepath.Join(t.TempDir(), "repaired")
		report, err := Repair(dir, dst)
		must(err)
		got, err := sievedb.Open(dst, nil)
		must(err)
		found := 0
		for k := range got.All().All() {
			if found++; !want[string(k)] {
				t.Errorf("%s is back", k)
			}
		}
		if found != len(want) || int(report.KeysWritten) != found {
			t.Errorf("%d keys, %d written, want %d: %+v", found, report.KeysWritten, len(want), report)
		}
		must(got.Close())
	}
}
