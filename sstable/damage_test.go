package sstable

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"sievedb/filter"
	"sievedb/internal/cache"
	"sievedb/internal/codec"
	"sievedb/internal/corrupt"
	"sievedb/internal/damagetest"
	"sievedb/internal/keys"
	"sievedb/sstable/internal/block"
)

// smallEntries fill a few blocks: both kinds, and a key over several blocks.
func smallEntries() (es []entry) {
	for i := range 24 {
		es = append(es, entry{fmt.Sprintf("key%02d", i), keys.MakeTrailer(keys.SeqNum(100+i), keys.KindPut), fmt.Appendf(nil, "value%d", i)})
	}
	for s := range 12 {
		es = append(es, entry{"key07", keys.MakeTrailer(keys.SeqNum(s), keys.KindPut), bytes.Repeat([]byte("ab"), s)})
	}
	es = append(es, entry{"gone", keys.MakeTrailer(3, keys.KindDelete), nil})
	return sorted(es)
}

// answers reads everything in every way. Each answer is right or an error.
func answers(r *Reader, es []entry) error {
	var first error
	note := func(err error) {
		if err != nil && first == nil {
			first = err
		}
	}
	for _, e := range es {
		h := filter.Hash([]byte(e.key))
		if may, _ := r.MayContain(h); !may {
			return fmt.Errorf("wrong answer: the filter denies %q", e.key)
		}
		f, err := r.Get(nil, []byte(e.key), h, e.trl.SeqNum())
		note(err)
		if err == nil && (!f.OK || f.Trailer != e.trl || !bytes.Equal(f.Value, e.value)) {
			return fmt.Errorf("wrong answer: Get(%q#%s) = %v %s %q", e.key, e.trl, f.OK, f.Trailer, f.Value)
		}
	}
	for _, noFill := range []bool{false, true} {
		it := r.NewIter(IterOptions{NoFill: noFill})
		n := 0
		for ok := it.First(); ok; ok = it.Next() {
			if n >= len(es) || string(it.Key().UserKey) != es[n].key || it.Key().Trailer != es[n].trl || !bytes.Equal(it.Value(), es[n].value) {
				return fmt.Errorf("wrong answer: entry %d is %s", n, it.Key())
			}
			n++
		}
		err := it.Close()
		note(err)
		if err == nil && n != len(es) {
			return fmt.Errorf("wrong answer: %d entries of %d", n, len(es))
		}
	}
	return first
}

// located fails the test unless err names the file and a place in it.
func located(t *testing.T, err error, size int) {
	t.Helper()
	if errors.Is(err, ErrUnsupported) {
		return
	}
	var c *corrupt.Error
	if !errors.As(err, &c) || c.File != "000007.sst" || c.Offset < 0 || c.Offset > int64(size) {
		t.Fatalf("not located: %v", err)
	}
}

func TestEveryBitFlipped(t *testing.T) {
	es := smallEntries()
	for c, kind := range map[Compression]filter.Kind{NoCompression: filter.KindBlocked, SnappyCompression: filter.KindStandard} {
		f, m := build(t, WriterOptions{FileNum: 7, BlockSize: 128, Compression: c, FilterMillibits: 10_000, SizeFilter: sizeOf(kind)}, es, goldenSpans()...)
		whole := open(t, f, m, nil)
		if err := answers(whole, es); err != nil {
			t.Fatal(err)
		}
		filterFrom, filterTo := whole.footer.filter.offset, whole.footer.filter.end()
		for bit := range 8 * len(f.data) {
			at := uint64(bit / 8)
			f.data[at] ^= 1 << (bit % 8)
			r, err := Open(f, ReaderOptions{Name: "000007.sst", Cache: cache.New(4 << 10), WantSize: m.SizeBytes})
			if err == nil {
				err = answers(r, es)
				inFilter := at >= filterFrom && at < filterTo
				if s, bad := r.LoadFilter(); inFilter != (s == FilterBad) || inFilter != (bad != nil) {
					t.Fatalf("bit %d of byte %d: filter %s, %v", bit%8, at, s, bad)
				}
				if inFilter {
					if err != nil {
						t.Fatalf("a bad filter became an error of a lookup: %v", err)
					}
					err = r.Verify()
				}
			}
			if err == nil {
				t.Fatalf("bit %d of byte %d: not noticed", bit%8, at)
			}
			located(t, err, len(f.data))
			f.data[at] ^= 1 << (bit % 8)
		}
	}
}

