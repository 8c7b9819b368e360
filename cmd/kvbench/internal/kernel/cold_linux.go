//go:build linux && (amd64 || arm64)

package kernel

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// DropPageCache asks the kernel to forget the files of a directory, so that the
// next reads come from the device. What is not yet there is written first: the
// kernel keeps it otherwise.
func DropPageCache(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Type().IsRegular() {
			if err := dropFile(filepath.Join(dir, e.Name())); err != nil {
				return fmt.Errorf("emptying the page cache: %w", err)
			}
		}
	}
	return nil
}

func dropFile(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return err
	}
	const dontNeed = 4 // POSIX_FADV_DONTNEED
	if _, _, errno := syscall.Syscall6(syscall.SYS_FADVISE64, f.Fd(), 0, 0, dontNeed, 0, 0); errno != 0 {
		return fmt.Errorf("%s: fadvise: %w", name, errno)
	}
	return nil
}
