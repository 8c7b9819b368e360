package trial

import (
	"bytes"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sievedb/cmd/kvbench/engines/internal/store"
)

func testConfig(t *testing.T) *Config {
	return &Config{Keys: 2000, Seed: 42, ValueBytes: 40, Singles: 300, Synced: 2, Lookups: 400, Scans: 20, Dir: t.TempDir()}
}

// Every engine makes every workload with right answers, tuned and as it is.
func TestEngines(t *testing.T) {
	for _, engine := range store.Engines() {
		for _, tuned := range []bool{false, true} {
			c := testConfig(t)
			c.Options = store.Options{Tuned: tuned, CacheBytes: 1 << 20, MemtableBytes: 1 << 20, BitsPerKey: 10}
			trial, err := New(engine, c)
			if err != nil {
				t.Fatal(err)
			}
			runAll(t, trial)
			if n, err := trial.DiskBytes(); err != nil || n < 2000 {
				t.Errorf("%s: %d bytes on disk, %v", engine.Name, n, err)
			}
			if err := trial.Close(); err != nil {
				t.Errorf("%s: %v", engine.Name, err)
			}
		}
	}
}

// runAll makes all workloads, each of so many operations.
func runAll(t *testing.T, trial *Trial) {
	t.Helper()
	want := map[string]int{"fill, sequential": 300, "fill, random": 300, "fill, synced": 2, Load: 2000, "scan 100": 20,
		Compact: 1, "full scan": 2000, "full scan back": 2000, "delete": 200}
	for _, name := range Names() {
		x, err := trial.Run(name)
		if err != nil {
			t.Errorf("%s: %v", trial.engine.Name, err)
			continue
		}
		if x == nil {
			if name != Compact {
				t.Errorf("%s makes no %q", trial.engine.Name, name)
			}
			continue
		}
		n := want[name]
		if n == 0 {
			n = 400
		}
		if x.Operations != n || x.MeanNs <= 0 || x.Engine != trial.engine.Name || x.P99Ns < x.P50Ns {
			t.Errorf("%s: %s: %+v", trial.engine.Name, name, x)
		}
	}
}

// model is a store that answers right, unless one of its functions is replaced.
type model struct {
	entries map[string]string
	get     func(key string) (string, bool)
	visit   func(keys []string) []string
}

func newModel() *model {
	m := &model{entries: map[string]string{}}
	m.get = func(key string) (string, bool) { v, ok := m.entries[key]; return v, ok }
	m.visit = func(keys []string) []string { return keys }
	return m
}

