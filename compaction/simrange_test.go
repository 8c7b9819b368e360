package compaction

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"sievedb/internal/keys"
	"sievedb/internal/manifest"
	"sievedb/internal/rangedel"
)

// rangeBytes is what a span takes in a table of the simulator.
const rangeBytes = 8

// deleteRange deletes lo <= k < hi; a hi beyond all keys is no bound.
func (s *sim) deleteRange(lo, hi uint32) {
	s.seq++
	t := rangedel.Tombstone{Start: simKey(lo), End: simKey(hi), Seq: s.seq}
	if hi == 1<<32-1 {
		t.End = nil
	}
	s.memRanges, s.ranges = append(s.memRanges, t), append(s.ranges, t)
}

// newestOf returns the newest tombstone that covers key at a snapshot.
func newestOf(tombstones []rangedel.Tombstone, key []byte, snapshot keys.SeqNum) (seq keys.SeqNum) {
	for _, t := range tombstones {
		if t.Seq <= snapshot && bytes.Compare(t.Start, key) <= 0 && (t.End == nil || bytes.Compare(key, t.End) < 0) {
			seq = max(seq, t.Seq)
		}
	}
	return seq
}

// simTables is an Output into the simulator.
type simTables struct {
	sim   *sim
	level int
	table []entry
	spans []rangedel.Span
	size  uint64
	added []manifest.LevelTable
}

func (o *simTables) SizeBytes() uint64 { return o.size }

func (o *simTables) Add(key keys.InternalKey, value []byte) error {
	e := entry{key: key.Clone(), value: value}
	o.table = append(o.table, e)
	o.size += entryBytes(e)
	return nil
}

func (o *simTables) AddRangeDels(s rangedel.Span) error {
	o.spans = append(o.spans, s)
	o.size += rangeBytes
	return nil
}

func (o *simTables) Cut(at []byte) error {
	at = bytes.Clone(at)
	rest := rangedel.Truncate(o.spans, at, nil)
	o.finish(rangedel.Truncate(o.spans, nil, at))
	o.spans, o.size = rest, uint64(rangeBytes*len(rest))
	return nil
}

// finish makes a table of the entries so far and of spans, and wants it to hold
// something.
func (o *simTables) finish(spans []rangedel.Span) {
	if len(o.table)+len(spans) == 0 {
		if o.size > 0 {
			o.sim.tb.Fatal("a table of nothing")
		}
		return
	}
	m := metaOf(o.sim.nextFile, o.table)
	o.sim.nextFile++
	set := rangedel.NewSet(spans)
	if set != nil {
		r := keys.Range{Lo: spans[0].Start, Hi: spans[len(spans)-1].End, HiExclusive: true, ToEnd: spans[len(spans)-1].End == nil}
		if len(o.table) > 0 {
			r = r.Union(m.KeyRange())
		}
		m.Smallest, m.Largest, m.LargestExclusive, m.ToEnd = r.Lo, r.Hi, r.HiExclusive && !r.ToEnd, r.ToEnd
	}
	for _, s := range set.Spans() {
		m.SizeBytes += rangeBytes
		m.RangeDeletes += uint64(len(s.Seqs))
		m.LargestSeq = max(m.LargestSeq, s.Seqs[0])
		m.SmallestSeq = min(m.SmallestSeq, s.Seqs[len(s.Seqs)-1])
	}
	o.sim.data[m.FileNum], o.sim.rangeDels[m.FileNum] = o.table, set
	o.sim.writtenBytes += m.SizeBytes
	o.added = append(o.added, manifest.LevelTable{Level: o.level, Meta: m})
	o.table, o.size = nil, 0
}

