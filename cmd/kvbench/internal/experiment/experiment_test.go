package experiment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"sievedb"
	"sievedb/cmd/kvbench/internal/compare"
	"sievedb/cmd/kvbench/internal/latency"
	"sievedb/cmd/kvbench/internal/meter"
	"sievedb/cmd/kvbench/internal/report"
	"sievedb/cmd/kvbench/internal/workload"
	"sievedb/filter"
	"sievedb/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var silent = meter.New(io.Discard)

// small is a run of a second.
func small(t *testing.T) *Config {
	t.Setenv("TMPDIR", t.TempDir())
	return &Config{KeysCount: 2500, Lookups: 1200, ValueBytes: 50, Bits: 10, CacheMiB: 0, Seed: 42}
}

// withoutTimes takes out of a result what is no count.
func withoutTimes(r *report.Lookups) *report.Lookups {
	c := *r
	c.Load.Seconds, c.Load.SettleSeconds = 0, 0
	for _, p := range []*report.Pass{&c.Absent.Without, &c.Absent.With, &c.Outside.Without, &c.Outside.With, &c.Present.Without, &c.Present.With} {
		p.Latency, p.Kernel = report.Latency{}, nil
	}
	c.Cost = report.Cost{FileBytes: r.Cost.FileBytes}
	return &c
}

// Counts are exact for a seed: the same keys make the same tree.
func TestSameSeedSameCounts(t *testing.T) {
	c := small(t)
	first, err := Lookups(t.Context(), c, silent)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Lookups(t.Context(), c, silent)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := withoutTimes(first), withoutTimes(second); !reflect.DeepEqual(a, b) {
		t.Errorf("two runs with one seed differ:\n%+v\n%+v", a, b)
	}
	comparison, err := compare.Runs(first, second, 0, true)
	if err != nil || comparison.Regressions > 0 || len(comparison.Times) == 0 {
		t.Errorf("%v: %+v", err, comparison)
	}
	c.Seed++
	other, err := Lookups(t.Context(), c, silent)
	if err != nil {
		t.Fatal(err)
	}
	if other.Absent.Without.BlocksRead == first.Absent.Without.BlocksRead {
		t.Errorf("another seed reads the same %d blocks", other.Absent.Without.BlocksRead)
	}
	if p := first.Outside; p.Without.Probes+p.With.Probes+p.Without.BlocksRead+p.With.BlocksRead != 0 || p.With.Lookups != 1200 {
		t.Errorf("the control met tables: %+v", p)
	}
	if k := first.Absent.Without.Kernel; runtime.GOOS == "linux" && (k == nil || k.ReadCalls < first.Absent.Without.BlocksRead) {
		t.Errorf("the kernel counted %+v, the store %d disk reads", k, first.Absent.Without.BlocksRead)
	}
	if l := first.Absent.With.Latency; len(l.SliceMeansNs) != latency.Slices || l.Quantiles[len(l.Quantiles)-1].Ns != l.MaxNs || l.MaxNs < l.P999Ns {
		t.Errorf("%+v", l)
	}
}

// An existing store is read, and nothing in it changes.
func TestExistingStore(t *testing.T) {
	c := small(t)
	c.Dir = filepath.Join(t.TempDir(), "store")
	if _, err := Lookups(t.Context(), c, silent); err != nil {
		t.Fatal(err)
	}
	before := files(t, c.Dir)
	lines := ""
	for i := range 1000 {
		lines += fmt.Sprintf("%016d\n", 7*i) // even ones are stored
	}
	file := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(file, []byte(lines), 0o644); err != nil {
		t.Fatal(err)
	}
	existing := &Config{DB: c.Dir, Lookups: 1000, Bits: 10, CacheMiB: 1, Seed: 7, KeysCount: 2000}
	for _, keysFile := range []string{"", file} {
		existing.KeysFile = keysFile
		r, err := Lookups(t.Context(), existing, silent)
		if err != nil {
			t.Fatal(err)
		}
		if r.Setup.Store != c.Dir || r.Present.With.TruePositives != uint64(r.Setup.Lookups) || r.Absent.With.TruePositives != 0 || r.Absent.Without.Probes == 0 {
			t.Errorf("keys of %q: %+v", keysFile, r)
		}
	}
	existing.KeysFile = ""
	o, err := Ops(t.Context(), existing, &OpsConfig{Command: "read", Mix: mix(t, "read=1,scan=1,absent=1"), Operations: 500, ScanLength: 10}, silent)
	if err != nil || o.Done != 500 {
		t.Fatalf("%v %+v", err, o)
	}
	if after := files(t, c.Dir); !reflect.DeepEqual(before, after) {
		t.Errorf("the store has other files: %v, then %v", before, after)
	}
	existing.DB = filepath.Join(t.TempDir(), "none")
	if _, err := Lookups(t.Context(), existing, silent); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("no store: %v", err)
	}
}

func files(t *testing.T, dir string) map[string]int64 {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]int64{}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name()] = info.Size()
	}
	return all
}

