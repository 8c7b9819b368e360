package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"sievedb"
	"sievedb/cmd/sievectl/internal/check"
	"sievedb/cmd/sievectl/internal/salvage"
	"sievedb/vfs"
)

// wholeDamage is set by `make damage`.
var wholeDamage = flag.Bool("sievectl.damage", false, "damage every byte of the small stores, and more of the large one")

// injury is what becomes of one file; a nil content means that it is gone.
type injury struct {
	region, how, file string
	content           func(b []byte) []byte
	from, to          int  // bytes that change
	cut               bool // and what is behind them is gone
}

func (d injury) String() string {
	return fmt.Sprintf("%s of %s, bytes %d to %d (%s)", d.how, d.file, d.from, d.to, d.region)
}

// injuries are those of every byte and every length, and of whole files.
func (s *subject) injuries(do func(d injury)) {
	xor := func(at int, mask byte) func(b []byte) []byte {
		return func(b []byte) []byte { b[at] ^= mask; return b }
	}
	for _, file := range slices.Sorted(maps.Keys(s.files)) {
		size, kind := len(s.files[file]), s.kindOf(file)
		for _, p := range s.parts[file] {
			for at := p.from; at < p.to; at++ {
				do(injury{p.region, "bit flipped", file, xor(at, 1<<(at%8)), at, at + 1, false})
				do(injury{p.region, "byte inverted", file, xor(at, 0xff), at, at + 1, false})
			}
		}
		for n := range size {
			do(injury{kind, "cut", file, func(b []byte) []byte { return b[:n] }, n, size, true})
		}
		const sector = 512
		for at := 0; at < size; at += sector {
			end := min(at+sector, size)
			do(injury{kind, "sector zeroed", file, func(b []byte) []byte { clear(b[at:end]); return b }, at, end, false})
		}
		do(injury{kind, "gone", file, func([]byte) []byte { return nil }, 0, size, true})
		do(injury{kind, "one byte more", file, func(b []byte) []byte { return append(b, 'x') }, size, size + 1, false})
		do(injury{kind, "written twice", file, func(b []byte) []byte { return append(b, b...) }, size, 2 * size, false})
		for _, other := range slices.Sorted(maps.Keys(s.files)) {
			if other != file && s.kindOf(other) == kind {
				do(injury{kind, "another one's bytes", file, func([]byte) []byte { return s.files[other] }, 0, size, false})
			}
		}
	}
}

// kindOf names what is done to a file as a whole.
func (s *subject) kindOf(file string) string {
	switch {
	case s.parts[file][0].region == unusedFile:
		return unusedFile
	case strings.HasPrefix(file, "MANIFEST"):
		return "MANIFEST whole"
	case path.Ext(file) == ".wal":
		return "WAL whole"
	case path.Ext(file) == ".sst":
		return "table whole"
	}
	return file
}

// Verdicts on one damage, each a column of the table.
const (
	located  = iota // an error that names the file and the place
	version         // an error that says that the format is another one
	right           // everything
	prefix          // what is left without a torn tail
	unplaced        // an error without a place
	wrong
	panicked
	hung
	unseen // by check, although bytes of the store differ
	verdicts
)

var columns = [verdicts]string{"located", "version", "right", "prefix", "unplaced", "wrong", "panic", "hang", "unseen"}

// examination is of one damaged store: which prefixes of the history explain
// all that was read of it so far, and what went wrong.
type examination struct {
	s        *subject
	d        injury
	content  []byte // of the file now
	possible []int
	problems []string
	verdicts map[int]bool
}

func (x *examination) fault(verdict int, format string, args ...any) {
	x.verdicts[verdict] = true
	x.problems = append(x.problems, fmt.Sprintf(format, args...))
}

// keep drops the states that do not explain an answer.
func (x *examination) keep(explains func(state map[string]string) bool, format string, args ...any) {
	x.possible = slices.DeleteFunc(x.possible, func(n int) bool { return !explains(x.s.states[n]) })
	if len(x.possible) == 0 {
		x.fault(wrong, format, args...)
	}
}

