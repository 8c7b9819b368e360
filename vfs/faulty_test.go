package vfs_test

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"

	"sievedb/vfs"
)

// everyOp calls each operation once, in the order of the constants except that
// a file is closed before the next is opened, and returns their errors.
func everyOp(fsys vfs.FS) map[vfs.Op]error {
	errs := map[vfs.Op]error{}
	f, err := fsys.Create("f")
	errs[vfs.OpCreate] = err
	if err == nil {
		_, errs[vfs.OpWrite] = f.Write([]byte("12"))
		_, errs[vfs.OpStat] = f.Size()
		_, errs[vfs.OpRead] = f.ReadAt(make([]byte, 1), 0)
		errs[vfs.OpSync] = f.Sync()
		errs[vfs.OpTruncate] = f.Truncate(1)
		errs[vfs.OpPreallocate] = f.Preallocate(10)
		errs[vfs.OpClose] = f.Close()
	}
	if f, err = fsys.Open("f"); err == nil {
		err = f.Close()
	}
	errs[vfs.OpOpen] = err
	errs[vfs.OpMkdirAll] = fsys.MkdirAll("d")
	errs[vfs.OpRename] = fsys.Rename("f", "g")
	errs[vfs.OpLink] = fsys.Link("g", "h")
	errs[vfs.OpRemove] = fsys.Remove("g")
	errs[vfs.OpSyncDir] = fsys.SyncDir("/")
	_, errs[vfs.OpList] = fsys.List("/")
	lock, err := fsys.Lock("LOCK")
	errs[vfs.OpLock] = err
	if err == nil {
		_ = lock.Close() // an operation of its own, which OpClose counts elsewhere
	}
	return errs
}

// ops are all operations that everyOp tries.
func ops() []vfs.Op {
	var all []vfs.Op
	for op := range everyOp(vfs.NewMem()) {
		all = append(all, op)
	}
	slices.Sort(all)
	return all
}

func TestFaultyFailsEachOperation(t *testing.T) {
	if n := len(ops()); n != 16 {
		t.Fatalf("%d operations tried", n)
	}
	for _, op := range ops() {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%#x/after=%v", op, after), func(t *testing.T) {
				m := vfs.NewMem()
				f := vfs.NewFaulty(m, vfs.Rule{Ops: op, After: after})
				wantError(t, everyOp(f)[op], vfs.ErrInjected, "")
				if got := f.Faults(); len(got) != 1 || got[0].Op != op || got[0].Name == "" || got[0].Err != vfs.ErrInjected {
					t.Errorf("recorded %+v", got)
				}
				f.SetRules()
				_, _ = m.Remove("g"), m.Remove("h") // what the failure left
				for op, err := range everyOp(f) {
					if err != nil {
						t.Errorf("without rules %#x fails: %v", op, err)
					}
				}
			})
		}
	}
}

// The n-th call fails for n = 1, 2, 3 and so on until no call is the n-th: the
// loop that tests of the store run.
func TestFaultyFailsNthCall(t *testing.T) {
	n := 1
	for ; ; n++ {
		f := vfs.NewFaulty(vfs.NewMem(), vfs.Rule{Nth: n})
		everyOp(f)
		if len(f.Faults()) == 0 {
			if total := f.Count(^vfs.Op(0)); total != n-1 {
				t.Errorf("%d calls are counted, %d could fail", total, n-1)
			}
			break
		}
	}
	if n != 18 { // 17 calls: Close is made twice
		t.Errorf("%d calls failed", n-1)
	}
}

func TestFaultyRules(t *testing.T) {
	write3 := func(f *vfs.Faulty, name string) (failed string) {
		h, _ := f.Create(name)
		for i := range 3 {
			if _, err := h.Write([]byte("x")); err != nil {
				failed += fmt.Sprint(i + 1)
			}
		}
		return failed
	}
	for _, c := range []struct {
		name string
		rule vfs.Rule
		want string // the failing calls of nine: three per file
	}{
		{"once", vfs.Rule{Ops: vfs.OpWrite, Nth: 2}, "2//"},
		{"once, in the second file", vfs.Rule{Ops: vfs.OpWrite, Nth: 5}, "/2/"},
		{"sticky", vfs.Rule{Ops: vfs.OpWrite, Nth: 5, Sticky: true}, "/23/123"},
		{"by name", vfs.Rule{Ops: vfs.OpWrite, Path: "b*", Nth: 3}, "/3/"},
		{"by name, sticky", vfs.Rule{Ops: vfs.OpWrite, Path: "b*", Sticky: true}, "/123/"},
		{"another operation", vfs.Rule{Ops: vfs.OpRead | vfs.OpSync}, "//"},
		{"of a set", vfs.Rule{Ops: vfs.OpSync | vfs.OpWrite}, "1//"},
		{"all operations are counted", vfs.Rule{Nth: 4}, "3//"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := vfs.NewFaulty(vfs.NewMem(), c.rule)
			if got := write3(f, "a1") + "/" + write3(f, "b1") + "/" + write3(f, "c1"); got != c.want {
				t.Errorf("calls %q failed, want %q", got, c.want)
			}
			if n := f.Count(vfs.OpWrite); n != 9 {
				t.Errorf("%d writes counted", n)
			}
		})
	}
}

