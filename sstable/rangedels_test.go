package sstable

import (
	"fmt"
	"strings"
	"testing"

	"sievedb/filter"
	"sievedb/internal/cache"
	"sievedb/internal/keys"
	"sievedb/internal/rangedel"
)

func span(start, end string, seqs ...keys.SeqNum) rangedel.Span {
	s := rangedel.Span{Start: []byte(start), End: []byte(end), Seqs: seqs}
	if end == "~" {
		s.End = nil
	}
	return s
}

func (b Bounds) String() string {
	end := fmt.Sprintf("%s]", b.Largest)
	if b.LargestExclusive {
		end = fmt.Sprintf("%s)", b.Largest)
	}
	if b.ToEnd {
		end = fmt.Sprintf("%s~", b.Largest)
	}
	return fmt.Sprintf("[%s, %s %d-%d", b.Smallest, end, b.SmallestSeq, b.LargestSeq)
}

// Invariant 4: the bounds cover entries and range tombstones, and the end of a
// range tombstone is exclusive.
func TestBounds(t *testing.T) {
	put := func(key string, seq keys.SeqNum) entry { return entry{key, keys.MakeTrailer(seq, keys.KindPut), nil} }
	for _, c := range []struct {
		entries []entry
		spans   []rangedel.Span
		want    string
	}{
		{[]entry{put("c", 5), put("m", 9)}, nil, "[c, m] 5-9"},
		{nil, []rangedel.Span{span("c", "m", 7, 3)}, "[c, m) 3-7"},
		{nil, []rangedel.Span{span("c", "~", 7)}, "[c, ~ 7-7"},
		{nil, []rangedel.Span{span("", "~", 7)}, "[, ~ 7-7"},
		{nil, []rangedel.Span{span("a", "b", 7, 3), span("b", "c", 2), span("d", "e", 9)}, "[a, e) 2-9"},
		{[]entry{put("c", 5), put("m", 9)}, []rangedel.Span{span("d", "e", 7)}, "[c, m] 5-9"},
		{[]entry{put("c", 5), put("m", 9)}, []rangedel.Span{span("d", "m", 7)}, "[c, m] 5-9"},
		{[]entry{put("c", 5), put("m", 9)}, []rangedel.Span{span("d", "m\x00", 12, 4)}, "[c, m\x00) 4-12"},
		{[]entry{put("c", 5), put("m", 9)}, []rangedel.Span{span("", "c", 7), span("x", "~", 8)}, "[, ~ 5-9"},
		{[]entry{put("c", 0)}, []rangedel.Span{span("b", "d", 7)}, "[b, d) 0-7"},
		{[]entry{put("", 5)}, []rangedel.Span{span("", "a", 4)}, "[, a) 4-5"},
	} {
		f, m := build(t, WriterOptions{FileNum: 7, FilterMillibits: 10_000}, c.entries, c.spans...)
		r := open(t, f, m, nil)
		if m.Bounds.String() != c.want || r.Bounds().String() != c.want {
			t.Errorf("entries %v, range tombstones %v: bounds %s, read %s, want %s", c.entries, c.spans, m.Bounds, r.Bounds(), c.want)
		}
		if got := fmt.Sprint(r.RangeDels().Spans()); got != fmt.Sprint(c.spans) {
			t.Errorf("range tombstones %s, want %v", got, c.spans)
		}
		var n uint64
		for _, s := range c.spans {
			n += uint64(len(s.Seqs))
		}
		if m.RangeDeletes != n || r.Properties().RangeDeletes != n || m.Entries != uint64(len(c.entries)) {
			t.Errorf("%d range tombstones and %d entries, read %d, want %d", m.RangeDeletes, m.Entries, r.Properties().RangeDeletes, n)
		}
		if err := r.Verify(); err != nil {
			t.Error(err)
		}
	}
}

// A table of range tombstones alone has no entry, no block and no filter.
func TestOnlyRangeTombstones(t *testing.T) {
	f, m := build(t, WriterOptions{FileNum: 7, FilterMillibits: 10_000}, nil, span("b", "d", 5))
	r := open(t, f, m, cache.New(1<<20))
	reads := f.reads.Load()
	key := []byte("c")
	if found, err := r.Get(nil, key, filter.Hash(key), keys.MaxSeqNum); found.OK || found.HasKey || err != nil {
		t.Errorf("Get: %+v, %v", found, err)
	}
	for _, noFill := range []bool{false, true} {
		it := r.NewIter(IterOptions{NoFill: noFill})
		if it.First() || it.Last() || it.SeekGE(key, 0) || it.SeekLT(key, 0) || it.SeekGE(nil, 0) || it.Next() || it.Prev() || it.Valid() {
			t.Error("an iterator stands on something")
		}
		if err := it.Close(); err != nil {
			t.Error(err)
		}
	}
	if r.ApproximateOffset(key) != 0 || m.FilterBytes != 0 || r.FilterState() != FilterNone || m.Properties.DataBlocks != 0 {
		t.Errorf("filter %s of %d bytes, %d blocks", r.FilterState(), m.FilterBytes, m.Properties.DataBlocks)
	}
	if n := f.reads.Load() - reads; n != 0 {
		t.Errorf("%d reads", n)
	}
}

// Many range tombstones do not fit the first read of Open.
func TestManyRangeTombstones(t *testing.T) {
	var spans []rangedel.Span
	for i := range 20_000 {
		spans = append(spans, span(fmt.Sprintf("key%06d", 2*i), fmt.Sprintf("key%06d", 2*i+1), keys.SeqNum(i+1)))
	}
	for _, c := range []Compression{NoCompression, SnappyCompression} {
		f, m := build(t, WriterOptions{FileNum: 7, Compression: c}, smallEntries(), spans...)
		r := open(t, f, m, nil)
		if reads := f.reads.Load(); reads != 2 {
			t.Errorf("opened with %d reads", reads)
		}
		if got := r.RangeDels().Covering([]byte("key030000x"), keys.MaxSeqNum); got != 15_001 {
			t.Errorf("covered by %d", got)
		}
		if err := answers(r, smallEntries()); err != nil {
			t.Error(err)
		}
	}
}

func TestAddRangeDeletesRefuses(t *testing.T) {
	w := NewWriter(&memFile{}, WriterOptions{})
	if err := w.AddRangeDeletes([]rangedel.Span{span("b", strings.Repeat("x", MaxUserKeyLen+1), 5)}); err == nil {
		t.Error("an end that is too long was taken")
	}
	w = NewWriter(&memFile{}, WriterOptions{})
	if err := w.AddRangeDeletes([]rangedel.Span{span("b", "c", 5)}); err != nil {
		t.Fatal(err)
	}
	if err := w.AddRangeDeletes([]rangedel.Span{span("d", "e", 5)}); err == nil {
		t.Error("range tombstones were added twice")
	}
	if _, err := w.Finish(); err == nil {
		t.Error("the error does not stick")
	}
	w = NewWriter(&memFile{}, WriterOptions{})
	if err := w.AddRangeDeletes(nil); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Finish(); err == nil {
		t.Error("a table of nothing was finished")
	}
}

// Properties that count other range tombstones than the table has are damage.
func TestRangeTombstonesAreCounted(t *testing.T) {
	f := &memFile{}
	w := NewWriter(f, WriterOptions{FileNum: 7})
	if err := w.AddRangeDeletes([]rangedel.Span{span("b", "c", 5)}); err != nil {
		t.Fatal(err)
	}
	w.props.RangeDeletes = 2
	m, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	_, err = Open(f, ReaderOptions{Name: "000007.sst", WantSize: m.SizeBytes})
	located(t, err, len(f.data))
}
