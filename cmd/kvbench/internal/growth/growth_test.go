package growth

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"sievedb"
	"sievedb/cmd/kvbench/internal/meter"
	"sievedb/cmd/kvbench/internal/report"
	"sievedb/cmd/kvbench/internal/workload"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var update = flag.Bool("update", false, "rewrite the golden files")

var silent = meter.New(io.Discard)

func fixedLatency(ns float64) report.Latency {
	l := report.Latency{MeanNs: ns, P50Ns: int64(ns), P99Ns: int64(2 * ns), P999Ns: int64(3 * ns), MaxNs: int64(900 * ns)}
	for i := range 20 {
		l.SliceMeansNs = append(l.SliceMeansNs, ns+float64(i%5))
	}
	return l
}

// fixed is the result of a run that never was.
func fixed() *Result {
	r := &Result{Schema: Schema, Setup: Setup{
		Workload: "numbered", Seed: 42, Sizes: []int{1_000_000, 10_000_000}, Readers: []int{1, 4}, Lookups: 100_000, ValueBytes: 100, BitsPerKey: 10,
		CacheBytes: 32 << 20, MemtableBytes: 32 << 20, BlockBytes: 4096, Machine: report.Machine{GoVersion: "go1", OS: "linux", Arch: "arch", CPUs: 2},
	}}
	for i, n := range r.Setup.Sizes {
		f := float64(1 + i)
		s := Size{Keys: n, UserBytes: 116 * uint64(n),
			Fill: Fill{Seconds: 4 * f * f, Put: fixedLatency(1500 * f), Stalls: uint64(3 * i), StallSeconds: 0.25 * float64(i), SlowSeconds: 0.5 * float64(i),
				WriteAmplification: 3 * f, SettleSeconds: 1.5, Absent: Beside{5000, fixedLatency(700)}, Present: Beside{5000, fixedLatency(2500)}},
			Tree: Tree{CompactSeconds: 2 * f, Tables: 14 * n / 1_000_000, Runs: 1, TableFileBytes: 113 * uint64(n), DiskBytes: 113*uint64(n) + 5000,
				FilterBytes: 5 * uint64(n) / 4, IndexBytes: uint64(n), HeapObjects: 300 * uint64(1+i), OpenSeconds: []float64{0.3, 0.1, 0.2}},
			Scans:  Scans{Length: 100, Count: 5000, Short: fixedLatency(6000), Forward: FullScan{n, 0.05 * f, []float64{48, 50, 52}}, Reverse: FullScan{n, 0.06 * f, []float64{59, 60, 61}}},
			Phases: []Phase{{"fill", 4 * f, 150 << 20, 2.5}, {"compact", 2 * f, 0, 0.5}},
		}
		for _, keys := range []string{Absent, Present} {
			for _, readers := range r.Setup.Readers {
				p := Pass{Keys: keys, Readers: readers, Lookups: 100_000, Seconds: 0.03 * f / float64(min(readers, 2)), BlocksRead: uint64(950 * (1 + i)), BlocksCached: 50,
					FalsePositives: uint64(950*(1+i)) + 50, Latency: fixedLatency(150 * f * float64(readers))}
				if keys == Present {
					p.Seconds, p.BlocksRead, p.FalsePositives, p.Latency = 10*p.Seconds, 90_000, 0, fixedLatency(2500*f)
				}
				s.Lookups = append(s.Lookups, p)
			}
		}
		r.Sizes = append(r.Sizes, s)
	}
	return r
}

