// Command engines makes the same workloads on SieveDB, pebble, badger,
// goleveldb and bbolt, and compares their times. It is a module of its own, so
// that the other engines are no dependencies of SieveDB.
//
//	go run -C cmd/kvbench/engines . --quick -o engines.html
//
// Each engine runs in a process of its own, which makes one workload at a time
// while the others rest: engine after engine, workload after workload, and all
// of it again for each repetition, on a new store. Ratios are those of the same
// repetition, so that a slow phase of the machine meets all engines.
//
// Exit codes: 0, it was measured; 1, something failed, or an engine gave a wrong
// answer; 2, the command line is wrong; 130, interrupted.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"sievedb/cmd/kvbench/engines/internal/trial"
)

const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitInterrupted = 130
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == serveArgument {
		os.Exit(serve(os.Stdin, os.Stdout, os.Stderr))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal the default is back in force: a second one kills
	// the process even if cleaning up hangs.
	context.AfterFunc(ctx, stop)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// serveArgument makes this process the one that an engine runs in.
const serveArgument = "serve"

func serve(stdin io.Reader, stdout, stderr io.Writer) int {
	signal.Ignore(os.Interrupt) // a terminal sends it here, too; the parent decides
	if err := trial.Serve(stdin, stdout); err != nil {
		fmt.Fprintln(stderr, err)
		return exitFailure
	}
	return exitOK
}

// run is main without the process: it returns the exit code. Reports go to
// stdout; progress and errors, one line each, to stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cmd := newCommand(stdout, stderr)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage):
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "engines: interrupted")
		return exitInterrupted
	}
	fmt.Fprintln(stderr, "engines:", strings.ReplaceAll(err.Error(), "\n", "; ")) // joined errors come on several lines
	if usage.error != nil {
		return exitUsage
	}
	return exitFailure
}
