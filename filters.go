package sievedb

import (
	"context"

	"sievedb/compaction"
	"sievedb/filter"
	"sievedb/internal/keys"
	"sievedb/internal/manifest"
	"sievedb/sstable"
)

// filterBudget is what the options say about the sizes of filters.
func (o *Options) filterBudget() filter.Budget {
	return filter.Budget{Policy: o.Filters, AverageBits: o.FilterBitsPerKey}
}

// filterUse is what the tables of a flush or a compaction change in the sum of
// the charges of all filters. Guarded by DB.mu.
type filterUse struct {
	made, replaced int64
}

// grows returns by how much the sum may still grow, should it be that this is
// installed and nothing else.
func (u filterUse) grows() int64 { return max(0, u.made-u.replaced) }

// replaces says that the tables of o take the place of these.
func (o *outputs) replaces(inputs ...[]*manifest.TableMeta) {
	budget := o.db.o.filterBudget()
	o.db.mu.Lock()
	defer o.db.mu.Unlock()
	for _, tables := range inputs {
		for _, m := range tables {
			o.filters.replaced += budget.Charge(m.UserKeys, m.FilterBytes)
		}
	}
}

// sizeFilter decides the kind and the size of the filter of the table that is being
// finished, and reserves it: no order in which the flushes and compactions
// under way end, or fail, brings the sum above a budget in bytes. An average is
// not held as tightly: a compaction that is half done looks as if it needed
// memory that its other half gives back.
func (o *outputs) sizeFilter(p *sstable.Properties) (kind filter.Kind, millibits uint32) {
	db, budget := o.db, o.db.o.filterBudget()
	db.mu.Lock()
	defer db.mu.Unlock()
	v := o.version
	if v == nil {
		v = db.state.Load().Version
	}
	spent := o.filters.made - o.filters.replaced
	for other := range db.writing {
		if other != o && budget.BudgetBytes > 0 {
			spent += other.filters.grows()
		}
	}
	tree := filter.Tree{Tables: uint64(v.Tables()) + 1, Replaced: -spent}
	for _, tables := range v.Levels {
		for _, m := range tables {
			spent += budget.Charge(m.UserKeys, m.FilterBytes)
			tree.Keys += m.UserKeys
		}
	}
	if o.level == 0 { // a compaction writes keys that are counted already
		tree.Keys += p.UserKeys
	}
	tree.Keys = max(tree.Keys, p.UserKeys)
	tree.Spent = spent
	var distance int
	tree.Runs, distance = runsFor(v, db.shape(), o.level)
	if o.bottommost {
		distance = 0
	}
	if o.manual && o.bottommost || o.level == 0 && alone(v, p) {
		tree.Runs, distance = tree.Runs[:1], 0 // there is no other run to spend more on
	}
	kind, millibits, charge := budget.Size(tree, p.UserKeys, distance)
	o.filters.made += charge
	return kind, millibits
}

// alone reports whether a table that is flushed overlaps no other. If the next
// ones are alone, too, as in a load in the order of the keys, they all move to
// the bottom as they are, filter and all: the bits of a small run would take
// twice the memory there.
func alone(v *manifest.Version, p *sstable.Properties) bool {
	for level := range v.Levels {
		if len(v.Overlapping(level, keys.Range{Lo: p.SmallestKey, Hi: p.LargestKey})) > 0 {
			return false
		}
	}
	return true
}

// runsFor returns the sizes in bytes that the runs of the tree should have, the
// bottom first, and the position of level among them. Counted from the bottom,
// a run keeps its place when the base level moves. Level 0 counts with half as
// many tables as start a compaction, which is what it holds on average, of the
// size that they have: to hold back memory for all of them makes the filters
// of the bottom, which is always there, worse than it makes those better.
func runsFor(v *manifest.Version, c compaction.Config, level int) (runs []float64, position int) {
	const bottom = manifest.NumLevels - 1
	_, targets := compaction.LevelTargets(v, c)
	for l := bottom; l > 0 && targets[l] > 0; l-- {
		runs = append(runs, float64(targets[l]))
	}
	position = len(runs) // of the first table of level 0, and of what has yet to leave a level without target
	if level > 0 {
		position = min(position, bottom-level)
	}
	flushed := c.MemtableBytes / 2 // about what a memtable takes in a table
	if n := len(v.Levels[0]); n > 0 {
		flushed = v.SizeBytes(0) / uint64(n)
	}
	for range (c.L0Tables + 1) / 2 {
		runs = append(runs, float64(flushed))
	}
	return runs, position
}

// RebuildFilters is Compact over all keys, and writes every table anew, so that
// every filter is what Options.Filters says. Without it, a policy that changed
// comes into force with the compactions of every day. It is also what spreads
// a BudgetBytes anew that early tables have used up; then everything may be
// written twice, since no filter is made before others have freed its memory.
func (db *DB) RebuildFilters(ctx context.Context) error {
	err := db.compact(ctx, nil, nil, true)
	if err == nil && db.filtersWait() {
		err = db.compact(ctx, nil, nil, true)
	}
	return err
}

// filtersWait reports whether tables have no filter although there is room.
func (db *DB) filtersWait() bool {
	policy := &db.o.Filters
	var used int64
	without := false
	for t := range db.state.Load().All() {
		used += int64(t.Meta.FilterBytes)
		without = without || t.Meta.FilterBytes == 0 && t.Meta.Entries > 0
	}
	return without && used < policy.BudgetBytes*3/4 && !policy.SkipBottom && policy.FromBottom == nil && !db.o.DisableFilters
}