func TestGolden(t *testing.T) {
	for f, suffix := range map[report.Format]string{report.Text: ".txt", report.JSON: ".json", report.Markdown: ".md", report.GoBench: ".bench"} {
		var got bytes.Buffer
		if err := report.Write(&got, fixed(), f); err != nil {
			t.Fatal(err)
		}
		name := filepath.Join("testdata", "growth"+suffix)
		if *update {
			if err := os.WriteFile(name, got.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if got.String() != strings.ReplaceAll(string(want), "\r\n", "\n") { // as a checkout on Windows may have it
			t.Errorf("%s: if the change is meant, run with -update; got:\n%s", name, got.String())
		}
	}
}

func small(t *testing.T) *Config {
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv("TMP", os.Getenv("TMPDIR")) // Windows
	return &Config{Sizes: []int{300, 3000}, Readers: []int{1, 3}, Lookups: 700, ValueBytes: 50, Bits: 10, CacheBytes: -1, Seed: 42}
}

// Every part of a size is measured, and the counts are those of the store.
func TestMeasure(t *testing.T) {
	c := small(t)
	r, err := Measure(t.Context(), c, silent)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Sizes) != 2 || r.Interrupted || r.Setup.CacheBytes != 0 || r.Setup.MemtableBytes != 32<<20 {
		t.Fatalf("%+v", r)
	}
	for _, s := range r.Sizes {
		n := min(700, s.Keys-1)
		if s.UserBytes != 66*uint64(s.Keys) || s.Fill.Put.P50Ns == 0 || len(s.Fill.Put.SliceMeansNs) != 20 || s.Fill.Absent.Lookups == 0 || s.Fill.Present.P50Ns == 0 {
			t.Errorf("%d keys: %+v", s.Keys, s.Fill)
		}
		if s.Fill.WriteAmplification < 1.5 || s.Fill.WriteAmplification > 3 { // log and one table
			t.Errorf("%d keys: write amplification %v", s.Keys, s.Fill.WriteAmplification)
		}
		if s.Tree.Tables != 1 || s.Tree.Runs != 1 || s.Tree.FilterBytes == 0 || s.Tree.IndexBytes == 0 || s.Tree.DiskBytes <= s.Tree.TableFileBytes || len(s.Tree.OpenSeconds) != opens {
			t.Errorf("%d keys: %+v", s.Keys, s.Tree)
		}
		if s.Scans.Forward.Entries != s.Keys || s.Scans.Reverse.Entries != s.Keys || s.Scans.Count != max(1, n/lookupsPerScan) || s.Scans.Short.P50Ns == 0 || len(s.Scans.Reverse.SliceMeansNs) != 20 {
			t.Errorf("%d keys: %+v", s.Keys, s.Scans)
		}
		if len(s.Phases) != 8 || len(s.Lookups) != 4 {
			t.Errorf("%d keys: %d phases, %d passes", s.Keys, len(s.Phases), len(s.Lookups))
		}
		for _, readers := range c.Readers {
			absent, present := s.Pass(Absent, readers), s.Pass(Present, readers)
			if absent.Lookups != n || absent.BlocksRead != absent.FalsePositives || absent.BlocksRead > uint64(n/10) || absent.P50Ns == 0 {
				t.Errorf("%d keys: %+v", s.Keys, absent)
			}
			if present.Lookups != n || present.BlocksRead != uint64(n) || present.BlocksCached+present.FalsePositives != 0 {
				t.Errorf("%d keys: without a cache, %d present keys of one table read: %+v", s.Keys, n, present)
			}
		}
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
		t.Errorf("%v: left: %v", err, left)
	}
}

// A share of the readers begins where that of the one before ended.
func TestShare(t *testing.T) {
	for _, x := range []struct{ n, readers int }{{10, 1}, {10, 3}, {2, 5}, {1_000_000_000, 1024}} {
		for r := range x.readers {
			if lo, hi := share(x.n, x.readers, r), share(x.n, x.readers, r+1); lo > hi || hi-lo > x.n/x.readers+1 {
				t.Errorf("%+v: reader %d has [%d, %d)", x, r, lo, hi)
			}
		}
		if share(x.n, x.readers, 0) != 0 || share(x.n, x.readers, x.readers) != x.n {
			t.Errorf("%+v: not all", x)
		}
	}
}

// More readers than lookups leave some without any.
func TestManyReaders(t *testing.T) {
	c := small(t)
	c.Sizes, c.Readers, c.Lookups = []int{200}, []int{50}, 20
	r, err := Measure(t.Context(), c, silent)
	if err != nil {
		t.Fatal(err)
	}
	if p := r.Sizes[0].Pass(Present, 50); p.Lookups != 20 || p.BlocksRead != 20 {
		t.Errorf("%+v", p)
	}
}

// A wrong answer is an error of the measurement.
func TestCheck(t *testing.T) {
	c := small(t)
	x := &sized{Config: c, values: workload.NewValues(c.ValueBytes, c.Seed)}
	good := x.values.Of(7, 0)
	for name, wrong := range map[string]error{
		"found":    x.check(Absent, 7, nil, good, nil),
		"missing":  x.check(Present, 7, nil, nil, sievedb.ErrNotFound),
		"other":    x.check(Present, 7, nil, x.values.Of(8, 0), nil),
		"failed":   x.check(Absent, 7, nil, nil, io.ErrUnexpectedEOF),
		"failed 2": x.check(Present, 7, nil, nil, io.ErrUnexpectedEOF),
	} {
		if wrong == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := errors.Join(x.check(Absent, 7, nil, nil, sievedb.ErrNotFound), x.check(Present, 7, nil, good, nil)); err != nil {
		t.Error(err)
	}
}

// ending ends the context after so many questions.
type ending struct {
	context.Context
	cancel func()
	left   int
}

func (c *ending) Err() error {
	if c.left--; c.left == 0 {
		c.cancel()
	}
	return c.Context.Err()
}

// What is complete at an interruption is kept, whenever it comes, and nothing
// is left behind.
func TestInterrupted(t *testing.T) {
	kept := 0
	for left := 1; left < 100; left += 18 {
		c := small(t)
		c.Readers = []int{1} // asks the context from one goroutine
		ctx, cancel := context.WithCancel(t.Context())
		r, err := Measure(&ending{ctx, cancel, left}, c, silent)
		cancel()
		if r != nil {
			kept++
			if err != nil && (!r.Interrupted || len(r.Sizes) != 1 || !errors.Is(err, context.Canceled)) {
				t.Errorf("after %d questions: %v, %d sizes", left, err, len(r.Sizes))
			}
		} else if !errors.Is(err, context.Canceled) {
			t.Errorf("after %d questions: %v", left, err)
		}
		if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
			t.Errorf("%v: left: %v", err, left)
		}
	}
	if kept == 0 || kept == 6 {
		t.Errorf("%d runs had something to keep", kept)
	}
}
