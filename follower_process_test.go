package sievedb

import (
	"errors"
	"io/fs"
	"os"
	"slices"
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
	dir := t.TempDir()
	l := newLoad(newSeed(t), childWriters, d)
	c := startChild(t, dir, l)
	var acknowledged atomic.Int64
	first := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		c.listen(func(e event) {
			l.tell(e)
			if e.what == batchVisible || e.what == batchDurable {
				if acknowledged.Add(1) == 1 {
					close(first)
				}
			}
		})
	})
	<-first
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
	last := make([]uint64, childWriters)
	check := func() {
		least, _ := l.bounds()
		patiently(ro.Refresh)
		found, err := l.counters(ro)
		must(t, err)
		l.awaitBegun(found)
		_, most := l.bounds()
		_, err = l.check(ro, least, most)
		must(t, err)
		l.forget(found) // what a follower has seen it goes on to see
		last = found
	}
	for i := 0; i < refreshes || acknowledged.Load() < 300; i++ {
		check()
	}
	must(t, c.cmd.Process.Kill())
	reader.Wait()
	_ = c.cmd.Wait() // killed
	check()
	db, err := Open(dir, killOptions(d))
	must(t, err)
	_, events := l.bounds()
	found, err := l.check(db, events, events)
	must(t, err)
	if !slices.Equal(found, last) {
		t.Errorf("the store has %d batches, and its follower saw %d", found, last)
	}
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
	t.Logf("%d batches, and %d were acknowledged", last, acknowledged.Load())
}
