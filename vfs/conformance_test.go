package vfs_test

import (
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"sievedb/vfs"
)

// everyFS runs check on each implementation in a fresh directory.
func everyFS(t *testing.T, check func(t *testing.T, fsys vfs.FS, dir string)) {
	t.Run("OS", func(t *testing.T) { check(t, vfs.OS(), t.TempDir()) })
	t.Run("Mem", func(t *testing.T) {
		m := vfs.NewMem()
		must(t, m.MkdirAll("dir"))
		check(t, m, "dir")
	})
	t.Run("FaultyOS", func(t *testing.T) { check(t, vfs.NewFaulty(vfs.OS()), t.TempDir()) })
	t.Run("FaultyMem", func(t *testing.T) { check(t, vfs.NewFaulty(vfs.NewMem()), "/") })
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// get fails the test if a call did not return its value.
func get[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		must(t, err)
		return v
	}
}

func write(t testing.TB, f vfs.File, s string) {
	t.Helper()
	if n, err := f.Write([]byte(s)); n != len(s) || err != nil {
		t.Fatalf("Write of %d bytes: %d, %v", len(s), n, err)
	}
}

func create(t testing.TB, fsys vfs.FS, name, content string) vfs.File {
	t.Helper()
	f := get(fsys.Create(name))(t)
	write(t, f, content)
	return f
}

func put(t testing.TB, fsys vfs.FS, name, content string) {
	t.Helper()
	must(t, create(t, fsys, name, content).Close())
}

func read(t testing.TB, fsys vfs.FS, name string) string {
	t.Helper()
	f := get(fsys.Open(name))(t)
	content := contentOf(t, f)
	must(t, f.Close())
	return content
}

func contentOf(t testing.TB, f vfs.File) string {
	t.Helper()
	p := make([]byte, get(f.Size())(t))
	if n, err := f.ReadAt(p, 0); n != len(p) || err != nil && err != io.EOF {
		t.Fatalf("ReadAt of %d bytes: %d, %v", len(p), n, err)
	}
	return string(p)
}

func wantContent(t testing.TB, fsys vfs.FS, name, want string) {
	t.Helper()
	if got := read(t, fsys, name); got != want {
		t.Errorf("%s holds %q, want %q", name, got, want)
	}
}

func wantNames(t testing.TB, fsys vfs.FS, dir string, want ...string) {
	t.Helper()
	if got := get(fsys.List(dir))(t); !slices.Equal(got, want) {
		t.Errorf("List(%s) = %q, want %q", dir, got, want)
	}
}

// wantError checks the kind of an error, and that it names the thing.
func wantError(t testing.TB, err, kind error, name string) {
	t.Helper()
	if err == nil || kind != nil && !errors.Is(err, kind) || !strings.Contains(err.Error(), name) {
		t.Errorf("error %v, want one of kind %v that names %s", err, kind, name)
	}
}

func TestFileReadsAndWrites(t *testing.T) {
	everyFS(t, func(t *testing.T, fsys vfs.FS, dir string) {
		name := filepath.Join(dir, "f")
		f := create(t, fsys, name, "hello ")
		write(t, f, "world")
		write(t, f, "")
		p := make([]byte, 5)
		if n, err := f.ReadAt(p, 6); n != 5 || err != nil && err != io.EOF || string(p) != "world" {
			t.Errorf("ReadAt at 6: %d, %v, %q", n, err, p)
		}
		if n, err := f.ReadAt(p, 9); n != 2 || err != io.EOF || string(p[:2]) != "ld" {
			t.Errorf("ReadAt over the end: %d, %v, %q", n, err, p)
		}
		if n, err := f.ReadAt(p, 100); n != 0 || err != io.EOF {
			t.Errorf("ReadAt behind the end: %d, %v", n, err)
		}
		_, err := f.ReadAt(p, -1)
		wantError(t, err, nil, "f")
		must(t, f.Sync())
		must(t, f.Close())
		wantContent(t, fsys, name, "hello world")

		f = get(fsys.OpenReadWrite(name))(t)
		write(t, f, "!")
		if got := contentOf(t, f); got != "hello world!" {
			t.Errorf("after OpenReadWrite and Write: %q", got)
		}
		must(t, f.Close())
		must(t, get(fsys.Create(name))(t).Close())
		wantContent(t, fsys, name, "")
	})
}

