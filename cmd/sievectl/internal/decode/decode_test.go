package decode

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/golang/snappy"

	"sievedb/filter"
	"sievedb/internal/batch"
	"sievedb/internal/corrupt"
	"sievedb/internal/keys"
	"sievedb/internal/manifest"
	"sievedb/internal/record"
	"sievedb/sstable"
	"sievedb/vfs"
	"sievedb/wal"
)

// newTable returns the bytes of a table with n user keys, each with two
// versions and the value that value returns.
func newTable(t testing.TB, n int, c sstable.Compression, value func(i int) []byte) []byte {
	t.Helper()
	return newTableOf(t, filter.KindBlocked, n, c, value)
}

// newTableOf is newTable with a filter of a kind.
func newTableOf(t testing.TB, kind filter.Kind, n int, c sstable.Compression, value func(i int) []byte) []byte {
	t.Helper()
	fsys := vfs.NewMem()
	f, err := fsys.Create("t")
	if err != nil {
		t.Fatal(err)
	}
	w := sstable.NewWriter(f, sstable.WriterOptions{FileNum: 7, BlockSize: 300, Compression: c, FilterMillibits: 10_000,
		SizeFilter: func(*sstable.Properties) (filter.Kind, uint32) { return kind, 10_000 }})
	for i := range n {
		k := fmt.Appendf(nil, "key%06d", i)
		if err := errors.Join(w.Add(keys.Make(k, keys.SeqNum(2*i+2), keys.KindPut), value(i)),
			w.Add(keys.Make(k, keys.SeqNum(2*i+1), keys.KindDelete), nil)); err != nil {
			t.Fatal(err)
		}
	}
	m, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, m.SizeBytes)
	if _, err := f.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	return b
}

func shortValue(i int) []byte { return fmt.Appendf(nil, "value of %d, value of %d", i, i) }

// toFile writes b to a file of that name.
func toFile(t testing.TB, name string, b []byte) *File {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestTableAgrees reads tables with this decoder and with the store's.
func TestTableAgrees(t *testing.T) {
	for _, c := range []sstable.Compression{sstable.NoCompression, sstable.SnappyCompression} {
		f := toFile(t, "000007.sst", newTable(t, 500, c, shortValue))
		table, err := ReadTable(f, f.Size)
		if err != nil || len(table.Problems) > 0 || table.Scanned || len(table.Blocks) < 20 {
			t.Fatalf("%v: %v %v, %d blocks", c, err, table.Problems, len(table.Blocks))
		}
		r, err := sstable.Open(f, sstable.ReaderOptions{Name: f.Name, WantSize: uint64(f.Size)})
		if err != nil {
			t.Fatal(err)
		}
		it := r.NewIter(sstable.IterOptions{})
		ok := it.First()
		for i := range table.Blocks {
			entries, compressed, err := table.Entries(i)
			if err != nil || compressed != (c == sstable.SnappyCompression) {
				t.Fatal(err, compressed)
			}
			for _, e := range entries {
				if !ok || keys.Compare(e.InternalKey, it.Key()) != 0 || !bytes.Equal(e.Value, it.Value()) {
					t.Fatalf("%v, want %v", e, it.Key())
				}
				ok = it.Next()
			}
		}
		if ok || it.Close() != nil {
			t.Errorf("%v: the store has more: %v", c, it.Key())
		}
		p := r.Properties()
		for tag, want := range map[uint16]uint64{TagEntries: p.Entries, TagUserKeys: p.UserKeys, TagLargestSeq: uint64(p.LargestSeq)} {
			if got, ok := table.Number(tag); !ok || got != want {
				t.Errorf("property %d is %d, want %d", tag, got, want)
			}
		}
		if table.Filter.Keys() != p.FilterKeys || table.Footer.Checksum != r.Checksum() {
			t.Errorf("%d keys in the filter, footer %#x", table.Filter.Keys(), table.Footer.Checksum)
		}
	}
}

// TestScan takes the footer away: the same blocks must be found, also if their
// values are made of the blocks of another table.
func TestScan(t *testing.T) {
	inner := newTable(t, 30, sstable.NoCompression, shortValue)
	innerSnappy := newTable(t, 30, sstable.SnappyCompression, shortValue)
	for name, b := range map[string][]byte{
		"raw":           newTable(t, 300, sstable.NoCompression, shortValue),
		"snappy":        newTable(t, 300, sstable.SnappyCompression, shortValue),
		"standard":      newTableOf(t, filter.KindStandard, 300, sstable.NoCompression, shortValue),
		"fuse":          newTableOf(t, filter.KindFuse, filter.MinFuseKeys, sstable.SnappyCompression, func(int) []byte { return nil }),
		"one":           newTable(t, 1, sstable.NoCompression, shortValue),
		"copies":        newTable(t, 20, sstable.NoCompression, func(int) []byte { return inner }),
		"snappy copies": newTable(t, 20, sstable.NoCompression, func(int) []byte { return innerSnappy }),
	} {
		f := toFile(t, "000007.sst", b)
		want, err := ReadTable(f, f.Size)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)-1] ^= 1
		f = toFile(t, "000007.sst", b)
		got, err := ReadTable(f, f.Size)
		if err != nil || !got.Scanned || len(got.Problems) != 1 || got.DataEnd != want.DataEnd {
			t.Errorf("%s: %v, scanned %t, %v, data up to %d of %d", name, err, got.Scanned, got.Problems, got.DataEnd, want.DataEnd)
		}
		if len(got.Blocks) != len(want.Blocks) {
			t.Fatalf("%s: %d blocks, want %d", name, len(got.Blocks), len(want.Blocks))
		}
		for i, w := range want.Blocks {
			if g := got.Blocks[i]; g.Offset != w.Offset || g.Length != w.Length || g.Sum != w.Sum {
				t.Errorf("%s: block %d is %+v, want %+v", name, i, g, w)
			}
		}
	}
}