// The first rule that applies decides, and all of them count.
func TestFaultyRuleOrder(t *testing.T) {
	other := errors.New("other")
	f := vfs.NewFaulty(vfs.NewMem(),
		vfs.Rule{Ops: vfs.OpList, Nth: 2},
		vfs.Rule{Ops: vfs.OpList, Nth: 2, Sticky: true, Err: other})
	for i, want := range []error{nil, vfs.ErrInjected, other, other} {
		if _, err := f.List("/"); !errors.Is(err, want) {
			t.Errorf("call %d: %v, want %v", i+1, err, want)
		}
	}
}

func TestFaultyShortWrite(t *testing.T) {
	m := vfs.NewMem()
	f := vfs.NewFaulty(m, vfs.Rule{Ops: vfs.OpWrite, Nth: 2, Bytes: 3}, vfs.Rule{Ops: vfs.OpWrite, Nth: 4, After: true})
	h := get(f.Create("f"))(t)
	for i, want := range []int{5, 3, 5, 5} {
		if n, err := h.Write([]byte("12345")); n != want || (err != nil) != (i%2 == 1) {
			t.Errorf("write %d: %d, %v", i+1, n, err)
		}
	}
	wantContent(t, m, "f", "123451231234512345")
}

// A failure after the fact has happened: the outcome that a caller cannot know.
func TestFaultyAfter(t *testing.T) {
	m := vfs.NewMem()
	synced(t, m, "f", "1")
	f := vfs.NewFaulty(m, vfs.Rule{Ops: vfs.OpRename, After: true})
	wantError(t, f.Rename("f", "g"), vfs.ErrInjected, "g")
	wantNames(t, m, "/", "g")
	f.SetRules(vfs.Rule{Ops: vfs.OpRename})
	wantError(t, f.Rename("g", "h"), vfs.ErrInjected, "h")
	wantNames(t, m, "/", "g")
	f.SetRules(vfs.Rule{Ops: vfs.OpRename, After: true})
	wantError(t, f.Rename("none", "h"), fs.ErrNotExist, "none")
	f.SetRules(vfs.Rule{Ops: vfs.OpLock, After: true})
	_, err := f.Lock("LOCK")
	wantError(t, err, vfs.ErrInjected, "LOCK")
	get(m.Lock("LOCK"))(t) // a failed Lock holds nothing
}

func TestFaultySpace(t *testing.T) {
	m := vfs.NewMem()
	f := vfs.NewFaulty(m)
	if _, ok := f.Free("/"); ok {
		t.Error("Free of a Mem is known")
	}
	h := create(t, f, "f", "before the limit")
	must(t, h.Truncate(0))
	wantFree := func(want uint64) {
		t.Helper()
		if got, ok := f.Free("/"); got != want || !ok {
			t.Errorf("Free: %d, %v, want %d", got, ok, want)
		}
	}
	f.LimitSpace(10)
	write(t, h, "1234")
	wantFree(6)
	must(t, h.Preallocate(8))
	wantFree(2)
	write(t, h, "5678") // was paid for
	wantFree(2)
	n, err := h.Write([]byte("90ab"))
	wantError(t, err, syscall.ENOSPC, "f")
	if n != 2 {
		t.Errorf("%d bytes written to a disk with room for 2", n)
	}
	wantFree(0)
	n, err = h.Write([]byte("x"))
	wantError(t, err, syscall.ENOSPC, "f")
	wantError(t, h.Preallocate(11), syscall.ENOSPC, "f")
	wantError(t, h.Truncate(11), syscall.ENOSPC, "f")
	if got := f.Faults(); len(got) != 4 || got[0].Op != vfs.OpWrite || got[3].Op != vfs.OpTruncate || n != 0 {
		t.Errorf("recorded %+v", got)
	}
	wantContent(t, m, "f", "1234567890")

	must(t, h.Truncate(7))
	wantFree(3)
	write(t, h, "abc")
	f.AddSpace(5)
	wantFree(5)
	wantError(t, h.Preallocate(100), syscall.ENOSPC, "f")
	wantFree(5) // all or nothing
	write(t, h, "defgh")
	wantFree(0)
	wantContent(t, m, "f", "1234567abcdefgh")

	again := get(f.OpenReadWrite("f"))(t)
	_, err = again.Write([]byte("x"))
	wantError(t, err, syscall.ENOSPC, "f")
}

// The hook sees each call before it is made, may block it, and may crash the
// disk below at that point.
func TestFaultyHook(t *testing.T) {
	m := vfs.NewMem()
	f := vfs.NewFaulty(m)
	entered, release := make(chan vfs.Call), make(chan bool)
	f.SetHook(func(c vfs.Call) {
		if c.Op == vfs.OpSync {
			entered <- c
			<-release
		}
	})
	h := create(t, f, "f", "1")
	must(t, f.SyncDir("/"))
	done := make(chan error)
	go func() { done <- h.Sync() }()
	if c := <-entered; c.Name != "f" {
		t.Errorf("the hook saw %+v", c)
	}
	wantContent(t, f, "f", "1") // other calls go on meanwhile
	wantContent(t, m.CrashClone(vfs.CrashLost), "f", "")
	close(release)
	must(t, <-done)
	wantContent(t, m.CrashClone(vfs.CrashLost), "f", "1")

	f.SetHook(func(c vfs.Call) {
		if got := strings.TrimRight(read(t, m, "f"), "2"); c.Op == vfs.OpWrite && got != "1" {
			t.Errorf("at the call f holds %q", got)
		}
	})
	write(t, h, "2")
	f.SetHook(nil)
	write(t, h, "2")
}
