package filter

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"sievedb/internal/codec"
	"sievedb/internal/corrupt"
)

// Invariant 22: whatever is not a valid payload is match-all, never "no".
func TestInvariant22BadPayloadsMatchAll(t *testing.T) {
	good, _ := goldenFilter(t, 100, 1) // two blocks
	empty, _ := goldenFilter(t, 0, 1)
	edit := func(p []byte, field int, value byte) []byte {
		p = bytes.Clone(p)
		p[len(p)-trailerBytes+field] = value
		return p
	}
	for _, c := range []struct {
		name    string
		payload []byte
		offset  int64
	}{
		{"nil", nil, 0},
		{"trailer cut", empty[:trailerBytes-1], 0},
		{"zeros", make([]byte, trailerBytes), 0},
		{"kind 0", edit(good, 0, 0), 128},
		{"kind 2", edit(good, 0, 2), 130},
		{"no probes", edit(good, 1, 0), 136},
		{"15 probes", edit(good, 1, 15), 129},
		{"block size", edit(good, 2, 5), 130},
		{"no flag", edit(good, 3, 0), 131},
		{"prefixes too", edit(good, 3, 3), 131},
		{"unknown flag", edit(good, 3, 0x81), 131},
		{"no blocks", edit(good, 4, 0), 132},
		{"one block less", edit(good, 4, 1), 132},
		{"2^24 blocks more", edit(good, 7, 1), 132},
		{"no keys", edit(good, 8, 0), 136},
		{"a block lost", good[blockBytes:], 68},
		{"a byte more", append([]byte{0}, good...), 133},
		{"empty with probes", edit(empty, 1, 1), 8},
		{"empty with keys", edit(empty, 8, 1), 8},
		{"empty with keys and probes", edit(edit(empty, 8, 1), 1, 1), 8},
		{"empty with a block", edit(empty, 4, 1), 4},
		{"a block without keys", append(make([]byte, blockBytes), edit(empty, 4, 1)...), 72},
	} {
		r, err := Open(c.payload)
		var e *corrupt.Error
		if !errors.As(err, &e) || e.Offset != c.offset || e.What == "" {
			t.Errorf("%s: %v, want a corruption at %d", c.name, err, c.offset)
		}
		checkMatchAll(t, c.name, r)
	}
}

func checkMatchAll(t *testing.T, name string, r Reader) {
	t.Helper()
	if !r.IsMatchAll() || r.Kind() != KindNone || r.Keys() != 0 || int(r.k) != 0 || r.Bytes() != 0 {
		t.Errorf("%s: not match-all: %+v", name, r)
	}
	for _, h := range []uint64{0, 1, 1 << 63, math.MaxUint64, Hash(nil)} {
		r.Prefetch(h)
		if !r.MayContain(h) {
			t.Errorf("%s: no to %#x", name, h)
		}
	}
}

func TestMatchAll(t *testing.T) {
	checkMatchAll(t, "MatchAll", MatchAll())
	checkMatchAll(t, "zero Reader", Reader{})
}

// The filter of no keys is the only one that may answer "no" to everything.
func TestNoKeys(t *testing.T) {
	payload, info := goldenFilter(t, 0, SeedFor(1))
	if len(payload) != trailerBytes || info.Rate != 0 {
		t.Fatalf("%d bytes, %+v", len(payload), info)
	}
	r := mustOpen(t, payload)
	if r.IsMatchAll() || r.Bytes() != trailerBytes {
		t.Fatalf("%+v", r)
	}
	for h := range uint64(1_000) {
		r.Prefetch(h)
		if r.MayContain(h) || r.MayContain(SeedFor(h)) {
			t.Fatalf("maybe to %d", h)
		}
	}
}

// The reader keeps nothing of the options of the builder and does not copy.
func TestOpenAliases(t *testing.T) {
	payload, _ := filterOf(t, []uint64{1}, 10_000, 0)
	r := mustOpen(t, payload)
	if &r.field[0] != &payload[0] || cap(r.field) != blockBytes {
		t.Fatal("the reader holds a copy, or can reach the trailer")
	}
	if !r.MayContain(1) {
		t.Fatal("no to an added hash")
	}
	clear(payload[:blockBytes])
	if r.MayContain(1) {
		t.Fatal("maybe from a block of zeros: it is not the payload that is read")
	}
}

// A payload that lost bytes at the end is refused, whatever its bits were;
// at the front, where a block would be missing, too.
func TestTruncated(t *testing.T) {
	payload, _ := goldenFilter(t, 1_000, SeedFor(7))
	for n := range len(payload) {
		for _, p := range [][]byte{payload[:n], payload[len(payload)-n:]} {
			r, err := Open(p)
			if !errors.Is(err, corrupt.ErrCorrupt) || !r.IsMatchAll() {
				t.Fatalf("%d of %d bytes: %v", n, len(payload), err)
			}
		}
	}
}

