package vfs

import (
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
)

// Op is a set of operations of an FS and its files.
type Op uint32

// The operations. Open includes OpenReadWrite, and Stat a file's Size.
const (
	OpCreate Op = 1 << iota
	OpOpen
	OpRemove
	OpRename
	OpLink
	OpMkdirAll
	OpSyncDir
	OpList
	OpStat
	OpLock
	OpRead
	OpWrite
	OpSync
	OpTruncate
	OpPreallocate
	OpClose
)

// ErrInjected is the error of a Rule that has none of its own.
var ErrInjected = errors.New("injected fault")

// Rule says which calls fail, and how.
type Rule struct {
	Ops    Op     // the operations it counts; zero: all
	Path   string // a filepath.Match pattern for the base name; empty, or malformed: all
	Nth    int    // the call that fails, counted from one; zero: the first
	Sticky bool   // and every later one, too
	Err    error  // what the call returns; nil: ErrInjected
	After  bool   // the call is carried out, and fails nevertheless
	Bytes  int    // of a failing Write, written before it fails
}

// Call is one call as a Faulty saw it.
type Call struct {
	Op    Op
	Name  string // of a Rename or a Link, the new one
	Bytes int    // to be read, written or, if the disk is full, grown by
	Err   error  // the injected error
}

// Faulty passes calls on to another FS, except those that are to fail. Abs and
// Free never do. Its methods may be called while the file system is in use.
type Faulty struct {
	inner FS

	mu      sync.Mutex // guards all below
	rules   []*countedRule
	hook    func(Call)
	counts  map[Op]int
	faults  []Call
	limited bool
	space   int64 // if limited, the bytes by which files may still grow; never negative
}

type countedRule struct {
	Rule
	calls int
}

func (r *countedRule) applies(c Call) bool {
	name, err := filepath.Match(r.Path, filepath.Base(c.Name))
	return (r.Ops == 0 || r.Ops&c.Op != 0) && (r.Path == "" || name || err != nil)
}

// NewFaulty wraps inner.
func NewFaulty(inner FS, rules ...Rule) *Faulty {
	f := &Faulty{inner: inner, counts: map[Op]int{}}
	f.SetRules(rules...)
	return f
}

// SetRules replaces the rules; none means that nothing fails any more. Rules
// count the calls from here on. The first one that applies decides.
func (f *Faulty) SetRules(rules ...Rule) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = nil
	for _, r := range rules {
		if r.Err == nil {
			r.Err = ErrInjected
		}
		f.rules = append(f.rules, &countedRule{Rule: r})
	}
}

// SetHook has hook called before each call, beside other calls. A hook that
// blocks makes a slow call, and one that calls CrashClone a crash at it.
func (f *Faulty) SetHook(hook func(Call)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hook = hook
}

// LimitSpace lets files grow by n bytes more in total before writes are cut
// short with ENOSPC. Truncate gives back what it cuts off. n is not negative.
func (f *Faulty) LimitSpace(n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.limited, f.space = true, n
}

// AddSpace raises the limit by n bytes, as removing files elsewhere would.
// Remove does not: which bytes it frees depends on links and open files.
func (f *Faulty) AddSpace(n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.space += n
}

// Count returns how many calls of these operations were made, failed ones
// included.
func (f *Faulty) Count(ops Op) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	total := 0
	for op, n := range f.counts {
		if ops&op != 0 {
			total += n
		}
	}
	return total
}

// Faults returns the calls that failed by a rule or for lack of space.
func (f *Faulty) Faults() []Call {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.faults)
}

// begin counts a call and returns the rule that makes it fail, or nil.
func (f *Faulty) begin(c Call) *countedRule {
	f.mu.Lock()
	if hook := f.hook; hook != nil {
		f.mu.Unlock()
		hook(c)
		f.mu.Lock()
	}
	defer f.mu.Unlock()
	f.counts[c.Op]++
	var failing *countedRule
	for _, r := range f.rules {
		if !r.applies(c) {
			continue
		}
		r.calls++
		nth := max(r.Nth, 1)
		if failing == nil && (r.calls == nth || r.Sticky && r.calls > nth) {
			failing = r
		}
	}
	if failing != nil {
		c.Err = failing.Err
		f.faults = append(f.faults, c)
	}
	return failing
}

// call makes one call, or has it fail.
func (f *Faulty) call(op Op, name string, do func() error) error {
	r := f.begin(Call{Op: op, Name: name})
	if r == nil {
		return do()
	}
	if r.After {
		if err := do(); err != nil {
			return err
		}
	}
	return injected(name, r.Err)
}

// grow takes n bytes of the space, or gives back -n. If fewer are left it takes
// those, and returns how many with the error of a full disk.
func (f *Faulty) grow(op Op, name string, n int64) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.limited {
		return n, nil
	}
	taken := min(n, f.space)
	f.space -= taken
	if taken == n {
		return n, nil
	}
	f.faults = append(f.faults, Call{Op: op, Name: name, Bytes: int(n), Err: syscall.ENOSPC})
	return taken, injected(name, syscall.ENOSPC)
}

func injected(name string, err error) error {
	return &fs.PathError{Op: "inject", Path: name, Err: err}
}

// open makes a call that opens a file; atEnd puts the write position there.
func (f *Faulty) open(op Op, name string, atEnd bool, open func(string) (File, error)) (File, error) {
	h := &faultyFile{faulty: f, name: name}
	err := f.call(op, name, func() (err error) {
		if h.file, err = open(name); err == nil && atEnd {
			h.pos, err = h.file.Size()
		}
		return err
	})
	if err != nil {
		if h.file != nil {
			err = errors.Join(err, h.file.Close())
		}
		return nil, err
	}
	return h, nil
}

