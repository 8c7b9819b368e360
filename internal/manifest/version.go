package manifest

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"

	"sievedb/internal/keys"
)

// NumLevels is the number of levels of the tree; the deepest is NumLevels-1.
const NumLevels = 7

// TableMeta is what the manifest knows of one table. It never changes once it
// is part of a version, and its slices must not be written.
type TableMeta struct {
	FileNum   keys.FileNum
	SizeBytes uint64 // of the file
	Checksum  uint32 // of the footer, which in turn covers every block handle

	// Smallest and Largest are the first and the last user key that entries and
	// range tombstones cover. With LargestExclusive Largest is the end of a range
	// tombstone, and not covered itself; with ToEnd a range tombstone has no end,
	// and Largest does not count.
	Smallest, Largest       []byte
	LargestExclusive, ToEnd bool
	// SmallestSeq and LargestSeq bound the sequence numbers of entries and range
	// tombstones.
	SmallestSeq, LargestSeq keys.SeqNum

	Entries      uint64 // entries of every kind, without range tombstones
	Deletes      uint64 // of those, point tombstones
	RangeDeletes uint64 // range tombstones, each stretch and sequence number counted
	UserKeys     uint64 // distinct user keys of the entries
	RawBytes     uint64 // user keys and values of the entries, before compression
	FilterBytes  uint64 // size of the filter payload; zero without a filter
}

// KeyRange returns the range of user keys that the table covers. Its slices
// are the table's own.
func (t *TableMeta) KeyRange() keys.Range {
	return keys.Range{Lo: t.Smallest, Hi: t.Largest, HiExclusive: t.LargestExclusive, ToEnd: t.ToEnd}
}

// String prints the table as in a picture of its version, without the level.
func (t *TableMeta) String() string {
	return fmt.Sprintf("%06d %v seq %d-%d %s", t.FileNum, t.KeyRange(), t.SmallestSeq, t.LargestSeq, printSize(t.SizeBytes))
}

// Version is one shape of the tree: which tables each level holds. It is
// immutable. The zero Version is an empty tree.
//
//   - Levels[0] is ordered newest first: by LargestSeq descending, then by
//     FileNum descending, never by file number alone (invariant 3). Tables
//     that overlap there have disjoint ranges of sequence numbers.
//   - Deeper levels are ordered by Smallest; no user key lies within two
//     tables of one level (invariant 4). One may begin where the range tombstone
//     of another ends.
//   - No file number occurs twice.
type Version struct {
	Levels [NumLevels][]*TableMeta
}

// Overlapping returns the tables of a level that overlap r, in the order of
// the level. For a level deeper than zero the result is a part of the level
// and must not be written. Requires: 0 <= level < NumLevels.
func (v *Version) Overlapping(level int, r keys.Range) []*TableMeta {
	tables := v.Levels[level]
	if level == 0 {
		var out []*TableMeta
		for _, t := range tables {
			if r.Overlaps(t.KeyRange()) {
				out = append(out, t)
			}
		}
		return out
	}
	first := sort.Search(len(tables), func(i int) bool {
		return !tables[i].KeyRange().EndsBefore(r.Lo)
	})
	rest := tables[first:]
	end := first + sort.Search(len(rest), func(i int) bool {
		return r.EndsBefore(rest[i].Smallest)
	})
	return tables[first:end:end]
}

// SizeBytes returns the bytes of the files of a level.
// Requires: 0 <= level < NumLevels.
func (v *Version) SizeBytes(level int) uint64 {
	var n uint64
	for _, t := range v.Levels[level] {
		n += t.SizeBytes
	}
	return n
}

// Entries returns the number of entries of every kind in all tables.
func (v *Version) Entries() uint64 {
	var n uint64
	for _, tables := range v.Levels {
		for _, t := range tables {
			n += t.Entries
		}
	}
	return n
}

// Tables returns the number of tables in all levels.
func (v *Version) Tables() int {
	n := 0
	for _, tables := range v.Levels {
		n += len(tables)
	}
	return n
}

// String draws the version, one line per table in the order of the levels:
//
//	L1 000012 [a..f] seq 1-9 2.1 MiB
func (v *Version) String() string {
	var b strings.Builder
	for level, tables := range v.Levels {
		for _, t := range tables {
			fmt.Fprintf(&b, "L%d %v\n", level, t)
		}
	}
	return b.String()
}

