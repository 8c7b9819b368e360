package sys

import (
	"os"
	"syscall"
)

// SyncFile uses fdatasync, which skips the times of access and change but
// writes everything needed to read the data back, a changed size included.
func SyncFile(f *os.File) error { return control(f, "fdatasync", syscall.Fdatasync) }

// StartSync asks for the bytes from off on to be on their way to the disk. It
// returns before they are there, and takes no failure away from a later SyncFile,
// which reports it.
func StartSync(f *os.File, off int64) {
	const write = 2 // SYNC_FILE_RANGE_WRITE
	_ = control(f, "sync_file_range", func(fd int) error { return syscall.SyncFileRange(fd, off, 0, write) })
}
