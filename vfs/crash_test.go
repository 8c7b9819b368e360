package vfs_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"sievedb/vfs"
)

// state describes all files of m, by name and content, in one line.
func state(t testing.TB, m *vfs.Mem) string {
	t.Helper()
	var files []string
	var walk func(dir string)
	walk = func(dir string) {
		for _, name := range get(m.List(dir))(t) {
			name = path.Join(dir, name)
			if get(m.Stat(name))(t).IsDir {
				files = append(files, name+"/")
				walk(name)
			} else {
				files = append(files, fmt.Sprintf("%s=%s", name, read(t, m, name)))
			}
		}
	}
	walk("")
	return strings.Join(files, " ")
}

const crashSeeds = 400

// wantOutcomes checks that crashes of m leave exactly the states of want, of
// which the first is that of CrashLost and the last that of CrashKept.
func wantOutcomes(t *testing.T, m *vfs.Mem, want ...string) {
	t.Helper()
	if got := state(t, m.CrashClone(vfs.CrashLost)); got != want[0] {
		t.Errorf("everything lost leaves %q, want %q", got, want[0])
	}
	last := want[len(want)-1]
	if got := state(t, m.CrashClone(vfs.CrashKept)); got != last {
		t.Errorf("nothing lost leaves %q, want %q", got, last)
	}
	seen := map[string]bool{}
	for seed := range uint64(crashSeeds) {
		seen[state(t, m.CrashClone(seed))] = true
	}
	want = slices.Compact(slices.Sorted(slices.Values(want)))
	if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, want) {
		t.Errorf("crashes leave\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := state(t, m); got != last {
		t.Errorf("after crashes of its clones m holds %q, want %q", got, last)
	}
}

func synced(t testing.TB, m *vfs.Mem, name, content string) {
	t.Helper()
	f := create(t, m, name, content)
	must(t, f.Sync())
	must(t, f.Close())
}

func TestCrashOutcomesOfNames(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(t *testing.T, m *vfs.Mem)
		want []string
	}{
		{"synced content without a synced name", func(t *testing.T, m *vfs.Mem) {
			synced(t, m, "f", "1")
		}, []string{"", "f=1"}},
		{"two creations, each by itself or in order", func(t *testing.T, m *vfs.Mem) {
			synced(t, m, "f", "1")
			synced(t, m, "g", "2")
		}, []string{"", "f=1", "g=2", "f=1 g=2"}},
		{"rename is atomic", func(t *testing.T, m *vfs.Mem) {
			synced(t, m, "f", "1")
			must(t, m.SyncDir("/"))
			must(t, m.Rename("f", "g"))
		}, []string{"f=1", "g=1"}},
		{"rename needs its creation", func(t *testing.T, m *vfs.Mem) {
			synced(t, m, "tmp", "1")
			must(t, m.Rename("tmp", "f"))
		}, []string{"", "tmp=1", "f=1"}},
		{"replacement leaves old or new", func(t *testing.T, m *vfs.Mem) {
			synced(t, m, "f", "1")
			synced(t, m, "tmp", "2")
			must(t, m.SyncDir("/"))
			must(t, m.Rename("tmp", "f"))
		}, []string{"f=1 tmp=2", "f=2"}},
		{"removal", func(t *testing.T, m *vfs.Mem) {
			synced(t, m, "f", "1")
			must(t, m.SyncDir("/"))
			must(t, m.Remove("f"))
		}, []string{"f=1", ""}},
		{"removal of what was never durable", func(t *testing.T, m *vfs.Mem) {
			synced(t, m, "f", "1")
			must(t, m.Remove("f"))
		}, []string{"", "f=1", ""}},
		{"created again", func(t *testing.T, m *vfs.Mem) {
			synced(t, m, "f", "1")
			must(t, m.SyncDir("/"))
			must(t, m.Remove("f"))
			synced(t, m, "f", "2")
		}, []string{"f=1", "", "f=2"}},
		{"a file renamed away is not overwritten", func(t *testing.T, m *vfs.Mem) {
			synced(t, m, "f", "1")
			must(t, m.SyncDir("/"))
			must(t, m.Rename("f", "g"))
			synced(t, m, "f", "2")
		}, []string{"f=1", "g=1", "f=2 g=1"}},
		{"renamed twice: one name", func(t *testing.T, m *vfs.Mem) {
			synced(t, m, "f", "1")
			must(t, m.SyncDir("/"))
			must(t, m.Rename("f", "g"))
			must(t, m.Rename("g", "h"))
		}, []string{"f=1", "g=1", "h=1"}},
		{"link", func(t *testing.T, m *vfs.Mem) {
			synced(t, m, "f", "1")
			must(t, m.SyncDir("/"))
			must(t, m.Link("f", "g"))
		}, []string{"f=1", "f=1 g=1"}},
		{"all synced", func(t *testing.T, m *vfs.Mem) {
			synced(t, m, "f", "1")
			must(t, m.Rename("f", "g"))
			must(t, m.Link("g", "h"))
			must(t, m.Remove("g"))
			must(t, m.SyncDir("/"))
		}, []string{"h=1"}},
		{"names of another directory", func(t *testing.T, m *vfs.Mem) {
			must(t, m.MkdirAll("d"))
			synced(t, m, "d/f", "1")
			must(t, m.SyncDir("/"))
		}, []string{"d/", "d/ d/f=1"}},
		{"MkdirAll syncs the parents", func(t *testing.T, m *vfs.Mem) {
			must(t, m.MkdirAll("d/e"))
			synced(t, m, "d/e/f", "1")
			must(t, m.SyncDir("d/e"))
		}, []string{"d/ d/e/ d/e/f=1"}},
		{"a directory's name is lost, with all in it", func(t *testing.T, m *vfs.Mem) {
			must(t, m.MkdirAll("d"))
			must(t, m.Rename("d", "e"))
			synced(t, m, "e/f", "1")
			must(t, m.SyncDir("e"))
		}, []string{"d/ d/f=1", "e/ e/f=1"}},
		{"rename between directories is one transaction", func(t *testing.T, m *vfs.Mem) {
			must(t, m.MkdirAll("d"))
			must(t, m.MkdirAll("e"))
			synced(t, m, "d/f", "1")
			must(t, m.Rename("d/f", "e/f"))
			must(t, m.SyncDir("e"))
		}, []string{"d/ e/ e/f=1"}},
		{"unsynced rename between directories", func(t *testing.T, m *vfs.Mem) {
			must(t, m.MkdirAll("d"))
			must(t, m.MkdirAll("e"))
			synced(t, m, "d/f", "1")
			must(t, m.SyncDir("d"))
			must(t, m.Rename("d/f", "e/f"))
		}, []string{"d/ d/f=1 e/", "d/ e/ e/f=1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := vfs.NewMem()
			c.do(t, m)
			wantOutcomes(t, m, c.want...)
		})
	}
}

