package filter

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cespare/xxhash/v2"

	"sievedb/internal/codec"
	"sievedb/internal/corrupt"
)

// kinds are those that are built.
var kinds = []Kind{KindBlocked, KindStandard, KindFuse}

// builderOf returns a builder of a kind that has the hashes.
func builderOf(kind Kind, millibits uint32, seed uint64, hashes []uint64) *Builder {
	b := NewBuilder(millibits, seed)
	b.Choose(kind, millibits)
	for _, h := range hashes {
		b.Add(h)
	}
	return b
}

// rawFuse returns the payload of a fuse filter, even of too few keys for one
// in a table.
func rawFuse(t testing.TB, hashes []uint64, seed uint64) []byte {
	t.Helper()
	b := builderOf(KindFuse, 10_000, seed, hashes)
	tr := trailer{kind: KindFuse, k: fuseProbes, nkeys: b.keys, seed: seed}
	tr.units, tr.log2 = fuseSize(b.keys)
	field := make([]byte, tr.fieldBytes())
	var ok bool
	if tr.seed, _, ok = buildFuse(field, b.hashes, tr); !ok {
		t.Fatalf("no fuse filter of %d keys, seed %#x", len(hashes), seed)
	}
	return tr.append(field)
}

func goldenHashes(n int) []uint64 {
	hashes := make([]uint64, n)
	for i := range hashes {
		hashes[i] = Hash(fmt.Appendf(nil, "key-%04d", i))
	}
	return hashes
}

// Every byte of small payloads of kinds 2 and 3: part of the format.
func TestGoldenPayloadsOfKinds(t *testing.T) {
	standard := func(n int, seed uint64) []byte {
		payload, _ := mustFinish(t, builderOf(KindStandard, 10_000, seed, goldenHashes(n)), nil)
		return payload
	}
	for _, c := range []struct {
		name      string
		got       []byte
		field     string
		trailer   string
		keysUnits string
		seed      string
	}{
		{"standard, 3 keys", standard(3, 0), "53488e156ce78b7e", "020f0301", "01000000" + "0300000000000000", "0000000000000000"},
		{"standard, no keys", standard(0, SeedFor(1)), "", "02000301", "00000000" + "0000000000000000", "c15c0289ec2d0a91"},
		{"fuse, 3 keys", rawFuse(t, goldenHashes(3), SeedFor(7)), "000000000000ca00a43e0000", "03030201", "03000000" + "0300000000000000", "d70d3259e4e1cb63"},
	} {
		if got := hex.EncodeToString(c.got); got != c.field+c.trailer+c.keysUnits+c.seed {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.field+c.trailer+c.keysUnits+c.seed)
		}
	}
}

// Whole filters, the same on every architecture.
func TestGoldenFiltersOfKinds(t *testing.T) {
	for _, c := range []struct {
		kind           Kind
		n              int
		seed           uint64
		k              int
		bytes          uint64
		field          uint64 // xxhash64
		falsePositives int    // of 100,000 absent keys
	}{
		{KindStandard, 3, 0, 15, 8 + 24, 0x034cc50dfd1c9a05, 4},
		{KindStandard, 100, SeedFor(42), 7, 128 + 24, 0xf7c48619ca38f42a, 757},
		{KindStandard, 1000, SeedFor(7), 7, 1256 + 24, 0x53c5d67874190360, 845},
		{KindFuse, 10_000, SeedFor(7), 3, 49<<8 + 24, 0x8aa887cba7c43bd8, 385},
		{KindFuse, 11_500, SeedFor(7), 3, 28<<9 + 24, 0xfefcf8881fffe06c, 372},
		{KindFuse, 100_000, SeedFor(7), 3, 58<<11 + 24, 0x050113af5c2ef854, 420},
	} {
		payload, info := mustFinish(t, builderOf(c.kind, 10_000, c.seed, goldenHashes(c.n)), nil)
		if info.Kind != c.kind || info.K != c.k || info.Bytes != c.bytes || int(info.Keys) != c.n || len(payload) != int(c.bytes) {
			t.Errorf("%v, %d keys: %+v and %d bytes, want k %d and %d bytes", c.kind, c.n, info, len(payload), c.k, c.bytes)
		}
		if got := xxhash.Sum64(payload[:len(payload)-trailerBytes]); got != c.field {
			t.Errorf("%v, %d keys: hash of the field %#x, want %#x", c.kind, c.n, got, c.field)
		}
		r := mustOpen(t, payload)
		got := 0
		for i := range 100_000 {
			if r.MayContain(Hash(fmt.Appendf(nil, "miss-%06d", i))) {
				got++
			}
		}
		if got != c.falsePositives {
			t.Errorf("%v, %d keys: %d false positives, want %d", c.kind, c.n, got, c.falsePositives)
		}
	}
}

