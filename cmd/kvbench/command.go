package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sievedb/cmd/kvbench/internal/experiment"
	"sievedb/cmd/kvbench/internal/meter"
	"sievedb/cmd/kvbench/internal/report"
	"sievedb/cmd/kvbench/internal/results"
	"sievedb/cmd/kvbench/internal/workload"
)

// app is a command's input and output: its flags write into it.
type app struct {
	stdout io.Writer
	meter  *meter.Meter

	experiment.Config
	format      string
	json        bool
	save        string
	quick, full bool
}

// Limits of the numbers on the command line.
const (
	maxKeys  = 100_000_000 // their order takes 4 bytes each
	maxValue = 32 << 10
)

// usageError is a mistake on the command line.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// errVerdict is wrapped by what is returned after a report was printed that is
// not as it should be.
var errVerdict = errors.New("not as it should be")

// exitCode says how the process ends after err.
func exitCode(ctx context.Context, err error) int {
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errVerdict):
		return exitVerdict
	case errors.As(err, &usage):
		return exitUsage
	case ctx.Err() != nil:
		return exitInterrupted
	}
	return exitFailure
}

func newCommand(stdout io.Writer, m *meter.Meter) *cobra.Command {
	a := &app{stdout: stdout, meter: m}
	root := &cobra.Command{
		Use:   "kvbench",
		Short: "Count the disk reads that SieveDB's filters avoid",
		Long: `kvbench loads a store in a temporary directory, looks up absent keys that lie
between the stored ones, without and with filters, and prints the disk reads of
both, what the filters predict, and what they cost. Without flags it takes less
than a minute. The other commands measure more, and make a page of it.

Exit codes: 0 as it should be, 1 failure, 2 wrong command line, 3 measured
outside 0.8-1.2 of the prediction, or outside theory, or worse than before, or
acknowledged writes lost; 130 interrupted (what was measured is printed).`,
		Example: `  kvbench --save run.json && kvbench report run.json -o run.html
  kvbench absent --keys /usr/share/dict/words
  kvbench sweep --bits 0,2,4,8,12,16,20
  kvbench ycsb --workload a --format markdown`,
		Args:          noArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.lookups(cmd)
		},
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	a.lookupFlags(root.Flags())
	root.AddCommand(
		a.fork().absentCommand(), a.fork().sweepCommand(), a.fork().ycsbCommand(), a.planCommand(),
		a.fork().growthCommand(), a.fork().crashCommand(), a.crashChildCommand(), a.fork().compareCommand(), a.fork().reportCommand())
	for _, x := range mixes {
		root.AddCommand(a.fork().mixCommand(x))
	}
	root.SuggestionsMinimumDistance = 2 // for noArgs
	root.SetOut(stdout)                 // before the completions, which look for it once
	completions(root)
	return root
}

// completions completes the values of flags, and refuses shells that there are
// no completions for, where cobra would only help.
func completions(root *cobra.Command) {
	values := map[string][]string{
		"workload": {"a", "b", "c", "d", "e", "f"}, "distribution": {"uniform", "zipfian", "latest"},
		"format": {"text", "json", "markdown", "gobench"},
	}
	root.InitDefaultCompletionCmd()
	for _, cmd := range append(root.Commands(), root) {
		if cmd.Name() == "completion" {
			cmd.Args, cmd.RunE = noArgs, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
		for flag, of := range values {
			if cmd.Flags().Lookup(flag) != nil {
				_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(of, cobra.ShellCompDirectiveNoFileComp)) // fails for flags that are not there
			}
		}
	}
}

// fork returns an app for another command: flags write their defaults into it.
func (a *app) fork() *app { return &app{stdout: a.stdout, meter: a.meter} }

