package record

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"sievedb/internal/corrupt"
)

const number = 0x01020304

// appendAll frames records one after another, each of them written when all
// before it was known to be durable (synced) or nothing was.
func appendAll(synced bool, records ...[]byte) []byte {
	var log []byte
	for _, p := range records {
		f := Frame{Number: number, Offset: int64(len(log))}
		if synced {
			f.Synced = f.Offset
		}
		log = Append(log, f, p[:len(p)/2], p[len(p)/2:])
	}
	return log
}

func readAll(log []byte) (records [][]byte, good int64, err error) {
	r := NewReader(bytes.NewReader(log), int64(len(log)), 0, number)
	for {
		p, err := r.Next()
		if err != nil {
			if _, again := r.Next(); again != err {
				return nil, 0, fmt.Errorf("the end is not sticky: %v, then %v", err, again)
			}
			return records, r.Offset(), err
		}
		records = append(records, bytes.Clone(p))
	}
}

func equal(a, b [][]byte) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !bytes.Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

func TestGolden(t *testing.T) {
	got := Append(nil, Frame{Number: number, Offset: 300, Synced: 256}, []byte("he"), []byte("llo"))
	const want = "e315586c" + "05000001" + "04030201" + "2c000000" + "68656c6c6f"
	if hex.EncodeToString(got) != want {
		t.Errorf("chunk = %x, want %s", got, want)
	}
}

func TestRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var records [][]byte
	for _, n := range []int{0, 1, 15, 16, MaxPayload - 1, MaxPayload, MaxPayload + 1, 3*MaxPayload + 7, 2 * MaxPayload} {
		p := make([]byte, n)
		for i := range p {
			p[i] = byte(rng.Uint32())
		}
		records = append(records, p)
	}
	log := appendAll(true, records...)
	var size int64
	for _, p := range records {
		size += Size(int64(len(p)))
	}
	if size != int64(len(log)) {
		t.Errorf("Size says %d bytes, the log has %d", size, len(log))
	}
	got, good, err := readAll(log)
	if err != io.EOF || good != int64(len(log)) || !equal(got, records) {
		t.Errorf("read back %d records to offset %d with %v", len(got), good, err)
	}
	// Zeros behind the last record are space that was preallocated.
	got, good, err = readAll(append(bytes.Clone(log), make([]byte, window+5)...))
	if err != io.EOF || good != int64(len(log)) || !equal(got, records) {
		t.Errorf("with zeros behind: %d records to offset %d with %v", len(got), good, err)
	}
}

// A log cut anywhere yields the records before the cut, and a torn tail unless
// the cut is between two records.
func TestCutAnywhere(t *testing.T) {
	records := [][]byte{[]byte("one"), {}, []byte("three"), bytes.Repeat([]byte("x"), 40)}
	for _, synced := range []bool{false, true} {
		log := appendAll(synced, records...)
		ends := map[int]int{0: 0}
		at := 0
		for i, p := range records {
			at += int(Size(int64(len(p))))
			ends[at] = i + 1
		}
		whole := 0
		for cut := 0; cut <= len(log); cut++ {
			if n, ok := ends[cut]; ok {
				whole = n
			}
			got, _, err := readAll(log[:cut])
			if !equal(got, records[:whole]) {
				t.Fatalf("cut at %d: %q", cut, got)
			}
			var torn *TornError
			if _, atEnd := ends[cut]; atEnd != (err == io.EOF) || !atEnd && !errors.As(err, &torn) {
				t.Fatalf("cut at %d: %v", cut, err)
			}
		}
	}
}

// Invariant 12: a flipped bit in bytes that a later chunk vouches for is damage;
// in the last chunk, or where nothing vouches, it is a torn tail. No flip yields
// a record that was not written.
func TestFlipEveryBit(t *testing.T) {
	records := [][]byte{[]byte("one"), []byte("two"), []byte("three")}
	for _, synced := range []bool{false, true} {
		log := appendAll(synced, records...)
		last := int64(len(log)) - Size(int64(len(records[2])))
		for bit := range len(log) * 8 {
			bad := bytes.Clone(log)
			bad[bit/8] ^= 1 << (bit % 8)
			got, good, err := readAll(bad)
			if !equal(got, records[:len(got)]) {
				t.Fatalf("bit %d: wrong records %q", bit, got)
			}
			var torn *TornError
			switch {
			case synced && int64(bit/8) < last:
				var c *corrupt.Error
				if !errors.As(err, &c) || c.Offset > int64(bit/8) {
					t.Fatalf("bit %d: want damage located before it, got %v", bit, err)
				}
			case !errors.As(err, &torn) || torn.Offset != good || good > int64(bit/8):
				t.Fatalf("bit %d: want a torn tail before it, got %v", bit, err)
			}
		}
	}
}

