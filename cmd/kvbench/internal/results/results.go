// Package results keeps what kvbench measured in files, and reads what it wrote
// as JSON, whichever command it was.
// Its functions are safe for concurrent use.
//
//	run, err := results.Read("run.json")
package results

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"sievedb/cmd/kvbench/internal/growth"
	"sievedb/cmd/kvbench/internal/report"
	"sievedb/cmd/kvbench/internal/versus"
)

// schemas are those that this kvbench knows.
var schemas = []string{report.LookupsSchema, report.SweepSchema, report.OpsSchema, report.CrashSchema, versus.Schema, growth.Schema}

// newRun returns an empty result of the schema, or nil.
func newRun(schema string) report.Run {
	switch schema {
	case report.LookupsSchema:
		return new(report.Lookups)
	case report.SweepSchema:
		return new(report.Sweep)
	case report.OpsSchema:
		return new(report.Ops)
	case report.CrashSchema:
		return new(report.Crash)
	case versus.Schema:
		return new(versus.Result)
	case growth.Schema:
		return new(growth.Result)
	}
	return nil
}

// maxBytes bounds what Read takes into memory; results are far smaller.
const maxBytes = 256 << 20

// Read reads a result from a file. The errors name it.
func Read(name string) (report.Run, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	if len(b) > maxBytes {
		return nil, fmt.Errorf("%s has more than %d bytes: it is no result of kvbench", name, maxBytes)
	}
	run, err := decode(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return run, nil
}

func decode(b []byte) (report.Run, error) {
	var head struct {
		Schema string `json:"schema"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return nil, fmt.Errorf("no result of kvbench: %w", err)
	}
	run := newRun(head.Schema)
	switch {
	case head.Schema == "":
		return nil, fmt.Errorf("no result of kvbench: it names no schema")
	case run == nil:
		return nil, fmt.Errorf("schema %q is not one of those that this kvbench knows: %s", head.Schema, strings.Join(schemas, " "))
	}
	if err := json.Unmarshal(b, run); err != nil {
		return nil, fmt.Errorf("damaged result of kvbench: %w", err)
	}
	return run, nil
}

// Save writes a file, and leaves none if that fails. The errors name it.
func Save(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	err = errors.Join(write(f), f.Close())
	if err != nil {
		err = errors.Join(fmt.Errorf("%s: %w", name, err), os.Remove(name))
	}
	return err
}