func (m *model) Put(key, value []byte) error { m.entries[string(key)] = string(value); return nil }
func (m *model) PutBatch(entries []store.Entry) error {
	for _, e := range entries {
		m.entries[string(e.Key)] = string(e.Value)
	}
	return nil
}
func (m *model) Get(dst, key []byte) ([]byte, bool, error) {
	v, ok := m.get(string(key))
	return append(dst[:0], v...), ok, nil
}
func (m *model) Delete(key []byte) error { delete(m.entries, string(key)); return nil }
func (m *model) Scan(from []byte, visit func(key, value []byte) bool) error {
	var keys []string
	for key := range m.entries {
		if key >= string(from) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	m.each(keys, visit)
	return nil
}
func (m *model) Backward(visit func(key, value []byte) bool) error {
	var keys []string
	for key := range m.entries {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	slices.Reverse(keys)
	m.each(keys, visit)
	return nil
}
func (m *model) each(keys []string, visit func(key, value []byte) bool) {
	for _, key := range m.visit(keys) {
		if !visit([]byte(key), []byte(m.entries[key])) {
			return
		}
	}
}
func (m *model) Compact() (bool, error) { return true, nil }
func (m *model) Close() error           { return nil }

func modelTrial(t *testing.T, m *model) *Trial {
	t.Helper()
	trial, err := New(store.Engine{Name: "model", Open: func(string, *store.Options) (store.Store, error) { return m, nil }}, testConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	return trial
}

func TestModelIsRight(t *testing.T) { runAll(t, modelTrial(t, newModel())) }

// A wrong answer of any kind ends the run, in the workload that meets it.
func TestWrongAnswers(t *testing.T) {
	cut := func(keys []string) []string { return keys[:len(keys)-1] }
	for name, x := range map[string]struct {
		workload, says string
		lie            func(m *model)
	}{
		"lost":           {"present", "not found", func(m *model) { m.get = func(string) (string, bool) { return "", false } }},
		"another value":  {"present", "another value", func(m *model) { m.get = func(string) (string, bool) { return "x", true } }},
		"invented":       {"absent", "never stored", func(m *model) { m.get = func(string) (string, bool) { return "", true } }},
		"scan, missing":  {"scan 100", "not those", func(m *model) { m.visit = func(k []string) []string { return k[min(1, len(k)-1):] } }},
		"scan, disorder": {"mixed", "not in order", func(m *model) { m.visit = func(k []string) []string { slices.Reverse(k); return k } }},
		"full, missing":  {"full scan", "1999 entries", func(m *model) { m.visit = cut }},
		"full, disorder": {"full scan", "not in order", func(m *model) { m.visit = func(k []string) []string { k[0], k[1] = k[1], k[0]; return k } }},
		"back, missing":  {"full scan back", "1999 entries", func(m *model) { m.visit = cut }},
		"fill, lost":     {"fill, random", "not found", func(m *model) { m.get = func(string) (string, bool) { return "", false } }},
		"still there": {"delete", "but deleted", func(m *model) {
			before := maps.Clone(m.entries)
			m.get = func(key string) (string, bool) { v, ok := before[key]; return v, ok }
		}},
	} {
		m := newModel()
		trial := modelTrial(t, m)
		for _, w := range Names() {
			if w == x.workload {
				x.lie(m)
				_, err := trial.Run(w)
				if err == nil || !strings.Contains(err.Error(), w+": WRONG ANSWER: ") || !strings.Contains(err.Error(), x.says) {
					t.Errorf("%s: %v", name, err)
				}
				break
			}
			if _, err := trial.Run(w); err != nil {
				t.Fatalf("%s: %v", w, err)
			}
		}
	}
}

// Serve answers each request, and says what went wrong.
func TestServe(t *testing.T) {
	dir := filepath.ToSlash(t.TempDir())
	begin := `{"engine":"bbolt","config":{"Keys":1000,"Singles":10,"Lookups":10,"Scans":1,"Dir":"` + dir + `"}}`
	for _, x := range []struct {
		requests string
		replies  int
		says     string
	}{
		{"", 0, ""},
		{begin + `{"workload":"fill, random"}{"workload":"fill, batches"}{"workload":"compact"}`, 4, ""},
		{begin + `{"workload":"compact"}`, 2, "nothing was loaded"},
		{begin + `{"workload":"x"}`, 2, "no workload"},
		{`{"engine":"x"}`, 1, "no engine"},
		{`{"engine":"bbolt","config":{"KeysFile":"` + dir + `/none"}}`, 1, "none"},
		{begin + `{`, 1, "reading a request"},
	} {
		var out bytes.Buffer
		err := Serve(strings.NewReader(x.requests), &out)
		if got := strings.Count(out.String(), "\n"); got != x.replies {
			t.Errorf("%s: %d replies, want %d: %s", x.requests, got, x.replies, out.String())
		}
		if (err == nil) != (x.says == "") || err != nil && !strings.Contains(err.Error(), x.says) {
			t.Errorf("%s: %v, want %q", x.requests, err, x.says)
		}
		if err := os.RemoveAll(filepath.Join(dir, "store")); err != nil {
			t.Fatal(err)
		}
	}
	if err := Serve(io.LimitReader(strings.NewReader(begin), 5), io.Discard); err == nil {
		t.Error("half a request is none")
	}
}
