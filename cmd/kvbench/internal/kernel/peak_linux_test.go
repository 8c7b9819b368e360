package kernel

import "testing"

func TestParsePeak(t *testing.T) {
	const status = "Name:\tkvbench\nVmPeak:\t 1234 kB\nVmHWM:\t    4660 kB\nVmRSS:\t  12 kB\n"
	if n := parsePeak([]byte(status)); n != 4660<<10 {
		t.Errorf("%d", n)
	}
	for _, bad := range []string{"", "VmHWM: x kB\n", "VmHWM: 7\n", "VmHWM: 7 MB\n", "VmHWM: 99999999999999999999 kB\n", "VmRSS: 7 kB\n"} {
		if n := parsePeak([]byte(bad)); n != 0 {
			t.Errorf("%q: %d", bad, n)
		}
	}
}

// The peak follows what was used since it was reset.
func TestPeak(t *testing.T) {
	if !ResetPeak() {
		t.Skip("the kernel does not reset the peak here")
	}
	before := Peak()
	const size = 32 << 20
	b := make([]byte, size)
	for i := 0; i < len(b); i += 1 << 10 {
		b[i] = 1 // makes it resident
	}
	if after := Peak(); before == 0 || after < before+size/2 {
		t.Errorf("%d bytes at most, and %d with %d more", before, after, len(b))
	}
}
