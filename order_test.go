package sievedb

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"runtime"
	"slices"
	"sync"
	"testing"

	"sievedb/internal/manifest"
	"sievedb/vfs"
	"sievedb/wal"
)

// fileOrder watches the calls of a store for those that come too early.
type fileOrder struct {
	mem  *vfs.Mem
	lazy bool // segments end unsynced

	mu       sync.Mutex
	fresh    map[string]bool // segments of nothing but a header
	unsynced map[string]bool // segments with bytes that a crash may take
	seen     map[string]int  // how often each rule was looked at
	broken   []string
}

func (o *fileOrder) hook(call vfs.Call) {
	o.mu.Lock()
	defer o.mu.Unlock()
	kind, _ := parseName(path.Base(call.Name))
	switch {
	case kind == kindSegment && call.Op == vfs.OpCreate:
		if !o.lazy {
			o.syncedBefore(call.Name)
		}
		o.fresh[call.Name] = true
	case kind == kindSegment && call.Op&(vfs.OpWrite|vfs.OpTruncate) != 0:
		if call.Op == vfs.OpWrite && !o.fresh[call.Name] && !o.unsynced[call.Name] {
			o.endedBefore(call.Name)
		}
		o.unsynced[call.Name] = true
	case kind == kindSegment && call.Op == vfs.OpSync:
		if !o.fresh[call.Name] {
			o.syncedBefore(call.Name)
		}
		delete(o.fresh, call.Name)
		delete(o.unsynced, call.Name)
	case call.Op == vfs.OpRemove:
		o.removal(kind, call.Name)
		delete(o.unsynced, call.Name)
	}
}

// syncedBefore wants the segments before name, as far as a crash may bring them
// back, to be synced.
func (o *fileOrder) syncedBefore(name string) {
	for _, s := range o.segments(name, vfs.CrashLost) {
		before := path.Join(path.Dir(name), wal.SegmentName(s.FileNum))
		o.is("invariant 11", before >= name || !o.unsynced[before], "%s is created or synced, and %s is not synced", name, before)
	}
}

// endedBefore wants the segments before name to have ended, and name to be live,
// in whatever a crash leaves of the manifest.
func (o *fileOrder) endedBefore(name string) {
	for seed := range uint64(4) {
		segments := o.segments(name, seed)
		for _, s := range segments {
			before := wal.SegmentName(s.FileNum)
			o.is("invariant 11", before >= path.Base(name) || s.Ended(), "%s is written to, and %s has no end", name, before)
		}
		live := slices.ContainsFunc(segments, func(s manifest.Segment) bool { return wal.SegmentName(s.FileNum) == path.Base(name) })
		o.is("invariant 11", live, "%s is written to, and the manifest does not know it", name)
	}
}

// segments returns the live segments after a crash, none where there is no store
// yet.
func (o *fileOrder) segments(name string, seed uint64) []manifest.Segment {
	st, err := manifest.Load(o.mem.CrashClone(seed), path.Dir(name))
	if err != nil {
		o.is("a manifest", errors.Is(err, fs.ErrNotExist), "%v", err)
		return nil
	}
	return st.Segments
}

// removal wants no state that a crash could bring back to name the file.
func (o *fileOrder) removal(kind fileKind, name string) {
	for seed := range uint64(4) {
		st, err := manifest.Load(o.mem.CrashClone(seed), path.Dir(name))
		if err != nil {
			o.is("a manifest", false, "%v", err)
			return
		}
		base := path.Base(name)
		switch kind {
		case kindManifest:
			o.is("invariant 15", base != manifest.ManifestName(st.ManifestNum), "%s is removed, and may still be in force", name)
		case kindSegment:
			for _, s := range st.Segments {
				o.is("invariant 13", base != wal.SegmentName(s.FileNum), "%s is removed, and may still be needed", name)
			}
		case kindTable:
			for _, level := range st.Version.Levels {
				for _, m := range level {
					o.is("invariant 17", base != tableName(m.FileNum), "%s is removed, and may still be part of the tree", name)
				}
			}
		}
	}
}

