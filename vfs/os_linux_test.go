package vfs_test

import (
	"os"
	"path/filepath"
	"strings"
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

// Asking for a sync to start must leave the sync itself, and the content, alone; and
// it is asked of files that are not the system's, or are closed, too.
func TestStartSync(t *testing.T) {
	content := strings.Repeat("content ", 1<<16)
	for _, fsys := range []vfs.FS{vfs.OS(), vfs.NewMem(), vfs.NewFaulty(vfs.OS())} {
		dir := t.TempDir()
		must(t, fsys.MkdirAll(dir))
		name := filepath.Join(dir, "f")
		f := create(t, fsys, name, content)
		vfs.StartSync(f, 0)
		vfs.StartSync(f, int64(len(content)))
		must(t, f.Sync())
		must(t, f.Close())
		vfs.StartSync(f, 0)
		f = get(fsys.Open(name))(t)
		got := make([]byte, len(content))
		get(f.ReadAt(got, 0))(t)
		must(t, f.Close())
		if string(got) != content {
			t.Errorf("%T: %d bytes are others", fsys, len(got))
		}
	}
}
