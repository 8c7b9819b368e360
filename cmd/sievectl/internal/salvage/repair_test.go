package salvage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sievedb"
	"sievedb/cmd/sievectl/internal/decode"
	"sievedb/internal/codec"
	"sievedb/internal/keys"
	"sievedb/internal/manifest"
	"sievedb/internal/rangedel"
	"sievedb/sstable"
	"sievedb/vfs"
	"sievedb/wal"
)

// TestFixture makes sure that the store is one that can be got wrong.
func TestFixture(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		zeros, runs, hidden := 0, map[int]bool{}, 0
		f.tables(t, func(level int, name string, table *decode.Table) {
			runs[level] = true
			for i := range table.Blocks {
				entries, _, err := table.Entries(i)
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range entries {
					if e.Trailer.SeqNum() == 0 {
						zeros++
					}
					if e.Trailer.Kind() == keys.KindDelete {
						hidden++
					}
				}
			}
		})
		if zeros == 0 || hidden == 0 || len(runs) < 2 || len(f.state.Version.Levels[0]) < 2 || len(f.files) < 15 {
			t.Errorf("%d zeros, %d deletes, levels %v, %d in level 0, %d files", zeros, hidden, runs, len(f.state.Version.Levels[0]), len(f.files))
		}
	})
}

func TestHealthyStore(t *testing.T) {
	for _, crash := range []bool{false, true} {
		f := store(t, sievedb.Snappy)
		if crash {
			f = makeStore(t, t.TempDir(), sievedb.Snappy, true)
		}
		got, r := repaired(t, f.dir)
		f.compare(t, got, nil)
		if !r.Whole() {
			t.Errorf("crash %t: %v %v", crash, r.Losses, r.Damage)
		}
		for _, file := range r.Files {
			if file.Lost != nil && *file.Lost > 0 || file.Scanned {
				t.Errorf("crash %t: %+v", crash, file)
			}
		}
	}
}

// oneLoss wants a report of exactly one loss.
func oneLoss(t *testing.T, r *Report, name string, offset, end uint64, entries uint64) {
	t.Helper()
	if len(r.Losses) != 1 {
		t.Fatalf("%d losses, want one at %s %d to %d: %v", len(r.Losses), name, offset, end, r.Losses)
	}
	l := r.Losses[0]
	if l.File != name || l.Offset != int64(offset) || l.End != int64(end) || l.Entries == nil || *l.Entries != entries {
		t.Errorf("%v, want %s bytes %d to %d, %d entries", l, name, offset, end, entries)
	}
}

// TestDataBlocks damages a byte of every data block in turn.
func TestDataBlocks(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		cases, wrong, stale := 0, 0, uint64(0)
		f.tables(t, func(level int, name string, table *decode.Table) {
			for i, b := range table.Blocks {
				if cases++; cases%6 > 0 && level > 0 { // they take their time
					continue
				}
				at := int(b.Offset) + cases%int(b.Length)
				got, r := repaired(t, f.with(t, name, flip(f.files[name], at)))
				lost, n := keysOf(t, table, i, i+1)
				wrongHere := f.compare(t, got, lost)
				wrong += wrongHere
				stale += r.MaybeStale
				oneLoss(t, r, name, b.Offset, b.End(), n)
				back := 0
				for k := range lost {
					if _, ok := got[k]; ok {
						back++
					}
				}
				if r.MaybeStale > uint64(back) { // whose range is in the report, too
					inRange := uint64(0)
					for k := range got {
						if r.Losses[0].Keys.holds([]byte(k)) {
							inRange++
						}
					}
					if r.MaybeStale > inRange {
						t.Errorf("%s block %d: %d keys may be stale, %d lie there", name, i, r.MaybeStale, inRange)
					}
				}
				for k := range lost {
					if !r.Losses[0].Keys.holds([]byte(k)) {
						t.Errorf("%s block %d: %v leaves out %q", name, i, r.Losses[0].Keys, k)
					}
				}
			}
		})
		if wrong == 0 || stale == 0 {
			t.Errorf("%d blocks: %d keys wrong, %d said to be perhaps: the test tests nothing", cases, wrong, stale)
		}
	})
}

