package vfs

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"sievedb/vfs/internal/disk"
)

// Seeds of CrashClone with a fixed meaning.
const (
	// CrashLost loses everything that was not synced.
	CrashLost = disk.Lost
	// CrashKept loses nothing, as when only the process dies.
	CrashKept = disk.Kept
)

// Mem is a file system in memory that knows what is durable: content after
// File.Sync, names after SyncDir. CrashClone shows what a crash could leave of
// it. As on POSIX systems a file lives on while it is open, whatever becomes of
// its names. Relative names are relative to the root.
type Mem struct {
	mu     sync.Mutex // guards all below, the nodes of disk included
	disk   *disk.Disk
	locks  map[*disk.Node]bool
	counts Counts
}

// Counts are the calls that a Mem has carried out, and the bytes they moved.
// MkdirAll counts as one DirSync for each directory that it made.
type Counts struct {
	Creates, Opens, Removes, Renames, Links int
	Reads, Writes, Syncs, DirSyncs          int
	BytesRead, BytesWritten                 int64
}

// NewMem returns an empty file system.
func NewMem() *Mem {
	return &Mem{disk: disk.New(), locks: map[*disk.Node]bool{}}
}

// Counts returns what was counted so far.
func (m *Mem) Counts() Counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.counts
}

// CrashClone returns what a crash at this moment could leave, without locks and
// open files; m goes on unharmed. CrashLost and CrashKept are the extremes. Any
// other seed decides at random, the same way each time for the same history:
//
//   - Changes of names that no SyncDir covered are kept up to some moment, as a
//     journal keeps them, or each by itself, as POSIX allows. A rename is never
//     half done, and no change survives without the one it builds on.
//   - Of a file's writes since its last Sync each sector of 512 or 4,096 bytes
//     is kept, lost, or lost but counted in the file's size, which then holds
//     zeros or garbage there. New sizes are kept or lost.
//
// So a name may survive without its content, and content never without a name.
// Content is shared until written: the cost is in the number of files and of
// unsynced bytes.
func (m *Mem) CrashClone(seed uint64) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &Mem{disk: m.disk.Crash(seed), locks: map[*disk.Node]bool{}}
}

// Create implements FS.
func (m *Mem) Create(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.disk.Create("create", name)
	if err != nil {
		return nil, err
	}
	n.Resize(0)
	m.counts.Creates++
	return &memFile{m: m, name: name, node: n, writable: true}, nil
}

// Open implements FS.
func (m *Mem) Open(name string) (File, error) { return m.open(name, false) }

// OpenReadWrite implements FS.
func (m *Mem) OpenReadWrite(name string) (File, error) { return m.open(name, true) }

func (m *Mem) open(name string, writable bool) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.disk.File("open", name)
	if err != nil {
		return nil, err
	}
	m.counts.Opens++
	return &memFile{m: m, name: name, node: n, writable: writable, pos: n.Size()}, nil
}

// Remove implements FS.
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.disk.Remove(name)
	if err == nil {
		m.counts.Removes++
	}
	return err
}

// Rename implements FS.
func (m *Mem) Rename(oldName, newName string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.disk.Rename(oldName, newName)
	if err == nil {
		m.counts.Renames++
	}
	return err
}

// Link implements FS.
func (m *Mem) Link(oldName, newName string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.disk.Link(oldName, newName)
	if err == nil {
		m.counts.Links++
	}
	return err
}

// SyncDir implements FS.
func (m *Mem) SyncDir(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.disk.SyncDir(dir)
	if err == nil {
		m.counts.DirSyncs++
	}
	return err
}

// MkdirAll implements FS.
func (m *Mem) MkdirAll(dir string) error {
	return mkdirAll(m, dir, func(name string) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.disk.Mkdir(name)
	})
}

// List implements FS.
func (m *Mem) List(dir string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.disk.List(dir)
}

