package tree

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"sievedb/filter"
	"sievedb/internal/counters"
	"sievedb/internal/iter"
	"sievedb/internal/iter/itertest"
	"sievedb/internal/keys"
	"sievedb/internal/manifest"
	"sievedb/internal/table"
	"sievedb/memtable"
	"sievedb/sstable"
)

// covers reports whether a range delete hides key.
func (e entry) covers(key string) bool {
	return e.kind == keys.KindRangeDelete && e.key <= key && (e.value == "~" || key < e.value)
}

// naive returns what key is at a snapshot: the newest of all entries decides.
func naive(all []entry, key string, snapshot keys.SeqNum) string {
	got, newest := "-", keys.SeqNum(0)
	for _, e := range all {
		if (e.key == key && e.kind != keys.KindRangeDelete || e.covers(key)) && e.seq <= snapshot && e.seq >= newest {
			newest, got = e.seq, e.value
			if e.kind != keys.KindPut {
				got = "-"
			}
		}
	}
	return got
}

// sorted orders entries as a table wants them.
func sorted(entries []entry) []entry {
	out := slices.Clone(entries)
	slices.SortFunc(out, func(a, b entry) int {
		return keys.Compare(keys.Make([]byte(a.key), a.seq, a.kind), keys.Make([]byte(b.key), b.seq, b.kind))
	})
	return out
}

// A key in every place, and range deletes in some: in its own run a range delete
// hides what is older, in older runs everything.
func TestGetUnderRangeDeletes(t *testing.T) {
	b := newBuilder(t)
	all := [][]entry{
		{put("a", 1), put("k", 1), put("z", 1)},
		{delRange("j", "l", 3), put("k", 4)},
		{put("a", 5), put("k", 5), delRange("b", "y", 6)},
		{delRange("k", "k\x00", 8)},
		{put("k", 9), delRange("x", "~", 10), put("z", 11)},
		{delRange("k", "m", 13), put("k", 14), delRange("a", "b", 15)},
	}
	b.add(6, 10, sorted(all[0])...)
	b.add(5, 10, sorted(all[1])...)
	b.add(0, 10, sorted(all[2])...)
	b.add(0, 0, sorted(all[3])...)
	s := b.state(buffer(t, all[5]...), buffer(t, all[4]...))
	every := slices.Concat(all...)
	for seq := range keys.SeqNum(17) {
		for _, key := range []string{"a", "b", "j", "k", "k\x00", "l", "x", "z", "zz", ""} {
			if got, want := get(t, s, key, seq), naive(every, key, seq); got != want {
				t.Errorf("%q at %d: %s, want %s", key, seq, got, want)
			}
			v, at, found := s.Recent([]byte(key), filter.Hash([]byte(key)))
			recent := naive(slices.Concat(all[4:]...), key, keys.MaxSeqNum)
			if found != (recent != "-") || found && string(v) != recent {
				t.Errorf("recent %q: %q at %d, %v, want %s", key, v, at, found, recent)
			}
		}
	}
}

// Lookups under a range delete read no block, and ask no filter, of the tables
// that it covers, nor of its own table if nothing there is newer.
func TestCoveredTablesAreNotRead(t *testing.T) {
	b := newBuilder(t)
	var present []entry
	for i := range 500 {
		present = append(present, put(fmt.Sprintf("k%04d", i), keys.SeqNum(i+1)))
	}
	bottom := b.add(6, 10, present...)
	own := b.add(5, 10, append([]entry{delRange("k0100", "k0400", 900)}, put("k0100", 700), put("k0450", 701))...)
	top := b.add(0, 10, put("j", 1000), put("l", 1001))
	alone := b.add(0, 10, delRange("k0200", "k0300", 1100))
	s := b.state(nil)
	for i := 100; i < 400; i++ {
		for _, key := range []string{fmt.Sprintf("k%04d", i), fmt.Sprintf("k%04dx", i)} {
			if got := get(t, s, key, keys.MaxSeqNum); got != "-" {
				t.Fatalf("%s is there: %s", key, got)
			}
		}
	}
	for name, table := range map[string]*table.Table{"bottom": bottom, "own": own, "alone": alone} {
		if c := table.Counters.Load(); c != (counters.Counts{}) {
			t.Errorf("%s was asked: %+v", name, c)
		}
	}
	if c := top.Counters.Load(); c.Negatives == 0 { // of keys that the newest table does not cover
		t.Errorf("the table in between: %+v", c)
	}
	if got := get(t, s, "k0050", keys.MaxSeqNum) + get(t, s, "k0400", keys.MaxSeqNum); got != "k0050@51k0400@401" {
		t.Errorf("beside the range: %s", got)
	}
	if got := get(t, s, "k0250", 899); got != "k0250@251" {
		t.Errorf("before the range delete: %s", got)
	}
}