// TestStaleIsReported damages blocks of level 0, below which older versions lie:
// whatever comes back wrong must be within what the report says.
func TestStaleIsReported(t *testing.T) {
	f := store(t, sievedb.Snappy)
	total := uint64(0)
	f.tables(t, func(level int, name string, table *decode.Table) {
		if level > 0 {
			return
		}
		got, r := repaired(t, f.with(t, name, flip(f.files[name], int(table.Blocks[0].Offset))))
		want := f.history.newest()
		back := uint64(0)
		for k, v := range got {
			if want[k] != v {
				back++
			}
		}
		if total += back; r.MaybeStale < back {
			t.Errorf("%s: %d keys came back, %d reported", name, back, r.MaybeStale)
		}
	})
	if total == 0 {
		t.Error("no key came back: the test tests nothing")
	}
}

// TestTableParts damages what is not data: nothing is lost.
func TestTableParts(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		done := map[int]bool{}
		f.tables(t, func(level int, name string, table *decode.Table) {
			if done[level] {
				return
			}
			done[level] = true
			footer, size := table.Footer, len(f.files[name])
			for part, at := range map[string]int{
				"filter": int(footer.Filter.Offset) + 1, "index": int(footer.Index.Offset) + 1,
				"properties": int(footer.Properties.Offset) + 1, "handle": size - 96 + 41,
				"checksum": size - 12, "magic": size - 1,
			} {
				got, r := repaired(t, f.with(t, name, flip(f.files[name], at)))
				f.compare(t, got, nil)
				scanned := slices.ContainsFunc(r.Files, func(f *FileReport) bool { return f.Name == name && f.Scanned })
				if len(r.Losses) > 0 || len(r.Damage) == 0 || scanned != (part != "filter" && part != "properties") {
					t.Errorf("%s, %s: losses %v, damage %q, scanned %t", name, part, r.Losses, r.Damage, scanned)
				}
			}
			got, r := repaired(t, f.with(t, name, append(bytes.Clone(f.files[name]), "more"...)))
			f.compare(t, got, nil)
			if len(r.Losses) > 0 || len(r.Damage) != 1 {
				t.Errorf("%s with more at its end: %v %q", name, r.Losses, r.Damage)
			}
		})
	})
}

// TestCutTables cuts tables, so that their blocks are found without an index,
// with a block damaged before the cut or not.
func TestCutTables(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		n := 0
		f.tables(t, func(level int, name string, table *decode.Table) {
			if n++; n%3 > 0 || len(table.Blocks) < 3 {
				return
			}
			cut := len(table.Blocks) - 1
			b := &table.Blocks[cut]
			content := f.files[name][:b.Offset+b.Length/2]
			got, r := repaired(t, f.with(t, name, content))
			lost, entries := keysOf(t, table, cut, len(table.Blocks))
			f.compare(t, got, lost)
			oneLoss(t, r, name, b.Offset, uint64(len(f.files[name])), entries)

			// Cut where a block ends, and where all do.
			got, r = repaired(t, f.with(t, name, content[:b.Offset]))
			f.compare(t, got, lost)
			oneLoss(t, r, name, b.Offset, uint64(len(f.files[name])), entries)
			got, r = repaired(t, f.with(t, name, f.files[name][:b.End()+7]))
			f.compare(t, got, nil)
			if len(r.Losses) > 0 || r.Whole() {
				t.Errorf("%s cut behind its data: %v %q", name, r.Losses, r.Damage)
			}

			content = flip(content, int(table.Blocks[1].Offset)+9)
			got, r = repaired(t, f.with(t, name, content))
			also, more := keysOf(t, table, 1, 2)
			maps.Copy(lost, also)
			f.compare(t, got, lost)
			if len(r.Losses) != 2 || r.Losses[0].Offset != int64(table.Blocks[1].Offset) || r.Losses[0].End != int64(table.Blocks[1].End()) {
				t.Errorf("%s: %v, want bytes %d to %d and %d to %d", name, r.Losses, table.Blocks[1].Offset, table.Blocks[1].End(), b.Offset, len(content))
			}
			for _, file := range r.Files {
				if file.Name == name && (!file.Scanned || file.Lost == nil || *file.Lost != entries+more) {
					t.Errorf("%+v, want %d entries lost", file, entries+more)
				}
			}
		})
	})
}

