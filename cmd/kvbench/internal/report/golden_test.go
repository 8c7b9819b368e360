package report

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sievedb"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var machine = Machine{GoVersion: "go1", OS: "linux", Arch: "arch", CPUs: 2}

func fixedLatency(ns float64) Latency {
	l := Latency{MeanNs: ns, P50Ns: int64(ns), P99Ns: int64(2 * ns), P999Ns: int64(3 * ns), MaxNs: int64(9 * ns)}
	for i, p := range []float64{0, 50, 90, 99, 99.9, 99.99, 100} {
		l.Quantiles = append(l.Quantiles, Quantile{p, int64(ns) * int64(1+i)})
	}
	for i := range 20 {
		l.SliceMeansNs = append(l.SliceMeansNs, ns+float64(i%5))
	}
	return l
}

func fixedMetrics() (m sievedb.Metrics) {
	for i, keys := range map[int]uint64{0: 1_600, 5: 90_000, 6: 908_400} {
		m.Levels[i] = sievedb.LevelMetrics{Level: i, Tables: 1 + i, Keys: keys, Bytes: 110 * keys, FilterBytes: keys * 5 / 4, BitsPerKey: 10}
		m.Tables = append(m.Tables, sievedb.TableMetrics{Level: i, Bytes: 110 * keys})
	}
	return m
}

// fixedLookups is the result of a run that never was.
func fixedLookups() *Lookups {
	off, on := fixedMetrics(), fixedMetrics()
	for i, probes := range map[int]uint64{0: 50_000, 5: 70_000, 6: 99_000} {
		fp := probes/100 + 12
		off.Levels[i].Filter = sievedb.FilterCounts{Probes: probes, Unfiltered: probes, BlocksRead: probes - 1000, BlocksCached: 1000}
		on.Levels[i].Filter = sievedb.FilterCounts{Probes: probes, Negatives: probes - fp, FalsePositives: fp,
			ExpectedFalsePositives: float64(probes) / 100, BlocksRead: fp - 20, BlocksCached: 20}
	}
	presentOff, presentOn := fixedMetrics(), fixedMetrics()
	presentOff.Levels[6].Filter = sievedb.FilterCounts{Probes: 200_000, Unfiltered: 200_000, BlocksRead: 190_000, BlocksCached: 10_000}
	presentOn.Levels[6].Filter = sievedb.FilterCounts{Probes: 200_000, Negatives: 99_000, TruePositives: 100_000, FalsePositives: 1000, BlocksRead: 100_500, BlocksCached: 500}
	outside := fixedMetrics()
	const n = 100_000
	pass := func(m *sievedb.Metrics, ns float64, calls uint64) Pass {
		return NewPass(m, n, fixedLatency(ns), &Kernel{ReadCalls: calls, ReadBytes: 4096})
	}
	r := &Lookups{
		Setup: Setup{
			Workload: "numbered", Seed: 42, Keys: 1_000_000, KeyBytes: 16_000_000, ValueBytes: 100, Lookups: n, OutsideKeys: 7, RepeatedLines: 3,
			BitsPerKey: 10, CacheBytes: 1 << 20, MemtableBytes: 200_000, TableBytes: 200_000, BlockBytes: 4096, Machine: machine,
		},
		Load:       Load{Seconds: 20, SettleSeconds: 1, TableFileBytes: 110_000_000, Runs: 4},
		Absent:     Passes{pass(&off, 7499.5, 216_005), pass(&on, 899.5, 2200)},
		Outside:    Passes{pass(&outside, 60, 3), pass(&outside, 61, 2)},
		Present:    Passes{pass(&presentOff, 7599.5, 190_004), pass(&presentOn, 4499.5, 100_510)},
		Levels:     NewLevels(&off, &on),
		Prediction: NewPrediction(on.Total()),
	}
	r.Complete(1_280_000, Build{Keys: 20_000, Without: 140, With: 152.5})
	return r
}