// sizeOf decides for filters of a kind with 10 bits per key.
func sizeOf(kind filter.Kind) func(*Properties) (filter.Kind, uint32) {
	return func(*Properties) (filter.Kind, uint32) { return kind, 10_000 }
}

// TestFilterKinds writes, reads, verifies and damages tables with filters of
// each kind, and of a kind that the properties do not say.
func TestFilterKinds(t *testing.T) {
	for kind, n := range map[filter.Kind]int{filter.KindBlocked: 500, filter.KindStandard: 500, filter.KindFuse: filter.MinFuseKeys} {
		es := numbered(n)
		f, m := build(t, WriterOptions{FileNum: 7, FilterMillibits: 10_000, SizeFilter: sizeOf(kind), VerifyFilter: true}, es)
		r := open(t, f, m, nil)
		if err := r.Verify(); err != nil {
			t.Fatalf("%v: %v", kind, err)
		}
		p := m.Properties
		if state, err := r.LoadFilter(); state != FilterResident || p.FilterKind != kind || p.FilterKeys != uint64(n) || uint64(r.FilterBytes()) != m.FilterBytes {
			t.Errorf("%v: %v, %v, %+v, %d bytes", kind, state, err, p, r.FilterBytes())
		}
		if want := filter.ExpectedRate(kind, uint32(p.FilterMillibits)); p.FilterRate < 0.7*want || p.FilterRate > 1.3*want {
			t.Errorf("%v: rate %.5f, want about %.5f", kind, p.FilterRate, want)
		}
		h := r.footer.filter
		for i := range uint64(60) { // spread over the filter
			at, bit := h.offset+i*(h.length-1)/59, byte(1)<<(i%8)
			f.data[at] ^= bit
			damaged := open(t, f, m, nil)
			if state, err := damaged.LoadFilter(); state != FilterBad || err == nil {
				t.Fatalf("%v, byte %d: filter %v, %v", kind, at, state, err)
			}
			for j := 0; j < n; j += n/10 + 1 {
				if may, consulted := damaged.MayContain(filter.Hash([]byte(es[j].key))); !may || consulted {
					t.Fatalf("%v, byte %d: a bad filter says %v", kind, at, may)
				}
			}
			f.data[at] ^= bit
		}
		r.props.FilterKind = filter.KindNone
		var c *corrupt.Error
		if err := r.Verify(); !errors.As(err, &c) || c.What != "filter kind" {
			t.Errorf("%v: another kind in the properties: %v", kind, err)
		}
	}
}

func TestTruncatedAtEveryByte(t *testing.T) {
	f, m := build(t, WriterOptions{FileNum: 7, BlockSize: 128, FilterMillibits: 10_000}, smallEntries(), goldenSpans()...)
	for n := range f.data {
		cut := &memFile{data: f.data[:n]}
		for _, size := range []uint64{uint64(n), m.SizeBytes} {
			_, err := Open(cut, ReaderOptions{Name: "000007.sst", WantSize: size, WantChecksum: m.Checksum, CheckIdentity: true})
			if err == nil {
				t.Fatalf("opened %d bytes as %d", n, size)
			}
			located(t, err, len(f.data))
		}
	}
}

// Two whole blocks in each other's place pass their own checksums; the index
// knows better.
func TestSwappedBlocks(t *testing.T) {
	var es []entry
	for i := range 8 {
		es = append(es, entry{fmt.Sprintf("k%d", i), keys.MakeTrailer(1, keys.KindPut), []byte("same size")})
	}
	f, m := build(t, WriterOptions{FileNum: 7, BlockSize: 1}, es)
	r := open(t, f, m, nil)
	a, b := r.index.frame(2), r.index.frame(5)
	if a.length != b.length {
		t.Fatal("the blocks differ in length")
	}
	frame := bytes.Clone(f.data[a.offset:a.end()])
	copy(f.data[a.offset:], f.data[b.offset:b.end()])
	copy(f.data[b.offset:], frame)
	_, err := r.Get(nil, []byte("k2"), filter.Hash([]byte("k2")), 1)
	located(t, err, len(f.data))
}

