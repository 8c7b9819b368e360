package manifest

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"sievedb/internal/keys"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the randomised tests; 0 picks one")

// newRand returns a generator whose seed is printed if the test fails.
func newRand(t testing.TB) *rand.Rand {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("rerun with -seed=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// table makes a table's meta with the numbers that the rules look at.
func table(num keys.FileNum, lo, hi string, seqLo, seqHi keys.SeqNum) *TableMeta {
	return &TableMeta{FileNum: num, SizeBytes: uint64(num) << 10, Smallest: []byte(lo), Largest: []byte(hi),
		SmallestSeq: seqLo, LargestSeq: seqHi, Entries: uint64(seqHi - seqLo + 1)}
}

func add(level int, metas ...*TableMeta) *Edit {
	e := &Edit{}
	for _, m := range metas {
		e.Added = append(e.Added, LevelTable{Level: level, Meta: m})
	}
	return e
}

func mustApply(t testing.TB, v *Version, edits ...*Edit) *Version {
	t.Helper()
	for _, e := range edits {
		var err error
		if v, err = v.Apply(e); err != nil {
			t.Fatal(err)
		}
	}
	return v
}

func sample(t testing.TB) *Version {
	return mustApply(t, &Version{},
		add(0, table(9, "a", "z", 20, 29), table(12, "c", "d", 10, 19), table(10, "k", "m", 30, 30)),
		add(1, table(3, "f", "h", 2, 9), table(2, "", "e", 0, 5), table(4, "h\x00", "p", 0, 5)),
		add(6, table(1, "b", "zz\xff", 0, 0)))
}

func TestPicture(t *testing.T) {
	v := sample(t)
	v.Levels[6][0].SizeBytes = 5<<40 + 1<<39
	const want = `L0 000010 [k..m] seq 30-30 10.0 KiB
L0 000009 [a..z] seq 20-29 9.0 KiB
L0 000012 [c..d] seq 10-19 12.0 KiB
L1 000002 [..e] seq 0-5 2.0 KiB
L1 000003 [f..h] seq 2-9 3.0 KiB
L1 000004 [h\x00..p] seq 0-5 4.0 KiB
L6 000001 [b..zz\xff] seq 0-0 5.5 TiB
`
	if got := v.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	for size, want := range map[uint64]string{0: "0 B", 1023: "1023 B", 1 << 10: "1.0 KiB", 3 << 19: "1.5 MiB", 1<<64 - 1: "16.0 EiB"} {
		if got := printSize(size); got != want {
			t.Errorf("printSize(%d) = %q, want %q", size, got, want)
		}
	}
}

func TestCounts(t *testing.T) {
	v := sample(t)
	if v.Tables() != 7 || v.Entries() != 10+10+1+8+6+6+1 || v.SizeBytes(1) != 9<<10 || v.SizeBytes(2) != 0 {
		t.Errorf("%d tables, %d entries, %d and %d bytes", v.Tables(), v.Entries(), v.SizeBytes(1), v.SizeBytes(2))
	}
	empty := &Version{}
	if empty.Tables() != 0 || empty.Entries() != 0 || empty.String() != "" {
		t.Error("the zero Version is not empty")
	}
}

func TestApplyShares(t *testing.T) {
	v := sample(t)
	before := v.String()
	w := mustApply(t, v, &Edit{Removed: []LevelFile{{1, 3}}, Added: []LevelTable{{2, v.Levels[1][1]}}})
	if v.String() != before {
		t.Errorf("Apply changed the version that it was called on:\n%s", v)
	}
	if &w.Levels[0][0] != &v.Levels[0][0] || &w.Levels[6][0] != &v.Levels[6][0] {
		t.Error("levels that the edit does not touch were copied")
	}
	if len(w.Levels[1]) != 2 || len(w.Levels[2]) != 1 || w.Levels[2][0] != v.Levels[1][1] {
		t.Errorf("after a trivial move:\n%s", w)
	}
}

// Invariants 3 and 4, and that an edit fits the version it is applied to.
func TestApplyRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		edit *Edit
		want []string // in the error
	}{
		{"level below", add(-1, table(20, "x", "y", 1, 1)), []string{"000020", "level -1"}},
		{"level above", add(NumLevels, table(20, "x", "y", 1, 1)), []string{"000020", "level 7"}},
		{"inverted keys", add(3, table(20, "y", "x", 1, 1)), []string{"000020", "level 3", `"y"`, `"x"`}},
		{"inverted sequence numbers", add(3, table(20, "x", "y", 2, 1)), []string{"000020", "level 3", "2", "1"}},
		{"added twice", add(3, table(20, "a", "b", 1, 1), table(20, "c", "d", 1, 1)), []string{"000020", "level 3"}},
		{"there already", add(3, table(12, "a", "b", 1, 1)), []string{"000012", "level 3", "level 0"}},
		{"remove absent", &Edit{Removed: []LevelFile{{2, 20}}}, []string{"000020", "level 2"}},
		{"remove from another level", &Edit{Removed: []LevelFile{{2, 3}}}, []string{"000003", "level 2"}},
		{"remove from no level", &Edit{Removed: []LevelFile{{-1, 3}}}, []string{"000003", "level -1"}},
		{"removed twice", &Edit{Removed: []LevelFile{{1, 3}, {1, 3}}}, []string{"000003", "level 1"}},
		{"one user key in two tables, left", add(1, table(20, "e", "ea", 1, 1)), []string{"000020", "000002", "level 1"}},
		{"one user key in two tables, right", add(1, table(20, "q", "r", 1, 1), table(21, "r", "s", 1, 1)), []string{"000020", "000021", "level 1"}},
		{"same smallest key", add(6, table(20, "b", "b", 1, 1)), []string{"000020", "000001", "level 6"}},
		{"contains others", add(1, table(20, "", "zz", 1, 1)), []string{"000020", "000002", "level 1"}},
		{"L0: sequence numbers reach into an older table", add(0, table(20, "z", "zz", 29, 40)), []string{"000020", "000009", "level 0"}},
		{"L0: not the next in order", add(0, table(20, "c", "c", 15, 40)), []string{"000020", "000009", "level 0"}},
		{"an exclusive end before any key", add(3, ending(table(20, "x", "x", 1, 1), "x)")), []string{"000020", "level 3", `"x"`}},
		{"an exclusive end without range tombstones", add(3, &TableMeta{FileNum: 20, Largest: []byte("x"), LargestExclusive: true}), []string{"000020", "level 3", "[..x)"}},
		{"no end without range tombstones", add(3, &TableMeta{FileNum: 20, ToEnd: true}), []string{"000020", "level 3", "[..)"}},
		{"range tombstone into the next table", add(1, ending(table(20, "ea", "f", 1, 1), "f\x00)")), []string{"000020", "000003", "level 1"}},
		{"range tombstone without end", add(1, ending(table(20, "ea", "", 1, 1), ")")), []string{"000020", "000003", "level 1"}},
		{"L0: same sequence numbers", add(0, table(20, "m", "n", 30, 30)), []string{"000020", "000010", "level 0"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := sample(t)
			before := v.String()
			got, err := v.Apply(c.edit)
			if err == nil {
				t.Fatalf("applied:\n%s", got)
			}
			for _, s := range c.want {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%q does not name %s", err, s)
				}
			}
			if v.String() != before {
				t.Errorf("the version changed:\n%s", v)
			}
		})
	}
}

