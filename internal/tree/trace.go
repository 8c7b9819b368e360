package tree

import (
	"time"

	"sievedb/explain"
	"sievedb/internal/keys"
	"sievedb/internal/table"
	"sievedb/memtable"
	"sievedb/sstable"
)

// Trace has a lookup write down what it does. It changes nothing of that: the
// lookup is the same code with a Trace and without. Begin with NewTrace, hand it
// to Get, as often as that has to start again, and read it with Finish. It is for
// one goroutine.
type Trace struct {
	explain.Trace
	state   *State
	start   time.Time
	last    time.Time // when the newest step ended
	pending [maxCandidates]candidate
}

// candidate is the step of a candidate of the lookup, and whether its filter was
// not resident when the lookup came to it.
type candidate struct {
	step   int
	unread bool
}

// NewTrace returns a trace of a lookup of key, which begins now.
func NewTrace(key []byte) *Trace {
	now := time.Now()
	return &Trace{start: now, last: now, Trace: explain.Trace{
		Schema: explain.Schema, Key: append(explain.Key{}, key...), Result: explain.Absent, Steps: []explain.Step{},
	}}
}

// begin is called when the lookup begins, and when it begins again.
func (t *Trace) begin(s *State, snapshot keys.SeqNum) {
	if t.state != nil {
		t.Restarts++
	}
	t.state, t.Visible, t.Steps = s, uint64(snapshot), t.Steps[:0]
}

// lap returns the time since the newest step ended.
func (t *Trace) lap() time.Duration {
	now := time.Now()
	took := now.Sub(t.last)
	t.last = now
	return took
}

// decided says what ended the lookup.
func (t *Trace) decided(kind keys.Kind, seq, cover keys.SeqNum) explain.Outcome {
	switch {
	case cover > seq:
		t.Result, t.Sequence = explain.RangeDeleted, uint64(cover)
		return explain.RangeTombstone
	case kind == keys.KindDelete:
		t.Result, t.Sequence = explain.Deleted, uint64(seq)
		return explain.Tombstone
	}
	t.Result, t.Sequence = explain.Found, uint64(seq)
	return explain.Put
}

// memtable notes the answer of memtable i, of which the mutable one is -1.
func (t *Trace) memtable(i int, m *memtable.Table, key []byte, hash uint64, tr keys.Trailer, ok bool, cover keys.SeqNum) {
	s := t.memtableStep(i, m)
	s.Outcome, s.RangeTombstone = explain.Missing, uint64(cover)
	if ok {
		s.Sequence = uint64(tr.SeqNum())
	}
	if ok || cover > 0 {
		s.Outcome = t.decided(tr.Kind(), tr.SeqNum(), cover)
	} else if _, newer := m.NewestSeq(key, hash); newer {
		s.Outcome = explain.Newer
	}
	s.Duration = t.lap()
}

func (t *Trace) memtableStep(i int, m *memtable.Table) *explain.Step {
	part := explain.Immutable
	if i < 0 {
		part = explain.Mutable
	}
	return t.add(explain.Step{Part: part, Level: -1, Keys: uint64(m.UserKeys())})
}

func (t *Trace) add(s explain.Step) *explain.Step {
	if s.Outcome == "" {
		s.Outcome = explain.NotReached // until something comes of it
	}
	t.Steps = append(t.Steps, s)
	return &t.Steps[len(t.Steps)-1]
}

// tableStep adds a step for table, or for the whole level if none of its tables
// can hold the key.
func (t *Trace) tableStep(table *table.Table, level int) *explain.Step {
	s := explain.Step{Part: explain.Level0, Level: level, Tables: 1}
	if level > 0 {
		s.Part, s.Tables = explain.Level, len(t.state.Version.Levels[level])
	}
	if table != nil {
		m := table.Meta
		s.Table, s.Keys = uint64(m.FileNum), m.UserKeys
		s.Range = &explain.Range{SmallestKey: explain.Key(m.Smallest), LargestKey: explain.Key(m.Largest), Exclusive: m.LargestExclusive, ToEnd: m.ToEnd}
	}
	return t.add(s)
}

// passed notes a table that is not read and does not end the lookup, or a level.
func (t *Trace) passed(table *table.Table, level int, why explain.Outcome) {
	s := t.tableStep(table, level)
	s.Outcome, s.Duration = why, t.lap()
}

