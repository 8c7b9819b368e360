//go:build unix

package sys

import (
	"math"
	"syscall"
)

var exhausted = []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG, syscall.EMFILE, syscall.ENFILE}

// MaxOpenFiles asks for the soft limit, which the Go runtime has raised to the
// hard one.
func MaxOpenFiles() int {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return math.MaxInt
	}
	return int(min(uint64(r.Cur), math.MaxInt))
}
