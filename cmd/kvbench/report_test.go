package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"sievedb"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// fixedResults are those of a run that never was.
func fixedResults() *results {
	off, on := fixedMetrics(), fixedMetrics()
	for i, probes := range map[int]uint64{0: 50_000, 5: 70_000, 6: 99_000} {
		expected := float64(probes) / 100
		fp := probes/100 + 12
		off.Levels[i].Filter = sievedb.FilterCounts{Probes: probes, Unfiltered: probes, BlocksRead: probes - 1000, BlocksCached: 1000}
		on.Levels[i].Filter = sievedb.FilterCounts{Probes: probes, Negatives: probes - fp, FalsePositives: fp,
			ExpectedFalsePositives: expected, BlocksRead: fp - 20, BlocksCached: 20}
	}
	on.Memory.Filters = 1_280_000
	presentOff, presentOn := fixedMetrics(), fixedMetrics()
	presentOff.Levels[6].Filter = sievedb.FilterCounts{Probes: 200_000, Unfiltered: 200_000, BlocksRead: 190_000, BlocksCached: 10_000}
	presentOn.Levels[6].Filter = sievedb.FilterCounts{Probes: 200_000, Negatives: 99_000, TruePositives: 100_000, FalsePositives: 1000, BlocksRead: 100_500, BlocksCached: 500}
	loaded := fixedMetrics()
	loaded.Disk.Tables = 110_000_000
	loaded.Runs = 4
	return &results{
		config:   &config{seed: 42, valueBytes: 100, bits: 10, cacheMiB: 1},
		workload: &workload{name: "numbered", stored: 1_000_000, absent: 999_999, keyBytes: 16_000_000, outside: 7},
		options:  sievedb.Options{CacheBytes: 1 << 20, MemtableBytes: 200_000, TableBytes: 200_000, BlockBytes: 4096},
		lookups:  100_000, loadTime: 20 * time.Second, settleTime: time.Second, loaded: loaded,
		absentOff: pass{off, fixedLatencies(7000)}, absentOn: pass{on, fixedLatencies(400)},
		presentOff: pass{presentOff, fixedLatencies(7100)}, presentOn: pass{presentOn, fixedLatencies(4000)},
		build: buildCost{keys: 20_000, without: 140, with: 152.5},
	}
}

func fixedMetrics() (m sievedb.Metrics) {
	for i, keys := range map[int]uint64{0: 1_600, 5: 90_000, 6: 908_400} {
		m.Levels[i] = sievedb.LevelMetrics{Level: i, Tables: 1 + i, Keys: keys, Bytes: 110 * keys, FilterBytes: keys * 5 / 4, BitsPerKey: 10}
	}
	return m
}

func fixedLatencies(ns int64) *hdrhistogram.Histogram {
	h := hdrhistogram.New(1, time.Minute.Nanoseconds(), 3)
	for i := range int64(1000) {
		_ = h.RecordValue(ns + i)
	}
	return h
}

// machineIndependent takes out of a report what differs between machines.
func machineIndependent(r *Report) *Report {
	r.Setup.GoVersion, r.Setup.OS, r.Setup.Arch, r.Setup.CPUs = "go1", "os", "arch", 2
	return r
}