// Create implements FS.
func (f *Faulty) Create(name string) (File, error) {
	return f.open(OpCreate, name, false, f.inner.Create)
}

// Open implements FS.
func (f *Faulty) Open(name string) (File, error) {
	return f.open(OpOpen, name, false, f.inner.Open)
}

// OpenReadWrite implements FS.
func (f *Faulty) OpenReadWrite(name string) (File, error) {
	return f.open(OpOpen, name, true, f.inner.OpenReadWrite)
}

// Remove implements FS.
func (f *Faulty) Remove(name string) error {
	return f.call(OpRemove, name, func() error { return f.inner.Remove(name) })
}

// Rename implements FS.
func (f *Faulty) Rename(oldName, newName string) error {
	return f.call(OpRename, newName, func() error { return f.inner.Rename(oldName, newName) })
}

// Link implements FS.
func (f *Faulty) Link(oldName, newName string) error {
	return f.call(OpLink, newName, func() error { return f.inner.Link(oldName, newName) })
}

// MkdirAll implements FS.
func (f *Faulty) MkdirAll(dir string) error {
	return f.call(OpMkdirAll, dir, func() error { return f.inner.MkdirAll(dir) })
}

// SyncDir implements FS.
func (f *Faulty) SyncDir(dir string) error {
	return f.call(OpSyncDir, dir, func() error { return f.inner.SyncDir(dir) })
}

// List implements FS.
func (f *Faulty) List(dir string) (names []string, err error) {
	err = f.call(OpList, dir, func() (err error) { names, err = f.inner.List(dir); return err })
	return names, err
}

// Stat implements FS.
func (f *Faulty) Stat(name string) (info Info, err error) {
	err = f.call(OpStat, name, func() (err error) { info, err = f.inner.Stat(name); return err })
	return info, err
}

// Lock implements FS.
func (f *Faulty) Lock(name string) (lock io.Closer, err error) {
	err = f.call(OpLock, name, func() (err error) { lock, err = f.inner.Lock(name); return err })
	if err != nil && lock != nil {
		err = errors.Join(err, lock.Close())
	}
	if err != nil {
		return nil, err
	}
	return lock, nil
}

// Abs implements FS.
func (f *Faulty) Abs(name string) (string, error) { return f.inner.Abs(name) }

// Free implements FS: what LimitSpace left, or what inner says.
func (f *Faulty) Free(dir string) (uint64, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.limited {
		return uint64(f.space), true
	}
	return f.inner.Free(dir)
}

// faultyFile is an open file of a Faulty.
type faultyFile struct {
	file   File
	faulty *Faulty
	name   string
	pos    int64 // where the next Write goes
}

func (h *faultyFile) ReadAt(p []byte, off int64) (int, error) {
	r := h.faulty.begin(Call{Op: OpRead, Name: h.name, Bytes: len(p)})
	if r != nil {
		return 0, injected(h.name, r.Err)
	}
	return h.file.ReadAt(p, off)
}

func (h *faultyFile) Write(p []byte) (int, error) {
	var failure error
	if r := h.faulty.begin(Call{Op: OpWrite, Name: h.name, Bytes: len(p)}); r != nil {
		failure = injected(h.name, r.Err)
		if !r.After {
			p = p[:min(r.Bytes, len(p))]
		}
	}
	size, err := h.file.Size()
	if err != nil {
		return 0, err
	}
	if growth := h.pos + int64(len(p)) - size; growth > 0 {
		taken, err := h.faulty.grow(OpWrite, h.name, growth)
		if err != nil {
			p, failure = p[:max(0, int64(len(p))-(growth-taken))], err
		}
	}
	if len(p) == 0 && failure != nil {
		return 0, failure
	}
	n, err := h.file.Write(p)
	h.pos += int64(n)
	return n, errors.Join(err, failure)
}

func (h *faultyFile) Sync() error { return h.faulty.call(OpSync, h.name, h.file.Sync) }

func (h *faultyFile) Size() (size int64, err error) {
	err = h.faulty.call(OpStat, h.name, func() (err error) { size, err = h.file.Size(); return err })
	return size, err
}

func (h *faultyFile) Truncate(size int64) error {
	return h.resize(OpTruncate, size, func() error {
		err := h.file.Truncate(size)
		if err == nil {
			h.pos = size
		}
		return err
	})
}

func (h *faultyFile) Preallocate(size int64) error {
	return h.resize(OpPreallocate, size, func() error { return h.file.Preallocate(size) })
}

// resize makes a call that wants the file to have size bytes, if there is space
// for them, and gives back what the file then does not occupy.
func (h *faultyFile) resize(op Op, size int64, do func() error) error {
	return h.faulty.call(op, h.name, func() error {
		old, err := h.file.Size()
		if err != nil {
			return err
		}
		taken, err := h.faulty.grow(op, h.name, max(size-old, 0))
		if err != nil {
			h.faulty.AddSpace(taken)
			return err
		}
		err = do()
		now, sizeErr := h.file.Size()
		h.faulty.AddSpace(old + taken - now)
		return errors.Join(err, sizeErr)
	})
}

// Close closes the file even if it is to fail, as systems do.
func (h *faultyFile) Close() error {
	err := h.file.Close()
	return errors.Join(err, h.faulty.call(OpClose, h.name, func() error { return nil }))
}
