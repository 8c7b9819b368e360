package wal

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"sievedb/internal/keys"
	"sievedb/vfs"
)

// fullLog is a log on a disk that is full again and again, and what it must hold.
type fullLog struct {
	t        *testing.T
	log      *Log
	mem      *vfs.Mem
	disk     *vfs.Faulty
	segments []Segment
	records  []string // appended
	synced   int      // of them durable
	next     keys.FileNum
	refusals int
}

// do makes a call until there is room for it.
func (l *fullLog) do(what string, call func() error) {
	l.t.Helper()
	for {
		err := call()
		l.check(what)
		if err == nil {
			return
		}
		if !errors.Is(err, vfs.ErrExhausted) || !errors.Is(err, syscall.ENOSPC) || l.log.Err() != nil {
			l.t.Fatalf("%s: %v", what, err)
		}
		l.refusals++
		l.disk.AddSpace(9)
	}
}

// check wants a prefix of the records after any crash, with the synced ones.
func (l *fullLog) check(what string) {
	l.t.Helper()
	for _, seed := range []uint64{vfs.CrashLost, vfs.CrashKept, uint64(l.refusals)} {
		got, err := replay(l.mem.CrashClone(seed), l.segments)
		if err != nil || len(got) < l.synced || len(got) > len(l.records) || !slices.Equal(got, l.records[:len(got)]) {
			l.t.Fatalf("%s, seed %d: %d records of %d, %d of them synced: %v", what, seed, len(got), len(l.records), l.synced, err)
		}
	}
}

func (l *fullLog) rotate() error {
	l.next++ // a number that failed must not be used again
	num := l.next
	return l.log.Rotate(num, func(_ keys.FileNum, size int64) error {
		last := &l.segments[len(l.segments)-1]
		*last = Segment{Num: last.Num, Sealed: !l.log.o.Lazy, SizeBytes: size}
		l.segments = append(l.segments, Segment{Num: num})
		return nil
	})
}

func (l *fullLog) seal(num keys.FileNum, size int64) error {
	i := slices.Index(l.segments, Segment{Num: num, SizeBytes: size})
	l.segments[i].Sealed = true
	return nil
}

// A disk that is full at any byte of the log holds up each call and ends
// nothing: what was appended is written once there is room, in its order, and
// what was synced is there after a crash at any moment (invariant 14).
func TestNoRoom(t *testing.T) {
	refusals := 0
	for i := range 172 {
		lazy, space := i%2 == 1, int64(i/2*7)
		l := &fullLog{t: t, mem: vfs.NewMem(), segments: []Segment{{Num: 1}}, next: 1}
		if err := l.mem.MkdirAll("db"); err != nil {
			t.Fatal(err)
		}
		l.disk = vfs.NewFaulty(l.mem)
		var err error
		if l.log, err = Create(Options{FS: l.disk, Dir: "db", Store: store, Lazy: lazy, Seal: l.seal}, 1); err != nil {
			t.Fatal(err)
		}
		l.disk.LimitSpace(space)
		for i := range 12 {
			record := fmt.Sprintf("%d %s", i, bytes.Repeat([]byte{'x'}, i*37%100))
			var pos Position
			l.do("append", func() (err error) {
				pos, err = l.log.Append(nil, []byte(record), i%3 == 0)
				if err == nil {
					l.records = append(l.records, record)
				}
				return err
			})
			switch i % 6 {
			case 0, 3:
				l.do("sync", func() error { return l.log.Sync(pos) })
				l.synced = len(l.records)
			case 2:
				l.do("flush", l.log.Flush)
			case 4:
				l.do("rotate", l.rotate)
				if !lazy {
					l.synced = len(l.records)
				}
			}
		}
		if num, size, err := l.log.Close(); err != nil {
			if !errors.Is(err, syscall.ENOSPC) {
				t.Fatal(err)
			}
		} else {
			l.segments[len(l.segments)-1] = Segment{Num: num, Sealed: true, SizeBytes: size}
			l.synced = len(l.records)
		}
		l.check("close")
		names, err := l.mem.List("db")
		if err != nil || len(names) != len(l.segments) {
			t.Fatalf("%d segments, and %v: %v", len(l.segments), names, err)
		}
		refusals += l.refusals
	}
	t.Logf("%d refusals", refusals)
	if refusals < 1000 {
		t.Error("too few")
	}
}

