package salvage

import (
	"path/filepath"
	"strings"
	"testing"

	"sievedb"
	"sievedb/cmd/sievectl/internal/decode"
	"sievedb/internal/manifest"
	"sievedb/vfs"
	"sievedb/wal"
)

// TestManifestBehind has manifests that lost whole edits off their end, so that
// each can be loaded and lists segments that are gone: what it does not know is
// then not left over, but the store.
func TestManifestBehind(t *testing.T) {
	f := makeStore(t, t.TempDir(), sievedb.Snappy, true)
	name := manifest.ManifestName(f.state.ManifestNum)
	file, err := decode.OpenFile(filepath.Join(f.dir, name))
	if err != nil {
		t.Fatal(err)
	}
	var ends []int64
	if _, err := decode.WalkManifest(file, f.state.ManifestNum, func(e *decode.Edit) error { ends = append(ends, e.End); return nil }); err != nil {
		t.Fatal(err)
	}
	behind := 0
	for _, end := range ends[:len(ends)-1] {
		dir := f.with(t, name, f.files[name][:end])
		if _, err := manifest.Load(vfs.OS(), dir); err == nil {
			behind++
		}
		got, r := repaired(t, dir)
		f.compare(t, got, nil)
		if len(r.Losses) != 1 || !strings.HasPrefix(r.Losses[0].File, "MANIFEST") {
			t.Errorf("cut at %d: %v", end, r.Losses)
		}
	}
	if behind < 2 {
		t.Errorf("%d of %d cut manifests can be loaded", behind, len(ends))
	}
}

// TestManifestBehindANumber has a manifest that lost the edit of a flush, whose table
// took its number before a segment took a later one, of which the manifest knows.
func TestManifestBehindANumber(t *testing.T) {
	st := &manifest.State{Version: new(manifest.Version), NextFileNum: 8, Segments: []manifest.Segment{{FileNum: 5, Sealed: true}, {FileNum: 7}}}
	st.Version.Levels[6] = []*manifest.TableMeta{{FileNum: 4}}
	for _, c := range []struct {
		names string
		lacks bool
	}{
		{"000004.sst 000005.wal 000007.wal", false},
		{"000004.sst 000005.wal 000006.sst 000007.wal", false}, // left over
		{"000004.sst 000007.wal", false},                       // lost
		{"000004.sst 000006.sst 000007.wal", true},
		{"000005.wal 000006.sst 000007.wal", true},
		{"000004.sst 000007.wal 000009.wal", true},
		{"000004.sst 000005.wal 000007.wal 000009.wal", false}, // of a crash before the edit
		{"000004.sst 000005.wal 000007.wal 000010.wal", true},
	} {
		size := func(name string) int64 {
			if name == "000010.wal" {
				return wal.HeaderLen + 1
			}
			return wal.HeaderLen
		}
		if err := behind(st, strings.Fields(c.names), size); (err != nil) != c.lacks {
			t.Errorf("%s: %v", c.names, err)
		}
	}
}
