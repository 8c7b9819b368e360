//go:build linux && (amd64 || arm64)

package experiment

import (
	"os"
	"path/filepath"
	"testing"

	"sievedb/cmd/kvbench/internal/kernel"
	"sievedb/cmd/kvbench/internal/report"
)

// hasDevice reports whether what is read from dir, once it was forgotten, comes
// from a device whose reads the kernel counts: not so in memory.
func hasDevice(t *testing.T, dir string) bool {
	t.Helper()
	name := filepath.Join(dir, "probe")
	if err := os.WriteFile(name, make([]byte, 64<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := kernel.DropPageCache(dir); err != nil {
		t.Fatal(err)
	}
	m := kernel.Start()
	if _, err := os.ReadFile(name); err != nil {
		t.Fatal(err)
	}
	counted := m.Stop()
	return counted != nil && counted.ReadBytes >= 32<<10
}

// In a cold pass the first read of each block comes from the device, although
// the store was just written, and was opened.
func TestCold(t *testing.T) {
	c := small(t)
	if !hasDevice(t, t.TempDir()) {
		t.Skip("the temporary directory is not on a device, or the kernel does not count its reads")
	}
	c.Cold, c.KeysCount, c.Lookups = true, 5000, 3000
	r, err := Lookups(t.Context(), c, silent)
	if err != nil {
		t.Fatal(err)
	}
	for name, k := range map[string]*report.Kernel{"absent": r.Absent.Without.Kernel, "present": r.Present.Without.Kernel} {
		if k == nil || k.ReadBytes < r.Load.TableFileBytes/2 {
			t.Errorf("%s keys: %+v from the device, of %d bytes in tables", name, k, r.Load.TableFileBytes)
		}
	}
}
