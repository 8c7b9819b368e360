package manifest

import (
	"bytes"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sievedb/internal/corrupt"
	"sievedb/internal/keys"
	"sievedb/internal/record"
	"sievedb/vfs"
)

var update = flag.Bool("update", false, "write the golden files anew")

// written is a store's directory with a manifest of several edits, and what
// the manifest said after each.
type written struct {
	mem    *vfs.Mem
	name   string
	file   []byte
	states []string // after the snapshot and after each edit
	ends   []int64  // the manifest's size then
}

func write(t testing.TB, vouched bool) *written {
	w := &written{mem: newMem(t), name: ManifestName(9)}
	l := mustCreate(t, w.mem, 9, firstState())
	note := func() {
		w.states, w.ends = append(w.states, dump(l.State())), append(w.ends, l.SizeBytes())
	}
	note()
	for _, e := range someEdits() {
		mustAppend(t, l, e)
		note()
	}
	if vouched {
		if err := l.Vouch(); err != nil {
			t.Fatal(err)
		}
	}
	w.file = readFile(t, w.mem, w.name)
	return w
}

// wantCorrupt checks that Load reports damage to file at or before offset at,
// or in its header.
func wantCorrupt(t *testing.T, w *written, file string, at int64) {
	t.Helper()
	st, err := Load(w.mem, dir)
	var c *corrupt.Error
	var v *VersionError
	switch {
	case err == nil:
		t.Fatalf("damage at %d of %s: loaded\n%s", at, file, dump(st))
	case errors.As(err, &v) && v.File == file:
	case !errors.As(err, &c) || c.File != file || c.Offset > max(at, headerLen) || errors.Is(err, fs.ErrNotExist):
		t.Fatalf("damage at %d of %s: %v", at, file, err)
	}
}

func wantState(t *testing.T, w *written, i int) {
	t.Helper()
	if got := loaded(w.mem); got != w.states[i] {
		t.Fatalf("got\n%s\nwant\n%s", got, w.states[i])
	}
}

// A flipped bit is found, wherever it is, except in a last edit that nothing
// vouches for: that is taken for torn, and the state before it is right.
func TestFlipEveryBit(t *testing.T) {
	for _, vouched := range []bool{false, true} {
		w := write(t, vouched)
		last := w.ends[len(w.ends)-2]
		for bit := range len(w.file) * 8 {
			bad := bytes.Clone(w.file)
			bad[bit/8] ^= 1 << (bit % 8)
			writeFile(t, w.mem, w.name, bad)
			if at := int64(bit / 8); vouched || at < last {
				wantCorrupt(t, w, w.name, at)
			} else {
				wantState(t, w, len(w.states)-2)
			}
		}
		writeFile(t, w.mem, w.name, w.file)
		wantState(t, w, len(w.states)-1)
		line := readFile(t, w.mem, CurrentName)
		for bit := range len(line) * 8 {
			bad := bytes.Clone(line)
			bad[bit/8] ^= 1 << (bit % 8)
			writeFile(t, w.mem, CurrentName, bad)
			wantCorrupt(t, w, CurrentName, 0)
		}
	}
}

// A manifest that was cut within what CURRENT vouches for is corrupt; behind
// that it shows the last whole edit, for a crash leaves the same.
func TestCutAnywhere(t *testing.T) {
	for _, vouched := range []bool{false, true} {
		for _, zeros := range []int{0, 1, 600} {
			w := write(t, vouched)
			durable := w.ends[0]
			if vouched {
				durable = w.ends[len(w.ends)-1]
			}
			for n := range w.file {
				cut := append(bytes.Clone(w.file[:n]), make([]byte, zeros)...)
				writeFile(t, w.mem, w.name, cut)
				if !bytes.HasPrefix(cut, w.file[:durable]) {
					wantCorrupt(t, w, w.name, int64(len(cut)))
					continue
				}
				// What was cut may itself have been zeros.
				whole := len(w.ends) - 1
				for !bytes.HasPrefix(cut, w.file[:w.ends[whole]]) {
					whole--
				}
				wantState(t, w, whole)
			}
		}
	}
}

// Zeros or garbage behind the last edit are what a crash leaves.
func TestTailIsIgnored(t *testing.T) {
	for _, vouched := range []bool{false, true} {
		w := write(t, vouched)
		for _, tail := range [][]byte{make([]byte, 5000), bytes.Repeat([]byte{0xa5}, 5000), w.file[:headerLen+20]} {
			writeFile(t, w.mem, w.name, append(bytes.Clone(w.file), tail...))
			wantState(t, w, len(w.states)-1)
		}
	}
}

