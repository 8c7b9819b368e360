package manifest

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"sievedb/internal/corrupt"
	"sievedb/internal/keys"
	"sievedb/vfs"
)

const dir = "db"

// probe is a file system that calls before ahead of every operation that could
// change something; an error of before is the operation's, which then does
// nothing.
type probe struct {
	vfs.FS
	before func(op string) error
}

type probeFile struct {
	vfs.File
	before func(op string) error
}

func (p *probe) Create(name string) (vfs.File, error) {
	if err := p.before("create"); err != nil {
		return nil, err
	}
	f, err := p.FS.Create(name)
	return &probeFile{f, p.before}, err
}

func (p *probe) OpenReadWrite(name string) (vfs.File, error) {
	if err := p.before("open for writing"); err != nil {
		return nil, err
	}
	f, err := p.FS.OpenReadWrite(name)
	return &probeFile{f, p.before}, err
}

func (p *probe) Remove(name string) error {
	if err := p.before("remove"); err != nil {
		return err
	}
	return p.FS.Remove(name)
}

func (p *probe) Rename(oldName, newName string) error {
	if err := p.before("rename"); err != nil {
		return err
	}
	return p.FS.Rename(oldName, newName)
}

func (p *probe) SyncDir(name string) error {
	if err := p.before("sync directory"); err != nil {
		return err
	}
	return p.FS.SyncDir(name)
}

func (f *probeFile) Write(p []byte) (int, error) {
	if err := f.before("write"); err != nil {
		return 0, err
	}
	return f.File.Write(p)
}

func (f *probeFile) Sync() error {
	if err := f.before("sync"); err != nil {
		return err
	}
	return f.File.Sync()
}

// newMem returns an in-memory file system with an empty, durable directory.
func newMem(t testing.TB) *vfs.Mem {
	t.Helper()
	mem := vfs.NewMem()
	if err := mem.MkdirAll(dir); err != nil {
		t.Fatal(err)
	}
	return mem
}

func firstState() *State {
	return &State{NextFileNum: 10, StoreID: [16]byte{1, 2, 3}}
}

