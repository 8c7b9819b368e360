package sievedb

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"sievedb/filter"
	"sievedb/vfs"
)

// TestBudgetOnANaturalTree loads keys at random, as a store is used, and takes
// the tree as compactions happen to leave it, at rest after each flush of the
// second half of the load: the filters save at least nine tenths of the reads
// that Spread would for exactly that tree, beside the same bits everywhere.
//
// A flush waits for the compactions that the last one started, so that which
// compactions there are depends on the keys alone. Otherwise level 0 is as long
// as the machine is slow, and filters are from times when the tree had another
// shape: how much of the plan is had then depends on the machine.
func TestBudgetOnANaturalTree(t *testing.T) {
	for _, bottom := range []filter.Kind{filter.KindBlocked, filter.KindFuse} {
		t.Run(bottom.String(), func(t *testing.T) {
			o := Options{Durability: SyncNever, CacheBytes: -1, MemtableBytes: 128 << 10, TableBytes: 1 << 20, Compression: NoCompression, Workers: 1}
			o.Filters.BottomKind = bottom
			db := mustOpen(t, vfs.NewMem(), "/store", o)
			rng, value := newRand(1), make([]byte, 100)
			const flushes, keysPerFlush = 200, 500
			var uniform, planned, predicted float64
			for i := range flushes {
				for range keysPerFlush {
					must(t, db.Put(binary.BigEndian.AppendUint64(nil, rng.Uint64()&^1), value))
				}
				flushAll(t, db)
				quiesce(db)()
				if i >= flushes/2 {
					u, p, f := readsOf(db)
					uniform, planned, predicted = uniform+u, planned+p, predicted+f
				}
			}
			if levels := db.Metrics().Levels; levels[5].Tables == 0 || levels[6].Tables == 0 {
				t.Error("the tree has a single level below level 0: not what this is about")
			}
			t.Logf("on average a lookup reads %.5f blocks with the same bits, planned %.5f, predicted by the filters %.5f",
				2*uniform/flushes, 2*planned/flushes, 2*predicted/flushes)
			if share := (uniform - predicted) / (uniform - planned); share < 0.9 {
				t.Errorf("%.3f of the reads are saved that the plan would save, want 0.9", share)
			}
			before := totals(db).BlocksRead
			const lookups = 50_000
			for range lookups {
				if ok, err := db.Has(binary.BigEndian.AppendUint64(nil, rng.Uint64()|1)); ok || err != nil {
					t.Fatal(ok, err)
				}
			}
			_, _, expected := readsOf(db)
			expected *= lookups
			if measured := float64(totals(db).BlocksRead - before); math.Abs(measured-expected) > 5*math.Sqrt(expected)+0.05*expected {
				t.Errorf("%.0f blocks read, %.0f predicted", measured, expected)
			}
			must(t, db.Close())
		})
	}
}

// readsOf returns what the lookup of an absent key reads in the tree as it is:
// with 10 bits for every key, with as much memory spread by Spread, and with
// the filters that there are.
func readsOf(db *DB) (uniform, planned, predicted float64) {
	m := db.Metrics()
	var runs []float64
	add := func(keys uint64, rate float64) {
		runs = append(runs, float64(keys))
		predicted += rate
	}
	for _, table := range m.Tables {
		if table.Level == 0 {
			add(table.Keys, table.PredictedRate)
		}
	}
	for _, l := range m.Levels[1:] {
		if l.Tables > 0 {
			add(l.Keys, l.PredictedRate)
		}
	}
	for _, bits := range filter.Spread(10, runs) {
		planned += filter.ExpectedRate(filter.KindBlocked, uint32(1000*bits))
	}
	return float64(len(runs)) * filter.ExpectedRate(filter.KindBlocked, 10_000), planned, predicted
}

// BenchmarkFilterBudget reports the blocks that a lookup of an absent key reads
// with the same bits everywhere and with the budget: during a random load,
// on average over its second half, when compactions have settled, and when all
// is compacted. The figures in docs/decisions are from -benchtime 1x.
func BenchmarkFilterBudget(b *testing.B) {
	for _, memtable := range []int64{64 << 10, 256 << 10, 1 << 20, 4 << 20} {
		for _, uniform := range []bool{true, false} {
			b.Run(fmt.Sprintf("memtable=%d/uniform=%v", memtable, uniform), func(b *testing.B) {
				for range b.N {
					loadAndLook(b, memtable, uniform)
				}
			})
		}
	}
}

func loadAndLook(b *testing.B, memtable int64, uniform bool) {
	o := Options{Durability: SyncNever, CacheBytes: -1, MemtableBytes: memtable, TableBytes: max(memtable/4, 64<<10), Compression: NoCompression}
	o.Filters.Uniform = uniform
	db := mustOpen(b, vfs.NewMem(), "/store", o)
	present, absent := newRand(1), newRand(2)
	reads := func(lookups int) float64 {
		before := totals(db).BlocksRead
		for range lookups {
			if ok, err := db.Has(binary.BigEndian.AppendUint64(nil, absent.Uint64()|1)); ok || err != nil {
				b.Fatal(ok, err)
			}
		}
		return float64(totals(db).BlocksRead-before) / float64(lookups)
	}
	const n, looks = 300_000, 100
	value := make([]byte, 100)
	inUse := 0.0
	for i := range n {
		must(b, db.Put(binary.BigEndian.AppendUint64(nil, present.Uint64()&^1), value))
		if i >= n/2 && i%(n/2/looks) == 0 {
			// The load is faster than any in earnest: let compactions keep up.
			db.mu.Lock()
			for len(db.immutables) > 0 || len(db.state.Load().L0) >= db.o.L0CompactTables {
				db.cond.Wait()
			}
			db.mu.Unlock()
			inUse += reads(1000) / looks
		}
	}
	flushAll(b, db)
	quiesce(db)()
	b.ReportMetric(inUse, "reads/in-use")
	b.ReportMetric(reads(50_000), "reads/at-rest")
	compactAll(b, db)
	b.ReportMetric(reads(50_000), "reads/compacted")
	must(b, db.Close())
}
