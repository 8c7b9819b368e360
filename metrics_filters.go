package sievedb

import (
	"fmt"
	"math"
	"strings"

	"sievedb/filter"
	"sievedb/internal/table"
)

// TableMetrics describes one live table and its filter.
type TableMetrics struct {
	File  uint64 // its file number
	Level int
	Bytes uint64 // of its file
	Keys  uint64 // distinct ones

	FilterBytes   uint64 // zero without a filter, and so is what follows
	FilterKind    filter.Kind
	Probes        int     // places that a lookup tests in the filter, its k
	BitsPerKey    float64 // rounding up to whole blocks included
	PredictedRate float64 // computed from the filter's bits when it was built

	// Filter counts since the table came to its level, or since Open.
	Filter FilterCounts
}

func tableMetrics(t *table.Table) TableMetrics {
	m := TableMetrics{
		File: uint64(t.Meta.FileNum), Level: t.Level, Bytes: t.Meta.SizeBytes, Keys: t.Meta.UserKeys,
		FilterBytes: t.Meta.FilterBytes, Filter: countsOf(t),
	}
	r, err := t.Reader()
	if err != nil { // as lookups will say
		m.PredictedRate = 1
	} else {
		p := r.Properties()
		m.FilterKind, m.Probes = p.FilterKind, int(p.FilterProbes)
		m.BitsPerKey, m.PredictedRate = float64(p.FilterMillibits)/1000, p.FilterRate
	}
	return m
}

// RateInterval returns the interval in which the rate that filters were built
// with lies, with 95 % confidence, given what was measured. It allows for
// chance, as in Wilson's interval for a share ("Probable Inference", 1927), and
// for 2 % of the rate beside, since the keys that are looked up are not quite
// random to a given filter. Keys that are looked up again and again make it
// too narrow: they are right, or wrong, each time.
func (c FilterCounts) RateInterval() (low, high float64) {
	n := float64(c.FalsePositives + c.Negatives)
	if n == 0 {
		return 0, 1
	}
	const z, spread = 1.96, 0.02
	p := c.MeasuredRate()
	middle := (p + z*z/(2*n)) / (1 + z*z/n)
	chance := z / (1 + z*z/n) * math.Sqrt(p*(1-p)/n+z*z/(4*n*n))
	half := math.Hypot(chance, z*spread*p)
	return max(0, middle-half), min(1, middle+half)
}

// seldom is the share of checks below which answers of filters do not count.
const seldom = 0.05

// FilterVerdict says in a few sentences what filters did for point lookups
// since Open, whether that is what was predicted, what fewer bits would cost,
// and when they are not worth their memory.
func (m *Metrics) FilterVerdict() string {
	c := m.Total()
	if c.Probes == 0 {
		return "No lookup has come to a table yet: there was nothing for filters to save."
	}
	var b strings.Builder
	share := float64(c.Negatives) / float64(c.Probes)
	fmt.Fprintf(&b, "Filters saved %.1f%% of the reads: of %s tables whose range held the key, lookups read %s.",
		100*share, count(c.Probes), count(c.Probes-c.Negatives))
	if asked := c.Negatives + c.FalsePositives; asked > 0 {
		predicted := c.ExpectedFalsePositives / float64(asked)
		low, high := c.RateInterval()
		fmt.Fprintf(&b, " They said maybe for %.3g%% of the absent keys (%.3g%% to %.3g%% allowing for chance); %.3g%% was predicted",
			100*c.MeasuredRate(), 100*low, 100*high, 100*predicted)
		if predicted < low || predicted > high {
			b.WriteString(", and chance does not explain the difference: a few absent keys may be asked for again and again")
		}
		fmt.Fprintf(&b, ". With half the bits, another %s of 1,000 such tables would be read.", perThousand(m.lossAtHalf(), c.Probes))
	}
	if c.Unfiltered > 0 {
		fmt.Fprintf(&b, " %s tables were read because they have no filter to ask", count(c.Unfiltered))
		if bad := m.badFilters(); bad > 0 {
			fmt.Fprintf(&b, ", %d of those live because theirs is damaged", bad)
		}
		b.WriteString(": the policy leaves them out, the budget is spent, or they are older than the policy, which RebuildFilters changes.")
	}
	m.worth(&b, share)
	return b.String()
}

// worth says where filters take memory and save next to nothing.
func (m *Metrics) worth(b *strings.Builder, share float64) {
	var last *LevelMetrics // the deepest that holds tables
	var all uint64
	for i := range m.Levels {
		all += m.Levels[i].FilterBytes
		if m.Levels[i].Tables > 0 {
			last = &m.Levels[i]
		}
	}
	if all > 0 && share < seldom {
		fmt.Fprintf(b, " They do not pay for these lookups: nearly every table that was asked has the key, and filters take %s.", size(all))
	}
	if last != nil && last.FilterBytes > 0 && last.Filter.Probes > 0 && float64(last.Filter.Negatives) < seldom*float64(last.Filter.Probes) {
		fmt.Fprintf(b, " Those of the bottom level, %s, hardly ever say no: a policy with SkipBottom would do without them.", size(last.FilterBytes))
	}
}

// lossAtHalf estimates how many more tables would have been read if filters
// had half the bits, from the rates that the model of blocked filters, which
// come in any size, gives for each level.
func (m *Metrics) lossAtHalf() (tables float64) {
	for i := range m.Levels {
		l := &m.Levels[i]
		if l.BitsPerKey > 0 {
			asked := float64(l.Filter.Negatives + l.Filter.FalsePositives)
			tables += asked * (filter.ExpectedRate(filter.KindBlocked, uint32(500*l.BitsPerKey)) - l.PredictedRate)
		}
	}
	return tables
}

func (m *Metrics) badFilters() (n int) {
	for i := range m.Levels {
		n += m.Levels[i].BadFilters
	}
	return n
}

func perThousand(n float64, of uint64) string { return fmt.Sprintf("%.3g", 1000*n/float64(of)) }
