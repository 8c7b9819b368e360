package sievedb

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"sievedb/internal/invariants"
	"sievedb/vfs"
)

const limitEnv = "SIEVEDB_LIMIT_CHILD" // a limited and a directory

// limits are what a process meets that its system holds short, each in a process
// of its own.
var limits = map[string]func(t *testing.T, dir string){
	"few files":             fewFiles,
	"little memory":         littleMemory,
	"no file left":          noFileLeft,
	"short files":           shortFiles,
	"a read-only place":     readOnlyPlace,
	"a directory that went": directoryGone,
}

// TestLimitChild is the child of TestLimitsOfTheSystem.
func TestLimitChild(t *testing.T) {
	name, dir, ok := strings.Cut(os.Getenv(limitEnv), "\n")
	if !ok {
		t.Skip("only as the child of TestLimitsOfTheSystem")
	}
	limits[name](t, dir)
}

// TestLimitsOfTheSystem runs stores into limits of the system.
func TestLimitsOfTheSystem(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	for name := range limits {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for d := dir; d != "/" && d != os.TempDir(); d = filepath.Dir(d) {
				must(t, os.Chmod(d, 0o755)) // a child without privileges must get there
			}
			child := exec.Command(os.Args[0], "-test.run=^TestLimitChild$", "-test.v", "-test.timeout=2m")
			child.Env = append(os.Environ(), limitEnv+"="+name+"\n"+dir)
			out, err := child.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for line := range strings.Lines(string(out)) {
				if strings.Contains(line, "_test.go:") {
					t.Log(strings.TrimSpace(line))
				}
			}
		})
	}
}

func setLimit(t *testing.T, resource int, n uint64) {
	t.Helper()
	var r syscall.Rlimit
	must(t, syscall.Getrlimit(resource, &r))
	r.Cur = min(n, r.Max)
	must(t, syscall.Setrlimit(resource, &r))
}

// unsynced is a file system on which nothing takes long.
type unsynced struct{ vfs.FS }

type unsyncedFile struct{ vfs.File }

func (unsyncedFile) Sync() error { return nil }

func (unsynced) SyncDir(string) error { return nil }

func (u unsynced) Create(name string) (vfs.File, error) {
	f, err := u.FS.Create(name)
	return unsyncedFile{f}, err
}

func (u unsynced) OpenReadWrite(name string) (vfs.File, error) {
	f, err := u.FS.OpenReadWrite(name)
	return unsyncedFile{f}, err
}

// manyTables makes a store of many small tables.
func manyTables(t *testing.T, dir string) (want model) {
	t.Helper()
	o := Options{Durability: SyncNever, MemtableBytes: 1 << 20, TableBytes: 4 << 10, BlockBytes: 512, Compression: NoCompression}
	db := mustOpen(t, unsynced{vfs.OS()}, dir, o)
	rng := newRand(1)
	const n = 8000
	want = make(model, n)
	for i := range n {
		at := i * 7919 % n // so that the memtables overlap, and are merged
		k, v := fmt.Appendf(nil, "key-%06d", at), make([]byte, 500)
		for j := range v {
			v[j] = byte(rng.Uint32())
		}
		must(t, db.Put(k, v))
		want[at] = entry{k, v}
	}
	compactAll(t, db)
	tables := len(db.Metrics().Tables)
	must(t, db.Close())
	t.Logf("%d tables", tables)
	if tables < 900 {
		t.Fatal("too few tables")
	}
	return want
}

// fewFiles has a store of a thousand tables in a process that may have 64 files
// open, with options that ask for more.
func fewFiles(t *testing.T, dir string) {
	want := manyTables(t, dir)
	setLimit(t, syscall.RLIMIT_NOFILE, 64)
	o := Options{MaxOpenFiles: 5000, TableBytes: 4 << 10, Durability: SyncNever}
	db := mustOpen(t, unsynced{vfs.OS()}, dir, o)
	if n := db.Options().MaxOpenFiles; n != 32 {
		t.Errorf("MaxOpenFiles is %d", n)
	}
	must(t, checkAll(db, want))
	for i := 0; i < len(want); i += 100 {
		want[i].value = nil
		must(t, db.Put(want[i].key, nil))
	}
	compactAll(t, db)
	if open := db.Metrics().OpenTableFiles; open > 32 {
		t.Errorf("%d tables are open", open)
	}
	must(t, db.Verify(context.Background()))
	must(t, db.Close())
	db = mustOpen(t, unsynced{vfs.OS()}, dir, Options{})
	must(t, checkAll(db, want))
	must(t, db.Close())
}

