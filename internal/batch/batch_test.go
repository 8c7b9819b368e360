package batch

import (
	"encoding/hex"
	"errors"
	"testing"

	"sievedb/internal/corrupt"
	"sievedb/internal/invariants"
	"sievedb/internal/keys"
)

func payload(seq keys.SeqNum, b *Batch) []byte {
	return append(AppendHeader(nil, seq, b.Count()), b.Ops()...)
}

func decode(p []byte) (ops []Op, err error) {
	r, err := Decode(p)
	if err != nil {
		return nil, err
	}
	for op, ok := r.Next(); ok; op, ok = r.Next() {
		ops = append(ops, op)
	}
	return ops, r.Err()
}

func sample() *Batch {
	var b Batch
	b.Put([]byte("k"), []byte("vv"))
	b.Delete([]byte("gone"))
	b.Put(nil, nil)
	b.DeleteRange([]byte("a"), []byte("bc"))
	b.DeleteRange(nil, nil)
	return &b
}

func TestGolden(t *testing.T) {
	const want = "0700000000000000" + "05000000" + "01" + "016b" + "027676" + "02" + "04676f6e65" + "01" + "00" + "00" +
		"03" + "0161" + "026263" + "03" + "00" + "00"
	if got := hex.EncodeToString(payload(7, sample())); got != want {
		t.Errorf("payload = %s, want %s", got, want)
	}
}

func TestRoundTrip(t *testing.T) {
	ops, err := decode(payload(7, sample()))
	if err != nil || len(ops) != 5 {
		t.Fatalf("%d operations, %v", len(ops), err)
	}
	want := []keys.InternalKey{
		keys.Make([]byte("k"), 7, keys.KindPut), keys.Make([]byte("gone"), 8, keys.KindDelete), keys.Make(nil, 9, keys.KindPut),
		keys.Make([]byte("a"), 10, keys.KindRangeDelete), keys.Make(nil, 11, keys.KindRangeDelete),
	}
	for i, op := range ops {
		if keys.Compare(keys.InternalKey{UserKey: op.Key, Trailer: op.Trailer}, want[i]) != 0 {
			t.Errorf("operation %d: %q %v, want %v", i, op.Key, op.Trailer, want[i])
		}
	}
	if string(ops[0].Value) != "vv" || ops[1].Value != nil || string(ops[3].Value) != "bc" || ops[4].Value != nil {
		t.Errorf("values %q, %q, %q, %q", ops[0].Value, ops[1].Value, ops[3].Value, ops[4].Value)
	}
}

// Every cut, and anything behind the last operation, is reported with a place
// inside the payload.
func TestCutAnywhere(t *testing.T) {
	whole := payload(7, sample())
	for cut := range whole {
		_, err := decode(whole[:cut])
		var c *corrupt.Error
		if !errors.As(err, &c) || c.Offset > int64(cut) {
			t.Errorf("cut at %d: %v", cut, err)
		}
	}
	if _, err := decode(append(whole, 0)); err == nil {
		t.Error("a byte too many was taken")
	}
}

func TestRefuses(t *testing.T) {
	var b Batch
	b.Delete([]byte("k"))
	for name, p := range map[string][]byte{
		"sequence number zero":     payload(0, &b),
		"sequence numbers run out": payload(keys.MaxSeqNum, &b),
		"reserved kind":            append(AppendHeader(nil, 1, 1), byte(keys.KindMerge), 0),
		"kind zero":                append(AppendHeader(nil, 1, 1), 0, 0),
		"range that ends below":    append(AppendHeader(nil, 1, 1), byte(keys.KindRangeDelete), 1, 'b', 1, 'a'),
		"range of nothing":         append(AppendHeader(nil, 1, 1), byte(keys.KindRangeDelete), 1, 'b', 1, 'b'),
	} {
		if _, err := decode(p); !errors.Is(err, corrupt.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(payload(7, sample()))
	f.Fuzz(func(t *testing.T, p []byte) {
		ops, err := decode(p)
		if err != nil {
			return
		}
		var b Batch
		for _, op := range ops {
			switch op.Trailer.Kind() {
			case keys.KindPut:
				b.Put(op.Key, op.Value)
			case keys.KindDelete:
				b.Delete(op.Key)
			default:
				b.DeleteRange(op.Key, op.Value)
			}
		}
		if again, err := decode(payload(1, &b)); err != nil || len(again) != len(ops) {
			t.Fatalf("%d operations encode to %d, %v", len(ops), len(again), err)
		}
	})
}

func BenchmarkPut(b *testing.B) {
	var x Batch
	k, v := make([]byte, 16), make([]byte, 114)
	b.ReportAllocs()
	for b.Loop() {
		x.Reset()
		x.Put(k, v)
	}
}

// hundred makes a batch of a hundred puts from nothing, and returns its size.
func hundred(expected int, k, v []byte) (sizeBytes int) {
	var x Batch
	x.Expect(expected)
	for range 100 {
		x.Put(k, v)
	}
	return len(x.Ops())
}

func BenchmarkHundredPuts(b *testing.B) {
	k, v := make([]byte, 16), make([]byte, 114)
	b.ReportAllocs()
	for b.Loop() {
		hundred(0, k, v)
	}
}

// TestGrowth shows that a batch which grows does not copy itself over and over.
func TestGrowth(t *testing.T) {
	if invariants.Enabled {
		t.Skip("the race detector makes append allocate more")
	}
	k, v := make([]byte, 16), make([]byte, 114)
	if n := testing.AllocsPerRun(10, func() { hundred(0, k, v) }); n > 8 {
		t.Errorf("%v allocations for a hundred puts", n)
	}
	size := hundred(0, k, v)
	for _, c := range []struct{ expected, allocs int }{{size, 2}, {size + 1000, 2}, {size / 2, 3}} {
		if n := testing.AllocsPerRun(10, func() { hundred(c.expected, k, v) }); int(n) != c.allocs {
			t.Errorf("%v allocations for a hundred puts that take %d bytes, %d expected", n, size, c.expected)
		}
	}
}
