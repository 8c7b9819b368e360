package sstable

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"sievedb/filter"
	"sievedb/internal/cache"
	"sievedb/internal/keys"
	"sievedb/sstable/internal/block"
)

const benchEntries = 200_000

// benchKeys are sorted random 16-digit numbers; benchValue is 114 bytes.
var benchKeys = sync.OnceValue(func() (ks [][]byte) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range benchEntries {
		ks = append(ks, fmt.Appendf(nil, "%016d", rnd.Uint64N(1e16)))
	}
	slices.SortFunc(ks, bytes.Compare)
	return slices.CompactFunc(ks, bytes.Equal)
})

var benchValue = bytes.Repeat([]byte("v"), 114)

func benchTable(b *testing.B, c Compression) (*memFile, Meta) {
	f := &memFile{}
	w := NewWriter(f, WriterOptions{FileNum: 7, Compression: c, FilterMillibits: 10_000})
	for i, k := range benchKeys() {
		if err := w.Add(keys.Make(k, keys.SeqNum(i), keys.KindPut), benchValue); err != nil {
			b.Fatal(err)
		}
	}
	m, err := w.Finish()
	if err != nil {
		b.Fatal(err)
	}
	return f, m
}

func cachedReader(b *testing.B) *Reader {
	f, m := benchTable(b, NoCompression)
	r := open(b, f, m, cache.New(64<<20))
	it := r.NewIter(IterOptions{})
	for ok := it.First(); ok; ok = it.Next() {
	}
	if err := it.Close(); err != nil {
		b.Fatal(err)
	}
	return r
}

// shuffled returns the bench keys in random order.
func shuffled() [][]byte {
	ks := slices.Clone(benchKeys())
	rand.New(rand.NewPCG(3, 4)).Shuffle(len(ks), func(i, j int) { ks[i], ks[j] = ks[j], ks[i] })
	return ks
}

// Cold lines of a hit on a table that exceeds the processor's caches, estimated: 6
// of the index search, 1 hint, 1 slot, 2 of the block's end, 2 of the entry.
func BenchmarkGetPresent(b *testing.B) {
	r, ks := cachedReader(b), shuffled()
	dst := make([]byte, 0, 256)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		k := ks[i%len(ks)]
		h := filter.Hash(k)
		if may, _ := r.MayContain(h); !may {
			b.Fatal("denied")
		}
		if f, err := r.Get(dst, k, h, keys.MaxSeqNum); err != nil || !f.OK {
			b.Fatal(f, err)
		}
	}
}

// Cold lines: one, of the filter.
func BenchmarkGetAbsent(b *testing.B) {
	r, ks := cachedReader(b), shuffled()
	for i := range ks {
		ks[i] = append(slices.Clip(ks[i]), 'x')
	}
	dst := make([]byte, 0, 256)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		k := ks[i%len(ks)]
		h := filter.Hash(k)
		if may, _ := r.MayContain(h); !may {
			continue
		}
		if f, err := r.Get(dst, k, h, keys.MaxSeqNum); err != nil || f.OK {
			b.Fatal(f, err)
		}
	}
}

func BenchmarkSeekGE(b *testing.B) {
	r, ks := cachedReader(b), shuffled()
	it := r.NewIter(IterOptions{})
	defer it.Close()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if !it.SeekGE(ks[i%len(ks)], keys.SeekTrailer(keys.MaxSeqNum)) {
			b.Fatal(it.Error())
		}
	}
}

func BenchmarkNext(b *testing.B) {
	r := cachedReader(b)
	for _, o := range []struct {
		name   string
		noFill bool
		move   func(it *Iter) bool
		start  func(it *Iter) bool
	}{
		{"forward", false, (*Iter).Next, (*Iter).First},
		{"backward", false, (*Iter).Prev, (*Iter).Last},
		{"private", true, (*Iter).Next, (*Iter).First},
	} {
		b.Run(o.name, func(b *testing.B) {
			it := r.NewIter(IterOptions{NoFill: o.noFill})
			defer it.Close()
			b.ReportAllocs()
			b.SetBytes(16 + 114)
			for b.Loop() {
				if !o.move(it) {
					o.start(it)
				}
			}
		})
	}
}