// covered notes a table with a range tombstone that hides all that it holds of
// the key and everything older. Newer candidates have yet to be asked: Finish
// decides whether it came to this.
func (t *Trace) covered(table *table.Table, cover keys.SeqNum) {
	s := t.tableStep(table, table.Level)
	s.RangeTombstone, s.Duration = uint64(cover), t.lap()
}

// candidate notes candidate i, in which a range tombstone may cover the key.
func (t *Trace) candidate(i int, table *table.Table, cover keys.SeqNum) {
	s := t.tableStep(table, table.Level)
	s.RangeTombstone = uint64(cover)
	t.pending[i] = candidate{len(t.Steps) - 1, table.Opened() == nil || table.Opened().FilterState() == sstable.FilterUnread}
	s.Duration = t.lap()
}

// asked notes what the filter of candidate i said and returns the step, to which
// the blocks that are read will be added.
func (t *Trace) asked(i int, table *table.Table, may, consulted, ignored bool) *explain.Step {
	s, r := &t.Steps[t.pending[i].step], table.Opened()
	p := r.Properties()
	s.Outcome = explain.Missing // until it is found
	if t.pending[i].unread && !ignored {
		s.FilterBytesRead = table.Meta.FilterBytes
	}
	switch {
	case ignored:
		s.Filter = explain.Off
	case r.FilterState() == sstable.FilterNone:
		s.Filter = explain.None
	case !consulted:
		s.Filter = explain.Damaged
	case may:
		s.Filter = explain.Maybe
	default:
		s.Filter, s.Outcome = explain.No, explain.Filtered
	}
	if consulted {
		s.FilterKind, s.FilterBitsPerKey, s.FilterRate = p.FilterKind.String(), float64(p.FilterMillibits)/1000, p.FilterRate
	}
	s.Duration += t.lap()
	return s
}

// failed notes that the table of candidate i could not be opened.
func (t *Trace) failed(i int) {
	s := &t.Steps[t.pending[i].step]
	s.Outcome = explain.Error
	s.Duration += t.lap()
}

// read notes what the blocks of the table of step s held.
func (t *Trace) read(s *explain.Step, f sstable.Found, err error, cover keys.SeqNum) {
	switch {
	case err != nil:
		s.Outcome = explain.Error
	case f.OK:
		s.Sequence = uint64(f.Trailer.SeqNum())
		s.Outcome = t.decided(f.Trailer.Kind(), f.Trailer.SeqNum(), cover)
	case f.HasKey:
		s.Outcome = explain.Newer
	}
	s.Duration += t.lap()
}

// Finish returns the trace of a lookup that came to value and err, with the parts
// of the store that it did not come to.
func (t *Trace) Finish(value []byte, err error) *explain.Trace {
	t.ValueBytes, t.Duration = len(value), time.Since(t.start)
	switch s := t.newest(); {
	case err != nil:
		t.Result, t.Sequence, t.Error = explain.Failed, 0, err.Error()
	case t.Result == explain.Absent && s != nil && s.RangeTombstone > 0:
		t.Result, t.Sequence = explain.RangeDeleted, s.RangeTombstone
		if s.Outcome == explain.NotReached { // there was nothing to read in it
			s.Outcome = explain.RangeTombstone
		}
	}
	t.rest()
	t.state = nil // whoever keeps the trace must not keep memtables with it
	return &t.Trace
}

// newest returns the last step, nil if there is none.
func (t *Trace) newest() *explain.Step {
	if len(t.Steps) == 0 {
		return nil
	}
	return &t.Steps[len(t.Steps)-1]
}

// rest adds the parts of the store that the lookup did not come to: each part
// has one step, so they are those after the steps that there are.
func (t *Trace) rest() {
	if t.state == nil {
		return
	}
	i := 0
	missing := func() bool { i++; return i > len(t.Steps) }
	for j := -1; j < len(t.state.Immutables); j++ {
		if missing() {
			m := t.state.Mutable
			if j >= 0 {
				m = t.state.Immutables[j]
			}
			t.memtableStep(j, m)
		}
	}
	for _, table := range t.state.L0 {
		if missing() {
			t.tableStep(table, 0)
		}
	}
	for j := range t.state.Runs {
		r := &t.state.Runs[j]
		if missing() {
			t.tableStep(r.find(t.Key), r.Tables[0].Level)
		}
	}
}