// Half of the crashes keep names up to some moment, the others any subset.
func TestCrashOfJournals(t *testing.T) {
	const files = 30
	m := vfs.NewMem()
	for i := range files {
		put(t, m, fmt.Sprintf("%02d", i), "")
	}
	upTo := map[int]bool{}
	subsets := 0
	for seed := range uint64(crashSeeds) {
		names := get(m.CrashClone(seed).List("/"))(t)
		if n := len(names); n == 0 || names[n-1] == fmt.Sprintf("%02d", n-1) {
			upTo[n] = true
		} else {
			subsets++
		}
	}
	if len(upTo) != files+1 || subsets < crashSeeds/4 {
		t.Errorf("%d of %d moments and %d subsets seen", len(upTo), files+1, subsets)
	}
}

func TestCrashKeepsSyncedContent(t *testing.T) {
	m := vfs.NewMem()
	old := strings.Repeat("a", 1000)
	f := create(t, m, "f", old)
	must(t, f.Sync())
	must(t, m.SyncDir("/"))
	write(t, f, strings.Repeat("b", 9000))
	all := strings.Repeat("b", 9000)

	seen := map[string]bool{}
	for seed := range uint64(crashSeeds) {
		got := read(t, m.CrashClone(seed), "f")
		if !strings.HasPrefix(got, old) || len(got) > 10_000 {
			t.Fatalf("seed %d: the synced bytes are damaged, or %d bytes too many", seed, len(got))
		}
		tail := got[1000:]
		kept := strings.Count(tail, "b")
		switch {
		case tail == "":
			seen["lost"] = true
		case tail == all:
			seen["kept"] = true
		case kept == len(tail):
			seen["short"] = true
		case kept == 0 && strings.Trim(tail, "\x00") == "":
			seen["only zeros"] = true
		case kept+strings.Count(tail, "\x00") == len(tail):
			seen["zeros among data"] = true
		default:
			seen["garbage"] = true
		}
	}
	want := []string{"garbage", "kept", "lost", "only zeros", "short", "zeros among data"}
	if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, want) {
		t.Errorf("seen %q, want %q", got, want)
	}
}

