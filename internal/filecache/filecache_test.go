package filecache

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"sievedb/internal/keys"
	"sievedb/vfs"
)

func name(num keys.FileNum) string { return fmt.Sprintf("%06d.sst", num) }

// newTestFiles returns files 1 to n, whose only byte is their number.
func newTestFiles(t *testing.T, n, maxOpen int) (*Cache, []*File, func() []keys.FileNum) {
	t.Helper()
	fs := vfs.NewMem()
	var mu sync.Mutex
	var obsolete []keys.FileNum
	files := New(fs, "", name, maxOpen, func(num keys.FileNum) {
		mu.Lock()
		defer mu.Unlock()
		obsolete = append(obsolete, num)
	})
	var all []*File
	for i := range n {
		num := keys.FileNum(i + 1)
		f, err := fs.Create(name(num))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte{byte(num)}); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		all = append(all, files.File(num))
	}
	return files, all, func() []keys.FileNum {
		mu.Lock()
		defer mu.Unlock()
		slices.Sort(obsolete)
		return slices.Clone(obsolete)
	}
}

func read(f *File) error {
	p := make([]byte, 1)
	if _, err := f.ReadAt(p, 0); err != nil {
		return err
	}
	if p[0] != byte(f.num) {
		return fmt.Errorf("file %d holds %d", f.num, p[0])
	}
	return nil
}

func TestFewFilesStayOpen(t *testing.T) {
	files, all, _ := newTestFiles(t, 20, 4)
	for range 3 {
		for _, f := range all {
			if err := read(f); err != nil {
				t.Fatal(err)
			}
			if n := files.Open(); n > 4 {
				t.Fatalf("%d files are open", n)
			}
		}
	}
}

// A file that is pinned is not closed to make room, and one that was given up
// goes with its last reader.
func TestGiveUpWaitsForReaders(t *testing.T) {
	files, all, obsolete := newTestFiles(t, 3, 1)
	if err := all[0].pin(); err != nil {
		t.Fatal(err)
	}
	if err := read(all[1]); err != nil {
		t.Fatal(err)
	}
	if err := all[0].GiveUp(); err != nil {
		t.Fatal(err)
	}
	if len(obsolete()) != 0 {
		t.Fatal("obsolete while it is read")
	}
	if err := read(all[0]); !errors.Is(err, ErrGone) {
		t.Errorf("reading a file that was given up: %v", err)
	}
	if _, err := all[0].handle.ReadAt(make([]byte, 1), 0); err != nil {
		t.Errorf("the reader that was there first: %v", err)
	}
	if err := all[0].unpin(); err != nil {
		t.Fatal(err)
	}
	for _, f := range all[1:] { // open or not
		if err := f.GiveUp(); err != nil {
			t.Fatal(err)
		}
	}
	if got := obsolete(); !slices.Equal(got, []keys.FileNum{1, 2, 3}) || files.Open() != 0 {
		t.Errorf("obsolete: %v, %d open", got, files.Open())
	}
}

func TestCloseAll(t *testing.T) {
	files, all, obsolete := newTestFiles(t, 3, 10)
	if err := all[0].pin(); err != nil {
		t.Fatal(err)
	}
	if err := read(all[1]); err != nil {
		t.Fatal(err)
	}
	if err := files.CloseAll(); err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if err := read(f); !errors.Is(err, ErrGone) {
			t.Errorf("file %d: %v", f.num, err)
		}
	}
	if err := all[0].unpin(); err != nil {
		t.Fatal(err)
	}
	if err := all[2].GiveUp(); err != nil {
		t.Fatal(err)
	}
	if got := obsolete(); len(got) != 0 {
		t.Errorf("closing the store made %v obsolete", got)
	}
}

// Readers, the limit and giving up race for the same files: every read sees
// the right file or ErrGone, and each file becomes obsolete once.
func TestFilesUnderContention(t *testing.T) {
	files, all, obsolete := newTestFiles(t, 12, 3)
	var wg sync.WaitGroup
	for w := range 6 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 1))
			for range 2000 {
				f := all[rng.IntN(len(all))]
				if err := read(f); err != nil && !errors.Is(err, ErrGone) {
					t.Error(err)
					return
				}
				if rng.IntN(1000) == 0 {
					if err := f.GiveUp(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	for _, f := range all {
		if err := f.GiveUp(); err != nil {
			t.Error(err)
		}
	}
	got := obsolete()
	if len(got) != len(all) || len(slices.Compact(got)) != len(all) || files.Open() != 0 {
		t.Errorf("obsolete: %v, %d open", got, files.Open())
	}
}

func TestOpenFails(t *testing.T) {
	files := New(vfs.NewMem(), "", name, 10, func(keys.FileNum) {})
	f := files.File(9)
	if err := read(f); err == nil || errors.Is(err, ErrGone) {
		t.Errorf("a file that is not there: %v", err)
	}
	if err := f.GiveUp(); err != nil {
		t.Error(err)
	}
}