// noFileLeft has others take all files: reads of what is open go on, the rest is
// an error that names the file, and when the files are back all goes on.
func noFileLeft(t *testing.T, dir string) {
	want := manyTables(t, dir)
	db := mustOpen(t, vfs.OS(), dir, Options{TableBytes: 64 << 10, MemtableBytes: 64 << 10, CacheBytes: -1, Durability: SyncNever})
	must(t, checkAll(db, want))
	setLimit(t, syscall.RLIMIT_NOFILE, 0) // what is open stays so
	must(t, checkAll(db, want))
	var err error
	for i := 0; err == nil && i < 2000; i++ {
		if err = db.Put(fmt.Appendf(nil, "new-%06d", i), make([]byte, 500)); err == nil {
			want.put(fmt.Appendf(nil, "new-%06d", i), make([]byte, 500))
		}
	}
	if !errors.Is(err, syscall.EMFILE) || errors.Is(err, ErrReadOnly) || !strings.Contains(err.Error(), dir) {
		t.Errorf("a write that needs a file: %v", err)
	}
	if err := db.Flush(context.Background()); !errors.Is(err, syscall.EMFILE) {
		t.Errorf("flush: %v", err)
	}
	if _, err := Open(filepath.Join(dir, "other"), nil); !errors.Is(err, syscall.EMFILE) {
		t.Errorf("open: %v", err)
	}
	setLimit(t, syscall.RLIMIT_NOFILE, 4096)
	must(t, db.Put([]byte("zzz"), nil))
	want.put([]byte("zzz"), []byte{})
	compactAll(t, db)
	must(t, checkAll(db, want))
	must(t, db.Close())
}

// shortFiles limits the size of files, in turn that of the log, of the tables of
// a flush, of those of a compaction, and of the manifest, and lifts the limit.
func shortFiles(t *testing.T, dir string) {
	signal.Ignore(syscall.SIGXFSZ)
	for _, c := range []struct {
		name  string
		limit uint64
		o     Options
		fits  int // puts before the limit
		do    func(db *DB) error
	}{
		{"log", 32 << 10, Options{MemtableBytes: 1 << 20}, 0, nil},
		{"flush", 40 << 10, Options{MemtableBytes: 1 << 20}, 200, func(db *DB) error { return db.Flush(context.Background()) }},
		{"compaction", 150 << 10, Options{MemtableBytes: 128 << 10, L0CompactTables: 19}, 1000, func(db *DB) error { return db.Compact(context.Background(), nil, nil) }},
		{"manifest", 40 << 10, Options{MemtableBytes: 16 << 10, TableBytes: 8 << 10}, 0, nil},
	} {
		c.o.Durability, c.o.Compression = SyncNever, NoCompression
		dir := filepath.Join(dir, c.name)
		db := mustOpen(t, unsynced{vfs.OS()}, dir, c.o)
		var want model
		put := func(i int) error {
			k, v := fmt.Appendf(nil, "key-%06d", i%2000), bytes.Repeat(fmt.Append(nil, i), 80)
			err := db.Put(k, v)
			if err == nil {
				want.put(k, v)
			}
			return err
		}
		for i := range c.fits {
			must(t, put(i))
		}
		setLimit(t, syscall.RLIMIT_FSIZE, c.limit)
		var err error
		if c.do != nil {
			err = c.do(db)
		}
		puts := 0
		for ; err == nil && c.do == nil && puts < 100_000; puts++ {
			if err = put(puts); err == nil && puts%10 == 0 {
				err = db.Sync() // or the log gathers megabytes first
			}
		}
		if !errors.Is(err, syscall.EFBIG) || errors.Is(err, ErrReadOnly) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: after %d puts: %v", c.name, puts, err)
		}
		t.Logf("%s: %d puts, then: %v", c.name, c.fits+puts, err)
		must(t, checkAll(db, want))
		setLimit(t, syscall.RLIMIT_FSIZE, 1<<40)
		must(t, db.Flush(context.Background()))
		must(t, put(7))
		compactAll(t, db)
		must(t, checkAll(db, want))
		must(t, db.Close())
		db = mustOpen(t, unsynced{vfs.OS()}, dir, c.o)
		must(t, checkAll(db, want))
		must(t, db.Verify(context.Background()))
		must(t, db.Close())
	}
}

// dataBytes returns how much of what RLIMIT_DATA limits the process has.
func dataBytes(t *testing.T) uint64 {
	status, err := os.ReadFile("/proc/self/status")
	must(t, err)
	var kib uint64
	_, line, _ := strings.Cut(string(status), "VmData:")
	_, err = fmt.Sscan(line, &kib)
	must(t, err)
	return kib << 10
}

