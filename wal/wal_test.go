package wal

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"sievedb/internal/corrupt"
	"sievedb/internal/keys"
	"sievedb/internal/record"
	"sievedb/vfs"
)

var store = StoreID{1, 2, 3, 15: 16}

// testLog is a log on a crashable file system, beside what its owner, the
// manifest in life, knows of its segments.
type testLog struct {
	*Log
	fs       *vfs.Mem
	segments []Segment
	sealErr  error // what Options.Seal returns
}

func newTestLog(t testing.TB) *testLog {
	t.Helper()
	mem := vfs.NewMem()
	return newTestLogOn(t, mem, mem, false)
}

// newTestLogOn returns a log on disk, which is mem or above it.
func newTestLogOn(t testing.TB, mem *vfs.Mem, disk vfs.FS, lazy bool) *testLog {
	t.Helper()
	l := &testLog{fs: mem, segments: []Segment{{Num: 1}}}
	if err := l.fs.MkdirAll("db"); err != nil {
		t.Fatal(err)
	}
	log, err := Create(Options{FS: disk, Dir: "db", Store: store, Lazy: lazy, Seal: l.seal}, 1)
	if err != nil {
		t.Fatal(err)
	}
	l.Log = log
	return l
}

func (l *testLog) seal(num keys.FileNum, size int64) error {
	if l.sealErr != nil {
		return l.sealErr
	}
	for i := range l.segments {
		if s := &l.segments[i]; s.Num == num {
			if s.Sealed || s.SizeBytes != size {
				return fmt.Errorf("sealing %+v with %d bytes", *s, size)
			}
			s.Sealed = true
			return nil
		}
		if !l.segments[i].Sealed {
			break
		}
	}
	return fmt.Errorf("sealing segment %d, of %v", num, l.segments)
}

// release has a table take what is in all segments but the last n.
func (l *testLog) release(n int) {
	l.segments = l.segments[max(0, len(l.segments)-n):]
	l.Release(l.segments[0].Num)
}

func (l *testLog) rotate(t testing.TB) {
	t.Helper()
	next := l.segments[len(l.segments)-1].Num + 1
	err := l.Rotate(next, func(old keys.FileNum, size int64) error {
		last := &l.segments[len(l.segments)-1]
		if last.Num != old {
			return fmt.Errorf("sealed segment %d, not %d", old, last.Num)
		}
		last.Sealed, last.SizeBytes = !l.o.Lazy, size
		l.segments = append(l.segments, Segment{Num: next})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// replay reads a log as recovery does: up to the first segment that lacks a part.
func replay(fs vfs.FS, segments []Segment) (records []string, err error) {
	for _, s := range segments {
		good, err := Replay(fs, "db", store, s, func(p []byte) error {
			records = append(records, string(p))
			return nil
		})
		if err != nil || good < s.SizeBytes {
			return records, err
		}
	}
	return records, nil
}

func TestHeaderGolden(t *testing.T) {
	const want = "534945564557414c" + "01000000" + "076a22ce" + "0700000000000000" + "01020300000000000000000000000010"
	if got := hex.EncodeToString(appendHeader(nil, 7, store)); got != want {
		t.Errorf("header = %s, want %s", got, want)
	}
}

// After any operation and any crash, the records are a prefix of those that
// were appended and not released, and hold all that Sync made durable, and Rotate
// unless it is lazy.
func TestCrashAfterEveryOperation(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 7))
		mem := vfs.NewMem()
		l := newTestLogOn(t, mem, mem, seed%2 == 1)
		var want []string
		starts := map[keys.FileNum]int{1: 0} // of want, by segment
		durable, flushed := 0, 0
		for op := range 60 {
			switch rng.IntN(9) {
			case 0:
				if err := l.Flush(); err != nil {
					t.Fatal(err)
				}
				flushed = len(want)
			case 1:
				l.rotate(t)
				if flushed = len(want); !l.o.Lazy {
					durable = len(want)
				}
				starts[l.segments[len(l.segments)-1].Num] = len(want)
			case 2:
				if err := l.Sync(l.End()); err != nil {
					t.Fatal(err)
				}
				durable, flushed = len(want), len(want)
			case 3:
				l.release(1 + rng.IntN(3))
			default:
				rec := fmt.Sprintf("%d:%s", op, strings.Repeat("x", rng.IntN(600)))
				pos, err := l.Append([]byte(rec[:1]), []byte(rec[1:]), false)
				if err != nil {
					t.Fatal(err)
				}
				want = append(want, rec)
				if rng.IntN(3) == 0 {
					if err := l.Sync(pos); err != nil {
						t.Fatal(err)
					}
					durable, flushed = len(want), len(want)
				}
			}
			released := starts[l.segments[0].Num]
			for crash := range uint64(6) {
				atLeast := durable
				if crash == vfs.CrashKept {
					atLeast = flushed
				}
				got, err := replay(l.fs.CrashClone(crash), l.segments)
				if err != nil || released+len(got) < atLeast || released+len(got) > len(want) || !equalPrefix(got, want[released:]) {
					t.Fatalf("seed %d, operation %d, crash %d: %d records of %d, behind %d released ones, %d durable: %v", seed, op, crash, len(got), len(want), released, atLeast, err)
				}
			}
		}
	}
}

