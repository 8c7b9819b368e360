package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"sievedb"
	"sievedb/cmd/sievectl/internal/check"
	"sievedb/cmd/sievectl/internal/decode"
	"sievedb/internal/keys"
	"sievedb/internal/manifest"
	"sievedb/internal/record"
	"sievedb/vfs"
	"sievedb/wal"
)

// subject is a store of which every byte is known: what part of which file it
// is, and what may be missing without it.
type subject struct {
	name  string
	disk  *vfs.Mem // as Close or a crash left it; only ever cloned
	dir   string   // the same files on the real file system, for check and repair
	files map[string][]byte
	parts map[string][]part // of each file, in its order, without a gap

	// states[n] is what the first n commits amount to; ever is every value that
	// a key had, and ranged the keys that a range delete removed.
	states []map[string]string
	ever   map[string][]string
	ranged map[string]bool
	seqs   []uint64 // the last sequence number of the first n commits
	log    []logged
	notes  []string // of check
}

// part is a region of a file. In a data block and in a record of the log it
// says whose newest version is there.
type part struct {
	region   string
	from, to int
	keys     []string
}

// logged is a record of a segment that was not sealed: where, the commits up to
// it, and the end of what it says was durable when it was written.
type logged struct {
	file      string
	from, to  int
	commits   int
	vouchedTo int
}

const diskDir = "/store"

// unusedFile is a region of its own: LOCK, and tables that a compaction has
// replaced and that nobody has removed yet.
const unusedFile = "unused file"

// whole is what the store holds if nothing is lost.
func (s *subject) whole() map[string]string { return s.states[len(s.states)-1] }

// writer fills a subject.
type writer struct {
	*subject
	t  *testing.T
	db *sievedb.DB
	n  int // of values, each of which is written once
}

func (w *writer) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// commit applies one batch: values for puts, then deletes, then, unless lo is
// empty, a range delete.
func (w *writer) commit(d sievedb.Durability, puts, deletes []string, lo, hi string) {
	w.t.Helper()
	b := w.db.NewBatch()
	next := maps.Clone(w.whole())
	for _, k := range puts {
		w.n++
		v := fmt.Sprintf("%d-%s", w.n, strings.Repeat("v", w.n%40))
		b.Put([]byte(k), []byte(v))
		next[k] = v
		w.ever[k] = append(w.ever[k], v)
	}
	for _, k := range deletes {
		b.Delete([]byte(k))
		delete(next, k)
	}
	if lo != "" {
		b.DeleteRange([]byte(lo), []byte(hi))
		for k := range next {
			if k >= lo && k < hi {
				delete(next, k)
				w.ranged[k] = true
			}
		}
	}
	seq := w.seqs[len(w.seqs)-1] + uint64(b.Len())
	w.must(w.db.Apply(b, d))
	w.states, w.seqs = append(w.states, next), append(w.seqs, seq)
}

func numbered(from, to int) (keys []string) {
	for i := from; i < to; i++ {
		keys = append(keys, fmt.Sprintf("k%04d", i))
	}
	return keys
}

// newSubject fills a store and leaves it closed, or as the death of its process
// would. n sets its size.
func newSubject(t *testing.T, name string, c sievedb.Compression, n int, crash bool) *subject {
	t.Helper()
	mem := vfs.NewMem()
	s := &subject{name: name, states: []map[string]string{{}}, seqs: []uint64{0}, ever: map[string][]string{"absent": nil}, ranged: map[string]bool{}}
	db, err := sievedb.Open(diskDir, &sievedb.Options{FS: mem, MemtableBytes: 64 << 10, TableBytes: 4 << 10, BlockBytes: 128,
		Compression: c, FilterBitsPerKey: 4, L0CompactTables: 1000, L0SlowTables: 1000, L0StopTables: 1000})
	w := writer{s, t, db, 0}
	w.must(err)
	w.commit(sievedb.SyncNever, append(numbered(0, n), ""), nil, "", "")
	w.must(db.Compact(t.Context(), nil, nil))
	w.commit(sievedb.SyncNever, numbered(n/2, n), numbered(n/4, n/3), "", "")
	w.commit(sievedb.SyncNever, nil, nil, "k0003", "k0006")
	w.must(db.Flush(t.Context()))
	w.commit(sievedb.SyncNever, numbered(2, n-8), nil, "k0010", "k0012")
	w.must(db.Flush(t.Context()))
	// What follows is in the log only; the last commits are vouched for by none.
	for i := range 6 + n/40 {
		w.commit(sievedb.SyncAlways, numbered(i, i+2), numbered(n-1-i, n-i), "", "")
		w.commit(sievedb.SyncNever, numbered(2*i, 2*i+1), nil, "", "")
	}
	w.commit(sievedb.SyncNever, numbered(7, 9), nil, "k0020", "k0022")
	w.commit(sievedb.SyncAlways, nil, numbered(0, 1), "", "")
	if !crash {
		w.must(db.Close())
	}
	for try := 0; !settled(t, mem); try++ { // or segments that are obsolete stand in for what is damaged
		if try == 100_000 {
			t.Fatal("obsolete segments are not removed")
		}
		runtime.Gosched()
	}
	s.disk = mem.CrashClone(vfs.CrashKept)
	if crash {
		w.must(db.Close())
	}
	s.look(t)
	return s
}

