package report

import (
	"bytes"
	"fmt"
	"strings"
)

// benchmark is one line of a Go benchmark: the values are by unit.
type benchmark struct {
	name   string
	n      uint64
	values []benchValue
}

type benchValue struct {
	value float64
	unit  string
}

// writeBenchmarks writes what benchstat reads, in the format of
// golang.org/design/14313-benchmark-format.
func writeBenchmarks(b *bytes.Buffer, m Machine, lines []benchmark) {
	fmt.Fprintf(b, "goos: %s\ngoarch: %s\npkg: sievedb/cmd/kvbench\n", m.OS, m.Arch)
	for _, l := range lines {
		if l.n == 0 {
			continue
		}
		fmt.Fprintf(b, "Benchmark%s-%d\t%d", l.name, m.CPUs, l.n)
		for _, v := range l.values {
			fmt.Fprintf(b, "\t%.6g %s", v.value, v.unit)
		}
		b.WriteByte('\n')
	}
}

func (l Latency) benchValues() []benchValue {
	return []benchValue{{l.MeanNs, "ns/op"}, {float64(l.P50Ns), "p50-ns"}, {float64(l.P99Ns), "p99-ns"}, {float64(l.P999Ns), "p99.9-ns"}}
}

func (r *Lookups) benchmarks() (lines []benchmark) {
	for _, p := range r.Passes() {
		n := float64(max(p.Lookups, 1))
		lines = append(lines, benchmark{fmt.Sprintf("Lookup/keys=%s/filters=%s", p.Keys, p.Filters), uint64(max(p.Lookups, 0)),
			append(p.benchValues(), benchValue{p.ReadsPerLookup(), "blockreads/op"},
				benchValue{float64(p.BlocksRead+p.BlocksCached) / n, "blocks/op"},
				benchValue{float64(p.FalsePositives) / n, "falsepositives/op"})})
	}
	return lines
}

func (s *Sweep) benchmarks() (lines []benchmark) {
	for _, p := range s.Points {
		lines = append(lines, benchmark{fmt.Sprintf("FalsePositiveRate/bits=%v", p.Bits), p.Asked,
			[]benchValue{{p.MeasuredRate, "falsepositives/op"}, {p.TheoryRate, "theory/op"}}})
	}
	for _, p := range s.Policies {
		lines = append(lines, benchmark{fmt.Sprintf("Policy/policy=%s/bits=%v", p.Policy, p.Bits), uint64(max(p.Lookups, 0)),
			[]benchValue{{p.FetchedPerKey, "blocks/op"}}})
	}
	return lines
}

func (o *Ops) benchmarks() (lines []benchmark) {
	name := strings.ReplaceAll(o.Setup.Command, " ", "-")
	perSecond := benchValue{o.PerSecond(), "ops/s"}
	lines = append(lines, benchmark{"Mix/" + name, o.Done, []benchValue{
		{1e9 * o.Seconds / float64(max(o.Done, 1)), "ns/op"}, perSecond, {o.WriteAmplification, "write-amp"}, {float64(o.Runs), "read-amp"},
		{float64(o.BlocksRead) / float64(max(o.Done, 1)), "blockreads/op"},
	}})
	for _, k := range o.Kinds {
		lines = append(lines, benchmark{fmt.Sprintf("Op/%s/op=%s", name, k.Op), k.Count, k.benchValues()})
	}
	return lines
}

func (c *Crash) benchmarks() []benchmark {
	return []benchmark{{"Crash", uint64(len(c.Kills)), []benchValue{{float64(c.Lost) / float64(max(len(c.Kills), 1)), "lost/op"}}}}
}
