package rangedel

import (
	"bytes"
	"unsafe"

	"sievedb/internal/keys"
)

// node holds what the tombstones from..to-1 of a log do together, as the
// steps of a function over the key space.
type node struct {
	steps
	from, to int
	children []*node // oldest first; none in a leaf
}

// steps says which tombstone is the newest from each boundary on, up to the
// next. Boundaries ascend strictly; neighbours in tops differ; the first is not
// zero, and the last is unless a tombstone has no end.
type steps struct {
	ats  []uint32 // boundaries: twice the position of a tombstone, plus one for its end
	tops []uint32 // the position of the newest tombstone, plus one; zero is none
}

func (n *node) len() int { return n.to - n.from }

// sizeBytes returns the memory of the node without its children, in bytes.
func (n *node) sizeBytes() int {
	return int(unsafe.Sizeof(*n)) + 4*cap(n.ats) + 4*cap(n.tops) + cap(n.children)*int(unsafe.Sizeof(n))
}

// leaf makes a node of the tombstones from..to-1.
func (s *logState) leaf(from, to int) *node {
	return &node{steps: s.fold(from, to), from: from, to: to}
}

func (s *logState) fold(from, to int) steps {
	if to-from == 1 {
		i := uint32(from)
		if s.tombstones[from].End == nil {
			return steps{ats: []uint32{2 * i}, tops: []uint32{i + 1}}
		}
		return steps{ats: []uint32{2 * i, 2*i + 1}, tops: []uint32{i + 1, 0}}
	}
	mid := (from + to) / 2
	return s.overlay(s.fold(mid, to), s.fold(from, mid))
}

// parent makes a node of nodes that follow one another. It keeps children.
func (s *logState) parent(children []*node) *node {
	// In pairs, so that no step is copied more than twice.
	var pairs [fanOut / 2]steps
	for i := range pairs {
		pairs[i] = s.overlay(children[2*i+1].steps, children[2*i].steps)
	}
	return &node{
		steps:    s.overlay(pairs[1], pairs[0]),
		from:     children[0].from,
		to:       children[fanOut-1].to,
		children: children,
	}
}

// boundary returns the key of a boundary.
func (s *logState) boundary(at uint32) []byte {
	t := &s.tombstones[at/2]
	if at%2 == 0 {
		return t.Start
	}
	return t.End
}

// overlay returns what two steps do together: where newer has a tombstone it
// is the newest.
func (s *logState) overlay(newer, older steps) steps {
	most := len(newer.ats) + len(older.ats)
	out := steps{ats: make([]uint32, 0, most), tops: make([]uint32, 0, most)}
	var i, j int
	var above, below, last uint32 // what applies in newer, in older, in out
	for i < len(newer.ats) || j < len(older.ats) {
		var c int
		switch {
		case j == len(older.ats):
			c = -1
		case i == len(newer.ats):
			c = 1
		default:
			c = bytes.Compare(s.boundary(newer.ats[i]), s.boundary(older.ats[j]))
		}
		var at uint32
		if c >= 0 {
			at, below = older.ats[j], older.tops[j]
			j++
		}
		if c <= 0 {
			at, above = newer.ats[i], newer.tops[i]
			i++
		}
		top := above
		if top == 0 {
			top = below
		}
		if top != last {
			out.ats, out.tops = append(out.ats, at), append(out.tops, top)
			last = top
		}
	}
	return out
}

// question asks a log about one place in the key space. It goes from the newest
// tombstones to the oldest, and ends with the first that covers the place.
type question struct {
	place
	snapshot keys.SeqNum
	bounds   bool // whether Start and End of the answer are wanted
	answer   Stretch
}

func (q *question) ask(s *logState) {
	first := 0 // of the tombstones that are in no node
	if n := len(s.roots); n > 0 {
		first = s.roots[n-1].to
	}
	if !q.list(s.tombstones[first:]) {
		q.nodes(s, s.roots)
	}
}

// nodes asks nodes, newest first, and reports whether the place is covered.
func (q *question) nodes(s *logState, nodes []*node) bool {
	for i := len(nodes) - 1; i >= 0; i-- {
		n := nodes[i]
		if s.tombstones[n.from].Seq > q.snapshot {
			continue
		}
		var covered bool
		switch {
		case s.tombstones[n.to-1].Seq <= q.snapshot:
			covered = q.steps(s, n.steps)
		case len(n.children) > 0:
			covered = q.nodes(s, n.children)
		default:
			covered = q.list(s.tombstones[n.from:n.to])
		}
		if covered {
			return true
		}
	}
	return false
}

// steps asks what a node's tombstones do together.
func (q *question) steps(s *logState, f steps) bool {
	lo, hi := 0, len(f.ats)
	for lo < hi {
		if mid := int(uint(lo+hi) / 2); q.reached(s.boundary(f.ats[mid])) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	var st Stretch
	if lo > 0 {
		st.Start = s.boundary(f.ats[lo-1])
		if top := f.tops[lo-1]; top > 0 {
			st.Seq = s.tombstones[top-1].Seq
		}
	}
	if lo < len(f.ats) {
		st.End = s.boundary(f.ats[lo])
	}
	return q.take(st)
}

// list asks tombstones one by one.
func (q *question) list(tombstones []Tombstone) bool {
	for i := len(tombstones) - 1; i >= 0; i-- {
		t := &tombstones[i]
		var st Stretch
		switch {
		case t.Seq > q.snapshot:
		case !q.reached(t.Start):
			st.End = t.Start
		case t.End != nil && q.reached(t.End):
			st.Start = t.End
		default:
			st = Stretch(*t)
		}
		if q.take(st) {
			return true
		}
	}
	return false
}

// take adds what some tombstones say to the answer and reports whether they
// cover the place.
func (q *question) take(st Stretch) bool {
	if q.bounds {
		q.answer.narrow(st)
	}
	q.answer.Seq = st.Seq
	return st.Seq > 0
}