func TestGoldenReports(t *testing.T) {
	r := machineIndependent(newReport(fixedResults()))
	for name, write := range map[string]func(*bytes.Buffer) error{
		"testdata/report.txt":  func(b *bytes.Buffer) error { return r.writeText(b) },
		"testdata/report.json": func(b *bytes.Buffer) error { return r.writeJSON(b) },
	} {
		var got bytes.Buffer
		if err := write(&got); err != nil {
			t.Fatal(err)
		}
		if *update {
			if err := os.WriteFile(name, got.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		unix := strings.NewReplacer("\r\n", "\n") // as a checkout on Windows may have it
		if unix.Replace(got.String()) != unix.Replace(string(want)) {
			t.Errorf("%s: if the change is meant, run with -update; got:\n%s", name, got.String())
		}
	}
}

// The figures of the golden report, computed by hand.
func TestArithmetic(t *testing.T) {
	r := newReport(fixedResults())
	without, with := uint64(49_000+69_000+98_000), uint64(492+692+982)
	if r.Absent.Without.BlocksRead != without || r.Absent.With.BlocksRead != with {
		t.Errorf("disk reads %d and %d, want %d and %d", r.Absent.Without.BlocksRead, r.Absent.With.BlocksRead, without, with)
	}
	if want := 100 * (1 - float64(with)/float64(without)); r.ReadsAvoidedPercent != want {
		t.Errorf("avoided %v, want %v", r.ReadsAvoidedPercent, want)
	}
	p := r.Prediction
	if p.Expected.Expected != 2190 || p.BlocksFetched != 512+712+1002 || p.Measured != 2226 || !p.Checked || !p.OK {
		t.Errorf("prediction %+v", p)
	}
	if r.Load.Levels != 3 || len(r.Levels) != 3 {
		t.Errorf("%d levels, %d listed", r.Load.Levels, len(r.Levels))
	}
	if c := r.Cost; c.FileBytes != 2000+112_500+1_135_500 || c.BitsPerKey != 10 || c.PresentSavedBlocks != 0.895 {
		t.Errorf("cost %+v", c)
	}
}

func TestPredictionVerdict(t *testing.T) {
	for _, x := range []struct {
		expected    float64
		read, cache uint64
		checked, ok bool
	}{
		{1000, 799, 0, true, false},
		{1000, 800, 0, true, true},
		{1000, 700, 100, true, true}, // fetched is what counts, not read
		{1000, 1200, 0, true, true},
		{1000, 1201, 0, true, false},
		{1000, 1000, 201, true, false},
		{999.9, 1300, 0, false, true},
		{999.9, 0, 0, false, true},
		{0, 0, 0, false, true},
		{5000, 0, 0, true, false},
	} {
		p := newPrediction(sievedb.FilterCounts{ExpectedFalsePositives: x.expected, BlocksRead: x.read, BlocksCached: x.cache})
		if p.Checked != x.checked || p.OK != x.ok {
			t.Errorf("expected %v, read %d, cached %d: checked %v, ok %v", x.expected, x.read, x.cache, p.Checked, p.OK)
		}
	}
}

// Quantiles of the Poisson distribution, from tables.
func TestPoissonInterval(t *testing.T) {
	for _, x := range []struct {
		mean      float64
		low, high uint64
	}{
		{0, 0, 0}, {0.01, 0, 0}, {1, 0, 3}, {5, 1, 10}, {10, 4, 17}, {100, 81, 120}, {1000, 938, 1062},
	} {
		if low, high := poissonInterval(x.mean); low != x.low || high != x.high {
			t.Errorf("mean %v: %d to %d, want %d to %d", x.mean, low, high, x.low, x.high)
		}
	}
	// Far out it is the normal distribution.
	if low, high := poissonInterval(1e6); low < 998_035 || low > 998_045 || high < 1_001_955 || high > 1_001_965 {
		t.Errorf("mean 1e6: %d to %d", low, high)
	}
}

// What programs read stays: each name of the schema, with its kind of value.
func TestJSONSchema(t *testing.T) {
	var b bytes.Buffer
	if err := newReport(fixedResults()).writeJSON(&b); err != nil {
		t.Fatal(err)
	}
	var top map[string]any
	if err := json.Unmarshal(b.Bytes(), &top); err != nil {
		t.Fatal(err)
	}
	if top["schema"] != "sievedb.kvbench/1" {
		t.Errorf("schema %v", top["schema"])
	}
	for section, names := range map[string]string{
		"setup":       "workload seed keys key_bytes value_bytes lookups outside_keys bits_per_key cache_bytes memtable_bytes table_bytes block_bytes go_version os arch cpus",
		"load":        "seconds settle_seconds table_file_bytes levels runs",
		"absent":      "without_filters with_filters",
		"present":     "without_filters with_filters",
		"prediction":  "asked expected expected_low expected_high measured blocks_fetched ratio checked ok",
		"filter_cost": "file_bytes memory_bytes bits_per_key store_percent build_keys flush_without_ns_per_key flush_with_ns_per_key absent_saved_ns present_saved_ns present_saved_blocks",
	} {
		m, ok := top[section].(map[string]any)
		if !ok {
			t.Errorf("no section %s", section)
			continue
		}
		for _, name := range strings.Fields(names) {
			if _, ok := m[name]; !ok {
				t.Errorf("%s has no %s", section, name)
			}
		}
		if len(m) != len(strings.Fields(names)) {
			t.Errorf("%s has %d fields, the schema lists %d", section, len(m), len(strings.Fields(names)))
		}
	}
}
