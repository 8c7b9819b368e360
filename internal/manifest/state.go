package manifest

import (
	"fmt"
	"slices"

	"sievedb/internal/keys"
)

// State is everything that the manifest knows. It is immutable.
type State struct {
	Version *Version

	// NextFileNum is larger than the number of every file that was ever part
	// of the store (invariant 16).
	NextFileNum keys.FileNum
	// LastSeq is at least the largest sequence number in any table.
	LastSeq keys.SeqNum
	// Segments are the live log segments, ascending: sealed ones, then ones that
	// have only ended, then at most one that may grow.
	Segments []Segment

	ManifestNum keys.FileNum // of the manifest that the state was read from, or is kept in
	StoreID     [16]byte     // made at random with the store, the same for ever
}

// Segment is a live log segment.
type Segment struct {
	FileNum keys.FileNum
	// SizeBytes is the final size of a segment that has ended, zero while it may
	// still grow.
	SizeBytes uint64
	// Sealed says that the segment has ended and is durable: a crash takes
	// nothing of it. Of one that has only ended it may take any part, and then
	// what is in later segments does not count (invariant 11).
	Sealed bool
}

// Ended reports whether the segment does not grow any more.
func (s Segment) Ended() bool { return s.SizeBytes > 0 }

// Apply returns the state after e; s stays as it is. Beyond what
// Version.Apply checks, every number that e mentions lies below NextFileNum,
// no added table is newer than LastSeq, and the segments are as State says.
func (s *State) Apply(e *Edit) (*State, error) {
	v, err := s.Version.Apply(e)
	if err != nil {
		return nil, err
	}
	out := *s
	out.Version = v
	if err := out.applyNumbers(e); err != nil {
		return nil, err
	}
	return &out, nil
}

// applyNumbers does to s what e says about everything but the version. It
// replaces s.Segments without writing the old ones.
func (s *State) applyNumbers(e *Edit) error {
	s.NextFileNum = max(s.NextFileNum, e.NextFileNum)
	s.LastSeq = max(s.LastSeq, e.LastSeq)
	if s.LastSeq > keys.MaxSeqNum {
		return fmt.Errorf("last sequence number %d is above the largest possible, %d", s.LastSeq, keys.MaxSeqNum)
	}
	for _, a := range e.Added {
		if a.Meta.FileNum >= s.NextFileNum {
			return fmt.Errorf("add table %06d: the next file number is only %d", a.Meta.FileNum, s.NextFileNum)
		}
		if a.Meta.LargestSeq > s.LastSeq {
			return fmt.Errorf("add table %06d: its sequence number %d is above the last, %d",
				a.Meta.FileNum, a.Meta.LargestSeq, s.LastSeq)
		}
	}
	if e.OldestSegment > s.NextFileNum {
		return fmt.Errorf("oldest segment %06d: the next file number is only %d", e.OldestSegment, s.NextFileNum)
	}
	return s.applySegments(e)
}

func (s *State) applySegments(e *Edit) error {
	segments := slices.Clone(s.Segments)
	for _, num := range e.AddedSegments {
		if num >= s.NextFileNum {
			return fmt.Errorf("add segment %06d: the next file number is only %d", num, s.NextFileNum)
		}
		if n := len(segments); n > 0 && num <= segments[n-1].FileNum {
			return fmt.Errorf("add segment %06d: segment %06d is live", num, segments[n-1].FileNum)
		}
		segments = append(segments, Segment{FileNum: num})
	}
	for _, end := range e.EndedSegments {
		i := slices.IndexFunc(segments, func(seg Segment) bool { return seg.FileNum == end.FileNum })
		if i < 0 || segments[i].Sealed || end.SizeBytes == 0 || segments[i].Ended() && (!end.Sealed || segments[i].SizeBytes != end.SizeBytes) {
			return fmt.Errorf("end segment %06d (sealed: %t) with %d bytes: it is not live and open", end.FileNum, end.Sealed, end.SizeBytes)
		}
		segments[i] = Segment(end)
	}
	for len(segments) > 0 && segments[0].FileNum < e.OldestSegment {
		segments = segments[1:]
	}
	for i, seg := range segments[min(1, len(segments)):] {
		if before := segments[i]; !before.Ended() || seg.Sealed && !before.Sealed {
			return fmt.Errorf("segment %06d (sealed: %t) follows %06d (ended: %t, sealed: %t)",
				seg.FileNum, seg.Sealed, before.FileNum, before.Ended(), before.Sealed)
		}
	}
	s.Segments = segments
	return nil
}

// snapshot returns the edit that makes s out of an empty state.
func (s *State) snapshot() *Edit {
	e := &Edit{NextFileNum: s.NextFileNum, LastSeq: s.LastSeq}
	if s.Version != nil {
		for level, tables := range s.Version.Levels {
			for _, t := range tables {
				e.Added = append(e.Added, LevelTable{Level: level, Meta: t})
			}
		}
	}
	for _, seg := range s.Segments {
		e.AddedSegments = append(e.AddedSegments, seg.FileNum)
		if seg.Ended() {
			e.EndedSegments = append(e.EndedSegments, SegmentEnd(seg))
		}
	}
	return e
}
