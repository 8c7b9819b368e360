package sys

import (
	"os"
	"syscall"
)

// SyncFile uses fdatasync, which skips the times of access and change but
// writes everything needed to read the data back, a changed size included.
func SyncFile(f *os.File) error { return control(f, "fdatasync", syscall.Fdatasync) }