// A miss: read from memory, checksum, decode, validate, insert with eviction.
func BenchmarkGetMiss(b *testing.B) {
	for _, c := range []Compression{NoCompression, SnappyCompression} {
		b.Run(c.String(), func(b *testing.B) {
			f, m := benchTable(b, c)
			r, ks := open(b, f, m, cache.New(64<<10)), shuffled()
			dst := make([]byte, 0, 256)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				k := ks[i%len(ks)]
				if _, err := r.Get(dst, k, filter.Hash(k), keys.MaxSeqNum); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Per entry.
func BenchmarkBuild(b *testing.B) {
	for _, c := range []Compression{NoCompression, SnappyCompression} {
		b.Run(c.String(), func(b *testing.B) {
			ks := benchKeys()
			w := NewWriter(&discard{}, WriterOptions{FileNum: 7, Compression: c, FilterMillibits: 10_000})
			b.ReportAllocs()
			b.SetBytes(16 + 114)
			i := 0
			for b.Loop() {
				if i == len(ks) {
					i = 0
					if _, err := w.Finish(); err != nil {
						b.Fatal(err)
					}
					w = NewWriter(&discard{}, WriterOptions{FileNum: 7, Compression: c, FilterMillibits: 10_000})
				}
				if err := w.Add(keys.Make(ks[i], 1, keys.KindPut), benchValue); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
	}
}

func BenchmarkOpen(b *testing.B) {
	f, m := benchTable(b, SnappyCompression)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Open(f, ReaderOptions{WantSize: m.SizeBytes}); err != nil {
			b.Fatal(err)
		}
	}
}

// The measurement behind docs/decisions/0001: one table's worth of blocks in
// memory, the resident index, and three ways to find a key in a block.
func BenchmarkDataBlock(b *testing.B) {
	ks := benchKeys()
	var ours, theirs [][]byte
	var idx indexBuilder
	var bb block.Builder
	bb.Reset(DefaultBlockSizeBytes)
	rb := restartBuilder{}
	bytesOurs, bytesTheirs := 0, 0
	finish := func(next []byte) {
		sep := bytes.Clone(bb.LastKey())
		if next != nil {
			sep = keys.Separator(nil, sep, next)
		}
		ours = append(ours, bb.Finish(nil))
		theirs = append(theirs, rb.finish())
		bytesOurs += len(ours[len(ours)-1])
		bytesTheirs += len(theirs[len(theirs)-1])
		if err := idx.add(sep, 100, 0); err != nil {
			b.Fatal(err)
		}
	}
	for i, k := range ks {
		if bb.Full(k) {
			finish(k)
		}
		trailer := keys.MakeTrailer(keys.SeqNum(i), keys.KindPut)
		bb.Add(k, trailer, benchValue, byte(filter.Hash(k)))
		rb.add(k, trailer, benchValue)
	}
	finish(nil)
	x, err := readIndex(idx.finish(nil), uint64(100*len(ours)))
	if err != nil {
		b.Fatal(err)
	}
	order := shuffled()
	dst := make([]byte, 0, 256)
	for _, v := range []struct {
		name  string
		bytes int
		find  func(i int, k []byte) []byte
	}{
		{"restart16", bytesTheirs, func(i int, k []byte) []byte { return restartGet(theirs[i], k, keys.MaxSeqNum) }},
		{"offsets", bytesOurs - len(ks), func(i int, k []byte) []byte {
			blk := block.Of(ours[i])
			if e := blk.SeekGE(k, keys.SeekTrailer(keys.MaxSeqNum)); e < blk.Len() {
				p := len(blk.Prefix())
				if suffix, _, valueOff := blk.Entry(e); bytes.HasPrefix(k, blk.Prefix()) && bytes.Equal(suffix, k[p:]) {
					return blk.Value(e, valueOff)
				}
			}
			return nil
		}},
		{"tags", bytesOurs, func(i int, k []byte) []byte {
			blk := block.Of(ours[i])
			v, _, _ := blk.Get(k, byte(filter.Hash(k)), keys.MaxSeqNum)
			return v
		}},
	} {
		b.Run(v.name, func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				k := order[i%len(order)]
				i, _ := x.find(k)
				value := v.find(i, k)
				if len(value) != len(benchValue) {
					b.Fatalf("%q: %d bytes", k, len(value))
				}
				dst = append(dst[:0], value...)
			}
			b.ReportMetric(float64(v.bytes)/float64(len(ks)), "bytes/entry")
		})
	}
}

// restartBuilder is the usual alternative: each key against the one before
// it, a whole key every 16 entries.
type restartBuilder struct {
	buf, last []byte
	restarts  []uint32
	n         int
}

func (b *restartBuilder) add(userKey []byte, trailer keys.Trailer, value []byte) {
	key := binary.LittleEndian.AppendUint64(bytes.Clone(userKey), uint64(trailer))
	shared := 0
	if b.n%16 == 0 {
		b.restarts = append(b.restarts, uint32(len(b.buf)))
	} else {
		shared = keys.CommonPrefixLen(b.last, key)
	}
	b.buf = binary.AppendUvarint(b.buf, uint64(shared))
	b.buf = binary.AppendUvarint(b.buf, uint64(len(key)-shared))
	b.buf = binary.AppendUvarint(b.buf, uint64(len(value)))
	b.buf = append(append(b.buf, key[shared:]...), value...)
	b.last = key
	b.n++
}

func (b *restartBuilder) finish() []byte {
	for _, r := range b.restarts {
		b.buf = binary.LittleEndian.AppendUint32(b.buf, r)
	}
	out := binary.LittleEndian.AppendUint32(b.buf, uint32(len(b.restarts)))
	*b = restartBuilder{}
	return out
}

func restartGet(data, userKey []byte, snapshot keys.SeqNum) []byte {
	n := int(binary.LittleEndian.Uint32(data[len(data)-4:]))
	end := len(data) - 4 - 4*n
	restarts := data[end:]
	var buf [64]byte
	key := buf[:0]
	entry := func(off int) (value []byte, next int) {
		shared, off := uvarintAt(data, off)
		unshared, off := uvarintAt(data, off)
		valueLen, off := uvarintAt(data, off)
		key = append(key[:shared], data[off:off+int(unshared)]...)
		off += int(unshared)
		return data[off : off+int(valueLen)], off + int(valueLen)
	}
	// before reports whether the decoded key is before the one looked for.
	before := func() bool {
		c := bytes.Compare(key[:len(key)-8], userKey)
		return c < 0 || c == 0 && !keys.Trailer(binary.LittleEndian.Uint64(key[len(key)-8:])).Visible(snapshot)
	}
	lo, hi := 0, n-1
	for lo < hi {
		mid := (lo + hi + 1) / 2
		key = key[:0]
		if entry(int(binary.LittleEndian.Uint32(restarts[4*mid:]))); before() {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	key = key[:0]
	for off := int(binary.LittleEndian.Uint32(restarts[4*lo:])); off < end; {
		var value []byte
		if value, off = entry(off); !before() {
			if bytes.Equal(key[:len(key)-8], userKey) {
				return value
			}
			return nil
		}
	}
	return nil
}

func uvarintAt(data []byte, off int) (v uint64, next int) {
	v, n := binary.Uvarint(data[off:])
	return v, off + n
}
