package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// kvbench runs the command with a temporary directory of its own, and checks
// that nothing is left in it.
func kvbench(t *testing.T, ctx context.Context, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	t.Setenv("TMP", temp) // Windows
	var out, errs bytes.Buffer
	code = run(ctx, args, &out, &errs)
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left in the temporary directory: %v %v", left, err)
	}
	return code, out.String(), errs.String()
}

func runJSON(t *testing.T, args ...string) *Report {
	t.Helper()
	code, out, errs := kvbench(t, t.Context(), append(args, "--json")...)
	if code != exitOK || errs != "" {
		t.Fatalf("exit code %d, stderr %q", code, errs)
	}
	d := json.NewDecoder(strings.NewReader(out))
	d.DisallowUnknownFields()
	r := new(Report)
	if err := d.Decode(r); err != nil {
		t.Fatal(err)
	}
	return r
}

// checkCounts checks what holds whatever the compactions made of the tree.
func checkCounts(t *testing.T, r *Report) {
	t.Helper()
	n := uint64(r.Setup.Lookups)
	for name, p := range map[string]Pass{"absent, off": r.Absent.Without, "present, off": r.Present.Without} {
		if p.Probes != p.Unfiltered || p.Negatives+p.TruePositives+p.FalsePositives != 0 {
			t.Errorf("%s: filters were asked: %+v", name, p)
		}
		if p.BlocksRead+p.BlocksCached != p.Unfiltered {
			t.Errorf("%s: %d blocks for %d tables", name, p.BlocksRead+p.BlocksCached, p.Unfiltered)
		}
	}
	for name, p := range map[string]Pass{"absent, on": r.Absent.With, "present, on": r.Present.With} {
		if p.Unfiltered != 0 || p.Probes != p.Negatives+p.TruePositives+p.FalsePositives {
			t.Errorf("%s: %+v", name, p)
		}
		if p.BlocksRead+p.BlocksCached != p.TruePositives+p.FalsePositives {
			t.Errorf("%s: %d blocks for %d positives", name, p.BlocksRead+p.BlocksCached, p.TruePositives+p.FalsePositives)
		}
	}
	// The same absent keys meet the same tables, filters or not.
	if r.Absent.With.Probes != r.Absent.Without.Probes || r.Absent.With.TruePositives != 0 {
		t.Errorf("absent keys: %+v", r.Absent)
	}
	if r.Present.With.TruePositives != n {
		t.Errorf("%d of %d present keys found in tables", r.Present.With.TruePositives, n)
	}
	if r.Prediction.BlocksFetched != r.Prediction.Measured {
		t.Errorf("%d blocks for %d false positives", r.Prediction.BlocksFetched, r.Prediction.Measured)
	}
	var keys, asked, fps uint64
	for _, l := range r.Levels {
		keys, asked, fps = keys+l.Keys, asked+l.Counts.Asked, fps+l.Counts.Measured
	}
	if keys != uint64(r.Setup.Keys) || asked != r.Prediction.Asked || fps != r.Prediction.Measured {
		t.Errorf("levels add up to %d keys, %d asked, %d false positives: %+v", keys, asked, fps, r.Prediction)
	}
}

func TestNumberedRun(t *testing.T) {
	r := runJSON(t, "-n", "10000", "--lookups", "5000", "--cache", "0", "--value-bytes", "50")
	if r.Setup.Keys != 10_000 || r.Setup.Lookups != 5000 {
		t.Errorf("%+v", r.Setup)
	}
	if r.Absent.Without.BlocksCached != 0 {
		t.Errorf("%d blocks from a cache of nothing", r.Absent.Without.BlocksCached)
	}
	checkCounts(t, r)
	// About 99 % are; with no cache, 90 % is far outside chance.
	if r.ReadsAvoidedPercent < 90 {
		t.Errorf("only %.1f %% of the reads avoided", r.ReadsAvoidedPercent)
	}
}

func TestTextRun(t *testing.T) {
	code, out, errs := kvbench(t, t.Context(), "-n", "2000", "--lookups", "500")
	if code != exitOK || errs != "" || !strings.HasPrefix(out, "Filters avoided ") || !strings.Contains(out, "Definitions") {
		t.Errorf("exit code %d, stderr %q, stdout:\n%s", code, errs, out)
	}
}

func wordList(t *testing.T, n int) string {
	t.Helper()
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "https://example.org/%07d/index.html\r\n\n", i*7919%10_000_019)
		if i%10 == 0 { // repetitions
			fmt.Fprintf(&b, "https://example.org/%07d/index.html\n", i*7919%10_000_019)
		}
	}
	name := filepath.Join(t.TempDir(), "words")
	if err := os.WriteFile(name, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestAbsentRun(t *testing.T) {
	r := runJSON(t, "absent", "--keys", wordList(t, 4000))
	if r.Setup.Keys != 2000 || r.Setup.Lookups+r.Setup.OutsideKeys != 2000 {
		t.Errorf("%+v", r.Setup)
	}
	checkCounts(t, r)
	r = runJSON(t, "absent", "--keys", wordList(t, 4000), "--sample", "1001")
	if r.Setup.Keys != 501 || r.Setup.Lookups+r.Setup.OutsideKeys != 500 {
		t.Errorf("%+v", r.Setup)
	}
}

func TestKeptDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	args := []string{"-n", "1000", "--lookups", "100", "--dir", dir}
	if code, _, errs := kvbench(t, t.Context(), args...); code != exitOK {
		t.Fatal(code, errs)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) == 0 {
		t.Errorf("%v %v", files, err)
	}
	code, _, errs := kvbench(t, t.Context(), args...)
	if code != exitFailure || !strings.Contains(errs, "is not empty") {
		t.Errorf("exit code %d, stderr %q", code, errs)
	}
}

