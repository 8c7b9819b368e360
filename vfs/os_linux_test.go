package vfs_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"sievedb/vfs"
)

func TestPreallocateTakesDiskSpace(t *testing.T) {
	const size = 1 << 20
	dir := t.TempDir()
	stored := func(name string) int64 {
		f := get(os.Open(name))(t)
		must(t, f.Sync())
		must(t, f.Close())
		var st syscall.Stat_t
		must(t, syscall.Stat(name, &st))
		if st.Size != size {
			t.Errorf("%s has %d bytes", name, st.Size)
		}
		return st.Blocks * 512
	}
	zeros := filepath.Join(dir, "zeros")
	must(t, os.WriteFile(zeros, make([]byte, size), 0o644))
	if stored(zeros) < size {
		t.Skip("this file system does not store zeros")
	}
	name := filepath.Join(dir, "f")
	f := create(t, vfs.OS(), name, "x")
	must(t, f.Preallocate(size))
	if n := stored(name); n < size {
		t.Errorf("%d bytes on the disk", n)
	}
	must(t, f.Close())

	f = get(vfs.OS().Open(name))(t)
	defer f.Close()
	wantError(t, f.Preallocate(2*size), nil, name)
}
