package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"sievedb/cmd/kvbench/internal/report"
	"sievedb/cmd/kvbench/internal/results"
)

// TestMain lets the test's own program be the process that crash kills.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == crashChild {
		os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

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
		t.Errorf("%v: left in the temporary directory: %v %v", args, left, err)
	}
	return code, out.String(), errs.String()
}

// runJSON runs a command for its result.
func runJSON[R any](t *testing.T, args ...string) *R {
	t.Helper()
	code, out, errs := kvbench(t, t.Context(), append(args, "--json")...)
	if code != exitOK || errs != "" {
		t.Fatalf("%v: exit code %d, stderr %q", args, code, errs)
	}
	d := json.NewDecoder(strings.NewReader(out))
	d.DisallowUnknownFields()
	r := new(R)
	if err := d.Decode(r); err != nil {
		t.Fatal(err)
	}
	return r
}

// checkCounts checks what holds whatever the tree looks like.
func checkCounts(t *testing.T, r *report.Lookups) {
	t.Helper()
	n := uint64(r.Setup.Lookups)
	for name, p := range map[string]report.Pass{"absent, off": r.Absent.Without, "present, off": r.Present.Without} {
		if p.Probes != p.Unfiltered || p.Negatives+p.TruePositives+p.FalsePositives != 0 {
			t.Errorf("%s: filters were asked: %+v", name, p)
		}
		if p.BlocksRead+p.BlocksCached != p.Unfiltered {
			t.Errorf("%s: %d blocks for %d tables", name, p.BlocksRead+p.BlocksCached, p.Unfiltered)
		}
	}
	for name, p := range map[string]report.Pass{"absent, on": r.Absent.With, "present, on": r.Present.With} {
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
	if r.Outside.With.Probes+r.Outside.Without.Probes != 0 || r.Outside.With.Lookups != r.Setup.Lookups {
		t.Errorf("the control met tables: %+v", r.Outside)
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
	r := runJSON[report.Lookups](t, "-n", "5000", "--lookups", "3000", "--cache", "0", "--value-bytes", "50")
	if r.Setup.Keys != 5000 || r.Setup.Lookups != 3000 {
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
	words := wordList(t, 4000)
	r := runJSON[report.Lookups](t, "absent", "--keys", words)
	if r.Setup.Keys != 2000 || r.Setup.Lookups+r.Setup.OutsideKeys != 2000 || r.Setup.RepeatedLines != 400 {
		t.Errorf("%+v", r.Setup)
	}
	checkCounts(t, r)
	r = runJSON[report.Lookups](t, "absent", "--keys", words, "--sample", "1001")
	if r.Setup.Keys != 501 || r.Setup.Lookups+r.Setup.OutsideKeys != 500 {
		t.Errorf("%+v", r.Setup)
	}
}

func TestKeptDirectoryIsAnExistingStore(t *testing.T) {
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
	if r := runJSON[report.Lookups](t, "absent", "--db", dir, "--lookups", "100"); r.Setup.Store != dir || r.Absent.Without.Probes == 0 {
		t.Errorf("%+v", r.Setup)
	}
	if r := runJSON[report.Ops](t, "scan", "--db", dir, "--ops", "50"); r.Done != 50 || r.Kinds[0].Found < 50 {
		t.Errorf("%+v", r)
	}
	code, _, errs = kvbench(t, t.Context(), "overwrite", "--db", dir, "--ops", "50")
	if code != exitUsage || !strings.Contains(errs, "--modify") {
		t.Errorf("exit code %d, stderr %q", code, errs)
	}
	if r := runJSON[report.Ops](t, "overwrite", "--db", dir, "--ops", "50", "--modify"); r.Done != 50 {
		t.Errorf("%+v", r)
	}
}

// Every mix and every YCSB workload runs, with a file of keys, too.
func TestMixes(t *testing.T) {
	words := wordList(t, 2000)
	for _, args := range []string{
		"fill -n 1000", "read -n 1000 --ops 500", "scan --scan-length 5 -n 1000 --ops 100", "overwrite -n 1000 --ops 500 --sync=false",
		"delete -n 1000 --ops 300", "mixed -n 1000 --ops 500 --distribution latest", "mixed --mix read=1,insert=1 -n 1000 --ops 500",
		"ycsb --workload a -n 1000 --ops 500", "ycsb --workload B -n 1000 --ops 500", "ycsb --workload c -n 1000 --ops 500",
		"ycsb --workload d -n 1000 --ops 500", "ycsb --workload e -n 1000 --ops 100", "ycsb --workload f -n 1000 --ops 500 --distribution uniform",
		"fill --keys " + words, "ycsb --workload a --ops 500 --keys " + words,
	} {
		r := runJSON[report.Ops](t, strings.Fields(args)...)
		if r.Done == 0 || r.Setup.Command == "" || len(r.Kinds) == 0 || r.Interrupted {
			t.Errorf("%s: %+v", args, r)
		}
	}
	if r := runJSON[report.Ops](t, "ycsb", "--workload", "d", "-n", "1000", "--ops", "100"); r.Setup.Distribution != "latest" || r.Setup.Mix != "read=95,insert=5" {
		t.Errorf("%+v", r.Setup)
	}
}

func TestSweepReportCompare(t *testing.T) {
	dir := t.TempDir()
	sweep, again, run, html := filepath.Join(dir, "a.json"), filepath.Join(dir, "b.json"), filepath.Join(dir, "run.json"), filepath.Join(dir, "run.html")
	args := []string{"sweep", "--bits", "0,4,10,16", "--policies=false", "-n", "5000", "--lookups", "4999", "--save"}
	for _, file := range []string{sweep, again} {
		if code, out, errs := kvbench(t, t.Context(), append(args, file)...); code != exitOK || !strings.HasPrefix(out, "Theory holds") {
			t.Fatalf("exit code %d, %q, %q", code, errs, out)
		}
	}
	if code, out, errs := kvbench(t, t.Context(), "compare", "--exact", sweep, again); code != exitOK || !strings.HasPrefix(out, "None of 4 counts") {
		t.Errorf("exit code %d, %q, %q", code, errs, out)
	}
	s, err := results.Read(again)
	if err != nil {
		t.Fatal(err)
	}
	s.(*report.Sweep).Points[2].FalsePositives += 500
	var b bytes.Buffer
	if err := report.Write(&b, s, report.JSON); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(again, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	code, out, errs := kvbench(t, t.Context(), "compare", sweep, again, "--format", "markdown")
	if code != exitVerdict || !strings.Contains(out, "| MORE |") || !strings.Contains(errs, "1 counts are worse") {
		t.Errorf("exit code %d, %q, %q", code, errs, out)
	}
	if code, _, errs := kvbench(t, t.Context(), "-n", "1000", "--lookups", "200", "--save", run); code != exitOK {
		t.Fatal(code, errs)
	}
	code, _, errs = kvbench(t, t.Context(), "compare", sweep, run)
	if code != exitFailure || !strings.Contains(errs, "different kinds") {
		t.Errorf("exit code %d, %q", code, errs)
	}
	if code, out, errs := kvbench(t, t.Context(), "report", run, sweep, "-o", html); code != exitOK || out != "" || errs != "kvbench: wrote "+html+"\n" {
		t.Errorf("exit code %d, %q, %q", code, out, errs)
	}
	page, err := os.ReadFile(html)
	if err != nil || bytes.Count(page, []byte("<svg ")) != 5+1 || !bytes.HasSuffix(page, []byte("</html>\n")) {
		t.Errorf("%v, %d charts", err, bytes.Count(page, []byte("<svg ")))
	}
	code, out, _ = kvbench(t, t.Context(), "report", run, "--format", "gobench")
	if code != exitOK || !strings.Contains(out, "BenchmarkLookup/keys=absent/filters=on-") {
		t.Errorf("exit code %d, %q", code, out)
	}
}

// The sizes of growth are measured, kept if that is asked for, and drawn.
func TestGrowth(t *testing.T) {
	dir := t.TempDir()
	file, stores, svg := filepath.Join(dir, "growth.json"), filepath.Join(dir, "stores"), filepath.Join(dir, "svg")
	code, out, errs := kvbench(t, t.Context(), "growth", "--sizes", "200,1000", "--readers", "1,2", "--lookups", "150", "--dir", stores, "--format", "markdown", "--save", file)
	if code != exitOK || errs != "" || !strings.HasPrefix(out, "200 to 1,000 keys: ") || !strings.Contains(out, "\n| 1,000 | 2 | ") {
		t.Errorf("exit code %d, %q, %q", code, errs, out)
	}
	for _, size := range []string{"200-keys", "1000-keys"} {
		if files, err := os.ReadDir(filepath.Join(stores, size)); err != nil || len(files) == 0 {
			t.Errorf("%s: %v %v", size, files, err)
		}
	}
	if code, out, errs := kvbench(t, t.Context(), "compare", file, file); code != exitOK || !strings.HasPrefix(out, "None of 14 counts") {
		t.Errorf("exit code %d, %q, %q", code, errs, out)
	}
	if code, out, errs := kvbench(t, t.Context(), "report", file, "--svg", svg); code != exitOK || out != "" || strings.Count(errs, "kvbench: wrote "+svg) != 3 {
		t.Errorf("exit code %d, %q, %q", code, errs, out)
	}
	if chart, err := os.ReadFile(filepath.Join(svg, "lookup-time-against-the-number-of-keys.svg")); err != nil || !bytes.HasPrefix(chart, []byte("<svg ")) || !bytes.HasSuffix(chart, []byte("</svg>\n")) {
		t.Errorf("%v: %s", err, chart)
	}
	code, _, errs = kvbench(t, t.Context(), "growth", "--sizes", "200", "--dir", stores)
	if code != exitFailure || !strings.Contains(errs, "is not empty") {
		t.Errorf("exit code %d, %q", code, errs)
	}
}

func TestCrash(t *testing.T) {
	r := runJSON[report.Crash](t, "crash", "--kills", "3")
	if !r.OK || len(r.Kills) != 3 || r.Lost != 0 || !r.Setup.Synced {
		t.Errorf("%+v", r)
	}
}

// The plan is that of the theory: 10 bits and four runs of ten times each are
// about 0.97 % each.
func TestPlan(t *testing.T) {
	code, out, errs := kvbench(t, t.Context(), "plan", "-n", "1000000", "--bits", "10")
	if code != exitOK || errs != "" || !strings.Contains(out, "0.9665 %") || !strings.Contains(out, "0.0677 uniform") {
		t.Errorf("exit code %d, %q:\n%s", code, errs, out)
	}
	if _, bytes, _ := kvbench(t, t.Context(), "plan", "-n", "1000000", "--budget-bytes", "1250000"); bytes != out {
		t.Errorf("the same in bytes:\n%s", bytes)
	}
	if _, out, _ = kvbench(t, t.Context(), "plan", "--bits", "0.0005"); !strings.Contains(out, "DO NOT PAY") {
		t.Errorf("next to no bits:\n%s", out)
	}
}

func TestBadInput(t *testing.T) {
	dir := t.TempDir()
	few, empty, long, other := filepath.Join(dir, "few"), filepath.Join(dir, "empty"), filepath.Join(dir, "long"), filepath.Join(dir, "other")
	for name, content := range map[string]string{few: "a\nb\n", empty: "", long: strings.Repeat("x", 70_000), other: `{"schema":"x"}`} {
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
		{"--format x", exitUsage, "--format"},
		{"--quick --full", exitUsage, "--full"},
		{"--db x --dir y", exitUsage, "--db"},
		{"--sample 500", exitUsage, "--sample"},
		{"-n 500 --keys x", exitUsage, "--keys-count"},
		{"--frobnicate", exitUsage, "--frobnicate"},
		{"frobnicate", exitUsage, "frobnicate"},
		{"red", exitUsage, "did you mean read?"},
		{"completion tcsh", exitUsage, "tcsh"},
		{"absent", exitUsage, "--keys"},
		{"absent frobnicate", exitUsage, "frobnicate"},
		{"absent --keys " + few + " --sample 10", exitUsage, "--sample"},
		{"absent --keys " + few + " --sample -1", exitUsage, "--sample"},
		{"absent --keys " + few + ".not", exitFailure, few + ".not"},
		{"absent --keys " + few, exitFailure, few},
		{"absent --keys " + empty, exitFailure, empty},
		{"absent --keys " + long, exitFailure, long},
		{"absent --keys " + dir, exitFailure, dir},
		{"absent --db " + few + ".not", exitFailure, few + ".not"},
		{"absent --db " + dir, exitFailure, dir},
		{"-n 1000 --dir " + few, exitFailure, few},
		{"-n 1000 --dir " + filepath.Join(few, "below"), exitFailure, few},
		{"sweep --bits 0,0.5", exitUsage, "0.5"},
		{"sweep --bits x", exitUsage, "x"},
		{"sweep --tree-bits 0", exitUsage, "--tree-bits"},
		{"sweep --tree-keys 1", exitUsage, "--tree-keys"},
		{"ycsb", exitUsage, "--workload"},
		{"ycsb --workload g", exitUsage, `"g"`},
		{"read --ops 0", exitUsage, "--ops"},
		{"read --distribution x", exitUsage, "--distribution"},
		{"scan --scan-length 0", exitUsage, "--scan-length"},
		{"fill --memtable -1", exitUsage, "--memtable"},
		{"mixed --mix read=x", exitUsage, "read=x"},
		{"growth --sizes 99", exitUsage, "--sizes has 99"},
		{"growth --sizes 2000000000", exitUsage, "--sizes has 2000000000"},
		{"growth --sizes 1000,1000", exitUsage, "must rise"},
		{"growth --sizes x", exitUsage, "--sizes"},
		{"growth --readers 0", exitUsage, "--readers has 0"},
		{"growth --readers 2,1", exitUsage, "must rise"},
		{"growth --readers 2000", exitUsage, "--readers has 2000"},
		{"growth --lookups 0", exitUsage, "--lookups"},
		{"growth --bits 0", exitUsage, "--bits"},
		{"growth --db x", exitUsage, "--db"},
		{"growth --quick --full", exitUsage, "--full"},
		{"growth --sizes 500 --dir " + few, exitFailure, few},
		{"crash --kills 0", exitUsage, "--kills"},
		{"plan -n 1", exitUsage, "--keys-count"},
		{"plan --bits 10 --budget-bytes 5000", exitUsage, "--budget-bytes"},
		{"compare " + few, exitUsage, "two results"},
		{"compare " + few + " " + few, exitFailure, few},
		{"compare " + other + " " + other, exitFailure, "schema"},
		{"compare " + other + " " + other + " --threshold -1", exitUsage, "--threshold"},
		{"report", exitUsage, "at least one"},
		{"report " + other, exitFailure, other},
		{"report " + other + " --svg x --output y", exitUsage, "--svg"},
		{"report " + other + " --svg x", exitFailure, other},
		{"report " + few + ".not", exitFailure, few + ".not"},
		{"report " + few + " --format x", exitFailure, few},
	} {
		code, out, errs := kvbench(t, t.Context(), strings.Fields(x.args)...)
		if code != x.code || out != "" || !strings.Contains(errs, x.says) ||
			!strings.HasPrefix(errs, "kvbench: ") || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q", x.args, code, out, errs)
		}
	}
}

// A result that cannot be kept is an error.
func TestSaveFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "no", "such", "directory")
	code, out, errs := kvbench(t, t.Context(), "-n", "500", "--lookups", "100", "--save", file)
	if code != exitFailure || !strings.Contains(errs, file) || !strings.HasPrefix(out, "Filters avoided") {
		t.Errorf("exit code %d, stderr %q", code, errs)
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
		{t.Context(), fmt.Errorf("x: %w", errVerdict), exitVerdict},
	} {
		if code := exitCode(x.ctx, x.err); code != x.code {
			t.Errorf("%v: exit code %d, want %d", x.err, code, x.code)
		}
	}
}

// Each command helps, by itself and with completions.
func TestHelp(t *testing.T) {
	for _, command := range newCommand(io.Discard, nil).Commands() {
		if command.Hidden {
			continue
		}
		code, out, errs := kvbench(t, t.Context(), command.Name(), "--help")
		if code != exitOK || errs != "" || !strings.Contains(out, "Usage:") {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q", command.Name(), code, out, errs)
		}
	}
	if code, out, _ := kvbench(t, t.Context(), "completion", "bash"); code != exitOK || !strings.Contains(out, "kvbench") {
		t.Errorf("exit code %d, stdout %q", code, out)
	}
	for flag, want := range map[string]string{"ycsb --workload": "a b c d e f", "read --distribution": "uniform zipfian latest", "--format": "text json markdown gobench"} {
		code, out, _ := kvbench(t, t.Context(), append(append([]string{"__complete"}, strings.Fields(flag)...), "")...)
		if code != exitOK || !strings.HasPrefix(strings.Join(strings.Fields(out), " "), want+" :") {
			t.Errorf("%s: exit code %d, completes %q", flag, code, out)
		}
	}
}

// Flags of one command do not change the defaults of another.
func TestDefaults(t *testing.T) {
	root := newCommand(io.Discard, nil)
	for command, want := range map[string]string{"": "1000000", "fill": "2000000", "read": "1000000", "sweep": "200000", "absent": "1000000"} {
		c, _, err := root.Find(strings.Fields(command))
		if err != nil {
			t.Fatal(err)
		}
		if f := c.Flags().Lookup("keys-count"); f.DefValue != want || f.Value.String() != want {
			t.Errorf("%q: --keys-count is %s, by default %s, want %s", command, f.Value, f.DefValue, want)
		}
	}
}

// An interrupted run says so, and leaves nothing behind, which kvbench checks.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, args := range []string{"-n 2000", "sweep -n 2000", "fill -n 2000", "growth --quick", "crash"} {
		code, out, errs := kvbench(t, ctx, strings.Fields(args)...)
		if code != exitInterrupted || out != "" || errs != "kvbench: interrupted\n" {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q", args, code, out, errs)
		}
	}
}

// interrupting ends the context once the first operations were reported.
type interrupting struct {
	context.Context
	cancel func()
	asked  int
}

func (c *interrupting) Err() error {
	if c.asked++; c.asked == 40 {
		c.cancel()
	}
	return c.Context.Err()
}

// What was measured until an interruption is printed.
func TestInterruptedPrints(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	code, out, errs := kvbench(t, &interrupting{Context: ctx, cancel: cancel}, "fill", "-n", "100000")
	if code != exitInterrupted || !strings.HasPrefix(out, "INTERRUPTED") || !strings.Contains(out, "insert") || errs != "kvbench: interrupted\n" {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, out, errs)
	}
}
