package vfs_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"sievedb/vfs"
)

const lockChildEnv = "VFS_TEST_LOCK"

// TestLockChild is the other process of TestDeathReleasesLock.
func TestLockChild(t *testing.T) {
	name := os.Getenv(lockChildEnv)
	if name == "" {
		t.Skip("runs in a child process only")
	}
	get(vfs.OS().Lock(name))(t)
	fmt.Println("locked")
	_, _ = io.Copy(io.Discard, os.Stdin) // until killed
}

func TestDeathReleasesLock(t *testing.T) {
	if runtime.GOOS == "js" || runtime.GOOS == "wasip1" {
		t.Skip("no processes here")
	}
	name := filepath.Join(t.TempDir(), "LOCK")
	child := exec.Command(os.Args[0], "-test.run=^TestLockChild$")
	child.Env = append(os.Environ(), lockChildEnv+"="+name)
	stdin := get(child.StdinPipe())(t)
	defer stdin.Close()
	stdout := get(child.StdoutPipe())(t)
	must(t, child.Start())
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "locked\n" {
		t.Fatalf("the child says %q, %v", line, err)
	}
	_, err := vfs.OS().Lock(name)
	var locked *vfs.LockedError
	if !errors.As(err, &locked) || locked.PID != child.Process.Pid {
		t.Errorf("Lock beside process %d: %v", child.Process.Pid, err)
	}
	must(t, child.Process.Kill())
	if err := child.Wait(); err == nil {
		t.Error("the child was not killed")
	}
	must(t, get(vfs.OS().Lock(name))(t).Close())
}

func TestLockHolderUnknown(t *testing.T) {
	name := filepath.Join(t.TempDir(), "LOCK")
	lock := get(vfs.OS().Lock(name))(t)
	defer lock.Close()
	must(t, os.Truncate(name, 0))
	_, err := vfs.OS().Lock(name)
	var locked *vfs.LockedError
	if !errors.As(err, &locked) || locked.PID != 0 {
		t.Errorf("Lock without a recorded process ID: %v", err)
	}
}

func TestFree(t *testing.T) {
	free, ok := vfs.OS().Free(t.TempDir())
	if want := runtime.GOOS == "linux" || runtime.GOOS == "darwin"; ok != want || ok && free == 0 {
		t.Errorf("Free: %d, %v", free, ok)
	}
	if _, ok := vfs.OS().Free(filepath.Join(t.TempDir(), "none")); ok {
		t.Error("Free of a directory that is not there")
	}
}

// Two system calls a record: the lower bound of a synced write.
func BenchmarkOSWriteSync(b *testing.B) {
	for _, preallocate := range []bool{false, true} {
		b.Run(fmt.Sprintf("preallocated=%v", preallocate), func(b *testing.B) {
			f := get(vfs.OS().Create(filepath.Join(b.TempDir(), "f")))(b)
			defer f.Close()
			if preallocate {
				must(b, f.Preallocate(64<<20))
				must(b, f.Sync())
			}
			p := make([]byte, 128)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := f.Write(p); err != nil {
					b.Fatal(err)
				}
				must(b, f.Sync())
			}
		})
	}
}

func BenchmarkOSReadAt(b *testing.B) {
	f := get(vfs.OS().Create(filepath.Join(b.TempDir(), "f")))(b)
	defer f.Close()
	p := make([]byte, 4096)
	get(f.Write(p))(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := f.ReadAt(p, 0); err != nil {
			b.Fatal(err)
		}
	}
}
