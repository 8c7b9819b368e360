package manifest

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"sievedb/internal/codec"
	"sievedb/internal/corrupt"
	"sievedb/internal/keys"
)

// fullEdit uses every field, with numbers that need every length of varint.
func fullEdit() *Edit {
	return &Edit{
		NextFileNum:   300,
		LastSeq:       keys.MaxSeqNum,
		OldestSegment: 7,
		AddedSegments: []keys.FileNum{8, 1 << 40},
		EndedSegments: []SegmentEnd{{FileNum: 300, SizeBytes: 40}, {FileNum: 8, SizeBytes: 1<<64 - 1, Sealed: true}},
		Removed:       []LevelFile{{Level: 0, FileNum: 5}, {Level: 6, FileNum: 6}},
		Added: []LevelTable{{Level: 3, Meta: &TableMeta{
			FileNum: 299, SizeBytes: 128, Checksum: 0xa1b2c3d4, Smallest: []byte{}, Largest: []byte("ab"),
			SmallestSeq: 1, LargestSeq: 2, Entries: 3, Deletes: 4, UserKeys: 5, RawBytes: 6, FilterBytes: 1 << 14,
		}}, {Level: 2, Meta: &TableMeta{
			FileNum: 298, Smallest: []byte("x"), Largest: []byte("z"), LargestExclusive: true, SmallestSeq: 7, LargestSeq: 9, RangeDeletes: 200,
		}}, {Level: 1, Meta: &TableMeta{
			FileNum: 9, Smallest: []byte("x"), Largest: []byte{}, ToEnd: true, SmallestSeq: 7, LargestSeq: 7, RangeDeletes: 1,
		}}},
	}
}

func TestGoldenEdit(t *testing.T) {
	want := strings.Join([]string{
		"01 02 ac02",             // next file number
		"02 08 ffffffffffffff7f", // last sequence number
		"03 01 07",               // oldest segment
		"04 01 08",               // added segments
		"04 06 808080808020",
		"09 03 ac02 28",                 // ended segment
		"05 0b 08 ffffffffffffffffff01", // sealed segment
		"06 02 00 05",                   // removed tables
		"06 02 06 06",
		"07 16 03 ab02 8001 d4c3b2a1 00 026162 01 02 03 04 05 06 808001", // added table
		"07 13 02 aa02 00 00000000 0178 017a 07 09 00 00 00 00 00",       // another, with range tombstones
		"08 05 aa02 c801 01", // 200 of them, up to an exclusive end
		"07 11 01 09 00 00000000 0178 00 07 07 00 00 00 00 00",
		"08 03 09 01 02", // one without end
	}, "")
	want = strings.ReplaceAll(want, " ", "")
	if got := hex.EncodeToString(appendEdit(nil, fullEdit())); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := appendEdit(nil, &Edit{}); len(got) != 0 {
		t.Errorf("the edit that changes nothing has the fields %x", got)
	}
}

func TestGoldenHeader(t *testing.T) {
	id := [16]byte{0: 0xaa, 15: 0xbb}
	got := hex.EncodeToString(appendHeader(nil, 0x0102030405060708, id))
	want := "53696576654d414e" + "01000000" + "0807060504030201" + "aa0000000000000000000000000000bb"
	if got[:72] != want {
		t.Errorf("got  %s\nwant %s", got[:72], want)
	}
	b, _ := hex.DecodeString(got)
	if len(b) != headerLen {
		t.Fatalf("the header has %d bytes", len(b))
	}
	if gotID, err := decodeHeader(b, "f", 0x0102030405060708); gotID != id || err != nil {
		t.Errorf("decoded as %x, %v", gotID, err)
	}
	if _, err := decodeHeader(b, "f", 8); !errors.Is(err, corrupt.ErrCorrupt) {
		t.Errorf("as the header of another manifest: %v", err)
	}
}

