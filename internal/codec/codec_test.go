package codec

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"testing"

	"sievedb/internal/corrupt"
)

// The check value of CRC-32C over "123456789" is e3069283 (RFC 3720).
func TestChecksum(t *testing.T) {
	crc := uint32(0xe3069283)
	want := (crc>>15 | crc<<17) + 0xa282ead8
	if got := ChecksumOf('1', []byte("23456789")); got != want {
		t.Errorf("ChecksumOf = %#x, want %#x", got, want)
	}
	if got := Checksum('1', []byte("2345"), nil, []byte("6789")); got != want {
		t.Errorf("Checksum = %#x, want %#x", got, want)
	}
	for b := range 256 {
		if got, want := crcOfByte(byte(b)), crc32.Checksum([]byte{byte(b)}, castagnoli); got != want {
			t.Fatalf("crcOfByte(%d) = %#x, want %#x", b, got, want)
		}
	}
	p := make([]byte, 64)
	if n := testing.AllocsPerRun(100, func() { ChecksumOf(1, p) }); n != 0 {
		t.Errorf("ChecksumOf allocates %v times", n)
	}
}

func encoded() []byte {
	b := []byte{7}
	b = binary.LittleEndian.AppendUint16(b, 0x0201)
	b = binary.LittleEndian.AppendUint32(b, 0x04030201)
	b = binary.LittleEndian.AppendUint64(b, 0x0807060504030201)
	b = binary.AppendUvarint(b, 1<<40)
	b = AppendLenBytes(b, []byte("tail"))
	return b
}

func TestReader(t *testing.T) {
	r := NewReader(encoded())
	if v := r.Uint8("a"); v != 7 {
		t.Errorf("Uint8 = %d", v)
	}
	if v := r.Uint16("b"); v != 0x0201 {
		t.Errorf("Uint16 = %#x", v)
	}
	if v := r.Uint32("c"); v != 0x04030201 {
		t.Errorf("Uint32 = %#x", v)
	}
	if v := r.Uint64("d"); v != 0x0807060504030201 {
		t.Errorf("Uint64 = %#x", v)
	}
	if v := r.Uvarint("e"); v != 1<<40 {
		t.Errorf("Uvarint = %d", v)
	}
	if v := r.LenBytes("f"); string(v) != "tail" {
		t.Errorf("LenBytes = %q", v)
	}
	if r.Err() != nil || r.Len() != 0 {
		t.Errorf("at the end: %v, %d bytes left", r.Err(), r.Len())
	}
}

// However short the buffer, the reader reports where it ended and returns
// zeros from then on.
func TestReaderCutAnywhere(t *testing.T) {
	whole := encoded()
	for cut := range whole {
		r := NewReader(whole[:cut])
		r.Uint8("field")
		r.Uint16("field")
		r.Uint32("field")
		r.Uint64("field")
		r.Uvarint("field")
		last := r.LenBytes("field")
		var c *corrupt.Error
		if !errors.As(r.Err(), &c) || c.Offset > int64(cut) || c.What != "field" || last != nil {
			t.Errorf("cut at %d: %v, %q", cut, r.Err(), last)
		}
	}
}

func TestReaderRefusesLengths(t *testing.T) {
	huge := binary.AppendUvarint(nil, 1<<63)
	for name, read := range map[string]func(*Reader) []byte{
		"length beyond int": func(r *Reader) []byte { return r.LenBytes("x") },
		"negative length":   func(r *Reader) []byte { return r.Bytes(-1, "x") },
	} {
		r := NewReader(huge)
		if b := read(r); b != nil || r.Err() == nil {
			t.Errorf("%s: %q, %v", name, b, r.Err())
		}
	}
	r := NewReader([]byte{0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1})
	if r.Uvarint("x"); r.Err() == nil {
		t.Error("a varint of more than 64 bits was taken")
	}
}

func FuzzReader(f *testing.F) {
	f.Add(encoded())
	f.Fuzz(func(t *testing.T, b []byte) {
		r := NewReader(b)
		for r.Err() == nil && r.Len() > 0 {
			before := r.Len()
			r.Uvarint("v")
			r.LenBytes("b")
			if r.Err() == nil && r.Len() >= before {
				t.Fatal("no progress")
			}
		}
	})
}
