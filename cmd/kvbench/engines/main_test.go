package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sievedb/cmd/kvbench/engines/internal/trial"
	"sievedb/cmd/kvbench/internal/results"
	"sievedb/cmd/kvbench/internal/versus"
)

// TestMain lets the test's own program be the process that an engine runs in.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == serveArgument {
		os.Exit(serve(os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// engines runs the command with a temporary directory of its own, and checks
// that nothing is left in it.
func engines(t *testing.T, ctx context.Context, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	t.Setenv("TMP", temp) // Windows
	var out, errs bytes.Buffer
	code = run(ctx, args, &out, &errs)
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("%v: left in the temporary directory: %v %v", args, left, err)
	}
	return code, out.String(), errs.String()
}

// One command makes the table, the JSON and the page.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	html, file := filepath.Join(dir, "engines.html"), filepath.Join(dir, "engines.json")
	code, out, errs := engines(t, t.Context(), "-n", "1000", "--repetitions", "1", "--peers", "bbolt", "--format", "json", "-o", html, "--save", file)
	if code != exitOK || errs != "engines: wrote "+file+"\nengines: wrote "+html+"\n" {
		t.Fatalf("exit code %d, stderr %q", code, errs)
	}
	var r versus.Result
	d := json.NewDecoder(strings.NewReader(out))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		t.Fatal(err)
	}
	if r.Schema != versus.Schema || len(r.Setup.Engines) != 2 || len(r.Settings) != 2 || r.Interrupted || r.Setup.Keys != 1000 {
		t.Errorf("%+v", r)
	}
	for _, s := range r.Settings {
		var names []string
		for _, w := range s.Workloads {
			names = append(names, w.Name)
			if n := len(w.Timings); n != 2 && w.Name != trial.Compact {
				t.Errorf("%s, %s: %d engines", s.Name, w.Name, n)
			}
		}
		if !slices.Equal(names, trial.Names()) {
			t.Errorf("%s has the workloads %q", s.Name, names)
		}
		if len(s.Footprints) != 2 || s.Footprints[0].LoadedBytes == 0 || s.Footprints[1].CompactedBytes == 0 {
			t.Errorf("%s: %+v", s.Name, s.Footprints)
		}
	}
	saved, err := results.Read(file)
	if err != nil || saved.(*versus.Result).Setup.Keys != 1000 {
		t.Errorf("%v: %+v", err, saved)
	}
	page, err := os.ReadFile(html)
	if err != nil || bytes.Count(page, []byte("<svg ")) != 2 || !bytes.HasSuffix(page, []byte("</html>\n")) {
		t.Errorf("%v: %d charts", err, bytes.Count(page, []byte("<svg ")))
	}
}

func TestKeysOfAFile(t *testing.T) {
	var words strings.Builder
	for i := range 900 {
		words.WriteString("https://example.org/" + strings.Repeat("x", i%37) + "/" + time.Duration(i*7919).String() + "\n")
	}
	file := filepath.Join(t.TempDir(), "words")
	if err := os.WriteFile(file, []byte(words.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	code, out, errs := engines(t, t.Context(), "--keys", file, "--repetitions", "1", "--peers", "goleveldb", "--settings", "tuned", "--format", "gobench")
	if code != exitOK || errs != "" || strings.Count(out, "\nBenchmarkEngines/setting=tuned/workload=") != 2*len(trial.Names()) {
		t.Errorf("exit code %d, stderr %q, stdout:\n%s", code, errs, out)
	}
}

func TestMistakes(t *testing.T) {
	dir := t.TempDir()
	for _, x := range []struct {
		args string
		code int
		says string
	}{
		{"frobnicate", exitUsage, "frobnicate"},
		{"--frobnicate", exitUsage, "--frobnicate"},
		{"--peers rocksdb", exitUsage, `"rocksdb"; there are: [pebble,badger,goleveldb,bbolt]`},
		{"--peers sievedb", exitUsage, `"sievedb"`},
		{"--settings x", exitUsage, "tuned default"},
		{"--format x", exitUsage, "--format"},
		{"--quick --full", exitUsage, "--full"},
		{"-n 10", exitUsage, "--keys-count"},
		{"-n 2000 --keys x", exitUsage, "--keys-count"},
		{"--value-bytes -1", exitUsage, "--value-bytes"},
		{"--cache 0", exitUsage, "--cache"},
		{"--memtable 0", exitUsage, "--memtable"},
		{"--bits 0", exitUsage, "--bits"},
		{"--repetitions 0", exitUsage, "--repetitions"},
		{"--keys " + dir + "/none", exitFailure, "none"},
	} {
		code, out, errs := engines(t, t.Context(), strings.Fields(x.args)...)
		if code != x.code || out != "" || !strings.Contains(errs, x.says) || !strings.HasPrefix(errs, "engines: ") || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q", x.args, code, out, errs)
		}
	}
	if code, out, errs := engines(t, t.Context(), "--help"); code != exitOK || errs != "" || !strings.Contains(out, "go run -C cmd/kvbench/engines . --quick -o engines.html") {
		t.Errorf("exit code %d, %q, %q", code, errs, out)
	}
}

// An interrupted run prints what it has, and leaves nothing behind.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	code, out, errs := engines(t, &interrupting{Context: ctx, cancel: cancel}, "-n", "1000", "--peers", "bbolt")
	if code != exitInterrupted || !strings.HasPrefix(out, "INTERRUPTED") || !strings.Contains(out, "fill, sequential") || errs != "engines: interrupted\n" {
		t.Errorf("exit code %d, stderr %q, stdout:\n%s", code, errs, out)
	}
	cancel()
	if code, out, errs := engines(t, ctx, "-n", "1000"); code != exitInterrupted || out != "" || errs != "engines: interrupted\n" {
		t.Errorf("exit code %d, stderr %q, stdout:\n%s", code, errs, out)
	}
}

// interrupting ends the context once some workloads were made.
type interrupting struct {
	context.Context
	cancel func()
	asked  int
}

func (c *interrupting) Err() error {
	if c.asked++; c.asked == 10 {
		c.cancel()
	}
	return c.Context.Err()
}

// A process that dies is named, with its last words.
func TestChildDies(t *testing.T) {
	c := &trial.Config{Keys: 1000, Dir: t.TempDir()}
	ch, err := start(t.Context(), "bbolt", c)
	if err != nil {
		t.Fatal(err)
	}
	if err := ch.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := ch.ask(t.Context(), trial.Request{Workload: trial.Load}); err == nil || !strings.Contains(err.Error(), `during "fill, batches": bbolt: the process ended`) {
		t.Error(err)
	}
	if err := ch.end(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := start(t.Context(), "nobody", c); err == nil || !strings.Contains(err.Error(), `nobody: no engine "nobody"`) {
		t.Error(err)
	}
}