// failed judges an error; nil is none.
func (x *examination) failed(what string, err error) {
	var c *sievedb.CorruptionError
	switch {
	case err == nil:
	case errors.As(err, &c):
		x.verdicts[located] = true
		size := max(len(x.s.files[c.File]), len(x.content))
		if c.File == "" || c.Offset < 0 || c.Offset > int64(size) || c.What == "" {
			x.fault(unplaced, "%s: %v", what, err)
		}
	case errors.Is(err, sievedb.ErrFormat):
		x.verdicts[version] = true
	default:
		x.fault(unplaced, "%s: %v", what, err)
	}
}

// read reads everything in every way.
func (x *examination) read(what string, db *sievedb.DB) {
	for k := range x.s.ever {
		v, err := db.Get([]byte(k))
		if err != nil && !errors.Is(err, sievedb.ErrNotFound) {
			x.failed(what+" get", err)
			continue
		}
		x.keep(func(state map[string]string) bool {
			want, there := state[k]
			return there == (err == nil) && want == string(v)
		}, "%s: %q is %q, %v", what, k, v, err)
		if has, err := db.Has([]byte(k)); err == nil {
			x.keep(func(state map[string]string) bool { _, there := state[k]; return there == has }, "%s: has %q is %t", what, k, has)
		}
	}
	x.scan(what+" scan", db.All(), false)
	x.scan(what+" backward scan", db.All(), true)
	x.failed(what+" verify", db.Verify(context.Background()))
}

func (x *examination) scan(what string, it *sievedb.Iterator, backward bool) {
	type entry struct{ key, value string }
	var got []entry
	step := it.All()
	if backward {
		step = it.Backward()
	}
	for k, v := range step {
		got = append(got, entry{string(k), string(v)})
	}
	err := it.Err()
	x.failed(what, err)
	x.keep(func(state map[string]string) bool {
		keys := slices.Sorted(maps.Keys(state))
		if backward {
			slices.Reverse(keys)
		}
		if len(got) > len(keys) || err == nil && len(got) < len(keys) {
			return false
		}
		for i, e := range got {
			if e.key != keys[i] || e.value != state[keys[i]] {
				return false
			}
		}
		return true
	}, "%s: %d entries: %.300q", what, len(got), got)
}

// examine opens the damaged store as a follower and as a writer, reads all,
// lets the writer compact all, and reads again, also after another open.
func (x *examination) examine() {
	disk := x.s.disk.CrashClone(vfs.CrashKept)
	name := diskDir + "/" + x.d.file
	if x.content == nil {
		if err := disk.Remove(name); err != nil {
			x.fault(wrong, "%v", err)
		}
	} else if err := writeFile(disk, name, x.content); err != nil {
		x.fault(wrong, "%v", err)
	}
	o := sievedb.Options{FS: disk, MustExist: true, MemtableBytes: 64 << 10, BlockBytes: 128, CacheBytes: 64 << 10}
	if ro, err := sievedb.OpenReadOnly(diskDir, &o); err != nil {
		x.failed("open read-only", err)
	} else {
		x.read("read-only", ro)
		x.failed("read-only close", ro.Close())
	}
	db, err := sievedb.Open(diskDir, &o)
	if err != nil {
		x.failed("open", err)
		x.unchanged(disk)
		return
	}
	x.read("open", db)
	x.failed("compact", db.Compact(context.Background(), nil, nil))
	x.read("compacted", db)
	x.failed("close", db.Close())
	if db, err = sievedb.Open(diskDir, &o); err != nil {
		x.failed("reopen", err)
		return
	}
	x.read("reopened", db)
	x.failed("last close", db.Close())
}

func writeFile(fsys vfs.FS, name string, content []byte) error {
	f, err := fsys.Create(name)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}

// unchanged wants what a store that could not be opened left as it was, but for
// a torn tail that was cut off.
func (x *examination) unchanged(disk vfs.FS) {
	for file, want := range x.s.files {
		if file == x.d.file {
			want = x.content
		}
		got, err := readFile(disk, file)
		torn := len(x.s.log) > 0 && file == x.s.log[0].file && len(got) < len(want) && bytes.HasPrefix(want, got)
		if file != "LOCK" && (err == nil || want != nil) && !bytes.Equal(got, want) && !torn {
			x.fault(wrong, "an open that failed changed %s, %v", file, err)
		}
	}
}

