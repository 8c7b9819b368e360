package manifest

import (
	"bytes"
	"errors"
	"io/fs"
	"strings"
	"testing"

	"sievedb/internal/corrupt"
	"sievedb/internal/keys"
	"sievedb/internal/record"
	"sievedb/vfs"
)

// Load changes nothing, and opens nothing for writing.
func TestLoadOnlyReads(t *testing.T) {
	mem := newMem(t)
	l := mustCreate(t, mem, 9, firstState())
	mustAppend(t, l, someEdits()...)
	torn := readFile(t, mem, ManifestName(9))
	writeFile(t, mem, ManifestName(9), torn[:len(torn)-1])
	p := &probe{FS: mem, before: func(op string) error {
		t.Errorf("Load did: %s", op)
		return nil
	}}
	if _, err := Load(p, dir); err != nil {
		t.Error(err)
	}
	if got := readFile(t, mem, ManifestName(9)); !bytes.Equal(got, torn[:len(torn)-1]) {
		t.Error("Load changed the manifest")
	}
}

func TestMissingManifest(t *testing.T) {
	mem := newMem(t)
	mustCreate(t, mem, 9, firstState())
	if err := mem.Remove(path(ManifestName(9))); err != nil {
		t.Fatal(err)
	}
	_, err := Load(mem, dir)
	var c *corrupt.Error
	if !errors.As(err, &c) || errors.Is(err, fs.ErrNotExist) || c.File != CurrentName || !strings.Contains(err.Error(), ManifestName(9)) {
		t.Errorf("got %v", err)
	}
}

// replacing is a file system in which another manifest takes the place of the
// one that is about to be opened, times times.
type replacing struct {
	vfs.FS
	t     *testing.T
	log   *Log
	times int
}

func (r *replacing) Open(name string) (vfs.File, error) {
	if r.times > 0 && strings.HasSuffix(name, r.log.name) {
		r.times--
		old := r.log.State()
		st, err := old.Apply(&Edit{NextFileNum: old.NextFileNum + 1})
		if err != nil {
			r.t.Fatal(err)
		}
		r.log = mustCreate(r.t, r.FS, old.NextFileNum, st)
		if err := r.FS.Remove(name); err != nil {
			r.t.Fatal(err)
		}
	}
	return r.FS.Open(name)
}

// A reader beside a writer follows CURRENT to the newer manifest (invariant
// 19), but not for ever.
func TestLoadBesideRewrites(t *testing.T) {
	mem := newMem(t)
	r := &replacing{FS: mem, t: t, log: mustCreate(t, mem, 9, firstState()), times: 3}
	st, err := Load(r, dir)
	if err != nil || st.ManifestNum != 12 {
		t.Errorf("got %+v, %v", st, err)
	}
	r.times = 1000
	if _, err := Load(r, dir); err == nil || errors.Is(err, corrupt.ErrCorrupt) || errors.Is(err, fs.ErrNotExist) || r.times != 1000-maxLoadAttempts {
		t.Errorf("%v after %d attempts", err, 1000-r.times)
	}
}

func TestOtherVersion(t *testing.T) {
	mem := newMem(t)
	mustCreate(t, mem, 9, firstState())
	b := readFile(t, mem, ManifestName(9))
	b[8] = 3
	clear(b[12:])
	writeFile(t, mem, ManifestName(9), b)
	_, err := Load(mem, dir)
	var v *VersionError
	if !errors.As(err, &v) || errors.Is(err, corrupt.ErrCorrupt) || v.Got != 3 || v.Want != FormatVersion || v.File != ManifestName(9) {
		t.Errorf("got %v", err)
	}
}

