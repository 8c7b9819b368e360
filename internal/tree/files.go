package tree

import (
	"errors"
	"fmt"
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

// Files opens the files of tables when they are read and keeps at most a
// number of them open. It is safe for concurrent use.
type Files struct {
	fs      vfs.FS
	dir     string
	name    func(keys.FileNum) string
	maxOpen int
	// obsolete is told of each file that became part of no read state, once,
	// after it was closed. It must not block.
	obsolete func(keys.FileNum)

	mu sync.Mutex
	// Guarded by mu:
	open    []*file // a clock: hand is the next to be looked at
	hand    int
	closing bool // CloseAll was called
}

// NewFiles returns an opener of the files in dir that name names.
func NewFiles(fs vfs.FS, dir string, name func(keys.FileNum) string, maxOpen int, obsolete func(keys.FileNum)) *Files {
	return &Files{fs: fs, dir: dir, name: name, maxOpen: maxOpen, obsolete: obsolete}
}

// file is one table's file, open or not. Its state is one word, so that a read
// pins it with one atomic operation:
//
//	n >= 0            open, n reads under way
//	n >= 0 | doomed   the same, given up: the last read closes it
//	closed            not open; the next read opens it
//	gone              closed for ever
//
// A pin is taken only by compare-and-swap from a state that allows it, never
// by adding one and looking afterwards (invariant 2).
type file struct {
	files *Files
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

func (fs *Files) newFile(num keys.FileNum) *file {
	f := &file{files: fs, num: num}
	f.state.Store(closed)
	return f
}

// ReadAt implements io.ReaderAt. It returns ErrGone if the file was given up.
func (f *file) ReadAt(p []byte, off int64) (int, error) {
	if err := f.pin(); err != nil {
		return 0, err
	}
	n, err := f.handle.ReadAt(p, off)
	_ = f.unpin() // what closing a file that was only read may report concerns nobody
	return n, corrupt.In(err, f.files.name(f.num), 0)
}

func (f *file) pin() error {
	for {
		switch s := f.state.Load(); {
		case s == gone || s&doomed != 0 && s > 0:
			return fmt.Errorf("%s: %w", f.files.name(f.num), ErrGone)
		case s == closed:
			pinned, err := f.files.reopen(f)
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

func (f *file) unpin() error {
	if f.state.Add(-1) == doomed {
		return f.finish()
	}
	return nil
}

// giveUp says that the table is part of no read state any more. Reads under
// way finish, later ones get ErrGone, and the last one out closes the file.
func (f *file) giveUp() error {
	for {
		s := f.state.Load()
		switch {
		case s == gone:
			return nil
		case s == closed:
			if f.state.CompareAndSwap(closed, gone) {
				f.files.forget(f)
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
func (f *file) finish() error {
	if !f.state.CompareAndSwap(doomed, gone) {
		return nil
	}
	err := f.handle.Close()
	f.files.forget(f)
	return err
}

// shut closes a file of which nobody else knows, and does not call it obsolete.
func (f *file) shut() error {
	f.files.mu.Lock()
	defer f.files.mu.Unlock()
	if !f.state.CompareAndSwap(0, gone) {
		return nil // not open
	}
	if i := slices.Index(f.files.open, f); i >= 0 {
		f.files.remove(i)
	}
	return f.handle.Close()
}

// reopen opens a closed file, pinned, and closes others that were not used of
// late if that makes too many. It reports false if somebody else was first.
func (fs *Files) reopen(f *file) (pinned bool, err error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f.state.Load() != closed {
		return false, nil
	}
	if fs.closing {
		return false, fmt.Errorf("%s: %w", fs.name(f.num), ErrGone)
	}
	h, err := fs.fs.Open(filepath.Join(fs.dir, fs.name(f.num)))
	if err != nil {
		return false, fmt.Errorf("opening a table: %w", err)
	}
	f.handle = h
	// Pinned from the start, or shrink could close it before it was read.
	if !f.state.CompareAndSwap(closed, 1) {
		return false, h.Close() // given up meanwhile; pin finds out
	}
	fs.open = append(fs.open, f)
	fs.shrink()
	return true, nil
}

// shrink closes idle files until few enough are open or two rounds found no
// more. What closing a file that was only read may report concerns nobody.
// Called with mu held.
func (fs *Files) shrink() {
	for tries := 2 * len(fs.open); tries > 0 && len(fs.open) > fs.maxOpen; tries-- {
		fs.hand %= len(fs.open)
		f := fs.open[fs.hand]
		if f.used.Swap(false) || !f.state.CompareAndSwap(0, closed) {
			fs.hand++
			continue
		}
		_ = f.handle.Close()
		fs.remove(fs.hand)
	}
}

// forget drops a file that is gone and says that it is obsolete.
func (fs *Files) forget(f *file) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.closing {
		return // the file is part of the last read state, or swept at the next open
	}
	for i, o := range fs.open {
		if o == f {
			fs.remove(i)
			break
		}
	}
	fs.obsolete(f.num)
}

// remove takes entry i off the clock. Called with mu held.
func (fs *Files) remove(i int) {
	last := len(fs.open) - 1
	fs.open[i] = fs.open[last]
	fs.open[last] = nil
	fs.open = fs.open[:last]
}

// Open returns the number of open files.
func (fs *Files) Open() int {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return len(fs.open)
}

// CloseAll closes every file, as soon as the reads under way are done. From
// then on reads get ErrGone, and no file is called obsolete any more.
func (fs *Files) CloseAll() error {
	fs.mu.Lock()
	open := fs.open
	fs.open, fs.closing = nil, true
	fs.mu.Unlock()
	var errs []error
	for _, f := range open {
		errs = append(errs, f.giveUp())
	}
	return errors.Join(errs...)
}
