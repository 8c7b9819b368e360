package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sievedb"
	"sievedb/explain"
)

// TestExplainCommand explains keys of a store that is not open, and of one that
// this process has open for writing.
func TestExplainCommand(t *testing.T) {
	dir := makeStore(t)
	explainAll := func() {
		t.Helper()
		for _, c := range []struct {
			key  string
			want []string
		}{
			{"user:02065", []string{`query on "user:02065"`, "memtable  ", "found, put #", "not reached", "Found: put #", "a value of 13 bytes"}},
			{`"user:00001"`, []string{"L6 ", "Found: put #0"}},
			{"0x757365723a", []string{`query on "user:"`, "Not found"}},
			{"zzz", []string{"Check against min and max keys allows skipping", "Not found"}},
		} {
			code, out, errs := sievectl("explain", dir, c.key)
			if code != exitOK || errs != "" {
				t.Fatalf("%s: exit code %d, %s", c.key, code, errs)
			}
			for _, want := range c.want {
				if !strings.Contains(out, want) {
					t.Errorf("%s: %q is not in\n%s", c.key, want, out)
				}
			}
		}
	}
	explainAll()
	db, err := sievedb.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 { // what the open has flushed
		if err := db.Put(fmt.Appendf(nil, "user:%05d", 2050+i), fmt.Appendf(nil, "value of %d", 2050+i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Sync(); err != nil {
		t.Fatal(err)
	}
	explainAll()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}

	// Twice the same key: cold and warm.
	key := hex.EncodeToString([]byte("user:00001"))
	_, out, _ := sievectl("explain", "--hex", dir, key, key)
	if strings.Count(out, "filter read from disk") != 1 || strings.Count(out, "block 0 from disk (") != 1 || strings.Count(out, " from cache, found") != 1 {
		t.Errorf("twice:\n%s", out)
	}
	if _, out, _ := sievectl("explain", "--no-filters", "--hex", dir, key); !strings.Contains(out, "filters are off, block 0 from disk") {
		t.Errorf("without filters:\n%s", out)
	}
	code, out, errs := sievectl("explain", "--json", "--hex", dir, key, key)
	if code != exitOK || errs != "" {
		t.Fatalf("exit code %d, %s", code, errs)
	}
	dec := json.NewDecoder(strings.NewReader(out))
	for range 2 {
		var trace explain.Trace
		if err := dec.Decode(&trace); err != nil || trace.Schema != explain.Schema || string(trace.Key) != "user:00001" || trace.Result != explain.Found {
			t.Errorf("%v\n%s", err, &trace)
		}
	}
}

func TestExplainMistakes(t *testing.T) {
	empty, dir := t.TempDir(), makeStore(t)
	file := filepath.Join(empty, "file")
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{nil, exitUsage, "needs the directory of a store and a key"},
		{[]string{dir}, exitUsage, "needs the directory of a store and a key"},
		{[]string{dir, "0x0"}, exitUsage, `key "0x0": encoding/hex`},
		{[]string{dir, "--hex", "key"}, exitUsage, `key "key": encoding/hex`},
		{[]string{dir, `"key`}, exitUsage, "invalid syntax"},
		{[]string{empty, "k"}, exitFailure, "there is no store"},
		{[]string{filepath.Join(empty, "gone"), "k"}, exitFailure, "there is no store"},
		{[]string{file, "k"}, exitFailure, "opening " + file},
	} {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		code, out, errs := sievectl(append([]string{"explain"}, c.args...)...)
		if code != c.code || out != "" || !strings.Contains(errs, c.says) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%q: exit code %d, stdout %q, stderr %q", c.args, code, out, errs)
		}
	}

	// A block that cannot be read: the steps up to it are printed.
	for _, level := range load(t, dir).Version.Levels {
		for _, m := range level {
			change(t, filepath.Join(dir, fmt.Sprintf("%06d.sst", m.FileNum)), flipAt(20))
		}
	}
	code, out, errs := sievectl("explain", dir, "user:00001")
	if code != exitFailure || !strings.Contains(out, "Failed: ") || !strings.Contains(errs, "corrupt") {
		t.Errorf("exit code %d, stderr %q\n%s", code, errs, out)
	}
}