// Apply returns the version after e; v stays as it is, and levels that e does
// not touch are shared. A table that is removed and added in one edit moves,
// as in a trivial move. The error names the table and the level that would
// break the rules of a Version; e.Added's metas become part of the result.
func (v *Version) Apply(e *Edit) (*Version, error) {
	tables := make(tableSet, v.Tables())
	for level := range v.Levels {
		for _, t := range v.Levels[level] {
			tables[t.FileNum] = LevelTable{Level: level, Meta: t}
		}
	}
	if err := tables.apply(e); err != nil {
		return nil, err
	}
	out := *v
	for level := range out.Levels {
		if !e.touches(level) {
			continue
		}
		out.Levels[level] = applyLevel(level, v.Levels[level], e)
		if err := checkLevel(level, out.Levels[level]); err != nil {
			return nil, err
		}
	}
	return &out, nil
}

// applyLevel returns a level after e, of which tableSet.apply approved.
func applyLevel(level int, old []*TableMeta, e *Edit) []*TableMeta {
	var added []*TableMeta
	for _, a := range e.Added {
		if a.Level == level {
			added = append(added, a.Meta)
		}
	}
	order := compareInLevel(level)
	slices.SortFunc(added, order)
	out := make([]*TableMeta, 0, len(old)+len(added))
	for _, t := range old {
		if slices.Contains(e.Removed, LevelFile{Level: level, FileNum: t.FileNum}) {
			continue
		}
		for len(added) > 0 && order(added[0], t) < 0 {
			out, added = append(out, added[0]), added[1:]
		}
		out = append(out, t)
	}
	return append(out, added...)
}

// tableSet is the tables of a version by file number.
type tableSet map[keys.FileNum]LevelTable

// apply changes the set as e says and checks all that can be told without the
// order of the levels. After an error the set is of no use.
func (s tableSet) apply(e *Edit) error {
	for _, gone := range e.Removed {
		if t, ok := s[gone.FileNum]; !ok || t.Level != gone.Level {
			return fmt.Errorf("remove table %06d: level %d does not hold it", gone.FileNum, gone.Level)
		}
		delete(s, gone.FileNum)
	}
	for _, a := range e.Added {
		if err := a.check(); err != nil {
			return err
		}
		if t, ok := s[a.Meta.FileNum]; ok {
			return fmt.Errorf("add table %06d to level %d: level %d holds it already", a.Meta.FileNum, a.Level, t.Level)
		}
		s[a.Meta.FileNum] = a
	}
	return nil
}

// compareInLevel returns the order of the tables of a level.
func compareInLevel(level int) func(a, b *TableMeta) int {
	if level == 0 {
		return func(a, b *TableMeta) int {
			return cmp.Or(cmp.Compare(b.LargestSeq, a.LargestSeq), cmp.Compare(b.FileNum, a.FileNum))
		}
	}
	return func(a, b *TableMeta) int {
		return cmp.Or(bytes.Compare(a.Smallest, b.Smallest), cmp.Compare(a.FileNum, b.FileNum))
	}
}

// checkLevel checks the rules of a Version for the sorted tables of a level.
// In level 0 it compares each table with those whose sequence numbers reach
// into its own, few as a rule; deeper down, neighbours are enough.
func checkLevel(level int, tables []*TableMeta) error {
	for i, t := range tables {
		for _, next := range tables[i+1:] {
			if level == 0 && next.LargestSeq < t.SmallestSeq {
				break
			}
			if t.KeyRange().Overlaps(next.KeyRange()) {
				if level == 0 {
					return fmt.Errorf("level 0: tables %v and %v overlap in keys and in sequence numbers", t, next)
				}
				return fmt.Errorf("level %d: tables %v and %v overlap", level, t, next)
			}
			if level > 0 {
				break
			}
		}
	}
	return nil
}

// printSize prints bytes with one decimal in the largest unit below the value.
func printSize(n uint64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	v, unit := float64(n)/(1<<10), 0
	for ; v >= 1<<10; unit++ {
		v /= 1 << 10
	}
	return fmt.Sprintf("%.1f %ciB", v, "KMGTPE"[unit])
}
