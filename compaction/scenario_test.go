package compaction

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"sievedb/internal/keys"
)

func TestRandomLoadReachesItsShape(t *testing.T) {
	s := newSim(t, newSeed(), simConfig)
	rises := []int{bottom}
	s.load(150_000, 2, func(int) {
		s.write(s.random.Uint32(), keys.KindPut)
		if base, _ := LevelTargets(s.v, s.config); base != rises[len(rises)-1] {
			rises = append(rises, base)
		}
	})
	s.settle(2)
	s.checkShape()
	s.checkOrder()
	t.Logf("write amplification %.2f, levels %s", s.writeAmp(), s.shape())
	// 2,400,000 bytes: 65,536 give a base level of 6 memtables in level 5.
	if base, _ := LevelTargets(s.v, s.config); base != 5 {
		t.Errorf("base level %d, want 5: %s", base, s.shape())
	}
	if !slices.Equal(rises, []int{6, 5}) {
		t.Errorf("base levels on the way %v, want 6 5", rises)
	}
	// Each byte is written once to level 0, about twice to level 5, where it meets
	// its like, and up to eleven times on its way into level 6.
	if amp := s.writeAmp(); amp < 4 || amp > 10 {
		t.Errorf("write amplification %.2f, want about 7", amp)
	}
}

func TestSequentialLoadIsWrittenOnce(t *testing.T) {
	s := newSim(t, newSeed(), simConfig)
	s.load(100_000, 2, func(i int) { s.write(uint32(i), keys.KindPut) })
	s.flush()
	s.settle(2)
	if s.writtenBytes != s.flushedBytes || s.rewrites != 0 {
		t.Errorf("wrote %d bytes in %d rewrites for %d flushed", s.writtenBytes, s.rewrites, s.flushedBytes)
	}
	s.checkShape()
}

// TestShortSessionsLeaveFewTables opens, writes a little and closes, 500 times.
func TestShortSessionsLeaveFewTables(t *testing.T) {
	s := newSim(t, newSeed(), simConfig)
	for i := range 500 {
		for j := range 5 {
			s.write(uint32(5*i+j), keys.KindPut)
		}
		s.flush()
		s.settle(1)
	}
	t.Logf("write amplification %.2f, levels %s", s.writeAmp(), s.shape())
	if n := s.v.Tables(); n > 2*2500*putBytes/int(simConfig.BaseTableBytes/4) {
		t.Errorf("%d tables for %d bytes: %s", n, 2500*putBytes, s.shape())
	}
}

// history writes, deletes, takes and releases snapshots and flushes at random,
// with compactions at its side, and checks all reads now and then.
func (s *sim) runHistory(steps int, keySpace uint32) {
	s.history = map[uint32][]keys.Trailer{}
	for i := range steps {
		kind := keys.KindPut
		if s.random.IntN(3) == 0 {
			kind = keys.KindDelete
		}
		s.write(s.random.Uint32N(keySpace), kind)
		switch s.random.IntN(200) {
		case 0:
			if n := len(s.snapshots); n == 0 || s.snapshots[n-1] < s.seq {
				s.snapshots = append(s.snapshots, s.seq)
			}
		case 1:
			if n := len(s.snapshots); n > 0 {
				at := s.random.IntN(n)
				s.snapshots = slices.Delete(s.snapshots, at, at+1)
			}
		case 2:
			s.flush()
		}
		if s.random.IntN(20) == 0 {
			s.step(3)
		}
		if i%(steps/4) == steps/8 {
			s.check()
		}
	}
	s.check()
}

// historyConfig has tables and memtables so small that trees grow deep fast.
var historyConfig = Config{
	MemtableBytes: 16 * putBytes, L0Tables: 3, Ratio: 4,
	BaseTableBytes: 4 * putBytes, MaxTableBytes: 16 * putBytes, MaxTargetTables: 6,
}