func TestGoldenCurrent(t *testing.T) {
	for _, c := range []current{{7, 4711}, {1<<64 - 1, 1<<63 - 1}, {1_234_567, 40}} {
		b := c.encode()
		want := fmt.Sprintf("sievedb 1 MANIFEST-%06d %d ", uint64(c.num), c.durableBytes)
		want += fmt.Sprintf("%08x\n", codec.Checksum('C', []byte(want)))
		if string(b) != want || len(b) > maxCurrentLen {
			t.Errorf("got %q, want %q", b, want)
		}
		if got, err := decodeCurrent(b); got != c || err != nil {
			t.Errorf("decoded as %+v, %v", got, err)
		}
	}
}

func TestCurrentRefuses(t *testing.T) {
	good := current{7, 4711}.encode()
	isCorrupt := func(what string, b []byte) {
		t.Helper()
		_, err := decodeCurrent(b)
		var c *corrupt.Error
		var v *VersionError
		if !(errors.As(err, &c) && c.File == CurrentName) && !errors.As(err, &v) {
			t.Errorf("%s: %q decoded with %v", what, b, err)
		}
	}
	for n := range good {
		isCorrupt("cut", good[:n])
	}
	for bit := range len(good) * 8 {
		b := bytes.Clone(good)
		b[bit/8] ^= 1 << (bit % 8)
		isCorrupt("flip", b)
	}
	isCorrupt("with more behind", append(bytes.Clone(good), '\n'))
	isCorrupt("another store's", []byte("MANIFEST-000004\n"))
	isCorrupt("zeros", make([]byte, 16))

	var v *VersionError
	if _, err := decodeCurrent([]byte("sievedb 2 whatever comes then\n")); !errors.As(err, &v) || errors.Is(err, corrupt.ErrCorrupt) ||
		!strings.Contains(err.Error(), "CURRENT") || v.Got != 2 || v.Want != 1 {
		t.Errorf("another version: %v", err)
	}
}

func TestHeaderRefuses(t *testing.T) {
	good := appendHeader(nil, 7, [16]byte{1})
	for n := range good {
		if _, err := decodeHeader(good[:n], "f", 7); !errors.Is(err, corrupt.ErrCorrupt) {
			t.Errorf("cut at %d: %v", n, err)
		}
	}
	for bit := range len(good) * 8 {
		b := bytes.Clone(good)
		b[bit/8] ^= 1 << (bit % 8)
		_, err := decodeHeader(b, "f", 7)
		var v *VersionError
		if inVersion := bit/8 >= 8 && bit/8 < 12; inVersion != errors.As(err, &v) || !inVersion && !errors.Is(err, corrupt.ErrCorrupt) {
			t.Errorf("bit %d: %v", bit, err)
		}
	}
}

func TestManifestName(t *testing.T) {
	for num, name := range map[keys.FileNum]string{0: "MANIFEST-000000", 7: "MANIFEST-000007", 1234567: "MANIFEST-1234567"} {
		if got := ManifestName(num); got != name {
			t.Errorf("ManifestName(%d) = %s", num, got)
		}
		if got, ok := ParseManifestName(name); got != num || !ok {
			t.Errorf("ParseManifestName(%s) = %d, %v", name, got, ok)
		}
	}
	for _, name := range []string{"", "MANIFEST-", "MANIFEST-7", "MANIFEST-0000007", "MANIFEST-00000a", "MANIFEST-+00007",
		"MANIFEST-000007.tmp", "manifest-000007", "MANIFEST-18446744073709551616", "CURRENT"} {
		if num, ok := ParseManifestName(name); ok {
			t.Errorf("ParseManifestName(%q) = %d", name, num)
		}
	}
}

func TestEditRoundTrip(t *testing.T) {
	for _, e := range []*Edit{{}, fullEdit(), add(6, table(1, "", "", 0, 0), table(2, "a", strings.Repeat("k", 1<<16), 1, 2))} {
		b := appendEdit(nil, e)
		got, err := decodeEdit(b)
		if err != nil || !bytes.Equal(appendEdit(nil, got), b) {
			t.Errorf("%+v came back as %+v, %v", e, got, err)
		}
		same := bytes.Clone(b)
		clear(b)
		if !bytes.Equal(appendEdit(nil, got), same) {
			t.Error("the edit aliases the bytes that it was decoded from")
		}
	}
	if got, err := decodeEdit(appendEdit(nil, fullEdit())); err != nil || !reflect.DeepEqual(got, fullEdit()) {
		t.Errorf("got %+v, %v", got, err)
	}
}