func fixedSweep() *Sweep {
	s := &Sweep{
		Setup: SweepSetup{Workload: "numbered", Seed: 42, Keys: 1000, Lookups: 10_000, TreeKeys: 500, Machine: machine},
		Points: []Point{
			{Kind: "none", Asked: 10_000, FalsePositives: 10_000, BuiltRate: 1},
			{Kind: "blocked", Bits: 10, BitsPerKey: 10.01, Probes: 6, FilterBytes: 1280, Asked: 10_000, FalsePositives: 97, BuiltRate: 0.0096},
			{Kind: "blocked", Bits: 12, BitsPerKey: 12, Probes: 8, FilterBytes: 1536, Asked: 10_000, FalsePositives: 200, BuiltRate: 0.0041},
			{Kind: "fuse", Bits: 11, BitsPerKey: 9.1, Probes: 3, FilterBytes: 1165, Asked: 10_000, FalsePositives: 40, BuiltRate: 1.0 / 256},
		},
		Policies: []PolicyPoint{{Policy: "uniform", Bits: 10, BitsPerKey: 10.1, FilterBytes: 640, Lookups: 10_000,
			Expected: 190, BlocksFetched: 200, FetchedPerKey: 0.02, ExpectedPerKey: 0.019}},
	}
	s.Complete()
	return s
}

func fixedOps() *Ops {
	m := fixedMetrics()
	return &Ops{
		Schema: OpsSchema, Setup: OpsSetup{Command: "ycsb a", Workload: "numbered", Mix: "read=50,update=50", Distribution: "zipfian", Seed: 42,
			Keys: 1000, Operations: 2000, ValueBytes: 100, ScanLength: 100, BitsPerKey: 10, CacheBytes: 1 << 20, MemtableBytes: 32 << 20, Machine: machine},
		LoadSeconds: 1, Seconds: 2, Done: 2000,
		Kinds:      []Kind{{"read", 1000, 990, fixedLatency(3000)}, {"update", 1000, 0, fixedLatency(900)}},
		BlocksRead: 700, BlocksCached: 300, Negatives: 500, FalsePositives: 5,
		Samples: []Sample{{1000, 1, 2, 0, 3}, {2000, 2, 3, 1.1, 2}},
		Levels:  NewLevels(&m, &m), Runs: 3, WriteAmplification: 3, SpaceAmplification: 1.1, TableFileBytes: 1 << 20, Stalls: 2, StallSeconds: 0.5,
		Kernel: &Kernel{710, 8192},
	}
}

func fixedCrash() *Crash {
	c := &Crash{Setup: CrashSetup{Kills: 2, Seed: 42, Keys: 100, ValueBytes: 10, Synced: true, Machine: machine},
		Kills: []Kill{{10, 11, 5, 0.001}, {30, 28, 7, 0.002}}}
	c.Complete()
	return c
}

var fixed = map[string]Run{"lookups": fixedLookups(), "sweep": fixedSweep(), "ops": fixedOps(), "crash": fixedCrash()}

func TestGolden(t *testing.T) {
	for name, run := range fixed {
		for _, f := range Formats {
			var got bytes.Buffer
			if err := Write(&got, run, f); err != nil {
				t.Fatal(err)
			}
			suffix := map[Format]string{Text: ".txt", JSON: ".json", Markdown: ".md", GoBench: ".bench"}[f]
			compareGolden(t, filepath.Join("testdata", name+suffix), got.Bytes())
		}
	}
}

func compareGolden(t *testing.T, name string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != strings.ReplaceAll(string(want), "\r\n", "\n") { // as a checkout on Windows may have it
		t.Errorf("%s: if the change is meant, run with -update; got:\n%s", name, got)
	}
}

// What programs read stays: each name of the schema.
func TestSchema(t *testing.T) {
	var b bytes.Buffer
	if err := Write(&b, fixedLookups(), JSON); err != nil {
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
		"setup":       "workload seed keys key_bytes value_bytes lookups outside_keys repeated_lines bits_per_key cache_bytes memtable_bytes table_bytes block_bytes store cold go_version os arch cpus",
		"load":        "seconds settle_seconds table_file_bytes levels runs",
		"absent":      "without_filters with_filters",
		"present":     "without_filters with_filters",
		"outside":     "without_filters with_filters",
		"prediction":  "asked expected expected_low expected_high measured blocks_fetched ratio checked ok",
		"filter_cost": "file_bytes memory_bytes bits_per_key store_percent build_keys flush_without_ns_per_key flush_with_ns_per_key absent_saved_ns present_saved_ns present_saved_blocks",
	} {
		m, ok := top[section].(map[string]any)
		if !ok {
			t.Errorf("no section %s", section)
			continue
		}
		for name := range strings.FieldsSeq(names) {
			if _, ok := m[name]; !ok {
				t.Errorf("%s has no %s", section, name)
			}
		}
		if len(m) != len(strings.Fields(names)) {
			t.Errorf("%s has %d fields, the schema lists %d", section, len(m), len(strings.Fields(names)))
		}
	}
}
