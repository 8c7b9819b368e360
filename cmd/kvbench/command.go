package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// config is what the command line says.
type config struct {
	keysCount  int
	lookups    int
	valueBytes int
	bits       float64
	cacheMiB   int
	dir        string
	seed       uint64
	json       bool

	keysFile string
	sample   int
}

// Limits of the numbers on the command line.
const (
	minKeys  = 100
	maxKeys  = 100_000_000 // their order takes 4 bytes each
	maxValue = 32 << 10
)

// usageError is a mistake on the command line.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// errPrediction is returned after the report was printed.
var errPrediction = errors.New("the blocks fetched are not 0.8 to 1.2 times the false positives predicted")

// exitCode says how the process ends after err.
func exitCode(ctx context.Context, err error) int {
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errPrediction):
		return exitPrediction
	case errors.As(err, &usage):
		return exitUsage
	case ctx.Err() != nil:
		return exitInterrupted
	}
	return exitFailure
}

func newCommand(stdout io.Writer, p *progress) *cobra.Command {
	var c config
	root := &cobra.Command{
		Use:   "kvbench",
		Short: "Count the disk reads that SieveDB's filters avoid",
		Long: `kvbench loads a store in a temporary directory, looks up absent keys that lie
between the stored ones, without and with filters, and prints the disk reads of
both, what the filters predict, and what they cost. Without flags it takes less
than a minute.

Exit codes: 0 measured as predicted, 1 failure, 2 wrong command line,
3 measured outside 0.8-1.2 of the prediction, 130 interrupted.`,
		Args:          noArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.validate(); err != nil {
				return err
			}
			return c.execute(cmd.Context(), stdout, p, func() (*workload, error) {
				return numberedKeys(c.keysCount, c.seed), nil
			})
		},
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.Flags().IntVarP(&c.keysCount, "keys-count", "n", 1_000_000, "number of keys to store")
	f := root.PersistentFlags()
	f.IntVar(&c.lookups, "lookups", 100_000, "number of lookups in each pass, at most one a key")
	f.IntVar(&c.valueBytes, "value-bytes", 100, "size of each value, in bytes")
	f.Float64Var(&c.bits, "bits", 10, "filter memory, in bits per key, 1 to 100")
	f.IntVar(&c.cacheMiB, "cache", 1, "block cache, in MiB; 0 is none")
	f.StringVar(&c.dir, "dir", "", "make the store in this directory, which must hold none, and keep it (default: a temporary one)")
	f.Uint64Var(&c.seed, "seed", 42, "seed of the order of the keys and of the choice of lookups")
	f.BoolVar(&c.json, "json", false, "print the report as JSON")
	root.AddCommand(absentCommand(&c, stdout, p))
	return root
}

func absentCommand(c *config, stdout io.Writer, p *progress) *cobra.Command {
	absent := &cobra.Command{
		Use:   "absent --keys FILE",
		Short: "The same with real keys, one a line",
		Long: `absent reads keys from a file, one a line (a word list, a list of URLs), without
empty lines and repetitions, stores every second one of them in a seeded random
order, and looks up the others, as far as they lie between the stored ones.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if c.keysFile == "" {
				return usagef("absent needs --keys FILE")
			}
			if c.sample < 0 || c.sample > 0 && c.sample < 2*minKeys {
				return usagef("--sample is %d; it must be 0 (all) or at least %d", c.sample, 2*minKeys)
			}
			c.keysCount = minKeys // not a flag of this command
			if err := c.validate(); err != nil {
				return err
			}
			return c.execute(cmd.Context(), stdout, p, func() (*workload, error) {
				return keysOfFile(c.keysFile, c.sample, c.seed)
			})
		},
	}
	absent.Flags().StringVar(&c.keysFile, "keys", "", "file with one key a line")
	absent.Flags().IntVar(&c.sample, "sample", 0, "use only this many of the file's keys, drawn at random; 0 is all")
	return absent
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("unknown argument %q for %q; see --help", args[0], cmd.CommandPath())
	}
	return nil
}

func (c *config) validate() error {
	switch {
	case c.keysCount < minKeys || c.keysCount > maxKeys:
		return usagef("--keys-count is %d, not in [%d, %d]", c.keysCount, minKeys, maxKeys)
	case c.lookups < 1:
		return usagef("--lookups is %d; it must be at least 1", c.lookups)
	case c.valueBytes < 0 || c.valueBytes > maxValue:
		return usagef("--value-bytes is %d, not in [0, %d]", c.valueBytes, maxValue)
	case !(c.bits >= 1 && c.bits <= 100): // so that NaN is refused, too
		return usagef("--bits is %v, not in [1, 100]", c.bits)
	case c.cacheMiB < 0 || c.cacheMiB > 1<<20:
		return usagef("--cache is %d MiB, not in [0, %d]", c.cacheMiB, 1<<20)
	}
	return nil
}

// execute runs the experiment and prints its report.
func (c *config) execute(ctx context.Context, stdout io.Writer, p *progress, keys func() (*workload, error)) error {
	w, err := keys()
	if err != nil {
		return err
	}
	results, err := measure(ctx, c, w, p)
	if err != nil {
		return err
	}
	report := newReport(results)
	write := report.writeText
	if c.json {
		write = report.writeJSON
	}
	if err = write(stdout); err == nil && !report.Prediction.OK {
		err = errPrediction
	}
	return err
}
