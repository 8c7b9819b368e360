// Package filecache opens the files of tables when they are read and keeps no
// more than a number of them open. A file is given up when nobody needs it any
// more, whoever reads it just then.
//
//	files := filecache.New(fs, dir, name, 1000, obsolete)
//	f := files.File(12)
//	n, err := f.ReadAt(p, off) // opens it, if it is not open; or ErrGone
//	err = f.GiveUp()           // obsolete(12) is called once nobody reads it
//
// Everything is safe for concurrent use.
package filecache

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"sievedb/internal/corrupt"
	"sievedb/internal/keys"
	"sievedb/vfs"
)

// ErrGone says that a table's file was given up while a lookup that held no
// reference was on its way to it. The lookup starts again on the read state
// that is then in force.
var ErrGone = errors.New("the table is gone")

// Cache is the files of one directory.
type Cache struct {
	fs      vfs.FS
	dir     string
	name    func(keys.FileNum) string
	maxOpen int
	// obsolete is told of each file that became part of no read state, once,
	// after it was closed. It must not block.
	obsolete func(keys.FileNum)

	mu sync.Mutex
	// Guarded by mu:
	open    []*File // a clock: hand is the next to be looked at
	hand    int
	closing bool // CloseAll was called
}

// KeepAll is the number of open files of a cache that closes none before it is
// given up: whose names may go meanwhile.
const KeepAll = math.MaxInt

// New returns a cache of the files in dir that name names.
func New(fs vfs.FS, dir string, name func(keys.FileNum) string, maxOpen int, obsolete func(keys.FileNum)) *Cache {
	return &Cache{fs: fs, dir: dir, name: name, maxOpen: maxOpen, obsolete: obsolete}
}

// File is one table's file, open or not. Its state is one word, so that a read
// pins it with one atomic operation:
//
//	n >= 0            open, n reads under way
//	n >= 0 | doomed   the same, given up: the last read closes it
//	closed            not open; the next read opens it
//	gone              closed for ever
//
// A pin is taken only by compare-and-swap from a state that allows it, never
// by adding one and looking afterwards (invariant 2).
type File struct {
	cache *Cache
	num   keys.FileNum
	state atomic.Int64
	used  atomic.Bool // since the clock's hand last passed
	// handle is written before state becomes 0 and read only under a pin.
	handle vfs.File
}

const (
	closed int64 = -1
	gone   int64 = -2
	doomed int64 = 1 << 62
)

// File returns a handle of the file with that number, which is not open as yet.
func (c *Cache) File(num keys.FileNum) *File {
	f := &File{cache: c, num: num}
	f.state.Store(closed)
	return f
}

// Name returns the file's name, without the directory.
func (f *File) Name() string { return f.cache.name(f.num) }

// ReadAt implements io.ReaderAt. It returns ErrGone if the file was given up.
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	if err := f.pin(); err != nil {
		return 0, err
	}
	n, err := f.handle.ReadAt(p, off)
	_ = f.unpin() // what closing a file that was only read may report concerns nobody
	if err == nil {
		return n, nil // without its name, which would have to be put together
	}
	return n, corrupt.In(err, f.Name(), 0)
}

func (f *File) pin() error {
	for {
		switch s := f.state.Load(); {
		case s == gone || s&doomed != 0 && s > 0:
			return fmt.Errorf("%s: %w", f.Name(), ErrGone)
		case s == closed:
			pinned, err := f.cache.reopen(f)
			if pinned && err != nil {
				return errors.Join(err, f.unpin())
			}
			if pinned || err != nil {
				return err
			}
		case f.state.CompareAndSwap(s, s+1):
			if !f.used.Load() {
				f.used.Store(true)
			}
			return nil
		}
	}
}

func (f *File) unpin() error {
	if f.state.Add(-1) == doomed {
		return f.finish()
	}
	return nil
}

// GiveUp says that the table is part of no read state any more. Reads under
// way finish, later ones get ErrGone, and the last one out closes the file.
func (f *File) GiveUp() error {
	for {
		s := f.state.Load()
		switch {
		case s == gone:
			return nil
		case s == closed:
			if f.state.CompareAndSwap(closed, gone) {
				f.cache.forget(f)
				return nil
			}
		case f.state.CompareAndSwap(s, s|doomed):
			if s == 0 {
				return f.finish()
			}
			return nil
		}
	}
}

// finish closes a doomed file that nobody reads. Only one caller gets through.
func (f *File) finish() error {
	if !f.state.CompareAndSwap(doomed, gone) {
		return nil
	}
	err := f.handle.Close()
	f.cache.forget(f)
	return err
}

// Shut closes a file of which nobody else knows, and does not call it obsolete.
func (f *File) Shut() error {
	f.cache.mu.Lock()
	defer f.cache.mu.Unlock()
	if !f.state.CompareAndSwap(0, gone) {
		return nil // not open
	}
	if i := slices.Index(f.cache.open, f); i >= 0 {
		f.cache.remove(i)
	}
	return f.handle.Close()
}

// reopen opens a closed file, pinned, and closes others that were not used of
// late if that makes too many. It reports false if somebody else was first.
func (c *Cache) reopen(f *File) (pinned bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.state.Load() != closed {
		return false, nil
	}
	if c.closing {
		return false, fmt.Errorf("%s: %w", f.Name(), ErrGone)
	}
	path := filepath.Join(c.dir, f.Name())
	h, err := c.fs.Open(path)
	if vfs.Exhausted(err) && c.maxOpen != KeepAll { // the process has no more files, whoever took them
		c.shrink(len(c.open) / 2)
		h, err = c.fs.Open(path)
	}
	if err != nil {
		return false, fmt.Errorf("opening a table: %w", err)
	}
	f.handle = h
	// Pinned from the start, or shrink could close it before it was read.
	if !f.state.CompareAndSwap(closed, 1) {
		return false, h.Close() // given up meanwhile; pin finds out
	}
	c.open = append(c.open, f)
	c.shrink(c.maxOpen)
	return true, nil
}

// shrink closes idle files until at most n are open or two rounds found no
// more. What closing a file that was only read may report concerns nobody.
// Called with mu held.
func (c *Cache) shrink(n int) {
	for tries := 2 * len(c.open); tries > 0 && len(c.open) > n; tries-- {
		c.hand %= len(c.open)
		f := c.open[c.hand]
		if f.used.Swap(false) || !f.state.CompareAndSwap(0, closed) {
			c.hand++
			continue
		}
		_ = f.handle.Close()
		c.remove(c.hand)
	}
}

// forget drops a file that is gone and says that it is obsolete.
func (c *Cache) forget(f *File) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return // the file is part of the last read state, or swept at the next open
	}
	for i, o := range c.open {
		if o == f {
			c.remove(i)
			break
		}
	}
	c.obsolete(f.num)
}

// remove takes entry i off the clock. Called with mu held.
func (c *Cache) remove(i int) {
	last := len(c.open) - 1
	c.open[i] = c.open[last]
	c.open[last] = nil
	c.open = c.open[:last]
}

// Open returns the number of open files.
func (c *Cache) Open() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}

// CloseAll closes every file, as soon as the reads under way are done. From
// then on reads get ErrGone, and no file is called obsolete any more.
func (c *Cache) CloseAll() error {
	c.mu.Lock()
	open := c.open
	c.open, c.closing = nil, true
	c.mu.Unlock()
	var errs []error
	for _, f := range open {
		errs = append(errs, f.GiveUp())
	}
	return errors.Join(errs...)
}