// settled reports whether the store has no segments but those that it needs.
func settled(t *testing.T, mem *vfs.Mem) bool {
	t.Helper()
	st, err := manifest.Load(mem, diskDir)
	if err != nil {
		t.Fatal(err)
	}
	names, err := mem.List(diskDir)
	if err != nil {
		t.Fatal(err)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return filepath.Ext(name) != ".wal" })
	return len(names) == len(st.Segments)
}

// preallocatedPart is the region of zeros behind the last record of a segment.
const preallocatedPart = "WAL preallocated"

// preallocated is how many zeros are left behind the last record of a segment.
const preallocated = 40

// look copies the files and learns their parts.
func (s *subject) look(t *testing.T) {
	t.Helper()
	names, err := s.disk.List(diskDir)
	s.dir, s.files, s.parts = t.TempDir(), map[string][]byte{}, map[string][]part{}
	for _, name := range names {
		b, readErr := readFile(s.disk, name)
		if whole := bytes.TrimRight(b, "\x00"); len(b) > len(whole)+1000 { // megabytes
			b = b[:len(whole)+preallocated]
			err = errors.Join(err, writeFile(s.disk, diskDir+"/"+name, b))
		}
		err = errors.Join(err, readErr, os.WriteFile(filepath.Join(s.dir, name), b, 0o644))
		s.files[name] = b
	}
	if err != nil {
		t.Fatal(err)
	}
	st := load(t, s.dir)
	newest := newestIn{subject: s, taken: map[string]bool{}}
	// The log before the tables, newest first: whose newest version is where.
	for _, seg := range slices.Backward(st.Segments) {
		s.lookAtSegment(t, seg, uint64(st.LastSeq), newest)
	}
	for _, metas := range st.Version.Levels {
		for _, m := range metas { // level 0 is ordered newest first
			s.lookAtTable(t, fmt.Sprintf("%06d.sst", m.FileNum), newest)
		}
	}
	s.lookAtManifest(t, st.ManifestNum)
	s.parts[manifest.CurrentName] = []part{{region: manifest.CurrentName, to: len(s.files[manifest.CurrentName])}}
	for name, b := range s.files {
		if s.parts[name] == nil {
			s.parts[name] = []part{{region: unusedFile, to: len(b)}}
		}
	}
	r, err := check.Dir(s.dir)
	if err != nil || len(r.Problems) > 0 {
		t.Fatal(err, r.Problems)
	}
	s.notes = r.Notes
}

// newestIn tells the first place of each key that it is asked about.
type newestIn struct {
	*subject
	taken map[string]bool
}

func (n newestIn) of(keys []string) (newest []string) {
	for _, k := range keys {
		if !n.taken[k] {
			n.taken[k] = true
			newest = append(newest, k)
		}
	}
	return newest
}