// A table whose entries all have sequence number zero is not mistaken for one
// without entries.
func TestZeroedEntriesBesideARangeDelete(t *testing.T) {
	b := newBuilder(t)
	b.add(6, 10, put("a", 0), put("c", 0), delRange("c", "d", 9))
	s := b.state(nil)
	if got := get(t, s, "a", 20) + get(t, s, "c", 20) + get(t, s, "c", 8); got != "a@0-c@0" {
		t.Error(got)
	}
}

// Scans and lookups of random trees with range deletes of all kinds in every run
// agree with a naive model, at every snapshot and in both directions.
func TestRangeDeletesEqualModel(t *testing.T) {
	rng := itertest.Rand(t)
	key := func() string { return fmt.Sprintf("%02d", rng.IntN(50)) }
	for range 60 {
		b := newBuilder(t)
		seq := keys.SeqNum(0)
		write := func() (out []entry) {
			for range 1 + rng.IntN(25) {
				seq++
				switch k := key(); rng.IntN(7) {
				case 0:
					if end := key(); k < end {
						out = append(out, delRange(k, end, seq))
					}
				case 1:
					if rng.IntN(4) == 0 {
						out = append(out, delRange(k, "~", seq))
					}
				case 2:
					out = append(out, del(k, seq))
				default:
					out = append(out, put(k, seq))
				}
			}
			return append(out, put(key(), seq+1))
		}
		var all []entry
		next := func() []entry {
			e := write()
			seq++
			all = append(all, e...)
			return e
		}
		for _, level := range []int{6, 5, 0, 0} {
			if rng.IntN(4) > 0 {
				b.add(level, 10, sorted(next())...)
			}
		}
		imm := buffer(t, next()...)
		s := b.state(buffer(t, next()...), imm)
		for _, snapshot := range []keys.SeqNum{0, keys.SeqNum(rng.IntN(int(seq) + 1)), keys.SeqNum(rng.IntN(int(seq) + 1)), seq} {
			checkState(t, s, all, snapshot, key(), key())
		}
	}
}

func checkState(t *testing.T, s *State, all []entry, snapshot keys.SeqNum, lo, hi string) {
	t.Helper()
	var want []string
	for i := range 50 {
		k := fmt.Sprintf("%02d", i)
		v := naive(all, k, snapshot)
		if got := get(t, s, k, snapshot); got != v {
			t.Fatalf("%s at %d: %s, want %s of\n%v", k, snapshot, got, v, all)
		}
		if v != "-" && lo <= k && (k < hi || hi <= lo) {
			want = append(want, v)
		}
	}
	o := IterOptions{Lower: []byte(lo), Snapshot: snapshot, CommitLock: &sync.Mutex{}}
	if lo < hi {
		o.Upper = []byte(hi)
	}
	for _, backward := range []bool{false, true} {
		v := iter.NewVisible(iter.NewMerging(s.AppendIters(nil, o)...), iter.VisibleOptions{Snapshot: snapshot, Lower: o.Lower, Upper: o.Upper})
		var got []string
		if backward {
			for ok := v.Last(); ok; ok = v.Prev() {
				got = append(got, string(v.Value()))
			}
			slices.Reverse(got)
		} else {
			for ok := v.First(); ok; ok = v.Next() {
				got = append(got, string(v.Value()))
			}
		}
		if err := v.Close(); err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("[%s, %s) at %d, backward %v: %v, want %v of\n%v", lo, hi, snapshot, backward, got, want, all)
		}
	}
}

// Runs without range deletes in them or above them are read as they are.
func TestItersAreWrappedOnlyWhereNeeded(t *testing.T) {
	b := newBuilder(t)
	b.add(6, 10, put("a", 1), put("z", 1))
	b.add(5, 10, put("a", 2), put("b", 2))
	b.add(5, 10, put("c", 2), delRange("c", "d", 3), put("z", 4))
	b.add(0, 10, put("a", 5))
	b.add(0, 10, delRange("x", "y", 7))
	types := func(its []iter.Iterator) string {
		var out []string
		for _, it := range its {
			out = append(out, strings.TrimPrefix(fmt.Sprintf("%T", it), "*"))
			if err := it.Close(); err != nil {
				t.Error(err)
			}
		}
		return strings.Join(out, " ")
	}
	s := b.state(buffer(t, put("m", 9)))
	o := IterOptions{Snapshot: keys.MaxSeqNum, CommitLock: &sync.Mutex{}}
	if got, want := types(s.AppendIters(nil, o)), "memtable.Iter rangedel.Skipping rangedel.Skipping rangedel.Skipping"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, c := range []struct{ upper, want string }{
		{"x", "memtable.Iter sstable.Iter rangedel.Skipping rangedel.Skipping"}, // the newest range delete is beyond it
		{"c", "memtable.Iter sstable.Iter tree.runIter tree.runIter"},           // so is the other
	} {
		o.Upper = []byte(c.upper)
		if got := types(s.AppendIters(nil, o)); got != c.want {
			t.Errorf("up to %s: %s, want %s", c.upper, got, c.want)
		}
	}
}

