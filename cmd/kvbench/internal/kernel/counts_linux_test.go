package kernel

import (
	"os"
	"path/filepath"
	"testing"

	"sievedb/cmd/kvbench/internal/report"
)

func TestParseIO(t *testing.T) {
	const io = "rchar: 7\nwchar: 1\nsyscr: 10\nsyscw: 2\nread_bytes: 4096\nwrite_bytes: 0\ncancelled_write_bytes: 0\n"
	if k, ok := parseIO([]byte(io)); !ok || k != (report.Kernel{ReadCalls: 10, ReadBytes: 4096}) {
		t.Errorf("%+v %v", k, ok)
	}
	for _, bad := range []string{"", "syscr: 10\n", "syscr: x\nread_bytes: 1\n"} {
		if k, ok := parseIO([]byte(bad)); ok {
			t.Errorf("%q: %+v", bad, k)
		}
	}
}

// A read is counted by the kernel as one.
func TestCounts(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, make([]byte, 4096), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	before, ok := counts()
	if !ok {
		t.Log("this kernel does not tell; parseIO is tested")
		return
	}
	var b [1]byte
	const n = 1000
	for i := range n {
		if _, err := f.ReadAt(b[:], int64(i)); err != nil {
			t.Fatal(err)
		}
	}
	after, _ := counts()
	if d := after.ReadCalls - before.ReadCalls; d < n || d > n+100 {
		t.Errorf("%d read calls counted for %d", d, n)
	}
}
