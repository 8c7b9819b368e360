package report

import (
	_ "embed"
	"fmt"

	"github.com/jedib0t/go-pretty/v6/table"

	"sievedb/cmd/kvbench/internal/document"
)

// Crash is the result of killing a process that writes, again and again.
type Crash struct {
	Schema string     `json:"schema"`
	Setup  CrashSetup `json:"setup"`
	Kills  []Kill     `json:"kills"`
	// Lost counts acknowledged batches that were gone after a kill, of all
	// kills together; it must be 0 with synced writes.
	Lost uint64 `json:"lost"`
	// Kept counts batches that were there though nobody had been told, which
	// is allowed.
	Kept        uint64 `json:"kept"`
	OK          bool   `json:"ok"`
	Interrupted bool   `json:"interrupted"`
}

// CrashSetup is what was asked for.
type CrashSetup struct {
	Kills      int    `json:"kills"`
	Seed       uint64 `json:"seed"`
	Keys       int    `json:"keys"`
	ValueBytes int    `json:"value_bytes"`
	Synced     bool   `json:"synced"`
	Machine
}

// Kill is one of them.
type Kill struct {
	Acknowledged uint64  `json:"acknowledged"` // the last batch whose write had returned
	Recovered    uint64  `json:"recovered"`    // the last batch that was there afterwards
	Entries      int     `json:"entries"`      // that were compared, all of them
	OpenSeconds  float64 `json:"open_seconds"`
}

// Complete fills in what follows from the kills.
func (c *Crash) Complete() {
	c.Schema, c.Lost, c.Kept = CrashSchema, 0, 0
	for _, k := range c.Kills {
		c.Lost += k.Acknowledged - min(k.Acknowledged, k.Recovered)
		c.Kept += k.Recovered - min(k.Acknowledged, k.Recovered)
	}
	c.OK = c.Lost == 0 || !c.Setup.Synced
}

// Header implements Run.
func (c *Crash) Header() (string, Machine) { return c.Schema, c.Setup.Machine }

//go:embed definitions_crash.txt
var crashDefinitions string

// Headline says the result in one sentence.
func (c *Crash) Headline() string {
	if !c.Setup.Synced {
		return fmt.Sprintf("%d kills: %s acknowledged batches lost, which unsynced writes allow; what was left was whole each time.", len(c.Kills), document.Group(c.Lost))
	}
	if !c.OK {
		return fmt.Sprintf("LOST: %s acknowledged batches in %d kills.", document.Group(c.Lost), len(c.Kills))
	}
	return fmt.Sprintf("Nothing lost: %d kills, 0 acknowledged batches missing, every batch whole.", len(c.Kills))
}

// Document implements Run.
func (c *Crash) Document() *document.Document {
	d := &document.Document{}
	first := []string{c.Headline()}
	if c.Interrupted {
		first = append([]string{"INTERRUPTED: these kills were made until then."}, first...)
	}
	d.Paragraph(first...)
	d.Paragraph(fmt.Sprintf("Batches over %s keys, values of %d B, synced %v, seed %d. %s.",
		document.Group(uint64(c.Setup.Keys)), c.Setup.ValueBytes, c.Setup.Synced, c.Setup.Seed, c.Setup.Machine))
	t := document.NewTable("kill", "acknowledged", "recovered", "entries compared", "open")
	for i, k := range c.Kills {
		t.AppendRow(table.Row{i + 1, document.Group(k.Acknowledged), document.Group(k.Recovered), document.Group(uint64(max(k.Entries, 0))), fmt.Sprintf("%.1f ms", 1e3*k.OpenSeconds)})
	}
	d.Add("Kills", t)
	d.Definitions(crashDefinitions)
	return d
}