// TestProbesOfKindsAgainstFormulas compares with the rulers, taken literally.
func TestProbesOfKindsAgainstFormulas(t *testing.T) {
	rng := newRand(t)
	const a, b = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93
	high := func(x, y uint64) uint64 { // by halves of 32 bits
		mid := x>>32*(y&0xffffffff) + x&0xffffffff*(y&0xffffffff)>>32
		low := x&0xffffffff*(y>>32) + mid&0xffffffff
		return x>>32*(y>>32) + mid>>32 + low>>32
	}
	for range 2000 {
		h, seed := rng.Uint64(), rng.Uint64()
		x := (h ^ seed) * a
		y := (x ^ x>>32) * b

		words, k := 1+rng.IntN(50), uint8(1+rng.IntN(maxStandardProbes))
		got, want := make([]byte, 8*words), make([]byte, 8*words)
		fillStandard(got, []uint64{h}, trailer{k: k, seed: seed})
		z := (y ^ y>>32) * a
		p, step := y, z
		for i := range uint64(k) {
			bit := high(p, uint64(64*words))
			want[bit>>3] |= 1 << (bit & 7)
			p += step
			step += b * (i + 1)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("standard, %#x with seed %#x, k %d: set %x, want %x", h, seed, k, got, want)
		}

		log2, units := uint8(minSegmentShift+rng.IntN(10)), uint64(3+rng.IntN(40))
		size, f := uint64(1)<<log2, y^y>>32
		s := high(f, (units-2)*size)
		slots := [3]uint64{s, (s + size) ^ f>>18&(size-1), (s + 2*size) ^ f&(size-1)}
		var found [3]uint64
		found[0], found[1], found[2] = fuseSlots(fuseHash(h, seed), (units-2)*size, log2)
		if found != slots || slots[2] >= units*size || fingerprint(f) != byte((f^f>>32)&255) {
			t.Fatalf("fuse, %#x with seed %#x, %d segments of %d: slots %v, want %v", h, seed, units, size, found, slots)
		}
	}
}

// Invariant 22 for every kind, after encoding and decoding.
func TestInvariant22NoFalseNegativesOfKinds(t *testing.T) {
	rng := newRand(t)
	var key []byte
	for _, n := range []int{0, 1, 2, 63, 64, 65, 1000, MinFuseKeys, 100_000} {
		families := len(keyFamilies) + len(hashFamilies)
		for family := range families {
			if n > 1000 && family != n/1000%families && family != rng.IntN(families) {
				continue // one or two of them
			}
			hashes := make([]uint64, n)
			for i := range hashes {
				if family < len(keyFamilies) {
					key = keyFamilies[family].key(key[:0], uint64(i))
					hashes[i] = Hash(key)
				} else {
					hashes[i] = hashFamilies[family-len(keyFamilies)].hash(uint64(i))
				}
			}
			for _, kind := range kinds {
				b := builderOf(kind, MinMillibits+rng.Uint32N(30_000), rng.Uint64(), hashes)
				payload, info := mustFinish(t, b, nil)
				b.Release()
				checkHolds(t, fmt.Sprintf("%v, %d keys of family %d", kind, n, family), payload, hashes)
				want := kind
				if kind == KindFuse && n < MinFuseKeys {
					want = KindBlocked
				}
				if info.Kind != want || info.Keys != uint64(n) || info.Bytes != uint64(len(payload)) {
					t.Errorf("%v: %d keys of family %d, %d bytes: %+v", kind, n, family, len(payload), info)
				}
			}
			if n > 0 {
				checkHolds(t, fmt.Sprintf("raw fuse, %d keys of family %d", n, family), rawFuse(t, hashes, rng.Uint64()), hashes)
			}
		}
	}
}

func checkHolds(t *testing.T, name string, payload []byte, hashes []uint64) {
	t.Helper()
	r := mustOpen(t, payload)
	for i, h := range hashes {
		r.Prefetch(h)
		if !r.MayContain(h) {
			t.Fatalf("%s: hash %#x of key %d was added and answers no", name, h, i)
		}
	}
	if r.Bytes() != len(payload) || int(PayloadBytes(payload)) != len(payload) {
		t.Errorf("%s: %d bytes are taken for %d and %d", name, len(payload), r.Bytes(), PayloadBytes(payload))
	}
}

