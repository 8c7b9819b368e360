package manifest

import (
	"fmt"
	"slices"

	"sievedb/internal/keys"
)

// Edit is a change of the tree and of the set of live log segments, which
// takes effect as a whole or not at all. A zero field changes nothing. An Edit
// must not be written once it was given to a Log or applied.
type Edit struct {
	Added   []LevelTable
	Removed []LevelFile

	// NextFileNum is larger than every file number given out so far, this
	// edit's own among them. A value below the state's leaves that as it is:
	// edits prepared side by side may be logged in any order.
	NextFileNum keys.FileNum
	// LastSeq is the largest sequence number in any table. A value below the
	// state's leaves that as it is.
	LastSeq keys.SeqNum

	// AddedSegments are new log segments, ascending. They are live and open.
	AddedSegments []keys.FileNum
	// EndedSegments are live segments that will not grow again, or have ended
	// before and are durable now.
	EndedSegments []SegmentEnd
	// OldestSegment makes the segments below it obsolete, after AddedSegments
	// and EndedSegments took effect.
	OldestSegment keys.FileNum
}

// LevelTable is a table and the level it is added to.
type LevelTable struct {
	Level int
	Meta  *TableMeta
}

// LevelFile names a table and the level it is removed from.
type LevelFile struct {
	Level   int
	FileNum keys.FileNum
}

// SegmentEnd is the end of a log segment.
type SegmentEnd struct {
	FileNum   keys.FileNum
	SizeBytes uint64 // the final size, not zero
	Sealed    bool   // the segment is durable
}

// touches reports whether e changes the tables of a level.
func (e *Edit) touches(level int) bool {
	return slices.ContainsFunc(e.Added, func(t LevelTable) bool { return t.Level == level }) ||
		slices.ContainsFunc(e.Removed, func(t LevelFile) bool { return t.Level == level })
}

// check checks what can be said of an added table without a version.
func (a LevelTable) check() error {
	t := a.Meta
	switch {
	case a.Level < 0 || a.Level >= NumLevels:
		return fmt.Errorf("add table %06d: level %d does not exist", t.FileNum, a.Level)
	case t.KeyRange().EndsBefore(t.Smallest):
		return fmt.Errorf("add table %06d to level %d: smallest key %q is above the largest, %q",
			t.FileNum, a.Level, t.Smallest, t.Largest)
	case (t.LargestExclusive || t.ToEnd) && t.RangeDeletes == 0, t.LargestExclusive && t.ToEnd:
		return fmt.Errorf("add table %06d to level %d: only a range tombstone ends as %v does", t.FileNum, a.Level, t.KeyRange())
	case t.SmallestSeq > t.LargestSeq:
		return fmt.Errorf("add table %06d to level %d: smallest sequence number %d is above the largest, %d",
			t.FileNum, a.Level, t.SmallestSeq, t.LargestSeq)
	}
	return nil
}