func TestApplyAccepts(t *testing.T) {
	for name, e := range map[string]*Edit{
		"nothing":                                 {},
		"L0: newer sequence numbers":              add(0, table(5, "a", "z", 31, 40)),
		"L0: interleaved where keys are apart":    add(0, table(5, "n", "z", 30, 40)),
		"L0: equal numbers where keys are apart":  add(0, table(5, "n", "z", 30, 30)),
		"L0: between two":                         {Removed: []LevelFile{{0, 9}}, Added: []LevelTable{{0, table(20, "a", "z", 20, 25)}}},
		"deeper: in a gap":                        add(1, table(20, "ea", "ez", 1, 1)),
		"deeper: a range tombstone up to a table": add(1, ending(table(20, "ea", "", 1, 1), "f)")),
		"deeper: a range tombstone without end":   add(1, ending(table(20, "q", "", 1, 1), ")")),
		"L0: a range tombstone up to a table":     add(0, ending(table(20, "", "", 20, 29), "a)")),
		"deeper: replace in place":                {Removed: []LevelFile{{1, 3}}, Added: []LevelTable{{1, table(20, "f", "g", 1, 1)}, {1, table(21, "ga", "h", 1, 1)}}},
		"remove and add one number in one level":  {Removed: []LevelFile{{1, 3}}, Added: []LevelTable{{1, table(3, "f", "fa", 1, 1)}}},
	} {
		v := sample(t)
		w, err := v.Apply(e)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if want := v.Tables() + len(e.Added) - len(e.Removed); w.Tables() != want {
			t.Errorf("%s: %d tables, want %d", name, w.Tables(), want)
		}
	}
}

