//go:build unix

package trial

import (
	"io/fs"
	"syscall"
)

// occupied returns what a file takes on disk. Some engines make files that are
// far larger than what was written to them.
func occupied(info fs.FileInfo) uint64 {
	const block = 512 // of stat, whatever the file system's are
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(s.Blocks) * block
	}
	return uint64(info.Size())
}
