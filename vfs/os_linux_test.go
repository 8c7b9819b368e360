package vfs_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"sievedb/vfs"
)

func TestPreallocateTakesDiskSpace(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	probe := get(os.Create(name))(t)
	defer probe.Close()
	if err := syscall.Fallocate(int(probe.Fd()), 0, 0, 1); err != nil {
		t.Skipf("this file system does not preallocate: %v", err)
	}
	f := create(t, vfs.OS(), name, "x")
	defer f.Close()
	must(t, f.Preallocate(1<<20))
	var st syscall.Stat_t
	must(t, syscall.Stat(name, &st))
	if st.Size != 1<<20 || st.Blocks*512 < 1<<20 {
		t.Errorf("%d bytes in %d blocks of 512 bytes", st.Size, st.Blocks)
	}
	// More than any disk has: only a missing call is ignored, not a failing one.
	wantError(t, f.Preallocate(1<<63-1), nil, name)
	wantError(t, f.Preallocate(-1), nil, name)
}