func mustCreate(t testing.TB, fsys vfs.FS, num keys.FileNum, st *State) *Log {
	t.Helper()
	l, err := Create(fsys, dir, num, st)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func mustAppend(t testing.TB, l *Log, edits ...*Edit) {
	t.Helper()
	for _, e := range edits {
		if err := l.Append(e); err != nil {
			t.Fatal(err)
		}
	}
}

func path(name string) string { return dir + "/" + name }

func readFile(t testing.TB, fsys vfs.FS, name string) []byte {
	t.Helper()
	f, err := fsys.Open(path(name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, size)
	if _, err := f.ReadAt(b, 0); err != nil && size > 0 {
		t.Fatal(err)
	}
	return b
}

func writeFile(t testing.TB, fsys vfs.FS, name string, content []byte) {
	t.Helper()
	f, err := fsys.Create(path(name))
	if err != nil {
		t.Fatal(err)
	}
	if err := writeAndSync(f, content); err != nil {
		t.Fatal(err)
	}
	f.Close()
}

// dump prints all of a state but the manifest's number.
func dump(st *State) string {
	var b strings.Builder
	fmt.Fprintf(&b, "next %d last %d id %x segments %v\n", st.NextFileNum, st.LastSeq, st.StoreID, st.Segments)
	for level, tables := range st.Version.Levels {
		for _, t := range tables {
			fmt.Fprintf(&b, "L%d %+v\n", level, *t)
		}
	}
	return b.String()
}

// loaded tells what Load finds: a dump, "fresh", or the error.
func loaded(fsys vfs.FS) string {
	st, err := Load(fsys, dir)
	switch {
	case err == nil:
		return dump(st)
	case errors.Is(err, fs.ErrNotExist):
		return "fresh"
	}
	return err.Error()
}

// someEdits fit firstState, one after another.
func someEdits() []*Edit {
	flush := add(0, table(12, "a", "m", 1, 50))
	flush.NextFileNum, flush.LastSeq, flush.OldestSegment = 13, 50, 11
	again := add(0, table(13, "c", "z", 51, 70))
	again.NextFileNum, again.LastSeq = 14, 70
	compact := add(1, table(15, "a", "h", 1, 60), table(16, "i", "z", 1, 70))
	compact.Removed, compact.NextFileNum = []LevelFile{{0, 12}, {0, 13}}, 17
	return []*Edit{
		{NextFileNum: 12, AddedSegments: []keys.FileNum{10}},
		{AddedSegments: []keys.FileNum{11}, EndedSegments: []SegmentEnd{{10, 4711, true}}},
		flush,
		again,
		compact,
	}
}

func TestCreateAppendLoad(t *testing.T) {
	mem := newMem(t)
	if _, err := Load(mem, dir); !errors.Is(err, fs.ErrNotExist) || errors.Is(err, corrupt.ErrCorrupt) {
		t.Fatalf("of an empty directory: %v", err)
	}
	l := mustCreate(t, mem, 9, firstState())
	mustAppend(t, l, someEdits()...)
	st, err := Load(mem, dir)
	if err != nil {
		t.Fatal(err)
	}
	if dump(st) != dump(l.State()) {
		t.Errorf("got\n%swant\n%s", dump(st), dump(l.State()))
	}
	if st.ManifestNum != 9 || st.NextFileNum != 17 || st.LastSeq != 70 || st.StoreID != firstState().StoreID ||
		!slices.Equal(st.Segments, []Segment{{FileNum: 11}}) || st.Version.Tables() != 2 {
		t.Errorf("got %+v", st)
	}
	if size := int64(len(readFile(t, mem, ManifestName(9)))); size != l.SizeBytes() {
		t.Errorf("the manifest has %d bytes, SizeBytes says %d", size, l.SizeBytes())
	}

	// A new manifest holds the same state.
	mustAppend(t, l, &Edit{NextFileNum: 18})
	want := dump(l.State())
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l2 := mustCreate(t, mem, 17, l.State())
	if err := mem.Remove(path(ManifestName(9))); err != nil {
		t.Fatal(err)
	}
	if got := loaded(mem); got != want || dump(l2.State()) != want || l2.State().ManifestNum != 17 {
		t.Errorf("after a rewrite got\n%swant\n%s", got, want)
	}
	if l2.SizeBytes() >= l.SizeBytes() {
		t.Errorf("the rewrite has %d bytes, the manifest before it %d", l2.SizeBytes(), l.SizeBytes())
	}
	if names, _ := mem.List(dir); !slices.Equal(names, []string{CurrentName, ManifestName(17)}) {
		t.Errorf("files: %v", names)
	}
}

// An edit that does not fit is refused and leaves no trace.
func TestAppendRefuses(t *testing.T) {
	withNext := func(next keys.FileNum, e *Edit) *Edit {
		e.NextFileNum, e.LastSeq = next, 80
		return e
	}
	mem := newMem(t)
	l := mustCreate(t, mem, 9, firstState())
	mustAppend(t, l, someEdits()...)
	for name, c := range map[string]struct {
		edit *Edit
		want string
	}{
		"a version that Apply refuses":               {withNext(30, add(1, table(20, "b", "c", 1, 1))), "000020"},
		"invariant 16: a table of the next number":   {withNext(20, add(2, table(20, "b", "c", 1, 1))), "000020"},
		"invariant 16: segment of the next number":   {&Edit{AddedSegments: []keys.FileNum{17}}, "000017"},
		"invariant 16: oldest segment not given out": {&Edit{OldestSegment: 18}, "000018"},
		"a table newer than the last number":         {&Edit{NextFileNum: 30, Added: add(0, table(20, "b", "c", 75, 75)).Added}, "000020"},
		"a last number of 57 bits":                   {&Edit{LastSeq: keys.MaxSeqNum + 1}, "sequence number"},
		"a segment below a live one":                 {&Edit{AddedSegments: []keys.FileNum{10}}, "000010"},
		"a segment that is live":                     {&Edit{AddedSegments: []keys.FileNum{11}}, "000011"},
		"sealing an obsolete segment":                {&Edit{EndedSegments: []SegmentEnd{{10, 1, true}}}, "000010"},
		"sealing twice":                              {&Edit{EndedSegments: []SegmentEnd{{11, 1, true}, {11, 1, true}}}, "000011"},
		"sealing what ended elsewhere":               {&Edit{EndedSegments: []SegmentEnd{{11, 50, false}, {11, 51, true}}}, "000011"},
		"ending twice":                               {&Edit{EndedSegments: []SegmentEnd{{11, 50, false}, {11, 50, false}}}, "000011"},
		"ending at nothing":                          {&Edit{EndedSegments: []SegmentEnd{{11, 0, false}}}, "000011"},
		"a segment behind one that may grow":         {&Edit{NextFileNum: 30, AddedSegments: []keys.FileNum{20}}, "000020"},
		"sealing behind one that only ended": {&Edit{NextFileNum: 30, AddedSegments: []keys.FileNum{20},
			EndedSegments: []SegmentEnd{{11, 50, false}, {20, 50, true}}}, "000020"},
	} {
		before, size := dump(l.State()), l.SizeBytes()
		if err := l.Append(c.edit); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), ManifestName(9)) {
			t.Errorf("%s: %v", name, err)
		}
		if dump(l.State()) != before || l.SizeBytes() != size || loaded(mem) != before {
			t.Errorf("%s: left a trace", name)
		}
	}
	mustAppend(t, l, &Edit{EndedSegments: []SegmentEnd{{11, 50, false}}}, &Edit{EndedSegments: []SegmentEnd{{11, 50, true}}})
}