func TestSnappyLen(t *testing.T) {
	const seed = 3
	r := rand.New(rand.NewPCG(seed, 0))
	for n := range 400 {
		b := make([]byte, 1+r.IntN(1+n*n)) // up to 160,000 bytes: every form of length
		for i := range b {
			b[i] = byte(r.IntN(1 + n%9*30))
		}
		if n%3 == 0 {
			b = bytes.Repeat(b, 3)
		}
		enc := snappy.Encode(nil, b)
		if got := snappyLen(append(bytes.Clone(enc), "what follows"...)); got != len(enc) {
			t.Fatalf("seed %d, round %d: a block of %d bytes has %d, want %d", seed, n, len(b), got, len(enc))
		}
		if cut := r.IntN(len(enc)); snappyLen(enc[:cut]) != 0 {
			t.Fatalf("seed %d, round %d: %d of %d bytes are a block", seed, n, cut, len(enc))
		}
	}
}

// newLog returns a segment of n batches, the last of which holds a copy of the
// first, and where each begins, and the end.
func newLog(t testing.TB, n int) (b []byte, offsets []int64) {
	t.Helper()
	dir := t.TempDir()
	l, err := wal.Create(wal.Options{FS: vfs.OS(), Dir: dir, Store: wal.StoreID{1, 2, 3}}, 9)
	if err != nil {
		t.Fatal(err)
	}
	offsets = []int64{wal.HeaderLen}
	for i := range n {
		var ops batch.Batch
		ops.Put(fmt.Appendf(nil, "key%d", i), shortValue(i))
		ops.Delete([]byte("gone"))
		if i == n/2 { // more than one chunk
			ops.Put([]byte("large"), make([]byte, record.MaxPayload+100))
		}
		if i == n-1 {
			if err := l.Flush(); err != nil {
				t.Fatal(err)
			}
			all, err := os.ReadFile(filepath.Join(dir, wal.SegmentName(9)))
			if err != nil {
				t.Fatal(err)
			}
			ops.Put([]byte("copy"), all[offsets[0]:offsets[1]])
		}
		head := batch.AppendHeader(nil, keys.SeqNum(1+3*i), ops.Count())
		pos, err := l.Append(head, ops.Ops(), true)
		if err != nil {
			t.Fatal(err)
		}
		offsets = append(offsets, int64(pos))
	}
	if _, _, err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if b, err = os.ReadFile(filepath.Join(dir, wal.SegmentName(9))); err != nil {
		t.Fatal(err)
	}
	return b, offsets
}

