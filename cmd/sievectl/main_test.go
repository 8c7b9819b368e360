package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sievedb"
	"sievedb/cmd/sievectl/internal/check"
	"sievedb/cmd/sievectl/internal/decode"
	"sievedb/internal/codec"
	"sievedb/internal/keys"
	"sievedb/internal/manifest"
	"sievedb/sstable"
	"sievedb/vfs"
	"sievedb/wal"
)

// sievectl runs the command.
func sievectl(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(args, &out, &errs)
	return code, out.String(), errs.String()
}

// makeStore makes a store with tables in level 0 and below, and records that no
// table has.
func makeStore(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "db")
	db, err := sievedb.Open(dir, &sievedb.Options{MemtableBytes: 32 << 10, TableBytes: 32 << 10, BlockBytes: 512,
		L0CompactTables: 100, Durability: sievedb.SyncNever})
	if err != nil {
		t.Fatal(err)
	}
	put := func(from, to int) {
		for i := from; i < to; i++ {
			err := db.Put(fmt.Appendf(nil, "user:%05d", i), fmt.Appendf(nil, "value of %d", i))
			if i%10 == 0 {
				err = errors.Join(err, db.Delete(fmt.Appendf(nil, "user:%05d", i/2)))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	put(0, 3000)
	err = db.Compact(t.Context(), nil, nil)
	put(2000, 2100)
	err = errors.Join(err, db.Flush(t.Context()))
	put(2050, 2070)
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	return dir
}

// load returns the state of a store.
func load(t *testing.T, dir string) *manifest.State {
	t.Helper()
	st, err := manifest.Load(vfs.OS(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// change changes the bytes of a file; nil removes it.
func change(t *testing.T, path string, how func(b []byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if b = how(b); b == nil {
		err = os.Remove(path)
	} else {
		err = os.WriteFile(path, b, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func flipAt(at int) func([]byte) []byte {
	return func(b []byte) []byte {
		if at < 0 {
			at += len(b)
		}
		b[at] ^= 0x20
		return b
	}
}

func copyStore(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

func TestCheckHealthy(t *testing.T) {
	dir := makeStore(t)
	code, out, errs := sievectl("check", dir)
	if code != exitOK || errs != "" || !strings.HasSuffix(out, "No problem found.\n") {
		t.Errorf("exit code %d, stderr %q, stdout:\n%s", code, errs, out)
	}
	r := checkJSON(t, exitOK, dir)
	var records, entries uint64
	judged := false
	for _, l := range r.Levels {
		entries += l.Entries
		judged = judged || l.Filter.Judged
	}
	for _, s := range r.Segments {
		records += uint64(s.Records)
	}
	// 22 records in the log; 110 entries in level 0, where each delete hides nothing.
	if len(r.Levels) < 2 || r.Levels[0].Level != 0 || entries < 2800 || records != 22 || r.Sampled < 30 || !judged || len(r.Problems) > 0 {
		t.Errorf("%d records, %d entries, %+v", records, entries, r)
	}
}

func checkJSON(t *testing.T, code int, dir string) *check.Report {
	t.Helper()
	got, out, errs := sievectl("check", "--json", dir)
	r := new(check.Report)
	d := json.NewDecoder(strings.NewReader(out))
	d.DisallowUnknownFields()
	if err := d.Decode(r); err != nil || got != code {
		t.Fatalf("exit code %d, stderr %q, %v:\n%s", got, errs, err, out)
	}
	return r
}

// TestCheckDamage damages each kind of file: check must name file and place.
func TestCheckDamage(t *testing.T) {
	dir := makeStore(t)
	st := load(t, dir)
	table := fmt.Sprintf("%06d.sst", st.Version.Levels[0][0].FileNum)
	below := st.Version.Levels[manifest.NumLevels-1]
	last := fmt.Sprintf("%06d.sst", below[len(below)-1].FileNum)
	size := int64(st.Version.Levels[0][0].SizeBytes)
	man := manifest.ManifestName(st.ManifestNum)
	segment := ""
	for _, s := range st.Segments {
		if s.SizeBytes > 100 {
			segment = wal.SegmentName(s.FileNum)
		}
	}
	const anywhere, none = -2, -1
	for _, c := range []struct {
		what, file string
		how        func([]byte) []byte
		offset     int64 // of a problem, or near it
		says       string
	}{
		{"data block", table, flipAt(100), 0, "checksum"},
		{"second block", table, flipAt(900), 900, "checksum"},
		{"filter", table, flipAt(-900), anywhere, "checksum"},
		{"footer", table, flipAt(-60), size - 12, "footer checksum"},
		{"magic", table, flipAt(-1), size - 8, "magic"},
		{"table missing", table, func([]byte) []byte { return nil }, none, "no such file"},
		{"table cut", table, func(b []byte) []byte { return b[:len(b)-5] }, none, "the manifest says"},
		{"table longer", table, func(b []byte) []byte { return append(b, 1) }, none, "the manifest says"},
		{"table swapped", table, func([]byte) []byte { b, _ := os.ReadFile(filepath.Join(dir, last)); return b }, anywhere, "identity"},
		{"record", segment, flipAt(70), 40, "checksum"},
		{"segment header", segment, flipAt(13), 12, "header checksum"},
		{"segment cut", segment, func(b []byte) []byte { return b[:len(b)-3] }, anywhere, "bytes"},
		{"segment zeroed", segment, func(b []byte) []byte { clear(b[wal.HeaderLen:]); return b }, wal.HeaderLen, "end of a WAL segment"},
		{"segment missing", segment, func([]byte) []byte { return nil }, none, "no such file"},
		{"foreign segment", segment, foreign, 24, "a segment of store"},
		{"manifest", man, flipAt(60), 40, "checksum"},
		{"manifest cut", man, func(b []byte) []byte { return b[:len(b)-20] }, anywhere, ""},
		{"manifest missing", man, func([]byte) []byte { return nil }, anywhere, "does not exist"},
		{"CURRENT", "CURRENT", flipAt(12), 0, "line"},
		{"CURRENT missing", "CURRENT", func([]byte) []byte { return nil }, none, "no such file"},
	} {
		damaged := copyStore(t, dir)
		change(t, filepath.Join(damaged, c.file), c.how)
		r := checkJSON(t, exitFailure, damaged)
		found := false
		for _, p := range r.Problems {
			near := p.Offset >= 0 && p.Offset-c.offset < 700 && c.offset-p.Offset < 700
			found = found || (p.File == c.file || c.file == man) && strings.Contains(p.Text, c.says) &&
				(c.offset == anywhere || p.Offset == c.offset || c.offset >= 0 && near)
		}
		if !found {
			t.Errorf("%s: no problem of %s at %d that says %q in %v", c.what, c.file, c.offset, c.says, r.Problems)
		}
		code, out, errs := sievectl("check", damaged)
		if code != exitFailure || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, damaged) || !strings.Contains(out, "PROBLEM "+r.Problems[0].File) {
			t.Errorf("%s: exit code %d, stderr %q, stdout:\n%s", c.what, code, errs, out)
		}
	}
}

// foreign makes a whole segment one of another store.
func foreign(b []byte) []byte {
	b[24] ^= 1
	copy(b[12:], codecSum('w', b[16:wal.HeaderLen]))
	return b
}

func codecSum(typ byte, p []byte) []byte {
	sum := codec.ChecksumOf(typ, p)
	return []byte{byte(sum), byte(sum >> 8), byte(sum >> 16), byte(sum >> 24)}
}

// TestCheckNotes has files that are not part of the store, and a torn tail.
func TestCheckNotes(t *testing.T) {
	dir := makeStore(t)
	for _, name := range []string{"999999.sst", "999998.wal", "CURRENT.tmp", "notes.txt"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r := checkJSON(t, exitOK, dir)
	if got := strings.Join(r.Notes, "\n"); len(r.Notes) != 4 || !strings.Contains(got, "999999.sst") || !strings.Contains(got, "notes.txt") {
		t.Errorf("%q", r.Notes)
	}
}

// TestCheckOrder has a level 0 table with an older version than level 1.
func TestCheckOrder(t *testing.T) {
	for _, order := range [][2]keys.SeqNum{{9, 5}, {5, 9}, {5, 5}} {
		dir := t.TempDir()
		st := &manifest.State{Version: &manifest.Version{}, NextFileNum: 10, LastSeq: 9}
		for level, seq := range order {
			num := keys.FileNum(level + 1)
			f, err := vfs.OS().Create(filepath.Join(dir, fmt.Sprintf("%06d.sst", num)))
			if err != nil {
				t.Fatal(err)
			}
			w := sstable.NewWriter(f, sstable.WriterOptions{FileNum: num})
			err = w.Add(keys.Make([]byte("key"), seq, keys.KindPut), nil)
			m, err2 := w.Finish()
			if err = errors.Join(err, err2, f.Close()); err != nil {
				t.Fatal(err)
			}
			st.Version.Levels[level] = []*manifest.TableMeta{{FileNum: num, SizeBytes: m.SizeBytes, Checksum: m.Checksum,
				Smallest: m.Smallest, Largest: m.Largest, SmallestSeq: m.SmallestSeq, LargestSeq: m.LargestSeq,
				Entries: m.Entries, UserKeys: m.UserKeys, RawBytes: m.RawBytes}}
		}
		l, err := manifest.Create(vfs.OS(), dir, 9, st)
		if err = errors.Join(err, l.Close()); err != nil {
			t.Fatal(err)
		}
		r, err := check.Dir(dir)
		if err != nil {
			t.Fatal(err)
		}
		if good := order[0] > order[1]; good != (len(r.Problems) == 0) {
			t.Errorf("%v: %v", order, r.Problems)
		}
		if len(r.Problems) > 0 && !strings.Contains(r.Problems[0].Text, "newer run") {
			t.Errorf("%v: %v", order, r.Problems[0])
		}
	}
}

// TestFilterRate sets every bit of a filter, with all checksums right: it never
// says no, which the measured rate must tell.
func TestFilterRate(t *testing.T) {
	dir := makeStore(t)
	st := load(t, dir)
	path := filepath.Join(dir, fmt.Sprintf("%06d.sst", st.Version.Levels[manifest.NumLevels-1][0].FileNum))
	change(t, path, func(b []byte) []byte {
		f, err := decode.OpenFile(path)
		if err != nil {
			t.Fatal(err)
		}
		table, err := decode.ReadTable(f, f.Size)
		if err != nil {
			t.Fatal(err)
		}
		h := table.Footer.Filter
		end := h.Offset + h.Length
		for i := h.Offset; i < end-5-24; i++ {
			b[i] = 0xff
		}
		copy(b[end-4:], codecSum(b[end-5], b[h.Offset:end-5]))
		footer := b[len(b)-96:]
		copy(footer[16:], b[end-4:end])
		sum := codec.Checksum(0xf0, footer[:84], footer[88:])
		copy(footer[84:], []byte{byte(sum), byte(sum >> 8), byte(sum >> 16), byte(sum >> 24)})
		return b
	})
	// Without a manifest, which knows the old checksum.
	change(t, filepath.Join(dir, "CURRENT"), func([]byte) []byte { return nil })
	r := checkJSON(t, exitFailure, dir)
	if last := r.Problems[len(r.Problems)-1]; !strings.Contains(last.Text, "not chance") || last.File != filepath.Base(path) {
		t.Errorf("%v", r.Problems)
	}
}

func TestDumps(t *testing.T) {
	dir := makeStore(t)
	st := load(t, dir)
	m := st.Version.Levels[0][0]
	table := filepath.Join(dir, fmt.Sprintf("%06d.sst", m.FileNum))
	segment := ""
	for _, s := range st.Segments {
		if s.SizeBytes > 100 {
			segment = filepath.Join(dir, wal.SegmentName(s.FileNum))
		}
	}
	for _, c := range []struct {
		args []string
		says []string
		n    int // lines
	}{
		{[]string{"sst", "dump", table}, []string{"a table of", "data blocks", "filter rate", `smallest key               "user:01000"`}, 0},
		{[]string{"sst", "dump", "--blocks", table}, []string{`block 0 @0, `, `"user:01000" to "`}, 0},
		{[]string{"sst", "dump", "--keys", "--from", "user:02000", "--to", `"user:02010"`, table}, []string{`"user:02009"`}, 0},
		{[]string{"sst", "dump", "--keys", "--json", "--from", "0x757365723a3032303030", "--to", "user:02003", table},
			[]string{`{"entry":{"key":"757365723a3032303032","seq":`, `"kind":"put","value_bytes":13`}, 4},
		{[]string{"sst", "verify", table, table}, []string{": ok, "}, 2},
		{[]string{"wal", "dump", segment}, []string{"WAL segment", "record @40, "}, 23},
		{[]string{"wal", "dump", "--keys", segment}, []string{`"user:02069" #`, " delete, "}, 45},
		{[]string{"wal", "dump", "--json", segment}, []string{`{"record":{"offset":40,`}, 23},
		{[]string{"manifest", "dump", dir}, []string{"CURRENT names", "edit @40", "add L0 ", `"user:01000" to "`, "seal segment"}, 0},
		{[]string{"manifest", "dump", "--json", filepath.Join(dir, manifest.ManifestName(st.ManifestNum))}, []string{`{"edit":{"offset":40,`}, 0},
	} {
		code, out, errs := sievectl(c.args...)
		if code != exitOK || errs != "" {
			t.Errorf("%v: exit code %d, stderr %q", c.args, code, errs)
		}
		for _, s := range c.says {
			if !strings.Contains(out, s) {
				t.Errorf("%v does not say %q:\n%s", c.args, s, out)
			}
		}
		if n := strings.Count(out, "\n"); c.n > 0 && n != c.n {
			t.Errorf("%v: %d lines, want %d:\n%s", c.args, n, c.n, out)
		}
	}
	if _, out, _ := sievectl("sst", "dump", "--keys", "--from", "user:02000", "--to", "user:02010", table); strings.Contains(out, `"user:02010"`) || strings.Contains(out, `"user:01999" #`) {
		t.Errorf("keys out of range:\n%s", out)
	}
	// Damage: what follows is still listed.
	change(t, table, flipAt(3))
	code, out, errs := sievectl("sst", "dump", "--blocks", table)
	if code != exitFailure || !strings.Contains(out, "PROBLEM "+filepath.Base(table)+" @") || !strings.Contains(out, "block 1 @") || strings.Count(errs, "\n") != 1 {
		t.Errorf("exit code %d, stderr %q:\n%s", code, errs, out)
	}
	change(t, segment, flipAt(60))
	if code, out, _ := sievectl("wal", "dump", segment); code != exitFailure || !strings.Contains(out, "PROBLEM") || strings.Count(out, "record @") != 21 {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

func TestRepairCommand(t *testing.T) {
	dir := makeStore(t)
	dst := filepath.Join(t.TempDir(), "new")
	code, out, errs := sievectl("repair", dir, dst)
	if code != exitOK || errs != "" || !strings.Contains(out, "Nothing is lost") {
		t.Errorf("exit code %d, stderr %q:\n%s", code, errs, out)
	}
	if code, out, _ := sievectl("check", dst); code != exitOK {
		t.Errorf("the new store: exit code %d:\n%s", code, out)
	}
	code, _, errs = sievectl("repair", dir, dst)
	if code != exitFailure || !strings.Contains(errs, "is not empty") {
		t.Errorf("exit code %d, stderr %q", code, errs)
	}
	st := load(t, dir)
	table := fmt.Sprintf("%06d.sst", st.Version.Levels[0][0].FileNum)
	change(t, filepath.Join(dir, table), flipAt(7))
	code, out, errs = sievectl("repair", dir, filepath.Join(t.TempDir(), "new"))
	if code != exitFailure || !strings.Contains(out, "LOST "+table+", bytes 0 to ") || strings.Count(errs, "\n") != 1 {
		t.Errorf("exit code %d, stderr %q:\n%s", code, errs, out)
	}
	code, out, _ = sievectl("repair", "--json", dir, filepath.Join(t.TempDir(), "new"))
	var r struct {
		Losses []struct {
			File    string
			Entries *uint64
		}
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != exitFailure || len(r.Losses) != 1 || r.Losses[0].File != table || r.Losses[0].Entries == nil {
		t.Errorf("exit code %d, %v, %+v:\n%s", code, err, r, out)
	}
}

func TestBadInput(t *testing.T) {
	empty := t.TempDir()
	file := filepath.Join(empty, "000001.sst")
	if err := os.WriteFile(file, []byte("no table"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		args string
		code int
		says string
	}{
		{"", exitUsage, "needs a command"},
		{"sst", exitUsage, "needs a command"},
		{"frobnicate", exitUsage, "frobnicate"},
		{"sst frobnicate", exitUsage, "frobnicate"},
		{"check", exitUsage, "1 arguments, not 0"},
		{"check a b", exitUsage, "1 arguments, not 2"},
		{"check --frobnicate a", exitUsage, "frobnicate"},
		{"repair a", exitUsage, "2 arguments, not 1"},
		{"sst verify", exitUsage, "needs a file"},
		{"sst dump --from 0xzz " + file, exitUsage, "0xzz"},
		{`sst dump --to "x ` + file, exitUsage, "invalid"},
		{"check " + empty + ".not", exitFailure, empty + ".not"},
		{"check " + file, exitFailure, file},
		{"sst dump " + empty, exitFailure, "not a file"},
		{"sst dump " + file, exitFailure, file},
		{"sst verify " + file + " " + file + ".not", exitFailure, file + ".not"},
		{"wal dump " + file, exitFailure, "000001.sst"},
		{"manifest dump " + empty, exitFailure, "CURRENT"},
		{"manifest dump " + file, exitFailure, "000001.sst"},
		{"repair " + file + " " + empty + ".new", exitFailure, "000001.sst"},
	} {
		code, _, errs := sievectl(strings.Fields(x.args)...)
		if code != x.code || !strings.Contains(errs, x.says) || !strings.HasPrefix(errs, "sievectl: ") || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: exit code %d, stderr %q", x.args, code, errs)
		}
	}
	if code, out, errs := sievectl("repair", "--help"); code != exitOK || errs != "" || !strings.Contains(out, "sievectl repair db db.new") {
		t.Errorf("help: exit code %d, stderr %q:\n%s", code, errs, out)
	}
}
