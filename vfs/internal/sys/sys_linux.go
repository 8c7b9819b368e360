package sys

import (
	"errors"
	"os"
	"syscall"
)

// SyncFile uses fdatasync, which skips the times of access and change but
// writes everything needed to read the data back, a changed size included.
func SyncFile(f *os.File) error { return control(f, "fdatasync", syscall.Fdatasync) }

// Preallocate extends the file, so that a later sync need not also write a new
// size and newly allocated extents.
func Preallocate(f *os.File, size int64) error {
	if size == 0 {
		return nil // which the call would refuse
	}
	err := control(f, "fallocate", func(fd int) error { return syscall.Fallocate(fd, 0, 0, size) })
	// Not every file system has the call, and some sandboxes forbid it.
	for _, hint := range []error{syscall.EOPNOTSUPP, syscall.ENOSYS, syscall.EPERM} {
		if errors.Is(err, hint) {
			return nil
		}
	}
	return err
}
