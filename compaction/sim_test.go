package compaction

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"sievedb/internal/iter"
	"sievedb/internal/keys"
	"sievedb/internal/manifest"
	"sievedb/internal/rangedel"
)

// Sizes in the simulator, in its bytes: what an entry takes in a table.
const (
	putBytes    = 16
	deleteBytes = 4
)

// simConfig is the default configuration at a scale at which a memtable holds
// 512 puts and the base level at least 2,048.
var simConfig = Config{
	MemtableBytes:   512 * putBytes,
	L0Tables:        4,
	Ratio:           10,
	BaseTableBytes:  128 * putBytes,
	MaxTableBytes:   1024 * putBytes,
	MaxTargetTables: 25,
}

// sim is a store without files: tables are slices, the memtable is a slice, and
// compactions run "at the same time" in that picking, merging and installing
// happen at different moments. Flushes come in between.
type sim struct {
	tb        testing.TB
	random    *rand.Rand
	config    Config
	v         *manifest.Version
	data      map[keys.FileNum][]entry
	rangeDels map[keys.FileNum]*rangedel.Set
	nextFile  keys.FileNum
	seq       keys.SeqNum
	memtable  []entry
	memRanges []rangedel.Tombstone // of the memtable
	snapshots []keys.SeqNum        // ascending
	running   []job
	history   map[uint32][]keys.Trailer // ascending; nil: do not check data
	ranges    []rangedel.Tombstone      // all that were ever written

	flushedBytes, writtenBytes uint64
	moves, rewrites, dropped   int
	deep                       int // steps of rangeHistory with several levels
}

// job is a compaction between its pick and its installation.
type job struct {
	plan      Plan
	snapshots []keys.SeqNum // as at the pick
}

func newSim(tb testing.TB, seed uint64, c Config) *sim {
	tb.Logf("seed=%d", seed)
	return &sim{
		tb: tb, random: rand.New(rand.NewPCG(seed, 0)), config: c,
		v: &manifest.Version{}, data: map[keys.FileNum][]entry{}, rangeDels: map[keys.FileNum]*rangedel.Set{}, nextFile: 1,
	}
}

func simKey(k uint32) []byte { return binary.BigEndian.AppendUint32(nil, k) }

// write adds an entry; its value is its sequence number, so that a read can
// tell versions apart after their sequence numbers became zero.
func (s *sim) write(k uint32, kind keys.Kind) {
	s.seq++
	e := entry{key: keys.Make(simKey(k), s.seq, kind)}
	if kind == keys.KindPut {
		e.value = binary.BigEndian.AppendUint64(nil, uint64(s.seq))
	}
	s.memtable = append(s.memtable, e)
	if s.history != nil {
		s.history[k] = append(s.history[k], e.key.Trailer)
	}
	if uint64(len(s.memtable))*putBytes >= s.config.MemtableBytes {
		s.flush()
	}
}

// stripes returns the registered snapshots and the visible sequence number.
func (s *sim) stripes() []keys.SeqNum {
	return slices.Compact(append(slices.Clone(s.snapshots), s.seq))
}

func (s *sim) flush() {
	if len(s.memtable)+len(s.memRanges) == 0 {
		return
	}
	slices.SortFunc(s.memtable, func(a, b entry) int { return keys.Compare(a.key, b.key) })
	spans := rangedel.Fragment(s.memRanges, s.stripes())
	m := NewMerger(newSliceIter(s.memtable), MergeOptions{Snapshots: s.stripes(), RangeDels: spans})
	edit := &manifest.Edit{Added: s.writeTables(m, spans, 0, nil)}
	s.flushedBytes += edit.Added[0].Meta.SizeBytes
	s.memtable, s.memRanges = nil, nil
	s.apply(edit)
}

// writeTables drains m and spans into tables.
func (s *sim) writeTables(m *Merger, spans []rangedel.Span, level int, split *Splitter) []manifest.LevelTable {
	out := &simTables{sim: s, level: level}
	if err := Write(m, spans, split, out); err != nil {
		s.tb.Fatal(err)
	}
	out.finish(out.spans)
	return out.added
}

func entryBytes(e entry) uint64 {
	if e.key.Trailer.Kind() == keys.KindDelete {
		return deleteBytes
	}
	return putBytes
}

