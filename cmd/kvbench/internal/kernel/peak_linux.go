package kernel

import (
	"bufio"
	"bytes"
	"os"
	"strconv"
)

// ResetPeak makes Peak begin anew, and reports whether the kernel does so
// (proc_pid_clear_refs(5)).
func ResetPeak() bool { return os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) == nil }

// Peak returns the most memory of this process that was resident since
// ResetPeak, in bytes, or zero where the kernel does not tell.
func Peak() uint64 {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	return parsePeak(b)
}

// parsePeak reads /proc/PID/status, which proc_pid_status(5) describes.
func parsePeak(b []byte) uint64 {
	lines := bufio.NewScanner(bytes.NewReader(b))
	for lines.Scan() {
		if f := bytes.Fields(lines.Bytes()); len(f) == 3 && string(f[0]) == "VmHWM:" && string(f[2]) == "kB" {
			n, err := strconv.ParseUint(string(f[1]), 10, 54) // shifted, it fits
			if err != nil {
				return 0
			}
			return n << 10
		}
	}
	return 0
}
