package compaction

import (
	"sievedb/internal/keys"
	"sievedb/internal/manifest"
	"sievedb/internal/rangedel"
)

// Space comes back by itself: when nothing is urgent, a table is compacted if it
// is expected to free a Ratio-th of the bytes to be rewritten. Bringing data down
// a level costs as much, so deleting is never more costly than writing.

// dead returns a lower bound of the entries of t that a rewrite drops once no
// snapshot needs them and nothing lies below: all tombstones and all versions of
// a user key but one go, but an entry may be both.
func dead(t *manifest.TableMeta) uint64 {
	return max(t.Deletes, t.Entries-min(t.Entries, t.UserKeys))
}

// hiddenBytes estimates the bytes that the tombstones of t hide: one put each in
// deeper levels, or what lies under range tombstones if that is more. Where a key
// was never put, or was put again, that is too high, which costs no more than a
// rewrite per level.
func (p *picker) hiddenBytes(t *manifest.TableMeta) float64 {
	return float64(t.Deletes)*p.putBytes + p.underRangeDels(t)
}

// underRangeDels is the part of the range tombstones. Those that a snapshot does
// not see may be wide and free nothing: better to wait for its end than to rewrite
// all that it needs.
func (p *picker) underRangeDels(t *manifest.TableMeta) float64 {
	hidden := float64(t.RangeDeletes) * p.putBytes
	if t.RangeDeletes > 0 && p.rangeHidden != nil && t.LargestSeq <= p.oldest {
		hidden = max(hidden, float64(p.rangeHidden(t)))
	}
	return hidden
}

// dirty reports whether t, with nothing below it, is to be rewritten to drop
// its dead entries. Afterwards it is not: every snapshot sees every entry of t,
// so there is but one stripe and none of the dead survives, nor does a range
// tombstone.
func (p *picker) dirty(t *manifest.TableMeta) bool {
	if p.manual != nil {
		return p.manual.rewrites(t)
	}
	n := float64(dead(t)) + p.underRangeDels(t)/p.putBytes
	return n > 0 && t.LargestSeq <= p.oldest && p.worthwhile(n, float64(t.Entries))
}

// worthwhile reports whether freeing so much is worth rewriting so much.
func (p *picker) worthwhile(freed, rewritten float64) bool {
	return freed*float64(p.config.Ratio) >= rewritten
}

// pickReclaim returns a plan that frees space, from the top, so that tombstones
// gather on their way down.
func (p *picker) pickReclaim() (Plan, bool) {
	for _, group := range p.groupsL0() {
		if plan, ok := p.sink(0, group); ok {
			return plan, true
		}
	}
	for level := 1; level < manifest.NumLevels; level++ {
		for i, t := range p.v.Levels[level] {
			if dead(t) == 0 && t.RangeDeletes == 0 {
				continue
			}
			if p.bottommost(level, t) {
				if plan, ok := p.rewrite(ReasonDead, level, i); ok {
					return plan, true
				}
			} else if plan, ok := p.sink(level, p.v.Levels[level][i:i+1:i+1]); ok {
				return plan, true
			}
		}
	}
	return Plan{}, false
}

// bottommost reports whether no table in a deeper level overlaps t.
func (p *picker) bottommost(level int, t *manifest.TableMeta) bool {
	for level++; level < manifest.NumLevels; level++ {
		if len(p.v.Overlapping(level, t.KeyRange())) > 0 {
			return false
		}
	}
	return true
}

// pickDropped returns a plan that drops tables of one level of which the range
// tombstones of one newer table hide everything. For that all of their sequence
// numbers must be smaller, and no reader may be older than the range tombstones
// (invariant 5). Their own range tombstones go along: what those hide, the newer
// ones hide as well.
//
// Only range tombstones in tables count. One that is in a memtable may not outlive
// a crash, and would leave the deleted keys neither there nor deleted by anyone.
func (p *picker) pickDropped() (Plan, bool) {
	for level, tables := range p.v.Levels {
		for i, t := range tables {
			if t.RangeDeletes == 0 || p.rangeDels == nil {
				continue
			}
			set := p.rangeDels(t)
			if level == 0 {
				if plan, ok := p.drop(0, 0, set, tables[i+1:]); ok {
					return plan, true
				}
			}
			for below := level + 1; below < manifest.NumLevels; below++ {
				if plan, ok := p.drop(level, below, set, p.v.Overlapping(below, t.KeyRange())); ok {
					return plan, true
				}
			}
		}
	}
	return Plan{}, false
}

// drop returns a plan that drops those of tables, older ones of level below, of
// which set, of a table of level, hides everything.
//
// The reservation reaches up to the range tombstones: until the tables are gone
// nobody may drop those for having nothing left to hide.
func (p *picker) drop(level, below int, set *rangedel.Set, tables []*manifest.TableMeta) (Plan, bool) {
	plan := Plan{Reason: ReasonDropped, StartLevel: below, OutputLevel: below, Drop: true}
	for _, t := range tables {
		if !hides(set, t, p.oldest) {
			continue
		}
		r := Reservation{StartLevel: level, OutputLevel: below, Keys: t.KeyRange()}
		if len(plan.Inputs[0]) > 0 {
			r.Keys = r.Keys.Union(plan.Reservation.Keys)
		}
		if !p.busy(r) {
			plan.Inputs[0], plan.Reservation = append(plan.Inputs[0], t), r
		}
	}
	return plan, len(plan.Inputs[0]) > 0
}

// hides reports whether at every user key of t a range tombstone of set hides all
// of t from readers at oldest and later.
func hides(set *rangedel.Set, t *manifest.TableMeta, oldest keys.SeqNum) bool {
	for at := t.Smallest; ; {
		s := set.StretchAt(at, oldest)
		if s.Seq <= t.LargestSeq {
			return false
		}
		if t.KeyRange().CompareEnds(spanRange(rangedel.Span{End: s.End})) <= 0 {
			return true
		}
		at = s.End
	}
}

// sink returns a plan that brings tables of one level down because of their
// tombstones, if what these hide is worth it.
func (p *picker) sink(level int, tables []*manifest.TableMeta) (Plan, bool) {
	var hidden float64
	for _, t := range tables {
		hidden += p.hiddenBytes(t)
	}
	if hidden == 0 || !p.worthwhile(hidden, float64(sizeBytes(tables))) {
		return Plan{}, false // without searching what they overlap
	}
	plan, ok := p.plan(ReasonTombstones, level, p.outputLevel(level), tables)
	if !ok || !p.worthwhile(hidden, float64(plan.InputBytes())) {
		return Plan{}, false
	}
	return plan, true
}

// rewrite returns a plan that rewrites in place the dirty table i of a level
// together with those that follow it, as many as one compaction may take, so that
// what is left of them fills whole tables.
func (p *picker) rewrite(reason Reason, level, i int) (Plan, bool) {
	tables := p.v.Levels[level]
	room := p.config.maxBytes(level, p.base)
	end, size := i, uint64(0)
	for end < len(tables) && p.dirty(tables[end]) && p.bottommost(level, tables[end]) {
		if size += tables[end].SizeBytes; end > i && size > room {
			break
		}
		end++
	}
	if end == i {
		return Plan{}, false
	}
	return p.plan(reason, level, level, tables[i:end:end])
}