// TestReadsSurviveCompaction compares every read at every snapshot with a plain
// history, compactions and flushes overlapping in time.
func TestReadsSurviveCompaction(t *testing.T) {
	for _, keySpace := range []uint32{40, 400, 2000} {
		t.Run(fmt.Sprint(keySpace), func(t *testing.T) {
			s := newSim(t, newSeed(), historyConfig)
			s.runHistory(10_000, keySpace)
			s.snapshots = nil
			s.flush()
			s.settle(3)
			s.check()
			s.checkShape()
			t.Logf("write amplification %.2f, %d moves, %d rewrites, levels %s", s.writeAmp(), s.moves, s.rewrites, s.shape())
		})
	}
}

// TestDeletedSpaceComesBack deletes everything and does nothing else: neither
// an entry nor a tombstone may be left.
func TestDeletedSpaceComesBack(t *testing.T) {
	const n = 30_000
	s := newSim(t, newSeed(), simConfig)
	s.load(n, 2, func(i int) { s.write(uint32(i)*7919%n, keys.KindPut) })
	s.flush()
	s.settle(2)
	full := s.v.Entries()
	s.load(n, 2, func(i int) { s.write(uint32(i)*7907%n, keys.KindDelete) })
	s.flush()
	s.settle(2)
	if full != n || s.v.Tables() != 0 {
		t.Errorf("%d of %d entries are left: %s", s.v.Entries(), full, s.shape())
	}
}

// TestReleasedSnapshotGivesSpaceBack holds the end of invariant 20.
func TestReleasedSnapshotGivesSpaceBack(t *testing.T) {
	const n = 20_000
	s := newSim(t, newSeed(), simConfig)
	write := func(i int) { s.write(uint32(i)*7919%n, keys.KindPut) }
	s.load(n, 2, write)
	s.snapshots = []keys.SeqNum{s.seq}
	s.load(n, 2, write)
	s.flush()
	s.settle(2)
	if got := s.v.Entries(); got != 2*n {
		t.Fatalf("%d entries while the snapshot lives, want both versions of %d", got, n)
	}
	s.snapshots = nil
	s.settle(2)
	// Level 5 may go on hiding a tenth of level 6, and a tenth of a table may be dead.
	if got := s.v.Entries(); got > n*125/100 {
		t.Errorf("%d entries for %d keys after the snapshot: %s", got, n, s.shape())
	}
	s.checkShape()
}

// TestManualCompaction compacts everything while writes and other compactions
// go on, and again when all is quiet.
func TestManualCompaction(t *testing.T) {
	s := newSim(t, newSeed(), historyConfig)
	s.runHistory(4000, 500)
	compact := func(write bool) {
		m := Manual{Keys: keys.AllKeys(), Seq: s.seq, Before: s.nextFile}
		s.flush()
		for steps := 0; !m.Done(s.v, s.config); steps++ {
			if steps > 20_000 {
				t.Fatalf("does not end:\n%v", s.v)
			}
			if plan, ok := PickManual(s.v, s.input(), m); ok && len(s.running) < 3 {
				s.begin(plan)
			} else if !s.step(3) {
				t.Fatalf("waits for nothing:\n%v", s.v)
			}
			if write {
				s.write(s.random.Uint32N(500), keys.KindPut)
			}
		}
	}
	compact(true)
	s.check()
	for len(s.running) > 0 {
		s.end(0)
	}
	s.snapshots = nil
	compact(false)
	s.check()
	live := 0
	for k := range s.history {
		if _, found := s.get(k, s.seq); found {
			live++
		}
	}
	if n := s.v.Entries(); n != uint64(live) || len(s.v.Levels[bottom]) != s.v.Tables() {
		t.Errorf("%d entries of %d live keys: %s", n, live, s.shape())
	}
}

