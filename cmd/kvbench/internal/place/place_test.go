package place

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sievedb"
	"sievedb/cmd/kvbench/internal/meter"
)

// What is temporary goes unless it is kept, and a directory that was named
// stays in any case.
func TestPlaces(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	t.Setenv("TMP", temp) // Windows
	for _, x := range []struct {
		dir        string
		keep, left bool
	}{{"", false, false}, {"", true, true}, {filepath.Join(temp, "named"), false, true}} {
		p, err := New(x.dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := With(sievedb.Open, p.Dir, nil, func(db *sievedb.DB) error { return db.Put([]byte("k"), nil) }); err != nil {
			t.Fatal(err)
		}
		var notes bytes.Buffer
		if err := p.Leave(x.keep, meter.New(&notes)); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(p.Dir); (err == nil) != x.left {
			t.Errorf("%+v: %v", x, err)
		}
		if strings.Contains(notes.String(), p.Dir) != x.keep {
			t.Errorf("%+v: said %q", x, notes.String())
		}
	}
	if _, err := New(filepath.Join(temp, "named")); err == nil || !strings.Contains(err.Error(), "is not empty") {
		t.Errorf("where a store is: %v", err)
	}
}

// Errors of opening and of f come back, and what one says already is not said
// again.
func TestWith(t *testing.T) {
	if err := With(sievedb.Open, t.TempDir(), nil, func(*sievedb.DB) error { return io.ErrUnexpectedEOF }); err != io.ErrUnexpectedEOF {
		t.Errorf("%v", err)
	}
	if err := With(sievedb.OpenReadOnly, t.TempDir(), nil, nil); err == nil {
		t.Error("opened nothing")
	}
	one, two := errors.New("one"), errors.New("two")
	both := errors.Join(one, two)
	for _, x := range []struct {
		err, other error
		tells      bool
	}{{fmt.Errorf("put: %w", one), one, true}, {one, two, false}, {both, two, true}, {one, both, false}, {errors.Join(both, io.EOF), both, true}} {
		if tells(x.err, x.other) != x.tells {
			t.Errorf("%q tells %q: %v", x.err, x.other, !x.tells)
		}
	}
}
