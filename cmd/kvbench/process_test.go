package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sievedb"
	"sievedb/cmd/kvbench/internal/report"
)

// With this variable the test's own program is another process that has the
// store in that directory open until its input ends.
const holdVariable = "KVBENCH_TEST_HOLD"

func init() {
	if dir := os.Getenv(holdVariable); dir != "" {
		if err := hold(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(exitFailure)
		}
		os.Exit(exitOK)
	}
}

func hold(dir string) error {
	db, err := sievedb.Open(dir, nil)
	if err != nil {
		return err
	}
	b := db.NewBatch()
	for i := range 300 {
		b.Put(fmt.Appendf(nil, "%04d", i), nil)
	}
	if err := db.Apply(b, sievedb.StoreDefault); err != nil {
		return err
	}
	fmt.Println("ready")
	_, err = bufio.NewReader(os.Stdin).ReadByte()
	_ = err // it is the end of the input
	return db.Close()
}

// A store that another process writes can be read, and not be written.
func TestStoreInUse(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	holder := exec.Command(self)
	holder.Env = append(os.Environ(), holdVariable+"="+dir)
	holder.Stderr = os.Stderr
	stdin, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(stdin.Close(), holder.Wait()); err != nil {
			t.Error(err)
		}
	}()
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if r := runJSON[report.Lookups](t, "absent", "--db", dir, "--lookups", "100"); r.Setup.Store != dir || r.Present.With.Lookups != 100 {
		t.Errorf("%+v", r.Present)
	}
	code, _, errs := kvbench(t, t.Context(), "overwrite", "--db", dir, "--ops", "5", "--modify")
	if code != exitFailure || !strings.Contains(errs, "in use") || strings.Count(errs, "\n") != 1 {
		t.Errorf("exit code %d, stderr %q", code, errs)
	}
}

// A key may have 64 KiB, and no more, wherever the line ends.
func TestLongLines(t *testing.T) {
	for length, want := range map[int]int{sievedb.MaxKeyBytes: exitOK, sievedb.MaxKeyBytes + 1: exitFailure, sievedb.MaxKeyBytes + 2: exitFailure} {
		for _, end := range []string{"", "\n", "\r\n"} {
			var b bytes.Buffer
			for i := range 250 {
				fmt.Fprintf(&b, "key%05d\n", i)
			}
			b.WriteString("key00100" + strings.Repeat("x", length-len("key00100")) + end)
			name := filepath.Join(t.TempDir(), "keys")
			if err := os.WriteFile(name, b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
			code, _, errs := kvbench(t, t.Context(), "absent", "--keys", name, "--lookups", "50")
			if code != want || code != exitOK && !strings.Contains(errs, name+" has a line of more than 65536 bytes") {
				t.Errorf("%d bytes, end %q: exit code %d, %q", length, end, code, errs)
			}
		}
	}
}
