//go:build big

package sievedb_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"sievedb"
)

const (
	bigKeys       = 10_000_000
	bigKeyBytes   = 16
	bigValueBytes = 100
	bigSeed       = 0xb16

	bigMaxOpen = 2 * time.Second
	bigMaxRSS  = 400_000 // kB, as /proc/self/status counts

	bigPhaseEnv = "SIEVEDB_BIG_PHASE"
	bigDirEnv   = "SIEVEDB_BIG_DIR"
)

// TestBig loads ten million random keys with default options but for
// durability, and then opens the store and finds each of them. Each phase is a
// process of its own, so that its peak of resident memory is the store's and
// not that of the phase before. It is the one test that asserts a time: that a
// large store opens in two seconds is promised.
func TestBig(t *testing.T) {
	switch os.Getenv(bigPhaseEnv) {
	case "load":
		bigLoad(t, os.Getenv(bigDirEnv))
	case "read":
		bigRead(t, os.Getenv(bigDirEnv))
	default:
		dir := t.TempDir()
		for _, phase := range []string{"load", "read"} {
			child := exec.Command(os.Args[0], "-test.run=^TestBig$", "-test.v", "-test.timeout=1h")
			child.Env = append(os.Environ(), bigPhaseEnv+"="+phase, bigDirEnv+"="+dir)
			out, err := child.CombinedOutput()
			t.Logf("%s:\n%s", phase, out)
			if err != nil {
				t.Fatalf("%s: %v", phase, err)
			}
		}
	}
}

// bigEntries makes the same entries in the same order each time. Both slices
// are overwritten by the next call.
func bigEntries() func() (key, value []byte) {
	var seed [32]byte
	seed[0], seed[1] = bigSeed>>8, bigSeed&0xff
	rng := rand.NewChaCha8(seed)
	buf := make([]byte, bigKeyBytes+bigValueBytes)
	return func() (key, value []byte) {
		rng.Read(buf) // never fails
		return buf[:bigKeyBytes], buf[bigKeyBytes:]
	}
}

func bigLoad(t *testing.T, dir string) {
	db, err := sievedb.Open(dir, &sievedb.Options{Durability: sievedb.SyncNever})
	if err != nil {
		t.Fatal(err)
	}
	start, next := time.Now(), bigEntries()
	for range bigKeys {
		if err := db.Put(next()); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("loaded in %v", time.Since(start).Round(time.Second))
	start = time.Now()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	t.Logf("closed in %v", time.Since(start).Round(time.Millisecond))
	bigMemory(t)
}

func bigRead(t *testing.T, dir string) {
	start := time.Now()
	db, err := sievedb.Open(dir, nil)
	took := time.Since(start)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("opened in %v", took.Round(time.Millisecond))
	if took > bigMaxOpen {
		t.Errorf("Open took %v, at most %v", took, bigMaxOpen)
	}
	start = time.Now()
	next, missing, wrong := bigEntries(), 0, 0
	var dst []byte
	for range bigKeys {
		key, value := next()
		dst, err = db.GetTo(dst[:0], key)
		switch {
		case errors.Is(err, sievedb.ErrNotFound):
			missing++
		case err != nil:
			t.Fatal(err)
		case !bytes.Equal(dst, value):
			wrong++
		}
	}
	t.Logf("read all in %v", time.Since(start).Round(time.Second))
	if missing > 0 || wrong > 0 {
		t.Errorf("of %d keys %d were not found and %d had another value", bigKeys, missing, wrong)
	}
	t.Logf("\n%s", db.Metrics())
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	bigMemory(t)
}

// bigMemory checks the process's peak of resident memory, which only Linux
// tells in this form.
func bigMemory(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Logf("memory is not measured on %s", runtime.GOOS)
		return
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	var kB int
	_, after, ok := strings.Cut(string(status), "\nVmHWM:")
	if !ok {
		t.Fatal("/proc/self/status has no VmHWM")
	}
	if _, err := fmt.Sscan(after, &kB); err != nil {
		t.Fatal(err)
	}
	t.Logf("peak of resident memory: %d MB", kB/1000)
	if kB > bigMaxRSS {
		t.Errorf("the peak of resident memory was %d kB, at most %d", kB, bigMaxRSS)
	}
}