// Within a table the payload stands under a checksum, which sees every flipped
// bit. Without it, what the trailer can tell is still told, and nothing breaks.
func TestBitFlips(t *testing.T) {
	payload, _ := goldenFilter(t, 100, SeedFor(42))
	trailerAt := len(payload) - trailerBytes
	sum := codec.ChecksumOf(0, payload)
	lossless := 0
	for bit := range len(payload) * 8 {
		p := bytes.Clone(payload)
		p[bit/8] ^= 1 << (bit % 8)
		if codec.ChecksumOf(0, p) == sum {
			t.Fatalf("bit %d: same checksum", bit)
		}
		r, err := Open(p)
		answersAll := true
		for i := range uint64(100) {
			r.Prefetch(i)
			answersAll = r.MayContain(SeedFor(i)) && answersAll
		}
		field := bit/8 - trailerAt
		// Kind, block size, flags and number of blocks are determined.
		if determined := field == 0 || field >= 2 && field < 8; determined && err == nil {
			t.Errorf("bit %d, trailer byte %d: accepted", bit, field)
		}
		if err != nil && !answersAll {
			t.Errorf("bit %d: refused, yet not match-all", bit)
		}
		if field < 0 && err == nil {
			lossless++
		}
	}
	if lossless != trailerAt*8 {
		t.Errorf("%d of %d flips of filter bits opened", lossless, trailerAt*8)
	}
}

// Any alignment of the payload gives the same answers.
func TestUnaligned(t *testing.T) {
	payload, _ := goldenFilter(t, 1_000, SeedFor(7))
	aligned := mustOpen(t, payload)
	for shift := range blockBytes {
		buf := append(make([]byte, shift), payload...)
		r := mustOpen(t, buf[shift:])
		for h := range uint64(2_000) {
			if h := SeedFor(h); r.MayContain(h) != aligned.MayContain(h) {
				t.Fatalf("shift %d: another answer to %#x", shift, h)
			}
		}
	}
}

// Every number of probes, against the formula of the ruler taken literally.
func TestProbeAgainstFormula(t *testing.T) {
	rng := newRand(t)
	for k := uint8(1); k <= maxProbes; k++ {
		var line [blockBytes]byte
		for i := range 8 { // three bits of four, so that all outcomes are met
			binary.LittleEndian.PutUint64(line[i*8:], rng.Uint64()|rng.Uint64())
		}
		yes := 0
		const n = 20_000
		for range n {
			y := rng.Uint64()
			want := true
			for i := range int(k) {
				p := position(y, i)
				want = want && line[p>>3]&(1<<(p&7)) != 0
			}
			if got := probe(&line, y, k); got != want {
				t.Fatalf("k %d, y %#x: %v, want %v", k, y, got, want)
			}
			if want {
				yes++
			}
		}
		if yes == 0 || yes == n {
			t.Errorf("k %d: %d of %d yes", k, yes, n)
		}
		// And what is set is what is read.
		var got, want [blockBytes]byte
		y := rng.Uint64()
		trailer{k: k, units: 1}.fill(got[:], []uint64{y})
		_, w := locate(y, 0, 1)
		for i := range int(k) {
			p := position(w, i)
			want[p>>3] |= 1 << (p & 7)
		}
		if got != want {
			t.Errorf("k %d: set %x, want %x", k, got, want)
		}
	}
}

func FuzzOpen(f *testing.F) {
	for _, n := range []int{0, 1, 100} {
		payload, _ := goldenFilter(f, n, SeedFor(1))
		f.Add(payload)
		f.Add(payload[1:])
		standard, _ := mustFinish(f, builderOf(KindStandard, 10_000, 1, goldenHashes(n)), nil)
		f.Add(standard)
		if n > 0 {
			f.Add(rawFuse(f, goldenHashes(n), 1))
		}
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, payload []byte) {
		r, err := Open(payload)
		no := false
		for h := range uint64(32) {
			r.Prefetch(SeedFor(h))
			no = no || !r.MayContain(SeedFor(h))
		}
		if err != nil {
			var e *corrupt.Error
			if !errors.As(err, &e) || e.Offset < 0 || e.Offset > int64(len(payload)) {
				t.Fatalf("not a located corruption: %v", err)
			}
			if no || !r.IsMatchAll() {
				t.Fatal("a bad payload answers no")
			}
			return
		}
		if r.IsMatchAll() || r.Bytes() != len(payload) || r.units<<r.log2+trailerBytes != uint64(len(payload)) {
			t.Fatalf("%+v of %d bytes", r, len(payload))
		}
		if (r.Keys() == 0) != (r.units == 0) || (r.Keys() == 0) != (int(r.k) == 0) {
			t.Fatalf("%d keys, %d blocks, %d probes", r.Keys(), r.units, int(r.k))
		}
		again := trailer{kind: r.kind, k: r.k, log2: r.log2, units: uint32(r.units), nkeys: r.nkeys, seed: r.seed}.append(bytes.Clone(r.field))
		if !bytes.Equal(again, payload) {
			t.Fatal("what was decoded encodes differently")
		}
	})
}