func TestFileSizes(t *testing.T) {
	everyFS(t, func(t *testing.T, fsys vfs.FS, dir string) {
		name := filepath.Join(dir, "f")
		f := create(t, fsys, name, "0123456789")
		must(t, f.Truncate(4))
		write(t, f, "ab")
		must(t, f.Truncate(8))
		write(t, f, "c")
		if got, want := contentOf(t, f), "0123ab\x00\x00c"; got != want {
			t.Errorf("after Truncate: %q, want %q", got, want)
		}
		wantError(t, f.Truncate(-1), nil, "f")
		must(t, f.Close())
		if info := get(fsys.Stat(name))(t); info != (vfs.Info{SizeBytes: 9}) {
			t.Errorf("Stat: %+v", info)
		}
	})
}

func TestPreallocateKeepsPositionAndContent(t *testing.T) {
	everyFS(t, func(t *testing.T, fsys vfs.FS, dir string) {
		name := filepath.Join(dir, "f")
		f := create(t, fsys, name, "head")
		must(t, f.Preallocate(0))
		must(t, f.Preallocate(2))
		must(t, f.Preallocate(100_000))
		write(t, f, "tail")
		got := contentOf(t, f)
		if strings.TrimRight(got, "\x00") != "headtail" || len(got) != 8 && len(got) != 100_000 {
			t.Errorf("after Preallocate: %d bytes, %.20q", len(got), got)
		}
		must(t, f.Truncate(8))
		must(t, f.Close())
		wantContent(t, fsys, name, "headtail")
	})
}

func TestFileErrors(t *testing.T) {
	everyFS(t, func(t *testing.T, fsys vfs.FS, dir string) {
		name := filepath.Join(dir, "file-name")
		put(t, fsys, name, "x")
		f := get(fsys.Open(name))(t)
		_, err := f.Write([]byte("y"))
		wantError(t, err, nil, "file-name")
		wantError(t, f.Truncate(0), nil, "file-name")
		must(t, f.Close())
		wantContent(t, fsys, name, "x")

		f = get(fsys.OpenReadWrite(name))(t)
		must(t, f.Close())
		for op, call := range map[string]func() error{
			"ReadAt":   func() error { _, err := f.ReadAt(make([]byte, 1), 0); return err },
			"Write":    func() error { _, err := f.Write([]byte("z")); return err },
			"Size":     func() error { _, err := f.Size(); return err },
			"Truncate": func() error { return f.Truncate(0) },
			"Sync":     f.Sync,
			"Close":    f.Close,
		} {
			if err := call(); !errors.Is(err, fs.ErrClosed) {
				t.Errorf("%s of a closed file: %v", op, err)
			}
		}
		wantContent(t, fsys, name, "x")
	})
}

func TestNames(t *testing.T) {
	everyFS(t, func(t *testing.T, fsys vfs.FS, dir string) {
		at := func(name string) string { return filepath.Join(dir, name) }
		put(t, fsys, at("b"), "B")
		put(t, fsys, at("a"), "A")
		must(t, fsys.MkdirAll(at("d")))
		wantNames(t, fsys, dir, "a", "b", "d")

		must(t, fsys.Rename(at("a"), at("c")))
		wantContent(t, fsys, at("c"), "A")
		must(t, fsys.Rename(at("c"), at("b"))) // replaces
		wantContent(t, fsys, at("b"), "A")
		must(t, fsys.Rename(at("b"), at("d/b"))) // into another directory
		wantNames(t, fsys, dir, "d")
		must(t, fsys.Link(at("d/b"), at("l")))
		wantError(t, fsys.Link(at("d/b"), at("l")), fs.ErrExist, "l")
		must(t, fsys.Rename(at("l"), at("d/b"))) // the same file: both stay
		wantNames(t, fsys, dir, "d", "l")
		must(t, fsys.Remove(at("d/b")))
		wantContent(t, fsys, at("l"), "A")
		must(t, fsys.Rename(at("d"), at("e")))
		must(t, fsys.Remove(at("e")))
		wantNames(t, fsys, dir, "l")
		must(t, fsys.SyncDir(dir))
	})
}