func mix(t *testing.T, s string) workload.Mix {
	t.Helper()
	m, err := workload.ParseMix(s)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Each mix runs, answers are checked on the way, and counts follow the seed.
func TestOps(t *testing.T) {
	c := small(t)
	c.KeysCount = 3000
	for _, x := range []struct {
		mix          string
		distribution workload.Distribution
		exact        bool
	}{
		{"read=50,absent=20,update=20,insert=5,scan=3,delete=2", workload.Uniform, false},
		{"read=50,rmw=50", workload.Zipfian, false},
		{"read=95,insert=5", workload.Latest, false},
		{"read=60,absent=20,scan=20", workload.Zipfian, true},
		{"delete=1", workload.Uniform, false},
	} {
		run := func() *report.Ops {
			t.Helper()
			o, err := Ops(t.Context(), c, &OpsConfig{Command: "x", Mix: mix(t, x.mix), Distribution: x.distribution,
				Operations: 3000, ScanLength: 20, Preload: true}, silent)
			if err != nil {
				t.Fatalf("%s: %v", x.mix, err)
			}
			return o
		}
		a, b := run(), run()
		if a.Done != 3000 || a.CountsExact != x.exact || len(a.Samples) < samples {
			t.Errorf("%s: %d operations, exact %v, %d samples", x.mix, a.Done, a.CountsExact, len(a.Samples))
		}
		var sum uint64
		for i, k := range a.Kinds {
			sum += k.Count
			if k.Count != b.Kinds[i].Count || k.Found != b.Kinds[i].Found {
				t.Errorf("%s: %s: %d of %d found, then %d of %d", x.mix, k.Op, k.Found, k.Count, b.Kinds[i].Found, b.Kinds[i].Count)
			}
			if k.Op == "absent" && k.Found != 0 || k.Op == "scan" && k.Found <= k.Count || k.Op == "rmw" && k.Found != k.Count {
				t.Errorf("%s: %s: %d found in %d", x.mix, k.Op, k.Found, k.Count)
			}
		}
		if sum != a.Done {
			t.Errorf("%s: the kinds add up to %d of %d", x.mix, sum, a.Done)
		}
		if x.exact && (a.BlocksRead != b.BlocksRead || a.Negatives != b.Negatives || a.FalsePositives != b.FalsePositives) {
			t.Errorf("%s: counts differ: %+v, %+v", x.mix, a, b)
		}
	}
}

// A fill stores each key once; where more is inserted, it ends when the keys do.
func TestFill(t *testing.T) {
	c := small(t)
	c.KeysCount, c.Dir = 1000, filepath.Join(t.TempDir(), "store")
	keysOf := func(o *report.Ops) (n uint64) {
		for _, l := range o.Levels {
			n += l.Keys
		}
		return n
	}
	o, err := Ops(t.Context(), c, &OpsConfig{Command: "fill", Mix: mix(t, "insert=1"), Operations: 1 << 20, ScanLength: 1}, silent)
	if err != nil || o.Done != 1000 || keysOf(o) != 1000 {
		t.Errorf("%v: %d operations, %d keys, want 1000", err, o.Done, keysOf(o))
	}
	c.Dir = ""
	var notes bytes.Buffer
	o, err = Ops(t.Context(), c, &OpsConfig{Command: "more", Mix: mix(t, "insert=1"), Operations: 1 << 20, ScanLength: 1, Preload: true}, meter.New(&notes))
	// The first half of the absent keys.
	if err != nil || o.Done != 999/2 || keysOf(o) < 1000+999/2 || !strings.Contains(notes.String(), "used up after 499") {
		t.Errorf("%v: %d operations, %d keys; said %q", err, o.Done, keysOf(o), notes.String())
	}
}

// Wrong answers are noticed: a key that was deleted behind the back of the run,
// one with another value, one that should not be there.
func TestOpsCheckAnswers(t *testing.T) {
	db, err := sievedb.Open("/db", &sievedb.Options{FS: vfs.NewMem(), Durability: sievedb.SyncNever})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	o := &ops{Config: &Config{}, keys: workload.Numbered(200, 1), values: workload.NewValues(10, 1), versions: []uint32{0, 5, deleted, notOurs}}
	for i, x := range []struct {
		value []byte
		says  string
	}{
		{nil, "not found"}, {o.values.Of(1, 4), "another value"}, {o.values.Of(2, 0), "deleted"}, {[]byte("anything"), ""},
	} {
		o.setKey(i)
		if x.value != nil {
			if err := db.Put(o.key, x.value); err != nil {
				t.Fatal(err)
			}
		}
		var err error
		o.value, err = db.GetTo(nil, o.key)
		_, err = o.check(i, err)
		if (err == nil) != (x.says == "") || err != nil && !strings.Contains(err.Error(), x.says) {
			t.Errorf("key %d: %v, want words of %q", i, err, x.says)
		}
	}
	l := &lookups{Config: &Config{}, values: o.values}
	for says, err := range map[string]error{
		"never stored":  l.check(series{}, []byte("k"), nil, 0, nil),
		"another value": l.check(series{present: true}, []byte("k"), []byte("wrong"), 0, nil),
		"not found":     l.check(series{present: true}, []byte("k"), nil, 0, sievedb.ErrNotFound),
	} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}

// The measured dots are on the theory line, in more than one way: with numbered
// keys and with a file's.
func TestSweep(t *testing.T) {
	c := small(t)
	c.KeysCount, c.Lookups = 20_000, 20_000
	s := &SweepConfig{Kinds: []filter.Kind{filter.KindBlocked, filter.KindStandard, filter.KindFuse},
		Bits: []float64{0, 1, 2.5, 6, 10, 14}, TreeBits: []float64{10}, TreeKeys: 50_000}
	run, err := Sweep(t.Context(), c, s, silent)
	if err != nil {
		t.Fatal(err)
	}
	if !run.OK || len(run.Points) != 6+5+1 || run.Points[0].MeasuredRate != 1 || run.Points[4].Probes == 0 {
		t.Errorf("%+v", run)
	}
	for _, p := range run.Points[1:] {
		if p.Kind == "fuse" {
			if p.BitsPerKey < 9 || p.BitsPerKey > p.Bits || p.Probes != 3 {
				t.Errorf("%+v", p)
			}
			continue
		}
		if p.BitsPerKey < p.Bits || p.BitsPerKey > p.Bits+0.1 || p.Asked != 19_999 {
			t.Errorf("%v bits: built %v, %d asked", p.Bits, p.BitsPerKey, p.Asked)
		}
	}
	if len(run.Policies) != 3 || run.Policies[2].FetchedPerKey >= run.Policies[1].FetchedPerKey || run.Policies[1].FetchedPerKey >= run.Policies[0].FetchedPerKey {
		t.Errorf("a budget is no better than uniform bits: %+v", run.Policies)
	}
	s.TreeBits = nil
	again, err := Sweep(t.Context(), c, s, silent)
	if err != nil || !reflect.DeepEqual(run.Points, again.Points) {
		t.Errorf("two sweeps with one seed differ: %v", err)
	}
}

// cancelAfter is a context that ends once it was asked n times from a file of
// this package; how often the store asks depends on the day.
type cancelAfter struct {
	context.Context
	file string
	n    int
}

func (c *cancelAfter) Err() error {
	if _, file, _, _ := runtime.Caller(1); filepath.Base(file) == c.file {
		c.n--
	}
	if c.n < 0 {
		return context.Canceled
	}
	return nil
}

// What was measured until an interruption is returned with it.
func TestInterrupted(t *testing.T) {
	c := small(t)
	s := &SweepConfig{Kinds: []filter.Kind{filter.KindBlocked}, Bits: []float64{10, 12, 14}}
	c.KeysCount, c.Lookups = 2000, 1000
	sweep, err := Sweep(&cancelAfter{t.Context(), "sweep.go", 5}, c, s, silent)
	if !errors.Is(err, context.Canceled) || sweep == nil || len(sweep.Points) != 1 || !sweep.Interrupted {
		t.Errorf("sweep: %v %+v", err, sweep)
	}
	c.Lookups = 2000
	keys := workload.Numbered(c.KeysCount, c.Seed)
	l := &lookups{Config: c, meter: silent, keys: keys, values: workload.NewValues(c.ValueBytes, c.Seed), n: 1999,
		dir: filepath.Join(t.TempDir(), "store"), run: &report.Lookups{}}
	if err := l.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	// In the second pass: each asks eight times.
	if _, err := l.passes(&cancelAfter{t.Context(), "lookups.go", 8 + 3}); !errors.Is(err, context.Canceled) {
		t.Errorf("passes: %v", err)
	}
	l.complete(report.Build{})
	if n := l.run.Absent.With.Lookups; l.run.Absent.Without.Lookups != 1999 || n != 3*256 || l.run.ReadsAvoidedPercent < 50 {
		t.Errorf("%d lookups in the second pass, %+v", n, l.run)
	}
	ops, err := Ops(&cancelAfter{t.Context(), "ops.go", 70}, c, &OpsConfig{Command: "read", Mix: mix(t, "read=1"), Operations: 1 << 20, ScanLength: 1, Preload: true}, silent)
	if !errors.Is(err, context.Canceled) || ops == nil || ops.Done == 0 || !ops.Interrupted {
		t.Errorf("ops: %v %+v", err, ops)
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
}

func TestKeep(t *testing.T) {
	c := small(t)
	c.KeysCount, c.Lookups, c.Keep = 500, 100, true
	var notes bytes.Buffer
	if _, err := Lookups(t.Context(), c, meter.New(&notes)); err != nil {
		t.Fatal(err)
	}
	_, dir, _ := strings.Cut(strings.TrimSpace(notes.String()), "kept in ")
	if len(files(t, dir)) == 0 {
		t.Errorf("said %q", notes.String())
	}
}
