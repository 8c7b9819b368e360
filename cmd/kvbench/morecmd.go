package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sievedb/cmd/kvbench/internal/compare"
	"sievedb/cmd/kvbench/internal/crash"
	"sievedb/cmd/kvbench/internal/experiment"
	"sievedb/cmd/kvbench/internal/page"
	"sievedb/cmd/kvbench/internal/report"
	"sievedb/cmd/kvbench/internal/results"
	"sievedb/filter"
)

func (a *app) sweepCommand() *cobra.Command {
	var s experiment.SweepConfig
	var policies bool
	var kinds []string
	cmd := &cobra.Command{
		Use:   "sweep",
		Short: "Measure the false-positive rate at each filter size, beside theory",
		Long: `sweep stores the keys once for each filter size, as one run in memory, looks up
absent keys, and compares the false positives with theory, for each kind of
filter that is asked for. Then it compares the ways to spend the same memory in
a tree of several levels.`,
		Example: "  kvbench sweep --kind blocked,standard,fuse",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a.preset(cmd.Flags())
			a.scale(cmd.Flags(), "tree-keys", &s.TreeKeys)
			if err := a.validate(cmd.Flags()); err != nil {
				return err
			}
			for _, name := range kinds {
				kind, ok := report.KindNamed(name)
				if !ok || kind == filter.KindNone {
					return usagef("--kind %s: it must be blocked, standard or fuse", name)
				}
				s.Kinds = append(s.Kinds, kind)
			}
			for _, bits := range append(append([]float64{}, s.Bits...), s.TreeBits...) {
				if bits != 0 && !(bits >= 1 && bits <= 100) {
					return usagef("%v bits per key: it must be 0 (no filter) or in [1, 100]", bits)
				}
			}
			if slices.Contains(s.TreeBits, 0) {
				return usagef("--tree-bits has 0: there is nothing to spend")
			}
			if s.TreeKeys < 1000 || s.TreeKeys > maxKeys {
				return usagef("--tree-keys is %d, not in [%d, %d]", s.TreeKeys, 1000, maxKeys)
			}
			if !policies {
				s.TreeBits = nil
			}
			run, err := experiment.Sweep(cmd.Context(), &a.Config, &s, a.meter)
			if run == nil {
				return err
			}
			var verdict error
			if !run.OK {
				verdict = fmt.Errorf("%d of %d filter sizes are outside theory: %w", len(run.Points)-run.Inside, len(run.Points), errVerdict)
			}
			return a.finish(run, err, verdict)
		},
	}
	f := cmd.Flags()
	a.outputFlags(f)
	a.sizeFlags(f, 200_000)
	f.IntVar(&a.Lookups, "lookups", 200_000, "number of lookups at each filter size, at most one a key")
	all := make([]float64, 21)
	for i := range all {
		all[i] = float64(i)
	}
	f.Float64SliceVar(&s.Bits, "bits", all, "filter sizes, in bits per key; 0 is no filter")
	f.StringSliceVar(&kinds, "kind", []string{"blocked"}, "kinds of filters: blocked, standard, fuse, the last of one size, for 10,000 keys and more")
	f.Float64SliceVar(&s.TreeBits, "tree-bits", []float64{4, 7, 10, 13}, "averages at which the policies are compared")
	f.BoolVar(&policies, "policies", true, "compare policies, too")
	f.IntVar(&s.TreeKeys, "tree-keys", 100_000, "number of keys in the tree for that, unless --keys gives them")
	return cmd
}

func (a *app) crashCommand() *cobra.Command {
	c := crash.Config{}
	var unsynced bool
	cmd := &cobra.Command{
		Use:   "crash",
		Short: "Kill a process that writes, again and again, and look for lost writes",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a.preset(cmd.Flags())
			if err := a.validate(cmd.Flags()); err != nil {
				return err
			}
			if c.Kills < 1 || c.Kills > 1_000_000 {
				return usagef("--kills is %d, not in [1, %d]", c.Kills, 1_000_000)
			}
			return a.crash(cmd, c, unsynced)
		},
	}
	f := cmd.Flags()
	a.outputFlags(f)
	f.IntVar(&c.Kills, "kills", 20, "number of kills")
	f.BoolVar(&unsynced, "unsynced", false, "do not wait for the disk in each write; the newest ones may then be lost")
	f.StringVar(&a.Dir, "dir", "", "make the store in this directory, which must hold none, and keep it (default: a temporary one)")
	return cmd
}

// What a child of crash writes.
const (
	crashKeys       = 2000
	crashValueBytes = 200
	crashChild      = "crash-child"
)