// Stat implements FS.
func (m *Mem) Stat(name string) (Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.disk.Lookup("stat", name)
	if err != nil {
		return Info{}, err
	}
	if n.IsDir() {
		return Info{IsDir: true}, nil
	}
	return Info{SizeBytes: n.Size()}, nil
}

// Lock implements FS.
func (m *Mem) Lock(name string) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.disk.Create("lock", name)
	if err != nil {
		return nil, err
	}
	if m.locks[n] {
		return nil, &LockedError{Name: name, PID: os.Getpid()}
	}
	m.locks[n] = true
	n.Resize(0)
	n.WriteAt(append(strconv.AppendInt(nil, int64(os.Getpid()), 10), '\n'), 0)
	return &memLock{m: m, name: name, node: n}, nil
}

type memLock struct {
	m    *Mem
	name string
	node *disk.Node // nil once closed
}

func (l *memLock) Close() error {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	if l.node == nil {
		return &fs.PathError{Op: "unlock", Path: l.name, Err: fs.ErrClosed}
	}
	delete(l.m.locks, l.node)
	l.node = nil
	return nil
}

// Abs implements FS.
func (m *Mem) Abs(name string) (string, error) {
	if filepath.IsAbs(name) {
		return filepath.Clean(name), nil
	}
	return filepath.Join(string(filepath.Separator), name), nil
}

// Free implements FS: memory has no size that could be told.
func (m *Mem) Free(string) (uint64, bool) { return 0, false }

// memFile is an open file of a Mem, whose mutex also guards pos and closed.
type memFile struct {
	m        *Mem
	name     string
	node     *disk.Node
	writable bool
	pos      int64
	closed   bool
}

// start takes the mutex, which the caller must release, and checks that a call
// is allowed and that the offset or size off is possible.
func (f *memFile) start(op string, writes bool, off int64) error {
	f.m.mu.Lock()
	var err error
	switch {
	case f.closed:
		err = fs.ErrClosed
	case writes && !f.writable:
		err = syscall.EBADF
	case off < 0:
		err = fs.ErrInvalid
	case writes && off > disk.MaxFileBytes:
		err = syscall.EFBIG
	}
	if err != nil {
		return &fs.PathError{Op: op, Path: f.name, Err: err}
	}
	return nil
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	err := f.start("read", false, off)
	defer f.m.mu.Unlock()
	if err != nil {
		return 0, err
	}
	n, err := f.node.ReadAt(p, off)
	f.m.counts.Reads++
	f.m.counts.BytesRead += int64(n)
	return n, err
}

func (f *memFile) Write(p []byte) (int, error) {
	err := f.start("write", true, f.pos+int64(len(p)))
	defer f.m.mu.Unlock()
	if err != nil {
		return 0, err
	}
	f.node.WriteAt(p, f.pos)
	f.pos += int64(len(p))
	f.m.counts.Writes++
	f.m.counts.BytesWritten += int64(len(p))
	return len(p), nil
}

func (f *memFile) Sync() error {
	err := f.start("sync", false, 0)
	defer f.m.mu.Unlock()
	if err == nil {
		f.node.Sync()
		f.m.counts.Syncs++
	}
	return err
}

func (f *memFile) Size() (int64, error) {
	err := f.start("stat", false, 0)
	defer f.m.mu.Unlock()
	return f.node.Size(), err
}

func (f *memFile) Truncate(size int64) error {
	err := f.start("truncate", true, size)
	defer f.m.mu.Unlock()
	if err == nil {
		f.node.Resize(size)
		f.pos = size
	}
	return err
}

func (f *memFile) Preallocate(size int64) error {
	err := f.start("preallocate", true, size)
	defer f.m.mu.Unlock()
	if err == nil && size > f.node.Size() {
		f.node.Resize(size)
	}
	return err
}

func (f *memFile) Close() error {
	err := f.start("close", false, 0)
	defer f.m.mu.Unlock()
	f.closed = true
	return err
}
