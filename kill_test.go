package sievedb

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// kills is how often TestKill kills a process, over its two settings together.
var kills = flag.Int("sievedb.kills", 10, "processes that TestKill kills")

const (
	childEnv     = "SIEVEDB_KILL_CHILD" // dir, seed, durability
	childWriters = 4
)

// child is a process that commits to a store until it is killed.
type child struct {
	cmd    *exec.Cmd
	out    io.Reader
	stderr strings.Builder
}

// startChild starts a process that opens the store in dir and makes the batches
// of l there.
func startChild(t *testing.T, dir string, l *load) *child {
	t.Helper()
	c := &child{cmd: exec.Command(os.Args[0], "-test.run=^TestKillChild$")}
	c.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s\n%d\n%d", childEnv, dir, l.seed, l.durability))
	c.cmd.Stderr = &c.stderr
	var err error
	c.out, err = c.cmd.StdoutPipe()
	must(t, err)
	must(t, c.cmd.Start())
	t.Cleanup(func() { _ = c.cmd.Process.Kill() }) // done already, unless the test failed
	return c
}

// listen calls tell with what the writers of the process tell, until it ends,
// and returns what else it printed.
func (c *child) listen(tell func(event)) (other []string) {
	for lines := bufio.NewScanner(c.out); lines.Scan(); {
		if e, ok := parseEvent(lines.Text()); ok {
			tell(e)
		} else {
			other = append(other, lines.Text())
		}
	}
	return other
}

func killOptions(d Durability) *Options {
	return &Options{Durability: d, MemtableBytes: 16 << 10, TableBytes: 8 << 10, BlockBytes: 512}
}

// TestKillChild is the process: its writers commit side by side, and tell of it
// on the standard output.
func TestKillChild(t *testing.T) {
	args := strings.Split(os.Getenv(childEnv), "\n")
	if len(args) != 3 {
		t.Skip("only as the child of another test")
	}
	seed, err := strconv.ParseUint(args[1], 10, 64)
	must(t, err)
	d, err := strconv.Atoi(args[2])
	must(t, err)
	l := newLoad(seed, childWriters, Durability(d))
	db, err := Open(args[0], killOptions(l.durability))
	must(t, err)
	found, err := l.counters(db)
	must(t, err)
	failed := make(chan error)
	for w, n := range found {
		go func() {
			failed <- l.run(db, w, n+1, func(e event) {
				// One call is one write of the pipe, so that lines do not mix.
				_, _ = os.Stdout.WriteString("\n" + e.String())
			}, func() bool { return false })
		}()
	}
	t.Fatal(<-failed)
}

// TestKill kills a process at random moments, over and over, in which four
// writers commit side by side while memtables are flushed and tables compacted.
// What was acknowledged as durable is there, the rest is a prefix of the commits,
// and no batch is half there (invariants 11 to 14).
func TestKill(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	for _, d := range []Durability{SyncAlways, SyncNever} {
		t.Run(d.String(), func(t *testing.T) { testKill(t, d, *kills/2) })
	}
}

func testKill(t *testing.T, d Durability, rounds int) {
	seed := newSeed(t)
	rng := newRand(seed)
	dir := t.TempDir()
	l := newLoad(seed, childWriters, d)
	recovered := make([]uint64, childWriters)
	var acknowledged, lost int
	var opening time.Duration
	for round := range rounds {
		batches, moment := 1+rng.IntN(400), time.Duration(rng.IntN(2000))*time.Microsecond
		if rng.IntN(6) == 0 { // while it recovers, or about then
			batches, moment = 0, time.Duration(rng.IntN(40))*time.Millisecond
		}
		runAndKill(t, startChild(t, dir, l), l, batches, moment)
		start := time.Now()
		db, err := Open(dir, killOptions(d))
		must(t, err)
		opening += time.Since(start)
		_, events := l.bounds()
		found, err := l.check(db, events, events)
		if err == nil {
			err = checkFiles(db)
		}
		if err == nil && round%8 == 0 {
			err = db.Verify(ctxb)
		}
		if err = errors.Join(err, db.Close()); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		for _, e := range l.events {
			if e.what == batchVisible || e.what == batchDurable {
				acknowledged++
				if e.n > found[e.writer] {
					lost++
				}
			}
		}
		if batches > 0 && slices.Equal(found, recovered) {
			t.Errorf("round %d: nothing of %d events is there", round, events)
		}
		l.restart(found)
		recovered = found
	}
	t.Logf("%d kills, %d batches acknowledged; %d of them, which were not synced, are gone; opening took %v on average",
		rounds, acknowledged, lost, opening/time.Duration(rounds))
}

// runAndKill kills a process a moment after its writers have acknowledged some
// batches, or none, and has l know all that it told.
func runAndKill(t *testing.T, c *child, l *load, batches int, moment time.Duration) {
	t.Helper()
	kill := func() {
		time.Sleep(moment) // so that the kill hits any point of a write
		must(t, c.cmd.Process.Kill())
	}
	left := batches
	if left == 0 {
		kill()
	}
	other := c.listen(func(e event) {
		l.tell(e)
		if e.what != batchVisible && e.what != batchDurable {
			return
		}
		if left--; left == 0 {
			kill()
		}
	})
	err := c.cmd.Wait()
	if left > 0 {
		t.Fatalf("the child ended by itself: %v\n%s%s", err, strings.Join(other, "\n"), c.stderr.String())
	}
}