func (a *app) absentCommand() *cobra.Command {
	absent := &cobra.Command{
		Use:   "absent --keys FILE | --db DIR",
		Short: "The same with real keys, one a line, or with an existing store",
		Long: `absent reads keys from a file, one a line (a word list, a list of URLs), without
empty lines and repetitions, stores every second one of them in a seeded random
order, and looks up the others, as far as they lie between the stored ones.
With --db it reads an existing store instead, which it does not change: keys of
the file that are not there are looked up, or, without a file, keys right behind
those that are.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.KeysFile == "" && a.DB == "" {
				return usagef("absent needs --keys FILE or --db DIR")
			}
			return a.lookups(cmd)
		},
	}
	a.lookupFlags(absent.Flags())
	return absent
}

// lookups runs the zero-argument experiment.
func (a *app) lookups(cmd *cobra.Command) error {
	a.preset(cmd.Flags())
	if err := a.validate(cmd.Flags()); err != nil {
		return err
	}
	run, err := experiment.Lookups(cmd.Context(), &a.Config, a.meter)
	if run == nil {
		return err
	}
	var verdict error
	if !run.Prediction.OK {
		verdict = fmt.Errorf("the blocks fetched are not 0.8 to 1.2 times the false positives predicted: %w", errVerdict)
	}
	return a.finish(run, err, verdict)
}

// finish prints a run, keeps it, and returns the first of: that it was cut
// short, that it cannot be printed, what is to be said about its result.
func (a *app) finish(run report.Run, interrupted, verdict error) error {
	err := report.Write(a.stdout, run, report.Format(a.format))
	if a.save != "" {
		err = errors.Join(err, results.Save(a.save, func(w io.Writer) error { return report.Write(w, run, report.JSON) }))
	}
	if interrupted != nil {
		return errors.Join(interrupted, err)
	}
	if err != nil {
		return err
	}
	return verdict
}

func (a *app) outputFlags(f *pflag.FlagSet) {
	f.StringVar(&a.format, "format", "text", "form of the report: text, json, markdown, or gobench (lines for benchstat)")
	f.BoolVar(&a.json, "json", false, "short for --format json")
	f.StringVar(&a.save, "save", "", "write the report as JSON to this file, too: for compare and report")
	f.Uint64Var(&a.Seed, "seed", 42, "seed of keys, their order, and what is chosen")
}

func (a *app) sizeFlags(f *pflag.FlagSet, keys int) {
	f.IntVarP(&a.KeysCount, "keys-count", "n", keys, "number of keys to store")
	f.StringVar(&a.KeysFile, "keys", "", "file with one key a line, instead of numbered keys")
	f.IntVar(&a.Sample, "sample", 0, "use only this many of the file's keys, drawn at random; 0 is all")
	a.scaleFlags(f)
}

func (a *app) scaleFlags(f *pflag.FlagSet) {
	f.BoolVar(&a.quick, "quick", false, "a tenth of everything")
	f.BoolVar(&a.full, "full", false, "ten times everything")
}

func (a *app) storeFlags(f *pflag.FlagSet) {
	a.newStoreFlags(f, 1)
	f.StringVar(&a.DB, "db", "", "use the existing store in this directory instead of making one")
	f.BoolVar(&a.Cold, "cold", false, "empty the operating system's page cache of the store before each measurement (64-bit Linux)")
}

// newStoreFlags are those of a store that is made.
func (a *app) newStoreFlags(f *pflag.FlagSet, cacheMiB int) {
	f.IntVar(&a.ValueBytes, "value-bytes", 100, "size of each value, in bytes")
	f.Float64Var(&a.Bits, "bits", 10, "filter memory, in bits per key on average, 1 to 100")
	f.IntVar(&a.CacheMiB, "cache", cacheMiB, "block cache, in MiB; 0 is none")
	f.StringVar(&a.Dir, "dir", "", "make the store in this directory, which must hold none, and keep it (default: a temporary one)")
	f.BoolVar(&a.Keep, "keep", false, "keep the temporary directory, and say where it is")
}

func (a *app) lookupFlags(f *pflag.FlagSet) {
	a.outputFlags(f)
	a.sizeFlags(f, 1_000_000)
	a.storeFlags(f)
	f.IntVar(&a.Lookups, "lookups", 100_000, "number of lookups in each pass, at most one a key")
}

// scale changes a number that the user did not give.
func (a *app) scale(f *pflag.FlagSet, name string, n *int) {
	switch {
	case f.Changed(name):
	case a.quick:
		*n /= 10
	case a.full:
		*n *= 10
	}
}

// preset applies --quick and --full.
func (a *app) preset(f *pflag.FlagSet) {
	a.scale(f, "keys-count", &a.KeysCount)
	a.scale(f, "lookups", &a.Lookups)
	if a.json {
		a.format = string(report.JSON)
	}
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return usagef("unknown argument %q for %q; did you mean %s?", args[0], cmd.CommandPath(), strings.Join(near, " or "))
	}
	return usagef("unknown argument %q for %q; see --help", args[0], cmd.CommandPath())
}

// validate checks the flags that f has; the fields of the others are zero.
func (a *app) validate(f *pflag.FlagSet) error {
	has := func(name string) bool { return f.Lookup(name) != nil }
	switch {
	case !slices.Contains(report.Formats, report.Format(a.format)):
		return usagef("--format is %q; there are: %s", a.format, strings.Trim(fmt.Sprint(report.Formats), "[]"))
	case a.quick && a.full:
		return usagef("--quick and --full exclude one another")
	case has("keys-count") && (a.KeysCount < workload.MinKeys || a.KeysCount > maxKeys):
		return usagef("--keys-count is %d, not in [%d, %d]", a.KeysCount, workload.MinKeys, maxKeys)
	case f.Changed("keys-count") && a.KeysFile != "":
		return usagef("--keys-count is for numbered keys; with --keys say --sample")
	case f.Changed("sample") && a.KeysFile == "":
		return usagef("--sample needs --keys FILE")
	case a.Sample < 0 || a.Sample > 0 && a.Sample < 2*workload.MinKeys:
		return usagef("--sample is %d; it must be 0 (all) or at least %d", a.Sample, 2*workload.MinKeys)
	case has("lookups") && a.Lookups < 1:
		return usagef("--lookups is %d; it must be at least 1", a.Lookups)
	case has("value-bytes") && (a.ValueBytes < 0 || a.ValueBytes > maxValue):
		return usagef("--value-bytes is %d, not in [0, %d]", a.ValueBytes, maxValue)
	case has("cache") && !(a.Bits >= 1 && a.Bits <= 100): // so that NaN is refused, too
		return usagef("--bits is %v, not in [1, 100]", a.Bits)
	case has("cache") && (a.CacheMiB < 0 || a.CacheMiB > 1<<20):
		return usagef("--cache is %d MiB, not in [0, %d]", a.CacheMiB, 1<<20)
	case a.DB != "" && (a.Dir != "" || a.Keep):
		return usagef("--db takes an existing store; --dir and --keep are for a new one")
	}
	return nil
}
