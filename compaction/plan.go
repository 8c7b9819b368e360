package compaction

import (
	"bytes"
	"fmt"
	"slices"

	"sievedb/internal/keys"
	"sievedb/internal/manifest"
	"sievedb/internal/rangedel"
)

// Reason says why a plan was made.
type Reason uint8

const (
	ReasonL0         Reason = iota + 1 // level 0 has too many tables
	ReasonSize                         // the level is larger than its target
	ReasonTombstones                   // tombstones hide enough in deeper levels to be brought there
	ReasonDead                         // nothing needs many of the entries, nor is anything below them
	ReasonManual                       // a request
	ReasonDropped                      // range tombstones hide whole tables
)

// String names the reason as events and metrics do.
func (r Reason) String() string {
	if names := [...]string{"none", "l0", "size", "tombstones", "dead entries", "manual", "dropped"}; int(r) < len(names) {
		return names[r]
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}

// Reservation is the part of the tree that a running compaction, trivial move
// or flush below level 0 has for itself: the user keys Keys in the levels
// StartLevel to OutputLevel, both included (invariant 20).
//
// The levels between the two belong to it although nothing is there: had the
// base level moved down meanwhile, a second compaction from level 0 could put
// newer entries below those of the first. The levels below OutputLevel do not,
// although what may be elided depends on them: nothing enters them from above but
// through a reserved level, so what has nothing older below it stays so.
type Reservation struct {
	StartLevel, OutputLevel int
	Keys                    keys.Range
}

// Overlaps reports whether r and o must not run together.
func (r Reservation) Overlaps(o Reservation) bool {
	return r.StartLevel <= o.OutputLevel && o.StartLevel <= r.OutputLevel && r.Keys.Overlaps(o.Keys)
}

// Plan is one compaction to be done. Its slices must not be written; tables are
// those of the version that was picked from.
type Plan struct {
	Reason Reason
	// StartLevel is where the compaction starts and OutputLevel where its
	// tables go. They are equal when tables are rewritten in place.
	StartLevel, OutputLevel int
	// Inputs are the tables to replace: those of the start level, in level 0
	// newest first, and those of the output level, empty in place.
	Inputs [2][]*manifest.TableMeta
	// TrivialMove says that Inputs[0] can change its level as it is, without I/O
	// on tables. Inputs[1] is empty then.
	TrivialMove bool
	// Drop says that Inputs[0] go as they are, unread, and nothing takes their
	// place. Inputs[1] is empty then, and the levels of the plan are theirs.
	Drop bool
	// Bottommost says that no table below the output level overlaps the inputs.
	Bottommost bool
	// TargetTableBytes is the size that output tables should have: about the
	// target of the level, evened out.
	TargetTableBytes uint64
	// Grandparents are the tables just below the output level that overlap
	// the inputs, and MaxGrandparentBytes is how much of them one output table
	// may overlap, so that its own compaction will be bounded.
	Grandparents        []*manifest.TableMeta
	MaxGrandparentBytes uint64
	// Reservation must be in the Input.Running of every pick until the edit of
	// this compaction is installed, or the compaction given up.
	Reservation Reservation

	older [][]*manifest.TableMeta // see Elider
}

// InputBytes returns the bytes of the files of all inputs.
func (p *Plan) InputBytes() uint64 { return sizeBytes(p.Inputs[0]) + sizeBytes(p.Inputs[1]) }

// ZeroSeq returns the MergeOptions.ZeroSeq of the plan: true at the bottom
// level only. Higher up the gain would be short-lived, and sequence numbers say
// there whether a table holds entries from before a manual request.
func (p *Plan) ZeroSeq() bool { return p.OutputLevel == bottom }

// Elider returns a new Elider for the output of the plan.
func (p *Plan) Elider() *Elider { return &Elider{runs: slices.Clone(p.older)} }

// KeptRangeDels returns what of the range tombstones of the inputs goes into the
// output: without those that have nothing left to hide, oldest being the least
// sequence number at which somebody may read, and cut where grandparents begin, so
// that the output can end there. The entries are merged against spans as given.
func (p *Plan) KeptRangeDels(spans []rangedel.Span, oldest keys.SeqNum) []rangedel.Span {
	var out []rangedel.Span
	next := 0
	for _, s := range rangedel.Elide(spans, oldest, p.Elider().ElideRange) {
		r := spanRange(s)
		for ; next < len(p.Grandparents) && !r.EndsBefore(p.Grandparents[next].Smallest); next++ {
			at := p.Grandparents[next].Smallest
			if bytes.Compare(s.Start, at) < 0 {
				out = append(out, rangedel.Span{Start: s.Start, End: at, Seqs: s.Seqs})
				s.Start = at
			}
		}
		out = append(out, s)
	}
	return out
}

// spanRange returns the user keys of a span.
func spanRange(s rangedel.Span) keys.Range {
	return keys.Range{Lo: s.Start, Hi: s.End, HiExclusive: true, ToEnd: s.End == nil}
}

// Splitter returns a new Splitter for the output of the plan.
func (p *Plan) Splitter() *Splitter {
	return &Splitter{
		targetBytes: p.TargetTableBytes, maxGrandparentBytes: p.MaxGrandparentBytes, grandparents: p.Grandparents,
	}
}

func sizeBytes(tables []*manifest.TableMeta) uint64 {
	var n uint64
	for _, t := range tables {
		n += t.SizeBytes
	}
	return n
}

// hull returns the least range that covers all tables. Requires: there is one.
func hull(tables ...*manifest.TableMeta) keys.Range {
	r := tables[0].KeyRange()
	for _, t := range tables[1:] {
		r = r.Union(t.KeyRange())
	}
	return r
}