func equalPrefix(got, want []string) bool {
	for i := range got {
		if got[i] != want[i] {
			return false
		}
	}
	return true
}

// Invariant 11, between two crashes: the torn tail is sealed before another
// segment follows, so that the second recovery does not take it for damage.
func TestSealAfterTornTail(t *testing.T) {
	l := newTestLog(t)
	pos, _ := l.Append(nil, []byte("durable"), true)
	if err := l.Sync(pos); err != nil {
		t.Fatal(err)
	}
	l.Append(nil, bytes.Repeat([]byte("torn"), 2000), false)
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	for crash := range uint64(40) {
		fs := l.fs.CrashClone(crash)
		good, err := Replay(fs, "db", store, l.segments[0], func([]byte) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		if err := Seal(fs, "db", 1, good); err != nil {
			t.Fatal(err)
		}
		fs = fs.CrashClone(vfs.CrashLost)
		got, err := replay(fs, []Segment{{Num: 1, Sealed: true, SizeBytes: good}})
		if err != nil || len(got) < 1 || got[0] != "durable" {
			t.Fatalf("crash %d: %d records, %v", crash, len(got), err)
		}
	}
}

func writeFile(t *testing.T, fs vfs.FS, name string, data []byte) {
	t.Helper()
	f, err := fs.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func readFile(t *testing.T, fs vfs.FS, name string) []byte {
	t.Helper()
	f, err := fs.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		t.Fatal(err)
	}
	p := make([]byte, size)
	if _, err := f.ReadAt(p, 0); err != nil {
		t.Fatal(err)
	}
	return p
}

// A segment that the manifest knows as sealed has no torn tail: every cut and
// every flipped bit is located damage, and no wrong record comes out.
func TestSealedSegmentDamage(t *testing.T) {
	l := newTestLog(t)
	want := []string{"one", "two", "three"}
	for _, rec := range want {
		if _, err := l.Append(nil, []byte(rec), false); err != nil {
			t.Fatal(err)
		}
	}
	l.rotate(t)
	sealed := l.segments[:1]
	name := filepath.Join("db", SegmentName(1))
	whole := readFile(t, l.fs, name)
	check := func(what string, damaged []byte) {
		t.Helper()
		writeFile(t, l.fs, name, damaged)
		got, err := replay(l.fs, sealed)
		var c *corrupt.Error
		if !errors.Is(err, ErrVersion) && !errors.As(err, &c) || !equalPrefix(got, want) {
			t.Fatalf("%s: %q, %v", what, got, err)
		}
		if c != nil && c.File != SegmentName(1) {
			t.Fatalf("%s: the error does not name the file: %v", what, err)
		}
	}
	for cut := range whole {
		check(fmt.Sprint("cut at ", cut), whole[:cut])
	}
	for bit := range len(whole) * 8 {
		bad := bytes.Clone(whole)
		bad[bit/8] ^= 1 << (bit % 8)
		check(fmt.Sprint("bit ", bit), bad)
	}
	check("bytes too many", append(bytes.Clone(whole), 0))
	if err := l.fs.Remove(name); err != nil {
		t.Fatal(err)
	}
	var c *corrupt.Error
	if _, err := replay(l.fs, sealed); !errors.As(err, &c) || c.File != SegmentName(1) {
		t.Errorf("a missing segment: %v", err)
	}
}

func TestSegmentsOfOthers(t *testing.T) {
	l := newTestLog(t)
	name := func(num keys.FileNum) string { return filepath.Join("db", SegmentName(num)) }
	writeFile(t, l.fs, name(8), readFile(t, l.fs, name(1)))
	if _, err := replay(l.fs, []Segment{{Num: 8}}); !errors.Is(err, corrupt.ErrCorrupt) {
		t.Errorf("a segment under another number: %v", err)
	}
	_, err := Replay(l.fs, "db", StoreID{9}, Segment{Num: 1}, func([]byte) error { return nil })
	if !errors.Is(err, corrupt.ErrCorrupt) {
		t.Errorf("a segment of another store: %v", err)
	}
	hdr := appendHeader(nil, 9, store)
	hdr[8] = formatVersion + 1
	writeFile(t, l.fs, name(9), hdr)
	if _, err := replay(l.fs, []Segment{{Num: 9}}); !errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), SegmentName(9)) {
		t.Errorf("another version: %v", err)
	}
}

