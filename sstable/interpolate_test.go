package sstable

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"sievedb/filter"
	"sievedb/internal/keys"
	"sievedb/sstable/internal/block"
)

// keyShapes are keys as stores have them: the i-th of each, in no order. even says
// whether they are spread evenly, as far as an interpolation can tell.
var keyShapes = []struct {
	name string
	even bool
	key  func(i int, rng *rand.Rand) []byte
}{
	{"decimal", true, func(i int, _ *rand.Rand) []byte { return fmt.Appendf(nil, "user%012d", 7*i) }},
	{"hexadecimal", true, func(_ int, rng *rand.Rand) []byte { return fmt.Appendf(nil, "%016x", rng.Uint64()) }},
	{"binary", true, func(i int, _ *rand.Rand) []byte { return binary.BigEndian.AppendUint64(nil, uint64(3*i)) }},
	{"hashes", true, func(_ int, rng *rand.Rand) []byte {
		return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, rng.Uint64()), rng.Uint64())
	}},
	{"long prefixes", false, func(i int, rng *rand.Rand) []byte {
		return fmt.Appendf(nil, "https://example.org/%c/%c/item?id=%d", 'a'+rng.IntN(5)*rng.IntN(5), 'a'+rng.IntN(9), i)
	}},
	{"two places", false, func(i int, _ *rand.Rand) []byte { return fmt.Appendf(nil, "%c%09d", "az"[i%2], i) }},
	{"any length", true, func(_ int, rng *rand.Rand) []byte {
		k := make([]byte, rng.IntN(14))
		for i := range k {
			k[i] = "\x00\x01am\xfe\xff"[rng.IntN(6)]
		}
		return k
	}},
}

// shaped returns n different keys in order.
func shaped(n int, rng *rand.Rand, key func(int, *rand.Rand) []byte) (ks [][]byte) {
	for i := range n {
		ks = append(ks, key(i, rng))
	}
	slices.SortFunc(ks, bytes.Compare)
	return slices.CompactFunc(ks, bytes.Equal)
}

// indexOf returns the index with these separators.
func indexOf(t testing.TB, separators [][]byte) *index {
	var b indexBuilder
	for _, s := range separators {
		if err := b.add(s, frameTailLen+1, 0); err != nil {
			t.Fatal(err)
		}
	}
	x, err := readIndex(b.finish(nil), uint64(len(separators)*(frameTailLen+1)))
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// strange returns a key near k, in which most of the bytes that occur nowhere else are.
func strange(k []byte, rng *rand.Rand) []byte {
	k = append(bytes.Clone(k), "\x00\x00/:@"[rng.IntN(5)])
	k[rng.IntN(len(k))] += byte(rng.IntN(3)) - 1
	return k[:rng.IntN(len(k)+1)]
}

// A search finds what a linear one would, whatever the keys are like, and uses the
// interpolation where it should.
func TestInterpolation(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 7))
	for _, shape := range keyShapes {
		for _, n := range []int{1, 2, 3, 20, 3000} {
			ks := shaped(n, rng, shape.key)
			separators := slices.Clone(ks)
			if n == 20 { // versions that go on from block to block
				separators = slices.Insert(separators, 7, separators[7], separators[7])
			}
			x := indexOf(t, separators)
			if n == 3000 && x.spread.even != shape.even {
				t.Errorf("%s: even %v, with a slack of %d", shape.name, x.spread.even, x.spread.slack)
			}
			for i := range 3 * len(ks) {
				k := ks[i%len(ks)]
				if i >= len(ks) {
					k = strange(k, rng)
				}
				want := sort.Search(len(separators), func(i int) bool { return bytes.Compare(separators[i], k) >= 0 })
				got, at := x.find(k)
				if got != want {
					t.Fatalf("%s: %q is in block %d of %d, want %d", shape.name, k, got, len(separators), want)
				}
				if at > 1 || at >= 0 && (want == 0 || want == len(separators) || !x.spread.even) {
					t.Fatalf("%s: %q is at %v of block %d", shape.name, k, at, got)
				}
				if want < len(separators) && x.compare(want, k) < 0 || want > 0 && x.compare(want-1, k) >= 0 {
					t.Fatalf("%s: %q does not compare with separators as it should", shape.name, k)
				}
			}
		}
	}
}

// Numbers are in the order of the keys, if those of one of them all occur.
func TestAlphabet(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 7))
	for range 200 {
		bytesOf := rng.Perm(256)[:1+rng.IntN(1<<rng.IntN(9))]
		random := func(any bool) []byte {
			k := make([]byte, rng.IntN(11))
			for i := range k {
				k[i] = byte(bytesOf[rng.IntN(len(bytesOf))])
				if any && rng.IntN(4) == 0 {
					k[i] = byte(rng.IntN(256))
				}
			}
			return k
		}
		var pure [][]byte
		for range 20 {
			pure = append(pure, random(false))
		}
		a := newAlphabet(len(pure), func(i int) []byte { return pure[i] })
		for range 2000 {
			p, k := pure[rng.IntN(len(pure))], random(true)
			if c, n, m := bytes.Compare(p, k), a.number(p), a.number(k); c < 0 && n > m || c > 0 && n < m {
				t.Fatalf("%q is %d and %q is %d, among %d bytes", p, n, k, m, a.radix)
			}
		}
	}
}

// The guess is right for most keys that are spread evenly, and not made for others.
func TestGuess(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 7))
	for i, want := range []float64{0.99, 0.58, 0.99, 0.64} {
		shape := keyShapes[i]
		var es []entry
		for _, k := range shaped(30_000, rng, shape.key) {
			es = append(es, entry{string(k), keys.MakeTrailer(1, keys.KindPut), make([]byte, 100+rng.IntN(29))})
		}
		f, m := build(t, WriterOptions{FileNum: 7}, es)
		r := open(t, f, m, nil)
		hits := 0
		for _, e := range es {
			n, at, bodyBytes := r.guess([]byte(e.key))
			h, err := r.readBlock(n)
			if err != nil {
				t.Fatal(err)
			}
			data := h.Bytes()
			b := block.Of(data)
			value, _, ok := b.Get([]byte(e.key), byte(filter.Hash([]byte(e.key))), keys.MaxSeqNum)
			if !ok {
				t.Fatalf("%q is not in block %d", e.key, n)
			}
			from := int(at * float64(len(data)-bodyBytes))
			if to := cap(data) - cap(value); to >= from && to <= from+bodyBytes {
				hits++
			}
			h.Release()
		}
		share := float64(hits) / float64(len(es))
		if share < want {
			t.Errorf("%s: the guess is right for %.3f of the keys, want %.2f", shape.name, share, want)
		}
	}

	// In the first block, and among long entries, there is none.
	long := numbered(100)
	for i := range long {
		long[i].value = make([]byte, 2500)
	}
	for i, es := range [][]entry{numbered(1), numbered(1000), long} {
		f, m := build(t, WriterOptions{FileNum: 7}, es)
		r := open(t, f, m, nil)
		if n, at, bodyBytes := r.guess([]byte(es[i/2*50].key)); (n > 0) != (i == 2) || at != 0 || bodyBytes != mappedBytes {
			t.Errorf("%d: in block %d a guess of %d bytes at %v", i, n, bodyBytes, at)
		}
	}
}