func TestWholeTables(t *testing.T) {
	f := store(t, sievedb.Snappy)
	var other []byte
	n := 0
	f.tables(t, func(level int, name string, table *decode.Table) {
		lost, entries := keysOf(t, table, 0, len(table.Blocks))
		if n++; n%4 > 0 {
			other = f.files[name]
			return
		}
		for what, content := range map[string][]byte{"missing": nil, "swapped": other, "empty": {}} {
			if what == "swapped" && other == nil {
				t.Fatal("no other table")
			}
			got, r := repaired(t, f.with(t, name, content))
			f.compare(t, got, lost)
			oneLoss(t, r, name, 0, uint64(len(f.files[name])), entries)
		}
	})
}

// segment returns the last segment with records, and these.
func (f *fixture) segment(t *testing.T) (name string, batches []decode.Batch) {
	t.Helper()
	for _, s := range f.state.Segments {
		file, err := decode.OpenFile(filepath.Join(f.dir, wal.SegmentName(s.FileNum)))
		if err != nil {
			t.Fatal(err)
		}
		var here []decode.Batch
		gaps, err := decode.WalkSegment(file, s.FileNum, file.Size, func(b *decode.Batch) error {
			for i := range b.Ops {
				b.Ops[i].Key = bytes.Clone(b.Ops[i].Key)
			}
			here = append(here, *b)
			return nil
		})
		if err != nil || len(gaps) > 0 {
			t.Fatal(err, gaps)
		}
		if len(here) > 0 {
			name, batches = file.Name, here
		}
	}
	if len(batches) < 20 {
		t.Fatalf("%d records in the WAL", len(batches))
	}
	return name, batches
}

func TestRecords(t *testing.T) {
	f := store(t, sievedb.Snappy)
	name, batches := f.segment(t)
	for i, b := range batches {
		if i%4 > 0 && i != len(batches)-1 {
			continue
		}
		lost := map[string]bool{string(b.Ops[0].Key): true}
		for _, at := range []int64{b.Offset, b.Offset + 5, b.Offset + 8, b.Offset + 17, b.End - 1} {
			got, r := repaired(t, f.with(t, name, flip(f.files[name], int(at))))
			f.compare(t, got, lost)
			if i < len(batches)-1 {
				oneLoss(t, r, name, uint64(b.Offset), uint64(b.End), 1)
			} else if len(r.Losses) != 1 || r.Losses[0].Offset != b.Offset || r.Losses[0].End != b.End {
				t.Errorf("record %d: %v", i, r.Losses)
			}
		}
	}
}

