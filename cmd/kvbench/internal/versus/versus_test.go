package versus

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sievedb/cmd/kvbench/internal/report"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// fixed is the result of a run that never was: one peer that is slower, faster
// and even in turn, and one that lacks a workload.
func fixed() *Result {
	r := &Result{Setup: Setup{
		Keyset: "numbered", Seed: 42, Keys: 1000, KeyBytes: 16_000, ValueBytes: 100, CacheBytes: 16 << 20, MemtableBytes: 8 << 20, BitsPerKey: 10,
		Repetitions: 3, Engines: []Engine{{"sievedb", "this checkout", "Asks filters."}, {"other", "v1.2.3", "Asks none."}, {"third", "v0.1", "Is small."}},
		Machine: report.Machine{GoVersion: "go1", OS: "linux", Arch: "arch", CPUs: 2},
	}}
	calls := uint64(50)
	for _, x := range []struct {
		workload, unit string
		means          map[string][3]float64
	}{
		{"absent", "operation", map[string][3]float64{"third": {900, 1000, 1500}, "sievedb": {300, 310, 200}, "other": {3000, 310, 2100}}},
		{"compact", "call", map[string][3]float64{"sievedb": {2e6, 3e9, 2e6}, "other": {1e6, 1e6, 1.9e6}}},
		{"scan 100", "operation", map[string][3]float64{"sievedb": {5000, 5000, 5000}, "other": {4900, 4900, 4900}, "third": {4000, 9000, 5000}}},
		{"present", "operation", map[string][3]float64{"sievedb": {1000, 1000, 1000}, "other": {700, 2000, 800}, "third": {700, 2000, 800}}},
	} {
		for _, engine := range []string{"third", "sievedb", "other"} {
			means, ok := x.means[engine]
			if !ok {
				continue
			}
			for _, mean := range means {
				p50 := int64(mean / 2)
				if x.workload == "present" && engine == "other" {
					p50 = 400 // whatever else the machine did
				}
				r.Add("tuned", Sample{Workload: x.workload, Unit: x.unit, Engine: engine, Operations: 100, MeanNs: mean, P50Ns: p50, P99Ns: int64(3 * mean), ReadCalls: &calls})
			}
		}
	}
	r.Add("default", Sample{Workload: "absent", Unit: "operation", Engine: "sievedb", Operations: 100, MeanNs: 300})
	r.Add("default", Sample{Workload: "absent", Unit: "operation", Engine: "other", Operations: 100, MeanNs: 900})
	for _, engine := range []string{"third", "sievedb", "other"} {
		r.Footprint("tuned", Footprint{engine, 1, 2})
		r.Footprint("tuned", Footprint{engine, 200_000, 100_000 * uint64(len(engine))}) // the last one counts
	}
	r.Complete()
	return r
}

func TestGolden(t *testing.T) {
	for f, suffix := range map[report.Format]string{report.Text: ".txt", report.JSON: ".json", report.Markdown: ".md", report.GoBench: ".bench"} {
		var got bytes.Buffer
		if err := report.Write(&got, fixed(), f); err != nil {
			t.Fatal(err)
		}
		name := filepath.Join("testdata", "engines"+suffix)
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
			t.Errorf("%s: if the change is meant, run with -update and look at it; got:\n%s", name, got.String())
		}
	}
}

// The figures of the golden result, computed by hand: ratios are those of the
// same repetition, and not of the medians.
func TestArithmetic(t *testing.T) {
	r := fixed()
	tuned := r.Setting("tuned")
	for _, x := range []struct {
		workload         int
		engine           string
		median, low      float64
		ratio, from, to  float64
		verdict          string
		p50, readsPerOne float64
	}{
		{0, "sievedb", 300, 200, 1, 1, 1, "", 150, 0.5},
		{0, "other", 2100, 310, 10, 1, 10.5, Even, 1050, 0.5}, // never faster, but once as fast
		{0, "third", 1000, 900, 1000. / 310, 3, 7.5, Slower, 500, 0.5},
		{1, "other", 1e6, 1e6, 0.5, 1. / 3000, 0.95, Faster, 500_000, 0.5},
		{2, "other", 4900, 4900, 0.98, 0.98, 0.98, Even, 2450, 0.5}, // always faster, but by 2 %
		{2, "third", 5000, 4000, 1, 0.8, 1.8, Even, 2500, 0.5},
		{3, "other", 800, 700, 0.8, 0.7, 2, Faster, 400, 0.5}, // by the p50
		{3, "third", 800, 700, 0.8, 0.7, 2, Even, 400, 0.5},
	} {
		w := tuned.Workloads[x.workload]
		y := w.timing(x.engine)
		if y == nil || y.MedianNs != x.median || y.LowNs != x.low || y.Ratio != x.ratio || y.RatioLow != x.from || y.RatioHigh != x.to ||
			y.Verdict != x.verdict || y.P50Ns != x.p50 || *y.ReadCalls != x.readsPerOne {
			t.Errorf("%s, %s: %+v, want %+v", w.Name, x.engine, y, x)
		}
	}
	if slower, faster, all := tuned.Verdicts(); slower != 1 || faster != 2 || all != 7 {
		t.Errorf("%d slower, %d faster of %d", slower, faster, all)
	}
	if tuned.Workloads[0].Timings[0].Engine != "sievedb" || tuned.Footprints[0].Engine != "sievedb" || len(tuned.Footprints) != 3 {
		t.Errorf("not in the order of the engines: %+v", tuned)
	}
	lines := tuned.FasterPeers(r.Setup.Engines)
	if len(lines) != 1 || lines[0] != "other is FASTER, tuned alike: compact (0.50), present (p50 0.80)." {
		t.Errorf("%q", lines)
	}
	if lines := r.Setting("default").FasterPeers(r.Setup.Engines); len(lines) != 1 || lines[0] != "No peer is clearly faster in anything, out of the box." {
		t.Errorf("%q", lines)
	}
}