func (o *fileOrder) is(rule string, holds bool, format string, args ...any) {
	o.seen[rule]++
	if !holds {
		o.broken = append(o.broken, rule+": "+fmt.Sprintf(format, args...))
	}
}

// TestFileOrder watches the order of calls in which invariants 11, 13, 15 and 17
// consist: a segment is written to when those before it have ended, and synced when
// those before it are synced; where writes are synced, it is created only then.
// And a file is removed only when no crash can bring back what needs it.
func TestFileOrder(t *testing.T) {
	rng := newRand(newSeed(t))
	for _, d := range []Durability{SyncAlways, SyncNever} {
		mem := vfs.NewMem()
		o := &fileOrder{mem: mem, lazy: d == SyncNever, fresh: map[string]bool{}, unsynced: map[string]bool{}, seen: map[string]int{}}
		f := vfs.NewFaulty(mem)
		f.SetHook(o.hook)
		h, pool := newHistory(), keyPool(rng, 100)
		for range 3 {
			opts := tiny
			opts.Durability = d
			db := mustOpen(t, f, "/a/store", opts)
			must(t, h.write(db, rng, pool, 150))
			must(t, rewriteManifest(db))
			quiesce(db)()
			must(t, db.Close())
		}
		for _, broken := range o.broken {
			t.Errorf("%v: %s", d, broken)
		}
		for _, rule := range []string{"invariant 11", "invariant 13", "invariant 15", "invariant 17"} {
			if o.seen[rule] < 4 {
				t.Errorf("%v: %s was put to the test only %d times", d, rule, o.seen[rule])
			}
		}
	}
}

// TestSegmentIsClosedWhenRemoved has a memtable become a table while the log syncs
// the segment of it, which had ended. That is removed once it is closed: Windows
// removes no file that is open.
func TestSegmentIsClosedWhenRemoved(t *testing.T) {
	f := vfs.NewFaulty(vfs.NewMem())
	o := tiny
	o.Durability = SyncNever
	db := mustOpen(t, f, "/store", o)
	name := wal.SegmentName(db.mutable.segment)
	var mu sync.Mutex
	open, removed := true, false
	syncs, flushes, flushed := make(chan bool), make(chan bool), make(chan bool)
	f.SetHook(func(c vfs.Call) {
		kind, _ := parseName(path.Base(c.Name))
		switch {
		case kind == kindTable && c.Op == vfs.OpCreate:
			<-flushes
		case path.Base(c.Name) != name:
		case c.Op == vfs.OpSync:
			close(syncs)
			<-flushed
		default:
			mu.Lock()
			defer mu.Unlock()
			open = open && c.Op != vfs.OpClose
			if c.Op == vfs.OpRemove {
				removed = true
				if open {
					t.Errorf("%s is removed and still open", name)
				}
			}
		}
	})
	for waiting := false; !waiting; {
		must(t, db.Put([]byte("key"), make([]byte, 100)))
		db.mu.Lock()
		waiting = len(db.immutables) > 0
		db.mu.Unlock()
	}
	var synced sync.WaitGroup
	synced.Go(func() { must(t, db.Sync()) })
	<-syncs
	close(flushes)
	db.mu.Lock()
	for len(db.immutables) > 0 {
		db.cond.Wait()
	}
	db.mu.Unlock()
	for len(db.trash.pending()) == 0 && !t.Failed() { // it may be removed already
		mu.Lock()
		done := removed
		mu.Unlock()
		if done {
			break
		}
		runtime.Gosched()
	}
	for range 1000 { // the chance to go wrong
		runtime.Gosched()
	}
	close(flushed)
	synced.Wait()
	quiesce(db)()
	if !removed {
		t.Errorf("%s is still there", name)
	}
	must(t, db.Close())
}