// Equal hashes that are no neighbours, which a table does not have unless
// xxhash collides: nothing loops, nothing is lost.
func TestRepeatedHashes(t *testing.T) {
	rng := newRand(t)
	for _, distinct := range []int{1, 2, 3, 100, 9_000, 19_999} {
		hashes := make([]uint64, 20_000)
		for i := range hashes {
			hashes[i] = SeedFor(uint64(i % distinct))
		}
		if distinct > 100 {
			rng.Shuffle(len(hashes), func(i, j int) { hashes[i], hashes[j] = hashes[j], hashes[i] })
		}
		for _, kind := range kinds {
			b := builderOf(kind, 10_000, rng.Uint64(), hashes)
			payload, info := mustFinish(t, b, nil)
			checkHolds(t, fmt.Sprintf("%v, %d hashes", kind, distinct), payload, hashes)
			if err := b.Verify(payload); err != nil {
				t.Errorf("%v, %d hashes: %v", kind, distinct, err)
			}
			if kind == KindFuse && distinct > 1 && info.Kind != KindFuse {
				t.Errorf("%d hashes: a %v filter", distinct, info.Kind)
			}
		}
	}
}

// TestFuseFails has every attempt fail: a blocked filter of the size that was
// asked for comes out.
func TestFuseFails(t *testing.T) {
	defer func(n int) { fuseAttempts = n }(fuseAttempts)
	fuseAttempts = 0
	hashes := randomHashes(rand.New(rand.NewPCG(1, 2)), 20_000)
	got, info := mustFinish(t, builderOf(KindFuse, 12_000, 5, hashes), []byte("head"))
	want, _ := filterOf(t, hashes, 12_000, 5)
	if info.Kind != KindBlocked || string(got[:4]) != "head" || !bytes.Equal(got[4:], want) {
		t.Errorf("%+v", info)
	}

	// Fewer slots than keys fail by themselves, at every attempt, and leave the
	// field as it was.
	fuseAttempts = 3
	b := builderOf(KindFuse, 12_000, 5, hashes)
	field := make([]byte, 3<<10)
	if _, _, ok := buildFuse(field, b.hashes, trailer{kind: KindFuse, log2: 10, units: 3, nkeys: b.keys}); ok || !bytes.Equal(field, make([]byte, len(field))) {
		t.Error("20,000 keys found place in 3,072 slots, or left something there")
	}
}

// TestFuseSucceeds wants the first attempt to do nearly always, at the numbers
// of keys, too, at which the segments of other implementations are too long.
func TestFuseSucceeds(t *testing.T) {
	rng := newRand(t)
	again, built := 0, 0
	for n := MinFuseKeys; n < 45_000; n += 1500 {
		sizes := []int{n, 11_480 + built%80, 37_200 + built%80}
		for _, n := range sizes {
			seed := rng.Uint64()
			payload := rawFuse(t, randomHashes(rng, n), seed)
			built++
			if r := mustOpen(t, payload); r.seed != seed {
				again++
			}
		}
	}
	if again > built/6 { // 3 in 100 on average
		t.Errorf("%d of %d constructions needed another attempt", again, built)
	}
	for n := uint64(MinFuseKeys); n <= maxFuseKeys; n += n/50 + 1 {
		perKey := 8 * float64(FuseBytes(n)) / float64(n)
		if units, log2 := fuseSize(n); perKey < 8.9 || perKey > 10.5 || uint64(units)<<log2 < n || units > 1024 {
			t.Errorf("%d keys: %.2f bits for each, %d segments of 2^%d", n, perKey, units, log2)
		}
	}
	if FuseBytes(MinFuseKeys-1) != 0 || FuseBytes(maxFuseKeys+1) != 0 {
		t.Error("a size for a number of keys that gets no fuse filter")
	}
}