// ending gives a table another end, "z)" being exclusive and ")" none.
func ending(m *TableMeta, end string) *TableMeta {
	m.Largest, m.RangeDeletes = []byte(strings.TrimSuffix(end, ")")), 1
	m.LargestExclusive, m.ToEnd = len(end) > 1, end == ")"
	return m
}

// reaches reports whether a table goes on up to key.
func reaches(m *TableMeta, key []byte) bool {
	return m.ToEnd || string(m.Largest) > string(key) || string(m.Largest) == string(key) && !m.LargestExclusive
}

// naiveApply is Apply as its documentation says it, by brute force.
func naiveApply(v *Version, e *Edit) (levels [NumLevels][]*TableMeta, ok bool) {
	where := map[keys.FileNum]int{}
	metas := map[keys.FileNum]*TableMeta{}
	for level, tables := range v.Levels {
		for _, m := range tables {
			where[m.FileNum], metas[m.FileNum] = level, m
		}
	}
	for _, r := range e.Removed {
		if level, there := where[r.FileNum]; !there || level != r.Level {
			return levels, false
		}
		delete(where, r.FileNum)
	}
	for _, a := range e.Added {
		if _, there := where[a.Meta.FileNum]; there {
			return levels, false
		}
		where[a.Meta.FileNum], metas[a.Meta.FileNum] = a.Level, a.Meta
	}
	for num, level := range where {
		levels[level] = append(levels[level], metas[num])
	}
	for level, tables := range levels {
		for _, a := range tables {
			for _, b := range tables {
				keysMeet := reaches(a, b.Smallest) && reaches(b, a.Smallest)
				seqsMeet := a.SmallestSeq <= b.LargestSeq && b.SmallestSeq <= a.LargestSeq
				if a != b && keysMeet && (level > 0 || seqsMeet) {
					return levels, false
				}
			}
		}
	}
	for level, tables := range levels {
		slices.SortFunc(tables, func(a, b *TableMeta) int {
			switch {
			case level > 0:
				return strings.Compare(string(a.Smallest), string(b.Smallest))
			case a.LargestSeq != b.LargestSeq:
				return int(int64(b.LargestSeq) - int64(a.LargestSeq))
			}
			return int(int64(b.FileNum) - int64(a.FileNum))
		})
	}
	return levels, true
}

// randomEdit returns an edit of v that may or may not fit it.
func randomEdit(rng *rand.Rand, v *Version, next keys.FileNum) *Edit {
	e := &Edit{}
	var all []LevelFile
	for level, tables := range v.Levels {
		for _, m := range tables {
			all = append(all, LevelFile{level, m.FileNum})
		}
	}
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	e.Removed = all[:min(len(all), rng.IntN(4))]
	if len(all) > 60 {
		e.Removed = all[:30]
	}
	for range rng.IntN(4) {
		lo := rng.IntN(1000)
		hi := min(lo+rng.IntN(30), 999)
		seq := keys.SeqNum(rng.IntN(1000))
		m := table(next, fmt.Sprintf("%03d", lo), fmt.Sprintf("%03d", hi), seq, seq+keys.SeqNum(rng.IntN(30)))
		next++
		switch rng.IntN(40) {
		case 0:
			ending(m, ")")
		case 1, 2, 3, 4, 5, 6, 7:
			ending(m, fmt.Sprintf("%03d0)", hi))
		}
		e.Added = append(e.Added, LevelTable{rng.IntN(NumLevels), m})
	}
	if len(all) > 0 && rng.IntN(10) == 0 { // a number that may be taken
		e.Added = append(e.Added, LevelTable{rng.IntN(NumLevels), table(all[0].FileNum, "5", "5", 5, 5)})
	}
	if rng.IntN(10) == 0 { // a table that is not there
		e.Removed = append(slices.Clone(e.Removed), LevelFile{rng.IntN(NumLevels), next + 7})
	}
	return e
}

