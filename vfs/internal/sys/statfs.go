//go:build linux || darwin

package sys

import "syscall"

// FreeBytes counts blocks available to an unprivileged user, not the free ones,
// of which some are kept for the superuser.
func FreeBytes(dir string) (uint64, bool) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, false
	}
	return uint64(st.Bavail) * uint64(st.Bsize), true
}
