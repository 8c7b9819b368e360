package tree

import (
	"runtime"

	"sievedb/explain"
	"sievedb/internal/counters"
	"sievedb/internal/keys"
	"sievedb/internal/table"
	"sievedb/sstable"
)

// Get looks for the newest version of key that is visible at snapshot, newest
// run first, and appends its value to dst. hash is filter.Hash(key). With
// exists only, the value is of no interest and dst comes back as it is.
//
// In each run: key range, range tombstones, filter, index, data block; the first
// entry decides, a tombstone too. A run in which a range tombstone covers the key
// is the last one, since whatever is in older ones is older than that (invariant
// 3): entries of its own count if they are newer. Without range tombstones that
// costs a branch a run. Nothing is allocated if dst has room and blocks are
// cached. The error may be filecache.ErrGone: start again on the current state.
// A trace, which may be nil, is told of every step.
func (s *State) Get(dst, key []byte, hash uint64, snapshot keys.SeqNum, existsOnly bool, trace *Trace) (value []byte, found bool, err error) {
	if trace != nil {
		trace.begin(s, snapshot)
	}
	for i := -1; i < len(s.Immutables); i++ {
		m := s.Mutable
		if i >= 0 {
			m = s.Immutables[i]
		}
		v, tr, ok := m.Get(key, hash, snapshot)
		cover := m.Covering(key, snapshot)
		if trace != nil {
			trace.memtable(i, m, key, hash, tr, ok, cover)
		}
		if cover > tr.SeqNum() {
			return dst, false, nil
		}
		if ok {
			value, found = decide(dst, v, tr, existsOnly)
			runtime.KeepAlive(m) // v is its memory
			return value, found, nil
		}
	}
	var l lookup
	l.dst, l.key, l.hash, l.snapshot, l.existsOnly = dst, key, hash, snapshot, existsOnly
	l.ignoreFilters, l.trace = s.IgnoreFilters, trace
	for _, t := range s.L0 {
		if !t.Covers(key) {
			if trace != nil {
				trace.passed(t, 0, explain.OutOfRange)
			}
			continue
		}
		if l.candidate(t) {
			return l.value, l.found, l.err
		}
	}
	for i := range s.Runs {
		t := s.Runs[i].find(key)
		if t == nil {
			if trace != nil {
				trace.passed(nil, s.Runs[i].Tables[0].Level, explain.OutOfRange)
			}
			continue
		}
		if l.candidate(t) {
			return l.value, l.found, l.err
		}
	}
	l.probe()
	return l.value, l.found, l.err
}

func decide(dst, value []byte, tr keys.Trailer, existsOnly bool) ([]byte, bool) {
	if tr.Kind() == keys.KindDelete {
		return dst, false
	}
	if !existsOnly {
		dst = append(dst, value...)
	}
	return dst, true
}

// maxCandidates is how many tables are asked together.
const maxCandidates = 8

// lookup collects the tables whose bounds cover the key and asks their filters
// together: each filter's line is asked for as its table is found, before any answer
// is waited for, so that the cache misses of the runs overlap.
type lookup struct {
	dst, key   []byte
	hash       uint64
	snapshot   keys.SeqNum
	existsOnly bool
	// ignoreFilters reads every candidate.
	ignoreFilters bool
	// cover is the newest range tombstone that covers the key in the last
	// candidate, zero if there is none. All others are newer.
	cover keys.SeqNum
	trace *Trace // nil: nobody wants to know

	tables [maxCandidates]*table.Table
	n      int

	value []byte
	found bool
	err   error
}