// hiddenBytes counts what lies under the range tombstones of a table.
func (s *sim) hiddenBytes(t *manifest.TableMeta) (n uint64) {
	set := s.rangeDels[t.FileNum]
	below := false
	for _, tables := range s.v.Levels {
		for _, o := range tables {
			if below = below || o == t; !below {
				continue
			}
			for _, e := range s.data[o.FileNum] {
				if set.Covering(e.key.UserKey, keys.MaxSeqNum) > e.key.Trailer.SeqNum() {
					n += entryBytes(e)
				}
			}
		}
	}
	return n
}

// checkRanges checks for the range tombstones of a table that they lie within its
// bounds and are newer than whatever is below them, and older than whatever is
// above. least has the least sequence number of each user key so far.
func (s *sim) checkRanges(level int, t *manifest.TableMeta, least map[string]keys.SeqNum) {
	s.tb.Helper()
	set := s.rangeDels[t.FileNum]
	for _, span := range set.Spans() {
		if !t.KeyRange().Contains(span.Start) || spanRange(span).CompareEnds(t.KeyRange()) > 0 {
			s.tb.Fatalf("level %d: a range tombstone of %v is beyond it: %v", level, t, spanRange(span))
		}
	}
	for k := range s.history {
		key := simKey(k)
		st := set.StretchAt(key, keys.MaxSeqNum)
		if st.Seq == 0 {
			continue
		}
		newer := false // than the oldest entry of the table itself
		for _, e := range s.data[t.FileNum] {
			newer = newer || bytes.Equal(e.key.UserKey, key)
		}
		if seq, ok := least[string(key)]; ok && st.Seq >= seq && !newer {
			s.tb.Fatalf("level %d table %d: a range tombstone at %d covers %x, of which a newer run has %d", level, t.FileNum, st.Seq, key, seq)
		}
		if seq, ok := least[string(key)]; !ok || !newer || st.Seq < seq {
			least[string(key)] = st.Seq
		}
		for below := level + 1; below < manifest.NumLevels; below++ {
			for _, o := range s.v.Overlapping(below, keys.Range{Lo: key, Hi: key}) {
				for _, e := range s.data[o.FileNum] {
					if bytes.Equal(e.key.UserKey, key) && e.key.Trailer.SeqNum() >= st.Seq {
						s.tb.Fatalf("level %d table %d: a range tombstone at %d is above %v in level %d", level, t.FileNum, st.Seq, e.key, below)
					}
				}
			}
		}
	}
}

// rangeHistory is runHistory with range deletes of all widths.
func (s *sim) rangeHistory(steps int, keySpace uint32) {
	s.history = map[uint32][]keys.Trailer{}
	for i := range steps {
		switch n := s.random.IntN(100); {
		case n < 3:
			// Mostly narrow, or the tree would never grow.
			width := 1 + s.random.Uint32N(1+s.random.Uint32N(1+s.random.Uint32N(keySpace/2)))
			lo := s.random.Uint32N(keySpace)
			hi := lo + width
			if s.random.IntN(60) == 0 {
				hi = 1<<32 - 1
			}
			s.deleteRange(lo, hi)
		case n < 15:
			s.write(s.random.Uint32N(keySpace), keys.KindDelete)
		default:
			s.write(s.random.Uint32N(keySpace), keys.KindPut)
		}
		switch s.random.IntN(200) {
		case 0:
			if n := len(s.snapshots); n == 0 || s.snapshots[n-1] < s.seq {
				s.snapshots = append(s.snapshots, s.seq)
			}
		case 1:
			if n := len(s.snapshots); n > 0 {
				at := s.random.IntN(n)
				s.snapshots = append(s.snapshots[:at:at], s.snapshots[at+1:]...)
			}
		case 2:
			s.flush()
		}
		if s.random.IntN(10) == 0 {
			s.step(3)
		}
		if base, _ := LevelTargets(s.v, s.config); base < bottom && len(s.v.Levels[bottom]) > 0 {
			s.deep++
		}
		if i%(steps/6) == steps/8 {
			s.check()
		}
	}
	s.check()
}

