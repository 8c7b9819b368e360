package memtable

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/cespare/xxhash/v2"

	"sievedb/internal/keys"
)

// keyShapes are the kinds of user keys that benchmarks and counts run over.
var keyShapes = []struct {
	name string
	make func(rng *rand.Rand, i int) []byte
}{
	{"random16digits", func(rng *rand.Rand, _ int) []byte { return fmt.Appendf(nil, "%016d", rng.Int64N(100_000_000)) }},
	{"randombytes", func(rng *rand.Rand, _ int) []byte {
		var b [16]byte
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b[:]
	}},
	{"sequential", func(_ *rand.Rand, i int) []byte { return fmt.Appendf(nil, "%016d", i) }},
	{"twotables", func(rng *rand.Rand, _ int) []byte {
		return fmt.Appendf(nil, "%s/%016d", [2]string{"order", "user"}[rng.IntN(2)], rng.Int64N(100_000_000))
	}},
}

// benchKeys returns n keys of a shape, and their hashes.
func benchKeys(shape, n int) ([][]byte, []uint64) {
	rng := rand.New(rand.NewPCG(7, uint64(shape)))
	userKeys, hashes := make([][]byte, n), make([]uint64, n)
	for i := range userKeys {
		userKeys[i] = keyShapes[shape].make(rng, i)
		hashes[i] = xxhash.Sum64(userKeys[i])
	}
	return userKeys, hashes
}

// fillTable adds the keys with a value of 114 bytes each.
func fillTable(tb testing.TB, userKeys [][]byte, hashes []uint64) *Table {
	tb.Helper()
	t := New(Options{})
	value := make([]byte, 114)
	for i, k := range userKeys {
		if err := t.Add(k, hashes[i], keys.MakeTrailer(keys.SeqNum(i+1), keys.KindPut), value); err != nil {
			tb.Fatal(err)
		}
	}
	return t
}

const benchEntries = 250_000 // a memtable of 32 MiB, roughly

func BenchmarkAdd(b *testing.B) {
	for shape := range keyShapes {
		b.Run(keyShapes[shape].name, func(b *testing.B) {
			userKeys, hashes := benchKeys(shape, benchEntries)
			value := make([]byte, 114)
			var t *Table
			i := benchEntries
			for b.Loop() {
				if i == benchEntries {
					t, i = New(Options{}), 0
				}
				if err := t.Add(userKeys[i], hashes[i], keys.MakeTrailer(keys.SeqNum(i+1), keys.KindPut), value); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
	}
}

func BenchmarkOverwrite(b *testing.B) {
	userKeys, hashes := benchKeys(0, 1000)
	value := make([]byte, 114)
	t := fillTable(b, userKeys, hashes)
	seq := keys.SeqNum(len(userKeys))
	for i := 0; b.Loop(); i = (i + 1) % len(userKeys) {
		if seq++; seq%benchEntries == 0 {
			t = fillTable(b, userKeys, hashes)
		}
		if err := t.Add(userKeys[i], hashes[i], keys.MakeTrailer(seq, keys.KindPut), value); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkGetHit(b *testing.B) {
	userKeys, hashes := benchKeys(0, benchEntries)
	t := fillTable(b, userKeys, hashes)
	b.ReportAllocs()
	for i := 0; b.Loop(); i = (i + 1) % benchEntries {
		if _, _, ok := t.Get(userKeys[i], hashes[i], keys.MaxSeqNum); !ok {
			b.Fatal("absent")
		}
	}
}

func BenchmarkGetMiss(b *testing.B) {
	userKeys, hashes := benchKeys(1, 2*benchEntries)
	t := fillTable(b, userKeys[:benchEntries], hashes)
	b.ReportAllocs()
	for i := benchEntries; b.Loop(); i++ {
		if i == len(userKeys) {
			i = benchEntries
		}
		if _, _, ok := t.Get(userKeys[i], hashes[i], keys.MaxSeqNum); ok {
			b.Fatal("present")
		}
	}
}

// BenchmarkGetOld reads one of 100,000 versions of one key.
func BenchmarkGetOld(b *testing.B) {
	const versions = 100_000
	t := New(Options{})
	hash := xxhash.Sum64String("hot")
	for i := range versions {
		if err := t.Add([]byte("hot"), hash, keys.MakeTrailer(keys.SeqNum(i+1), keys.KindPut), make([]byte, 100)); err != nil {
			b.Fatal(err)
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for b.Loop() {
		if _, _, ok := t.Get([]byte("hot"), hash, keys.SeqNum(1+rng.IntN(versions))); !ok {
			b.Fatal("absent")
		}
	}
}

func BenchmarkIterate(b *testing.B) {
	userKeys, hashes := benchKeys(0, benchEntries)
	t := fillTable(b, userKeys, hashes)
	for _, dir := range []string{"next", "prev"} {
		b.Run(dir, func(b *testing.B) {
			it := t.NewIter(nil, keys.MaxSeqNum)
			for b.Loop() {
				if dir == "next" && !it.Next() {
					it.First()
				}
				if dir == "prev" && !it.Prev() {
					it.Last()
				}
			}
		})
	}
}

func BenchmarkSeekGE(b *testing.B) {
	userKeys, hashes := benchKeys(0, benchEntries)
	t := fillTable(b, userKeys, hashes)
	it := t.NewIter(nil, keys.MaxSeqNum)
	for i := 0; b.Loop(); i = (i + 1) % benchEntries {
		if !it.SeekGE(userKeys[i], keys.SeekTrailer(keys.MaxSeqNum)) {
			b.Fatal("absent")
		}
	}
}

// BenchmarkAddUnderScans makes an iterator, and so a clone, every so many new
// keys: the price of copy-on-write.
func BenchmarkAddUnderScans(b *testing.B) {
	for _, every := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprint(every), func(b *testing.B) {
			userKeys, hashes := benchKeys(0, benchEntries)
			value := make([]byte, 114)
			const loaded = benchEntries / 2
			var t *Table
			i := benchEntries
			b.ReportAllocs()
			for b.Loop() {
				if i == benchEntries {
					b.StopTimer()
					t, i = fillTable(b, userKeys[:loaded], hashes), loaded
					b.StartTimer()
				}
				if i%every == 0 {
					t.NewIter(nil, keys.MaxSeqNum)
				}
				if err := t.Add(userKeys[i], hashes[i], keys.MakeTrailer(keys.SeqNum(i+1), keys.KindPut), value); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
	}
}

// BenchmarkNewIter covers a view that is there, the common case.
func BenchmarkNewIter(b *testing.B) {
	userKeys, hashes := benchKeys(0, 1000)
	t := fillTable(b, userKeys, hashes)
	var mu sync.Mutex
	b.ReportAllocs()
	for b.Loop() {
		t.NewIter(&mu, keys.MaxSeqNum)
	}
}

func BenchmarkRekey(b *testing.B) {
	userKeys, hashes := benchKeys(0, maxRekey)
	t := fillTable(b, userKeys, hashes)
	wrong := *t.order
	wrong.bases = [][]byte{[]byte("zz")}
	for b.Loop() {
		wrong.rekey(t.tree)
	}
}
