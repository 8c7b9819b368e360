package compaction

import (
	"fmt"
	"strings"
	"testing"

	"sievedb/internal/keys"
	"sievedb/internal/manifest"
	"sievedb/internal/rangedel"
)

// parseTombstones reads range tombstones such as "a-c9 b-~7".
func parseTombstones(s string) (out []rangedel.Tombstone) {
	for f := range strings.FieldsSeq(s) {
		t := rangedel.Tombstone{Start: []byte(f[:1]), End: []byte(f[2:3]), Seq: keys.SeqNum(f[3] - '0')}
		if f[2] == '~' {
			t.End = nil
		}
		out = append(out, t)
	}
	return out
}

// showSpans prints spans as "a-c9,7 b-~5".
func showSpans(spans []rangedel.Span) string {
	var out []string
	for _, s := range spans {
		end := string(s.End)
		if s.End == nil {
			end = "~"
		}
		out = append(out, fmt.Sprintf("%s-%s%s", s.Start, end, strings.Trim(strings.ReplaceAll(fmt.Sprint(s.Seqs), " ", ","), "[]")))
	}
	return strings.Join(out, " ")
}

// Write ends tables between user keys only, and cuts range tombstones there, so
// that tables do not overlap (invariant 4). A put is 16 bytes, a range tombstone 8.
func TestWrite(t *testing.T) {
	for _, test := range []struct {
		name, entries, ranges, grandparents string
		target, maxGrandparent              uint64
		want                                string // tables: bounds, then their range tombstones
	}{
		{name: "nothing"},
		{name: "entries alone", entries: "a1 b1 c1 d1", target: 32, want: "[a..b] | [c..d]"},
		{name: "one wide range", entries: "a9 b9 c9 d9", ranges: "a-z5", target: 36, want: "[a..c) a-c5 | [c..z) c-z5"},
		{name: "a range without end", entries: "b9 c9 d9", ranges: "a-~5", target: 36, want: "[a..d) a-d5 | [d..) d-~5"},
		{name: "a range up to the last entry", entries: "a9 b9 c9", ranges: "a-b5", target: 1000, want: "[a..c] a-b5"},
		{name: "a range from an entry on", entries: "a9 b9 c9 d9", ranges: "c-f5", target: 32, want: "[a..b] | [c..f) c-f5"},
		{name: "a table for every entry", entries: "c9 d9", ranges: "c-f5", target: 8, want: "[c..d) c-d5 | [d..f) d-f5"},
		{name: "ranges alone", ranges: "a-b5 c-d5 e-f5 g-~5", target: 16, want: "[a..d) a-b5 c-d5 | [e..) e-f5 g-~5"},
		{name: "ranges before and behind", entries: "m9", ranges: "a-b5 y-z5", target: 1000, want: "[a..z) a-b5 y-z5"},
		{name: "versions of a key under a range", entries: "a9 a8 a7 b9", ranges: "a-c3", target: 20, want: "[a..b) a-b3 | [b..c) b-c3"},
		{
			name:   "a wide range over many grandparents",
			ranges: "a-~5", grandparents: "L6 1 b-c\nL6 2 d-e\nL6 3 f-g\nL6 4 h-i", target: 1000, maxGrandparent: 150,
			want: "[a..f) a-f5 | [f..) f-~5",
		}, {
			name:    "a wide range and few entries over many grandparents",
			entries: "a9 e9 z9", ranges: "a-x5", grandparents: "L6 1 b-c\nL6 2 d-f\nL6 3 g-h\nL6 4 i-j", target: 1000, maxGrandparent: 150,
			want: "[a..g) a-g5 | [g..x) g-x5 | [z..z]",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSim(t, 1, simConfig)
			entries := parseEntries(t, test.entries)
			snapshots := []keys.SeqNum{1, 2, 3, 4, 5, 6, 7, 8, 9}
			spans := rangedel.Fragment(parseTombstones(test.ranges), snapshots)
			plan := &Plan{
				TargetTableBytes: test.target, MaxGrandparentBytes: max(test.maxGrandparent, 1),
				Grandparents: parseTree(t, test.grandparents).Levels[6],
			}
			if test.maxGrandparent == 0 {
				plan.MaxGrandparentBytes = 1 << 40
			}
			m := NewMerger(newSliceIter(entries), MergeOptions{Snapshots: snapshots, RangeDels: spans})
			var got []string
			edit := &manifest.Edit{Added: s.writeTables(m, plan.KeptRangeDels(spans, 0), 5, plan.Splitter())}
			for _, a := range edit.Added {
				one := a.Meta.KeyRange().String()
				if text := showSpans(s.rangeDels[a.Meta.FileNum].Spans()); text != "" {
					one += " " + text
				}
				got = append(got, one)
			}
			if text := strings.Join(got, " | "); text != test.want {
				t.Errorf("got %q, want %q", text, test.want)
			}
			s.apply(edit) // which checks the level
		})
	}
}

// Errors of the output and of the input end a write.
func TestWriteFails(t *testing.T) {
	in := newSliceIter(parseEntries(t, "a1 b1"))
	in.err = fmt.Errorf("of the input")
	s := newSim(t, 1, simConfig)
	if err := Write(NewMerger(in, MergeOptions{}), nil, nil, &simTables{sim: s}); err != in.err {
		t.Errorf("%v", err)
	}
}

// Invariant 21 for range tombstones: what goes and what stays, at the snapshots 4
// and up.
func TestKeptRangeDels(t *testing.T) {
	for _, test := range []struct{ name, tree, ranges, want string }{
		{"nothing below", "L5 1 a-z size=5000\nL6 3 a-z", "a-f3 f-k9", "f-k9"},
		{"an older table below", "L4 1 a-z size=500\nL5 2 a-b\nL6 3 g-h size=40000", "a-d3 f-k3", "f-g3 g-k3"},
		{"its range up to the older table", "L4 1 a-z size=500\nL5 2 a-b\nL6 3 g-h size=40000", "a-g3", ""},
		{"its range from the end of an exclusive one on", "L4 1 a-z size=500\nL5 2 a-b\nL6 3 c-g) rd=1 size=40000", "g-k3", ""},
		{"without end", "L4 1 a-z size=500\nL5 2 a-b\nL6 3 y-z size=40000", "c-~3", "c-y3 y-~3"},
		{"an older table of range tombstones alone", "L4 1 a-z size=500\nL5 2 a-b\nL6 3 g-k) rd=1 n=0 size=40000", "h-i3", "h-i3"},
	} {
		t.Run(test.name, func(t *testing.T) {
			plan, ok := picture{tree: test.tree, manual: &Manual{Keys: keys.AllKeys(), Seq: keys.MaxSeqNum}}.pick(t)
			if !ok {
				t.Fatal("no plan")
			}
			snapshots := []keys.SeqNum{4, 8}
			spans := rangedel.Fragment(parseTombstones(test.ranges), snapshots)
			if got := showSpans(plan.KeptRangeDels(spans, snapshots[0])); got != test.want {
				t.Errorf("%s keeps %q of %q, want %q", planText(&plan), got, test.ranges, test.want)
			}
		})
	}
}