// The entries and range deletes of a transaction come on top, whatever the
// snapshot, as they are when it scans.
func TestOwnMemtable(t *testing.T) {
	b := newBuilder(t)
	b.add(6, 10, put("a", 1), put("c", 2), put("e", 3))
	mutable := buffer(t, put("f", 4), delRange("a", "b", 6)) // the latter beyond the snapshot
	s := b.state(mutable)
	own := buffer(t, put("c", 6), delRange("c", "e\x00", 7), put("d", 8))
	its := s.AppendIters(nil, IterOptions{Snapshot: 5, CommitLock: &sync.Mutex{}, Own: own})
	if err := own.Add([]byte("a"), 0, keys.MakeTrailer(9, keys.KindRangeDelete), nil); err != nil { // later
		t.Fatal(err)
	}
	v := iter.NewVisible(iter.NewMerging(its...), iter.VisibleOptions{Snapshot: keys.MaxSeqNum})
	var got []string
	for ok := v.First(); ok; ok = v.Next() {
		got = append(got, string(v.Value()))
	}
	if err := v.Close(); err != nil || fmt.Sprint(got) != "[a@1 d@8 f@4]" {
		t.Errorf("%v, %v", got, err)
	}
}

// A range delete is a change of every key that it covers, present or not.
func TestChangesByRangeDeletes(t *testing.T) {
	for name, place := range map[string]func(b *builder) *State{
		"memtable": func(b *builder) *State { return b.state(buffer(b.t, delRange("c", "f", 5), delRange("m", "~", 7))) },
		"table": func(b *builder) *State {
			b.add(5, 10, delRange("c", "f", 5), delRange("m", "~", 7))
			return b.state(nil)
		},
	} {
		b := newBuilder(t)
		b.add(6, 10, put("a", 1), put("d", 2))
		s := place(b)
		c := func(after keys.SeqNum) Changes { return Changes{After: after, Tables: true, CommitLock: &sync.Mutex{}} }
		for _, test := range []struct {
			key   string
			after keys.SeqNum
			want  bool
		}{{"d", 4, true}, {"d", 5, false}, {"e", 4, true}, {"f", 4, false}, {"b", 4, false}, {"z", 6, true}, {"z", 7, false}} {
			if got, err := c(test.after).Key(s, []byte(test.key), filter.Hash([]byte(test.key))); got != test.want || err != nil {
				t.Errorf("%s: %s after %d: %v, %v", name, test.key, test.after, got, err)
			}
		}
		for _, test := range []struct {
			lo, hi string
			toEnd  bool
			after  keys.SeqNum
			want   string // a key that was changed
		}{
			{"a", "b", false, 2, ""}, {"a", "c", false, 4, "c"}, {"a", "c", false, 5, ""}, {"d", "d", false, 4, "d"},
			{"e", "k", false, 4, "e"}, {"f", "l", false, 2, ""}, {"f", "m", false, 2, "m"}, {"", "", true, 6, "m"}, {"", "", true, 7, ""},
		} {
			key, changed, err := c(test.after).Range(s, []byte(test.lo), []byte(test.hi), test.toEnd)
			if changed != (test.want != "") || string(key) != test.want || err != nil {
				t.Errorf("%s: [%s, %s] after %d: %q, %v, %v", name, test.lo, test.hi, test.after, key, changed, err)
			}
		}
	}
}

// What a compaction can drop unread it does not read.
func TestInputItersSkip(t *testing.T) {
	b := newBuilder(t)
	var old []entry
	for i := range 2000 {
		old = append(old, put(fmt.Sprintf("k%04d", i), 1))
	}
	b.add(6, 10, old...)
	b.add(5, 10, delRange("k0100", "k1900", 5))
	s := b.state(nil)
	for _, test := range []struct {
		oldest keys.SeqNum
		want   int
	}{{5, 200}, {4, 2000}} {
		var stats sstable.IterStats
		m := iter.NewMerging(s.InputIters(5, 6, [2][]*manifest.TableMeta{s.Version.Levels[5], s.Version.Levels[6]}, test.oldest, sstable.IterOptions{Stats: &stats})...)
		n := 0
		for ok := m.First(); ok; ok = m.Next() {
			n++
		}
		blocks := stats.BlocksRead + stats.BlocksCached
		if err := m.Close(); err != nil || n != test.want {
			t.Errorf("oldest reader at %d: %d entries, want %d, %v", test.oldest, n, test.want, err)
		}
		if test.want == 200 && blocks > 5 {
			t.Errorf("%d blocks for a tenth of the entries", blocks)
		}
	}
	got := s.RangeDelsOf(5, s.Version.Levels[5])
	if len(got) != 1 || string(got[0].Start) != "k0100" || got[0].Seq != 5 || s.RangeDelsOf(6, s.Version.Levels[6]) != nil {
		t.Errorf("range deletes: %v", got)
	}
}

