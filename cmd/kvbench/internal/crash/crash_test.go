package crash

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"sievedb"
	"sievedb/cmd/kvbench/internal/meter"
	"sievedb/cmd/kvbench/internal/report"
)

// childVariable makes the test's own program the child.
const childVariable = "KVBENCH_CRASH_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		c := config(os.Args[1])
		c.Synced = os.Args[2] == "true"
		first, err := strconv.ParseUint(os.Args[3], 10, 64)
		if err == nil {
			err = Write(context.Background(), c, first, os.Stdout)
		}
		os.Stderr.WriteString(err.Error())
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func config(dir string) *Config {
	return &Config{Kills: 6, Seed: 42, Keys: 500, ValueBytes: 200, Synced: true, Dir: dir, ChildArgs: []string{dir, "true"}}
}

var silent = meter.New(new(strings.Builder))

func TestNothingIsLost(t *testing.T) {
	t.Setenv(childVariable, "1")
	c := config(filepath.Join(t.TempDir(), "store"))
	r, err := Run(t.Context(), c, silent)
	if err != nil {
		t.Fatal(err)
	}
	if !r.OK || r.Lost != 0 || len(r.Kills) != c.Kills || r.Kills[5].Acknowledged == 0 || r.Kills[5].Entries == 0 {
		t.Errorf("%+v", r)
	}
}

// Without syncing the newest batches may be gone, and nothing else.
func TestUnsynced(t *testing.T) {
	t.Setenv(childVariable, "1")
	c := config(filepath.Join(t.TempDir(), "store"))
	c.Synced, c.ChildArgs[1] = false, "false"
	r, err := Run(t.Context(), c, silent)
	if err != nil || !r.OK {
		t.Errorf("%v %+v", err, r)
	}
}

func TestInterruptedAndHopeless(t *testing.T) {
	t.Setenv(childVariable, "1")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := config(filepath.Join(t.TempDir(), "store"))
	if r, err := Run(ctx, c, silent); r != nil || err == nil {
		t.Errorf("%v %+v", err, r)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if r, err := Run(t.Context(), config(file), silent); r != nil || err == nil || !strings.Contains(err.Error(), "ended by itself") {
		t.Errorf("%v %+v", err, r)
	}
}

// fill makes a store as batches up to n leave it.
func fill(t *testing.T, c *Config, n uint64) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	err := Write(ctx, c, 1, writerFunc(func(p []byte) (int, error) {
		if strings.TrimSpace(string(p)) == strconv.FormatUint(n, 10) {
			cancel()
		}
		return len(p), nil
	}))
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// Each kind of loss is noticed.
func TestVerifyFindsLosses(t *testing.T) {
	const n = 50
	for name, x := range map[string]struct {
		spoil        func(db *sievedb.DB, m *model) error
		acknowledged uint64
		says         string
		lost         uint64
	}{
		"nothing":    {nil, n, "", 0},
		"not told":   {nil, n - 1, "", 0},
		"lost":       {nil, n + 3, "", 3},
		"invented":   {nil, n - 2, "was the last that could be", 0},
		"key lost":   {func(db *sievedb.DB, m *model) error { return db.Delete(present(m)) }, n, "is lost", 0},
		"value":      {func(db *sievedb.DB, m *model) error { return db.Put(present(m), nil) }, n, "another value", 0},
		"resurrects": {func(db *sievedb.DB, m *model) error { return db.Put(absent(m), nil) }, n, "is there, but", 0},
		"extra":      {func(db *sievedb.DB, m *model) error { return db.Put([]byte("zzz"), nil) }, n, "a scan finds", 0},
	} {
		c := config(filepath.Join(t.TempDir(), "store"))
		fill(t, c, n)
		if x.spoil != nil {
			m := newModel(c)
			m.advance(n)
			db, err := sievedb.Open(c.Dir, c.options())
			if err != nil {
				t.Fatal(err)
			}
			if err := x.spoil(db, m); err != nil {
				t.Fatal(err)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
		}
		k, err := c.verify(newModel(c), x.acknowledged)
		if (err == nil) != (x.says == "") || err != nil && !strings.Contains(err.Error(), x.says) {
			t.Errorf("%s: %v, want words of %q", name, err, x.says)
		}
		r := &report.Crash{Setup: report.CrashSetup{Synced: true}, Kills: []report.Kill{k}}
		if r.Complete(); err == nil && (r.Lost != x.lost || r.OK != (x.lost == 0)) {
			t.Errorf("%s: %d lost, ok %v", name, r.Lost, r.OK)
		}
	}
}

func present(m *model) []byte {
	for i, v := range m.versions {
		if v != deleted {
			return appendKey(nil, i)
		}
	}
	return nil
}

func absent(m *model) []byte {
	for i, v := range m.versions {
		if v == deleted {
			return appendKey(nil, i)
		}
	}
	return nil
}
