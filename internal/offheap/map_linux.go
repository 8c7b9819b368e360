//go:build linux && !race

package offheap

import "syscall"

// mapRegion returns n bytes of new memory, nil if the system has none to give. huge asks for
// huge pages, which not every system gives.
func mapRegion(n int, huge bool) []byte {
	const flags = syscall.MAP_ANON | syscall.MAP_PRIVATE | syscall.MAP_NORESERVE
	region, err := syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE, flags)
	if err != nil {
		return nil
	}
	if huge {
		_ = syscall.Madvise(region, syscall.MADV_HUGEPAGE)
	}
	return region
}

// giveBack frees the pages of b, which reads as zeros then. If it fails, where pages
// are locked in memory for instance, they stay resident.
func giveBack(b []byte) { _ = syscall.Madvise(b, syscall.MADV_DONTNEED) }