func TestShouldRewrite(t *testing.T) {
	l := mustCreate(t, newMem(t), 9, firstState())
	limit := 4*l.SizeBytes() + 1<<20
	e := &Edit{AddedSegments: []keys.FileNum{}}
	for i := keys.FileNum(1); i < 9000; i++ {
		e.AddedSegments = append(e.AddedSegments, i)
	}
	e.NextFileNum, e.OldestSegment = 9000, 9000
	for !l.ShouldRewrite() {
		if l.SizeBytes() > limit {
			t.Fatalf("%d bytes and no rewrite", l.SizeBytes())
		}
		mustAppend(t, l, e)
	}
	if l.SizeBytes() <= limit {
		t.Errorf("a rewrite after only %d bytes", l.SizeBytes())
	}
}

// A log whose last record is longer than a chunk, and its inner offsets.
func TestCorruptionInLongRecord(t *testing.T) {
	mem := newMem(t)
	mustCreate(t, mem, 9, firstState())
	payload := appendEdit(nil, add(2, table(1, "", strings.Repeat("k", 2*record.MaxPayload), 0, 0)))
	bad := len(payload)
	payload = append(payload, 0x7f, 0) // a tag that is not known and must be
	b := readFile(t, mem, ManifestName(9))
	start := int64(len(b))
	b = record.Append(b, record.Frame{Number: 9, Offset: start, Synced: start}, nil, payload)
	writeFile(t, mem, ManifestName(9), b)
	_, err := Load(mem, dir)
	var c *corrupt.Error
	want := start + int64(bad) + 3*record.HeaderLen
	if !errors.As(err, &c) || c.Offset != want || c.File != ManifestName(9) || b[want] != 0x7f {
		t.Errorf("want a corruption at %d, got %v", want, err)
	}
}

func BenchmarkAppend(b *testing.B) {
	l := mustCreate(b, newMem(b), 9, &State{Version: big(b, 1000), NextFileNum: 2000})
	e := &Edit{Removed: []LevelFile{{5, 7}}, Added: []LevelTable{{5, table(7, "00000060", "00000065", 0, 0)}}}
	b.ReportAllocs()
	for b.Loop() {
		mustAppend(b, l, e)
	}
}

func BenchmarkLoad(b *testing.B) {
	mem := newMem(b)
	l := mustCreate(b, mem, 15_000, &State{Version: big(b, 10_000), NextFileNum: 20_000})
	e := &Edit{Removed: []LevelFile{{5, 7}}, Added: []LevelTable{{5, table(7, "00000060", "00000065", 0, 0)}}}
	for range 1000 {
		mustAppend(b, l, e)
	}
	b.SetBytes(l.SizeBytes())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Load(mem, dir); err != nil {
			b.Fatal(err)
		}
	}
}

// An error of reading is neither damage nor a fresh directory.
func TestReadErrors(t *testing.T) {
	boom := errors.New("boom")
	mem := newMem(t)
	mustCreate(t, mem, 9, firstState())
	for _, name := range []string{CurrentName, ManifestName(9)} {
		_, err := Load(&unreadable{FS: mem, name: name, err: boom}, dir)
		if !errors.Is(err, boom) || !strings.Contains(err.Error(), name) || errors.Is(err, corrupt.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// unreadable is a file system in which reading one file fails.
type unreadable struct {
	vfs.FS
	name string
	err  error
}

func (u *unreadable) Open(name string) (vfs.File, error) {
	f, err := u.FS.Open(name)
	if err == nil && strings.HasSuffix(name, u.name) {
		f = &unreadableFile{f, u.err}
	}
	return f, err
}

type unreadableFile struct {
	vfs.File
	err error
}

func (f *unreadableFile) ReadAt([]byte, int64) (int, error) { return 0, f.err }

func TestOurs(t *testing.T) {
	fsys := vfs.NewMem()
	for content, want := range map[string]bool{
		"":                  true,
		"Siev":              true,
		"SieveMAN\x01":      true,
		"\x00\x00\x00\x00":  true,
		"\x12\x34\x56 else": false,
		"SieveMAX":          false,
	} {
		f, err := fsys.Create("MANIFEST-000001")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
		if got, err := Ours(fsys, "", "MANIFEST-000001"); err != nil || got != want {
			t.Errorf("%q: %v, %v", content, got, err)
		}
	}
}
