package compaction

import (
	"slices"

	"sievedb/internal/keys"
	"sievedb/internal/manifest"
)

// Manual is a request to bring a range of user keys down to the bottom level,
// where tombstones and obsolete versions that no snapshot needs vanish.
//
// It covers what was there when it was made, told by Seq and Before: it ends
// even while new writes arrive, and needs no memory of what it has done.
type Manual struct {
	Keys keys.Range
	// Seq is the greatest sequence number in any table when the request was
	// made. Tables without a smaller or equal one need not be brought down.
	Seq keys.SeqNum
	// Before is the next file number when the request was made. Tables of the
	// bottom level from that number on need not be rewritten.
	Before keys.FileNum
	// RewriteAll rewrites the tables of the bottom level even if they hold
	// nothing to be dropped, so that their filters and blocks are made anew.
	RewriteAll bool
}

// covers reports whether m wants t brought down.
func (m *Manual) covers(t *manifest.TableMeta) bool {
	return t.SmallestSeq <= m.Seq && m.Keys.Overlaps(t.KeyRange())
}

// rewrites reports whether m wants t rewritten at the bottom. Whether snapshots
// still need its dead entries does not count: the request is for what can be
// had now, and Before ends it.
func (m *Manual) rewrites(t *manifest.TableMeta) bool {
	return t.FileNum < m.Before && m.Keys.Overlaps(t.KeyRange()) && (m.RewriteAll || dead(t) > 0 || t.RangeDeletes > 0)
}

// PickManual returns the next compaction for m that can run beside in.Running,
// level by level from the top. If it returns false, either m is done, which Done
// tells, or it has to wait for something that runs.
func PickManual(v *manifest.Version, in Input, m Manual) (Plan, bool) {
	p := newPicker(v, in)
	p.manual = &m
	for level := range bottom {
		groups := p.covered(level)
		for _, group := range groups {
			if plan, ok := p.plan(ReasonManual, level, p.outputLevel(level), group); ok {
				return plan, true
			}
		}
		if len(groups) > 0 {
			return Plan{}, false // not past entries that have still to come down
		}
	}
	for i := range v.Levels[bottom] {
		if plan, ok := p.rewrite(ReasonManual, bottom, i); ok {
			return plan, true
		}
	}
	return Plan{}, false
}

// Done reports whether nothing of m is left to be done in v.
func (m Manual) Done(v *manifest.Version, c Config) bool {
	_, left := PickManual(v, Input{Config: c}, m)
	return !left
}

// covered returns the tables of a level to be brought down, in the groups in
// which they should be: in level 0 those that must go together, deeper down as
// many neighbours as one compaction may take.
func (p *picker) covered(level int) [][]*manifest.TableMeta {
	if level == 0 {
		return slices.DeleteFunc(p.groupsL0(), func(group []*manifest.TableMeta) bool {
			return !slices.ContainsFunc(group, p.manual.covers)
		})
	}
	var groups [][]*manifest.TableMeta
	tables := p.v.Levels[level]
	for first := 0; first < len(tables); {
		end := first
		for end < len(tables) && p.manual.covers(tables[end]) && (end == first || p.fits(level, tables[first:end+1])) {
			end++
		}
		if end > first {
			groups = append(groups, tables[first:end:end])
		}
		first = max(end, first+1)
	}
	return groups
}

// fits reports whether one compaction may take neighbouring tables of a level.
func (p *picker) fits(level int, tables []*manifest.TableMeta) bool {
	below := p.v.Overlapping(level+1, hull(tables[0], tables[len(tables)-1]))
	return sizeBytes(tables)+sizeBytes(below) <= p.config.maxBytes(level+1, p.base)
}