// check runs check on the same damage: it must see what differs, unless that is
// nothing that the store looks at.
func (x *examination) check() {
	target := filepath.Join(x.s.dir, x.d.file)
	var err error
	if x.content == nil {
		err = os.Remove(target)
	} else {
		err = os.WriteFile(target, x.content, 0o644)
	}
	if err != nil {
		x.fault(wrong, "%v", err)
		return
	}
	r, err := check.Dir(x.s.dir)
	if err != nil { // without CURRENT, say
		x.problems = append(x.problems, err.Error())
		x.verdicts[unseen] = true
		return
	}
	if len(r.Problems) == 0 && slices.Equal(r.Notes, x.s.notes) && !x.unused() && !x.cutBetween() {
		x.fault(unseen, "check finds nothing")
	}
}

// unused reports whether nobody looks at what is in the file.
func (x *examination) unused() bool {
	return x.s.parts[x.d.file][0].region == unusedFile
}

// cutBetween reports whether a log lost whole records off its end, or some of
// the zeros behind them: nothing that is left tells that there were any, unless
// they are vouched for.
func (x *examination) cutBetween() bool {
	return x.d.cut && slices.ContainsFunc(x.s.parts[x.d.file], func(p part) bool {
		return p.from == x.d.from && strings.HasSuffix(p.region, "frame header") ||
			p.from <= x.d.from && p.region == preallocatedPart
	})
}

// restore undoes check's damage.
func (x *examination) restore() error {
	return os.WriteFile(filepath.Join(x.s.dir, x.d.file), x.s.files[x.d.file], 0o644)
}

// repair repairs the store that check left damaged: nothing is in the new one
// that never was in the old one, and all is that did not stand in the damage.
func (x *examination) repair(dst string) {
	before := dirContent(x.s.dir)
	r, err := salvage.Repair(x.s.dir, dst)
	if !maps.Equal(before, dirContent(x.s.dir)) {
		x.fault(wrong, "repair changed its source")
	}
	if err != nil {
		x.failed("repair", err)
		return
	}
	db, err := sievedb.Open(dst, &sievedb.Options{MustExist: true})
	if err != nil {
		x.fault(wrong, "repaired: %v", err)
		return
	}
	defer db.Close()
	if err := db.Verify(context.Background()); err != nil {
		x.fault(wrong, "repaired: %v", err)
	}
	got := map[string]string{}
	it := db.All()
	for k, v := range it.All() {
		got[string(k)] = string(v)
		if !slices.Contains(x.s.ever[string(k)], string(v)) {
			x.fault(wrong, "repaired: %q has the value %q, which it never had", k, v)
		}
	}
	if err := it.Err(); err != nil {
		x.fault(wrong, "repaired: %v", err)
	}
	touched := x.touched()
	for k := range x.s.ever {
		g, there := got[k]
		want, should := x.s.whole()[k]
		if (g != want || there != should) && !touched[k] {
			x.fault(wrong, "repaired: %q is %q (%t), want %q (%t), although what holds it is whole", k, g, there, want, should)
		}
	}
	if len(r.Losses)+len(r.Damage)+len(r.Notes) == 0 && !x.unused() && !x.cutBetween() {
		x.fault(unseen, "repair reports nothing")
	}
}

// touched are the keys whose newest version stands in a part that changed, or
// that such a part deleted.
func (x *examination) touched() map[string]bool {
	keys := map[string]bool{}
	for _, p := range x.s.parts[x.d.file] {
		if p.to > x.d.from && p.from < x.d.to {
			for _, k := range p.keys {
				keys[k] = true
			}
		}
	}
	return keys
}

func dirContent(dir string) map[string]string {
	content := map[string]string{}
	names, _ := vfs.OS().List(dir)
	for _, name := range names {
		b, err := os.ReadFile(filepath.Join(dir, name))
		content[name] = fmt.Sprint(err, b)
	}
	return content
}

// watchdog is when an examination, which takes milliseconds, is said to hang.
const watchdog = 2 * time.Minute

