package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"

	"sievedb/vfs/internal/sys"
)

// OS returns the operating system's file system. Directories cannot be synced
// on Windows: there SyncDir does nothing, and the file system's own journal
// decides when a name is durable.
func OS() FS { return osFS{} }

type osFS struct{}

func (osFS) Create(name string) (File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, err
	}
	return &osFile{f: f}, nil
}

func (osFS) Open(name string) (File, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	return &osFile{f: f}, nil
}

func (osFS) OpenReadWrite(name string) (File, error) {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &osFile{f: f, pos: info.Size()}, nil
}

func (osFS) Remove(name string) error             { return os.Remove(name) }
func (osFS) Rename(oldName, newName string) error { return os.Rename(oldName, newName) }
func (osFS) Link(oldName, newName string) error   { return os.Link(oldName, newName) }
func (osFS) Abs(name string) (string, error)      { return filepath.Abs(name) }
func (osFS) Free(dir string) (uint64, bool)       { return sys.FreeBytes(dir) }

func (o osFS) MkdirAll(dir string) error {
	return mkdirAll(o, dir, func(name string) error { return os.Mkdir(name, 0o755) })
}

func (osFS) SyncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // a directory handle cannot be flushed there
	}
	f, err := os.Open(dir)
	if Exhausted(err) { // of open files: no sync was tried
		err = fmt.Errorf("%w: %w", ErrExhausted, err)
	}
	if err != nil {
		return err
	}
	err = f.Sync()
	// Some network and user-space file systems know no sync of a directory.
	// There is nothing else to call, so they are taken at their word.
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		err = nil
	}
	return errors.Join(err, f.Close())
}

func (osFS) List(dir string) ([]string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	names, err := f.Readdirnames(-1)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	slices.Sort(names)
	return names, nil
}

func (osFS) Stat(name string) (Info, error) {
	info, err := os.Stat(name)
	if err != nil {
		return Info{}, err
	}
	return Info{SizeBytes: info.Size(), IsDir: info.IsDir()}, nil
}

// Lock leaves the file in place when the lock is released: a process that
// removed it could leave two others holding locks on different files of the
// same name.
func (osFS) Lock(name string) (io.Closer, error) {
	f, err := sys.OpenLocked(name)
	if errors.Is(err, sys.ErrHeld) {
		return nil, &LockedError{Name: name, PID: lockHolder(name)}
	}
	if err != nil {
		return nil, err
	}
	// The process ID only informs, and a store on a full disk must still open
	// for reading, so a failure here leaves an empty file and is not reported.
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt(append(strconv.AppendInt(nil, int64(os.Getpid()), 10), '\n'), 0)
	}
	return osLock{f}, nil
}

// lockHolder reads the process ID from a held lock file; zero if there is none.
func lockHolder(name string) int {
	content, _ := os.ReadFile(name)
	pid, _ := strconv.Atoi(string(bytes.TrimSpace(content)))
	return pid
}

type osLock struct{ f *os.File }

func (l osLock) Close() error { return errors.Join(sys.Unlock(l.f), l.f.Close()) }

// osFile writes by WriteAt at a position of its own, since the end of a
// preallocated file is not where its next byte belongs. os.File goes on after
// short and interrupted reads and writes by itself.
type osFile struct {
	f   *os.File
	pos int64
}

func (o *osFile) ReadAt(p []byte, off int64) (int, error) { return o.f.ReadAt(p, off) }

func (o *osFile) Write(p []byte) (int, error) {
	n, err := o.f.WriteAt(p, o.pos)
	o.pos += int64(n)
	return n, err
}

func (o *osFile) Sync() error { return sys.SyncFile(o.f) }

// StartSync asks for what was written to f from off on to be on its way to the
// disk, so that Sync, which is still needed, has less to wait for. It is a hint,
// which only files of OS take, and does not wait.
func StartSync(f File, off int64) {
	if o, ok := f.(*osFile); ok {
		sys.StartSync(o.f, off)
	}
}

func (o *osFile) Size() (int64, error) {
	info, err := o.f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (o *osFile) Truncate(size int64) error {
	if err := o.f.Truncate(size); err != nil {
		return err
	}
	o.pos = size
	return nil
}

// Preallocate writes zeros, and does not just reserve blocks (fallocate): those
// are marked as unwritten, and the first sync of each has the file system commit
// that mark to its journal, which takes longer than the data.
func (o *osFile) Preallocate(size int64) error {
	end, err := o.Size()
	for err == nil && end < size {
		n := min(size-end, int64(len(zeros)))
		_, err = o.f.WriteAt(zeros[:n], end)
		end += n
	}
	return err
}

var zeros [64 << 10]byte

func (o *osFile) Close() error { return o.f.Close() }

// mkdirAll is MkdirAll on top of mkdir, which makes one directory.
func mkdirAll(fsys FS, dir string, mkdir func(string) error) error {
	dir = filepath.Clean(dir)
	info, err := fsys.Stat(dir)
	if err == nil && !info.IsDir {
		return &fs.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOTDIR}
	}
	parent := filepath.Dir(dir)
	if err == nil || !errors.Is(err, fs.ErrNotExist) || parent == dir {
		return err
	}
	if err := mkdirAll(fsys, parent, mkdir); err != nil {
		return err
	}
	if err := mkdir(dir); err != nil {
		// Somebody else may have made it in the meantime, but not synced it.
		if info, statErr := fsys.Stat(dir); statErr != nil || !info.IsDir {
			return err
		}
	}
	return fsys.SyncDir(parent)
}