// Concurrent committers share syncs: each waits for its own record only, and
// all that returned survive.
func TestGroupCommit(t *testing.T) {
	l := newTestLog(t)
	var commit sync.Mutex
	var wg sync.WaitGroup
	const writers, each = 8, 50
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				commit.Lock()
				pos, err := l.Append(nil, []byte(fmt.Sprintf("%d/%d", w, i)), true)
				commit.Unlock()
				if err == nil {
					err = l.Sync(pos)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	got, err := replay(l.fs.CrashClone(vfs.CrashLost), l.segments)
	if err != nil || len(got) != writers*each {
		t.Errorf("%d records, %v", len(got), err)
	}
	if m := l.Metrics(); m.Syncs > m.Appends || m.Appends != writers*each {
		t.Errorf("%+v", m)
	}
}

// A log that is synced finds its place prepared, as much again as it has; one that
// is not has no use for that.
func TestPreallocation(t *testing.T) {
	l := newTestLog(t)
	disk := vfs.NewFaulty(l.fs)
	l.o.FS = disk
	l.rotate(t)
	p := make([]byte, maxAheadBytes/8)
	for i, want := range []int{0, 0, 1, 1, 1, 1, 2, 2, 2, 2} {
		pos, err := l.Append(nil, p, i >= 2)
		if err != nil {
			t.Fatal(err)
		}
		if i < 2 {
			err = l.Flush()
		} else {
			err = l.Sync(pos)
		}
		if n := disk.Count(vfs.OpPreallocate); n != want || err != nil {
			t.Errorf("%d times after record %d, want %d; %v", n, i, want, err)
		}
		size := func(records int64) uint64 { return uint64(HeaderLen + records*record.Size(int64(len(p)))) }
		if got, want := l.Metrics().ZeroBytes, []uint64{0, size(3), size(3) + size(7)}[want]; got != want {
			t.Errorf("%d zeros after record %d, want %d", got, i, want)
		}
	}
	zeros := l.Metrics().ZeroBytes
	disk.SetRules(vfs.Rule{Ops: vfs.OpPreallocate, Err: vfs.ErrExhausted})
	for range 8 {
		pos, _ := l.Append(nil, p, true)
		if err := l.Sync(pos); err != nil {
			t.Error(err)
		}
	}
	if n := disk.Count(vfs.OpPreallocate); n != 3 || l.Metrics().ZeroBytes != zeros {
		t.Errorf("%d zeros more, in %d times, the last of which failed", l.Metrics().ZeroBytes-zeros, n)
	}
	if got, err := replay(l.fs.CrashClone(vfs.CrashKept), l.segments); len(got) != 18 || err != nil {
		t.Errorf("%d records, %v", len(got), err)
	}
}

// A failed write or sync is final: nothing is tried again, and everybody who
// waits or comes later hears of it. What was durable before stays so.
func TestFailureIsSticky(t *testing.T) {
	for _, what := range []string{"write", "sync"} {
		mem := vfs.NewMem()
		if err := mem.MkdirAll("db"); err != nil {
			t.Fatal(err)
		}
		fs := &breakable{FS: mem}
		l, err := Create(Options{FS: fs, Dir: "db", Store: store}, 1)
		if err != nil {
			t.Fatal(err)
		}
		first, _ := l.Append(nil, []byte("durable"), true)
		if err := l.Sync(first); err != nil {
			t.Fatal(err)
		}
		fs.broken = what
		pos, err := l.Append(nil, []byte("lost"), true)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Sync(pos); !errors.Is(err, errBroken) {
			t.Errorf("%s: Sync returned %v", what, err)
		}
		fs.broken = ""
		if _, err := l.Append(nil, []byte("more"), true); !errors.Is(err, errBroken) {
			t.Errorf("%s: Append returned %v", what, err)
		}
		if err := l.Sync(pos); !errors.Is(err, errBroken) {
			t.Errorf("%s: the sync was tried again: %v", what, err)
		}
		if err := l.Rotate(2, func(keys.FileNum, int64) error { return nil }); !errors.Is(err, errBroken) {
			t.Errorf("%s: Rotate returned %v", what, err)
		}
		if err := l.Sync(first); err != nil {
			t.Errorf("%s: what was durable is not any more: %v", what, err)
		}
		if _, _, err := l.Close(); !errors.Is(err, errBroken) {
			t.Errorf("%s: Close returned %v", what, err)
		}
	}
}

var errBroken = errors.New("broken")

// breakable fails every write or every sync while broken says so.
type breakable struct {
	vfs.FS
	broken string
}

func (b *breakable) Create(name string) (vfs.File, error) {
	f, err := b.FS.Create(name)
	return &breakableFile{f, b}, err
}

type breakableFile struct {
	vfs.File
	b *breakable
}

func (f *breakableFile) Write(p []byte) (int, error) {
	if f.b.broken == "write" {
		return 0, errBroken
	}
	return f.File.Write(p)
}

func (f *breakableFile) Sync() error {
	if f.b.broken == "sync" {
		return errBroken
	}
	return f.File.Sync()
}

func TestWake(t *testing.T) {
	mem := vfs.NewMem()
	if err := mem.MkdirAll("db"); err != nil {
		t.Fatal(err)
	}
	woken := 0
	l, err := Create(Options{FS: mem, Dir: "db", Wake: func() { woken++ }}, 1)
	if err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 1000)
	for range 10 {
		l.Append(nil, p, true)
	}
	if woken != 0 {
		t.Errorf("woken %d times for records that somebody waits for", woken)
	}
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		l.Append(nil, p, false)
	}
	if woken != 2 || !l.Worth() {
		t.Errorf("woken %d times, want once for the first byte and once for a worthwhile write", woken)
	}
	// A writer that outruns the disk writes by itself.
	for range 2 * maxBufferBytes / len(p) {
		l.Append(nil, p, false)
	}
	if n := l.Metrics().Writes; n < 2 || n > 4 {
		t.Errorf("%d writes", n)
	}
}