// A record that was refused leaves nothing in the buffer, and those that wait
// do not grow.
func TestNoRoomTakesNothing(t *testing.T) {
	l := newTestLog(t)
	disk := vfs.NewFaulty(l.fs)
	l.o.FS = disk
	l.rotate(t) // to a segment of disk's
	disk.SetRules(vfs.Rule{Ops: vfs.OpWrite, Err: syscall.ENOSPC, Sticky: true})
	pos, err := l.Append(nil, []byte("waits"), true)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Sync(pos); !errors.Is(err, vfs.ErrExhausted) {
		t.Fatal(err)
	}
	for range 10 {
		if _, err := l.Append(nil, []byte("refused"), true); !errors.Is(err, vfs.ErrExhausted) || l.End() != pos {
			t.Fatalf("appended to %d, before %d: %v", l.End(), pos, err)
		}
	}
	disk.SetRules()
	if pos, err = l.Append(nil, []byte("taken"), true); err == nil {
		err = l.Sync(pos)
	}
	got, replayErr := replay(l.fs.CrashClone(vfs.CrashLost), l.segments)
	if err != nil || replayErr != nil || !slices.Equal(got, []string{"waits", "taken"}) {
		t.Errorf("%q: %v, %v", got, err, replayErr)
	}
}

// A record that nobody waits for is not forgotten because somebody else's, before
// it in the buffer, found no room; and who waits while Close finds none is told so.
func TestNoRoomWakes(t *testing.T) {
	mem := vfs.NewMem()
	if err := mem.MkdirAll("db"); err != nil {
		t.Fatal(err)
	}
	disk := vfs.NewFaulty(mem)
	woken := 0
	l, err := Create(Options{FS: disk, Dir: "db", Store: store, Wake: func() { woken++ }}, 1)
	if err != nil {
		t.Fatal(err)
	}
	disk.SetRules(vfs.Rule{Ops: vfs.OpWrite, Err: syscall.ENOSPC, Sticky: true})
	pos, err := l.Append(nil, []byte("somebody waits"), true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append(nil, []byte("nobody waits"), false); err != nil || woken != 0 {
		t.Fatalf("woken %d times: %v", woken, err)
	}
	if err := l.Sync(pos); !errors.Is(err, vfs.ErrExhausted) || woken != 1 {
		t.Errorf("woken %d times: %v", woken, err)
	}
	if _, _, err := l.Close(); !errors.Is(err, vfs.ErrExhausted) {
		t.Errorf("close: %v", err)
	}
	if err := l.Sync(pos); !errors.Is(err, vfs.ErrExhausted) {
		t.Errorf("sync after close: %v", err)
	}
}

// What cannot be taken back for certain is final, and so is a sync that fails
// for want of space.
func TestNoRoomIsFinal(t *testing.T) {
	noSpace := vfs.Rule{Ops: vfs.OpWrite, Err: syscall.ENOSPC, Bytes: 5}
	for name, rules := range map[string][]vfs.Rule{
		"a cut that fails":          {noSpace, {Ops: vfs.OpTruncate, Err: syscall.EIO}},
		"a proof that fails":        {noSpace, {Ops: vfs.OpSync, Err: syscall.EIO}},
		"a sync without space":      {{Ops: vfs.OpSync, Err: syscall.ENOSPC}},
		"a late sync without space": {{Ops: vfs.OpSync, Err: syscall.ENOSPC, After: true}},
		"a write that fails by EIO": {{Ops: vfs.OpWrite, Err: syscall.EIO}},
	} {
		l := newTestLog(t)
		disk := vfs.NewFaulty(l.fs)
		l.o.FS = disk
		l.rotate(t)
		disk.SetRules(rules...)
		pos, err := l.Append(nil, []byte("lost"), true)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Sync(pos); err == nil || errors.Is(err, vfs.ErrExhausted) || l.Err() == nil {
			t.Errorf("%s: sync: %v", name, err)
		}
		syncs := disk.Count(vfs.OpSync)
		if err := l.Sync(pos); err == nil || disk.Count(vfs.OpSync) != syncs {
			t.Errorf("%s: tried again: %v", name, err)
		}
		if _, err := l.Append(nil, nil, true); err == nil {
			t.Errorf("%s: took another record", name)
		}
	}
}

// A rotation that the manifest has no room for leaves the log in its segment,
// and no file of the other.
func TestRotationWithoutRoom(t *testing.T) {
	l := newTestLog(t)
	if _, err := l.Append(nil, []byte("one"), true); err != nil {
		t.Fatal(err)
	}
	noRoom := fmt.Errorf("manifest: %w", vfs.ErrExhausted)
	if err := l.Rotate(2, func(keys.FileNum, int64) error { return noRoom }); !errors.Is(err, noRoom) {
		t.Fatal(err)
	}
	if _, err := l.fs.Stat(filepath.Join("db", SegmentName(2))); err == nil {
		t.Error("the new segment is still there")
	}
	if got, err := replay(l.fs.CrashClone(vfs.CrashLost), l.segments); err != nil || !slices.Equal(got, []string{"one"}) {
		t.Errorf("%q: %v", got, err)
	}
	pos, err := l.Append(nil, []byte("two"), true)
	if err == nil {
		err = l.Sync(pos)
	}
	if got, replayErr := replay(l.fs.CrashClone(vfs.CrashLost), l.segments); err != nil || replayErr != nil || !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("%q: %v, %v", got, err, replayErr)
	}
}
