package keys

import (
	"cmp"
	"testing"
)

// places are keys where ranges begin and end, and universe is these and one key
// behind each.
var (
	places   = []string{"", "a", "aa", "b", "bb", "c"}
	universe = []string{"", "\x00", "a", "a\x00", "aa", "aa\x00", "b", "b\x00", "bb", "bb\x00", "c", "c\x00"}
)

// ranges are all that there are, and what each holds of the universe.
func ranges() (all []Range, holds []map[string]bool) {
	for i := 0; i < len(places); i++ {
		for j := i; j <= len(places); j++ {
			for _, exclusive := range []bool{false, true} {
				r := Range{Lo: []byte(places[i]), HiExclusive: exclusive}
				switch {
				case exclusive && (i == j || j == len(places)):
					continue
				case j == len(places):
					r.ToEnd = true
				default:
					r.Hi = []byte(places[j])
				}
				in := map[string]bool{}
				for k := 2 * i; k < len(universe) && (k < 2*j || k == 2*j && !exclusive); k++ {
					in[universe[k]] = true
				}
				if r.ToEnd {
					in["end"] = true
				}
				all, holds = append(all, r), append(holds, in)
			}
		}
	}
	return all, holds
}

func TestRange(t *testing.T) {
	all, holds := ranges()
	last := func(in map[string]bool) (k string) {
		for key := range in {
			if key == "end" {
				key = "zzz"
			}
			k = max(k, key)
		}
		return k
	}
	for i, r := range all {
		for _, key := range universe {
			if got := r.Contains([]byte(key)); got != holds[i][key] {
				t.Errorf("%v contains %q: %v", r, key, got)
			}
			if got, want := r.EndsBefore([]byte(key)), last(holds[i]) < key; got != want {
				t.Errorf("%v ends before %q: %v", r, key, got)
			}
		}
		for j, o := range all {
			meet, within := false, true
			u := r.Union(o)
			for key := range holds[i] {
				meet = meet || holds[j][key]
				within = within && (key == "end" || u.Contains([]byte(key)))
			}
			if r.Overlaps(o) != meet {
				t.Errorf("%v and %v overlap: %v", r, o, !meet)
			}
			if !within || u.CompareEnds(r) != 0 && u.CompareEnds(o) != 0 || string(u.Lo) != min(string(r.Lo), string(o.Lo)) {
				t.Errorf("the union of %v and %v is %v", r, o, u)
			}
			if got, want := r.CompareEnds(o), cmp.Compare(last(holds[i]), last(holds[j])); got != want {
				t.Errorf("the ends of %v and %v: %d, want %d", r, o, got, want)
			}
		}
	}
}
