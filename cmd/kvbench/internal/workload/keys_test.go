package workload

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sievedb"
	"sievedb/vfs"
)

// wordFile has n distinct lines, empty ones, and repetitions of every tenth.
func wordFile(t *testing.T, n int) string {
	t.Helper()
	var b strings.Builder
	for i := range n {
		line := fmt.Sprintf("https://example.org/%07d/index.html", i*7919%10_000_019)
		b.WriteString(line + "\r\n\n")
		if i%10 == 0 {
			b.WriteString(line + "\n")
		}
	}
	name := filepath.Join(t.TempDir(), "words")
	if err := os.WriteFile(name, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

// The keys depend on the seed alone, and absent keys are what they should be:
// distinct, not stored, and between stored keys.
func TestKeys(t *testing.T) {
	file := wordFile(t, 3000)
	fromFile := func(seed uint64) *Keys {
		k, err := FromFile(file, 0, seed)
		if err != nil {
			t.Fatal(err)
		}
		if k.Repeated != 300 {
			t.Errorf("%d repeated lines, want 300", k.Repeated)
		}
		return k
	}
	for name, make := range map[string]func(seed uint64) *Keys{
		"numbered":       func(seed uint64) *Keys { return Numbered(3000, seed) },
		"computed":       func(seed uint64) *Keys { return Computed(3000, seed) },
		"computed, 2^12": func(seed uint64) *Keys { return Computed(4096, seed) },
		"file":           fromFile,
	} {
		outside := 0
		for seed := range uint64(6) {
			k := make(seed)
			checkKeys(t, fmt.Sprint(name, ", seed ", seed), k, make(seed), make(seed+1))
			outside += k.Outside
		}
		// With six seeds, an end of the file's order is somewhere not stored.
		if (outside > 0) != (name == "file") {
			t.Errorf("%s: %d keys outside", name, outside)
		}
	}
}

func checkKeys(t *testing.T, name string, k, same, other *Keys) {
	t.Helper()
	seen, lo, hi, moved := map[string]bool{}, "\xff", "", 0
	var total int64
	for i := range k.Stored {
		key := string(k.StoredKey(nil, i))
		if seen[key] || key != string(same.StoredKey(nil, i)) {
			t.Fatalf("%s: stored key %q twice, or not the same with the same seed", name, key)
		}
		if key != string(other.StoredKey(nil, i)) {
			moved++
		}
		seen[key], lo, hi = true, min(lo, key), max(hi, key)
		total += int64(len(key))
	}
	if total != k.KeyBytes || moved < k.Stored/2 {
		t.Errorf("%s: %d key bytes, counted %d; %d keys differ with another seed", name, k.KeyBytes, total, moved)
	}
	for i := range k.Absent {
		key := string(k.AbsentKey(nil, i))
		if seen[key] || key <= lo || key >= hi {
			t.Fatalf("%s: absent key %q is stored, repeated, or outside", name, key)
		}
		seen[key] = true
	}
	for i := range 100 {
		if key := string(k.OutsideKey(nil, i)); seen[key] || key <= hi {
			t.Fatalf("%s: %q is not outside, or repeated", name, key)
		} else {
			seen[key] = true
		}
	}
	if k.Absent+k.Outside < k.Stored-1 || k.Outside > 50 {
		t.Errorf("%s: %d stored, %d absent, %d outside", name, k.Stored, k.Absent, k.Outside)
	}
}

func TestBeyond(t *testing.T) {
	for key, want := range map[string]string{"abc": "b", "\xff\xffa": "\xff\xffb", "\xff": "\xff\x00", "": "\x00"} {
		if got := string(beyond([]byte(key))); got != want || got <= key {
			t.Errorf("beyond(%q) = %q, want %q", key, got, want)
		}
	}
}

// store opens a store in memory that holds keys.
func store(t *testing.T, keys ...string) *sievedb.DB {
	t.Helper()
	db, err := sievedb.Open("/db", &sievedb.Options{FS: vfs.NewMem(), Durability: sievedb.SyncNever})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, key := range keys {
		if err := db.Put([]byte(key), nil); err != nil {
			t.Fatal(err)
		}
	}
	return db
}

func TestFromStore(t *testing.T) {
	var keys []string
	for i := range 500 {
		keys = append(keys, fmt.Sprintf("%04d", i))
		if i%2 == 0 {
			keys = append(keys, fmt.Sprintf("%04d\x00", i)) // the successor is there
		}
	}
	db := store(t, keys...)
	for _, n := range []int{120, 10_000} {
		k, err := FromStore(db, "db", n, 1)
		if err != nil {
			t.Fatal(err)
		}
		same, err := FromStore(db, "db", n, 1)
		if err != nil {
			t.Fatal(err)
		}
		if want := min(n, len(keys)); k.Stored != want {
			t.Errorf("%d stored keys, want %d", k.Stored, want)
		}
		if want := min(n, len(keys)-250-1); k.Absent != want { // none after the last
			t.Errorf("%d absent keys, want %d", k.Absent, want)
		}
		distinct := map[string]bool{}
		for i := range k.Stored {
			key := k.StoredKey(nil, i)
			if ok, err := db.Has(key); !ok || err != nil || !bytes.Equal(key, same.StoredKey(nil, i)) {
				t.Fatalf("stored key %q: %v %v", key, ok, err)
			}
			distinct[string(key)] = true
		}
		for i := range k.Absent {
			key := k.AbsentKey(nil, i)
			if ok, err := db.Has(key); ok || err != nil || string(key) < keys[0] || string(key) > keys[len(keys)-1] {
				t.Fatalf("absent key %q: %v %v", key, ok, err)
			}
			distinct[string(key)] = true
		}
		if len(distinct) != k.Stored+k.Absent {
			t.Errorf("%d distinct keys of %d", len(distinct), k.Stored+k.Absent)
		}
	}
	if _, err := FromStore(store(t, "a"), "tiny", 10, 1); err == nil || !strings.Contains(err.Error(), "tiny has 1 keys") {
		t.Errorf("a tiny store: %v", err)
	}
}

func TestFromFileAndStore(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(file, []byte("b\nc\nd\nd\na\nzz\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	k, err := FromFileAndStore(store(t, "b", "d", "x"), file, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	if k.Stored != 2 || k.Absent != 1 || k.Outside != 2 || k.Repeated != 1 || string(k.AbsentKey(nil, 0)) != "c" {
		t.Errorf("%+v", k)
	}
	if _, err := FromFileAndStore(store(t), file, 0, 1); err == nil || !strings.Contains(err.Error(), "empty") {
		t.Errorf("an empty store: %v", err)
	}
}

func TestValuesTellVersions(t *testing.T) {
	v := NewValues(20, 1)
	seen := map[string]bool{}
	for i := range 100 {
		for version := range uint32(10) {
			seen[string(v.Of(i, version))] = true
		}
	}
	if len(seen) != 1000 {
		t.Errorf("%d distinct values of 1000", len(seen))
	}
}