// metaOf describes a table of sorted entries.
func metaOf(file keys.FileNum, table []entry) *manifest.TableMeta {
	t := &manifest.TableMeta{FileNum: file, SmallestSeq: keys.MaxSeqNum, Entries: uint64(len(table))}
	if len(table) > 0 {
		t.Smallest, t.Largest = table[0].key.UserKey, table[len(table)-1].key.UserKey
	}
	for i, e := range table {
		t.SizeBytes += entryBytes(e)
		t.SmallestSeq = min(t.SmallestSeq, e.key.Trailer.SeqNum())
		t.LargestSeq = max(t.LargestSeq, e.key.Trailer.SeqNum())
		if e.key.Trailer.Kind() == keys.KindDelete {
			t.Deletes++
		}
		if i == 0 || !bytes.Equal(e.key.UserKey, table[i-1].key.UserKey) {
			t.UserKeys++
		}
	}
	return t
}

func (s *sim) apply(edit *manifest.Edit) {
	v, err := s.v.Apply(edit)
	if err != nil {
		s.tb.Fatalf("%v\n%v", err, s.v)
	}
	s.v = v
}

func (s *sim) input() Input {
	in := Input{
		Config: s.config, OldestSnapshot: s.stripes()[0],
		RangeDels: func(t *manifest.TableMeta) *rangedel.Set { return s.rangeDels[t.FileNum] }, HiddenBytes: s.hiddenBytes,
	}
	for _, j := range s.running {
		in.Running = append(in.Running, j.plan.Reservation)
	}
	return in
}

// begin starts a plan beside what runs.
func (s *sim) begin(plan Plan) {
	for _, j := range s.running {
		if j.plan.Reservation.Overlaps(plan.Reservation) {
			s.tb.Fatalf("%s runs beside %s", planText(&plan), planText(&j.plan))
		}
	}
	s.running = append(s.running, job{plan, s.stripes()})
}

// end runs a started plan and installs its outcome.
func (s *sim) end(i int) {
	j := s.running[i]
	s.running = slices.Delete(s.running, i, i+1)
	plan := &j.plan
	edit := &manifest.Edit{}
	for side, level := range []int{plan.StartLevel, plan.OutputLevel} {
		for _, t := range plan.Inputs[side] {
			edit.Removed = append(edit.Removed, manifest.LevelFile{Level: level, FileNum: t.FileNum})
		}
	}
	switch {
	case plan.Drop:
		s.dropped += len(plan.Inputs[0])
		s.apply(edit)
		return
	case plan.TrivialMove:
		s.moves++
		for _, t := range plan.Inputs[0] {
			edit.Added = append(edit.Added, manifest.LevelTable{Level: plan.OutputLevel, Meta: t})
		}
		s.apply(edit)
		return
	}
	s.rewrites++
	var inputs []iter.Iterator
	var tombstones []rangedel.Tombstone
	for _, tables := range plan.Inputs {
		for _, t := range tables {
			inputs = append(inputs, newSliceIter(s.data[t.FileNum]))
			tombstones = rangedel.AppendTombstones(tombstones, s.rangeDels[t.FileNum].Spans())
		}
	}
	spans := rangedel.Fragment(tombstones, j.snapshots)
	m := NewMerger(iter.NewMerging(inputs...), MergeOptions{
		Snapshots: j.snapshots, Elide: plan.Elider().Elide, RangeDels: spans, ZeroSeq: plan.ZeroSeq(),
	})
	edit.Added = s.writeTables(m, plan.KeptRangeDels(spans, j.snapshots[0]), plan.OutputLevel, plan.Splitter())
	s.apply(edit)
	for _, tables := range plan.Inputs {
		for _, t := range tables {
			delete(s.data, t.FileNum)
		}
	}
}

// step lets the workers do a little: up to workers plans run at a time and end
// in any order.
func (s *sim) step(workers int) (worked bool) {
	if len(s.running) < workers {
		if plan, ok := Pick(s.v, s.input()); ok {
			s.begin(plan)
			return true
		}
	}
	if len(s.running) == 0 {
		return false
	}
	s.end(s.random.IntN(len(s.running)))
	return true
}

// settle runs compactions until none is left to be picked.
func (s *sim) settle(workers int) {
	for steps := 0; s.step(workers); steps++ {
		if steps > 100_000 {
			s.tb.Fatalf("compactions do not come to an end:\n%v", s.v)
		}
	}
}

// load writes n entries that next makes, workers compacting at their side so
// that level 0 stays below its usual stop.
func (s *sim) load(n, workers int, next func(i int)) {
	for i := range n {
		next(i)
		if len(s.memtable) == 0 {
			s.step(workers)
			s.step(workers)
			for len(s.v.Levels[0]) >= 12 && s.step(workers) {
			}
		}
	}
}