// walk returns the offsets of the batches, and the gaps.
func walk(t *testing.T, b []byte) (offsets []int64, gaps []Gap) {
	t.Helper()
	f := toFile(t, "000009.wal", b)
	gaps, err := WalkSegment(f, 9, f.Size, func(b *Batch) error {
		offsets = append(offsets, b.Offset)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return offsets, gaps
}

// TestSegmentDamage damages each record in turn: the others must be read, and
// the gap be the record.
func TestSegmentDamage(t *testing.T) {
	b, offsets := newLog(t, 9)
	h, err := ReadSegmentHeader(toFile(t, "000009.wal", b))
	if err != nil || h.Number != 9 || h.Store != (wal.StoreID{1, 2, 3}) {
		t.Fatal(h, err)
	}
	got, gaps := walk(t, b)
	if !slices.Equal(got, offsets[:9]) || len(gaps) > 0 {
		t.Fatal(got, gaps)
	}
	for i, at := range offsets[:9] {
		for _, add := range []int64{0, 4, 7, 8, 12, 16, offsets[i+1] - at - 1} {
			bad := bytes.Clone(b)
			bad[at+add] ^= 0x40
			got, gaps := walk(t, bad)
			if !slices.Equal(got, slices.Delete(slices.Clone(offsets[:9]), i, i+1)) {
				t.Errorf("record %d, byte %d: read %v", i, add, got)
			}
			if len(gaps) != 1 || gaps[0].Offset != at || gaps[0].End != offsets[i+1] || !errors.Is(gaps[0].Cause, corrupt.ErrCorrupt) {
				t.Errorf("record %d, byte %d: gaps %v, want %d to %d", i, add, gaps, at, offsets[i+1])
			}
		}
	}
	two := bytes.Clone(b)
	two[offsets[2]+20] ^= 1
	two[offsets[3]+20] ^= 1
	if got, gaps := walk(t, two); len(got) != 7 || len(gaps) != 1 || gaps[0].End != offsets[4] {
		t.Errorf("two neighbours: %v %v", got, gaps)
	}
	if got, gaps := walk(t, append(bytes.Clone(b), make([]byte, 5000)...)); len(got) != 9 || len(gaps) > 0 {
		t.Errorf("zeros at the end: %v %v", got, gaps)
	}
	if got, gaps := walk(t, b[:offsets[8]+5]); len(got) != 8 || len(gaps) != 1 || !gaps[0].Torn {
		t.Errorf("cut: %v %v", got, gaps)
	}
}

// TestManifestAgrees reads a manifest with this decoder and with the store's,
// and then with each byte of it changed.
func TestManifestAgrees(t *testing.T) {
	dir := t.TempDir()
	meta := func(n keys.FileNum, lo, hi string) *manifest.TableMeta {
		return &manifest.TableMeta{FileNum: n, SizeBytes: uint64(n) * 1000, Checksum: uint32(n), Smallest: []byte(lo), Largest: []byte(hi),
			SmallestSeq: 1, LargestSeq: 2, Entries: 3, Deletes: 1, UserKeys: 2, RawBytes: 300, FilterBytes: 400}
	}
	st := &manifest.State{Version: &manifest.Version{}, NextFileNum: 9, LastSeq: 5, StoreID: [16]byte{7}, Segments: []manifest.Segment{{FileNum: 3}}}
	st.Version.Levels[2] = []*manifest.TableMeta{meta(4, "a", "c"), meta(5, "", "")}
	st.Version.Levels[2][0], st.Version.Levels[2][1] = st.Version.Levels[2][1], st.Version.Levels[2][0]
	l, err := manifest.Create(vfs.OS(), dir, 8, st)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []*manifest.Edit{
		{NextFileNum: 20, AddedSegments: []keys.FileNum{10}, EndedSegments: []manifest.SegmentEnd{{FileNum: 3, SizeBytes: 77}}},
		{EndedSegments: []manifest.SegmentEnd{{FileNum: 3, SizeBytes: 77, Sealed: true}}},
		{LastSeq: 50, OldestSegment: 10, Added: []manifest.LevelTable{{Level: 0, Meta: meta(11, "b", "x")}}},
		{Removed: []manifest.LevelFile{{Level: 2, FileNum: 4}}, Added: []manifest.LevelTable{{Level: 3, Meta: meta(4, "a", "c")}}},
	} {
		if err := l.Append(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(l.Vouch(), l.Close()); err != nil {
		t.Fatal(err)
	}
	want, err := manifest.Load(vfs.OS(), dir)
	if err != nil {
		t.Fatal(err)
	}
	cur, err := ReadCurrent(dir)
	if err != nil || cur.Manifest != 8 || cur.DurableBytes != l.SizeBytes() {
		t.Fatal(cur, err)
	}
	f, err := OpenFile(filepath.Join(dir, manifest.ManifestName(8)))
	if err != nil {
		t.Fatal(err)
	}
	if h, err := ReadManifestHeader(f); err != nil || h.Number != 8 || h.Store != st.StoreID {
		t.Fatal(h, err)
	}
	got := &manifest.State{Version: &manifest.Version{}, ManifestNum: 8, StoreID: st.StoreID}
	var places [][2]int64
	gaps, err := WalkManifest(f, 8, func(e *Edit) error {
		places = append(places, [2]int64{e.Offset, e.End})
		got, err = got.Apply(&e.Edit)
		return err
	})
	if err != nil || len(gaps) > 0 || len(places) != 5 {
		t.Fatal(err, gaps, places)
	}
	if got.Version.String() != want.Version.String() || fmt.Sprint(got.Segments, got.LastSeq, got.NextFileNum) != fmt.Sprint(want.Segments, want.LastSeq, want.NextFileNum) {
		t.Errorf("%v, want %v", got, want)
	}
	if got, want := *got.Version.Levels[3][0], *meta(4, "a", "c"); fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Errorf("%+v, want %+v", got, want)
	}

	b, err := os.ReadFile(f.path)
	if err != nil {
		t.Fatal(err)
	}
	for at := manifestHeaderLen; at < len(b); at++ {
		bad := bytes.Clone(b)
		bad[at] ^= 1
		n := 0
		f := toFile(t, f.Name, bad)
		gaps, err := WalkManifest(f, 8, func(*Edit) error { n++; return nil })
		i := slices.IndexFunc(places, func(p [2]int64) bool { return int64(at) < p[1] })
		if err != nil || n != 4 || len(gaps) != 1 || [2]int64{gaps[0].Offset, gaps[0].End} != places[i] {
			t.Fatalf("byte %d: %d edits, %v, %v", at, n, gaps, err)
		}
	}
	for at := range manifestHeaderLen {
		bad := bytes.Clone(b)
		bad[at] ^= 1
		_, err := ReadManifestHeader(toFile(t, f.Name, bad))
		if version := at >= 8 && at < 12; err == nil || errors.Is(err, corrupt.ErrCorrupt) == version {
			t.Errorf("byte %d of the header: %v", at, err)
		}
	}
}

// TestUnknownField has a field that may be skipped, and one that may not.
func TestUnknownField(t *testing.T) {
	e, err := decodeEdit([]byte{2, 1, 9, 0x90, 2, 1, 2})
	if err != nil || e.LastSeq != 9 || !slices.Equal(e.Skipped, []uint8{0x90}) {
		t.Errorf("%+v %v", e, err)
	}
	if _, err := decodeEdit([]byte{2, 1, 9, 0x10, 2, 1, 2}); !errors.Is(err, corrupt.ErrCorrupt) {
		t.Errorf("a field that must be understood: %v", err)
	}
}

// TestTableFlips changes each byte of a small table: whatever is read is what
// was written, and what is not is told.
func TestTableFlips(t *testing.T) {
	b := newTable(t, 12, sstable.SnappyCompression, shortValue)
	want := map[string]string{}
	read := func(b []byte) (n int, told bool) {
		f := toFile(t, "000007.sst", b)
		table, err := ReadTable(f, f.Size)
		if err != nil {
			return 0, true
		}
		told = len(table.Problems) > 0
		for i := range table.Blocks {
			entries, _, err := table.Entries(i)
			told = told || err != nil
			for _, e := range entries {
				if w, ok := want[e.String()]; ok && w != string(e.Value) {
					t.Errorf("%v has the value %q, want %q", e, e.Value, w)
				} else if !ok && len(want) == 24 {
					t.Errorf("%v was never written", e)
				}
				want[e.String()] = string(e.Value)
				n++
			}
		}
		return n, told
	}
	if n, told := read(b); n != 24 || told {
		t.Fatal(n, told)
	}
	for at := range b {
		bad := bytes.Clone(b)
		bad[at] ^= 1 << (at % 8)
		if _, told := read(bad); !told {
			t.Errorf("byte %d of %d: nothing was noticed", at, len(b))
		}
	}
	for n := range b {
		if _, told := read(b[:n]); !told {
			t.Errorf("%d of %d bytes: nothing was noticed", n, len(b))
		}
	}
}

// TestWholeButWrong has parts whose own checksums are right in the wrong place:
// blocks that are swapped, and the index of another table.
func TestWholeButWrong(t *testing.T) {
	b := newTable(t, 300, sstable.NoCompression, shortValue)
	f := toFile(t, "000007.sst", b)
	table, err := ReadTable(f, f.Size)
	if err != nil {
		t.Fatal(err)
	}
	i, j := 0, 0
	byLength := map[uint64]int{}
	for n, b := range table.Blocks {
		if other, ok := byLength[b.Length]; ok {
			i, j = other, n
		}
		byLength[b.Length] = n
	}
	if i == j {
		t.Fatal("no two blocks have the same length")
	}
	swapped := bytes.Clone(b)
	copy(swapped[table.Blocks[i].Offset:], b[table.Blocks[j].Offset:table.Blocks[j].End()])
	f = toFile(t, "000007.sst", swapped)
	if table, err = ReadTable(f, f.Size); err != nil {
		t.Fatal(err)
	}
	if entries, _, err := table.Entries(i); !errors.Is(err, corrupt.ErrCorrupt) {
		t.Errorf("block %d holds %v (%v)", j, entries[0], err)
	}

	twin := newTable(t, 300, sstable.NoCompression, func(i int) []byte { return bytes.ToUpper(shortValue(i)) })
	h := table.Footer.Index
	copy(twin[h.Offset:h.Offset+h.Length], b[h.Offset:h.Offset+h.Length])
	f = toFile(t, "000007.sst", twin)
	if table, err = ReadTable(f, f.Size); err != nil || len(table.Problems) != 1 || !table.Scanned {
		t.Errorf("%v %v, scanned %t", err, table.Problems, table.Scanned)
	}
}

// badDisk fails to read one page.
type badDisk struct {
	b   []byte
	bad int64
}

func (d badDisk) ReadAt(p []byte, off int64) (int, error) {
	if off < d.bad+pageBytes && off+int64(len(p)) > d.bad {
		return 0, errors.New("input/output error")
	}
	return bytes.NewReader(d.b).ReadAt(p, off)
}

func TestUnreadablePage(t *testing.T) {
	want := bytes.Repeat([]byte("abcdefg"), 3000)
	f := &File{Size: int64(len(want))}
	got := make([]byte, len(want)+10)
	n, err := f.readPages(badDisk{want, 2 * pageBytes}, got, 0)
	clear(want[2*pageBytes : 3*pageBytes])
	if n != len(want) || !errors.Is(err, io.EOF) || !bytes.Equal(got[:n], want) {
		t.Errorf("%d bytes, %v", n, err)
	}
}

func FuzzLog(f *testing.F) {
	b, offsets := newLog(f, 2)
	f.Add(b[:offsets[1]])
	f.Add(append(bytes.Clone(b[:offsets[1]]), b[:offsets[1]]...))
	path := filepath.Join(f.TempDir(), "000009.wal")
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		file, err := OpenFile(path)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = ReadSegmentHeader(file)
		_, _ = ReadManifestHeader(file)
		end := int64(wal.HeaderLen)
		gaps, err := WalkSegment(file, 9, file.Size, func(b *Batch) error {
			if b.Offset < end || b.End > file.Size {
				t.Fatalf("a batch from %d to %d, behind %d", b.Offset, b.End, end)
			}
			end = b.End
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for i, g := range gaps {
			if g.Offset >= g.End || g.End > file.Size || i > 0 && g.Offset <= gaps[i-1].End {
				t.Fatalf("gap %d of %v", i, gaps)
			}
		}
	})
}

func FuzzTable(f *testing.F) {
	f.Add(newTable(f, 3, sstable.NoCompression, shortValue))
	f.Add(newTable(f, 3, sstable.SnappyCompression, shortValue))
	path := filepath.Join(f.TempDir(), "000007.sst")
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		file, err := OpenFile(path)
		if err != nil {
			t.Fatal(err)
		}
		table, err := ReadTable(file, file.Size)
		if err != nil {
			return
		}
		end := uint64(0)
		for i, at := range table.Blocks {
			if at.Offset < end || at.End() > uint64(len(b)) {
				t.Fatalf("block %d: %+v", i, at)
			}
			end = at.End()
			_, _, _ = table.Entries(i)
		}
		_, _ = decodeBlock(b)
		_, _ = decodeIndex(b, uint64(len(b)))
		_, _ = decodeEdit(b)
		_, _ = decodeProperties(b)
	})
}