func TestNameErrors(t *testing.T) {
	everyFS(t, func(t *testing.T, fsys vfs.FS, dir string) {
		at := func(name string) string { return filepath.Join(dir, name) }
		put(t, fsys, at("file"), "")
		must(t, fsys.MkdirAll(at("full/sub")))
		openErr := func(_ vfs.File, err error) error { return err }
		_, statErr := fsys.Stat(at("none"))
		_, listErr := fsys.List(at("none"))
		_, statBelow := fsys.Stat(at("file/none"))
		_, listFile := fsys.List(at("file"))
		for _, c := range []struct {
			what      string
			err, kind error
			name      string
		}{
			{"Open", openErr(fsys.Open(at("none"))), fs.ErrNotExist, "none"},
			{"OpenReadWrite", openErr(fsys.OpenReadWrite(at("none"))), fs.ErrNotExist, "none"},
			{"Create without directory", openErr(fsys.Create(at("none/f"))), fs.ErrNotExist, "none"},
			{"Create of a directory", openErr(fsys.Create(at("full"))), nil, "full"},
			{"OpenReadWrite of a directory", openErr(fsys.OpenReadWrite(at("full"))), nil, "full"},
			{"Create below a file", openErr(fsys.Create(at("file/f"))), nil, "file"},
			{"Remove", fsys.Remove(at("none")), fs.ErrNotExist, "none"},
			{"Remove of a full directory", fsys.Remove(at("full")), nil, "full"},
			{"Rename", fsys.Rename(at("none"), at("x")), fs.ErrNotExist, "none"},
			{"Rename over a directory", fsys.Rename(at("file"), at("full")), fs.ErrExist, "full"},
			{"Rename of a directory over a file", fsys.Rename(at("full"), at("file")), nil, "full"},
			{"Rename into itself", fsys.Rename(at("full"), at("full/sub/x")), nil, "full"},
			{"Rename into nothing", fsys.Rename(at("file"), at("none/x")), fs.ErrNotExist, "none"},
			{"Link", fsys.Link(at("none"), at("x")), fs.ErrNotExist, "none"},
			{"Link of a directory", fsys.Link(at("full"), at("x")), nil, "full"},
			{"Link into nothing", fsys.Link(at("file"), at("none/x")), fs.ErrNotExist, "none"},
			{"Stat", statErr, fs.ErrNotExist, "none"},
			{"Stat below a file", statBelow, nil, "file"},
			{"List", listErr, fs.ErrNotExist, "none"},
			{"List of a file", listFile, nil, "file"},
			{"SyncDir", fsys.SyncDir(at("none")), fs.ErrNotExist, "none"},
			{"MkdirAll over a file", fsys.MkdirAll(at("file")), nil, "file"},
			{"MkdirAll below a file", fsys.MkdirAll(at("file/d")), nil, "file"},
		} {
			t.Run(c.what, func(t *testing.T) { wantError(t, c.err, c.kind, c.name) })
		}
		wantNames(t, fsys, dir, "file", "full")
	})
}

func TestMkdirAllAndAbs(t *testing.T) {
	everyFS(t, func(t *testing.T, fsys vfs.FS, dir string) {
		deep := filepath.Join(dir, "x/y/z")
		must(t, fsys.MkdirAll(deep+"/"))
		must(t, fsys.MkdirAll(deep))
		if info := get(fsys.Stat(deep))(t); !info.IsDir {
			t.Errorf("Stat of a directory: %+v", info)
		}
		abs := get(fsys.Abs("some/../thing"))(t)
		if !filepath.IsAbs(abs) || filepath.Base(abs) != "thing" || get(fsys.Abs(abs))(t) != abs {
			t.Errorf("Abs: %q", abs)
		}
	})
}

// A file without a name serves those who have it open, as on POSIX systems.
func TestRemovedFileStaysOpen(t *testing.T) {
	everyFS(t, func(t *testing.T, fsys vfs.FS, dir string) {
		if os.PathSeparator == '\\' {
			t.Skip("open files cannot be removed on Windows")
		}
		name := filepath.Join(dir, "f")
		f := create(t, fsys, name, "old")
		must(t, fsys.Remove(name))
		put(t, fsys, name, "new")
		write(t, f, "er")
		if got := contentOf(t, f); got != "older" {
			t.Errorf("the removed file holds %q", got)
		}
		must(t, f.Close())
		wantContent(t, fsys, name, "new")
	})
}

