//go:build !linux

package kernel

// ResetPeak has nobody to ask here.
func ResetPeak() bool { return false }

// Peak does not know here.
func Peak() uint64 { return 0 }
