package sys

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// errSharingViolation is ERROR_SHARING_VIOLATION.
const errSharingViolation = syscall.Errno(32)

// exhausted are ERROR_TOO_MANY_OPEN_FILES, ERROR_HANDLE_DISK_FULL,
// ERROR_DISK_FULL and ERROR_FILE_TOO_LARGE, and what an injected fault may say.
var exhausted = []syscall.Errno{4, 39, 112, 223, syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG, syscall.EMFILE, syscall.ENFILE}

// OpenLocked lets others read the file but not open it for writing while this
// handle lives. Not LockFileEx: what it locks cannot be read either, so that
// the loser would not learn who holds the lock.
func OpenLocked(name string) (*os.File, error) {
	path, err := syscall.UTF16PtrFromString(name)
	if err != nil {
		return nil, &fs.PathError{Op: "lock", Path: name, Err: err}
	}
	h, err := syscall.CreateFile(path, syscall.GENERIC_READ|syscall.GENERIC_WRITE, syscall.FILE_SHARE_READ,
		nil, syscall.OPEN_ALWAYS, syscall.FILE_ATTRIBUTE_NORMAL, 0)
	if errors.Is(err, errSharingViolation) {
		return nil, ErrHeld
	}
	if err != nil {
		return nil, &fs.PathError{Op: "lock", Path: name, Err: err}
	}
	return os.NewFile(uintptr(h), name), nil
}

// Unlock has nothing to do: closing the handle releases the lock.
func Unlock(*os.File) error { return nil }