// An offset within a decompressed block is none in the file: the error then
// gives the block's.
func TestDamageBelowTheCompression(t *testing.T) {
	for _, c := range []Compression{NoCompression, SnappyCompression} {
		f := &memFile{}
		w := NewWriter(f, WriterOptions{FileNum: 7, Compression: c})
		for _, e := range []struct {
			key      string
			valueLen int
		}{{"a", 5000}, {"b", 100}, {"c", 5000}} { // "a" fills a block
			if err := w.Add(keys.Make([]byte(e.key), 1, keys.KindPut), bytes.Repeat([]byte("v"), e.valueLen)); err != nil {
				t.Fatal(err)
			}
			if e.key == "b" {
				w.block.Add([]byte("bb"), keys.MakeTrailer(1, 77), nil, 0)
			}
		}
		m, err := w.Finish()
		if err != nil {
			t.Fatal(err)
		}
		r := open(t, f, m, nil)
		_, err = r.Get(nil, []byte("b"), filter.Hash([]byte("b")), 1)
		located(t, err, len(f.data))
		frame := r.index.frame(1)
		var at *corrupt.Error
		if !errors.As(err, &at) {
			t.Fatal(err)
		}
		want := int64(frame.offset)
		if c == NoCompression {
			want += 1 + 2 + 1 + 100 // after the entry of "b"
		}
		if at.Offset != want {
			t.Errorf("%s: offset %d, want %d: %v", c, at.Offset, want, err)
		}
	}
}

func TestMetaBitFlipsBelowTheChecksum(t *testing.T) {
	idx, props := goldenIndex(t), goldenProperties()
	for bit := range 8 * len(idx) {
		flipped := bytes.Clone(idx)
		flipped[bit/8] ^= 1 << (bit % 8)
		useIndex(flipped)
	}
	for n := range idx {
		if _, err := readIndex(idx[:n], 300); err == nil {
			t.Fatalf("%d bytes of %d are an index", n, len(idx))
		}
	}
	for bit := range 8 * len(props) {
		flipped := bytes.Clone(props)
		flipped[bit/8] ^= 1 << (bit % 8)
		readProperties(flipped)
	}
}

func useIndex(p []byte) {
	x, err := readIndex(p, 300)
	if err != nil {
		return
	}
	for i := range x.n() {
		sep := append(bytes.Clone(x.prefix), x.separator(i)...)
		if at, _ := x.find(sep); at > i || !x.endsWith(at, sep) {
			panic(fmt.Sprintf("separator %d found at %d", i, at))
		}
	}
	x.find(nil)
	x.find([]byte("\xff\xff"))
}

func TestLaterVersions(t *testing.T) {
	es := smallEntries()
	f, m := build(t, WriterOptions{FileNum: 7}, es)
	at := len(f.data) - 16
	binary.LittleEndian.PutUint32(f.data[at:], FormatVersion+1)
	// The rest of the footer need not even be one of ours.
	clear(f.data[len(f.data)-footerLen : at])
	_, err := Open(f, ReaderOptions{Name: "000007.sst", WantSize: m.SizeBytes})
	if !errors.Is(err, ErrUnsupported) || isCorrupt(err) {
		t.Fatalf("another version: %v", err)
	}

	props := goldenProperties()
	optional := codec.AppendLenBytes(binary.LittleEndian.AppendUint16(slices.Clone(props), 0x7000), []byte("?"))
	if _, err := readProperties(optional); err != nil {
		t.Fatalf("an optional property: %v", err)
	}
	needed := codec.AppendLenBytes(binary.LittleEndian.AppendUint16(slices.Clone(props), 0x8001), []byte("?"))
	if _, err := readProperties(needed); !errors.Is(err, ErrUnsupported) {
		t.Fatalf("a property that must be understood: %v", err)
	}
}

