package report

import (
	_ "embed"
	"fmt"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"sievedb/cmd/kvbench/internal/document"
)

//go:embed definitions_lookups.txt
var lookupsDefinitions string

// Document is the report for people: the result in one sentence, the tables
// behind it, and what their words mean.
func (r *Lookups) Document() *document.Document {
	d := &document.Document{}
	first := []string{r.Headline(), r.Prediction.Sentence()}
	if r.Interrupted {
		first = append([]string{"INTERRUPTED: what follows was measured until then; passes may be short or missing."}, first...)
	}
	first = append(first, r.Verdict())
	d.Paragraph(first...)
	d.Paragraph(r.setupLines()...)
	d.Add("Absent keys, level by level", r.levelTable())
	d.Add("Lookups, one after the other", r.lookupTable())
	if r.Absent.Without.Kernel != nil {
		d.Add("What the kernel counted meanwhile: another thing, never added to the disk reads above", r.kernelTable())
	}
	d.Add("What filters cost", r.costTable())
	d.Definitions(lookupsDefinitions)
	return d
}

// Headline says the result in one sentence.
func (r *Lookups) Headline() string {
	if r.Absent.With.Lookups == 0 {
		return fmt.Sprintf("%s disk reads of absent keys without filters; with filters nothing was measured.", document.Group(r.Absent.Without.BlocksRead))
	}
	headline := fmt.Sprintf("Filters avoided %.2f %% of the disk reads of absent keys: %s without, %s with",
		r.ReadsAvoidedPercent, document.Group(r.Absent.Without.BlocksRead), document.Group(r.Absent.With.BlocksRead))
	if r.Absent.With.Lookups != r.Absent.Without.Lookups {
		headline += fmt.Sprintf(" in %s and %s lookups", document.Group(uint64(r.Absent.Without.Lookups)), document.Group(uint64(r.Absent.With.Lookups)))
	}
	return headline + "."
}

// Verdict says whether filters pay, as far as this run can tell.
func (r *Lookups) Verdict() string {
	absent, absentReads := r.Absent.saved()
	present, presentReads := r.Present.saved()
	switch {
	case r.Absent.With.Lookups == 0:
		return "Whether filters pay cannot be said from what was measured."
	case r.Cost.FileBytes == 0:
		return "Filters do not pay here: there are none."
	case absentReads < 0.05:
		return fmt.Sprintf("Filters DO NOT PAY here: an absent key costs %.3f disk reads without them, so they saved next to nothing for their %s. The cache, the memtable or the key ranges answer already.",
			r.Absent.Without.ReadsPerLookup(), document.Size(r.Cost.MemoryBytes))
	case r.ReadsAvoidedPercent < 50:
		return fmt.Sprintf("Filters hardly pay here: %.0f %% of the reads of absent keys remain; more bits per key would save them.", 100-r.ReadsAvoidedPercent)
	case r.Present.With.Lookups == 0 || r.Present.Without.Lookups == 0:
		return fmt.Sprintf("Filters pay for absent keys: %.3f disk reads saved a lookup. Present keys were not measured.", absentReads)
	case presentReads >= 0.05:
		return fmt.Sprintf("Filters pay for absent keys (%.3f disk reads saved a lookup) and for present ones (%.3f, in the runs above the key). They do not pay for scans, which never ask them.", absentReads, presentReads)
	case present >= 0 || absent <= 0:
		return fmt.Sprintf("Filters pay for absent keys (%.3f disk reads saved a lookup). They DO NOT PAY for present ones, which they save nothing, nor for scans, which never ask them.", absentReads)
	}
	share := 100 * -present / (absent - present)
	return fmt.Sprintf("Filters pay for absent keys (%.3f disk reads saved a lookup). They DO NOT PAY if fewer than about %.1f %% of the lookups are for absent keys: asking them costs a present key %.2f µs and saves it nothing; nor do they for scans, which never ask them.",
		absentReads, share, -present/1e3)
}

// Sentence compares prediction and measurement.
func (p *Prediction) Sentence() string {
	verdict := fmt.Sprintf("within %.1f-%.1f", leastRatio, topRatio)
	switch {
	case !p.Checked:
		verdict = fmt.Sprintf("not judged, which takes %s expected", document.Group(checkFrom))
	case !p.OK:
		verdict = fmt.Sprintf("NOT WITHIN %.1f-%.1f", leastRatio, topRatio)
	}
	return fmt.Sprintf("False positives predicted: %s (95 %%: %s to %s); blocks fetched for them: %s, %.3f times that (%s).",
		document.Group(document.Round(p.Expected.Expected)), document.Group(p.Low), document.Group(p.High), document.Group(p.BlocksFetched), p.Ratio, verdict)
}

