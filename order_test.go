package sievedb

import (
	"fmt"
	"path"
	"sync"
	"testing"

	"sievedb/internal/manifest"
	"sievedb/vfs"
	"sievedb/wal"
)

// fileOrder watches the calls of a store for those that come too early.
type fileOrder struct {
	mem *vfs.Mem

	mu       sync.Mutex
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
		for name := range o.unsynced {
			o.is("invariant 11", false, "%s is created, and %s is not synced", call.Name, name)
		}
		o.is("invariant 11", true, "")
	case kind == kindSegment && call.Op&(vfs.OpWrite|vfs.OpTruncate) != 0:
		o.unsynced[call.Name] = true
	case kind == kindSegment && call.Op == vfs.OpSync:
		delete(o.unsynced, call.Name)
	case call.Op == vfs.OpRemove:
		o.removal(kind, call.Name)
	}
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
// consist: a segment is synced before the next exists, in every durability mode,
// and a file is removed only when no crash can bring back what needs it.
func TestFileOrder(t *testing.T) {
	rng := newRand(newSeed(t))
	for _, d := range []Durability{SyncAlways, SyncNever} {
		mem := vfs.NewMem()
		o := &fileOrder{mem: mem, unsynced: map[string]bool{}, seen: map[string]int{}}
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
