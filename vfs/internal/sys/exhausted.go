package sys

import (
	"errors"
	"slices"
	"syscall"
)

// Exhausted reports whether err is that of a full disk, a quota, a file at its
// largest size, or too many open files.
func Exhausted(err error) bool {
	var errno syscall.Errno
	return errors.As(err, &errno) && slices.Contains(exhausted, errno)
}