// candidate adds a table, in order of age. It reports whether the lookup is
// over.
func (l *lookup) candidate(t *table.Table) bool {
	if t.RangeDels != nil {
		l.cover = t.RangeDels.Covering(l.key, l.snapshot)
		if l.cover > t.LargestPoint { // which hides all of its entries, if there are any
			if l.trace != nil {
				l.trace.covered(t, l.cover)
			}
			return l.finish()
		}
		if t.Meta.Entries == 0 {
			if l.trace != nil {
				l.trace.passed(t, t.Level, explain.NoEntries)
			}
			return false
		}
	}
	if l.trace != nil {
		l.trace.candidate(l.n, t, l.cover)
	}
	if r := t.Opened(); r != nil && !l.ignoreFilters {
		r.PrefetchFilter(l.hash)
	}
	l.tables[l.n] = t
	l.n++
	if l.cover > 0 {
		return l.finish()
	}
	return l.n == len(l.tables) && l.probe()
}

// finish asks the last candidates.
func (l *lookup) finish() bool {
	l.probe()
	return true
}

// probe asks the candidates, newest first, and forgets them. It reports
// whether the lookup is over: an entry was found, or a read failed.
func (l *lookup) probe() bool {
	tables := l.tables[:l.n]
	l.n = 0
	l.value = l.dst
	stripe := counters.Stripe()
	expected, expectedBlock := l.expect(tables, stripe)
	for i, t := range tables {
		r, err := t.Reader()
		if err != nil {
			if l.trace != nil {
				l.trace.failed(i)
			}
			l.err = err
			return true
		}
		line := t.Counters.Line(stripe)
		may, consulted := true, false
		if !l.ignoreFilters {
			may, consulted = r.MayContain(l.hash)
		}
		var step *explain.Step
		if l.trace != nil {
			step = l.trace.asked(i, t, may, consulted, l.ignoreFilters)
		}
		if !may {
			line.Negatives.Add(1)
			continue
		}
		block := expectedBlock
		if i != expected {
			block = r.Prefetch(l.key)
		}
		f, err := r.Lookup(l.dst, l.key, l.hash, l.snapshot, l.existsOnly, block, step)
		if l.trace != nil {
			l.trace.read(step, f, err, l.cover)
		}
		count(line, f, consulted, err)
		if err != nil {
			l.err = err
			return true
		}
		if f.OK && f.Trailer.SeqNum() < l.cover {
			return true // and it is the last
		}
		if f.OK {
			l.value, l.found = f.Value, f.Trailer.Kind() == keys.KindPut
			return true
		}
	}
	return false
}

// expect returns the first table that is likely to have the key, and in which block,
// which it asks for while the filters are waited for; -1 if there is none.
func (l *lookup) expect(tables []*table.Table, stripe int) (expected, block int) {
	for i, t := range tables {
		if t.Counters.Line(stripe).HitLikely() {
			if r := t.Opened(); r != nil {
				return i, r.Prefetch(l.key)
			}
		}
	}
	return -1, 0
}

// count counts what a table had of the key, and what it cost.
func count(line *counters.Line, f sstable.Found, consulted bool, err error) {
	if consulted && err == nil && f.HasKey && f.BlocksCached == 1 && f.BlocksRead == 0 {
		line.Hit()
		return
	}
	if f.BlocksCached > 0 {
		line.BlocksCached.Add(uint64(f.BlocksCached))
	}
	if f.BlocksRead > 0 {
		line.BlocksRead.Add(uint64(f.BlocksRead))
	}
	switch {
	case err != nil: // it is not known
	case !consulted:
		line.Unfiltered.Add(1)
	case f.HasKey:
		line.TruePositives.Add(1)
	default:
		line.FalsePositives.Add(1)
	}
}

// Recent returns the newest version of key in the memtables, published or not,
// and its sequence number, zero if there is none; found is false for a tombstone,
// and if a range tombstone is the newest. The value aliases the memtable: the
// caller keeps s reachable, and holds the commit lock.
func (s *State) Recent(key []byte, hash uint64) (value []byte, seq keys.SeqNum, found bool) {
	for m := range s.memtables {
		v, tr, ok := m.Get(key, hash, keys.MaxSeqNum)
		if cover := m.Covering(key, keys.MaxSeqNum); cover > tr.SeqNum() {
			return nil, cover, false
		}
		if ok {
			return v, tr.SeqNum(), tr.Kind() != keys.KindDelete
		}
	}
	return nil, 0, false
}
