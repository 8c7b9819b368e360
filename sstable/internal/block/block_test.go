package block

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"sievedb/filter"
	"sievedb/internal/corrupt"
	"sievedb/internal/keys"
)

func newBuilder() *Builder {
	b := &Builder{}
	b.Reset(4096)
	return b
}

func goldenBlock(t testing.TB) []byte {
	b := newBuilder()
	for _, e := range []struct {
		key   string
		trl   keys.Trailer
		value []byte
	}{
		{"apple", keys.MakeTrailer(2, keys.KindPut), []byte("red")},
		{"apple", keys.MakeTrailer(1, keys.KindDelete), nil},
		{"apricot", keys.MakeTrailer(300, keys.KindPut), []byte("orange")},
	} {
		b.Add([]byte(e.key), e.trl, e.value, byte(filter.Hash([]byte(e.key))))
	}
	data := b.Finish(nil)
	if err := Validate(data); err != nil {
		t.Fatal(err)
	}
	return data
}

func TestGoldenBlock(t *testing.T) {
	// Hashes: xxhash64 of "apple" and "apricot"; the tag is the low byte.
	apple, apricot := byte(filter.Hash([]byte("apple"))), byte(filter.Hash([]byte("apricot")))
	tags := hex.EncodeToString([]byte{apple, apple, apricot})
	want, err := hex.DecodeString(strings.ReplaceAll(strings.Join([]string{
		"03 8104 706c65 726564", // 0: suffix "ple", 2<<8|put, "red"
		"03 8202 706c65",        // 9: suffix "ple", 1<<8|delete
		"05 81d804 7269636f74",  // 15: suffix "ricot", 300<<8|put
		"6f72616e6765",          //     "orange"
		"6170",                  // 30: prefix "ap"
		tags,                    // 32
		"0000 0900 0f00",        // 35: offsets
		"1e000000 0200 0300",    // entries, prefix, n
	}, ""), " ", ""))
	if got := goldenBlock(t); err != nil || !bytes.Equal(got, want) {
		t.Errorf("data block is\n%swant\n%s%v", hex.Dump(got), hex.Dump(want), err)
	}
}

// Whatever Validate lets through, no method reads out of bounds.
func useBlock(data []byte) {
	if Validate(data) != nil {
		return
	}
	b := Of(data)
	for i := range b.Len() {
		suffix, trailer, valueOff := b.Entry(i)
		key := append(bytes.Clone(b.Prefix()), suffix...)
		b.Tag(i)
		b.Value(i, valueOff)
		for tag := range 256 {
			b.Get(key, byte(tag), trailer.SeqNum())
		}
		if at := b.SeekGE(key, trailer); at != i {
			panic(fmt.Sprintf("SeekGE of entry %d leads to %d", i, at))
		}
		b.LastIs(key)
	}
	b.Get(nil, 0, 0)
	b.SeekGE([]byte("\xff"), 0)
}

func TestBlockBitFlipsBelowTheChecksum(t *testing.T) {
	data := goldenBlock(t)
	for bit := range 8 * len(data) {
		flipped := bytes.Clone(data)
		flipped[bit/8] ^= 1 << (bit % 8)
		useBlock(flipped)
	}
	for n := range data {
		if Validate(data[:n]) == nil {
			t.Fatalf("%d bytes of %d are a block", n, len(data))
		}
	}
}

func TestKinds(t *testing.T) {
	for kind, want := range map[keys.Kind]error{
		keys.KindMerge: ErrUnsupported, keys.KindRangeDelete: ErrUnsupported, keys.KindPutExpiry: ErrUnsupported,
		0: corrupt.ErrCorrupt, 77: corrupt.ErrCorrupt, keys.KindSeek: corrupt.ErrCorrupt,
	} {
		b := newBuilder()
		b.Add([]byte("a"), keys.MakeTrailer(1, kind), nil, 0)
		if err := Validate(b.Finish(nil)); !errors.Is(err, want) {
			t.Errorf("kind %s: %v", kind, err)
		}
	}
}

// TestUvarint holds uvarint to encoding/binary, for every length and both ends
// of it, and for forms longer than need be, which Validate lets through.
func TestUvarint(t *testing.T) {
	check := func(encoded []byte) {
		t.Helper()
		want, n := binary.Uvarint(encoded)
		for _, next := range []byte{0x00, 0x7f, 0x80, 0xff} { // what follows must not matter
			data := append(append([]byte{0xff}, encoded...), bytes.Repeat([]byte{next}, blockTailLen)...)
			if got, end := uvarint(data, 1); got != want || end != 1+n {
				t.Fatalf("%x, followed by %x: %d up to %d, want %d up to %d", encoded, next, got, end, want, 1+n)
			}
		}
	}
	for bits := range 65 {
		for _, v := range []uint64{1<<bits - 1, 1 << (bits & 63), 0x0123456789abcdef & (1<<bits - 1)} {
			encoded := binary.AppendUvarint(nil, v)
			check(encoded)
			for len(encoded) < binary.MaxVarintLen64-1 {
				encoded[len(encoded)-1] |= 0x80
				encoded = append(encoded, 0)
				check(encoded)
			}
		}
	}
}

