// Command kvbench shows what SieveDB's filters are worth. It loads a store,
// looks up keys that are not in it but lie between those that are, with
// filters ignored and with filters asked, and prints the disk reads of both
// beside what the filters' own rates predict.
//
//	kvbench                        # numbered keys, under a minute
//	kvbench absent --keys words    # keys of a file, one a line
//	kvbench sweep                  # the rate at each filter size, beside theory
//	kvbench ycsb --workload a      # and fill, read, scan, mixed, overwrite, delete
//	kvbench growth                 # costs against the number of keys and readers
//	kvbench crash --kills 50       # are acknowledged writes lost?
//	kvbench compare a.json b.json
//	kvbench report run.json -o run.html
//
// It uses nothing but the public packages of the module. Operations, but for
// those of growth, are made by one goroutine, one after the other, so that their
// latencies are those of an idle store. This package reads the command line; packages below internal do
// the rest.
//
// Exit codes: 0, all is as it should be, or too small to tell; 1, something
// failed; 2, the command line is wrong; 3, something was measured that should
// not be: blocks fetched that are not 0.8 to 1.2 times what the filters
// predict, rates outside theory, counts worse than before, acknowledged writes
// that are lost; 130, interrupted.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"sievedb/cmd/kvbench/internal/meter"
)

const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitVerdict     = 3
	exitInterrupted = 130
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal the default is back in force: a second one kills
	// the process even if cleaning up hangs.
	context.AfterFunc(ctx, stop)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is main without the process: it returns the exit code. Reports go to
// stdout; progress and errors, one line each, to stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cmd := newCommand(stdout, meter.New(stderr))
	cmd.SetArgs(args)
	cmd.SetErr(stderr)
	err := cmd.ExecuteContext(ctx)
	code := exitCode(ctx, err)
	switch code {
	case exitOK:
	case exitInterrupted:
		fmt.Fprintln(stderr, "kvbench: interrupted")
	default: // joined errors come on several lines
		fmt.Fprintln(stderr, "kvbench:", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return code
}