// Writes in place: each sector holds the old or the new bytes.
func TestCrashTearsAtSectors(t *testing.T) {
	m := vfs.NewMem()
	f := get(m.Create("f"))(t)
	must(t, f.Preallocate(16<<10))
	must(t, f.Sync())
	must(t, m.SyncDir("/"))
	write(t, f, strings.Repeat("b", 300))
	write(t, f, strings.Repeat("c", 10_000))
	pieces := map[int]int{} // by size: how often a part of the second write survived alone
	for seed := range uint64(crashSeeds) {
		got := read(t, m.CrashClone(seed), "f")
		if len(got) != 16<<10 || strings.Trim(got[10_300:], "\x00") != "" {
			t.Fatalf("seed %d: %d bytes, or a change behind the writes", seed, len(got))
		}
		if first := got[:300]; first != strings.Repeat("b", 300) && first != strings.Repeat("\x00", 300) {
			t.Fatalf("seed %d: a write within one sector is torn", seed)
		}
		for run := range strings.FieldsFuncSeq(got[300:10_300], func(r rune) bool { return r == 0 }) {
			if run != strings.Repeat("c", len(run)) {
				t.Fatalf("seed %d: bytes that nobody wrote", seed)
			}
			pieces[len(run)]++
		}
	}
	for _, size := range []int{512 - 300, 512, 4096 - 300, 4096, 10_000} {
		if pieces[size] == 0 {
			t.Errorf("no crash left a piece of %d bytes: %v", size, pieces)
		}
	}
}

func TestCrashOutcomesOfSizes(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(t *testing.T, f vfs.File)
		want []string
	}{
		{"cut", func(t *testing.T, f vfs.File) { must(t, f.Truncate(2)) }, []string{"f=1234", "f=12"}},
		{"extension", func(t *testing.T, f vfs.File) { must(t, f.Truncate(5)) }, []string{"f=1234", "f=1234\x00"}},
		{"preallocation", func(t *testing.T, f vfs.File) { must(t, f.Preallocate(5)) }, []string{"f=1234", "f=1234\x00"}},
		{"no change", func(t *testing.T, f vfs.File) { must(t, f.Truncate(4)) }, []string{"f=1234"}},
		{"synced cut", func(t *testing.T, f vfs.File) {
			must(t, f.Truncate(2))
			must(t, f.Sync())
		}, []string{"f=12"}},
		{"cut and extended: the cut bytes stay away", func(t *testing.T, f vfs.File) {
			must(t, f.Truncate(2))
			must(t, f.Truncate(3))
			must(t, f.Sync())
		}, []string{"f=12\x00"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := vfs.NewMem()
			synced(t, m, "f", "1234")
			must(t, m.SyncDir("/"))
			f := get(m.OpenReadWrite("f"))(t)
			c.do(t, f)
			wantOutcomes(t, m, c.want...)
		})
	}
}

// A file whose name was synced, and its content never: anything from nothing to
// everything.
func TestCrashNameWithoutContent(t *testing.T) {
	m := vfs.NewMem()
	put(t, m, "f", "123")
	must(t, m.SyncDir("/"))
	sizes := map[string]int{}
	for seed := range uint64(crashSeeds) {
		switch got := read(t, m.CrashClone(seed), "f"); {
		case got == "" || got == "123" || got == "\x00\x00\x00":
			sizes[got]++
		case len(got) == 3:
			sizes["garbage"]++
		default:
			t.Fatalf("seed %d leaves %q", seed, got)
		}
	}
	if len(sizes) != 4 {
		t.Errorf("seen %v", sizes)
	}
}

func TestCrashIsRepeatable(t *testing.T) {
	history := func() *vfs.Mem {
		m := vfs.NewMem()
		for i := range 20 {
			put(t, m, fmt.Sprint("f", i), strings.Repeat("x", i*300))
		}
		return m
	}
	m, other := history(), history()
	differ := false
	for seed := range uint64(20) {
		a := state(t, m.CrashClone(seed))
		if a != state(t, m.CrashClone(seed)) || a != state(t, other.CrashClone(seed)) {
			t.Fatalf("seed %d has two outcomes", seed)
		}
		differ = differ || a != state(t, m.CrashClone(seed+1))
	}
	if !differ {
		t.Error("the seed makes no difference")
	}
}

