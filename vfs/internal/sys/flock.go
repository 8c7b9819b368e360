//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package sys

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// OpenLocked uses flock, whose lock belongs to the open file: it also excludes
// other holders in this process, and closing an unrelated descriptor of the
// same file does not release it. POSIX record locks fail at both.
func OpenLocked(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	err = control(f, "flock", func(fd int) error { return syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB) })
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = ErrHeld
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Unlock releases the lock even if a process that is being started still has a
// copy of the descriptor, which closing alone does not.
func Unlock(f *os.File) error {
	return control(f, "flock", func(fd int) error { return syscall.Flock(fd, syscall.LOCK_UN) })
}

// control runs a system call on f's descriptor, again if it is interrupted.
// Not f.Fd: the descriptor could be closed, and reused, under the call.
func control(f *os.File, op string, call func(fd int) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var callErr error
	err = conn.Control(func(fd uintptr) {
		for callErr = syscall.EINTR; callErr == syscall.EINTR; {
			callErr = call(int(fd))
		}
	})
	if err != nil {
		callErr = fs.ErrClosed // the only failure of Control itself
	}
	if callErr != nil {
		return &fs.PathError{Op: op, Path: f.Name(), Err: callErr}
	}
	return nil
}
