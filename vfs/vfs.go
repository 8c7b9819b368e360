// Package vfs is the file system as the store sees it: the operating system's
// (OS), an in-memory one that can be crashed at any moment (Mem), and one that
// injects faults into another (Faulty).
//
//	f, err := fs.Create(name)  // not durable: neither content nor name
//	_, err = f.Write(p)
//	err = f.Sync()             // the content is durable
//	err = fs.SyncDir(dir)      // and now its name is, too
//
// An FS and its files are safe for concurrent use, except that calls of Write,
// Truncate and Preallocate on one file must not overlap one another.
package vfs

import (
	"fmt"
	"io"
)

// File is an open file.
type File interface {
	// ReadAt reads len(p) bytes from offset off, as io.ReaderAt says.
	io.ReaderAt
	// Write writes p at the file's write position, which is zero in a created
	// file and the file's size in one opened with OpenReadWrite, and moves the
	// position on. What was written is not durable before Sync.
	io.Writer
	// Sync makes the content and the size durable. A Sync that failed must not
	// be tried again: the kernel may have dropped the pages that it could not
	// write and then report success.
	Sync() error
	// Size returns the file's size in bytes.
	Size() (int64, error)
	// Truncate cuts the file, or extends it with zeros, to size bytes, and
	// moves the write position to size.
	Truncate(size int64) error
	// Preallocate extends a file that is shorter than size bytes with zeros that
	// take their disk space, so that a sync of what is then written in their
	// place changes nothing but that, and leaves the write position. It is a
	// hint: it may do nothing, and one that failed may have done a part.
	Preallocate(size int64) error
	// Close closes the file without making anything durable.
	Close() error
}

// FS is a file system. Names are paths; only Abs makes them absolute.
type FS interface {
	// Create creates name, or empties it, and opens it for reading and
	// writing.
	Create(name string) (File, error)
	// Open opens name for reading.
	Open(name string) (File, error)
	// OpenReadWrite opens name, which must exist, for reading and writing.
	OpenReadWrite(name string) (File, error)
	// Remove removes a file or an empty directory.
	Remove(name string) error
	// Rename replaces newName by oldName atomically; durable after SyncDir.
	Rename(oldName, newName string) error
	// Link makes newName another name of oldName; it fails if newName exists.
	Link(oldName, newName string) error
	// MkdirAll creates dir and its parents as needed, and syncs the parent of
	// each directory that it created.
	MkdirAll(dir string) error
	// SyncDir makes the names in dir durable.
	SyncDir(dir string) error
	// List returns the base names in dir, sorted.
	List(dir string) ([]string, error)
	// Stat describes name; errors.Is(err, fs.ErrNotExist) if it is not there.
	Stat(name string) (Info, error)
	// Lock takes the lock file name, creating it if needed, and records the
	// holder's process ID in it. It fails at once with a *LockedError if
	// another holder, in this process or another, has it. Closing the result
	// releases it, and so does the death of the process.
	Lock(name string) (io.Closer, error)
	// Abs makes name absolute.
	Abs(name string) (string, error)
	// Free returns the bytes that an unprivileged user can still write to the
	// file system of dir, or ok false where that cannot be told.
	Free(dir string) (bytes uint64, ok bool)
}

// Info is what Stat tells.
type Info struct {
	SizeBytes int64
	IsDir     bool
}

// LockedError says that a lock file is held.
type LockedError struct {
	Name string
	PID  int // of the holder; zero if it is not known
}

// Error names the lock file and its holder.
func (e *LockedError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("%s is held by another process", e.Name)
	}
	return fmt.Sprintf("%s is held by process %d", e.Name, e.PID)
}
