package prefetch

import (
	"bytes"
	"testing"
	"unsafe"
)

// TestLines covers every alignment and the lengths around a line: nothing is
// changed, and no address is refused, not even one that does not exist.
func TestLines(t *testing.T) {
	buf := bytes.Repeat([]byte("line"), 4*LineBytes)
	want := bytes.Clone(buf)
	for at := range LineBytes {
		for n := range uintptr(3 * LineBytes) {
			Lines(unsafe.Pointer(&buf[at]), n)
		}
	}
	Lines(nil, 1)
	Lines(unsafe.Pointer(&buf[0]), 1<<20)
	if !bytes.Equal(buf, want) {
		t.Error("prefetching changed the memory")
	}
	if n := testing.AllocsPerRun(10, func() { Lines(unsafe.Pointer(&buf[0]), 64) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkCold reads one word of each of many scattered lines, asked for
// eight reads ahead or not at all.
func BenchmarkCold(b *testing.B) {
	memory := make([]uint64, 1<<25) // 256 MiB: beyond the caches
	for i := range memory {
		memory[i] = uint64(i)
	}
	at := func(n uint64) *uint64 {
		x := n * 0x9e3779b97f4a7c15
		return &memory[x>>39]
	}
	for _, test := range []struct {
		name  string
		ahead bool
	}{{"plain", false}, {"prefetched", true}} {
		b.Run(test.name, func(b *testing.B) {
			sum := uint64(0)
			for n := uint64(0); b.Loop(); n++ {
				if test.ahead {
					Lines(unsafe.Pointer(at(n+8)), 8)
				}
				// The next read waits for this one, as it does along a chain of
				// pointers.
				sum += *at(n + sum>>63)
			}
		})
	}
}
