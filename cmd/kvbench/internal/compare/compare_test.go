package compare

import (
	"bytes"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sievedb/cmd/kvbench/internal/report"
	"sievedb/cmd/kvbench/internal/results"
	"sievedb/cmd/kvbench/internal/versus"
)

// fixed is a golden result of package report, or that of package versus.
func fixed(t *testing.T, name string) report.Run {
	t.Helper()
	from := "report"
	if name == "engines" {
		from = "versus"
	}
	run, err := results.Read(filepath.Join("..", from, "testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return run
}

func latency(ns float64) (l report.Latency) {
	for i := range 20 {
		l.SliceMeansNs = append(l.SliceMeansNs, ns+float64(i%5))
	}
	return l
}

func TestCompare(t *testing.T) {
	compare := func(threshold float64, exact bool, f func(r *report.Lookups)) *Comparison {
		t.Helper()
		b := fixed(t, "lookups").(*report.Lookups)
		f(b)
		c, err := Runs(fixed(t, "lookups"), b, threshold, exact)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for name, x := range map[string]struct {
		c           *Comparison
		regressions int
	}{
		"the same":            {compare(0, true, func(*report.Lookups) {}), 0},
		"one more":            {compare(0, true, func(r *report.Lookups) { r.Absent.With.FalsePositives++ }), 1},
		"one more is chance":  {compare(0, false, func(r *report.Lookups) { r.Absent.With.FalsePositives++ }), 0},
		"one fewer":           {compare(0, true, func(r *report.Lookups) { r.Absent.With.FalsePositives-- }), 0},
		"many more":           {compare(1, false, func(r *report.Lookups) { r.Absent.With.FalsePositives += 300 }), 1},
		"below the threshold": {compare(20, false, func(r *report.Lookups) { r.Absent.With.FalsePositives += 300 }), 0},
		"slower":              {compare(0, true, func(r *report.Lookups) { r.Absent.With.Latency = latency(9e6) }), 0},
		"half the lookups": {compare(1, false, func(r *report.Lookups) {
			r.Absent.With.Lookups /= 2 // the same counts are twice as many a lookup
		}), 3},
	} {
		if x.c.Regressions != x.regressions {
			t.Errorf("%s: %d regressions, want %d: %+v", name, x.c.Regressions, x.regressions, x.c.Counts)
		}
	}
	c := compare(0, false, func(r *report.Lookups) { r.Absent.With.Latency, r.Setup.Seed = latency(1800), 43 })
	var b bytes.Buffer
	if err := c.Write(&b, report.Text); err != nil {
		t.Fatal(err)
	}
	for _, says := range []string{"None of", "slower", "2.00", "setup: "} {
		if !strings.Contains(b.String(), says) {
			t.Errorf("the comparison does not say %q:\n%s", says, b.String())
		}
	}
	if _, err := Runs(fixed(t, "lookups"), fixed(t, "sweep"), 1, false); err == nil || !strings.Contains(err.Error(), "different kinds") {
		t.Errorf("different kinds: %v", err)
	}
	for _, name := range []string{"lookups", "sweep", "ops", "crash", "engines"} {
		run := fixed(t, name)
		c, err := Runs(run, run, 0, true)
		if err != nil || c.Regressions > 0 || len(c.Other) > 0 {
			t.Errorf("%s with itself: %v %+v", name, err, c)
		}
	}
}

// Times of engines are compared from the repetitions, and decide nothing.
func TestCompareEngines(t *testing.T) {
	slower := fixed(t, "engines").(*versus.Result)
	for i := range slower.Settings[0].Workloads[2].Timings[0].RepetitionNs {
		slower.Settings[0].Workloads[2].Timings[0].RepetitionNs[i] *= 2
	}
	c, err := Runs(fixed(t, "engines"), slower, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := c.Write(&b, report.Text); err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`sievedb, scan 100, tuned alike, mean ns .* 2\.000 .* slower`).MatchString(b.String())
	if !found || c.Regressions > 0 || !strings.HasPrefix(b.String(), "The runs have times alone") || strings.Contains(b.String(), "Counts,") {
		t.Errorf("%d regressions:\n%s", c.Regressions, b.String())
	}
}
