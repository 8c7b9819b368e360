package sstable

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"sievedb/internal/cache"
	"sievedb/internal/keys"
	"sievedb/internal/rangedel"
)

var rewrite = flag.Bool("rewrite", false, "write testdata/v1.sst again; only before the format is released")

func goldenIndex(t testing.TB) []byte {
	var b indexBuilder
	for i, sep := range []string{"keyA", "keyB5", "keyB5", "keyC"} {
		if err := b.add([]byte(sep), uint32(60+10*i), uint32(0x11111111*(i+1))); err != nil {
			t.Fatal(err)
		}
	}
	return b.finish(nil)
}

func goldenFooter() footer {
	return footer{
		filter:          handle{600, 93, 0xf1f1f1f1},
		rangeTombstones: handle{693, 0, 0},
		index:           handle{693, 100, 0x1d1d1d1d},
		properties:      handle{793, 111, 0xb2b2b2b2},
	}
}

func goldenProperties() []byte {
	p := Properties{
		FileNum: 7, Entries: 10, Deletes: 1, UserKeys: 9, RawKeyBytes: 50, RawValueBytes: 500,
		DataBlocks: 2, DataBytes: 560, RawBlockBytes: 640, BlockSizeBytes: 4096, Compression: SnappyCompression,
		SmallestKey: []byte("a"), LargestKey: []byte("zz"), SmallestSeq: 1, LargestSeq: 300,
		FilterKind: 1, FilterKeys: 9, FilterMillibits: 56888, FilterProbes: 14, FilterRate: 0.25,
		RangeDeletes: 3,
	}
	return p.append(nil)
}

func unhex(t *testing.T, lines ...string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(strings.Join(lines, ""), " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func wantBytes(t *testing.T, what string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Errorf("%s is\n%swant\n%s", what, hex.Dump(got), hex.Dump(want))
	}
}

func TestGoldenIndex(t *testing.T) {
	wantBytes(t, "index", goldenIndex(t), unhex(t,
		"04000000 03000000 06000000", // 4 blocks, prefix of 3, separators of 6 bytes
		"6b6579",                     // "key"
		"3c000000 46000000 50000000 5a000000",
		"11111111 22222222 33333333 44444444",
		"01000000 03000000 05000000 06000000",
		"41 4235 4235 43",
	))
	x, err := readIndex(goldenIndex(t), 300)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]int{"": 0, "key": 0, "keyA": 0, "keyA0": 1, "keyB5": 1, "keyB50": 3, "keyC": 3, "keyC0": 4, "l": 4, "a": 0} {
		if got, _ := x.find([]byte(key)); got != want {
			t.Errorf("find(%q) = %d, want %d", key, got, want)
		}
	}
	if h := x.frame(2); h != (handle{130, 80, 0x33333333}) {
		t.Errorf("block 2 at %+v", h)
	}
}

func TestGoldenProperties(t *testing.T) {
	wantBytes(t, "properties", goldenProperties(), unhex(t,
		"0100 08 0a00000000000000", "0200 08 0100000000000000", "0300 08 0900000000000000",
		"0400 08 3200000000000000", "0500 08 f401000000000000", "0600 08 0200000000000000",
		"0700 08 3002000000000000", "0800 08 8002000000000000", "0900 01 61", "0a00 02 7a7a",
		"0b00 08 0100000000000000", "0c00 08 2c01000000000000", "0d00 08 0010000000000000",
		"0e00 08 0100000000000000", "0f00 08 0100000000000000", "1000 08 0900000000000000",
		"1100 08 38de000000000000", "1200 08 0e00000000000000", "1300 08 000000000000d03f",
		"1400 08 0700000000000000", "1500 08 0300000000000000",
	))
}

func TestGoldenFooter(t *testing.T) {
	got, sum := goldenFooter().append(nil)
	wantBytes(t, "footer", got, unhex(t,
		"5802000000000000 5d00000000000000 f1f1f1f1", // filter
		"b502000000000000 0000000000000000 00000000", // range tombstones
		"b502000000000000 6400000000000000 1d1d1d1d", // index
		"1903000000000000 6f00000000000000 b2b2b2b2", // properties
		"01000000", "b2ff0795",
		"534945564554424c", // SIEVETBL
	))
	back, sum2, err := readFooter(got, 1000)
	if err != nil || back != goldenFooter() || sum2 != sum {
		t.Fatalf("%+v, %#x, %v", back, sum2, err)
	}
}

func TestGoldenFrame(t *testing.T) {
	out, sum, _ := sealFrame([]byte("xx-abc"), 3, kindFilter, NoCompression, nil)
	wantBytes(t, "frame", out[3:], unhex(t, "616263", "20", "b37d8629"))
	out2, _, _ := sealFrame([]byte("abc"), 0, kindRangeDels, NoCompression, nil)
	wantBytes(t, "frame of range tombstones", out2[:4], unhex(t, "616263", "40"))
	if p, _, err := openFrame(out[3:], kindFilter, sum); err != nil || string(p) != "abc" {
		t.Fatalf("%q, %v", p, err)
	}
	if _, _, err := openFrame(out[3:], kindData, sum); !isCorrupt(err) {
		t.Fatalf("the filter passes for data: %v", err)
	}
}

// testdata/v1.sst was written when version 1 was frozen. It must stay readable
// and, as long as version 1 is written, come out the same.
func TestGoldenFile(t *testing.T) {
	const name = "testdata/v1.sst"
	es := smallEntries()
	f, m := build(t, WriterOptions{FileNum: 7, BlockSize: 128, Compression: SnappyCompression, FilterMillibits: 10_000}, es)
	if *rewrite {
		if err := os.WriteFile(name, f.data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	wantBytes(t, name, f.data, data)
	r := open(t, &memFile{data: data}, m, cache.New(0))
	if err := answers(r, es); err != nil {
		t.Fatal(err)
	}
	if err := r.Verify(); err != nil {
		t.Fatal(err)
	}
	if s, err := r.LoadFilter(); s != FilterResident || err != nil {
		t.Fatalf("filter %s, %v", s, err)
	}
	if r.RangeDels() != nil {
		t.Error("there are range tombstones")
	}
}

func goldenSpans() []rangedel.Span {
	return []rangedel.Span{
		{Start: []byte("apple"), End: []byte("b"), Seqs: []keys.SeqNum{300, 7}},
		{Start: []byte("key05"), End: []byte("z"), Seqs: []keys.SeqNum{1}},
	}
}

// testdata/v1-rangedels.sst holds range tombstones and nothing else.
func TestGoldenRangeTombstones(t *testing.T) {
	const name = "testdata/v1-rangedels.sst"
	f, m := build(t, WriterOptions{FileNum: 7, Compression: SnappyCompression, FilterMillibits: 10_000}, nil, goldenSpans()...)
	if *rewrite {
		if err := os.WriteFile(name, f.data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	wantBytes(t, name, f.data, data)
	wantBytes(t, "its range tombstones and its index", data[:52], unhex(t,
		"01 04000000", "05 6170706c65 02 ac02 a502", "01 62 00", "05 6b65793035 01 01", "01 7a 00", "40", "1815395e",
		"00000000 00000000 00000000", "10", "7169d213",
	))
	r := open(t, &memFile{data: data}, m, nil)
	if err := r.Verify(); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(r.RangeDels().Spans()); got != fmt.Sprint(goldenSpans()) {
		t.Errorf("it holds %s", got)
	}
}