func (r *Lookups) setupLines() []string {
	s := &r.Setup
	drawn := ""
	if s.Store != "" {
		drawn = ", drawn from " + s.Store
	}
	lines := []string{fmt.Sprintf("%s keys (%s%s) of %.1f B, values of %d B, seed %d; %s absent keys that lie between them.",
		document.Group(uint64(s.Keys)), s.Workload, drawn, float64(s.KeyBytes)/float64(max(s.Keys, 1)), s.ValueBytes, s.Seed, document.Group(uint64(s.Lookups)))}
	if s.Store != "" {
		lines[0] = fmt.Sprintf("%s keys (%s%s) of %.1f B, seed %d; %s absent keys that lie between them.",
			document.Group(uint64(s.Keys)), s.Workload, drawn, float64(s.KeyBytes)/float64(max(s.Keys, 1)), s.Seed, document.Group(uint64(s.Lookups)))
	}
	if s.OutsideKeys > 0 {
		lines = append(lines, fmt.Sprintf("%s keys were left out: they do not lie between the stored ones.", document.Group(uint64(s.OutsideKeys))))
	}
	if s.RepeatedLines > 0 {
		lines = append(lines, fmt.Sprintf("%s lines were left out: they repeat another.", document.Group(uint64(s.RepeatedLines))))
	}
	lines = append(lines, fmt.Sprintf("%s in tables on %d levels (%d runs), cache %s, blocks of %s.",
		document.Size(r.Load.TableFileBytes), r.Load.Levels, r.Load.Runs, document.Size(uint64(s.CacheBytes)), document.Size(uint64(s.BlockBytes))))
	if r.Load.Levels < 3 && s.Store == "" {
		lines = append(lines, "That is fewer than three levels; with more keys there are more reads to avoid.")
	}
	machine := s.Machine.String() + "."
	if s.Cold {
		machine = "The page cache was emptied before each pass. " + machine
	}
	if s.Store == "" {
		machine = fmt.Sprintf("Loaded unsynced in %.1f s, settled in %.1f s. %s", r.Load.Seconds, r.Load.SettleSeconds, machine)
	}
	return append(lines, machine)
}

func (r *Lookups) levelTable() table.Writer {
	t := document.NewTable("level", "tables", "keys", "bits\n/key", "disk reads\nfilters off", "filters\nasked",
		"rate\npredicted", "rate\nmeasured", "false pos.\npredicted", "95 %\ninterval", "false pos.\nmeasured", "", "disk reads\nfilters on")
	row := func(name any, tables int, keys uint64, bits float64, without uint64, e *Expected, with uint64) table.Row {
		inside := "inside"
		if !e.Inside() {
			inside = "outside"
		}
		return table.Row{name, tables, document.Group(keys), fmt.Sprintf("%.2f", bits), document.Group(without), document.Group(e.Asked),
			document.Rate(e.Expected, e.Asked), document.Rate(float64(e.Measured), e.Asked), fmt.Sprintf("%.1f", e.Expected),
			document.Group(e.Low) + " - " + document.Group(e.High), document.Group(e.Measured), inside, document.Group(with)}
	}
	var tables int
	var keys uint64
	for i := range r.Levels {
		l := &r.Levels[i]
		tables, keys = tables+l.Tables, keys+l.Keys
		t.AppendRow(row(fmt.Sprint("L", l.Level), l.Tables, l.Keys, l.BitsPerKey, l.BlocksReadWithout, &l.Counts, l.BlocksRead))
	}
	t.AppendFooter(row("all", tables, keys, r.Cost.BitsPerKey, r.Absent.Without.BlocksRead, &r.Prediction.Expected, r.Absent.With.BlocksRead))
	return t
}

// Passes returns all of them, in the order in which they are shown.
func (r *Lookups) Passes() []NamedPass {
	return []NamedPass{
		{"absent", "off", &r.Absent.Without}, {"absent", "on", &r.Absent.With},
		{"outside", "off", &r.Outside.Without}, {"outside", "on", &r.Outside.With},
		{"present", "off", &r.Present.Without}, {"present", "on", &r.Present.With},
	}
}

// NamedPass is a pass with its place in the report.
type NamedPass struct {
	Keys, Filters string
	*Pass
}

func (r *Lookups) lookupTable() table.Writer {
	t := document.NewTable("keys", "filters", "lookups", "disk reads", "from cache", "reads/lookup", "mean", "p50", "p99", "p99.9")
	for _, p := range r.Passes() {
		if p.Lookups > 0 {
			t.AppendRow(table.Row{p.Keys, p.Filters, document.Group(uint64(p.Lookups)), document.Group(p.BlocksRead), document.Group(p.BlocksCached),
				fmt.Sprintf("%.4f", p.ReadsPerLookup()),
				document.Micros(p.MeanNs), document.Micros(float64(p.P50Ns)), document.Micros(float64(p.P99Ns)), document.Micros(float64(p.P999Ns))})
		}
	}
	return t
}

func (r *Lookups) kernelTable() table.Writer {
	t := document.NewTable("keys", "filters", "read calls", "bytes from the device")
	for _, p := range r.Passes() {
		if p.Kernel != nil {
			t.AppendRow(table.Row{p.Keys, p.Filters, document.Group(p.Kernel.ReadCalls), document.Size(p.Kernel.ReadBytes)})
		}
	}
	return t
}

func (r *Lookups) costTable() table.Writer {
	c := &r.Cost
	t := document.NewTable("", "", "")
	t.ResetHeaders()
	t.SetColumnConfigs([]table.ColumnConfig{{Number: 2, Align: text.AlignRight}})
	t.AppendRow(table.Row{"in the files", document.Size(c.FileBytes), fmt.Sprintf("%.2f bits/key, %.2f %% of the tables", c.BitsPerKey, c.StorePercent)})
	t.AppendRow(table.Row{"in memory", document.Size(c.MemoryBytes), "resident once asked"})
	if c.BuildKeys > 0 {
		t.AppendRow(table.Row{"building", fmt.Sprintf("%+.0f ns/key", c.FlushWithNsPerKey-c.FlushWithoutNsPerKey),
			fmt.Sprintf("a flush takes %.0f ns/key with filters, %.0f without", c.FlushWithNsPerKey, c.FlushWithoutNsPerKey)})
	}
	if r.Absent.With.Lookups > 0 {
		t.AppendRow(table.Row{"absent lookup", document.Signed(-c.AbsentSavedNs), "in the mean, filters on against off"})
	}
	if r.Present.With.Lookups > 0 {
		t.AppendRow(table.Row{"present lookup", document.Signed(-c.PresentSavedNs), fmt.Sprintf("in the mean, with %.3f disk reads saved", c.PresentSavedBlocks)})
	}
	return t
}
