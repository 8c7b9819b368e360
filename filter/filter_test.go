package filter

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// Invariants 22 and 23: a hash that was added never answers "no", whatever the
// keys, their number, the size and the seed, after encoding and decoding.
func TestInvariant22NoFalseNegatives(t *testing.T) {
	rng := newRand(t)
	var key []byte
	for _, n := range []uint64{0, 1, 2, 3, 51, 52, 63, 64, 65, 1_000, 20_000} {
		for _, f := range keyFamilies {
			key := func(i uint64) uint64 {
				key = f.key(key[:0], i)
				return Hash(key)
			}
			checkNoFalseNegatives(t, fmt.Sprintf("%s/%d", f.name, n), rng, n, key)
		}
		for _, f := range hashFamilies {
			checkNoFalseNegatives(t, fmt.Sprintf("%s/%d", f.name, n), rng, n, f.hash)
		}
	}
	checkNoFalseNegatives(t, "random/1000000", rng, 1_000_000, SeedFor)
}

func checkNoFalseNegatives(t *testing.T, name string, rng *rand.Rand, n uint64, hash func(uint64) uint64) {
	t.Helper()
	millibits := MinMillibits + rng.Uint32N(30_000)
	seed := SeedFor(rng.Uint64())
	start := rng.Uint64N(1 << 20)
	b := NewBuilder(millibits, seed)
	for i := range n {
		b.Add(hash(start + i))
	}
	payload, info := mustFinish(t, b, nil)
	if err := b.Verify(payload); err != nil {
		t.Errorf("%s, %d millibits: %v", name, millibits, err)
	}
	r := mustOpen(t, payload)
	for i := range n {
		if h := hash(start + i); !r.MayContain(h) {
			t.Fatalf("%s, %d millibits, seed %#x, start %d: hash %#x of key %d was added and answers no",
				name, millibits, seed, start, h, i)
		}
	}
	if r.Keys() != info.Keys || int(r.k) != info.K || r.Kind() != info.Kind || r.Bytes() != len(payload) {
		t.Errorf("%s: reader says %d keys, %d blocks, k %d, %d bytes; builder %+v, %d bytes",
			name, r.Keys(), r.units, int(r.k), r.Bytes(), info, len(payload))
	}
}

// Tables hold the same hash in runs of neighbours only, but a filter must cope
// with anything, in any order.
func FuzzBuild(f *testing.F) {
	f.Add([]byte("aab"), uint32(10_000), uint64(0))
	f.Add([]byte{}, uint32(MinMillibits), uint64(1))
	f.Add([]byte{0, 0, 1, 0}, uint32(MaxMillibits), SeedFor(1))
	f.Fuzz(func(t *testing.T, keys []byte, millibits uint32, seed uint64) {
		millibits = MinMillibits + millibits%(MaxMillibits-MinMillibits+1)
		b := NewBuilder(millibits, seed)
		counted := uint64(0)
		for i := range keys {
			b.Add(Hash(keys[i : i+1]))
			if i == 0 || keys[i] != keys[i-1] {
				counted++
			}
		}
		payload, info := mustFinish(t, b, nil)
		if info.Keys != counted {
			t.Fatalf("%d keys, want %d", info.Keys, counted)
		}
		if counted > 0 && info.Millibits < min(millibits, 1<<31) {
			t.Fatalf("%d millibits, want at least %d", info.Millibits, millibits)
		}
		if err := b.Verify(payload); err != nil {
			t.Fatal(err)
		}
		r := mustOpen(t, payload)
		for i := range keys {
			if !r.MayContain(Hash(keys[i : i+1])) {
				t.Fatalf("key %d answers no", i)
			}
		}
	})
}

func TestValidateMillibits(t *testing.T) {
	for m, ok := range map[uint32]bool{
		0: false, 1: false, 999: false, 1_000: true, 1_001: true, 10_000: true,
		100_000: true, 100_001: false, 1_000_000_000: false, 1<<32 - 1: false,
	} {
		if err := ValidateMillibits(m); (err == nil) != ok {
			t.Errorf("ValidateMillibits(%d) = %v, want ok=%v", m, err, ok)
		}
	}
}

func Example() {
	b := NewBuilder(10_000, SeedFor(17)) // 10 bits per key, for table 17
	for i := range 1_000 {
		b.Add(Hash(fmt.Appendf(nil, "user:%d", i)))
	}
	payload, info, err := b.Finish(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	b.Release()
	fmt.Println(info.Keys, "keys", info.K, "probes", len(payload), "bytes")

	r, err := Open(payload)
	fmt.Println(r.MayContain(Hash([]byte("user:7"))), r.MayContain(Hash([]byte("user:x"))), err)
	// Output:
	// 1000 keys 7 probes 1304 bytes
	// true false <nil>
}