func TestSegments(t *testing.T) {
	f := store(t, sievedb.Snappy)
	name, batches := f.segment(t)
	size := len(f.files[name])
	all := map[string]bool{}
	for _, b := range batches {
		for _, op := range b.Ops {
			all[string(op.Key)] = true
		}
	}
	tail := map[string]bool{}
	for _, b := range batches[10:] {
		tail[string(b.Ops[0].Key)] = true
	}
	cut := int(batches[10].Offset) + 3
	zeroed := bytes.Clone(f.files[name])
	clear(zeroed[batches[10].Offset:])
	foreign := bytes.Clone(f.files[name])
	for what, c := range map[string]struct {
		content []byte
		lost    map[string]bool
		losses  int
		offset  int64
	}{
		"header":  {flip(f.files[name], 2), nil, 0, 0},
		"missing": {nil, all, 1, 0},
		"empty":   {foreign[:0], all, 1, wal.HeaderLen},
		"cut":     {f.files[name][:cut], tail, 1, batches[10].Offset},
		"at once": {f.files[name][:batches[10].Offset], tail, 1, batches[10].Offset},
		"zeroed":  {zeroed, tail, 1, batches[10].Offset},
	} {
		got, r := repaired(t, f.with(t, name, c.content))
		f.compare(t, got, c.lost)
		if r.Whole() || len(r.Losses) != c.losses {
			t.Errorf("%s: %v %q", what, r.Losses, r.Damage)
		}
		if c.losses > 0 && (r.Losses[0].File != name || r.Losses[0].Offset != c.offset || r.Losses[0].End != int64(size)) {
			t.Errorf("%s: %v, want %s bytes %d to %d", what, r.Losses[0], name, c.offset, size)
		}
	}
}

// TestManifest damages CURRENT and the manifest: all tables are there, so that
// nothing is lost, and the levels must still be right.
func TestManifest(t *testing.T) {
	f := store(t, sievedb.Snappy)
	name := manifest.ManifestName(f.state.ManifestNum)
	size := len(f.files[name])
	check := func(what, dir string) {
		t.Helper()
		got, r := repaired(t, dir)
		f.compare(t, got, nil)
		if len(r.Losses) == 0 {
			t.Errorf("%s: nothing is said to be lost", what)
		}
		for _, l := range r.Losses {
			if !strings.HasPrefix(l.File, "MANIFEST") && l.File != manifest.CurrentName {
				t.Errorf("%s: %v", what, l)
			}
		}
	}
	for at := 45; at < size; at += size / 15 {
		check(fmt.Sprintf("flip at %d", at), f.with(t, name, flip(f.files[name], at)))
		check(fmt.Sprintf("cut at %d", at), f.with(t, name, f.files[name][:at]))
	}
	check("manifest missing", f.with(t, name, nil))
	check("manifest empty", f.with(t, name, []byte{}))
	check("CURRENT missing", f.with(t, manifest.CurrentName, nil))
	for at := range len(f.files[manifest.CurrentName]) {
		if at%6 == 0 && at != 6 && at != 8 { // the version is another matter
			check(fmt.Sprintf("CURRENT flip at %d", at), f.with(t, manifest.CurrentName, flip(f.files[manifest.CurrentName], at)))
		}
	}
	dir := f.with(t, name, nil)
	if err := os.Remove(filepath.Join(dir, manifest.CurrentName)); err != nil {
		t.Fatal(err)
	}
	check("neither", dir)

	got, r := repaired(t, f.with(t, name, flip(f.files[name], 20)))
	f.compare(t, got, nil)
	if len(r.Damage) != 1 || !strings.Contains(r.Damage[0], "header checksum") {
		t.Errorf("header: %q %v", r.Damage, r.Losses)
	}
}

