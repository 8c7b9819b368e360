package filter

import (
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/cespare/xxhash/v2"
)

// The values in this file are part of the format: a failure here means that
// filters on disk would be misread. They hold on every architecture.

func TestGoldenHash(t *testing.T) {
	for key, want := range map[string]uint64{
		"":                 0xef46db3751d8e999,
		"a":                0xd24ec4f1a98c6e5b,
		"abc":              0x44bc2cf5ad770999,
		"key-0000":         0x47d92e149deb2767,
		"key-0001":         0x6d0dee4bbd2ca30b,
		"key-0002":         0x26cad2ad899a0c6f,
		"\x00\xff\xfe\xfd": 0x1bdb244e9ce9e215,
	} {
		if got := Hash([]byte(key)); got != want {
			t.Errorf("Hash(%q) = %#x, want %#x", key, got, want)
		}
	}
}

// Bytes of 0x80 and above at every length: an implementation that extends
// their sign, or that mistreats a tail of fewer than eight bytes, differs.
func TestGoldenHashLengths(t *testing.T) {
	var key, all []byte
	for n := range 65 {
		h := Hash(key)
		all = fmt.Appendf(all, "%016x", h)
		key = append(key, byte(0x80+n*5))
	}
	const want = 0x0d3f0bf31fdaa0a4
	if got := xxhash.Sum64(all); got != want {
		t.Errorf("hash over the hashes of 65 lengths = %#x, want %#x", got, uint64(want))
	}
}

func TestGoldenSeeds(t *testing.T) {
	for fileNum, want := range map[uint64]uint64{
		0:  0xe220a8397b1dcdaf,
		1:  0x910a2dec89025cc1,
		7:  0x63cbe1e459320dd7,
		42: 0xbdd732262feb6e95,
	} {
		if got := SeedFor(fileNum); got != want {
			t.Errorf("SeedFor(%d) = %#x, want %#x", fileNum, got, want)
		}
	}
}

func TestGoldenPositions(t *testing.T) {
	for _, c := range []struct {
		key           string
		seed, nblocks uint64
		block         uint64
		probes        []int
	}{
		{"key-0000", 0, 20, 18, []int{227, 143, 276, 506, 7, 122, 248, 379, 478, 488, 210, 456, 173, 13}},
		{"key-0000", 0x63cbe1e459320dd7, 20, 6, []int{359, 498, 436, 429, 464, 365, 210}},
		// Blocks whose bits lie beyond 2^32, and more than that.
		{"key-0001", 0x63cbe1e459320dd7, 1 << 26, 43239418, []int{501, 419, 56, 454, 47, 148, 415}},
		{"\x00\xff\xfe\xfd", 0, 1000003, 400464, []int{9, 466, 275, 309, 12, 95, 499}},
	} {
		block, y := locate(Hash([]byte(c.key)), c.seed, c.nblocks)
		if block != c.block {
			t.Errorf("%q among %d blocks: block %d, want %d", c.key, c.nblocks, block, c.block)
		}
		for i, want := range c.probes {
			if got := position(y, i); got != want {
				t.Errorf("%q among %d blocks: probe %d at %d, want %d", c.key, c.nblocks, i, got, want)
			}
		}
	}
}

// position is the formula of the ruler, one probe at a time.
func position(y uint64, i int) int {
	if i >= 7 {
		y = (y ^ y>>32) * 0x9E3779B97F4A7C15
		i -= 7
	}
	return int(y >> (55 - 9*i) & 511)
}

func TestGoldenFilters(t *testing.T) {
	for _, c := range []struct {
		n              int
		seed           uint64
		blocks, k      int
		ones           int
		bits           uint64 // xxhash64 of the blocks
		falsePositives int    // of 100,000 absent keys
	}{
		{1, 0, 1, 14, 14, 0xf792911a9d11ef47, 0},
		{3, 0, 1, 14, 40, 0x38aa2e4243ae14fe, 0},
		{3, SeedFor(1), 1, 14, 41, 0x5f746d1a0fa2872a, 0},
		{100, SeedFor(42), 2, 7, 497, 0x279dc89841f6c424, 570},
		{1000, SeedFor(7), 20, 7, 5051, 0xd1e8a302b7eb743f, 888},
	} {
		name := fmt.Sprintf("%d keys, seed %#x", c.n, c.seed)
		payload, info := goldenFilter(t, c.n, c.seed)
		if info.Bytes != uint64(c.blocks*blockBytes+trailerBytes) || info.K != c.k || int(info.Keys) != c.n || info.Kind != KindBlocked {
			t.Errorf("%s: info %+v, want %d blocks, k %d", name, info, c.blocks, c.k)
		}
		field := payload[:c.blocks*blockBytes]
		if got := xxhash.Sum64(field); got != c.bits {
			t.Errorf("%s: hash of the blocks %#x, want %#x", name, got, c.bits)
		}
		ones := 0
		for p := field; len(p) > 0; p = p[blockBytes:] {
			ones += onesIn((*[blockBytes]byte)(p))
		}
		if ones != c.ones {
			t.Errorf("%s: %d ones, want %d", name, ones, c.ones)
		}
		r := mustOpen(t, payload)
		got := 0
		for i := range 100_000 {
			if r.MayContain(Hash(fmt.Appendf(nil, "miss-%06d", i))) {
				got++
			}
		}
		if got != c.falsePositives {
			t.Errorf("%s: %d false positives, want %d", name, got, c.falsePositives)
		}
	}
}

func goldenFilter(t testing.TB, n int, seed uint64) ([]byte, Info) {
	t.Helper()
	b := NewBuilder(10_000, seed)
	for i := range n {
		b.Add(Hash(fmt.Appendf(nil, "key-%04d", i)))
	}
	return mustFinish(t, b, nil)
}

// Every byte of a payload, and where it stands.
func TestGoldenPayload(t *testing.T) {
	const blocks = "80a10800040101000080000040000004008000000020020400001400480002010040122000418002800800020000000810000000000000000001004000014044"
	for _, c := range []struct {
		n    int
		seed uint64
		want string
	}{
		{3, 0, blocks + // one block
			"01" + "0e" + "06" + "01" + // kind 1, 14 probes, 2^6 bytes, whole keys
			"01000000" + "0300000000000000" + "0000000000000000"}, // blocks, keys, seed
		{0, SeedFor(1), "01" + "00" + "06" + "01" +
			"00000000" + "0000000000000000" + "c15c0289ec2d0a91"},
	} {
		payload, _ := goldenFilter(t, c.n, c.seed)
		if got := hex.EncodeToString(payload); got != c.want {
			t.Errorf("payload of %d keys:\n got %s\nwant %s", c.n, got, c.want)
		}
	}
}