func TestBadInput(t *testing.T) {
	few := filepath.Join(t.TempDir(), "few")
	empty := filepath.Join(t.TempDir(), "empty")
	long := filepath.Join(t.TempDir(), "long")
	for name, content := range map[string]string{few: "a\nb\n", empty: "", long: strings.Repeat("x", 70_000)} {
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []struct {
		args string
		code int
		says string
	}{
		{"-n -5", exitUsage, "-5"},
		{"-n 99", exitUsage, "99"},
		{"-n 200000000", exitUsage, "200000000"},
		{"--lookups 0", exitUsage, "--lookups"},
		{"--lookups -1", exitUsage, "--lookups"},
		{"--bits 0", exitUsage, "--bits"},
		{"--bits NaN", exitUsage, "--bits"},
		{"--bits 101", exitUsage, "--bits"},
		{"--cache -1", exitUsage, "--cache"},
		{"--value-bytes -1", exitUsage, "--value-bytes"},
		{"--seed -1", exitUsage, "--seed"},
		{"--frobnicate", exitUsage, "--frobnicate"},
		{"frobnicate", exitUsage, "frobnicate"},
		{"absent", exitUsage, "--keys"},
		{"absent frobnicate", exitUsage, "frobnicate"},
		{"absent --keys " + few + " --sample 10", exitUsage, "--sample"},
		{"absent --keys " + few + " --sample -1", exitUsage, "--sample"},
		{"absent --keys " + few + ".not", exitFailure, few + ".not"},
		{"absent --keys " + few, exitFailure, few},
		{"absent --keys " + empty, exitFailure, empty},
		{"absent --keys " + long, exitFailure, long},
		{"absent --keys " + filepath.Dir(few), exitFailure, filepath.Dir(few)},
		{"-n 1000 --dir " + few, exitFailure, few},
		{"-n 1000 --dir " + filepath.Join(few, "below"), exitFailure, few},
	} {
		code, out, errs := kvbench(t, t.Context(), strings.Fields(x.args)...)
		if code != x.code || out != "" || !strings.Contains(errs, x.says) ||
			!strings.HasPrefix(errs, "kvbench: ") || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q", x.args, code, out, errs)
		}
	}
}

func TestExitCodes(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	failed := errors.New("failed")
	for _, x := range []struct {
		ctx  context.Context
		err  error
		code int
	}{
		{t.Context(), nil, exitOK},
		{cancelled, nil, exitOK}, // it was done already
		{t.Context(), failed, exitFailure},
		{cancelled, failed, exitInterrupted},
		{t.Context(), fmt.Errorf("x: %w", usagef("y")), exitUsage},
		{t.Context(), fmt.Errorf("x: %w", errPrediction), exitPrediction},
	} {
		if code := exitCode(x.ctx, x.err); code != x.code {
			t.Errorf("%v: exit code %d, want %d", x.err, code, x.code)
		}
	}
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"absent", "--help"}} {
		code, out, errs := kvbench(t, t.Context(), args...)
		if code != exitOK || errs != "" || !strings.Contains(out, "--bits") {
			t.Errorf("%v: exit code %d, stdout %q, stderr %q", args, code, out, errs)
		}
	}
}

// An interrupted run says so, and leaves nothing behind, which kvbench checks.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	code, out, errs := kvbench(t, ctx, "-n", "2000")
	if code != exitInterrupted || out != "" || errs != "kvbench: interrupted\n" {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, out, errs)
	}
}

// The workloads depend on the seed alone, and absent keys are what they should
// be: distinct, not stored, and between stored keys.
func TestWorkloads(t *testing.T) {
	file := wordList(t, 3000)
	fromFile := func(seed uint64) *workload {
		w, err := keysOfFile(file, 0, seed)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	for name, make := range map[string]func(seed uint64) *workload{
		"numbered": func(seed uint64) *workload { return numberedKeys(3000, seed) },
		"file":     fromFile,
	} {
		outside := 0
		for seed := range uint64(6) {
			w := make(seed)
			checkWorkload(t, fmt.Sprint(name, ", seed ", seed), w, make(seed), make(seed+1))
			outside += w.outside
		}
		// With six seeds, an end of the file's order is somewhere not stored.
		if (outside > 0) != (name == "file") {
			t.Errorf("%s: %d keys outside", name, outside)
		}
	}
}

func checkWorkload(t *testing.T, name string, w, same, other *workload) {
	t.Helper()
	seen, lo, hi, moved := map[string]bool{}, "\xff", "", 0
	var total int64
	for i := range w.stored {
		k := string(w.storedKey(nil, i))
		if seen[k] || k != string(same.storedKey(nil, i)) {
			t.Fatalf("%s: stored key %q twice, or not the same with the same seed", name, k)
		}
		if k != string(other.storedKey(nil, i)) {
			moved++
		}
		seen[k], lo, hi = true, min(lo, k), max(hi, k)
		total += int64(len(k))
	}
	if total != w.keyBytes || moved < w.stored/2 {
		t.Errorf("%s: %d key bytes, counted %d; %d keys differ with another seed", name, w.keyBytes, total, moved)
	}
	for i := range w.absent {
		k := string(w.absentKey(nil, i))
		if seen[k] || k <= lo || k >= hi {
			t.Fatalf("%s: absent key %q is stored, repeated, or outside", name, k)
		}
		seen[k] = true
	}
	if w.absent+w.outside < w.stored-1 || w.outside > 50 {
		t.Errorf("%s: %d stored, %d absent, %d outside", name, w.stored, w.absent, w.outside)
	}
}