// TestReplacedTables leaves the inputs of a compaction behind, as a crash does:
// what they hold is older than it looks.
func TestReplacedTables(t *testing.T) {
	f := store(t, sievedb.Snappy)
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(f.dir)); err != nil {
		t.Fatal(err)
	}
	db, err := sievedb.Open(dir, options(sievedb.Snappy, 3))
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Compact(t.Context(), nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	replaced := 0
	for name, b := range f.files {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil && filepath.Ext(name) == ".sst" {
			replaced++
			if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	got, r := repaired(t, dir)
	f.compare(t, got, nil)
	if replaced == 0 || !r.Whole() || len(r.Notes) < replaced {
		t.Errorf("%d tables replaced: %v %q %q", replaced, r.Losses, r.Damage, r.Notes)
	}
}

func TestRefusals(t *testing.T) {
	f := store(t, sievedb.Snappy)
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "x"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	linked := os.Symlink(f.dir, link) == nil // not everywhere is it allowed
	later := f.with(t, manifest.CurrentName, []byte(strings.Replace(string(f.files[manifest.CurrentName]), "sievedb 1 ", "sievedb 2 ", 1)))
	for _, c := range []struct{ src, dst, says string }{
		{f.dir, full, "not empty"},
		{f.dir, f.dir, "must not be changed"},
		{f.dir, filepath.Join(f.dir, "new"), "must not be changed"},
		{f.dir, filepath.Join(link, "new", "deep"), "must not be changed"},
		{f.dir, filepath.Join(full, "x"), "x"},
		{filepath.Join(full, "none"), filepath.Join(full, "new"), "none"},
		{full, filepath.Join(t.TempDir(), "new"), "neither a table"},
		{later, filepath.Join(t.TempDir(), "new"), "version 2"},
	} {
		if strings.HasPrefix(c.dst, link) && !linked {
			continue
		}
		before := sums(t, f.dir)
		if r, err := Repair(c.src, c.dst); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s to %s: %v %v", c.src, c.dst, r, err)
		}
		if !maps.Equal(before, sums(t, f.dir)) {
			t.Errorf("%s to %s: the source changed", c.src, c.dst)
		}
	}
	if _, err := Repair(f.dir, t.TempDir()); err != nil { // empty is good enough
		t.Error(err)
	}
}

// TestRecordsInTables has a segment in the manifest whose records are all in
// tables, where newer versions have lost their numbers: they must not win.
func TestRecordsInTables(t *testing.T) {
	f := store(t, sievedb.Snappy)
	name, batches := f.segment(t)
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(f.dir)); err != nil {
		t.Fatal(err)
	}
	db, err := sievedb.Open(dir, options(sievedb.Snappy, 3))
	if err != nil {
		t.Fatal(err)
	}
	later := history{}
	maps.Copy(later, f.history)
	for i, b := range batches {
		key, value := string(b.Ops[0].Key), []byte("later")
		if i%2 == 0 {
			value = nil
			err = db.Delete([]byte(key))
		} else {
			err = db.Put([]byte(key), value)
		}
		later[key] = append(slices.Clone(later[key]), value)
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(db.Compact(t.Context(), nil, nil), db.Close()); err != nil {
		t.Fatal(err)
	}
	st, err := manifest.Load(vfs.OS(), dir)
	if err != nil {
		t.Fatal(err)
	}
	num, _ := decode.ParseNum(name, ".wal")
	st.Segments = append([]manifest.Segment{{FileNum: num, Sealed: true, SizeBytes: uint64(len(f.files[name]))}}, st.Segments...)
	st.NextFileNum += 10
	l, err := manifest.Create(vfs.OS(), dir, st.NextFileNum-1, st)
	if err = errors.Join(err, l.Vouch(), l.Close(), os.WriteFile(filepath.Join(dir, name), f.files[name], 0o644)); err != nil {
		t.Fatal(err)
	}
	got, r := repaired(t, dir)
	(&fixture{history: later}).compare(t, got, nil)
	if !r.Whole() || !strings.Contains(strings.Join(r.Notes, "\n"), "in tables already") {
		t.Errorf("%v %q %q", r.Losses, r.Damage, r.Notes)
	}
}

// TestZeros has two versions of a key that both lost their numbers, as a
// compaction and what it replaced may leave them: the level decides, if it is
// known, and then the younger file.
func TestZeros(t *testing.T) {
	for _, withLevels := range []bool{false, true} {
		dir := t.TempDir()
		st := &manifest.State{Version: &manifest.Version{}, NextFileNum: 10, LastSeq: 9}
		for num, level := range map[keys.FileNum]int{3: 5, 4: 6} {
			f, err := vfs.OS().Create(filepath.Join(dir, fmt.Sprintf("%06d.sst", num)))
			if err != nil {
				t.Fatal(err)
			}
			w := sstable.NewWriter(f, sstable.WriterOptions{FileNum: num})
			err = w.Add(keys.Make([]byte("key"), 0, keys.KindPut), fmt.Append(nil, num))
			m, err2 := w.Finish()
			if err = errors.Join(err, err2, f.Close()); err != nil {
				t.Fatal(err)
			}
			st.Version.Levels[level] = []*manifest.TableMeta{{FileNum: num, SizeBytes: m.SizeBytes, Checksum: m.Checksum,
				Smallest: m.Smallest, Largest: m.Largest, Entries: m.Entries, UserKeys: m.UserKeys}}
		}
		want := "4"
		if withLevels {
			want = "3"
			l, err := manifest.Create(vfs.OS(), dir, 9, st)
			if err = errors.Join(err, l.Close()); err != nil {
				t.Fatal(err)
			}
		}
		got, r := repaired(t, dir)
		if len(got) != 1 || got["key"] != want || r.Whole() != withLevels {
			t.Errorf("with levels %t: %q, want %s; %v", withLevels, got, want, r.Losses)
		}
	}
}

// TestRangeTombstones has a table with a range-tombstone block: keys that it
// covers are deleted, unless they are newer, and its loss is reported.
func TestRangeTombstones(t *testing.T) {
	mem := vfs.NewMem()
	f, err := mem.Create("t")
	if err != nil {
		t.Fatal(err)
	}
	w := sstable.NewWriter(f, sstable.WriterOptions{FileNum: 3, FilterMillibits: 10_000})
	for i, key := range []string{"a", "b", "c", "d"} { // numbers 10, 20, 30, 40
		err = errors.Join(err, w.Add(keys.Make([]byte(key), keys.SeqNum(10*i+10), keys.KindPut), []byte(key)))
	}
	m, err2 := w.Finish()
	if err = errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, m.SizeBytes)
	if _, err := f.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	spans := rangedel.Fragment([]rangedel.Tombstone{{Start: []byte("b"), End: []byte("d"), Seq: 25}}, nil)
	b, frame := withTombstones(b, rangedel.NewSet(spans).AppendTo(nil))
	for damaged, want := range map[bool]string{false: "acd", true: "abcd"} {
		dir, content := t.TempDir(), b
		if damaged {
			content = flip(b, frame)
		}
		if err := os.WriteFile(filepath.Join(dir, "000003.sst"), content, 0o644); err != nil {
			t.Fatal(err)
		}
		got, r := repaired(t, dir)
		if keys := strings.Join(slices.Sorted(maps.Keys(got)), ""); keys != want {
			t.Errorf("damaged %t: keys %s, want %s", damaged, keys, want)
		}
		reported := slices.ContainsFunc(r.Losses, func(l *Loss) bool { return strings.Contains(l.Cause, "range tombstones") && l.Offset == int64(frame) })
		if reported != damaged {
			t.Errorf("damaged %t: %v", damaged, r.Losses)
		}
	}
}

// withTombstones puts a range-tombstone block into a table that has none, and
// returns where it is.
func withTombstones(b, payload []byte) (out []byte, offset int) {
	le := binary.LittleEndian
	footer := b[len(b)-96:]
	offset = int(le.Uint64(footer[40:])) // of the index
	frame := append(bytes.Clone(payload), 0x40)
	sum := codec.ChecksumOf(0x40, payload)
	frame = le.AppendUint32(frame, sum)
	le.PutUint64(footer[28:], uint64(len(frame)))
	le.PutUint32(footer[36:], sum)
	for _, at := range []int{40, 60} { // index and properties move
		le.PutUint64(footer[at:], le.Uint64(footer[at:])+uint64(len(frame)))
	}
	le.PutUint32(footer[84:], codec.Checksum(0xf0, footer[:84], footer[88:]))
	return slices.Concat(b[:offset], frame, b[offset:]), offset
}