func (a *app) crash(cmd *cobra.Command, c crash.Config, unsynced bool) (err error) {
	c.Seed, c.Keys, c.ValueBytes, c.Synced, c.Dir = a.Seed, crashKeys, crashValueBytes, !unsynced, a.Dir
	if entries, err := os.ReadDir(c.Dir); c.Dir != "" && err == nil && len(entries) > 0 {
		return fmt.Errorf("%s is not empty", c.Dir)
	}
	if c.Dir == "" {
		temp, err2 := os.MkdirTemp("", "kvbench-")
		if err2 != nil {
			return fmt.Errorf("temporary directory: %w", err2)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
		c.Dir = filepath.Join(temp, "store")
	}
	c.ChildArgs = []string{crashChild, c.Dir, strconv.FormatUint(c.Seed, 10), strconv.FormatBool(c.Synced)}
	run, err := crash.Run(cmd.Context(), &c, a.meter)
	if run == nil {
		return err
	}
	var verdict error
	if !run.OK {
		verdict = fmt.Errorf("%d acknowledged batches are lost: %w", run.Lost, errVerdict)
	}
	return a.finish(run, err, verdict)
}

// crashChildCommand is the process that is killed.
func (a *app) crashChildCommand() *cobra.Command {
	return &cobra.Command{
		Use: crashChild + " DIR SEED SYNCED FIRST", Hidden: true, Args: cobra.ExactArgs(4),
		RunE: func(cmd *cobra.Command, args []string) error {
			seed, err1 := strconv.ParseUint(args[1], 10, 64)
			synced, err2 := strconv.ParseBool(args[2])
			first, err3 := strconv.ParseUint(args[3], 10, 64)
			if err := errors.Join(err1, err2, err3); err != nil {
				return usageError{err}
			}
			c := &crash.Config{Seed: seed, Keys: crashKeys, ValueBytes: crashValueBytes, Synced: synced, Dir: args[0]}
			return crash.Write(cmd.Context(), c, first, a.stdout)
		},
	}
}

func (a *app) compareCommand() *cobra.Command {
	var threshold float64
	var exact bool
	cmd := &cobra.Command{
		Use:   "compare A.json B.json",
		Short: "Compare two results: counts decide about the exit code, times are shown",
		Long: `compare says what became of each figure from A to B. A count that grew by more
than the threshold, and by more than chance explains, is a regression: exit code
3. The same program, seed and flags give the same counts; --exact asks for that.
Times are compared with their confidence interval and never decide.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usagef("compare needs two results, has %d arguments", len(args))
			}
			a.preset(cmd.Flags())
			if err := a.validate(cmd.Flags()); err != nil {
				return err
			}
			if !(threshold >= 0) {
				return usagef("--threshold is %v; it must be at least 0", threshold)
			}
			return a.compare(args[0], args[1], threshold, exact)
		},
	}
	f := cmd.Flags()
	f.StringVar(&a.format, "format", "text", "form of the comparison: text, json, or markdown")
	f.BoolVar(&a.json, "json", false, "short for --format json")
	f.Float64Var(&threshold, "threshold", 1, "growth of a count that is no regression, in percent")
	f.BoolVar(&exact, "exact", false, "any growth of a count is a regression")
	return cmd
}

func (a *app) compare(first, second string, threshold float64, exact bool) error {
	if a.format == string(report.GoBench) {
		return usagef("--format gobench is for results: benchstat compares those")
	}
	x, err := results.Read(first)
	if err != nil {
		return err
	}
	y, err := results.Read(second)
	if err != nil {
		return err
	}
	c, err := compare.Runs(x, y, threshold, exact)
	if err != nil {
		return fmt.Errorf("comparing %s with %s: %w", first, second, err)
	}
	if err := c.Write(a.stdout, report.Format(a.format)); err != nil {
		return err
	}
	if c.Regressions > 0 {
		return fmt.Errorf("%d counts are worse: %w", c.Regressions, errVerdict)
	}
	return nil
}

func (a *app) reportCommand() *cobra.Command {
	var output, svg string
	cmd := &cobra.Command{
		Use:   "report RUN.json... -o run.html",
		Short: "Make a page with charts of one result or several",
		Long: `report makes one HTML file that needs nothing from elsewhere. With --format it
prints the results again in another form instead, and with --svg it writes the
charts as files, for pages of your own.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("report needs at least one result, a file that --save or --json made")
			}
			if svg != "" {
				if output != "" || cmd.Flags().Changed("format") {
					return usagef("--svg excludes --output and --format")
				}
				return a.charts(args, svg)
			}
			if output == "" && a.format == "html" {
				output = strings.TrimSuffix(args[0], ".json") + ".html"
			}
			return a.report(args, output)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&output, "output", "o", "", "the file to write; - is the standard output (default: the first result's name with .html)")
	f.StringVar(&a.format, "format", "html", "form of the report: html, text, json, markdown, or gobench")
	f.StringVar(&svg, "svg", "", "write each chart as an SVG file in this directory instead of a page")
	return cmd
}

func readRuns(names []string) (runs []report.Run, err error) {
	for _, name := range names {
		run, err := results.Read(name)
		if err != nil {
			return nil, err
		}
		runs = append(runs, run)
	}
	return runs, nil
}

// charts writes the charts of results into a directory.
func (a *app) charts(names []string, dir string) error {
	runs, err := readRuns(names)
	if err != nil {
		return err
	}
	figures, err := page.Figures(runs)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	for _, x := range figures {
		name := filepath.Join(dir, x.Name)
		err := results.Save(name, func(w io.Writer) error {
			_, err := w.Write(x.SVG)
			return err
		})
		if err != nil {
			return err
		}
		a.meter.Note("wrote %s", name)
	}
	return nil
}

func (a *app) report(names []string, output string) error {
	runs, err := readRuns(names)
	if err != nil {
		return err
	}
	write := func(w io.Writer) error { return page.Write(w, runs) }
	if a.format != "html" {
		if err := a.validate(new(pflag.FlagSet)); err != nil {
			return err
		}
		write = func(w io.Writer) error {
			for _, run := range runs {
				if err := report.Write(w, run, report.Format(a.format)); err != nil {
					return err
				}
			}
			return nil
		}
	}
	if output == "" || output == "-" {
		w := bufio.NewWriter(a.stdout)
		return errors.Join(write(w), w.Flush())
	}
	if err := results.Save(output, write); err != nil {
		return err
	}
	a.meter.Note("wrote %s", output)
	return nil
}