// TestResurrection replays the shapes in which other stores brought deleted or
// old entries back. Every case ends with everything compacted.
func TestResurrection(t *testing.T) {
	const put, del = keys.KindPut, keys.KindDelete
	manual := func(s *sim, r keys.Range) {
		s.flush()
		m := Manual{Keys: r, Seq: s.seq, Before: s.nextFile}
		for !m.Done(s.v, s.config) {
			plan, ok := PickManual(s.v, s.input(), m)
			if !ok {
				s.tb.Fatalf("stuck:\n%v", s.v)
			}
			s.begin(plan)
			s.end(0)
		}
		s.check()
	}
	key := func(k uint32) keys.Range { return keys.Range{Lo: simKey(k), Hi: simKey(k)} }
	for _, test := range []struct {
		name string
		run  func(s *sim)
	}{
		{"two ranges, one deleted, compacted by ranges", func(s *sim) {
			for k := range uint32(60) {
				s.write(k, put)
			}
			manual(s, keys.AllKeys())
			for k := range uint32(30) {
				s.write(k, del)
			}
			manual(s, keys.Range{Lo: simKey(30), ToEnd: true})
			manual(s, keys.Range{Lo: simKey(10), Hi: simKey(20)})
		}},
		{"a delete and only the upper levels compacted", func(s *sim) {
			for range 5 {
				for k := range uint32(60) {
					s.write(k, put)
				}
				s.settle(1)
			}
			s.write(7, del)
			s.flush()
			for len(s.v.Levels[0]) > 0 {
				plan, ok := newPicker(s.v, s.input()).pickLevel(0)
				if !ok {
					s.tb.Fatal("no plan")
				}
				s.begin(plan)
				s.end(0)
				s.check()
			}
		}},
		{"a snapshot needs a version under a delete at the bottom", func(s *sim) {
			s.write(1, put)
			s.snapshots = []keys.SeqNum{s.seq}
			s.write(1, del)
			manual(s, key(1))
			s.snapshots = nil
			manual(s, key(1))
		}},
		{"a snapshot of the empty store", func(s *sim) {
			s.snapshots = []keys.SeqNum{0}
			for k := range uint32(60) {
				s.write(k, put)
			}
			manual(s, keys.AllKeys())
			s.write(3, del)
			s.write(4, put)
			manual(s, keys.AllKeys())
		}},
		{"put, delete and put again through a table with zeroed numbers", func(s *sim) {
			s.write(1, put)
			manual(s, key(1))
			s.write(1, del)
			s.write(1, put)
			s.snapshots = []keys.SeqNum{s.seq}
			s.write(1, del)
			manual(s, key(1))
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSim(t, 1, historyConfig)
			s.history = map[uint32][]keys.Trailer{}
			test.run(s)
			s.snapshots = nil
			manual(s, keys.AllKeys())
			for _, table := range s.v.Levels[bottom] {
				if table.Deletes > 0 || table.Entries != table.UserKeys {
					t.Errorf("dead entries are left in %v", table)
				}
			}
		})
	}
}

// BenchmarkSimulation reports write amplification, which does not depend on the
// machine, for a store of 200,000 puts.
func BenchmarkSimulation(b *testing.B) {
	zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 10, 60_000)
	for _, load := range []struct {
		name string
		key  func(s *sim, i int) uint32
	}{
		{"random", func(s *sim, _ int) uint32 { return s.random.Uint32() }},
		{"overwrite", func(s *sim, _ int) uint32 { return s.random.Uint32N(60_000) }},
		{"zipf", func(*sim, int) uint32 { return uint32(zipf.Uint64() * 2654435761) }},
		{"sequential", func(_ *sim, i int) uint32 { return uint32(i) }},
	} {
		b.Run(load.name, func(b *testing.B) {
			var s *sim
			for b.Loop() {
				s = newSim(b, 1, simConfig)
				s.load(200_000, 2, func(i int) { s.write(load.key(s, i), keys.KindPut) })
				s.settle(2)
			}
			b.ReportMetric(s.writeAmp(), "write-amp")
			b.ReportMetric(float64(s.v.Entries())/200_000, "entries/put")
			b.ReportMetric(float64(s.v.Tables()), "tables")
		})
	}
}
