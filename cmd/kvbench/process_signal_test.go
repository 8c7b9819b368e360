//go:build linux || darwin

package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// With this variable the test's own program is kvbench, which can write files of
// so many bytes at most: as if the disk were full then.
const limitVariable = "KVBENCH_TEST_FILE_BYTES"

func init() {
	limit, err := strconv.ParseUint(os.Getenv(limitVariable), 10, 63)
	if err != nil {
		return
	}
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &r); err != nil {
		panic(err)
	}
	r.Cur = min(limit, r.Max)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &r); err != nil {
		panic(err)
	}
	main()
}

// process is kvbench in a process of its own.
func process(t *testing.T, fileBytes uint64, args ...string) (cmd *exec.Cmd, temp string, stdout, stderr *bytes.Buffer) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	temp, stdout, stderr = t.TempDir(), new(bytes.Buffer), new(bytes.Buffer)
	cmd = exec.Command(self, args...)
	cmd.Env = append(os.Environ(), limitVariable+"="+strconv.FormatUint(fileBytes, 10), "TMPDIR="+temp)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	return cmd, temp, stdout, stderr
}

// A disk that is full in the middle of a run ends it with one line and a
// status, and nothing is left of what was made.
func TestFullDisk(t *testing.T) {
	for _, args := range []string{"-n 100000", "fill -n 100000", "mixed -n 20000", "ycsb --workload a -n 20000 --sync", "growth --sizes 20000", "absent --keys " + wordList(t, 20_000)} {
		cmd, temp, stdout, stderr := process(t, 100<<10, strings.Fields(args)...)
		err := cmd.Run()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != exitFailure {
			t.Errorf("%s: %v", args, err)
		}
		errs := stderr.String()
		if stdout.Len() > 0 || !strings.HasPrefix(errs, "kvbench: ") || strings.Count(errs, "file too large") != 1 || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: stdout %q, stderr %q", args, stdout, errs)
		}
		if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
			t.Errorf("%s: left in the temporary directory: %v %v", args, left, err)
		}
	}
}

// Ctrl-C ends a run with what was measured until then, and removes what was made.
func TestSignal(t *testing.T) {
	const roomy = 1 << 40
	cmd, temp, stdout, stderr := process(t, roomy, "fill", "-n", "20000000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for {
		if made, err := os.ReadDir(temp); err != nil {
			t.Fatal(err)
		} else if len(made) > 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitInterrupted {
		t.Error(err)
	}
	// It may have come before the first operation.
	if out := stdout.String(); out != "" && !strings.HasPrefix(out, "INTERRUPTED") {
		t.Error(out)
	}
	if stderr.String() != "kvbench: interrupted\n" {
		t.Errorf("stderr %q", stderr)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left in the temporary directory: %v %v", left, err)
	}
}