// TestRangeDeletesSurviveCompaction is TestReadsSurviveCompaction with range
// deletes: no key is resurrected by a flush, a compaction, a trivial move or a
// table that was dropped (invariants 3, 4, 5, 21).
func TestRangeDeletesSurviveCompaction(t *testing.T) {
	for _, keySpace := range []uint32{40, 400, 2000} {
		t.Run(fmt.Sprint(keySpace), func(t *testing.T) {
			s := newSim(t, newSeed(), historyConfig)
			s.rangeHistory(10_000, keySpace)
			s.snapshots = nil
			s.flush()
			s.settle(3)
			s.check()
			s.checkShape()
			t.Logf("write amplification %.2f, %d moves, %d rewrites, %d tables dropped, %d steps with several levels, in the end %s",
				s.writeAmp(), s.moves, s.rewrites, s.dropped, s.deep, s.shape())
			if keySpace > 400 && (s.dropped == 0 || s.deep < 4000) {
				t.Errorf("%d tables dropped, %d steps with several levels", s.dropped, s.deep)
			}
		})
	}
}

// TestRangeDeletedSpaceComesBack deletes everything with one range, and then the
// half with many, and does nothing else.
func TestRangeDeletedSpaceComesBack(t *testing.T) {
	const n = 30_000
	for _, test := range []struct {
		name string
		run  func(s *sim)
		most uint64 // bytes that freeing them may write
	}{
		{"one", func(s *sim) { s.deleteRange(0, 1<<32-1) }, rangeBytes},
		{"a thousand side by side", func(s *sim) {
			for i := range uint32(1000) {
				s.deleteRange(30*i, 30*i+30)
			}
		}, 1000 * rangeBytes},
		{"one with a snapshot before it, which is closed", func(s *sim) {
			s.snapshots = []keys.SeqNum{s.seq}
			s.deleteRange(0, n)
			s.flush()
			s.settle(2)
			if s.v.Entries() < n {
				s.tb.Errorf("%d entries while the snapshot lives", s.v.Entries())
			}
			s.snapshots = nil
		}, rangeBytes},
		{"nine tenths of each table", func(s *sim) {
			for _, tables := range s.v.Levels {
				for _, t := range tables {
					lo, hi := binary.BigEndian.Uint32(t.Smallest), binary.BigEndian.Uint32(t.Largest)
					s.deleteRange(lo+(hi-lo)/10, hi+1)
				}
			}
		}, n * putBytes / 5},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSim(t, newSeed(), simConfig)
			s.load(n, 2, func(i int) { s.write(uint32(i)*7919%n, keys.KindPut) })
			s.flush()
			s.settle(2)
			written := s.writtenBytes
			test.run(s)
			s.flush()
			s.settle(2)
			var left, ranges uint64
			for _, tables := range s.v.Levels {
				for _, t := range tables {
					left, ranges = left+t.Entries, ranges+t.RangeDeletes
				}
			}
			if most := test.most / putBytes * 5 / 8; left > most || ranges > 0 { // of a fifth, a tenth
				t.Errorf("%d entries and %d range tombstones are left: %s", left, ranges, s.shape())
			}
			t.Logf("%d tables dropped, %d bytes written to free %d", s.dropped, s.writtenBytes-written, n*putBytes)
			if got := s.writtenBytes - written; got > test.most {
				t.Errorf("%d bytes written, want at most %d", got, test.most)
			}
		})
	}
}