// run examines in a goroutine that may panic or hang.
func (x *examination) run(steps ...func()) {
	done := make(chan any)
	go func() {
		defer func() { done <- recover() }()
		for _, step := range steps {
			step()
		}
	}()
	select {
	case p := <-done:
		if p != nil {
			x.fault(panicked, "panic: %v", p)
		}
	case <-time.After(watchdog):
		x.fault(hung, "it hangs")
	}
}

// tally counts verdicts by region and kind of damage.
type tally map[[2]string]*[1 + verdicts]int

func (t tally) add(x *examination) {
	row := t[[2]string{x.d.region, x.d.how}]
	if row == nil {
		row = new([1 + verdicts]int)
		t[[2]string{x.d.region, x.d.how}] = row
	}
	row[0]++
	if !x.verdicts[located] && !x.verdicts[version] && len(x.possible) > 0 {
		x.verdicts[prefix] = x.possible[len(x.possible)-1] < len(x.s.states)-1
		x.verdicts[right] = !x.verdicts[prefix]
	}
	for v, there := range x.verdicts {
		if there {
			row[1+v]++
		}
	}
}

// sum adds up all rows: cases, then verdicts.
func (t tally) sum() (sum [1 + verdicts]int) {
	for _, row := range t {
		for i, n := range row {
			sum[i] += n
		}
	}
	return sum
}

func (t tally) String() string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\nregion\tdamage\tcases\t%s\n", strings.Join(columns[:], "\t"))
	line := func(region, how string, row [1 + verdicts]int) {
		fmt.Fprintf(w, "%s\t%s", region, how)
		for _, n := range row {
			fmt.Fprintf(w, "\t%d", n)
		}
		fmt.Fprintln(w)
	}
	for _, k := range slices.SortedFunc(maps.Keys(t), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
		line(k[0], k[1], *t[k])
	}
	line("all", "", t.sum())
	w.Flush()
	return out.String()
}

// TestDamage damages one file of a store at a time, at every byte and at every
// length or at a sample of them, and wants right answers, or errors that say
// where: no wrong answer, panic or hang, from the store, from check, and from
// repair. -v logs the counts.
func TestDamage(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("SIEVEDB_SEED"); s != "" {
		if _, err := fmt.Sscan(s, &seed); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("SIEVEDB_SEED=%d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	counts := tally{}
	for _, c := range []struct {
		*subject
		sample, whole int // one case of so many
		repair        int // one of these of so many, which takes its time
	}{
		{newSubject(t, "closed, snappy", sievedb.Snappy, 30, false), 250, 1, 20},
		{newSubject(t, "crashed", sievedb.NoCompression, 30, true), 250, 1, 20},
		{newSubject(t, "large", sievedb.Snappy, 1500, false), 100_000, 2000, 3},
	} {
		every, repair, examined := c.sample, c.repair, 0
		if *wholeDamage {
			every, repair = c.whole, 10*c.repair
		}
		c.injuries(func(d injury) {
			if rng.IntN(every) > 0 {
				return
			}
			x := &examination{s: c.subject, d: d, content: d.content(bytes.Clone(c.files[d.file])), verdicts: map[int]bool{}}
			for n := c.mayLack(d.file, d.from, d.to, d.cut); n < len(c.states); n++ {
				x.possible = append(x.possible, n)
			}
			steps := []func(){x.examine}
			if examined++; !*wholeDamage || examined%5 == 0 {
				steps = append(steps, x.check)
			}
			if examined%repair == 0 {
				steps = append(steps, func() { x.repair(filepath.Join(t.TempDir(), "new")) })
			}
			x.run(steps...)
			if err := x.restore(); err != nil {
				t.Fatal(err)
			}
			counts.add(x)
			if len(x.problems) > 0 {
				t.Errorf("%s: %v: %s", c.name, d, strings.Join(x.problems, "\n\t"))
			}
		})
	}
	t.Log(counts)
	if sum := counts.sum(); sum[0] < 50 || sum[1+located] < sum[0]/2 {
		t.Errorf("%d cases are too few, or %d that are located", sum[0], sum[1+located])
	}
}