// A record of which only some chunks became durable is torn as a whole.
func TestCutInsideLongRecord(t *testing.T) {
	long := bytes.Repeat([]byte("y"), 2*MaxPayload+5)
	log := appendAll(false, []byte("one"), long)
	start := Size(3)
	for _, cut := range []int64{start + 5, start + MaxPayload + HeaderLen, start + 2*(MaxPayload+HeaderLen), int64(len(log)) - 1} {
		got, good, err := readAll(log[:cut])
		var torn *TornError
		if len(got) != 1 || good != start || !errors.As(err, &torn) || torn.Offset != start {
			t.Errorf("cut at %d: %d records to %d with %v", cut, len(got), good, err)
		}
	}
	// Zeros that were preallocated follow a first chunk: still torn.
	got, good, err := readAll(append(bytes.Clone(log[:start+MaxPayload+HeaderLen]), make([]byte, 100)...))
	var torn *TornError
	if len(got) != 1 || good != start || !errors.As(err, &torn) {
		t.Errorf("zeros behind a first chunk: %d records to %d with %v", len(got), good, err)
	}
}

// The sector in the middle was lost although later bytes vouch for it.
func TestLostSectorIsDamage(t *testing.T) {
	var records [][]byte
	for i := range 100 {
		records = append(records, bytes.Repeat([]byte{byte(i)}, 100))
	}
	log := appendAll(true, records...)
	clear(log[2048:2560])
	_, good, err := readAll(log)
	var c *corrupt.Error
	if !errors.As(err, &c) || c.Offset != good || good > 2048 {
		t.Errorf("got %v at %d", err, good)
	}
}

// A torn tail that holds a copy of the log, as a value may, is torn: chunks
// vouch only where they were written.
func TestCopyOfTheLogDoesNotVouch(t *testing.T) {
	log := appendAll(true, []byte("one"), []byte("two"))
	torn := Append(bytes.Clone(log), Frame{Number: number, Offset: int64(len(log)), Synced: int64(len(log))}, nil, append(bytes.Clone(log), "tail"...))
	clear(torn[len(log) : len(log)+HeaderLen])
	got, good, err := readAll(torn)
	var tail *TornError
	if len(got) != 2 || good != int64(len(log)) || !errors.As(err, &tail) {
		t.Errorf("%d records to %d: %v", len(got), good, err)
	}
}

// Invariant 12: chunks of another file never replay, nor vouch.
func TestOtherNumber(t *testing.T) {
	log := appendAll(true, []byte("one"))
	old := Append(nil, Frame{Number: number + 1, Offset: int64(len(log)), Synced: int64(len(log))}, nil, []byte("old"))
	got, _, err := readAll(append(log, old...))
	var torn *TornError
	if len(got) != 1 || !errors.As(err, &torn) {
		t.Errorf("%d records, %v", len(got), err)
	}
}

type failing struct{ err error }

func (f failing) ReadAt([]byte, int64) (int, error) { return 0, f.err }

func TestReadErrors(t *testing.T) {
	boom := errors.New("boom")
	if _, err := NewReader(failing{boom}, 100, 0, number).Next(); !errors.Is(err, boom) {
		t.Errorf("got %v", err)
	}
	var c *corrupt.Error
	if _, err := NewReader(failing{io.EOF}, 100, 0, number).Next(); !errors.As(err, &c) {
		t.Errorf("a file shorter than it was said to be: %v", err)
	}
}

func TestAppendAllocatesNothing(t *testing.T) {
	buf := make([]byte, 0, 1<<12)
	p := make([]byte, 100)
	if n := testing.AllocsPerRun(100, func() {
		buf = Append(buf[:0], Frame{Number: number}, p[:12], p[12:])
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzReader(f *testing.F) {
	f.Add([]byte{})
	f.Add(appendAll(true, []byte("one"), []byte("two")))
	f.Add(append(appendAll(false, []byte("one"), bytes.Repeat([]byte("z"), 300)), make([]byte, 64)...))
	f.Fuzz(func(t *testing.T, log []byte) {
		records, good, err := readAll(log)
		if err == nil || good > int64(len(log)) {
			t.Fatalf("ended at %d of %d with %v", good, len(log), err)
		}
		var n int64
		for _, p := range records {
			n += int64(len(p)) + HeaderLen
		}
		if n > int64(len(log)) {
			t.Fatalf("%d bytes of records from %d bytes", n, len(log))
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	buf := make([]byte, 0, 1<<20)
	p := make([]byte, 128)
	b.SetBytes(int64(len(p)))
	b.ReportAllocs()
	for b.Loop() {
		if len(buf) > 1<<19 {
			buf = buf[:0]
		}
		buf = Append(buf, Frame{Number: number, Offset: int64(len(buf))}, p[:12], p[12:])
	}
}
