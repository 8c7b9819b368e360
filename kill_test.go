package sievedb

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

const killEnv = "SIEVEDB_KILL_CHILD" // dir, seed, first batch, durability

// killBatch is batch n of a child: several puts and deletes, and n itself.
func killBatch(b *Batch, seed, n uint64) model {
	var m model
	rng := newRand(seed ^ n*0x9e3779b97f4a7c15)
	for range 1 + rng.IntN(8) {
		k := fmt.Appendf(nil, "key-%03d", rng.IntN(300))
		v := fmt.Appendf(nil, "%d %0*d", n, rng.IntN(300), n)
		b.Put(k, v)
		m.put(k, v)
	}
	v := binary.AppendUvarint(nil, n)
	b.Put(counterKey, v)
	m.put(counterKey, v)
	return m
}

func killOptions(d Durability) *Options {
	return &Options{Durability: d, MemtableBytes: 16 << 10, TableBytes: 8 << 10, BlockBytes: 512}
}

// TestKillChild is the child of TestKill: it writes until it is killed, and
// prints the number of each batch that was acknowledged.
func TestKillChild(t *testing.T) {
	args := strings.Split(os.Getenv(killEnv), "\n")
	if len(args) != 4 {
		t.Skip("only as the child of TestKill")
	}
	num := func(i int) uint64 {
		n, err := strconv.ParseUint(args[i], 10, 64)
		must(t, err)
		return n
	}
	db, err := Open(args[0], killOptions(Durability(num(3))))
	must(t, err)
	for n := num(2); ; n++ {
		b := db.NewBatch()
		killBatch(b, num(1), n)
		must(t, db.Apply(b, StoreDefault))
		fmt.Printf("\n%d.\n", n)
	}
}

// TestKill kills a writing process at random moments, over and over. What was
// acknowledged as synced is there, without syncs it is a prefix, and no batch is
// half there.
func TestKill(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	rounds := 15
	if *modelOps >= 1_000_000 {
		rounds = 100
	}
	for _, d := range []Durability{SyncAlways, SyncNever} {
		t.Run(d.String(), func(t *testing.T) { testKill(t, d, rounds) })
	}
}

func testKill(t *testing.T, d Durability, rounds int) {
	seed := newSeed(t)
	rng := newRand(seed)
	dir := t.TempDir()
	h := newHistory()
	recovered, killedWriting := 0, 0
	for round := range rounds {
		acknowledged := runAndKill(t, dir, seed, recovered+1, d, 1+rng.IntN(400), time.Duration(rng.IntN(2000))*time.Microsecond)
		for n := len(h.models); n <= acknowledged+1; n++ {
			m := h.models[n-1]
			for _, e := range killBatch(&Batch{}, seed, uint64(n)) {
				m.put(e.key, e.value)
			}
			h.models = append(h.models, m)
		}
		least := recovered // a recovery makes durable what it found
		if d == SyncAlways {
			least = max(least, acknowledged)
		}
		db, err := Open(dir, killOptions(d))
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		n, err := h.check(db, least, len(h.models)-1)
		if err = errors.Join(err, db.Close()); err != nil {
			t.Fatalf("round %d: %d were acknowledged: %v", round, acknowledged, err)
		}
		if acknowledged > recovered {
			killedWriting++
		}
		recovered = n
	}
	t.Logf("%d batches in %d rounds", recovered, rounds)
	if killedWriting < rounds/2 {
		t.Fatalf("only %d of %d children wrote", killedWriting, rounds)
	}
}

// runAndKill runs a child until it has acknowledged some batches and kills it
// a moment later. It returns the last batch that was acknowledged.
func runAndKill(t *testing.T, dir string, seed uint64, first int, d Durability, batches int, moment time.Duration) int {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestKillChild$")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s\n%d\n%d\n%d", killEnv, dir, seed, first, d))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	last := first - 1
	killed := false
	var other []string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		digits, whole := strings.CutSuffix(lines.Text(), ".")
		n, err := strconv.Atoi(digits)
		if !whole || err != nil {
			other = append(other, lines.Text())
			continue
		}
		if n != last+1 {
			t.Errorf("batch %d was acknowledged after %d", n, last)
		}
		last = n
		if n-first+1 >= batches && !killed {
			killed = true
			time.Sleep(moment) // so that the kill hits any point of a write
			must(t, cmd.Process.Kill())
		}
	}
	err = cmd.Wait()
	if !killed {
		t.Fatalf("the child ended by itself: %v\n%s%s", err, strings.Join(other, "\n"), stderr.String())
	}
	return last
}
