package kernel

import (
	"bufio"
	"bytes"
	"os"
	"strconv"

	"sievedb/cmd/kvbench/internal/report"
)

// counts returns what the kernel counted for this process since it
// started, or false where it does not tell.
func counts() (k report.Kernel, ok bool) {
	b, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return k, false
	}
	return parseIO(b)
}

// parseIO reads /proc/PID/io, which proc_pid_io(5) describes.
func parseIO(b []byte) (k report.Kernel, ok bool) {
	found := 0
	lines := bufio.NewScanner(bytes.NewReader(b))
	for lines.Scan() {
		name, number, _ := bytes.Cut(lines.Bytes(), []byte(": "))
		n, err := strconv.ParseUint(string(number), 10, 64)
		if err != nil {
			continue
		}
		switch string(name) {
		case "syscr":
			k.ReadCalls = n
			found++
		case "read_bytes":
			k.ReadBytes = n
			found++
		}
	}
	return k, found == 2
}
