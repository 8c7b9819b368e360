package wal

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sievedb/vfs"
)

// A lazy log syncs the segments that ended when it is asked for the last one, in
// their order, and not those that were released before.
func TestLazy(t *testing.T) {
	mem := vfs.NewMem()
	disk := vfs.NewFaulty(mem)
	l := newTestLogOn(t, mem, disk, true)
	add := func() Position {
		pos, err := l.Append(nil, []byte("record"), false)
		if err != nil {
			t.Fatal(err)
		}
		return pos
	}
	var synced []string
	watch := func() {
		synced = nil
		disk.SetHook(func(c vfs.Call) {
			if c.Op == vfs.OpSync {
				synced = append(synced, filepath.Base(c.Name))
			}
		})
	}
	expect := func(what string, want ...string) {
		t.Helper()
		disk.SetHook(nil)
		if !slices.Equal(synced, want) {
			t.Errorf("%s synced %q, want %q", what, synced, want)
		}
	}
	first := add()
	watch()
	l.rotate(t)
	expect("rotating", "000002.wal") // which is new
	for range 3 {
		add()
		l.rotate(t)
	}
	end := add()
	closed := disk.Count(vfs.OpClose)
	l.release(3) // 1 and 2
	if n := disk.Count(vfs.OpClose) - closed; n != 2 {
		t.Errorf("%d files of released segments were closed, want 2", n)
	}
	watch()
	if err := l.Sync(first); err != nil {
		t.Fatal(err)
	}
	expect("asking for what was released")
	l.sealErr = fmt.Errorf("the manifest: %w", vfs.ErrExhausted)
	if err := l.Sync(end); !errors.Is(err, vfs.ErrExhausted) || l.Err() != nil {
		t.Fatalf("no room for saying that a segment is sealed: %v, %v", err, l.Err())
	}
	if got, err := replay(mem.CrashClone(vfs.CrashLost), l.segments); len(got) != 3 || err != nil {
		t.Errorf("synced and not sealed: %d records, %v", len(got), err)
	}
	l.sealErr = nil
	watch()
	before := l.Metrics().Syncs
	if err := l.Sync(end); err != nil {
		t.Fatal(err)
	}
	expect("asking for the end", "000003.wal", "000004.wal", "000005.wal")
	if n := l.Metrics().Syncs - before; n != 3 {
		t.Errorf("%d syncs were counted, want 3", n)
	}
	if want := []Segment{{Num: 3, Sealed: true, SizeBytes: 62}, {Num: 4, Sealed: true, SizeBytes: 62}, {Num: 5}}; !slices.Equal(l.segments, want) {
		t.Errorf("segments %+v, want %+v", l.segments, want)
	}
	if got, err := replay(mem.CrashClone(vfs.CrashLost), l.segments); len(got) != 3 || err != nil {
		t.Errorf("%d records, %v", len(got), err)
	}
	watch()
	if err := l.Sync(add()); err != nil {
		t.Fatal(err)
	}
	expect("asking again", "000005.wal")
	l.rotate(t)
	watch()
	if _, _, err := l.Close(); err != nil {
		t.Fatal(err)
	}
	expect("closing", "000005.wal", "000006.wal")
	if opened, closed := disk.Count(vfs.OpCreate), disk.Count(vfs.OpClose); opened != closed {
		t.Errorf("%d files created, %d closed", opened, closed)
	}
}

// A sync of a segment that ended before is as final when it fails as any.
func TestLazySyncFails(t *testing.T) {
	mem := vfs.NewMem()
	disk := vfs.NewFaulty(mem)
	l := newTestLogOn(t, mem, disk, true)
	if _, err := l.Append(nil, []byte("record"), false); err != nil {
		t.Fatal(err)
	}
	l.rotate(t)
	boom := errors.New("boom")
	disk.SetRules(vfs.Rule{Ops: vfs.OpSync, Err: boom})
	if err := l.Sync(l.End()); !errors.Is(err, boom) || !strings.Contains(err.Error(), SegmentName(1)) {
		t.Errorf("the sync that failed: %v", err)
	}
	if err := l.Sync(l.End()); !errors.Is(err, boom) || l.segments[0].Sealed {
		t.Errorf("the next one: %v; %+v", err, l.segments)
	}
}
