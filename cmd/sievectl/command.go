package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"sievedb/cmd/sievectl/internal/decode"
)

// usageError is a mistake on the command line.
type usageError struct{ error }

// exitCode says how the process ends after err.
func exitCode(err error) int {
	if _, ok := errors.AsType[usageError](err); ok {
		return exitUsage
	}
	return exitFailure
}

func newCommand(out *output) *cobra.Command {
	root := &cobra.Command{
		Use:   "sievectl",
		Short: "Look into the files of a SieveDB store, and repair one",
		Long: `sievectl looks into the files of a SieveDB store without opening it, says what a
lookup does, and makes a new store out of a damaged one. It only reads, but for
repair, which writes to its second directory alone. But for explain, no process
may have the store open for writing meanwhile.

Exit codes: 0 all is well, 1 damage was found or something failed, 2 wrong
command line.`,
		Example: `  sievectl check db
  sievectl explain db user:1
  sievectl repair db db.new`,
		Args:          exactly(0),
		RunE:          group,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.PersistentFlags().BoolVar(&out.json, "json", false, "print JSON, with user keys in hexadecimal")
	sst := &cobra.Command{Use: "sst", Short: "Dump or verify tables", Args: exactly(0), RunE: group}
	sst.AddCommand(sstDumpCommand(out), sstVerifyCommand(out))
	wal := &cobra.Command{Use: "wal", Short: "Dump a segment of the WAL", Args: exactly(0), RunE: group}
	wal.AddCommand(walDumpCommand(out))
	man := &cobra.Command{Use: "manifest", Short: "Dump a manifest", Args: exactly(0), RunE: group}
	man.AddCommand(manifestDumpCommand(out))
	root.AddCommand(checkCommand(out), explainCommand(out), sst, wal, man, repairCommand(out))
	return root
}

// group is what a command does that only has others below it.
func group(cmd *cobra.Command, _ []string) error {
	return usageError{fmt.Errorf("%s needs a command; see %s --help", cmd.CommandPath(), cmd.CommandPath())}
}

// exactly refuses all but n arguments, atLeastOne none at all.
func exactly(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case n == 0 && len(args) > 0:
			return usageError{fmt.Errorf("unknown command %q for %q; see --help", args[0], cmd.CommandPath())}
		case len(args) != n:
			return usageError{fmt.Errorf("%s takes %d arguments, not %d; see --help", cmd.CommandPath(), n, len(args))}
		}
		return nil
	}
}

func atLeastOne(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usageError{fmt.Errorf("%s needs a file; see --help", cmd.CommandPath())}
	}
	return nil
}

// keyFlag is a user key on the command line: as it is, quoted as in the output,
// or 0x and hexadecimal digits.
type keyFlag struct {
	key decode.Key
	set bool
}

// String is part of pflag.Value.
func (k *keyFlag) String() string {
	if !k.set {
		return ""
	}
	return k.key.String()
}

// Type is part of pflag.Value.
func (k *keyFlag) Type() string { return "key" }

// Set is part of pflag.Value.
func (k *keyFlag) Set(s string) (err error) {
	k.set, k.key = true, decode.Key(s)
	if digits, ok := strings.CutPrefix(s, "0x"); ok {
		k.key, err = hex.DecodeString(digits)
	} else if strings.HasPrefix(s, `"`) {
		s, err = strconv.Unquote(s)
		k.key = decode.Key(s)
	}
	return err
}
