package tree

import (
	"bytes"
	"sync"

	"sievedb/internal/iter"
	"sievedb/internal/keys"
	"sievedb/memtable"
	"sievedb/sstable"
)

// Changes answers whether a key or a range of keys got a version, published or
// not, that is newer than After, which is how a transaction is validated. A
// snapshot at After must be registered, or compactions may hide the answer.
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
		if _, tr, ok := m.Get(key, hash, keys.MaxSeqNum); ok {
			return tr.SeqNum() > c.After, nil
		}
	}
	if !c.Tables {
		return false, nil
	}
	for t := range s.All() {
		if t.Meta.LargestSeq <= c.After || !t.covers(key) {
			continue
		}
		if may, _ := t.Reader.MayContain(hash); !may {
			continue
		}
		f, err := t.Reader.Has(key, hash, keys.MaxSeqNum)
		if err != nil || f.OK {
			return err == nil && f.Trailer.SeqNum() > c.After, err
		}
	}
	return false, nil
}

// Range reports whether a key in [lo, hi] got a version, and which. toEnd says
// that there is no upper end.
func (c Changes) Range(s *State, lo, hi []byte, toEnd bool) (key []byte, changed bool, err error) {
	look := func(it iter.Iterator) {
		for ok := it.SeekGE(lo, keys.SeekTrailer(keys.MaxSeqNum)); ok && !changed; ok = it.Next() {
			k := it.Key()
			if !toEnd && bytes.Compare(k.UserKey, hi) > 0 {
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
		if m.LargestSeq() > c.After {
			look(m.NewIter(c.CommitLock, keys.MaxSeqNum))
		}
	}
	if !c.Tables {
		return key, changed, err
	}
	for t := range s.All() {
		if t.Meta.LargestSeq > c.After && bytes.Compare(t.Meta.Largest, lo) >= 0 && (toEnd || bytes.Compare(t.Meta.Smallest, hi) <= 0) {
			look(t.Reader.NewIter(sstable.IterOptions{}))
		}
	}
	return key, changed, err
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