// sound is Validate without its short cuts, entry by entry as the format has it, of
// a block whose sections add up.
func sound(data []byte) bool {
	b := Of(data)
	var last keys.InternalKey
	for i := range b.n {
		off, end := b.offset(i), b.end(i)
		if off >= end || end > b.entries || i == 0 && off != 0 {
			return false
		}
		suffix, trailer, err := checkEntry(data[off:end], b.prefix)
		if err != nil {
			return false
		}
		k := keys.InternalKey{UserKey: suffix, Trailer: trailer}
		if i > 0 && keys.Compare(last, k) >= 0 {
			return false
		}
		last = k
	}
	return true
}

// TestValidateTakesNoShortCuts damages blocks of all sorts of entries, and holds
// what Validate says of them to what it would say without short cuts.
func TestValidateTakesNoShortCuts(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	rejected, accepted := 0, 0
	check := func(data []byte) {
		t.Helper()
		useBlock(data)
		if got, want := Validate(data) == nil, sound(data); got != want {
			t.Fatalf("sound %v, want %v:\n%s", got, want, hex.Dump(data))
		} else if got {
			accepted++
		} else {
			rejected++
		}
	}
	for range 300 {
		bb := newBuilder()
		prefix := bytes.Repeat([]byte{'p'}, rng.IntN(3)*rng.IntN(40))
		key := []byte{}
		for n := 1 + rng.IntN(6); n > 0; n-- {
			// Suffixes of all lengths about 8 and 127, and trailers of one to ten bytes.
			key = append(key, bytes.Repeat([]byte{byte(rng.IntN(256))}, rng.IntN(10)+rng.IntN(2)*rng.IntN(130))...)
			key = append(key, 0)
			seq := keys.MaxSeqNum >> rng.IntN(57)
			for versions := rng.IntN(3); versions >= 0; versions-- {
				bb.Add(append(bytes.Clone(prefix), key...), keys.MakeTrailer(seq, keys.KindPut+keys.Kind(rng.IntN(2))), []byte("v")[:rng.IntN(2)], 0)
				if seq == 0 {
					break
				}
				seq--
			}
		}
		data := bb.Finish(nil)
		check(data)
		entries := Of(data).entries
		for range 100 { // the sections go on to add up
			damaged := bytes.Clone(data)
			for range 1 + rng.IntN(2) {
				at := rng.IntN(entries)
				if rng.IntN(4) == 0 {
					at = Of(data).tags + Of(data).n + rng.IntN(2*Of(data).n)
				}
				damaged[at] ^= 1 << rng.IntN(8)
			}
			check(damaged)
		}
	}
	if rejected < 1000 || accepted < 1000 {
		t.Errorf("%d blocks were rejected, %d accepted", rejected, accepted)
	}
}

// A prefix nearly as long as a key may be leaves suffixes little room.
func TestValidateBoundsKeys(t *testing.T) {
	for suffixLen, want := range []bool{true, true, false, false} {
		bb := newBuilder()
		bb.Add(bytes.Repeat([]byte{'p'}, maxPrefixLen+suffixLen), keys.MakeTrailer(1, keys.KindPut), nil, 0)
		if err := Validate(bb.Finish(nil)); (err == nil) != want {
			t.Errorf("a key of %d bytes: %v", maxPrefixLen+suffixLen, err)
		}
	}
}

// TestBuilderTellsWhenItIsFull holds Add to Full: a block is full exactly if no key
// may come next, and its last value is not looked at before Finish.
func TestBuilderTellsWhenItIsFull(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for range 200 {
		var bb Builder
		bb.Reset(1 + rng.IntN(2000))
		longest := 1 + 500*rng.IntN(3)
		var want [][]byte
		prefix := bytes.Repeat([]byte{'p'}, rng.IntN(30))
		for i := 0; ; i++ {
			key := append(bytes.Clone(prefix), fmt.Sprintf("%06d", i)...)
			value := bytes.Repeat([]byte{byte(i)}, rng.IntN(longest))
			full := bb.Add(key, keys.MakeTrailer(1, keys.KindPut), value, 0)
			want = append(want, bytes.Clone(value))
			if like := append(bytes.Clone(key), 0); full != bb.Full(like) || full && !bb.Full([]byte{0xff}) {
				t.Fatalf("after %d entries full is %v, and for %q %v", i+1, full, like, bb.Full(like))
			}
			if full {
				break
			}
			clear(value)
		}
		data := bb.Finish(nil)
		if err := Validate(data); err != nil {
			t.Fatal(err)
		}
		v := Of(data)
		for i := range want {
			if _, _, off := v.Entry(i); !bytes.Equal(v.Value(i, off), want[i]) {
				t.Fatalf("value %d of %d: %x, want %x", i, v.Len(), v.Value(i, off), want[i])
			}
		}
		if !bb.Empty() || v.Len() != len(want) {
			t.Fatalf("%d entries, want %d", v.Len(), len(want))
		}
	}
}

func FuzzBlock(f *testing.F) {
	f.Add(goldenBlock(f))
	f.Fuzz(func(t *testing.T, data []byte) { useBlock(data) })
}

func BenchmarkValidate(b *testing.B) {
	bb := newBuilder()
	value := bytes.Repeat([]byte("v"), 114)
	var keys32 [][]byte
	for i := range 32 {
		keys32 = append(keys32, fmt.Appendf(nil, "%016d", i*i))
	}
	for i, k := range keys32 {
		bb.Add(k, keys.MakeTrailer(keys.SeqNum(i), keys.KindPut), value, 0)
	}
	data := bb.Finish(nil)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if err := Validate(data); err != nil {
			b.Fatal(err)
		}
	}
}
