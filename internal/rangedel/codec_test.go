package rangedel

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"sievedb/internal/codec"
	"sievedb/internal/corrupt"
	"sievedb/internal/iter/itertest"
	"sievedb/internal/keys"
)

func goldenSpans() []Span {
	return []Span{
		{[]byte("apple"), []byte("b"), []keys.SeqNum{300, 299, 7}},
		{[]byte("b"), []byte("cc"), []keys.SeqNum{keys.MaxSeqNum}},
		{[]byte("d"), []byte("e"), []keys.SeqNum{1}},
	}
}

const golden = "01" + "05000000" + // version, five boundaries
	"05" + "6170706c65" + "03" + "ac02" + "01" + "a402" + // "apple": 300, 300-1, 299-292
	"01" + "62" + "01" + "ffffffffffffff7f" + // "b": 2^56-1
	"02" + "6363" + "00" + // "cc": a gap
	"01" + "64" + "01" + "01" + // "d": 1
	"01" + "65" + "00" // "e": the end

func TestGolden(t *testing.T) {
	got := NewSet(goldenSpans()).AppendTo([]byte("before"))
	if hex.EncodeToString(got) != hex.EncodeToString([]byte("before"))+golden {
		t.Errorf("got  %x\nwant %s", got[6:], golden)
	}
	payload, err := hex.DecodeString(golden)
	if err != nil {
		t.Fatal(err)
	}
	set, err := Decode(payload)
	if err != nil || show(set.Spans()) != show(goldenSpans()) {
		t.Errorf("decoded %s, %v", show(set.Spans()), err)
	}
	clear(payload) // the set has a copy
	if show(set.Spans()) != show(goldenSpans()) {
		t.Error("the set shares the payload")
	}
}

