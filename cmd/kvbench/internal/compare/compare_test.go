package compare

import (
	"bytes"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sievedb/cmd/kvbench/internal/growth"
	"sievedb/cmd/kvbench/internal/report"
	"sievedb/cmd/kvbench/internal/results"
	"sievedb/cmd/kvbench/internal/versus"
)

// fixed is a golden result of package report, or that of versus or growth.
func fixed(t *testing.T, name string) report.Run {
	t.Helper()
	from := "report"
	switch name {
	case "engines":
		from = "versus"
	case "growth":
		from = "growth"
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
	for _, name := range []string{"lookups", "sweep", "ops", "crash", "engines", "growth"} {
		run := fixed(t, name)
		c, err := Runs(run, run, 0, true)
		if err != nil || c.Regressions > 0 || len(c.Other) > 0 {
			t.Errorf("%s with itself: %v %+v", name, err, c)
		}
	}
}

// Counts of stores that grow decide, and their times do not.
func TestCompareGrowth(t *testing.T) {
	for name, x := range map[string]struct {
		change      func(s *growth.Size)
		regressions int
		says        string
	}{
		"more blocks":     {func(s *growth.Size) { s.Pass(growth.Absent, 4).BlocksRead *= 2 }, 1, "absent of 10000000 keys, 4 readers, blocks fetched"},
		"within chance":   {func(s *growth.Size) { s.Pass(growth.Absent, 4).BlocksRead += 60 }, 0, "more, within chance"},
		"larger":          {func(s *growth.Size) { s.Tree.DiskBytes += s.Tree.DiskBytes / 10 }, 1, "disk bytes of 10000000 keys"},
		"slower":          {func(s *growth.Size) { s.Pass(growth.Present, 1).Latency = latency(50_000) }, 0, "present of 10000000 keys, 1 readers, mean ns"},
		"slower put":      {func(s *growth.Size) { s.Fill.Put = latency(50_000) }, 0, "put of 10000000 keys"},
		"slower scan":     {func(s *growth.Size) { s.Scans.Reverse.SliceMeansNs = []float64{600, 601, 602} }, 0, "scan reverse of 10000000 keys"},
		"fewer keys only": {func(s *growth.Size) { s.Keys = 5 }, 0, "of 1000000 keys"},
	} {
		b := fixed(t, "growth").(*growth.Result)
		x.change(&b.Sizes[1])
		c, err := Runs(fixed(t, "growth"), b, 1, false)
		if err != nil {
			t.Fatal(err)
		}
		var text bytes.Buffer
		if err := c.Write(&text, report.Text); err != nil {
			t.Fatal(err)
		}
		if c.Regressions != x.regressions || !strings.Contains(text.String(), x.says) {
			t.Errorf("%s: %d regressions, want %d, and %q:\n%s", name, c.Regressions, x.regressions, x.says, text.String())
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
