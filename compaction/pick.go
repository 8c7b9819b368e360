package compaction

import (
	"bytes"
	"cmp"
	"slices"

	"sievedb/internal/keys"
	"sievedb/internal/manifest"
	"sievedb/internal/rangedel"
)

// Input is what a pick depends on besides the version.
type Input struct {
	Config Config
	// Running are the reservations of everything that runs.
	Running []Reservation
	// OldestSnapshot is the least sequence number at which somebody may read:
	// the oldest snapshot or, without one, the visible sequence number.
	OldestSnapshot keys.SeqNum
	// L0Only restricts the pick to level 0, for the worker that is kept for it.
	L0Only bool
	// RangeDels returns the range tombstones of a table of the version that has
	// some, and HiddenBytes about how much they hide, in bytes, of that table and
	// of deeper levels. Either may be nil if no table has any.
	RangeDels   func(*manifest.TableMeta) *rangedel.Set
	HiddenBytes func(*manifest.TableMeta) uint64
}

// Pick returns the most urgent compaction of v that can run beside in.Running,
// if there is one worth doing: tables that range tombstones hide as a whole, since
// they cost nothing; levels that are too large, by score; and if there is none,
// tables whose tombstones and obsolete versions are worth removing.
//
// Every pick brings entries down a level or drops some. So, without writes,
// picking comes to an end.
func Pick(v *manifest.Version, in Input) (Plan, bool) {
	p := newPicker(v, in)
	if plan, ok := p.pickDropped(); ok {
		return plan, true
	}
	scores := Scores(v, p.config, in.Running)
	var levels []int
	for level, score := range scores {
		if score >= 1 && (level == 0 || level == p.base && scores[0] >= 1 || !in.L0Only) {
			levels = append(levels, level)
		}
	}
	slices.SortStableFunc(levels, func(a, b int) int { return cmp.Compare(scores[b], scores[a]) })
	for _, level := range levels {
		if plan, ok := p.pickLevel(level); ok {
			return plan, true
		}
	}
	if in.L0Only {
		return Plan{}, false
	}
	return p.pickReclaim()
}

// picker is one pick: its arguments and what is derived from them once.
type picker struct {
	v       *manifest.Version
	config  Config // without zeroes
	running []Reservation
	oldest  keys.SeqNum
	manual  *Manual // nil unless the pick is for a request
	base    int
	// putBytes is the mean size of a put: what a tombstone is taken to hide.
	putBytes float64

	rangeDels   func(*manifest.TableMeta) *rangedel.Set
	rangeHidden func(*manifest.TableMeta) uint64
}

func newPicker(v *manifest.Version, in Input) *picker {
	p := &picker{
		v: v, config: in.Config.withDefaults(), running: in.Running, oldest: in.OldestSnapshot,
		rangeDels: in.RangeDels, rangeHidden: in.HiddenBytes,
	}
	p.base, _ = LevelTargets(v, p.config)
	var size, puts uint64
	for _, tables := range v.Levels {
		for _, t := range tables {
			size += t.SizeBytes
			puts += t.Entries - min(t.Entries, t.Deletes)
		}
	}
	p.putBytes = float64(size) / float64(max(1, puts))
	return p
}

// outputLevel returns the level that a compaction of level goes to: the base
// level from level 0, and no level between the two holds tables.
func (p *picker) outputLevel(level int) int { return max(level+1, p.base) }

// busy reports whether r overlaps something that runs.
func (p *picker) busy(r Reservation) bool { return slices.ContainsFunc(p.running, r.Overlaps) }

// plan completes a plan from its tables in the start level, unless it cannot run
// beside what runs. Requires: inputs is not empty, nor does another table of
// level 0 overlap the hull of inputs from there.
func (p *picker) plan(reason Reason, start, output int, inputs []*manifest.TableMeta) (Plan, bool) {
	span := hull(inputs...)
	var below []*manifest.TableMeta
	if output != start {
		below = p.v.Overlapping(output, span)
		if len(below) == 0 {
			below = p.smallNeighbour(output, span, sizeBytes(inputs))
			if len(below) > 0 && p.busy(Reservation{StartLevel: start, OutputLevel: output, Keys: span.Union(hull(below...))}) {
				below = nil // it is a favour, not worth waiting for
			}
		}
		if len(below) > 0 {
			span = span.Union(hull(below[0], below[len(below)-1]))
		}
	}
	plan := Plan{
		Reason:     reason,
		StartLevel: start, OutputLevel: output,
		Inputs:              [2][]*manifest.TableMeta{inputs, below},
		MaxGrandparentBytes: p.config.maxBytes(output, p.base),
		Reservation:         Reservation{StartLevel: start, OutputLevel: output, Keys: span},
	}
	if p.busy(plan.Reservation) {
		return Plan{}, false
	}
	plan.TargetTableBytes = evenBytes(plan.InputBytes(), p.config.tableBytes(output, p.base))
	// Newer tables are no concern of the Elider. Level 0 holds no older one
	// outside the inputs, and the output level none that overlaps.
	for level := start + 1; level < manifest.NumLevels; level++ {
		tables := p.v.Overlapping(level, span)
		if level == output || len(tables) == 0 {
			continue
		}
		plan.older = append(plan.older, tables)
		if level == output+1 {
			plan.Grandparents = tables
		}
	}
	plan.Bottommost = len(plan.older) == 0
	plan.TrivialMove = p.movable(&plan)
	return plan, true
}

// evenBytes returns the table size nearest to the target that leaves no small
// rest of size bytes, and a little more in case the output is larger than the
// inputs. That saves a fifth of the tables.
func evenBytes(size, target uint64) uint64 {
	tables := max(1, (size+target/2)/target)
	return size/tables + target/64 + 1
}

