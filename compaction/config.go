package compaction

import (
	"cmp"
	"math"
	"slices"

	"sievedb/internal/manifest"
)

// bottom is the deepest level, which all data reaches in the end.
const bottom = manifest.NumLevels - 1

// baseMemtables is the least target of the base level, in memtables: a
// compaction of level 0 should not find less there than it brings.
const baseMemtables = 4

// Config shapes the tree. A zero field means its default.
type Config struct {
	MemtableBytes  uint64 // of a full memtable; default 32 MiB
	L0Tables       int    // tables in level 0 that start a compaction; default 4
	Ratio          uint64 // of the sizes of two adjacent levels; default 10
	BaseTableBytes uint64 // target size of a table in the base level, doubling with each level; default 8 MiB
	MaxTableBytes  uint64 // limit of that doubling; default 64 MiB
	// MaxTargetTables bounds one compaction, in tables of the target size of its
	// output level; default 25. What cannot be made smaller may exceed it: a
	// compaction of level 0, or of one table that overlaps more than that.
	MaxTargetTables uint64
}

func (c Config) withDefaults() Config {
	return Config{
		MemtableBytes:   cmp.Or(c.MemtableBytes, 32<<20),
		L0Tables:        cmp.Or(c.L0Tables, 4),
		Ratio:           cmp.Or(c.Ratio, 10),
		BaseTableBytes:  cmp.Or(c.BaseTableBytes, 8<<20),
		MaxTableBytes:   cmp.Or(c.MaxTableBytes, 64<<20),
		MaxTargetTables: cmp.Or(c.MaxTargetTables, 25),
	}
}

// tableBytes returns the target size of a table of level, in bytes.
func (c Config) tableBytes(level, base int) uint64 {
	size := c.BaseTableBytes
	for ; level > base && size < c.MaxTableBytes; level-- {
		size *= 2
	}
	return min(size, c.MaxTableBytes)
}

// maxBytes returns the bound of one compaction into level, in bytes.
func (c Config) maxBytes(level, base int) uint64 {
	return c.MaxTargetTables * c.tableBytes(level, base)
}

// LevelTargets returns the base level, to which level 0 is compacted, and the
// size in bytes that each level should not exceed. Level 0 has no target of
// this kind, nor has a level that should be empty; for both it is zero.
//
// Targets are counted from below: the bottom level has what it has, and each
// level above a Ratio-th of it, for as long as that is at least four memtables.
// That keeps obsolete entries at about 1/(Ratio-1) of the data, however much it is.
//
// The base level is never deeper than the first level that holds data, since
// newer entries must not be put below older ones. When the data has shrunk, that
// level may have no target; then it drains.
func LevelTargets(v *manifest.Version, c Config) (base int, targets [manifest.NumLevels]uint64) {
	c = c.withDefaults()
	least := baseMemtables * c.MemtableBytes
	base = bottom
	target := max(v.SizeBytes(bottom), least)
	targets[base] = target
	for base > 1 && target/c.Ratio >= least {
		target /= c.Ratio
		base--
		targets[base] = target
	}
	for level := 1; level < base; level++ {
		if len(v.Levels[level]) > 0 {
			return level, targets
		}
	}
	return base, targets
}

// Scores returns how urgently each level should be compacted into the next
// one: from 1 on it should, and the greater the sooner. Level 0 scores by its
// number of tables, since each is one more probe of a lookup, deeper levels by
// size, and a level that should be empty always scores more than 1.
//
// Tables that running compactions carry away do not count, nor do tables of
// level 0 in their way, which cannot be picked before they end.
func Scores(v *manifest.Version, c Config, running []Reservation) [manifest.NumLevels]float64 {
	c = c.withDefaults()
	_, targets := LevelTargets(v, c)
	var scores [manifest.NumLevels]float64
	for level := range bottom {
		var tables int
		var size uint64
		for _, t := range v.Levels[level] {
			leaving := slices.ContainsFunc(running, func(r Reservation) bool {
				return r.StartLevel == level && r.OutputLevel != level && r.Keys.Overlaps(t.KeyRange())
			})
			if !leaving {
				tables++
				size += t.SizeBytes
			}
		}
		switch {
		case level == 0:
			scores[level] = float64(tables) / float64(c.L0Tables)
		case tables == 0:
		case targets[level] == 0:
			scores[level] = 1 + float64(size)/float64(baseMemtables*c.MemtableBytes)
		default:
			scores[level] = float64(size) / float64(targets[level])
		}
	}
	return scores
}

// Debt estimates the bytes that compactions have to write before every level
// is within its target, for back-pressure. What a level has in excess is written
// with its share of the level below, and then counts there; level 0 counts once
// it has enough tables to be compacted.
func Debt(v *manifest.Version, c Config) uint64 {
	c = c.withDefaults()
	base, targets := LevelTargets(v, c)
	var carried, debt float64
	if len(v.Levels[0]) >= c.L0Tables {
		carried = float64(v.SizeBytes(0))
		debt = carried + float64(v.SizeBytes(base))
	}
	for level := base; level < bottom; level++ {
		size := float64(v.SizeBytes(level)) + carried
		carried = max(0, size-float64(targets[level]))
		if carried > 0 {
			debt += carried + carried/size*float64(v.SizeBytes(level+1))
		}
	}
	return uint64(min(debt, math.MaxInt64))
}
