package results

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sievedb/cmd/kvbench/internal/report"
)

// What was written is read again as it was.
func TestReadBack(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "*", "testdata", "*.json"))
	if err != nil || len(files) != len(schemas) {
		t.Fatalf("%v: %d golden results, want one of each schema: %v", err, len(files), files)
	}
	for _, name := range files {
		run, err := Read(name)
		if err != nil {
			t.Error(err)
			continue
		}
		var got bytes.Buffer
		if err := report.Write(&got, run, report.JSON); err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if got.String() != strings.ReplaceAll(string(want), "\r\n", "\n") { // as a checkout on Windows may have it
			t.Errorf("%s was read and written as\n%s", name, got.String())
		}
	}
}

func TestReadRefuses(t *testing.T) {
	for name, x := range map[string]struct{ content, says string }{
		"empty":    {"", "no result of kvbench"},
		"text":     {"hello", "no result of kvbench"},
		"list":     {"[]", "no result of kvbench"},
		"nameless": {"{}", "names no schema"},
		"other":    {`{"schema":"sievedb.kvbench/99"}`, `"sievedb.kvbench/99" is not one`},
		"damaged":  {`{"schema":"sievedb.kvbench/1","setup":3}`, "damaged"},
	} {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte(x.content), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(file); err == nil || !strings.Contains(err.Error(), x.says) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v, want words of %q and the file's name", name, err, x.says)
		}
	}
	if _, err := Read(filepath.Join(t.TempDir(), "missing")); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("missing: %v", err)
	}
}

// A result cut down to its schema can be shown in every form: nothing is taken
// for granted of what a file holds.
func TestAlmostEmptyRunsAreShown(t *testing.T) {
	for _, schema := range schemas {
		run, err := decode([]byte(`{"schema":"` + schema + `"}`))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range report.Formats {
			if err := report.Write(new(bytes.Buffer), run, f); err != nil {
				t.Errorf("%s as %s: %v", schema, f, err)
			}
		}
	}
}

// No half of a result is left.
func TestSave(t *testing.T) {
	half := filepath.Join(t.TempDir(), "half")
	err := Save(half, func(w io.Writer) error { _, _ = w.Write([]byte("x")); return errors.New("disk full") })
	if _, statErr := os.Stat(half); err == nil || !strings.Contains(err.Error(), half) || !errors.Is(statErr, os.ErrNotExist) {
		t.Errorf("%v, %v", err, statErr)
	}
	if err := Save(half, func(w io.Writer) error { _, err := w.Write([]byte("x")); return err }); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(half); err != nil || string(b) != "x" {
		t.Errorf("%q, %v", b, err)
	}
}
