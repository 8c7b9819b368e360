package main

import (
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"sievedb"
)

func explainCommand(out *output) *cobra.Command {
	var inHex bool
	var o sievedb.Options
	cmd := &cobra.Command{
		Use:   "explain DIR KEY...",
		Short: "Say what a lookup of a key does, and why",
		Long: `explain looks each key up, one after the other, and prints every memtable and
table that could have held it, in the order in which lookups come to them: what
was ruled out by key range or by filter, what was read in vain, what decided. The
store is opened read-only, which changes nothing there, and another process may
have it open for writing. The block cache is empty and no filter is resident at
first, so that a key that is given twice shows what a warm store does.

A key is given as it is, in quotes as it is printed, or as 0x and hexadecimal
digits; with --hex, as such digits alone. Keys that begin with a hyphen come
behind "--". The exit code is 0 whether a key is there or not.`,
		Example: `  sievectl explain db user:1
  sievectl explain --json db 0x00ff
  sievectl explain --hex db 757365723a31
  sievectl explain db user:2 user:2        # and once more, warm`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usageError{errors.New("explain needs the directory of a store and a key; see --help")}
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error { return explainKeys(out, &o, args[0], args[1:], inHex) },
	}
	cmd.Flags().BoolVar(&inHex, "hex", false, "keys are hexadecimal digits")
	cmd.Flags().BoolVar(&o.DisableFilters, "no-filters", false, "ask no filter, to see what they save")
	return cmd
}

func explainKeys(out *output, o *sievedb.Options, dir string, args []string, inHex bool) (err error) {
	var keys []keyFlag
	for _, arg := range args {
		var k keyFlag
		var err error
		if inHex {
			k.key, err = hex.DecodeString(arg)
		} else {
			err = k.Set(arg)
		}
		if err != nil {
			return usageError{fmt.Errorf("key %q: %w", arg, err)}
		}
		keys = append(keys, k)
	}
	db, err := sievedb.OpenReadOnly(dir, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	for i, k := range keys {
		trace, failed := db.Explain(k.key)
		if trace == nil {
			return failed
		}
		if i > 0 && !out.json {
			if _, err := fmt.Fprintln(out.w); err != nil {
				return err
			}
		}
		if err := out.document(trace); err != nil || failed != nil {
			return errors.Join(err, failed)
		}
	}
	return nil
}