// movable reports whether the plan is a trivial move. A table that would be
// rewritten in the output level right away is rewritten on its way there.
func (p *picker) movable(plan *Plan) bool {
	if plan.StartLevel == plan.OutputLevel || len(plan.Inputs[1]) > 0 ||
		plan.StartLevel == 0 && len(plan.Inputs[0]) > 1 ||
		sizeBytes(plan.Grandparents) > plan.MaxGrandparentBytes {
		return false
	}
	return !plan.Bottommost || !slices.ContainsFunc(plan.Inputs[0], p.dirty)
}

// smallNeighbour returns, for inputs of size bytes that overlap nothing in the
// output level, the table before them there if both are small, so that they
// become one: many short sessions would otherwise pile up tiny tables.
func (p *picker) smallNeighbour(output int, span keys.Range, size uint64) []*manifest.TableMeta {
	small := p.config.tableBytes(output, p.base) / 4
	tables := p.v.Levels[output]
	i, _ := slices.BinarySearchFunc(tables, span.Lo, func(t *manifest.TableMeta, key []byte) int {
		return bytes.Compare(t.Smallest, key)
	})
	if i == 0 || size >= small || tables[i-1].SizeBytes >= small {
		return nil
	}
	return tables[i-1 : i : i]
}

// pickLevel returns a plan for a level that is too large: in level 0 for the
// free group of tables that has waited longest.
func (p *picker) pickLevel(level int) (Plan, bool) {
	if level > 0 {
		return p.pickCheapest(level)
	}
	for _, group := range p.groupsL0() {
		if plan, ok := p.plan(ReasonL0, 0, p.base, group); ok {
			return plan, true
		}
	}
	return Plan{}, false
}

// groupsL0 parts level 0 into the tables that must go together, since they
// overlap each other directly or through others: taking the newer ones along
// with the older costs little and saves rewriting the base level for them.
// Groups are ordered by their oldest table, their tables newest first.
func (p *picker) groupsL0() [][]*manifest.TableMeta {
	tables := slices.SortedFunc(slices.Values(p.v.Levels[0]), func(a, b *manifest.TableMeta) int {
		return bytes.Compare(a.Smallest, b.Smallest)
	})
	var groups [][]*manifest.TableMeta
	var span keys.Range // of the last group
	for _, t := range tables {
		if last := len(groups) - 1; last >= 0 && span.Overlaps(t.KeyRange()) {
			groups[last] = append(groups[last], t)
			span = span.Union(t.KeyRange())
		} else {
			groups = append(groups, []*manifest.TableMeta{t})
			span = t.KeyRange()
		}
	}
	newestFirst := func(a, b *manifest.TableMeta) int { // as in manifest.Version
		return cmp.Or(cmp.Compare(b.LargestSeq, a.LargestSeq), cmp.Compare(b.FileNum, a.FileNum))
	}
	for _, group := range groups {
		slices.SortFunc(group, newestFirst)
	}
	slices.SortFunc(groups, func(a, b []*manifest.TableMeta) int { return newestFirst(b[len(b)-1], a[len(a)-1]) })
	return groups
}

// pickCheapest returns a plan for the free table of a level > 0 that brings most
// down for the least rewriting of the next level, the oldest of equals. What a
// table brings down is its size and the data that its tombstones hide.
//
// Taking the oldest first, which goes round the level, was rejected: in the
// simulator it writes an eighth more. The order by cost is fair without a cursor:
// where a range stays, data gathers above the same tables, and it gets cheaper.
func (p *picker) pickCheapest(level int) (Plan, bool) {
	tables, next := p.v.Levels[level], p.v.Levels[level+1]
	best, bestCost := -1, 0.0
	first := 0 // in next, of those that can overlap
	for i, t := range tables {
		for first < len(next) && next[first].KeyRange().EndsBefore(t.Smallest) {
			first++
		}
		span, overlap := t.KeyRange(), uint64(0)
		for j := first; j < len(next) && !t.KeyRange().EndsBefore(next[j].Smallest); j++ {
			span = span.Union(next[j].KeyRange())
			overlap += next[j].SizeBytes
		}
		cost := float64(overlap) / (float64(t.SizeBytes) + p.hiddenBytes(t) + 1)
		if best >= 0 && (cost > bestCost || cost == bestCost && t.FileNum > tables[best].FileNum) {
			continue
		}
		if !p.busy(Reservation{StartLevel: level, OutputLevel: level + 1, Keys: span}) {
			best, bestCost = i, cost
		}
	}
	if best < 0 {
		return Plan{}, false
	}
	return p.plan(ReasonSize, level, level+1, p.grow(level, best))
}

// grow returns the table i of level with those beside it that can be added
// without adding tables of the next level, within the bound of one compaction.
func (p *picker) grow(level, i int) []*manifest.TableMeta {
	tables := p.v.Levels[level]
	below := p.v.Overlapping(level+1, tables[i].KeyRange())
	if len(below) == 0 {
		return tables[i : i+1 : i+1]
	}
	span := hull(below[0], below[len(below)-1])
	room := p.config.maxBytes(level+1, p.base)
	size := sizeBytes(below) + tables[i].SizeBytes
	first, end := i, i+1
	for end < len(tables) && size+tables[end].SizeBytes <= room && tables[end].KeyRange().CompareEnds(span) <= 0 {
		size += tables[end].SizeBytes
		end++
	}
	for first > 0 && size+tables[first-1].SizeBytes <= room && bytes.Compare(tables[first-1].Smallest, span.Lo) >= 0 {
		first--
		size += tables[first].SizeBytes
	}
	return tables[first:end:end]
}