func TestOneFileForAnother(t *testing.T) {
	w := write(t, false)
	other := newMem(t)
	mustCreate(t, other, 8, firstState())
	writeFile(t, w.mem, w.name, readFile(t, other, ManifestName(8)))
	wantCorrupt(t, w, w.name, 12)
	writeFile(t, w.mem, w.name, nil)
	wantCorrupt(t, w, w.name, 0)
	writeFile(t, w.mem, w.name, w.file)
	writeFile(t, w.mem, CurrentName, nil)
	wantCorrupt(t, w, CurrentName, 0)
}

// Edits whose checksum is right but which do not fit what came before.
func TestEditsThatDoNotFit(t *testing.T) {
	w := write(t, false)
	end := int64(len(w.file))
	for name, c := range map[string]struct {
		edit *Edit
		at   int64 // of the corruption
		want string
	}{
		"remove absent":         {&Edit{Removed: []LevelFile{{0, 12}}}, end, "000012"},
		"add twice":             {add(2, table(15, "a", "b", 1, 1)), end, "000015"},
		"invariant 16: table":   {add(2, table(17, "a", "b", 1, 1)), end, "000017"},
		"invariant 16: segment": {&Edit{AddedSegments: []keys.FileNum{17}}, end, "000017"},
		"inverted keys":         {add(2, table(14, "b", "a", 1, 1)), end, `"b"`},
		"overlap":               {add(1, table(14, "h", "i", 1, 1)), end + record.Size(int64(len(appendEdit(nil, add(1, table(14, "h", "i", 1, 1)))))), "000014"},
	} {
		b := record.Append(bytes.Clone(w.file), record.Frame{Number: 9, Offset: end, Synced: end}, nil, appendEdit(nil, c.edit))
		writeFile(t, w.mem, w.name, b)
		_, err := Load(w.mem, dir)
		var bad *corrupt.Error
		if !errors.As(err, &bad) || bad.Offset != c.at || bad.File != w.name || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: want a corruption at %d, got %v", name, c.at, err)
		}
	}
}

// Invariant 16, for the manifest's own number: the smallest manifest that
// Load takes, and the one below.
func TestManifestNumberIsBelowNext(t *testing.T) {
	for next, ok := range map[keys.FileNum]bool{9: false, 10: true} {
		mem := newMem(t)
		b := appendHeader(nil, 9, [16]byte{})
		b = record.Append(b, record.Frame{Number: 9, Offset: headerLen}, nil, appendEdit(nil, &Edit{NextFileNum: next}))
		writeFile(t, mem, ManifestName(9), b)
		writeFile(t, mem, CurrentName, current{num: 9, durableBytes: int64(len(b))}.encode())
		if _, err := Load(mem, dir); (err == nil) != ok || !ok && !errors.Is(err, corrupt.ErrCorrupt) {
			t.Errorf("next file number %d: %v", next, err)
		}
	}
}

// The files of a released format stay readable for ever.
func TestGoldenFiles(t *testing.T) {
	w := write(t, true)
	golden := filepath.Join("testdata", "v1")
	if *update {
		if err := os.MkdirAll(golden, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{CurrentName, w.name} {
			if err := os.WriteFile(filepath.Join(golden, name), readFile(t, w.mem, name), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	mem := newMem(t)
	for _, name := range []string{CurrentName, w.name} {
		b, err := os.ReadFile(filepath.Join(golden, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(b, readFile(t, w.mem, name)) {
			t.Errorf("%s is not what is written today", name)
		}
		writeFile(t, mem, name, b)
	}
	if got := loaded(mem); got != w.states[len(w.states)-1] {
		t.Errorf("got\n%s\nwant\n%s", got, w.states[len(w.states)-1])
	}
}

// Whatever the bytes are, Load ends with a state that obeys the rules or with
// an error of a known kind.
func FuzzLoad(f *testing.F) {
	w := write(f, false)
	f.Add(w.file)
	f.Add(w.file[:len(w.file)-3])
	line := current{num: 9, durableBytes: headerLen}.encode()
	f.Fuzz(func(t *testing.T, b []byte) {
		mem := newMem(t)
		writeFile(t, mem, CurrentName, line)
		writeFile(t, mem, w.name, b)
		st, err := Load(mem, dir)
		if err != nil {
			var v *VersionError
			if !errors.Is(err, corrupt.ErrCorrupt) && !errors.As(err, &v) {
				t.Fatal(err)
			}
			return
		}
		if _, err := (&State{Version: &Version{}}).Apply(st.snapshot()); err != nil {
			t.Fatalf("%v\n%s", err, dump(st))
		}
	})
}
