//go:build amd64 || arm64

package prefetch

import "unsafe"

// Lines prefetches the n bytes from p on, in whole cache lines: the first line
// that it touches, and those that follow at distances of LineBytes. For n = 0 it
// does nothing. p need not point to the beginning of an allocation, nor n end
// within it.
//
//go:noescape
func Lines(p unsafe.Pointer, n uintptr)