// Contents are shared between clones; changes must not be.
func TestCrashCloneIsIndependent(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	type world struct {
		m     *vfs.Mem
		model map[string][]byte
	}
	worlds := []world{{vfs.NewMem(), map[string][]byte{}}}
	for step := range 400 {
		w := worlds[rng.IntN(len(worlds))]
		name := fmt.Sprint("f", rng.IntN(3))
		switch content, ok := w.model[name]; {
		case len(worlds) < 8 && rng.IntN(10) == 0:
			clone := world{w.m.CrashClone(vfs.CrashKept), map[string][]byte{}}
			for name, content := range w.model {
				clone.model[name] = bytes.Clone(content)
			}
			worlds = append(worlds, clone)
		case !ok:
			put(t, w.m, name, "")
			w.model[name] = []byte{}
		default:
			f := get(w.m.OpenReadWrite(name))(t)
			if rng.IntN(3) == 0 {
				size := rng.IntN(len(content) + 1)
				must(t, f.Truncate(int64(size)))
				content = content[:size]
			}
			p := bytes.Repeat([]byte{byte(step)}, rng.IntN(12_000))
			write(t, f, string(p))
			w.model[name] = append(content, p...)
			if rng.IntN(2) == 0 {
				must(t, f.Sync())
			}
			must(t, f.Close())
		}
	}
	for i, w := range worlds {
		for name, content := range w.model {
			if read(t, w.m, name) != string(content) {
				t.Errorf("clone %d: %s differs", i, name)
			}
		}
	}
	if len(worlds) < 8 {
		t.Errorf("%d clones only", len(worlds))
	}
}

func TestCrashTakesLocksAndLeavesHandles(t *testing.T) {
	m := vfs.NewMem()
	f := create(t, m, "f", "1")
	get(m.Lock("LOCK"))(t)
	clone := m.CrashClone(vfs.CrashKept)
	get(clone.Lock("LOCK"))(t)
	write(t, f, "2")
	wantContent(t, m, "f", "12")
	wantContent(t, clone, "f", "1")
	again := clone.CrashClone(vfs.CrashLost) // what survived once is durable
	wantContent(t, again, "f", "1")
}

// The price of a clone does not depend on the size of synced files.
func TestCrashCloneSharesContent(t *testing.T) {
	allocs := func(size int) float64 {
		m := vfs.NewMem()
		synced(t, m, "f", strings.Repeat("x", size))
		must(t, m.SyncDir("/"))
		return testing.AllocsPerRun(10, func() { m.CrashClone(5) })
	}
	if small, large := allocs(1), allocs(8<<20); small != large {
		t.Errorf("%v allocations with a small file, %v with a large one", small, large)
	}
}

func TestMemCounts(t *testing.T) {
	m := vfs.NewMem()
	must(t, m.MkdirAll("d/e"))
	synced(t, m, "d/f", "123")
	wantContent(t, m, "d/f", "123")
	must(t, m.Rename("d/f", "d/g"))
	must(t, m.Link("d/g", "d/h"))
	must(t, m.Remove("d/g"))
	must(t, m.SyncDir("d"))
	if err := m.Remove("none"); err == nil {
		t.Error("removed what is not there")
	}
	want := vfs.Counts{Creates: 1, Opens: 1, Removes: 1, Renames: 1, Links: 1,
		Reads: 1, Writes: 1, Syncs: 1, DirSyncs: 3, BytesRead: 3, BytesWritten: 3}
	if got := m.Counts(); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
}

func TestMemRefusesWildSizes(t *testing.T) {
	f := create(t, vfs.NewMem(), "f", "1")
	wantError(t, f.Truncate(1<<62), nil, "f")
	wantError(t, f.Preallocate(1<<62), nil, "f")
	if got := contentOf(t, f); got != "1" {
		t.Errorf("f holds %q", got)
	}
}

// 100 files, 64 MiB in all, 1 KiB of it unsynced.
func BenchmarkCrashClone(b *testing.B) {
	m := vfs.NewMem()
	for i := range 100 {
		synced(b, m, fmt.Sprint("f", i), strings.Repeat("x", 64<<20/100))
	}
	must(b, m.SyncDir("/"))
	create(b, m, "unsynced", strings.Repeat("x", 1024))
	b.ReportAllocs()
	for seed := uint64(2); b.Loop(); seed++ {
		m.CrashClone(seed)
	}
}

// A log of 4 MiB in which each record is synced: the copy-on-write price.
func BenchmarkMemWriteSync(b *testing.B) {
	f := get(vfs.NewMem().Create("f"))(b)
	p := make([]byte, 128)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%(4<<20/128) == 0 {
			must(b, f.Truncate(0))
		}
		get(f.Write(p))(b)
		must(b, f.Sync())
	}
}
