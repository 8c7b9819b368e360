package filter

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// rateOps makes TestRateMatrix complete: it is the number of false positives
// that each rate is measured by, at least.
var rateOps = flag.Int("sievedb.ops", 0, "false positives expected for each rate of TestRateMatrix, all of them; 0 is a few rates")

// newRand returns a generator for tests that must hold for any seed. It prints
// the seed; SIEVEDB_SEED brings one back. Statistical tests have fixed seeds.
func newRand(t testing.TB) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("SIEVEDB_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 0, 64); err != nil {
			t.Fatalf("SIEVEDB_SEED: %v", err)
		}
	}
	t.Logf("SIEVEDB_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func mustOpen(t testing.TB, payload []byte) Reader {
	t.Helper()
	r, err := Open(payload)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func mustFinish(t testing.TB, b *Builder, dst []byte) ([]byte, Info) {
	t.Helper()
	payload, info, err := b.Finish(dst)
	if err != nil {
		t.Fatal(err)
	}
	return payload, info
}

// randomFilter returns the filter of n random hashes, and the hashes.
func randomFilter(t testing.TB, rng *rand.Rand, n int, millibits uint32, seed uint64) (Reader, []uint64) {
	t.Helper()
	hashes := make([]uint64, n)
	for i := range hashes {
		hashes[i] = rng.Uint64()
	}
	payload, _ := filterOf(t, hashes, millibits, seed)
	return mustOpen(t, payload), hashes
}

// filterOf returns the payload of the filter of hashes.
func filterOf(t testing.TB, hashes []uint64, millibits uint32, seed uint64) ([]byte, Info) {
	t.Helper()
	b := NewBuilder(millibits, seed)
	defer b.Release()
	for _, h := range hashes {
		b.Add(h)
	}
	return mustFinish(t, b, nil)
}

// keyFamilies are shapes of user keys that have spoilt filters: hashes that
// are weak for them, or that depend on their length or on the sign of a byte.
var keyFamilies = []struct {
	name string
	key  func(dst []byte, i uint64) []byte
}{
	{"big-endian", func(dst []byte, i uint64) []byte { return binary.BigEndian.AppendUint64(dst, i) }},
	{"little-endian", func(dst []byte, i uint64) []byte { return binary.LittleEndian.AppendUint64(dst, i) }},
	{"little-endian-4", func(dst []byte, i uint64) []byte { return binary.LittleEndian.AppendUint32(dst, uint32(i)) }},
	{"decimal", func(dst []byte, i uint64) []byte { return strconv.AppendUint(dst, i, 10) }},
	{"padded", func(dst []byte, i uint64) []byte { return fmt.Appendf(dst, "%016d", i) }},
	{"url", func(dst []byte, i uint64) []byte {
		return fmt.Appendf(dst, "https://www.example.com/a/rather/long/common/prefix/page?id=%d", i)
	}},
	{"uuid", func(dst []byte, i uint64) []byte {
		return fmt.Appendf(dst, "%08x-0000-4000-8000-%012x", uint32(SeedFor(i)), i)
	}},
	{"one-bit", func(dst []byte, i uint64) []byte { // keys that differ in one bit of 64 bytes
		at := len(dst)
		dst = append(dst, make([]byte, 64)...)
		dst[at+int(i/8%56)] = 1 << (i % 8)
		binary.LittleEndian.PutUint64(dst[at+56:], i/448)
		return dst
	}},
	{"zeros", func(dst []byte, i uint64) []byte { // the empty key, then runs of zeros, then integers
		if i < 300 {
			return append(dst, make([]byte, i)...)
		}
		return fmt.Appendf(dst, "\x00%d", i)
	}},
	{"high-bytes", func(dst []byte, i uint64) []byte {
		return append(binary.BigEndian.AppendUint64(append(dst, 0xff, 0x80), ^i), 0xfe)
	}},
}

// hashFamilies are hashes that are not random at all: the remix must cope.
var hashFamilies = []struct {
	name string
	hash func(i uint64) uint64
}{
	{"counter", func(i uint64) uint64 { return i }},
	{"counter-high", func(i uint64) uint64 { return i << 40 }},
	{"top-4-fixed", func(i uint64) uint64 { return SeedFor(i)>>4 | 0xa<<60 }},
	{"low-4-fixed", func(i uint64) uint64 { return SeedFor(i)<<4 | 0x5 }},
	{"middle-8-fixed", func(i uint64) uint64 { return SeedFor(i)&^(0xff<<28) | 0x3c<<28 }},
}
