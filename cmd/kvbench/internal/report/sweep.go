package report

import (
	_ "embed"
	"fmt"

	"github.com/jedib0t/go-pretty/v6/table"

	"sievedb/cmd/kvbench/internal/document"
	"sievedb/cmd/kvbench/internal/stats"
	"sievedb/filter"
)

// Sweep is the false-positive rate measured at several filter sizes beside what
// theory says.
type Sweep struct {
	Schema string     `json:"schema"`
	Setup  SweepSetup `json:"setup"`
	// Points are single runs of many keys, one filter size each.
	Points []Point `json:"points"`
	// Policies are whole trees, one for each policy and average size.
	Policies []PolicyPoint `json:"policies"`
	// ConfidencePercent is that of the intervals, for all points together.
	ConfidencePercent float64 `json:"confidence_percent"`
	Inside            int     `json:"inside"` // points whose interval holds the theory
	OK                bool    `json:"ok"`     // all of them
	Interrupted       bool    `json:"interrupted"`
}

// SweepSetup is what was asked for.
type SweepSetup struct {
	Workload string `json:"workload"`
	Seed     uint64 `json:"seed"`
	Keys     int    `json:"keys"`    // in the run of each point
	Lookups  int    `json:"lookups"` // of absent keys, at each point
	TreeKeys int    `json:"tree_keys"`
	Machine
}

// Point is one filter size.
type Point struct {
	Kind           string  `json:"kind"`         // of the filter as built
	Bits           float64 `json:"bits"`         // asked for; zero is no filter
	BitsPerKey     float64 `json:"bits_per_key"` // as built: rounded up to whole blocks
	Probes         int     `json:"probes"`       // bits tested, the filter's k
	FilterBytes    uint64  `json:"filter_bytes"`
	Asked          uint64  `json:"asked"`
	FalsePositives uint64  `json:"false_positives"`
	TheoryRate     float64 `json:"theory_rate"`
	// BuiltRate is the rate computed from the bits of the filter that was
	// built: what the store predicts.
	BuiltRate    float64 `json:"built_rate"`
	MeasuredRate float64 `json:"measured_rate"`
	Low          float64 `json:"rate_low"` // of the interval of the measurement
	High         float64 `json:"rate_high"`
	Inside       bool    `json:"inside"`
}

// PolicyPoint is one tree of several levels.
type PolicyPoint struct {
	Policy         string  `json:"policy"`
	Bits           float64 `json:"bits"` // on average
	BitsPerKey     float64 `json:"bits_per_key"`
	FilterBytes    uint64  `json:"filter_bytes"`
	Lookups        int     `json:"lookups"`
	Expected       float64 `json:"expected_false_positives"`
	BlocksFetched  uint64  `json:"blocks_fetched"`
	FetchedPerKey  float64 `json:"fetched_per_lookup"`
	ExpectedPerKey float64 `json:"expected_per_lookup"`
}

// Name says which point it is.
func (p *Point) Name() string { return fmt.Sprintf("%v bits, %s", p.Bits, p.Kind) }

// KindNamed returns the kind of filters with a name.
func KindNamed(name string) (kind filter.Kind, ok bool) {
	for kind = filter.KindNone; kind <= filter.KindFuse; kind++ {
		if kind.String() == name {
			return kind, true
		}
	}
	return filter.KindNone, false
}

// sweepConfidence is that all points are inside at once, if theory is right.
const sweepConfidence = 0.99

// Complete fills in what follows from the counts of all points.
func (s *Sweep) Complete() {
	s.Schema, s.ConfidencePercent, s.Inside = SweepSchema, 100*sweepConfidence, 0
	z := stats.Z(stats.Together(sweepConfidence, len(s.Points)))
	for i := range s.Points {
		p := &s.Points[i]
		kind, _ := KindNamed(p.Kind)
		p.TheoryRate = filter.ExpectedRate(kind, uint32(1000*p.BitsPerKey+0.5))
		if p.Asked > 0 {
			p.MeasuredRate = float64(p.FalsePositives) / float64(p.Asked)
		}
		p.Low, p.High = stats.Wilson(p.FalsePositives, p.Asked, z)
		p.Inside = p.Low <= p.TheoryRate && p.TheoryRate <= p.High
		if p.Inside {
			s.Inside++
		}
	}
	s.OK = s.Inside == len(s.Points)
}

// Header implements Run.
func (s *Sweep) Header() (string, Machine) { return s.Schema, s.Setup.Machine }

//go:embed definitions_sweep.txt
var sweepDefinitions string

// Headline says the result in one sentence.
func (s *Sweep) Headline() string {
	if s.OK {
		return fmt.Sprintf("Theory holds: at all %d filter sizes the measured rate agrees with it (%.0f %% intervals for all of them together).", len(s.Points), s.ConfidencePercent)
	}
	return fmt.Sprintf("THEORY MISSED at %d of %d filter sizes (%.0f %% intervals for all of them together).", len(s.Points)-s.Inside, len(s.Points), s.ConfidencePercent)
}

// Document implements Run.
func (s *Sweep) Document() *document.Document {
	d := &document.Document{}
	first := []string{s.Headline()}
	if s.Interrupted {
		first = append([]string{"INTERRUPTED: these points were measured until then."}, first...)
	}
	d.Paragraph(first...)
	d.Paragraph(fmt.Sprintf("Each point: a run of %s keys (%s), %s lookups of absent keys between them, seed %d. %s.",
		document.Group(uint64(s.Setup.Keys)), s.Setup.Workload, document.Group(uint64(s.Setup.Lookups)), s.Setup.Seed, s.Setup.Machine))
	t := document.NewTable("kind", "bits\nasked", "bits/key\nbuilt", "probes", "filter", "lookups", "false\npositives", "rate\nmeasured", "interval", "rate\ntheory", "", "rate of\nthese bits")
	for _, p := range s.Points {
		inside := "inside"
		if !p.Inside {
			inside = "OUTSIDE"
		}
		t.AppendRow(table.Row{p.Kind, fmt.Sprint(p.Bits), fmt.Sprintf("%.3f", p.BitsPerKey), p.Probes, document.Size(p.FilterBytes), document.Group(p.Asked), document.Group(p.FalsePositives),
			percent(p.MeasuredRate), percent(p.Low) + " - " + percent(p.High), percent(p.TheoryRate), inside, percent(p.BuiltRate)})
	}
	d.Add("False-positive rate against bits per key", t)
	if len(s.Policies) > 0 {
		t := document.NewTable("policy", "bits\non average", "bits/key\nbuilt", "filters", "blocks fetched\na lookup", "predicted")
		for _, p := range s.Policies {
			t.AppendRow(table.Row{p.Policy, fmt.Sprint(p.Bits), fmt.Sprintf("%.2f", p.BitsPerKey), document.Size(p.FilterBytes),
				fmt.Sprintf("%.4f", p.FetchedPerKey), fmt.Sprintf("%.4f", p.ExpectedPerKey)})
		}
		d.Add(fmt.Sprintf("Policies, in a tree of %s keys on several levels", document.Group(uint64(s.Setup.TreeKeys))), t)
	}
	d.Definitions(sweepDefinitions)
	return d
}

func percent(share float64) string { return fmt.Sprintf("%.4g %%", 100*share) }