// Numbers only ever rise, whatever the order of edits prepared side by side.
func TestNumbersRise(t *testing.T) {
	l := mustCreate(t, newMem(t), 9, firstState())
	mustAppend(t, l, &Edit{NextFileNum: 50, LastSeq: 100, AddedSegments: []keys.FileNum{20, 30}, EndedSegments: []SegmentEnd{{20, 50, false}}},
		&Edit{NextFileNum: 40, LastSeq: 90}, &Edit{OldestSegment: 30}, &Edit{OldestSegment: 20})
	st := l.State()
	if st.NextFileNum != 50 || st.LastSeq != 100 || !slices.Equal(st.Segments, []Segment{{FileNum: 30}}) {
		t.Errorf("got %+v", st)
	}
}

func TestCreateRefuses(t *testing.T) {
	overlap := firstState()
	overlap.Version = &Version{}
	overlap.Version.Levels[1] = []*TableMeta{table(1, "a", "c", 0, 0), table(2, "c", "d", 0, 0)}
	for name, c := range map[string]struct {
		num  keys.FileNum
		st   *State
		want string
	}{
		"invariant 16: the next number": {10, firstState(), "000010"},
		"tables that overlap":           {9, overlap, "000002"},
		"a number that is taken":        {8, firstState(), "file already exists"},
	} {
		mem := newMem(t)
		writeFile(t, mem, ManifestName(8), []byte("old"))
		files, _ := mem.List(dir)
		if _, err := Create(mem, dir, c.num, c.st); err == nil || !strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), ManifestName(c.num)) {
			t.Errorf("%s: %v", name, err)
		}
		if now, _ := mem.List(dir); !slices.Equal(now, files) || string(readFile(t, mem, ManifestName(8))) != "old" {
			t.Errorf("%s: changed the directory to %v", name, now)
		}
	}
}

// crashing returns a file system over mem that crashes, in clones, before
// every operation and checks that Load then finds one of the outcomes that
// allowed holds at that moment.
func crashing(t *testing.T, mem *vfs.Mem, rng *rand.Rand, allowed *[]string) *probe {
	ops := 0
	p := &probe{FS: mem, before: func(op string) error {
		ops++
		for _, seed := range []uint64{vfs.CrashLost, vfs.CrashKept, rng.Uint64(), rng.Uint64(), rng.Uint64()} {
			if got := loaded(mem.CrashClone(seed)); !slices.Contains(*allowed, got) {
				t.Fatalf("crash (seed %d) before operation %d, %s: got\n%s\nallowed are\n%s",
					seed, ops, op, got, strings.Join(*allowed, "or\n"))
			}
		}
		return nil
	}}
	return p
}

// Invariants 14 and 15: a crash at any moment shows a state that was in force
// or was about to be, and one that an operation reported done from then on.
func TestCrashAnywhere(t *testing.T) {
	rng := newRand(t)
	for range 20 {
		mem := newMem(t)
		allowed := []string{"fresh"}
		p := crashing(t, mem, rng, &allowed)

		first := firstState()
		first.Version = &Version{}
		allowed = append(allowed, dump(first))
		l := mustCreate(t, p, 9, first)
		allowed = []string{dump(l.State())}
		for i, e := range someEdits() {
			next, err := l.State().Apply(e)
			if err != nil {
				t.Fatal(err)
			}
			allowed = append(allowed, dump(next))
			mustAppend(t, l, e)
			allowed = allowed[1:]
			if i == 2 {
				next, _ := l.State().Apply(&Edit{NextFileNum: 15})
				allowed = append(allowed, dump(next))
				l2 := mustCreate(t, p, 14, next)
				allowed = allowed[1:]
				l.Close()
				if err := p.FS.Remove(path(ManifestName(9))); err != nil {
					t.Fatal(err)
				}
				l = l2
			}
		}
		if err := l.Vouch(); err != nil {
			t.Fatal(err)
		}
		p.before("the end")
	}
}