// TestDropPictures holds what invariant 5 asks of a whole table that is dropped.
func TestDropPictures(t *testing.T) {
	for _, test := range []struct {
		name, tree, running string
		rangeDels           string // of table 9
		oldest              keys.SeqNum
		want                string
	}{
		{name: "covered", tree: "L0 9 a-z rd=1\nL6 3 c-f\nL6 4 g-h", rangeDels: "a-k9", want: "dropped: L6[3 4] -> L6"},
		{name: "up to the end of the range", tree: "L0 9 a-z rd=1\nL6 3 c-f\nL6 4 g-h", rangeDels: "c-h9", want: "dropped: L6[3] -> L6"},
		{name: "an exclusive end", tree: "L0 9 a-z rd=1\nL6 3 c-f) rd=1", rangeDels: "c-f9", want: "dropped: L6[3] -> L6"},
		{name: "no end", tree: "L0 9 a-~ rd=1\nL6 3 c-~ rd=1", rangeDels: "b-~9", want: "dropped: L6[3] -> L6"},
		{name: "no end under one with", tree: "L0 9 a-z rd=1\nL6 3 c-~ rd=1", rangeDels: "b-z9", want: ""},
		{name: "by two together", tree: "L0 9 a-z rd=1\nL6 3 c-f", rangeDels: "a-d9 d-z8", want: "dropped: L6[3] -> L6"},
		{name: "a gap", tree: "L0 9 a-z rd=1\nL6 3 c-f", rangeDels: "a-d9 e-z8", want: ""},
		{name: "one of the two too old", tree: "L0 9 a-z rd=1\nL6 3 c-f seq=1-8", rangeDels: "a-d9 d-z8", want: ""},
		{name: "an older version above", tree: "L5 9 a-z rd=1\nL4 3 c-f size=1 seq=10-10\nL6 2 c-f", rangeDels: "a-z9", want: "dropped: L6[2] -> L6"},
		{name: "in level 0", tree: "L0 9 a-z rd=1\nL0 3 c-f\nL0 8 x-z", rangeDels: "a-m9", want: "dropped: L0[3] -> L0"},
		{name: "newer in level 0", tree: "L0 9 a-m rd=1\nL0 12 c-f", rangeDels: "a-m9", want: ""},
		{name: "a snapshot in between", tree: "L0 9 a-z rd=1\nL6 3 c-f", rangeDels: "a-z9", oldest: 8, want: ""},
		{name: "a snapshot that sees the range tombstone", tree: "L0 9 a-z rd=1\nL6 3 c-f", rangeDels: "a-z9", oldest: 9, want: "dropped: L6[3] -> L6"},
		{name: "the table is being compacted", tree: "L4 9 a-z rd=1\nL6 3 c-f\nL6 4 g-h", running: "L5-L6 d-d", rangeDels: "a-z9", want: "dropped: L6[4] -> L6"},
		{name: "the range tombstone is being compacted", tree: "L3 9 a-z rd=1\nL6 3 c-f\nL6 4 x-y", running: "L2-L3 d-d", rangeDels: "a-z9", want: "dropped: L6[4] -> L6"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := picture{tree: test.tree, running: test.running}
			in := Input{Config: pictureConfig, Running: parseRunning(t, p.running), OldestSnapshot: test.oldest}
			if test.oldest == 0 {
				in.OldestSnapshot = keys.MaxSeqNum
			}
			set := rangedel.NewSet(rangedel.Fragment(parseTombstones(test.rangeDels), nil))
			in.RangeDels = func(m *manifest.TableMeta) *rangedel.Set {
				if m.FileNum == 9 {
					return set
				}
				return nil
			}
			got := ""
			if plan, ok := newPicker(parseTree(t, test.tree), in).pickDropped(); ok {
				got = planText(&plan)
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// BenchmarkPickDropped is a pick of a tree in which range tombstones hide nothing
// as a whole.
func BenchmarkPickDropped(b *testing.B) {
	s := newSim(b, 1, simConfig)
	s.load(100_000, 2, func(i int) { s.write(rand.New(rand.NewPCG(uint64(i), 1)).Uint32N(1<<20), keys.KindPut) })
	s.settle(2)
	for i := range uint32(1000) {
		s.deleteRange(1000*i, 1000*i+1)
	}
	s.flush()
	in := s.input()
	in.HiddenBytes = nil
	for b.Loop() {
		newPicker(s.v, in).pickDropped()
	}
}
