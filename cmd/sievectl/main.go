// Command sievectl looks into the files of a SieveDB store without opening it,
// and makes a new store out of a damaged one.
//
//	sievectl check db                     # everything that can be said of a store
//	sievectl explain db user:1            # what a lookup of a key does, and why
//	sievectl sst dump --keys db/000012.sst
//	sievectl sst verify db/*.sst
//	sievectl wal dump db/000015.wal
//	sievectl manifest dump db
//	sievectl repair db db.new             # salvage what can be read
//
// Every command only reads, but for repair, which writes to its second
// directory alone. But for explain, no process may have the store open for
// writing meanwhile. With --json, check and repair print one document, explain one
// for each key, and the others one object a line; user keys are quoted for people and hexadecimal in JSON.
//
// Exit codes: 0, all is well; 1, damage was found, or something failed; 2, the
// command line is wrong.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
)

const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is main without the process: it returns the exit code. What was found
// goes to stdout, errors, one line each, to stderr.
func run(args []string, stdout, stderr io.Writer) int {
	w := bufio.NewWriter(stdout)
	cmd := newCommand(&output{w: w})
	cmd.SetArgs(args)
	cmd.SetOut(w)
	cmd.SetErr(stderr)
	err := cmd.Execute()
	if flushed := w.Flush(); flushed != nil && err == nil {
		err = fmt.Errorf("writing the output: %w", flushed)
	}
	if err == nil {
		return exitOK
	}
	fmt.Fprintln(stderr, "sievectl:", strings.ReplaceAll(err.Error(), "\n", "; "))
	return exitCode(err)
}
