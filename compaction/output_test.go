package compaction

import (
	"strings"
	"testing"

	"sievedb/internal/keys"
	"sievedb/internal/manifest"
)

type tableMeta = manifest.TableMeta

// TestElide holds invariant 21: what of a plan's keys may be taken for the last
// version there is. Each case is a way in which deleted keys came back in other
// stores.
func TestElide(t *testing.T) {
	for _, test := range []struct {
		name, tree string
		want       string // the keys of a to h that may be elided
	}{
		{
			name: "an older table just below",
			tree: `L4 1 a-h size=500
			       L5 2 a-b
			       L6 3 c-d size=40000`,
			want: "a b e f g h",
		}, {
			name: "an older table two levels below",
			tree: `L3 1 a-h size=500
			       L5 2 c-c
			       L6 3 e-f size=400000`,
			want: "a b d g h",
		}, {
			name: "tables whose bounds are single keys",
			tree: `L5 1 a-h size=5000
			       L6 3 x-z size=40000`,
			want: "a b c d e f g h",
		}, {
			name: "many tables side by side",
			tree: `L4 1 a-h size=500
			       L6 2 a-a size=10000
			       L6 3 b-b size=10000
			       L6 4 d-d size=10000
			       L6 5 h-h size=10000`,
			want: "c e f g",
		}, {
			name: "level 0 in part: the rest is newer or apart",
			tree: `L0 9 a-h
			       L0 8 a-h
			       L0 7 a-h
			       L0 6 x-z
			       L6 2 c-d`,
			want: "a b c d e f g h",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			plan, ok := picture{tree: test.tree, manual: &Manual{Keys: keys.AllKeys(), Seq: keys.MaxSeqNum}}.pick(t)
			if !ok {
				t.Fatal("no plan")
			}
			e := plan.Elider()
			var got []string
			for c := 'a'; c <= 'h'; c++ {
				first := e.Elide([]byte(string(c)))
				if e.Elide([]byte(string(c))) != first {
					t.Errorf("%c: another answer when asked again", c)
				}
				if first {
					got = append(got, string(c))
				}
			}
			if s := strings.Join(got, " "); s != test.want {
				t.Errorf("%s: may elide %q, want %q", planText(&plan), s, test.want)
			}
			if plan.Bottommost != (len(plan.older) == 0) {
				t.Errorf("%s: bottommost, with older tables %v", planText(&plan), plan.older)
			}
		})
	}
}

func TestEliderOfOnePlanTwice(t *testing.T) {
	plan, _ := picture{tree: `L5 1 a-h size=5000
	                          L6 3 a-b size=20000
	                          L6 4 g-z size=20000`}.pick(t)
	plan.older = [][]*tableMeta{parseTree(t, "L6 3 a-b\nL6 4 g-z").Levels[6]}
	for range 2 {
		e := plan.Elider()
		if e.Elide([]byte("a")) || !e.Elide([]byte("c")) || e.Elide([]byte("z")) {
			t.Fatal("an elider that was used changed the plan")
		}
	}
}

// cuts feeds keys of 10 bytes each to a splitter and returns the tables.
func cuts(s *Splitter, userKeys string) string {
	var tables []string
	table, previous := "", rune(0)
	for _, c := range userKeys {
		if s.Cut([]byte(string(c)), c != previous, uint64(10*len(table))) {
			tables = append(tables, table)
			table = ""
		}
		table += string(c)
		previous = c
	}
	return strings.Join(append(tables, table), " ")
}

func TestSplitter(t *testing.T) {
	for _, test := range []struct {
		name, keys, grandparents string
		target, maxGrandparent   uint64
		want                     string
	}{
		{name: "by size", keys: "abcdefgh", target: 30, want: "abc def gh"},
		{name: "invariant 4: never within a user key", keys: "aabbbbbbbc", target: 30, want: "aabbbbbbb c"},
		{name: "one table", keys: "abcdefgh", target: 1000, want: "abcdefgh"},
		{
			name: "between grandparents from three quarters on", keys: "abcdefghijkl", target: 40,
			grandparents: "L6 1 a-b\nL6 2 c-c\nL6 3 d-h\nL6 4 i-z", want: "abc defgh ijkl",
		}, {
			name: "at one and a half within one", keys: "abcdefghijkl", target: 40,
			grandparents: "L6 1 a-z", want: "abcdef ghijkl",
		}, {
			name: "at its size behind the last", keys: "abcdefghijkl", target: 40,
			grandparents: "L6 1 a-a", want: "abcd efgh ijkl",
		}, {
			name: "too much of the grandparents", keys: "abcdefgh", target: 1000, maxGrandparent: 250,
			grandparents: "L6 1 a-a\nL6 2 b-b\nL6 3 c-c\nL6 4 d-d\nL6 5 e-f\nL6 6 g-h", want: "abc defgh",
		}, {
			name: "grandparents before the first key do not count", keys: "efgh", target: 1000, maxGrandparent: 150,
			grandparents: "L6 1 a-a\nL6 2 b-b\nL6 3 c-c\nL6 5 e-f\nL6 6 g-h", want: "efgh",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := (&Plan{
				TargetTableBytes: test.target, MaxGrandparentBytes: max(test.maxGrandparent, 1),
				Grandparents: parseTree(t, test.grandparents).Levels[6],
			}).Splitter()
			if test.maxGrandparent == 0 {
				s.maxGrandparentBytes = 1 << 40
			}
			if got := cuts(s, test.keys); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestEvenBytes(t *testing.T) {
	for _, test := range []struct{ size, target, tables uint64 }{
		{1, 640, 1}, {640, 640, 1}, {900, 640, 1}, {1000, 640, 2}, {6400, 640, 10}, {6700, 640, 10}, {6730, 640, 11},
	} {
		got := evenBytes(test.size, test.target)
		if got > test.target*3/2+test.target/64+1 {
			t.Errorf("%d bytes: tables of %d, more than one and a half times %d", test.size, got, test.target)
		}
		if tables := (test.size + got - 1) / got; tables != test.tables {
			t.Errorf("%d bytes: %d tables of %d, want %d", test.size, tables, got, test.tables)
		}
	}
}