func readFile(fsys vfs.FS, name string) ([]byte, error) {
	f, err := fsys.Open(filepath.ToSlash(filepath.Join(diskDir, name)))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	b := make([]byte, size)
	if err == nil && size > 0 {
		_, err = f.ReadAt(b, 0)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return b, err
}

func (s *subject) open(t *testing.T, name string) *decode.File {
	t.Helper()
	f, err := decode.OpenFile(filepath.Join(s.dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (s *subject) lookAtSegment(t *testing.T, seg manifest.Segment, inTables uint64, newest newestIn) {
	t.Helper()
	name := wal.SegmentName(seg.FileNum)
	f := s.open(t, name)
	parts := []part{{region: "WAL file header", to: wal.HeaderLen}}
	type logRecord struct {
		from, to, commits int
		keys              []string
	}
	var records []logRecord
	size := int64(len(bytes.TrimRight(s.files[name], "\x00")))
	gaps, err := decode.WalkSegment(f, seg.FileNum, f.Size, func(b *decode.Batch) error {
		commits, _ := slices.BinarySearch(s.seqs, uint64(b.LastSeq()))
		r := logRecord{from: int(b.Offset), to: int(b.End), commits: commits}
		for _, op := range b.Ops {
			if uint64(b.LastSeq()) <= inTables {
				break
			}
			r.keys = append(r.keys, string(op.Key))
			for k := range s.ranged {
				if op.Trailer.Kind() == keys.KindRangeDelete && k >= string(op.Key) && k < string(op.Value) {
					r.keys = append(r.keys, k)
				}
			}
		}
		records = append(records, r)
		return nil
	})
	if err != nil || len(gaps) > 0 && gaps[0].Offset < size {
		t.Fatal(err, gaps)
	}
	for i := range slices.Backward(records) {
		records[i].keys = newest.of(records[i].keys)
	}
	for _, r := range records {
		body := r.from + record.HeaderLen
		parts = append(parts, part{"WAL frame header", r.from, body, r.keys}, part{"WAL payload", body, r.to, r.keys})
		if !seg.Sealed {
			unsynced := int(binary.LittleEndian.Uint32(s.files[name][r.from+12:]))
			s.log = append(s.log, logged{name, r.from, r.to, r.commits, r.from - unsynced})
		}
	}
	if end := parts[len(parts)-1].to; end < len(s.files[name]) {
		parts = append(parts, part{region: preallocatedPart, from: end, to: len(s.files[name])})
	}
	s.parts[name] = parts
}

func (s *subject) lookAtTable(t *testing.T, name string, newest newestIn) {
	t.Helper()
	f := s.open(t, name)
	table, err := decode.ReadTable(f, f.Size)
	if err != nil || len(table.Problems) > 0 {
		t.Fatal(err, table.Problems)
	}
	const tailLen = 5
	var parts []part
	frame := func(region string, offset, length uint64, keys []string) {
		if length > 0 {
			end := int(offset + length)
			parts = append(parts, part{region, int(offset), end - tailLen, keys}, part{"table frame tail", end - tailLen, end, keys})
		}
	}
	for i, b := range table.Blocks {
		entries, _, err := table.Entries(i)
		if err != nil {
			t.Fatal(err)
		}
		var keys []string
		for _, e := range entries {
			keys = append(keys, string(e.UserKey))
		}
		frame("table data block", b.Offset, b.Length, newest.of(keys))
	}
	footer := table.Footer
	frame("table filter", footer.Filter.Offset, footer.Filter.Length, nil)
	frame("table range deletes", footer.RangeTombstones.Offset, footer.RangeTombstones.Length, slices.Collect(maps.Keys(s.ranged)))
	frame("table index", footer.Index.Offset, footer.Index.Length, nil)
	frame("table properties", footer.Properties.Offset, footer.Properties.Length, nil)
	s.parts[name] = append(parts, part{region: "table footer", from: int(footer.Properties.Offset + footer.Properties.Length), to: int(f.Size)})
}

func (s *subject) lookAtManifest(t *testing.T, num keys.FileNum) {
	t.Helper()
	name := manifest.ManifestName(num)
	const headerLen = 40
	parts := []part{{region: "MANIFEST file header", to: headerLen}}
	gaps, err := decode.WalkManifest(s.open(t, name), num, func(e *decode.Edit) error {
		from, to := int(e.Offset), int(e.End)
		parts = append(parts, part{region: "MANIFEST frame header", from: from, to: from + record.HeaderLen},
			part{region: "MANIFEST payload", from: from + record.HeaderLen, to: to})
		return nil
	})
	if err != nil || len(gaps) > 0 {
		t.Fatal(err, gaps)
	}
	s.parts[name] = parts
}

// mayLack returns the least number of commits that a store must hold after
// damage to bytes from on of file, all of them if cut: what no whole record
// behind vouches for may be dropped as the torn tail of a crash.
func (s *subject) mayLack(file string, from, to int, cut bool) int {
	least, vouched := len(s.states)-1, 0
	if s.log == nil || file != s.log[0].file || from < wal.HeaderLen {
		return least
	}
	least = s.log[0].commits - 1
	for _, l := range s.log {
		if l.to <= from {
			least = l.commits
		} else if l.from >= to && !cut {
			vouched = max(vouched, l.vouchedTo)
		}
	}
	if from < vouched {
		return len(s.states) - 1
	}
	return least
}
