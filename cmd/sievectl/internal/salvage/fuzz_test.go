package salvage

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"sievedb"
	"sievedb/cmd/sievectl/internal/check"
	"sievedb/internal/damagetest"
	"sievedb/vfs"
)

// FuzzDir checks and repairs a directory of arbitrary files, their checksums as
// they are or made right. Neither may fail but with an error, change what it
// looks at, or make a store that cannot be read.
func FuzzDir(f *testing.F) {
	dir := f.TempDir()
	db, err := sievedb.Open(dir, &sievedb.Options{BlockBytes: 64, Compression: sievedb.NoCompression})
	for i := range 12 {
		err = errors.Join(err, db.Put(fmt.Appendf(nil, "key%02d", i), fmt.Appendf(nil, "value %d", i)))
	}
	err = errors.Join(err, db.Flush(f.Context()), db.DeleteRange([]byte("key03"), []byte("key05")), db.Delete([]byte("key09")),
		db.Flush(f.Context()), db.Put([]byte("key04"), []byte("newer")), db.Close())
	files := map[string][]byte{}
	names, listErr := vfs.OS().List(dir)
	for _, name := range names {
		b, readErr := os.ReadFile(filepath.Join(dir, name))
		files[name], err = b, errors.Join(err, readErr)
	}
	if err = errors.Join(err, listErr); err != nil {
		f.Fatal(err)
	}
	f.Add(damagetest.Pack(files), false)
	f.Add(damagetest.Pack(files), true)
	delete(files, "CURRENT")
	f.Add(damagetest.Pack(files), true)
	dir = f.TempDir()
	f.Fuzz(func(t *testing.T, packed []byte, sealed bool) {
		files := damagetest.Unpack(packed)
		if sealed {
			damagetest.Seal(files)
		}
		for name, b := range files {
			if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
				t.Fatal(err)
			}
			defer os.Remove(filepath.Join(dir, name))
		}
		_, _ = check.Dir(dir) // an error says that there is no store
		mem := vfs.NewMem()
		r, err := repair(dir, "new", &sievedb.Options{MustBeNew: true, FS: mem})
		if after := readAll(t, dir); !maps.EqualFunc(files, after, bytes.Equal) {
			t.Fatal("the source changed")
		}
		if err != nil {
			return
		}
		db, err := sievedb.Open("new", &sievedb.Options{MustExist: true, FS: mem})
		if err != nil {
			t.Fatal(err)
		}
		n, it := uint64(0), db.All()
		for range it.All() {
			n++
		}
		if err := errors.Join(it.Err(), db.Verify(t.Context()), db.Close()); err != nil || n != r.KeysWritten {
			t.Fatalf("%d keys of %d: %v", n, r.KeysWritten, err)
		}
	})
}
