package salvage

import (
	"path/filepath"
	"strings"
	"testing"

	"sievedb"
	"sievedb/cmd/sievectl/internal/decode"
	"sievedb/internal/manifest"
	"sievedb/vfs"
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