// Invariant 22: what is no payload of kind 2 or 3 is match-all.
func TestInvariant22BadPayloadsOfKinds(t *testing.T) {
	standard, _ := mustFinish(t, builderOf(KindStandard, 10_000, 1, goldenHashes(100)), nil) // 16 words
	none, _ := mustFinish(t, builderOf(KindStandard, 10_000, 1, nil), nil)
	fuse := rawFuse(t, goldenHashes(100), 1)
	at := int64(len(fuse) - trailerBytes)
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
		{"standard, no probes", edit(standard, 1, 0), 128 + 8},
		{"standard, 31 probes", edit(standard, 1, 31), 128 + 1},
		{"standard, another unit", edit(standard, 2, 6), 128 + 2},
		{"standard, unknown flag", edit(standard, 3, 3), 128 + 3},
		{"standard, a word less", edit(standard, 4, 15), 128 + 4},
		{"standard, no keys", edit(standard, 8, 0), 128 + 8},
		{"standard of none, with a key", edit(none, 8, 1), 8},
		{"standard, a byte lost", standard[1:], 127 + 4},
		{"fuse, 2 probes", edit(fuse, 1, 2), at + 1},
		{"fuse, segments of 2", edit(fuse, 2, 1), at + 2},
		{"fuse, segments of 2^19", edit(fuse, 2, 19), at + 2},
		{"fuse, a segment more", edit(fuse, 4, fuse[at+4]+1), at + 4},
		{"fuse, no keys", edit(fuse, 8, 0), at + 8},
		{"fuse, more keys than slots", edit(fuse, 9, 255), at + 4},
		{"fuse, two segments", trailer{kind: KindFuse, k: 3, log2: 2, units: 2, nkeys: 1}.append(make([]byte, 8)), 8 + 4},
		{"fuse of none", trailer{kind: KindFuse, k: 3, log2: 2}.append(nil), 8},
		{"kind 4", edit(fuse, 0, 4), at},
		{"kind 255", edit(fuse, 0, 255), at},
	} {
		r, err := Open(c.payload)
		var e *corrupt.Error
		if !errors.As(err, &e) || e.Offset != c.offset || e.What == "" {
			t.Errorf("%s: %v, want a corruption at %d", c.name, err, c.offset)
		}
		checkMatchAll(t, c.name, r)
	}
}

// Every bit flipped, every length cut, for kinds 2 and 3: Open refuses it, or
// the checksum of the table around it does, and nothing breaks.
func TestDamageOfKinds(t *testing.T) {
	hashes := goldenHashes(200)
	standard, _ := mustFinish(t, builderOf(KindStandard, 10_000, 1, hashes), nil)
	for _, payload := range [][]byte{standard, rawFuse(t, hashes, 3)} {
		kind := mustOpen(t, payload).kind
		sum := codec.ChecksumOf(0, payload)
		for bit := range len(payload) * 8 {
			p := bytes.Clone(payload)
			p[bit/8] ^= 1 << (bit % 8)
			r, err := Open(p)
			holds := true
			for _, h := range hashes {
				r.Prefetch(h)
				holds = r.MayContain(h) && holds
			}
			if err != nil && !holds || !holds && codec.ChecksumOf(0, p) == sum {
				t.Errorf("%v, bit %d: a key is lost and nothing tells; %v", kind, bit, err)
			}
			if field := bit/8 - len(payload) + trailerBytes; (field == 0 || field >= 2 && field < 8) && err == nil {
				t.Errorf("%v, bit %d, trailer byte %d: accepted", kind, bit, field)
			}
		}
		for n := range len(payload) {
			for _, p := range [][]byte{payload[:n], payload[len(payload)-n:]} {
				if r, err := Open(p); !errors.Is(err, corrupt.ErrCorrupt) || !r.IsMatchAll() {
					t.Fatalf("%v, %d of %d bytes: %v", kind, n, len(payload), err)
				}
			}
		}
	}
}

func TestKindString(t *testing.T) {
	for kind, want := range map[Kind]string{KindNone: "none", KindBlocked: "blocked", KindStandard: "standard", KindFuse: "fuse", 9: "filter kind(9)"} {
		if got := kind.String(); got != want {
			t.Errorf("%d: %s, want %s", uint8(kind), got, want)
		}
	}
}

// A kind that no filter has is not built as another one.
func TestChooseUnknownKind(t *testing.T) {
	for _, kind := range []Kind{KindNone, KindFuse + 1} {
		if out, info, err := builderOf(kind, 10_000, 1, []uint64{1}).Finish(nil); err == nil || out != nil || info != (Info{}) {
			t.Errorf("%v: %+v, %v", kind, info, err)
		}
	}
}

func ExampleFuseBytes() {
	for _, keys := range []uint64{1000, 10_000, 100_000, 1_000_000, 10_000_000} {
		fmt.Printf("%8d keys: %.2f bits for each\n", keys, 8*float64(FuseBytes(keys))/float64(keys))
	}
	// Output:
	//     1000 keys: 0.00 bits for each
	//    10000 keys: 10.05 bits for each
	//   100000 keys: 9.50 bits for each
	//  1000000 keys: 9.04 bits for each
	// 10000000 keys: 9.02 bits for each
}

func ExampleSpreadAbove() {
	keys := []float64{1_000_000, 100_000, 10_000, 1000}
	bottom := 8 * float64(FuseBytes(1_000_000)) / 1_000_000
	fmt.Printf("%.1f\n", SpreadAbove(bottom, 10, keys))
	// Output: [9.0 18.5 20.0 20.0]
}