// An edit that is cut between two fields is one with fewer fields; that is for
// its record to notice. Anywhere else the decoder does.
func TestEditCutAnywhere(t *testing.T) {
	whole := appendEdit(nil, fullEdit())
	fields := 0
	for n := range whole {
		e, err := decodeEdit(whole[:n])
		if err == nil {
			fields++
			if again := appendEdit(nil, e); !bytes.Equal(again, whole[:n]) {
				t.Errorf("cut at %d: decoded %x from %x", n, again, whole[:n])
			}
			continue
		}
		var c *corrupt.Error
		if !errors.As(err, &c) || c.Offset > int64(n) {
			t.Errorf("cut at %d: %v", n, err)
		}
	}
	if fields != 14 {
		t.Errorf("%d prefixes are edits, want one per field", fields)
	}
}

func TestEditFields(t *testing.T) {
	for _, c := range []struct {
		name, hex string
		at        int64 // of the corruption; -1: the edit is good
	}{
		{"a tag that may be skipped", "800161" + "ff00" + "010107", -1},
		{"a tag that must be understood", "010107" + "0a0161", 3},
		{"tag zero", "000161", 0},
		{"the same number twice", "010107" + "010107", 3},
		{"a value that runs over", "010207", 2},
		{"a value of no bytes", "0100", 2},
		{"bytes left in a value", "01020707", 3},
		{"a length of 64 bits", "01ffffffffffffffffff0107", 11},
		{"a sequence number of 57 bits", "0209808080808080808001", 11},
		{"a level that does not exist", "06020701", 3},
		{"a level beyond 32 bits", "0606808080801001", 7},
		{"range tombstones of no table", "0803090100", 3},
		{"range tombstones of another table", "0712010900000000000178017907070000000000" + "0803080100", 23},
		{"range tombstones twice", "0712010900000000000178017907070000000000" + "0803090100" + "0803090100", 28},
		{"no range tombstones", "0712010900000000000178017907070000000000" + "0803090000", 24},
		{"an end of a fourth kind", "0712010900000000000178017907070000000000" + "0803090103", 25},
		{"no end and a largest key", "0712010900000000000178017907070000000000" + "0803090102", 25},
		{"an end without a size", "0901aa", 2},
		{"a key longer than its field", "0709030101000000000561", 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, err := hex.DecodeString(c.hex)
			if err != nil {
				t.Fatal(err)
			}
			e, err := decodeEdit(b)
			var bad *corrupt.Error
			switch {
			case c.at < 0 && (err != nil || e.NextFileNum != 7):
				t.Errorf("got %+v, %v", e, err)
			case c.at >= 0 && (!errors.As(err, &bad) || bad.Offset != c.at):
				t.Errorf("want a corruption at %d, got %v", c.at, err)
			}
		})
	}
}

func FuzzEdit(f *testing.F) {
	f.Add([]byte{})
	f.Add(appendEdit(nil, fullEdit()))
	f.Add(appendEdit(nil, add(1, table(3, "a", "b", 1, 2))))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := decodeEdit(b)
		if err != nil {
			if !errors.Is(err, corrupt.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		again := appendEdit(nil, e)
		if e2, err := decodeEdit(again); err != nil || !bytes.Equal(appendEdit(nil, e2), again) {
			t.Fatalf("%+v came back as %+v, %v", e, e2, err)
		}
		if _, err := (&Version{}).Apply(e); err == nil && len(e.Removed) > 0 {
			t.Fatal("tables were removed from an empty tree")
		}
	})
}

func FuzzCurrent(f *testing.F) {
	f.Add(current{7, 4711}.encode())
	f.Add([]byte("sievedb 2 MANIFEST-000007\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := decodeCurrent(b); err == nil && !bytes.Equal(c.encode(), b) {
			t.Fatalf("%q decoded as %+v", b, c)
		}
	})
}