func TestGoldenWithoutEnd(t *testing.T) {
	spans := []Span{{[]byte("a"), []byte("b"), []keys.SeqNum{2}}, {[]byte("b"), nil, []keys.SeqNum{9, 2}}}
	const want = "01" + "02000000" + "0161" + "01" + "02" + "0162" + "02" + "09" + "07"
	if got := hex.EncodeToString(NewSet(spans).AppendTo(nil)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestRoundTrip(t *testing.T) {
	rnd := itertest.Rand(t)
	for range 300 {
		n := 1 + rnd.IntN(40)
		m := model(randomTombstones(rnd, n, keys.MaxSeqNum-keys.SeqNum(rnd.Uint64N(1<<rnd.IntN(56)))-40))
		set := NewSet(Fragment(m, nil))
		if set == nil {
			continue
		}
		payload := set.AppendTo(nil)
		again, err := Decode(payload)
		if err != nil || show(again.Spans()) != show(set.Spans()) || !bytes.Equal(again.AppendTo(nil), payload) {
			t.Fatalf("%s became %s, %v", show(set.Spans()), show(again.Spans()), err)
		}
		if got, most := again.SizeBytes(), 60*len(payload)+200; got > most {
			t.Fatalf("%d bytes of memory for a payload of %d", got, len(payload))
		}
		checkSource(t, "decoded", again, m, "", []keys.SeqNum{keys.MaxSeqNum})
	}
}

func corruption(t *testing.T, payload []byte, what string) {
	t.Helper()
	set, err := Decode(payload)
	var c *corrupt.Error
	if set != nil || !errors.As(err, &c) || c.Offset > int64(len(payload)) || !strings.Contains(c.What, what) {
		t.Errorf("%x: %v, want one about %q", payload, err, what)
	}
}

func TestCutAnywhere(t *testing.T) {
	payload := NewSet(goldenSpans()).AppendTo(nil)
	for cut := range payload {
		corruption(t, payload[:cut], "range tombstone")
	}
}

// A flipped bit, which the checksum around the payload would notice, is an
// error or another payload: what is decoded keeps the invariants.
func TestFlipAnyBit(t *testing.T) {
	payload := NewSet(goldenSpans()).AppendTo(nil)
	for bit := range 8 * len(payload) {
		flipped := bytes.Clone(payload)
		flipped[bit/8] ^= 1 << (bit % 8)
		checkDecoded(t, flipped)
		if set, err := Decode(flipped); err == nil && show(set.Spans()) == show(goldenSpans()) {
			t.Errorf("bit %d of byte %d means nothing", bit%8, bit/8)
		}
	}
}

func checkDecoded(t *testing.T, payload []byte) {
	t.Helper()
	set, err := Decode(payload)
	if err != nil {
		if !errors.Is(err, corrupt.ErrCorrupt) || set != nil {
			t.Fatalf("%x: %v", payload, err)
		}
		return
	}
	spans := set.Spans()
	checkSpans(t, spans)
	if again := NewSet(spans).AppendTo(nil); len(again) > len(payload) || show(NewSet(spans).Spans()) != show(spans) {
		t.Fatalf("%x became %x", payload, again)
	}
	for _, s := range spans {
		if set.Covering(s.Start, keys.MaxSeqNum) != s.Seqs[0] || s.Seqs[0] > keys.MaxSeqNum {
			t.Fatalf("%x: %q is covered by %d, want %d", payload, s.Start, set.Covering(s.Start, keys.MaxSeqNum), s.Seqs[0])
		}
	}
}

func TestDecodeRejects(t *testing.T) {
	// boundary is a key and what follows its length.
	type boundary struct {
		key     string
		numbers []uint64
	}
	encode := func(count uint32, boundaries ...boundary) []byte {
		b := binary.LittleEndian.AppendUint32([]byte{1}, count)
		for _, x := range boundaries {
			b = codec.AppendLenBytes(b, []byte(x.key))
			b = binary.AppendUvarint(b, uint64(len(x.numbers)))
			for _, n := range x.numbers {
				b = binary.AppendUvarint(b, n)
			}
		}
		return b
	}
	some := []uint64{9}
	good := encode(2, boundary{"a", some}, boundary{"b", nil})
	if _, err := Decode(good); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name    string
		payload []byte
		what    string
	}{
		{"nothing", nil, "version"},
		{"version 0", append([]byte{0}, good[1:]...), "version"},
		{"version 2", append([]byte{2}, good[1:]...), "version"},
		{"no boundary", encode(0), "boundaries"},
		{"one boundary without numbers", encode(1, boundary{"a", nil}), "sequence numbers"},
		{"more boundaries than bytes", encode(1<<32-1, boundary{"a", some}, boundary{"b", nil}), "boundaries"},
		{"a byte too many", append(bytes.Clone(good), 0), "end of range tombstones"},
		{"equal keys", encode(2, boundary{"a", some}, boundary{"a", nil}), "boundary"},
		{"descending keys", encode(2, boundary{"b", some}, boundary{"a", nil}), "boundary"},
		{"a gap first", encode(3, boundary{"a", nil}, boundary{"b", some}, boundary{"c", nil}), "sequence numbers"},
		{"the same twice", encode(3, boundary{"a", some}, boundary{"b", some}, boundary{"c", nil}), "sequence numbers"},
		{"a gap twice", encode(3, boundary{"a", some}, boundary{"b", nil}, boundary{"c", nil}), "sequence numbers"},
		{"number zero", encode(2, boundary{"a", []uint64{0}}, boundary{"b", nil}), "sequence number"},
		{"number of 57 bits", encode(2, boundary{"a", []uint64{1 << 56}}, boundary{"b", nil}), "sequence number"},
		{"a step of nothing", encode(2, boundary{"a", []uint64{9, 0}}, boundary{"b", nil}), "sequence number"},
		{"a step to zero", encode(2, boundary{"a", []uint64{9, 9}}, boundary{"b", nil}), "sequence number"},
		{"a step below zero", encode(2, boundary{"a", []uint64{9, 1 << 63}}, boundary{"b", nil}), "sequence number"},
		{"more numbers than bytes", append(bytes.Clone(good[:7]), 0xff, 0xff, 0xff, 0xff, 0x7f, 9, 1, 'b', 0), "numbers"},
		{"a key longer than the rest", append(bytes.Clone(good[:5]), 0xff, 0xff, 0xff, 0x7f, 'a', 1, 9), "boundary"},
	} {
		t.Run(test.name, func(t *testing.T) { corruption(t, test.payload, test.what) })
	}
}

func FuzzDecode(f *testing.F) {
	payload := NewSet(goldenSpans()).AppendTo(nil)
	f.Add(payload)
	f.Add(payload[:len(payload)/2])
	f.Add([]byte{1, 2, 0, 0, 0, 1, 'a', 1, 9, 1, 'b', 0})
	f.Fuzz(checkDecoded)
}