func TestLockExcludes(t *testing.T) {
	everyFS(t, func(t *testing.T, fsys vfs.FS, dir string) {
		name := filepath.Join(dir, "LOCK")
		put(t, fsys, name, "123456789012345678\n") // a stale, longer entry
		lock := get(fsys.Lock(name))(t)
		for range 2 { // losing must not release the lock either
			_, err := fsys.Lock(name)
			var locked *vfs.LockedError
			if !errors.As(err, &locked) || *locked != (vfs.LockedError{Name: name, PID: os.Getpid()}) {
				t.Fatalf("second Lock: %v", err)
			}
		}
		get(fsys.Lock(filepath.Join(dir, "OTHER")))(t)
		must(t, lock.Close())
		if err := lock.Close(); err == nil {
			t.Error("the second Close of a lock succeeds")
		}
		lock = get(fsys.Lock(name))(t)
		must(t, lock.Close())
		_, err := fsys.Lock(filepath.Join(dir, "none/LOCK"))
		wantError(t, err, fs.ErrNotExist, "none")
	})
}

func TestLockedErrorText(t *testing.T) {
	for pid, want := range map[int]string{0: "x/LOCK is held by another process", 42: "x/LOCK is held by process 42"} {
		if got := (&vfs.LockedError{Name: "x/LOCK", PID: pid}).Error(); got != want {
			t.Errorf("PID %d: %q", pid, got)
		}
	}
}

// Readers run beside a writer and beside changes of names.
func TestConcurrentUse(t *testing.T) {
	everyFS(t, func(t *testing.T, fsys vfs.FS, dir string) {
		f := create(t, fsys, filepath.Join(dir, "f"), strings.Repeat("a", 1000))
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				other := filepath.Join(dir, string(rune('A'+i)))
				p := make([]byte, 100)
				for range 50 {
					if _, err := f.ReadAt(p, 500); err != nil || p[0] != 'a' {
						t.Errorf("ReadAt: %v, %q", err, p[0])
					}
					if g, err := fsys.Create(other); err != nil || g.Close() != nil || fsys.Remove(other) != nil {
						t.Errorf("create and remove %s: %v", other, err)
					}
				}
			})
		}
		for range 50 {
			write(t, f, "b")
		}
		must(t, f.Sync())
		wg.Wait()
		must(t, f.Close())
	})
}

// Random calls on one file agree with a slice of bytes.
func TestFileModel(t *testing.T) {
	everyFS(t, func(t *testing.T, fsys vfs.FS, dir string) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 0))
		f := get(fsys.Create(filepath.Join(dir, "f")))(t)
		var model []byte
		pos := 0
		for range 300 {
			switch rng.IntN(8) {
			case 0:
				size := rng.IntN(40_000)
				must(t, f.Truncate(int64(size)))
				model = append(model, make([]byte, max(0, size-len(model)))...)[:size]
				pos = size
			case 1:
				size := rng.IntN(40_000)
				must(t, f.Preallocate(int64(size)))
				model = append(model, make([]byte, int(get(f.Size())(t))-len(model))...)
			case 2:
				must(t, f.Sync())
			default:
				p := make([]byte, rng.IntN(10_000))
				for i := range p {
					p[i] = byte(rng.Uint32())
				}
				write(t, f, string(p))
				model = append(model, make([]byte, max(0, pos+len(p)-len(model)))...)
				pos += copy(model[pos:], p)
			}
			off := rng.IntN(len(model) + 1)
			p := make([]byte, rng.IntN(len(model)-off+1))
			if _, err := f.ReadAt(p, int64(off)); err != nil && err != io.EOF || string(p) != string(model[off:off+len(p)]) {
				t.Fatalf("%d bytes at %d of %d differ: %v", len(p), off, len(model), err)
			}
		}
		if got := contentOf(t, f); got != string(model) {
			t.Errorf("the contents differ at the end")
		}
		must(t, f.Close())
	})
}
