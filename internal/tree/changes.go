package tree

import (
	"bytes"
	"errors"
	"slices"
	"sync"

	"sievedb/internal/iter"
	"sievedb/internal/keys"
	"sievedb/internal/rangedel"
	"sievedb/memtable"
	"sievedb/sstable"
)

// Changes answers whether a key or a range of keys got a version, or was covered
// by a range tombstone, published or not, that is newer than After, which is how a
// transaction is validated. A snapshot up to After must be registered, or
// compactions may hide the answer.
type Changes struct {
	After keys.SeqNum
	// Tables says whether tables count as well as memtables. Without them no
	// file is read.
	Tables bool
	// CommitLock is nil if the caller holds it.
	CommitLock sync.Locker
}

// Key reports whether key, whose filter.Hash is hash, got a version.
func (c Changes) Key(s *State, key []byte, hash uint64) (bool, error) {
	for m := range s.memtables {
		if seq, ok := m.NewestSeq(key, hash); ok {
			return seq > c.After, nil
		}
	}
	if !c.Tables {
		return false, nil
	}
	for t := range s.All() {
		if t.Meta.LargestSeq <= c.After || !t.Covers(key) {
			continue
		}
		if t.RangeDels.Covering(key, keys.MaxSeqNum) > c.After {
			return true, nil
		}
		r, err := t.Reader()
		if err != nil {
			return false, err
		}
		if may, _ := r.MayContain(hash); !may {
			continue
		}
		f, err := r.Has(key, hash, keys.MaxSeqNum)
		if err != nil || f.OK {
			return err == nil && f.Trailer.SeqNum() > c.After, err
		}
	}
	return false, nil
}

// Range reports whether a key in [lo, hi] got a version, and which. toEnd says
// that there is no upper end. A range tombstone counts whether there was anything
// under it or not.
func (c Changes) Range(s *State, lo, hi []byte, toEnd bool) (key []byte, changed bool, err error) {
	span := keys.Range{Lo: lo, Hi: hi, ToEnd: toEnd}
	look := func(it iter.Iterator, openErr error) {
		if openErr != nil {
			err = errors.Join(err, openErr)
			return
		}
		for ok := it.SeekGE(lo, keys.SeekTrailer(keys.MaxSeqNum)); ok && !changed; ok = it.Next() {
			k := it.Key()
			if span.EndsBefore(k.UserKey) {
				break
			}
			if k.Trailer.SeqNum() > c.After {
				key, changed = bytes.Clone(k.UserKey), true
			}
		}
		if closeErr := it.Close(); err == nil {
			err = closeErr
		}
	}
	for m := range s.memtables {
		if m.LargestSeq() <= c.After {
			continue
		}
		if key := c.inLog(m.RangeDeletes(), span); key != nil {
			return key, true, nil
		}
		look(m.NewIter(c.CommitLock, keys.MaxSeqNum), nil)
	}
	if !c.Tables {
		return key, changed, err
	}
	for t := range s.All() {
		if t.Meta.LargestSeq <= c.After || !span.Overlaps(t.Meta.KeyRange()) {
			continue
		}
		if key := c.inSet(t.RangeDels, span); key != nil {
			return key, true, nil
		}
		if t.LargestPoint > c.After {
			look(t.NewIter(sstable.IterOptions{}))
		}
	}
	return key, changed, err
}

// inLog returns a key of r that a range tombstone newer than After covers, nil if
// there is none. log may be nil.
func (c Changes) inLog(log *rangedel.Log, r keys.Range) []byte {
	if log == nil {
		return nil
	}
	for _, t := range slices.Backward(log.All()) {
		if t.Seq <= c.After {
			break // as all before it
		}
		if o := (keys.Range{Lo: t.Start, Hi: t.End, HiExclusive: true, ToEnd: t.End == nil}); r.Overlaps(o) {
			return within(r.Lo, t.Start)
		}
	}
	return nil
}

// inSet is inLog for the range tombstones of a table.
func (c Changes) inSet(set *rangedel.Set, r keys.Range) []byte {
	for at := r.Lo; set != nil && !r.EndsBefore(at); {
		st := set.StretchAt(at, keys.MaxSeqNum)
		if st.Seq > c.After {
			return within(r.Lo, at)
		}
		if st.End == nil {
			break
		}
		at = st.End
	}
	return nil
}

// within returns a copy of the later of two keys, which is not nil.
func within(lo, start []byte) []byte {
	if bytes.Compare(lo, start) < 0 {
		lo = start
	}
	return append([]byte{}, lo...)
}

// memtables yields the memtables, newest first.
func (s *State) memtables(yield func(*memtable.Table) bool) {
	if !yield(s.Mutable) {
		return
	}
	for _, m := range s.Immutables {
		if !yield(m) {
			return
		}
	}
}
