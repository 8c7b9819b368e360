package sievedb

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"sievedb/internal/follow"
	"sievedb/vfs"
)

// TestFollowProcess follows a store that another process writes until it is
// killed.
func TestFollowProcess(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	refreshes := 60
	if *modelOps >= 1_000_000 {
		refreshes = 5_000
	}
	for _, d := range []Durability{SyncAlways, SyncNever} {
		t.Run(d.String(), func(t *testing.T) { followProcess(t, d, refreshes) })
	}
}

func followProcess(t *testing.T, d Durability, refreshes int) {
	seed := newSeed(t)
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(ctxb)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestKillChild$")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s\n%d\n%d\n%d", killEnv, dir, seed, 1, d))
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	var acknowledged atomic.Int64
	first := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			digits, whole := strings.CutSuffix(lines.Text(), ".")
			if n, err := strconv.ParseInt(digits, 10, 64); err == nil && whole {
				if acknowledged.Swap(n) == 0 {
					close(first)
				}
			}
		}
	})
	<-first
	h := newHistory()
	extend := func(to int) {
		for n := len(h.models); n <= to; n++ {
			m := h.models[n-1]
			for _, e := range killBatch(&Batch{}, seed, uint64(n)) {
				m.put(e.key, e.value)
			}
			h.models = append(h.models, m)
		}
	}
	// A writer with tiny memtables and no syncs may be faster than a follower on
	// a busy machine, which then says so and keeps what it has.
	patiently := func(call func() error) {
		err := call()
		for errors.Is(err, follow.ErrOvertaken) {
			err = call()
		}
		must(t, err)
	}
	var ro *DB
	patiently(func() (err error) {
		ro, err = OpenReadOnly(dir, &Options{FS: frozen{vfs.OS(), t}})
		return err
	})
	last := 0
	check := func() {
		least := 0
		if d == SyncAlways {
			least = int(acknowledged.Load())
		}
		patiently(ro.Refresh)
		v, err := ro.Get(counterKey)
		if err != nil && !errors.Is(err, ErrNotFound) {
			t.Fatal(err)
		}
		n, _ := binary.Uvarint(v)
		extend(int(n))
		got, err := h.check(ro, max(least, last), len(h.models)-1)
		if err != nil {
			t.Fatalf("after %d: %v", last, err)
		}
		last = got
	}
	for i := 0; i < refreshes || acknowledged.Load() < 300; i++ {
		check()
	}
	cancel()
	reader.Wait()
	_ = cmd.Wait() // killed
	check()
	db, err := Open(dir, killOptions(d))
	must(t, err)
	_, err = h.check(db, last, last)
	must(t, err)
	must(t, db.Put([]byte("after"), nil)) // behind what the process left
	must(t, db.Sync())
	must(t, ro.Refresh())
	if _, err := ro.Get([]byte("after")); err != nil {
		t.Error(err)
	}
	must(t, errors.Join(ro.Close(), db.Close()))
	if entries, err := fs.Glob(os.DirFS(dir), "*.tmp"); len(entries) > 0 || err != nil {
		t.Errorf("%v, %v", entries, err)
	}
	t.Logf("%d batches, of which %d were acknowledged", last, acknowledged.Load())
}
