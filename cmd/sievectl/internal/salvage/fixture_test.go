package salvage

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sievedb"
	"sievedb/cmd/sievectl/internal/decode"
	"sievedb/internal/manifest"
	"sievedb/vfs"
)

// history is every value that a key ever had, in order; nil is a delete.
type history map[string][][]byte

// newest is the content of the store.
func (h history) newest() map[string]string {
	m := map[string]string{}
	for k, values := range h {
		if v := values[len(values)-1]; v != nil {
			m[k] = string(v)
		}
	}
	return m
}

// fixture is a store with several levels, zeroed sequence numbers, level 0, and
// records in the WAL that no table has.
type fixture struct {
	dir     string
	files   map[string][]byte
	history history
	state   *manifest.State
}

func options(c sievedb.Compression, l0Tables int) *sievedb.Options {
	return &sievedb.Options{MemtableBytes: 16 << 10, TableBytes: 4 << 10, BlockBytes: 512, Compression: c,
		L0CompactTables: l0Tables, L0StopTables: 1000, Durability: sievedb.SyncNever}
}

// stores are the healthy fixtures, which no test changes; TestMain removes them.
var (
	stores    = map[sievedb.Compression]*fixture{}
	storesDir string
)

func TestMain(m *testing.M) {
	var err error
	if storesDir, err = os.MkdirTemp("", "salvage"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(storesDir)
	os.Exit(code)
}

// store returns a store that was closed.
func store(t *testing.T, c sievedb.Compression) *fixture {
	t.Helper()
	if stores[c] == nil {
		stores[c] = makeStore(t, filepath.Join(storesDir, c.String()), c, false)
	}
	return stores[c]
}

// makeStore fills a store by a seeded history and closes it, or copies it as a
// crash would leave it.
func makeStore(t *testing.T, dir string, c sievedb.Compression, crash bool) *fixture {
	t.Helper()
	const seed = 11
	r := rand.New(rand.NewPCG(seed, uint64(c)))
	db, err := sievedb.Open(dir, options(c, 3))
	if err != nil {
		t.Fatal(err)
	}
	h := history{}
	write := func(n int) {
		t.Helper()
		for range n {
			key := fmt.Sprintf("user:%04d", r.IntN(1500))
			value := fmt.Appendf(nil, "%d-%s", len(h[key]), strings.Repeat(key, 1+r.IntN(20)))
			if r.IntN(4) == 0 {
				value = nil
				err = db.Delete([]byte(key))
			} else {
				err = db.Put([]byte(key), value)
			}
			if err != nil {
				t.Fatal(err)
			}
			h[key] = append(h[key], value)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	write(2500)
	must(db.Put(nil, []byte("of the empty key")))
	h[""] = [][]byte{[]byte("of the empty key")}
	must(db.Compact(t.Context(), nil, nil)) // to the bottom
	write(500)
	must(db.Close())
	// From here on nothing is compacted, so that level 0 and the log are there.
	db, err = sievedb.Open(dir, options(c, 1000))
	must(err)
	for range 2 {
		write(40)
		must(db.Flush(t.Context()))
	}
	write(60)
	must(db.Sync())
	f := &fixture{dir: dir, history: h}
	for try := 0; crash; try++ { // until what is obsolete was removed
		f.dir = t.TempDir()
		err := os.CopyFS(f.dir, os.DirFS(dir))
		if err == nil {
			segments, _ := filepath.Glob(filepath.Join(f.dir, "*.wal"))
			tables, _ := filepath.Glob(filepath.Join(f.dir, "*.sst"))
			f.state, err = manifest.Load(vfs.OS(), f.dir)
			if err == nil && len(segments) == len(f.state.Segments) && len(tables) == f.state.Version.Tables() {
				break
			}
		}
		if try == 1000 {
			t.Fatal(err)
		}
	}
	must(db.Close())
	f.files = readAll(t, f.dir)
	f.state, err = manifest.Load(vfs.OS(), f.dir)
	must(err)
	return f
}

func readAll(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	names, err := vfs.OS().List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if files[name], err = os.ReadFile(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// with returns a directory with the fixture's files, one of them changed; a nil
// content removes it. Nothing may be written to the others, which are links
// where there are links.
func (f *fixture) with(t *testing.T, changed string, content []byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, b := range f.files {
		to := filepath.Join(dir, name)
		if name == changed || os.Link(filepath.Join(f.dir, name), to) == nil {
			continue
		}
		if err := os.WriteFile(to, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if content != nil {
		if err := os.WriteFile(filepath.Join(dir, changed), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// repaired repairs src and returns the content of the result. src must stay as it
// is.
func repaired(t *testing.T, src string) (map[string]string, *Report) {
	t.Helper()
	before := sums(t, src)
	dst, mem := "new", vfs.NewMem() // syncing a disk takes its time
	r, err := repair(src, dst, &sievedb.Options{MustBeNew: true, FS: mem})
	if err != nil {
		t.Fatal(err)
	}
	if after := sums(t, src); !maps.Equal(before, after) {
		t.Fatalf("the source changed: %v, then %v", before, after)
	}
	db, err := sievedb.Open(dst, &sievedb.Options{MustExist: true, FS: mem})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	it := db.All()
	for k, v := range it.All() {
		got[string(k)] = string(v)
	}
	if err := it.Err(); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if uint64(len(got)) != r.KeysWritten {
		t.Errorf("%d keys written, %d there", r.KeysWritten, len(got))
	}
	return got, r
}

func sums(t *testing.T, dir string) map[string]uint32 {
	sums := map[string]uint32{}
	for name, b := range readAll(t, dir) {
		sums[name] = crc32.ChecksumIEEE(b)
	}
	return sums
}

// compare wants the newest value of every key, but of those in lost, and of
// these a value that the key once had, or none. It returns the number of keys
// in lost that are not as they should be.
func (f *fixture) compare(t *testing.T, got map[string]string, lost map[string]bool) (wrong int) {
	t.Helper()
	want := f.history.newest()
	all := maps.Clone(got)
	maps.Copy(all, want)
	for k := range all {
		g, there := got[k]
		w, should := want[k]
		if g == w && there == should {
			continue
		}
		if !lost[k] {
			t.Errorf("key %q is %q (%t), want %q (%t)", k, g, there, w, should)
		}
		wrong++
		if there && !slices.ContainsFunc(f.history[k], func(v []byte) bool { return v != nil && string(v) == g }) {
			t.Errorf("key %q has the value %q, which it never had", k, g)
		}
	}
	return wrong
}

// tables calls do for each table of the store, with its parts.
func (f *fixture) tables(t *testing.T, do func(level int, name string, table *decode.Table)) {
	t.Helper()
	for level, metas := range f.state.Version.Levels {
		for _, m := range metas {
			name := fmt.Sprintf("%06d.sst", m.FileNum)
			file, err := decode.OpenFile(filepath.Join(f.dir, name))
			if err != nil {
				t.Fatal(err)
			}
			table, err := decode.ReadTable(file, file.Size)
			if err != nil || len(table.Problems) > 0 {
				t.Fatal(err, table.Problems)
			}
			do(level, name, table)
		}
	}
}

// keysOf returns the user keys in the blocks from i on, up to j.
func keysOf(t *testing.T, table *decode.Table, i, j int) (map[string]bool, uint64) {
	t.Helper()
	lost, n := map[string]bool{}, uint64(0)
	for ; i < j; i++ {
		entries, _, err := table.Entries(i)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			lost[string(e.UserKey)] = true
			n++
		}
	}
	return lost, n
}

func flip(b []byte, at int) []byte {
	b = bytes.Clone(b)
	b[at] ^= 0x10
	return b
}

func both(t *testing.T, do func(t *testing.T, f *fixture)) {
	for _, c := range []sievedb.Compression{sievedb.Snappy, sievedb.NoCompression} {
		t.Run(c.String(), func(t *testing.T) { do(t, store(t, c)) })
	}
}
