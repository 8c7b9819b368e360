package salvage

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sievedb"
	"sievedb/cmd/sievectl/internal/decode"
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
		must(db.Close())
		_ = keep.Close() // not before: then the table would be compacted
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

// The range tombstones of a table are found without its footer, too, with
// entries before them or none; and if they are gone, the report says so.
func TestRangeDeletesWithoutFooter(t *testing.T) {
	for _, withEntry := range []bool{false, true} {
		dir := filepath.Join(t.TempDir(), "store")
		db, err := sievedb.Open(dir, options(sievedb.NoCompression, 1000))
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		must(err)
		key := func(i int) []byte { return fmt.Appendf(nil, "k%04d", i) }
		for i := range 300 {
			must(db.Put(key(i), []byte("v")))
		}
		must(db.Flush(t.Context()))
		snap := db.Snapshot() // so that no compaction drops them
		must(db.DeleteRange(key(20), key(25)))
		if withEntry {
			must(db.Put(key(200), []byte("w")))
		}
		must(db.Flush(t.Context()))
		must(db.Close())
		must(snap.Close())
		f := &fixture{dir: dir, files: readAll(t, dir)}
		f.state, err = manifest.Load(vfs.OS(), dir)
		must(err)
		tables := 0
		f.tables(t, func(level int, name string, table *decode.Table) {
			if table.RangeDels == nil {
				return
			}
			tables++
			b := f.files[name]
			mentions := func(r *Report) bool {
				return slices.ContainsFunc(r.Losses, func(l *Loss) bool { return l.File == name && strings.Contains(l.Cause, "range tombstones") })
			}
			got, r := repaired(t, f.with(t, name, flip(b, len(b)-50)))
			if len(got) != 295 || mentions(r) {
				t.Errorf("with an entry %t: %d keys without the footer of %s: %v", withEntry, len(got), name, r.Losses)
			}
			got, r = repaired(t, f.with(t, name, b[:table.Footer.RangeTombstones.Offset]))
			if len(got) != 300 || !mentions(r) {
				t.Errorf("with an entry %t: %d keys without the range tombstones of %s: %v", withEntry, len(got), name, r.Losses)
			}
		})
		if tables != 1 {
			t.Errorf("%d tables with range tombstones", tables)
		}
	}
}
