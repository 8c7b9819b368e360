package compaction

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"sievedb/internal/keys"
	"sievedb/internal/rangedel"
)

// parseEntries reads entries such as "a9 b7- b3": user key, sequence number and
// a minus for a tombstone.
func parseEntries(t *testing.T, s string) []entry {
	t.Helper()
	var out []entry
	for field := range strings.FieldsSeq(s) {
		kind := keys.KindPut
		number, tombstone := strings.CutSuffix(field[1:], "-")
		if tombstone {
			kind = keys.KindDelete
		}
		var seq uint64
		scan(t, number, "%d", &seq)
		out = append(out, entry{key: keys.Make([]byte(field[:1]), keys.SeqNum(seq), kind), value: []byte(field)})
	}
	return out
}

// drain returns what a merger yields, in the notation of parseEntries.
func drain(t *testing.T, m *Merger, entries []entry) string {
	t.Helper()
	var out []string
	previous := ""
	for ok := m.First(); ok; ok = m.Next() {
		k := m.Key()
		field := fmt.Sprintf("%s%d", k.UserKey, k.Trailer.SeqNum())
		if k.Trailer.Kind() == keys.KindDelete {
			field += "-"
		}
		if got, want := m.FirstOfKey(), string(k.UserKey) != previous; got != want {
			t.Errorf("%v: first of its key %v, want %v", k, got, want)
		}
		if k.Trailer.SeqNum() > 0 && string(m.Value()) != field {
			t.Errorf("%v: value %q, want %q", k, m.Value(), field)
		}
		previous = string(k.UserKey)
		out = append(out, field)
	}
	if err := m.Error(); err != nil {
		t.Errorf("merge: %v", err)
	}
	stats := m.Stats()
	if stats.Entries != uint64(len(entries)) || stats.Entries-stats.Shadowed-stats.Tombstones-stats.Hidden != uint64(len(out)) {
		t.Errorf("stats %+v of %d entries, %d yielded", stats, len(entries), len(out))
	}
	return strings.Join(out, " ")
}