// Random edits on a log, against the state that State.Apply computes, after
// crashes of every kind and rewrites.
func TestRandomEdits(t *testing.T) {
	rng := newRand(t)
	mem := newMem(t)
	l := mustCreate(t, mem, 9, firstState())
	next, appended, refused := keys.FileNum(11), 0, 0
	for range 600 {
		e := randomEdit(rng, l.State().Version, next)
		next += 10
		e.NextFileNum, e.LastSeq = next, 2000
		if rng.IntN(3) == 0 {
			e.AddedSegments = []keys.FileNum{next - 1}
		}
		for _, seg := range l.State().Segments {
			end := SegmentEnd{seg.FileNum, max(seg.SizeBytes, 1+rng.Uint64N(1000)), false}
			if !seg.Ended() && rng.IntN(2) == 0 {
				e.EndedSegments = append(e.EndedSegments, end)
			}
			if end.Sealed = true; !seg.Sealed && rng.IntN(3) == 0 {
				e.EndedSegments = append(e.EndedSegments, end)
			}
			if rng.IntN(6) == 0 {
				e.OldestSegment = seg.FileNum + 1
			}
		}
		before := dump(l.State())
		if err := l.Append(e); err != nil {
			refused++
			if dump(l.State()) != before {
				t.Fatal("an edit that was refused changed the state")
			}
		} else {
			appended++
		}
		for _, seed := range []uint64{vfs.CrashLost, vfs.CrashKept, rng.Uint64()} {
			if got := loaded(mem.CrashClone(seed)); got != dump(l.State()) {
				t.Fatalf("crash (seed %d): got\n%s\nwant\n%s", seed, got, dump(l.State()))
			}
		}
		if rng.IntN(20) == 0 {
			old := l
			st, err := old.State().Apply(&Edit{NextFileNum: next})
			if err != nil {
				t.Fatal(err)
			}
			l = mustCreate(t, mem, next-2, st)
			old.Close()
			if err := mem.Remove(path(old.name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if appended < 100 || refused < 30 {
		t.Errorf("%d edits appended and %d refused: the test is lopsided", appended, refused)
	}
}

// Invariant 14: a failed write or sync is final, and the outcome of its edit
// is not known; a new manifest without it settles the matter.
func TestAppendFailureIsSticky(t *testing.T) {
	boom := errors.New("boom")
	for _, failing := range []string{"write", "sync"} {
		mem := newMem(t)
		fail, calls := false, 0
		p := &probe{FS: mem, before: func(op string) error {
			calls++
			if fail && op == failing {
				return boom
			}
			return nil
		}}
		l := mustCreate(t, p, 9, firstState())
		edits := someEdits()
		mustAppend(t, l, edits[0])
		before := dump(l.State())
		fail = true
		err := l.Append(edits[1])
		if !errors.Is(err, boom) || !strings.Contains(err.Error(), ManifestName(9)) {
			t.Fatalf("%s: %v", failing, err)
		}
		fail, calls = false, 0
		if again := l.Append(&Edit{}); again != err {
			t.Errorf("%s: then %v", failing, again)
		}
		if again := l.Vouch(); again != err {
			t.Errorf("%s: then Vouch: %v", failing, again)
		}
		if calls != 0 {
			t.Errorf("%s: %d operations after the failure", failing, calls)
		}
		if dump(l.State()) != before {
			t.Errorf("%s: the state has the edit", failing)
		}
		l2 := mustCreate(t, p, 8, l.State())
		mustAppend(t, l2, edits[1])
		if got := loaded(mem.CrashClone(vfs.CrashLost)); got != dump(l2.State()) {
			t.Errorf("%s: after a new manifest got\n%s", failing, got)
		}
	}
}

// Whatever fails in Create, the old state or the new one is there.
func TestCreateFailures(t *testing.T) {
	boom := errors.New("boom")
	mem := newMem(t)
	l := mustCreate(t, mem, 9, firstState())
	mustAppend(t, l, someEdits()...)
	want := dump(l.State())
	for failAt := 0; ; failAt++ {
		fsys := mem.CrashClone(vfs.CrashKept)
		n := 0
		var failed string
		p := &probe{FS: fsys, before: func(op string) error {
			n++
			if n-1 == failAt {
				failed = op
				return boom
			}
			return nil
		}}
		_, err := Create(p, dir, 16, l.State())
		if err == nil {
			if failAt != 9 {
				t.Errorf("Create has %d operations, want 9", failAt)
			}
			return
		}
		if !errors.Is(err, boom) || !strings.Contains(err.Error(), ManifestName(16)) {
			t.Errorf("%s failed: %v", failed, err)
		}
		for _, seed := range []uint64{vfs.CrashLost, vfs.CrashKept, 7} {
			if got := loaded(fsys.CrashClone(seed)); got != want {
				t.Errorf("%s failed, crash %d: got\n%s", failed, seed, got)
			}
		}
	}
}