func (s *sim) writeAmp() float64 { return float64(s.writtenBytes) / float64(s.flushedBytes) }

// get returns the sequence number of the put that is visible at a snapshot, as a
// lookup finds it: the first visible entry of the newest run decides, unless a
// range tombstone of that run or a newer one hides it.
func (s *sim) get(k uint32, snapshot keys.SeqNum) (seq keys.SeqNum, found bool) {
	key := simKey(k)
	point := keys.Range{Lo: key, Hi: key}
	cover := newestOf(s.memRanges, key, snapshot)
	for _, e := range slices.Backward(s.memtable) {
		if bytes.Equal(e.key.UserKey, key) && e.key.Trailer.Visible(snapshot) {
			return seqOf(e, cover)
		}
	}
	for level := range s.v.Levels {
		for _, t := range s.v.Overlapping(level, point) {
			if cover > 0 {
				return 0, false
			}
			cover = s.rangeDels[t.FileNum].Covering(key, snapshot)
			run := s.data[t.FileNum]
			want := keys.InternalKey{UserKey: key, Trailer: keys.SeekTrailer(snapshot)}
			at := sort.Search(len(run), func(i int) bool { return keys.Compare(run[i].key, want) >= 0 })
			if at < len(run) && bytes.Equal(run[at].key.UserKey, key) {
				return seqOf(run[at], cover)
			}
		}
	}
	return 0, false
}

func seqOf(e entry, cover keys.SeqNum) (keys.SeqNum, bool) {
	if e.key.Trailer.Kind() == keys.KindDelete || e.key.Trailer.SeqNum() < cover {
		return 0, false
	}
	return keys.SeqNum(binary.BigEndian.Uint64(e.value)), true
}

// check compares every key at every snapshot and now with its history.
func (s *sim) check() {
	s.tb.Helper()
	for _, snapshot := range s.stripes() {
		for k, versions := range s.history {
			var want keys.SeqNum
			wantFound := false
			for _, trailer := range versions {
				if trailer.Visible(snapshot) {
					want, wantFound = trailer.SeqNum(), trailer.Kind() == keys.KindPut
				}
			}
			if !wantFound || newestOf(s.ranges, simKey(k), snapshot) > want {
				want, wantFound = 0, false
			}
			got, found := s.get(k, snapshot)
			if got != want || found != wantFound {
				s.tb.Fatalf("key %d at %d: got %d %v, want %d %v (history %v)\n%v",
					k, snapshot, got, found, want, wantFound, versions, s.v)
			}
		}
	}
	s.checkOrder()
}

// checkOrder checks invariant 3: per user key, newer runs hold only higher
// sequence numbers.
func (s *sim) checkOrder() {
	s.tb.Helper()
	least := map[string]keys.SeqNum{}
	for level, tables := range s.v.Levels {
		for _, t := range tables {
			for _, e := range s.data[t.FileNum] {
				if seq, ok := least[string(e.key.UserKey)]; ok && e.key.Trailer.SeqNum() >= seq {
					s.tb.Fatalf("level %d table %d: %v is not older than a newer run's %d", level, t.FileNum, e.key, seq)
				}
				least[string(e.key.UserKey)] = e.key.Trailer.SeqNum()
			}
			s.checkRanges(level, t, least)
		}
	}
}

// checkShape checks a tree at rest.
func (s *sim) checkShape() {
	s.tb.Helper()
	base, targets := LevelTargets(s.v, s.config)
	if n := len(s.v.Levels[0]); n >= s.config.L0Tables {
		s.tb.Errorf("level 0 rests with %d tables", n)
	}
	for level := 1; level < bottom; level++ {
		size := s.v.SizeBytes(level)
		if level < base && size > 0 {
			s.tb.Errorf("level %d above the base level %d rests with %d bytes", level, base, size)
		}
		if size > targets[level] {
			s.tb.Errorf("level %d rests with %d bytes, target %d", level, size, targets[level])
		}
	}
	if debt := Debt(s.v, s.config); debt != 0 {
		s.tb.Errorf("debt %d at rest", debt)
	}
}

// shape prints tables and bytes of every level.
func (s *sim) shape() string {
	var b bytes.Buffer
	for level, tables := range s.v.Levels {
		if len(tables) > 0 {
			fmt.Fprintf(&b, "L%d:%d tables %d bytes  ", level, len(tables), s.v.SizeBytes(level))
		}
	}
	return b.String()
}