func TestMerge(t *testing.T) {
	for _, test := range []struct {
		name      string
		entries   string
		snapshots []keys.SeqNum
		below     string // user keys that older tables may hold; "-": no Elide
		ranges    string // tombstones such as "a-c9"
		zero      bool
		want      string
	}{
		{name: "nothing"},
		{name: "only the newest", entries: "a9 a7 a5 b3", want: "a9 b3"},
		{name: "a version per stripe", entries: "a9 a7 a5 a3", snapshots: []keys.SeqNum{4, 7}, want: "a9 a7 a3"},
		{name: "a snapshot sees its own number", entries: "a6 a5 a4", snapshots: []keys.SeqNum{5}, want: "a6 a5"},
		{name: "snapshots without entries", entries: "a6 a5", snapshots: []keys.SeqNum{1, 2, 3, 8, 9}, want: "a6"},
		{name: "a tombstone hides and goes", entries: "a9- a7 b3", want: "b3"},
		{name: "a put after a tombstone", entries: "a9 a7- a5", want: "a9"},
		{name: "a tombstone after a put", entries: "a9- a7 a5-", below: "a", want: "a9-"},
		{name: "invariant 21: something older below", entries: "a9- b8-", below: "b", want: "b8-"},
		{name: "no elision in a flush", entries: "a9- b8", below: "-", want: "a9- b8"},
		{
			name:    "a snapshot keeps what the newest tombstone hides",
			entries: "a9- a7 a5", snapshots: []keys.SeqNum{7}, want: "a9- a7",
		},
		{
			name:    "a tombstone of the last stripe goes from under a put",
			entries: "a9 a7- a5", snapshots: []keys.SeqNum{8}, want: "a9",
		},
		{
			name:    "a tombstone above the last stripe stays even with nothing below",
			entries: "a9-", snapshots: []keys.SeqNum{7}, want: "a9-",
		},
		{name: "zero", entries: "a9 a7 b8", zero: true, want: "a0 b0"},
		{name: "zero only the last stripe", entries: "a9 a7 a5", snapshots: []keys.SeqNum{8}, zero: true, want: "a9 a0"},
		{name: "not above older tables", entries: "a9 b9", below: "a", zero: true, want: "a9 b0"},
		{
			name:    "a snapshot of the empty store does not see what came later",
			entries: "a9 b8- c7 c5", snapshots: []keys.SeqNum{0}, zero: true, want: "a9 b8- c7",
		},
		{name: "what is zero already", entries: "a0", zero: true, want: "a0"},
		{name: "a range hides what is older", entries: "a9 a5 b6 c5", ranges: "a-c7", want: "a9 c5"},
		{name: "a range hides a tombstone", entries: "a5- b5", below: "a", ranges: "a-b7", want: "b5"},
		{name: "a range that does not begin yet", entries: "a5 b5 c5", ranges: "b-c7", want: "a5 c5"},
		{name: "ranges one after the other", entries: "a5 b5 c5 d5", ranges: "a-b7 c-d6", want: "b5 d5"},
		{name: "a snapshot between entry and range", entries: "a5 a4 b5", snapshots: []keys.SeqNum{6}, ranges: "a-c7", want: "a5 b5"},
		{name: "a snapshot that sees both", entries: "a5 a4 b5", snapshots: []keys.SeqNum{7}, ranges: "a-c7"},
		{name: "a snapshot before both", entries: "a5 b2", snapshots: []keys.SeqNum{3}, ranges: "a-c7", want: "b2"},
		{name: "the newest range is of another stripe", entries: "a5 a3", snapshots: []keys.SeqNum{3, 6}, ranges: "a-c9 a-c4", want: "a5 a3"},
		{name: "an older range of the stripe", entries: "a5 a3", snapshots: []keys.SeqNum{2, 4, 6}, ranges: "a-c9 a-c4", want: "a5"},
		{name: "the first of the next key is of the stripe of one that was hidden", entries: "a5 b9 b5", snapshots: []keys.SeqNum{6}, ranges: "a-b6", want: "b9 b5"},
		{name: "zero under a newer range", entries: "a5", snapshots: []keys.SeqNum{6}, zero: true, ranges: "a-b9", want: "a0"},
		{name: "no zero without elision", entries: "a9", below: "-", zero: true, want: "a9"},
	} {
		t.Run(test.name, func(t *testing.T) {
			entries := parseEntries(t, test.entries)
			o := MergeOptions{Snapshots: test.snapshots, ZeroSeq: test.zero}
			if test.below != "-" {
				o.Elide = func(userKey []byte) bool { return !strings.Contains(test.below, string(userKey)) }
			}
			o.RangeDels = rangedel.Fragment(parseTombstones(test.ranges), test.snapshots)
			if got := drain(t, NewMerger(newSliceIter(entries), o), entries); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestMergeStats(t *testing.T) {
	entries := parseEntries(t, "a9 a8 a7 b6- b5 c4")
	m := NewMerger(newSliceIter(entries), MergeOptions{Elide: func([]byte) bool { return true }, ZeroSeq: true})
	drain(t, m, entries)
	if got, want := m.Stats(), (MergeStats{Entries: 6, Shadowed: 3, Tombstones: 1, Zeroed: 2}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// An entry with a large value keeps its sequence number.
func TestZeroSparesLargeValues(t *testing.T) {
	in := []entry{
		{keys.Make([]byte("a"), 9, keys.KindPut), make([]byte, zeroedValueBytes-1)},
		{keys.Make([]byte("b"), 8, keys.KindPut), make([]byte, zeroedValueBytes)},
	}
	m := NewMerger(newSliceIter(in), MergeOptions{Elide: func([]byte) bool { return true }, ZeroSeq: true})
	var got []keys.SeqNum
	for ok := m.First(); ok; ok = m.Next() {
		got = append(got, m.Key().Trailer.SeqNum())
	}
	if !slices.Equal(got, []keys.SeqNum{0, 8}) || m.Stats().Zeroed != 1 {
		t.Errorf("sequence numbers %d, %d zeroed", got, m.Stats().Zeroed)
	}
}

func TestMergeErrors(t *testing.T) {
	broken := errors.New("broken")
	put := func(key string, seq keys.SeqNum, kind keys.Kind) entry {
		return entry{key: keys.Make([]byte(key), seq, kind)}
	}
	for _, test := range []struct {
		name    string
		entries []entry
		err     error
		want    string
	}{
		{"input fails", []entry{put("a", 1, keys.KindPut)}, broken, "broken"},
		{"unsupported kind", []entry{put("a", 1, keys.KindPut), put("b", 2, keys.KindMerge)}, nil, `"b"#2,merge: kind merge is not supported`},
		{"unknown kind", []entry{put("a", 1, keys.KindPut), put("b", 2, 77)}, nil, "kind(77) is not supported"},
		{"range delete", []entry{put("a", 1, keys.KindPut), put("b", 2, keys.KindRangeDelete)}, nil, "range delete"},
		{"user keys out of order", []entry{put("b", 1, keys.KindPut), put("a", 2, keys.KindPut)}, nil, "out of order"},
		{"versions out of order", []entry{put("b", 1, keys.KindPut), put("b", 2, keys.KindPut)}, nil, "out of order"},
		{"an entry twice", []entry{put("b", 1, keys.KindPut), put("b", 1, keys.KindPut)}, nil, "out of order"},
	} {
		t.Run(test.name, func(t *testing.T) {
			input := newSliceIter(test.entries)
			input.err = test.err
			m := NewMerger(input, MergeOptions{})
			if !m.First() || m.Error() != nil {
				t.Fatalf("no first entry: %v", m.Error())
			}
			if m.Next() {
				t.Fatalf("went on to %v", m.Key())
			}
			if err := m.Error(); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
			if test.err != nil && !errors.Is(m.Error(), test.err) {
				t.Errorf("error %v does not wrap the input's", m.Error())
			}
		})
	}
}

// visible returns what a reader at a snapshot sees of sorted entries: the put
// of each user key, by value.
func visible(entries []entry, snapshot keys.SeqNum) map[string]string {
	out := map[string]string{}
	seen := map[string]bool{}
	for _, e := range entries {
		k := string(e.key.UserKey)
		if seen[k] || !e.key.Trailer.Visible(snapshot) {
			continue
		}
		seen[k] = true
		if e.key.Trailer.Kind() == keys.KindPut {
			out[k] = string(e.value)
		}
	}
	return out
}

// TestMergeEqualsModel splits a random history in what is merged and what is
// older and lies below, and compares what readers see before and after.
func TestMergeEqualsModel(t *testing.T) {
	seed := newSeed()
	t.Logf("seed=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 3000 {
		checkMerge(t, random.Uint64(), 1+random.IntN(40))
	}
}

func FuzzMerge(f *testing.F) {
	f.Add(uint64(1), 10)
	f.Fuzz(func(t *testing.T, seed uint64, n int) { checkMerge(t, seed, n&127) })
}

func checkMerge(t *testing.T, seed uint64, n int) {
	random := rand.New(rand.NewPCG(seed, 1))
	var upper, lower []entry
	belowKeys := map[string]bool{}
	for seq := 1; seq <= n; seq++ {
		k := string(rune('a' + random.IntN(8)))
		kind := keys.KindPut
		if random.IntN(3) == 0 {
			kind = keys.KindDelete
		}
		e := entry{key: keys.Make([]byte(k), keys.SeqNum(seq), kind), value: []byte(fmt.Sprint(seq))}
		// Invariant 3: below there is only what is older than all of the key's
		// versions above.
		if seq < n/3 && k < "d" {
			lower = append(lower, e)
			belowKeys[k] = true
		} else {
			upper = append(upper, e)
		}
	}
	order := func(a, b entry) int { return keys.Compare(a.key, b.key) }
	slices.SortFunc(upper, order)
	slices.SortFunc(lower, order)
	snapshots := []keys.SeqNum{keys.SeqNum(n)}
	for range random.IntN(5) {
		snapshots = append(snapshots, keys.SeqNum(random.IntN(n+1)))
	}
	slices.Sort(snapshots)
	snapshots = slices.Compact(snapshots)

	var asked []byte
	m := NewMerger(newSliceIter(upper), MergeOptions{
		Snapshots: snapshots,
		ZeroSeq:   random.IntN(2) == 0,
		Elide: func(userKey []byte) bool {
			if bytes.Compare(userKey, asked) < 0 {
				t.Fatalf("seed %d n %d: Elide(%q) after %q", seed, n, userKey, asked)
			}
			asked = append(asked[:0], userKey...)
			return !belowKeys[string(userKey)]
		},
	})
	var merged []entry
	stripes := map[string]bool{}
	for ok := m.First(); ok; ok = m.Next() {
		merged = append(merged, entry{key: m.Key().Clone(), value: m.Value()})
		stripe := 0
		for _, s := range snapshots {
			if m.Key().Trailer.SeqNum() > s {
				stripe++
			}
		}
		id := fmt.Sprintf("%s/%d", m.Key().UserKey, stripe)
		if stripes[id] {
			t.Fatalf("seed %d n %d: two versions survive in stripe %s", seed, n, id)
		}
		stripes[id] = true
		if stripe == 0 && m.Key().Trailer.Kind() == keys.KindDelete && !belowKeys[string(m.Key().UserKey)] {
			t.Fatalf("seed %d n %d: %v survives with nothing below", seed, n, m.Key())
		}
	}
	if m.Error() != nil {
		t.Fatalf("seed %d n %d: %v", seed, n, m.Error())
	}
	if !slices.IsSortedFunc(merged, order) {
		t.Fatalf("seed %d n %d: output out of order", seed, n)
	}
	for _, s := range snapshots {
		before, after := visible(append(slices.Clone(upper), lower...), s), visible(append(slices.Clone(merged), lower...), s)
		if fmt.Sprint(before) != fmt.Sprint(after) {
			t.Fatalf("seed %d n %d: at %d read %v before and %v after", seed, n, s, before, after)
		}
	}
}

// versions returns n entries of user keys with a given number of versions.
func versions(n, perKey int) []entry {
	out := make([]entry, n)
	for i := range out {
		out[i] = entry{
			key:   keys.Make(fmt.Appendf(nil, "user%012d", i/perKey), keys.SeqNum(n-i%perKey), keys.KindPut),
			value: make([]byte, 100),
		}
	}
	return out
}

func TestMergeAllocatesNothing(t *testing.T) {
	entries := versions(10_000, 3)
	e := &Elider{}
	allocs := testing.AllocsPerRun(10, func() {
		m := Merger{input: newSliceIter(entries), options: MergeOptions{Snapshots: []keys.SeqNum{1, 9999}, Elide: e.Elide, ZeroSeq: true}}
		for ok := m.First(); ok; ok = m.Next() {
		}
	})
	// The key buffer, the slice iterator, the snapshots and the bound method.
	if allocs > 4 {
		t.Errorf("%v allocations for 10,000 entries, want those of the set-up only", allocs)
	}
}

func BenchmarkMerge(b *testing.B) {
	for _, perKey := range []int{1, 4} {
		for _, snapshots := range [][]keys.SeqNum{nil, {100, 200, 300, 400}} {
			b.Run(fmt.Sprintf("versions=%d/snapshots=%d", perKey, len(snapshots)), func(b *testing.B) {
				entries := versions(20_000, perKey)
				var run []*tableMeta
				for i := range 100 {
					k := entries[i*200].key.UserKey
					run = append(run, &tableMeta{Smallest: append(slices.Clone(k), 0), Largest: append(slices.Clone(k), 1)})
				}
				b.ReportAllocs()
				for b.Loop() {
					e := &Elider{runs: [][]*tableMeta{run}}
					m := NewMerger(newSliceIter(entries), MergeOptions{Snapshots: snapshots, Elide: e.Elide, ZeroSeq: true})
					for ok := m.First(); ok; ok = m.Next() {
					}
					if m.Error() != nil {
						b.Fatal(m.Error())
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(entries)), "ns/entry")
			})
		}
	}
}