// A footer whose checksum is right, but whose handles are not.
func TestFooterHandles(t *testing.T) {
	for name, spoil := range map[string]func(f *footer){
		"gap":     func(f *footer) { f.filter.length-- },
		"overlap": func(f *footer) { f.index.offset-- },
		"beyond":  func(f *footer) { f.properties.length++ },
		"wrap":    func(f *footer) { f.filter.length = 1<<64 - 1 },
	} {
		ft := goldenFooter()
		spoil(&ft)
		buf, _ := ft.append(nil)
		if _, _, err := readFooter(buf, 1000); !errors.Is(err, corrupt.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A decoded length is refused before anybody allocates it.
func TestDecodedLenIsBounded(t *testing.T) {
	for _, claim := range []uint64{1 << 12, 1 << 20, 1 << 31, 1 << 40} {
		payload := binary.AppendUvarint(nil, claim)
		payload = append(payload, make([]byte, 100)...)
		if n, err := decodedLen(payload, SnappyCompression, block.MaxLen); !errors.Is(err, corrupt.ErrCorrupt) {
			t.Errorf("%d bytes out of 100: %d, %v", claim, n, err)
		}
	}
	dense := bytes.Repeat([]byte("a"), 1<<20)
	out, sum, _ := sealFrame(dense, 0, kindData, SnappyCompression, nil)
	if p, c, err := unframe(out, kindData, sum, block.MaxLen); err != nil || c != SnappyCompression || len(p) != 1<<20 {
		t.Errorf("the densest block: %d bytes, %s, %v", len(p), c, err)
	}
	if _, _, err := unframe(out, kindData, sum, 1<<20-1); !errors.Is(err, corrupt.ErrCorrupt) {
		t.Errorf("past the limit: %v", err)
	}
}

func FuzzIndex(f *testing.F) {
	f.Add(goldenIndex(f))
	f.Fuzz(func(t *testing.T, data []byte) { useIndex(data) })
}

func FuzzProperties(f *testing.F) {
	f.Add(goldenProperties())
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := readProperties(data)
		if err != nil {
			return
		}
		again, err := readProperties(p.append(nil))
		if err != nil || fmt.Sprint(*again) != fmt.Sprint(*p) {
			t.Fatalf("%+v became %+v, %v", p, again, err)
		}
	})
}

func FuzzFooter(f *testing.F) {
	buf, _ := goldenFooter().append(nil)
	f.Add(buf, uint64(1000))
	f.Fuzz(func(t *testing.T, data []byte, size uint64) {
		// Past the checksum, too: that is where the handles are looked at.
		if len(data) == footerLen {
			binary.LittleEndian.PutUint32(data[84:], codec.Checksum(footerType, data[:84], data[88:]))
		}
		if ft, _, err := readFooter(data, max(size, footerLen)); err == nil {
			if ft.filter.end() > size || ft.properties.end() != size-footerLen {
				t.Fatalf("%+v in a file of %d", ft, size)
			}
		}
	})
}

func FuzzFrame(f *testing.F) {
	out, _, _ := sealFrame(bytes.Repeat([]byte("a"), 100), 0, kindData, SnappyCompression, nil)
	f.Add(out)
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < frameTailLen {
			return
		}
		n := len(data) - frameTailLen
		sum := codec.ChecksumOf(data[n], data[:n])
		binary.LittleEndian.PutUint32(data[n+1:], sum)
		if p, _, err := unframe(data, kindData, sum, 1<<20); err == nil && len(p) > 1<<20 {
			t.Fatalf("decoded %d bytes", len(p))
		}
	})
}

// FuzzTable reads arbitrary bytes as a table, with their checksums as they are
// or made right.
func FuzzTable(f *testing.F) {
	for _, c := range []Compression{NoCompression, SnappyCompression} {
		file, _ := build(f, WriterOptions{FileNum: 7, BlockSize: 128, Compression: c, FilterMillibits: 10_000}, smallEntries(), goldenSpans()...)
		f.Add(file.data, false)
		f.Add(file.data, true)
	}
	f.Fuzz(func(t *testing.T, data []byte, sealed bool) {
		data = bytes.Clone(data)
		if sealed {
			damagetest.Seal(map[string][]byte{"000007.sst": data})
		}
		note := func(err error) {
			if err != nil {
				located(t, err, len(data))
			}
		}
		r, err := Open(&memFile{data: data}, ReaderOptions{Name: "000007.sst", Cache: cache.New(4 << 10), WantSize: uint64(len(data))})
		if err != nil {
			note(err)
			return
		}
		_, err = r.LoadFilter()
		note(err)
		note(r.Verify())
		_ = r.Bounds()
		for _, k := range []string{"", "gone", "key07", "key11", "\xff"} {
			_, err := r.Get(nil, []byte(k), filter.Hash([]byte(k)), keys.MaxSeqNum)
			note(err)
		}
		it := r.NewIter(IterOptions{})
		end := 22*len(data) + 1 // a snappy block decodes to no more
		n := 0
		for ok := it.First(); ok; ok = it.Next() {
			if n++; n > end {
				t.Fatal("a scan that does not end")
			}
		}
		for ok := it.Last(); ok; ok = it.Prev() {
			if n++; n > 2*end {
				t.Fatal("a backward scan that does not end")
			}
		}
		it.SeekGE([]byte("key07"), keys.MakeTrailer(3, keys.KindPut))
		it.Prev()
		it.SeekLT([]byte("key11"), keys.MakeTrailer(3, keys.KindPut))
		it.Next()
		note(it.Close())
	})
}