func TestApplyAgainstModel(t *testing.T) {
	rng := newRand(t)
	v, next := &Version{}, keys.FileNum(1)
	applied, refused := 0, 0
	for range 3000 {
		e := randomEdit(rng, v, next)
		next += 4
		want, ok := naiveApply(v, e)
		got, err := v.Apply(e)
		if (err == nil) != ok {
			t.Fatalf("edit %+v\nof\n%s: %v, but the model says %v", e, v, err, ok)
		}
		if !ok {
			refused++
			continue
		}
		applied++
		if got.String() != (&Version{Levels: want}).String() {
			t.Fatalf("got\n%swant\n%s", got, &Version{Levels: want})
		}
		v = got
	}
	if applied < 500 || refused < 500 {
		t.Errorf("%d edits applied and %d refused: the test is lopsided", applied, refused)
	}
}

func TestOverlapping(t *testing.T) {
	rng := newRand(t)
	v, next := &Version{}, keys.FileNum(1)
	for range 300 {
		if w, err := v.Apply(randomEdit(rng, v, next)); err == nil {
			v = w
		}
		next += 4
		lo := fmt.Sprintf("%03d", rng.IntN(1000))[:rng.IntN(4)]
		r := keys.Range{Lo: []byte(lo), Hi: fmt.Appendf(nil, "%s%d", lo, rng.IntN(1000)), HiExclusive: rng.IntN(2) == 0, ToEnd: rng.IntN(5) == 0}
		for level, tables := range v.Levels {
			var want []*TableMeta
			for _, m := range tables {
				c := bytes.Compare(m.Smallest, r.Hi)
				if reaches(m, r.Lo) && (r.ToEnd || c < 0 || c == 0 && !r.HiExclusive) {
					want = append(want, m)
				}
			}
			if got := v.Overlapping(level, r); !slices.Equal(got, want) {
				t.Fatalf("level %d, [%s..%s] to end %v: got %v, want %v of\n%s", level, r.Lo, r.Hi, r.ToEnd, got, want, v)
			}
		}
	}
}

// The empty user key is a key: nil is not "no bound".
func TestOverlappingEmptyKey(t *testing.T) {
	v := sample(t)
	for level, want := range map[int]string{0: "[]", 1: "[000002 [..e] seq 0-5 2.0 KiB]", 6: "[]"} {
		if got := fmt.Sprint(v.Overlapping(level, keys.Range{})); got != want {
			t.Errorf("level %d: got %s, want %s", level, got, want)
		}
	}
	for level, tables := range v.Levels {
		if got := v.Overlapping(level, keys.AllKeys()); !slices.Equal(got, tables) {
			t.Errorf("level %d: all keys overlap %v", level, got)
		}
	}
}

// big returns a version of n tables in level 5.
func big(t testing.TB, n int) *Version {
	e := &Edit{}
	for i := range n {
		e.Added = append(e.Added, LevelTable{5, table(keys.FileNum(i+1), fmt.Sprintf("%08d", i*10), fmt.Sprintf("%08d", i*10+5), 0, 0)})
	}
	return mustApply(t, &Version{}, e)
}

func BenchmarkApply(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			v := big(b, n)
			e := &Edit{Removed: []LevelFile{{5, 7}}, Added: []LevelTable{{5, table(7, "00000060", "00000065", 0, 0)}}}
			b.ReportAllocs()
			for b.Loop() {
				mustApply(b, v, e)
			}
		})
	}
}

func BenchmarkOverlapping(b *testing.B) {
	v := big(b, 10_000)
	r := keys.Range{Lo: []byte("00050000"), Hi: []byte("00050105")}
	b.ReportAllocs()
	for b.Loop() {
		v.Overlapping(5, r)
	}
}
