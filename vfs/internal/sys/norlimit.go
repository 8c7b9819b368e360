//go:build !unix

package sys

func MaxOpenFiles() (uint64, bool) { return 0, false }
