package rangedel

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"sievedb/internal/keys"
)

// model looks at every tombstone.
type model []Tombstone

func (m model) covering(key []byte, snapshot keys.SeqNum) (seq keys.SeqNum) {
	for _, t := range m {
		if bytes.Compare(t.Start, key) <= 0 && isAfter(t.End, key) && t.Seq <= snapshot {
			seq = max(seq, t.Seq)
		}
	}
	return seq
}

// universe holds every key of up to three letters, in order; random keys are
// taken from it, so that all places where anything changes are known.
var universe = func() (all [][]byte) {
	all = [][]byte{{}}
	for i := 0; i < len(all); i++ {
		if len(all[i]) < 3 {
			for _, c := range []byte("\x00ab\xff") {
				all = append(all, append(bytes.Clone(all[i]), c))
			}
		}
	}
	slices.SortFunc(all, bytes.Compare)
	return all
}()

func randomKey(rnd *rand.Rand) []byte { return universe[rnd.IntN(len(universe))] }

// randomTombstones returns n tombstones with the sequence numbers from first
// on. Some hide nothing, some have no end.
func randomTombstones(rnd *rand.Rand, n int, first keys.SeqNum) []Tombstone {
	var out []Tombstone
	for i := range n {
		a := rnd.IntN(len(universe))
		b := a + rnd.IntN(1+rnd.IntN(1+len(universe)-a)) - 1
		end := universe[max(b, 0)]
		if rnd.IntN(12) == 0 {
			end = nil
		}
		out = append(out, Tombstone{Start: universe[a], End: end, Seq: first + keys.SeqNum(i)})
	}
	return out
}

// prefixed returns tombstones with longer keys that begin alike.
func prefixed(prefix string, tombstones []Tombstone) []Tombstone {
	out := slices.Clone(tombstones)
	for i, t := range out {
		out[i].Start = append([]byte(prefix), t.Start...)
		if t.End != nil {
			out[i].End = append([]byte(prefix), t.End...)
		}
	}
	return out
}

// checkSource compares a source with the model at and before every key. wanted
// are the snapshots at which it has to be right.
func checkSource(t *testing.T, what string, source Source, m model, prefix string, wanted []keys.SeqNum) {
	t.Helper()
	var previous []byte
	for _, tail := range universe {
		key := append([]byte(prefix), tail...)
		for _, snapshot := range wanted {
			st := source.StretchAt(key, snapshot)
			checkStretch(t, what, st, m, key, snapshot)
			if bytes.Compare(st.Start, key) > 0 || st.End != nil && bytes.Compare(key, st.End) >= 0 {
				t.Fatalf("%s: the stretch at %q is [%q, %q)", what, key, st.Start, st.End)
			}
			if c, ok := source.(interface {
				Covering([]byte, keys.SeqNum) keys.SeqNum
			}); ok && c.Covering(key, snapshot) != st.Seq {
				t.Fatalf("%s: Covering(%q, %d) = %d, StretchAt finds %d", what, key, snapshot, c.Covering(key, snapshot), st.Seq)
			}
			if previous == nil {
				continue
			}
			// Nothing begins or ends between two keys that follow one another.
			st = source.StretchBefore(key, snapshot)
			checkStretch(t, what, st, m, previous, snapshot)
			if bytes.Compare(st.Start, key) >= 0 || st.End != nil && bytes.Compare(key, st.End) > 0 {
				t.Fatalf("%s: the stretch before %q is [%q, %q)", what, key, st.Start, st.End)
			}
		}
		previous = key
	}
}

// checkStretch compares with the model at key, and at both ends of the stretch.
func checkStretch(t *testing.T, what string, st Stretch, m model, key []byte, snapshot keys.SeqNum) {
	t.Helper()
	for _, k := range [][]byte{key, st.Start} {
		if want := m.covering(k, snapshot); k != nil && want != st.Seq {
			t.Fatalf("%s: at %q, snapshot %d: %d in [%q, %q), want %d", what, k, snapshot, st.Seq, st.Start, st.End, want)
		}
	}
}

// parse reads tombstones such as "a-d5 c-f7 b-~9"; that last one has no end.
func parse(t *testing.T, s string) (out []Tombstone) {
	t.Helper()
	for field := range strings.FieldsSeq(s) {
		var seq uint64
		if _, err := fmt.Sscan(field[3:], &seq); err != nil {
			t.Fatal(err)
		}
		tombstone := Tombstone{Start: []byte(field[:1]), End: []byte(field[2:3]), Seq: keys.SeqNum(seq)}
		if field[2] == '~' {
			tombstone.End = nil
		}
		out = append(out, tombstone)
	}
	return out
}

// show prints spans as "a-c5 c-d7,5".
func show(spans []Span) string {
	var out []string
	for _, s := range spans {
		seqs := strings.Trim(strings.ReplaceAll(fmt.Sprint(s.Seqs), " ", ","), "[]")
		end := string(s.End)
		if s.End == nil {
			end = "~"
		}
		out = append(out, fmt.Sprintf("%s-%s%s", s.Start, end, seqs))
	}
	return strings.Join(out, " ")
}

const many = 100_000

// shapes are the histories of many tombstones that overlap.
var shapes = []struct {
	name string
	key  func(i int) (start, end int)
	// spans is the number of them without snapshots.
	spans int
}{
	{"nested, growing", func(i int) (int, int) { return many - i, many + i + 1 }, 1},
	{"nested, shrinking", func(i int) (int, int) { return i, 2*many - i }, 2*many - 1},
	{"identical", func(int) (int, int) { return 1, 2 }, 1},
	{"from the first", func(i int) (int, int) { return 0, i + 1 }, 1},
	{"staircase", func(i int) (int, int) { return i, i + 1000 }, many},
	{"descending staircase", func(i int) (int, int) { return many - i, many - i + 1000 }, many},
	{"without end", func(i int) (int, int) { return i, -1 }, many},
	{"apart", func(i int) (int, int) { return 2 * i, 2*i + 1 }, many},
	{"shuffled staircase", func(i int) (int, int) { j := i * 77_777 % many; return 3 * j, 3*j + 50 }, 0},
}

func tombstonesOf(key func(i int) (start, end int)) []Tombstone {
	out := make([]Tombstone, many)
	for i := range out {
		start, end := key(i)
		out[i] = Tombstone{Start: fmt.Appendf(nil, "key-%08d", start), End: fmt.Appendf(nil, "key-%08d", end), Seq: keys.SeqNum(i + 1)}
		if end < 0 {
			out[i].End = nil
		}
	}
	return out
}
