package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sievedb/cmd/kvbench/engines/internal/store"
	"sievedb/cmd/kvbench/engines/internal/trial"
	"sievedb/cmd/kvbench/internal/meter"
	"sievedb/cmd/kvbench/internal/page"
	"sievedb/cmd/kvbench/internal/report"
	"sievedb/cmd/kvbench/internal/results"
	"sievedb/cmd/kvbench/internal/versus"
	"sievedb/cmd/kvbench/internal/workload"
)

// usageError is a mistake on the command line.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// contest is what was asked for.
type contest struct {
	trial.Config
	peers       []string
	settings    []string
	repetitions int
	cacheMiB    int
	memtableMiB int
	bits        int

	format, save, output string
	quick, full          bool
}

// settings that there are: tuned alike, and out of the box.
var settings = []string{"tuned", "default"}

// Limits of the numbers on the command line.
const (
	minKeys, maxKeys = 1000, 100_000_000
	maxValue         = 32 << 10
	maxRepetitions   = 100
)

func newCommand(stdout, stderr io.Writer) *cobra.Command {
	c := &contest{}
	cmd := &cobra.Command{
		Use:   "engines",
		Short: "Make the same workloads on SieveDB and on other engines",
		Long: `engines makes the same workloads, with the same keys, on SieveDB, pebble, badger,
goleveldb and bbolt, both tuned alike and as they come out of the box, and prints
how many times as long as SieveDB each of them takes, with the spread over the
repetitions. Answers are checked. It takes some minutes, with --quick one or two.`,
		Example: `  go run -C cmd/kvbench/engines . --quick -o engines.html
  go run -C cmd/kvbench/engines . --peers pebble,bbolt --settings tuned --repetitions 5 --save engines.json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown argument %q; see --help", args[0])
			}
			return nil
		},
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.prepare(cmd.Flags()); err != nil {
				return err
			}
			run, err := c.run(cmd.Context(), meter.New(stderr))
			if run == nil {
				return err
			}
			return errors.Join(err, c.write(stdout, stderr, run))
		},
	}
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	c.flags(cmd.Flags())
	return cmd
}

func (c *contest) flags(f *pflag.FlagSet) {
	var peers []string
	for _, e := range store.Engines()[1:] {
		peers = append(peers, e.Name)
	}
	f.StringSliceVar(&c.peers, "peers", peers, "engines to compare with")
	f.StringSliceVar(&c.settings, "settings", settings, "tuned (alike), default (out of the box), or both")
	f.IntVarP(&c.Keys, "keys-count", "n", 500_000, "number of keys to store")
	f.StringVar(&c.KeysFile, "keys", "", "file with one key a line, of which half are stored, instead of numbered keys")
	f.IntVar(&c.ValueBytes, "value-bytes", 100, "size of each value, in bytes")
	f.IntVar(&c.cacheMiB, "cache", 16, "block cache of tuned engines, in MiB")
	f.IntVar(&c.memtableMiB, "memtable", 8, "memtable of tuned engines, in MiB")
	f.IntVar(&c.bits, "bits", 10, "filters of tuned engines, in bits per key, 1 to 30")
	f.IntVar(&c.repetitions, "repetitions", 3, "how often all of it is done")
	f.Uint64Var(&c.Seed, "seed", 42, "seed of keys, their order, and what is chosen")
	f.BoolVar(&c.quick, "quick", false, "a tenth of the keys, cache and memtable, these at least 2 MiB")
	f.BoolVar(&c.full, "full", false, "ten times the keys, cache and memtable")
	f.StringVar(&c.format, "format", "text", "form of the report: text, json, markdown, or gobench (lines for benchstat)")
	f.StringVar(&c.save, "save", "", "write the report as JSON to this file, too: for kvbench report and kvbench compare")
	f.StringVarP(&c.output, "output", "o", "", "write the report as a page with charts to this file, too")
}

// prepare checks what was asked for, and fills in what follows from it.
func (c *contest) prepare(f *pflag.FlagSet) error {
	scale := func(name string, n *int) {
		switch {
		case f.Changed(name):
		case c.quick:
			*n = max(2, *n/10)
		case c.full:
			*n *= 10
		}
	}
	scale("keys-count", &c.Keys)
	scale("cache", &c.cacheMiB)
	scale("memtable", &c.memtableMiB)
	known := slices.IndexFunc(c.peers, func(name string) bool {
		return name == versus.Baseline || !slices.ContainsFunc(store.Engines(), func(e store.Engine) bool { return e.Name == name })
	})
	setting := slices.IndexFunc(c.settings, func(name string) bool { return !slices.Contains(settings, name) })
	switch {
	case c.quick && c.full:
		return usagef("--quick and --full exclude one another")
	case known >= 0:
		return usagef("--peers: no peer is called %q; there are: %s", c.peers[known], f.Lookup("peers").DefValue)
	case setting >= 0 || len(c.settings) == 0:
		return usagef("--settings is %v; there are: %s", c.settings, strings.Join(settings, " "))
	case !slices.Contains(report.Formats, report.Format(c.format)):
		return usagef("--format is %q; there are: %s", c.format, strings.Trim(fmt.Sprint(report.Formats), "[]"))
	case c.Keys < minKeys || c.Keys > maxKeys:
		return usagef("--keys-count is %d, not in [%d, %d]", c.Keys, minKeys, maxKeys)
	case f.Changed("keys-count") && c.KeysFile != "":
		return usagef("--keys-count is for numbered keys, not for those of a file")
	case c.ValueBytes < 0 || c.ValueBytes > maxValue:
		return usagef("--value-bytes is %d, not in [0, %d]", c.ValueBytes, maxValue)
	case c.cacheMiB < 1 || c.cacheMiB > 1<<20:
		return usagef("--cache is %d MiB, not in [1, %d]", c.cacheMiB, 1<<20)
	case c.memtableMiB < 1 || c.memtableMiB > 1024:
		return usagef("--memtable is %d MiB, not in [1, %d]", c.memtableMiB, 1024)
	case c.bits < 1 || c.bits > 30:
		return usagef("--bits is %d, not in [1, 30]", c.bits)
	case c.repetitions < 1 || c.repetitions > maxRepetitions:
		return usagef("--repetitions is %d, not in [1, %d]", c.repetitions, maxRepetitions)
	}
	return nil
}

// scaleTo sets how much is done, from the number of keys.
func (c *contest) scaleTo(keys *workload.Keys) {
	c.Keys = keys.Stored
	c.Singles, c.Lookups = max(1, c.Keys/5), max(1, c.Keys/5)
	c.Synced, c.Scans = max(20, min(500, c.Keys/500)), max(1, c.Keys/100)
	c.Rest = 250 * time.Millisecond
	c.Options = store.Options{CacheBytes: int64(c.cacheMiB) << 20, MemtableBytes: int64(c.memtableMiB) << 20, BitsPerKey: c.bits}
}

// write prints the result and writes the files that were asked for.
func (c *contest) write(stdout, stderr io.Writer, run *versus.Result) error {
	err := report.Write(stdout, run, report.Format(c.format))
	for _, x := range []struct {
		name  string
		write func(io.Writer) error
	}{
		{c.save, func(w io.Writer) error { return report.Write(w, run, report.JSON) }},
		{c.output, func(w io.Writer) error { return page.Write(w, []report.Run{run}) }},
	} {
		if x.name == "" {
			continue
		}
		// go run -C changes the directory: say where the file is.
		name, err2 := filepath.Abs(x.name)
		if err2 == nil {
			err2 = results.Save(name, x.write)
		}
		if err2 == nil {
			fmt.Fprintln(stderr, "engines: wrote", name)
		}
		err = errors.Join(err, err2)
	}
	return err
}