// littleMemory writes, compacts and reads three times as many bytes as the process
// may take of memory.
func littleMemory(t *testing.T, dir string) {
	if invariants.Enabled {
		t.Skip("the race detector alone needs more")
	}
	const more, total, size = 96 << 20, 3 * 96 << 20, 2 << 10
	setLimit(t, syscall.RLIMIT_DATA, dataBytes(t)+more)
	o := Options{MemtableBytes: 2 << 20, CacheBytes: 4 << 20, TableBytes: 1 << 20, Durability: SyncNever, Compression: NoCompression}
	db := mustOpen(t, unsynced{vfs.OS()}, dir, o)
	key, value, buf := make([]byte, 8), bytes.Repeat([]byte("value..."), size/8), make([]byte, 0, size)
	set := func(i uint64) {
		binary.BigEndian.PutUint64(key, i*0x9e3779b97f4a7c15) // scattered, and none twice
		binary.LittleEndian.PutUint64(value, i)
	}
	for i := range uint64(total / size) {
		set(i)
		must(t, db.Put(key, value))
	}
	compactAll(t, db)
	for i := range uint64(total / size) {
		set(i)
		got, err := db.GetTo(buf, key)
		if must(t, err); !bytes.Equal(got, value) {
			t.Fatalf("value %d is %.32q", i, got)
		}
	}
	it := db.All()
	n := 0
	for ok := it.Last(); ok; ok = it.Prev() {
		n += len(it.Value())
	}
	must(t, it.Close())
	if n != total {
		t.Errorf("a scan found %d bytes", n)
	}
	must(t, db.Verify(context.Background()))
	must(t, db.Close())
}

// readOnlyPlace opens where nothing may be written.
func readOnlyPlace(t *testing.T, dir string) {
	store := filepath.Join(dir, "store")
	db := mustOpen(t, vfs.OS(), store, tiny)
	want := fill(t, db, nil, 100, 0)
	must(t, db.Close())
	must(t, os.Chmod(store, 0o555))
	must(t, os.Chmod(dir, 0o555))
	defer func() { must(t, os.Chmod(dir, 0o755)) }()
	if os.Getuid() == 0 { // who may write everywhere
		must(t, syscall.Setfsuid(65534))
		defer func() { must(t, syscall.Setfsuid(0)) }()
	}
	for _, name := range []string{"store", "new"} {
		path := filepath.Join(dir, name)
		if db, err := Open(path, nil); !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), path) {
			t.Errorf("open of %s: %v, %v", name, db, err)
		}
	}
	ro, err := OpenReadOnly(store, nil)
	must(t, err)
	must(t, checkAll(ro, want))
	must(t, ro.Close())
}

// directoryGone removes the directory of an open store.
func directoryGone(t *testing.T, dir string) {
	dir = filepath.Join(dir, "store")
	db := mustOpen(t, vfs.OS(), dir, tiny)
	want := fill(t, db, nil, 200, 0)
	compactAll(t, db)
	must(t, checkAll(db, want)) // which opens all tables
	must(t, os.RemoveAll(dir))
	must(t, checkAll(db, want))
	var err error
	for i := 0; err == nil && i < 5000; i++ {
		err = db.Put(want[i%len(want)].key, want[i%len(want)].value)
	}
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), dir) {
		t.Errorf("put: %v", err)
	}
	if err := db.Put(nil, nil); !errors.Is(err, ErrReadOnly) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("another put: %v", err)
	}
	if err := db.Close(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("close: %v", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory is back: %v", err)
	}
}

const lockEnv = "SIEVEDB_LOCK_CHILD" // a directory

// TestLockChild is the child of TestLockBetweenProcesses: it opens a store, says
// how that went, and waits to be told to end.
func TestLockChild(t *testing.T) {
	dir := os.Getenv(lockEnv)
	if dir == "" {
		t.Skip("only as the child of TestLockBetweenProcesses")
	}
	db, err := Open(dir, nil)
	switch {
	case err == nil:
		fmt.Println("\nopened")
		_, _ = io.Copy(io.Discard, os.Stdin)
		must(t, db.Close())
	case errors.Is(err, ErrLocked) && strings.Contains(err.Error(), dir):
		fmt.Println("\nlocked")
	default:
		t.Fatal(err)
	}
}

// TestLockBetweenProcesses opens one store in several processes at once: one
// gets it, and the others are told at once, by the name of the directory.
func TestLockBetweenProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	dir := t.TempDir()
	const children = 4
	said := make(chan string, children)
	var in []io.Closer
	var started []*exec.Cmd
	for range children {
		child := exec.Command(os.Args[0], "-test.run=^TestLockChild$")
		child.Env = append(os.Environ(), lockEnv+"="+dir)
		stdin, err := child.StdinPipe()
		must(t, err)
		stdout, err := child.StdoutPipe()
		must(t, err)
		must(t, child.Start())
		in, started = append(in, stdin), append(started, child)
		go func() {
			answer := make([]byte, len("\nopened\n"))
			_, err := io.ReadFull(stdout, answer)
			said <- fmt.Sprint(strings.TrimSpace(string(answer)), err)
			_, _ = io.Copy(io.Discard, stdout)
		}()
	}
	answers := map[string]int{}
	for range children {
		answers[<-said]++
	}
	if answers["opened<nil>"] != 1 || answers["locked<nil>"] != children-1 {
		t.Errorf("%v", answers)
	}
	for i, child := range started {
		must(t, in[i].Close())
		must(t, child.Wait())
	}
}
