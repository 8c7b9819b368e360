package keys

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
)

// On disk: these numbers never change.
func TestKindsAreFrozen(t *testing.T) {
	for k, want := range map[Kind]uint8{KindPut: 1, KindDelete: 2, KindRangeDelete: 3, KindMerge: 4, KindPutExpiry: 5, KindSeek: 255} {
		if uint8(k) != want {
			t.Errorf("%v = %d, want %d", k, uint8(k), want)
		}
	}
}

func TestTrailer(t *testing.T) {
	for _, seq := range []SeqNum{0, 1, 255, 256, MaxSeqNum} {
		tr := MakeTrailer(seq, KindDelete)
		if tr.SeqNum() != seq || tr.Kind() != KindDelete || uint64(tr) != uint64(seq)<<8|2 {
			t.Errorf("trailer of %d: %#x", seq, uint64(tr))
		}
		if !tr.Visible(seq) || seq > 0 && tr.Visible(seq-1) {
			t.Errorf("visibility of %d", seq)
		}
	}
}

// User key ascending, then newest first; a seek trailer sorts before every
// entry that its snapshot can see and after every one that it cannot.
func TestOrder(t *testing.T) {
	sorted := []InternalKey{
		Make(nil, 3, KindPut), Make([]byte{}, 2, KindPut),
		Make([]byte("\x00"), 9, KindDelete), Make([]byte("a"), MaxSeqNum, KindPut),
		Make([]byte("a"), 5, KindSeek), Make([]byte("a"), 5, KindDelete), Make([]byte("a"), 5, KindPut),
		Make([]byte("a"), 4, KindPut), Make([]byte("a\x00"), 7, KindPut), Make([]byte("b"), 0, KindPut),
	}
	for i, a := range sorted {
		for j, b := range sorted {
			if got, want := sign(Compare(a, b)), sign(i-j); got != want {
				t.Errorf("Compare(%v, %v) = %d, want %d", a, b, got, want)
			}
		}
	}
}

func sign(v int) int { return max(-1, min(1, v)) }

func randomKey(rng *rand.Rand) []byte {
	k := make([]byte, rng.IntN(12))
	for i := range k {
		k[i] = "\x00ab\xfe\xff"[rng.IntN(5)]
	}
	return k
}

func TestPrefixAndSeparator(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	ks := make([][]byte, 2000)
	for i := range ks {
		ks[i] = randomKey(rng)
	}
	slices.SortFunc(ks, bytes.Compare)
	for i := 1; i < len(ks); i++ {
		a, b := ks[i-1], ks[i]
		if Prefix8(a) > Prefix8(b) {
			t.Fatalf("Prefix8(%q) > Prefix8(%q)", a, b)
		}
		n := CommonPrefixLen(a, b)
		if !bytes.Equal(a[:n], b[:n]) || n < len(a) && n < len(b) && a[n] == b[n] {
			t.Fatalf("CommonPrefixLen(%q, %q) = %d", a, b, n)
		}
		if bytes.Equal(a, b) {
			continue
		}
		s := Separator([]byte("x"), a, b)[1:]
		if bytes.Compare(s, a) < 0 || bytes.Compare(s, b) >= 0 || len(s) > len(a) {
			t.Fatalf("Separator(%q, %q) = %q", a, b, s)
		}
	}
}

func TestPrefix8(t *testing.T) {
	for n := range 20 {
		key := []byte("\xff\x00abcdefghijklmnopqr")[:n:n]
		var padded [20]byte
		copy(padded[:], key)
		if got, want := Prefix8(key), binary.BigEndian.Uint64(padded[:]); got != want {
			t.Errorf("Prefix8(%q) = %#x, want %#x", key, got, want)
		}
	}
}

func TestLowerBound(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	extremes := []uint64{0, 1, 1<<63 - 1, 1 << 63, 1<<64 - 2, 1<<64 - 1}
	for n := range 70 {
		a := make([]uint64, n)
		for i := range a {
			a[i] = uint64(rng.IntN(40))
			if rng.IntN(3) == 0 {
				a[i] = extremes[rng.IntN(len(extremes))]
			}
		}
		slices.Sort(a)
		for _, v := range append(slices.Concat(a, extremes), 17, 39, 40) {
			want, _ := slices.BinarySearch(a, v)
			if got := LowerBound(a, v); got != want {
				t.Fatalf("LowerBound(%d, %d) = %d, want %d", a, v, got, want)
			}
		}
	}
}

func BenchmarkCompare(b *testing.B) {
	x, y := Make([]byte("key-0000000000000001"), 1, KindPut), Make([]byte("key-0000000000000002"), 1, KindPut)
	for b.Loop() {
		Compare(x, y)
	}
}