func TestClose(t *testing.T) {
	l := newTestLog(t)
	pos, _ := l.Append(nil, []byte("last"), false)
	num, size, err := l.Close()
	if num != 1 || err != nil {
		t.Fatalf("segment %d, %v", num, err)
	}
	if err := l.Sync(pos); err != nil {
		t.Errorf("what Close made durable: %v", err)
	}
	if _, err := l.Append(nil, nil, false); err == nil {
		t.Error("a closed log took a record")
	}
	got, err := replay(l.fs.CrashClone(vfs.CrashLost), []Segment{{Num: 1, Sealed: true, SizeBytes: size}})
	if err != nil || len(got) != 1 || got[0] != "last" {
		t.Errorf("%q, %v", got, err)
	}
}

func FuzzReplay(f *testing.F) {
	f.Add([]byte{})
	f.Add(appendHeader(nil, 1, store))
	f.Fuzz(func(t *testing.T, chunks []byte) {
		fs := vfs.NewMem()
		if err := fs.MkdirAll("db"); err != nil {
			t.Fatal(err)
		}
		segment := append(appendHeader(nil, 1, store), chunks...)
		writeFile(t, fs, filepath.Join("db", SegmentName(1)), segment)
		good, err := Replay(fs, "db", store, Segment{Num: 1}, func([]byte) error { return nil })
		if good > int64(len(segment)) || err == nil && good < HeaderLen {
			t.Fatalf("good to %d of %d, %v", good, len(segment), err)
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	l := newTestLog(b)
	head, body := make([]byte, 12), make([]byte, 130)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := l.Append(head, body, true); err != nil {
			b.Fatal(err)
		}
		if i%100000 == 99999 {
			l.rotate(b)
			if err := l.fs.Remove(filepath.Join("db", SegmentName(l.segments[0].Num))); err != nil {
				b.Fatal(err)
			}
			l.segments = l.segments[1:]
		}
	}
}
