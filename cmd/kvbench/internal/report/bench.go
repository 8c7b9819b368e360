package report

import (
	"bytes"
	"fmt"
	"strings"
)

// Benchmark is one line of a Go benchmark, of N operations; without any it is
// left out.
type Benchmark struct {
	Name   string
	N      uint64
	Values []BenchValue
}

// BenchValue is a figure of a Benchmark.
type BenchValue struct {
	Value float64
	Unit  string
}

// writeBenchmarks writes what benchstat reads, in the format of
// golang.org/design/14313-benchmark-format.
func writeBenchmarks(b *bytes.Buffer, m Machine, lines []Benchmark) {
	fmt.Fprintf(b, "goos: %s\ngoarch: %s\npkg: sievedb/cmd/kvbench\n", m.OS, m.Arch)
	for _, l := range lines {
		if l.N == 0 {
			continue
		}
		fmt.Fprintf(b, "Benchmark%s-%d\t%d", l.Name, m.CPUs, l.N)
		for _, v := range l.Values {
			fmt.Fprintf(b, "\t%.6g %s", v.Value, v.Unit)
		}
		b.WriteByte('\n')
	}
}

// BenchValues returns the latency as figures of a Benchmark.
func (l Latency) BenchValues() []BenchValue {
	return []BenchValue{{l.MeanNs, "ns/op"}, {float64(l.P50Ns), "p50-ns"}, {float64(l.P99Ns), "p99-ns"}, {float64(l.P999Ns), "p99.9-ns"}}
}

// Benchmarks implements Run.
func (r *Lookups) Benchmarks() (lines []Benchmark) {
	for _, p := range r.Passes() {
		n := float64(max(p.Lookups, 1))
		lines = append(lines, Benchmark{fmt.Sprintf("Lookup/keys=%s/filters=%s", p.Keys, p.Filters), uint64(max(p.Lookups, 0)),
			append(p.BenchValues(), BenchValue{p.ReadsPerLookup(), "blockreads/op"},
				BenchValue{float64(p.BlocksRead+p.BlocksCached) / n, "blocks/op"},
				BenchValue{float64(p.FalsePositives) / n, "falsepositives/op"})})
	}
	return lines
}

// Benchmarks implements Run.
func (s *Sweep) Benchmarks() (lines []Benchmark) {
	for _, p := range s.Points {
		lines = append(lines, Benchmark{fmt.Sprintf("FalsePositiveRate/kind=%s/bits=%v", p.Kind, p.Bits), p.Asked,
			[]BenchValue{{p.MeasuredRate, "falsepositives/op"}, {p.TheoryRate, "theory/op"}}})
	}
	for _, p := range s.Policies {
		lines = append(lines, Benchmark{fmt.Sprintf("Policy/policy=%s/bits=%v", p.Policy, p.Bits), uint64(max(p.Lookups, 0)),
			[]BenchValue{{p.FetchedPerKey, "blocks/op"}}})
	}
	return lines
}

// Benchmarks implements Run.
func (o *Ops) Benchmarks() (lines []Benchmark) {
	name := strings.ReplaceAll(o.Setup.Command, " ", "-")
	perSecond := BenchValue{o.PerSecond(), "ops/s"}
	lines = append(lines, Benchmark{"Mix/" + name, o.Done, []BenchValue{
		{1e9 * o.Seconds / float64(max(o.Done, 1)), "ns/op"}, perSecond, {o.WriteAmplification, "write-amp"}, {float64(o.Runs), "read-amp"},
		{float64(o.BlocksRead) / float64(max(o.Done, 1)), "blockreads/op"},
	}})
	for _, k := range o.Kinds {
		lines = append(lines, Benchmark{fmt.Sprintf("Op/%s/op=%s", name, k.Op), k.Count, k.BenchValues()})
	}
	return lines
}

// Benchmarks implements Run.
func (c *Crash) Benchmarks() []Benchmark {
	return []Benchmark{{"Crash", uint64(len(c.Kills)), []BenchValue{{float64(c.Lost) / float64(max(len(c.Kills), 1)), "lost/op"}}}}
}