// HiddenBytes is right to within a block at each end.
func TestHiddenBytes(t *testing.T) {
	b := newBuilder(t)
	value := strings.Repeat("v", 100)
	var size [2]uint64
	for i, level := range []int{6, 5} {
		var entries []entry
		for j := range 2000 {
			entries = append(entries, entry{fmt.Sprintf("k%04d", j), keys.SeqNum(2 - i), keys.KindPut, value})
		}
		size[i] = b.add(level, 10, entries...).Opened().Properties().DataBytes
	}
	half := b.add(0, 10, delRange("k0500", "k1500", 9))
	all := b.add(0, 10, delRange("a", "~", 19))
	s := b.state(nil)
	const slack = 4 * 5000
	if got, want := s.HiddenBytes(half.Meta), (size[0]+size[1])/2; got+slack < want || got > want+slack {
		t.Errorf("a half: %d bytes, want %d", got, want)
	}
	var files uint64
	for t := range s.All() {
		files += t.Meta.SizeBytes
	}
	if got := s.HiddenBytes(all.Meta); got != files {
		t.Errorf("everything: %d bytes, want %d", got, files)
	}
	if s.HiddenBytes(s.Version.Levels[6][0]) != 0 || s.RangeDels(s.Version.Levels[6][0]) != nil || s.RangeDels(all.Meta) == nil {
		t.Error("a table without range deletes hides something")
	}
	var narrow []entry
	for i := range 1000 {
		narrow = append(narrow, delRange(fmt.Sprintf("k%04d", 2*i), fmt.Sprintf("k%04d", 2*i+2), keys.SeqNum(100+i%2)))
	}
	b.add(0, 10, narrow...)
	s = b.state(nil)
	if got := s.HiddenBytes(s.Version.Levels[0][0]); got+slack < files || got > files+100_000 {
		t.Errorf("side by side: %d bytes, want about %d", got, files)
	}
}

func TestGetUnderRangeDeletesAllocatesNothing(t *testing.T) {
	b := newBuilder(t)
	b.add(6, 10, put("a", 1), put("k", 1), put("z", 1))
	b.add(5, 10, put("a", 2), delRange("b", "l", 3), put("k", 4), put("z", 5))
	s := b.state(buffer(t, put("m", 6), delRange("x", "~", 7)))
	dst := make([]byte, 0, 64)
	for _, key := range []string{"k", "c", "m", "y", "a"} {
		k, h := []byte(key), filter.Hash([]byte(key))
		if n := testing.AllocsPerRun(100, func() {
			if _, _, err := s.Get(dst, k, h, 9, false, nil); err != nil {
				t.Error(err)
			}
		}); n != 0 {
			t.Errorf("Get(%q) allocates %v times", key, n)
		}
	}
}

// BenchmarkGet is an absent key of four runs, without range deletes, with some
// beside the key, and under one.
func BenchmarkGet(b *testing.B) {
	for _, name := range []string{"none", "beside", "under"} {
		b.Run(name, func(b *testing.B) {
			bd := newBuilder(&testing.T{})
			fill := func(level int, first keys.SeqNum, extra ...entry) {
				var entries []entry
				for i := range 2000 {
					entries = append(entries, put(fmt.Sprintf("k%05d", 2*i), first+keys.SeqNum(i%50)))
				}
				bd.add(level, 10, append(entries, extra...)...)
			}
			fill(6, 1)
			fill(5, 100)
			fill(4, 200)
			switch name {
			case "beside":
				fill(0, 300, delRange("k00010", "k00100", 400))
			case "under":
				fill(0, 300, delRange("k02000", "k03000", 400))
			default:
				fill(0, 300)
			}
			s := bd.state(memtable.New(memtable.Options{}))
			key := []byte("k02001")
			hash := filter.Hash(key)
			b.ReportAllocs()
			for b.Loop() {
				if _, found, err := s.Get(nil, key, hash, 1000, true, nil); found || err != nil {
					b.Fatal(found, err)
				}
			}
		})
	}
}
