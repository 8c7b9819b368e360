package sievedb

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"sievedb/compaction"
	"sievedb/filter"
	"sievedb/internal/invariants"
	"sievedb/internal/keys"
	"sievedb/internal/manifest"
	"sievedb/vfs"
)

// liveFilters returns the bytes of the filters of all live tables, and their
// keys.
func liveFilters(db *DB) (filterBytes, keys uint64) {
	for _, tables := range db.state.Load().Version.Levels {
		for _, m := range tables {
			filterBytes += m.FilterBytes
			keys += m.UserKeys
		}
	}
	return filterBytes, keys
}

// buildTree writes tables of counts[i] keys into the level i above the bottom,
// as compactions write them, into a store without any, and keeps compactions
// away. Keys are random even numbers, so that every level covers the range of
// the others. Everything is written twice: the second time the tree has its
// shape already, as it has for nearly all of the compactions of a store.
func buildTree(t *testing.T, db *DB, counts ...int) {
	t.Helper()
	const bottom = manifest.NumLevels - 1
	db.mu.Lock()
	db.running = append(db.running, compaction.Reservation{OutputLevel: bottom, Keys: keys.AllKeys()})
	db.mu.Unlock()
	for range manifest.NumLevels { // so that the tables' sequence numbers are visible
		must(t, db.Put(nil, nil))
	}
	for range 2 {
		rng := newRand(3)
		for distance, n := range counts {
			sorted := make([]uint64, n)
			for i := range sorted {
				sorted[i] = rng.Uint64() &^ 1
			}
			slices.Sort(sorted)
			replaceLevel(t, db, bottom-distance, slices.Compact(sorted))
		}
	}
}

// replaceLevel puts keys in the place of what a level holds.
func replaceLevel(t *testing.T, db *DB, level int, sorted []uint64) {
	t.Helper()
	e := &manifest.Edit{LastSeq: keys.SeqNum(manifest.NumLevels - level)}
	old := db.state.Load().Version.Levels[level]
	for _, m := range old {
		e.Removed = append(e.Removed, manifest.LevelFile{Level: level, FileNum: m.FileNum})
	}
	out := db.newOutputs(level)
	defer out.built()
	out.replaces(old)
	value := make([]byte, 84)
	for _, k := range sorted {
		if out.SizeBytes() >= 4<<20 { // tables of some 40,000 keys
			must(t, out.end())
		}
		must(t, out.Add(keys.Make(binary.BigEndian.AppendUint64(nil, k), e.LastSeq, keys.KindPut), value))
	}
	must(t, out.finish())
	e.Added = out.added
	must(t, db.edit(e, out.opened))
}

// TestBudgetReadsLess builds the same tree of 1:10:100:1000 keys twice, with
// the same memory for filters, and looks up the same absent keys: that
// reads at least 2.3 times fewer blocks with the bits spread by the budget than
// with the same bits everywhere.
func TestBudgetReadsLess(t *testing.T) {
	const lookups = 100_000
	counts, want := []int{700_000, 70_000, 7000, 700}, 2.3
	if invariants.Enabled { // which makes it slow
		counts, want = counts[1:], 1.8
	}
	read, predicted, memory := map[string]uint64{}, map[string]float64{}, map[string]uint64{}
	for name, policy := range map[string]filter.Policy{"uniform": {Uniform: true}, "budget": {}, "fuse": {BottomKind: filter.KindFuse}} {
		o := Options{Durability: SyncNever, CacheBytes: -1, MemtableBytes: 16 << 10, TableBytes: 1 << 20, Compression: NoCompression}
		o.Filters = policy
		db := mustOpen(t, vfs.NewMem(), "/store", o)
		buildTree(t, db, counts...)
		rng := newRand(4)
		for range lookups {
			if ok, err := db.Has(binary.BigEndian.AppendUint64(nil, rng.Uint64()|1)); ok || err != nil {
				t.Fatal(ok, err)
			}
		}
		m := db.Metrics()
		c := m.Total()
		read[name], predicted[name] = c.BlocksRead, c.ExpectedFalsePositives
		memory[name], _ = liveFilters(db)
		if float64(c.Probes) < 0.98*float64(lookups*len(counts)) {
			t.Errorf("%s: %d probes in %d lookups", name, c.Probes, lookups)
		}
		for i := range counts {
			l := m.Levels[len(m.Levels)-1-i]
			t.Logf("%s: L%d %d keys, %.2f bits per key, rate %.5f", name, l.Level, l.Keys, l.BitsPerKey, l.PredictedRate)
		}
		t.Logf("%s: %d lookups, %d blocks read, %.0f predicted", name, lookups, read[name], predicted[name])
		if n := kindsOf(db); (n[filter.KindFuse] > 0) != (name == "fuse") {
			t.Errorf("%s: tables by the kind of their filter: %v", name, n)
		}
		must(t, db.Close())
	}
	if gain := float64(read["uniform"]) / float64(read["budget"]); gain < want {
		t.Errorf("%d and %d blocks: %.2f times fewer, want %v", read["uniform"], read["budget"], gain, want)
	}
	if gain := float64(read["budget"]) / float64(read["fuse"]); gain < 1.4 {
		t.Errorf("with fuse filters at the bottom, %d blocks, with blocked ones %d: %.2f times fewer, want 1.4", read["fuse"], read["budget"], gain)
	}
	for _, name := range []string{"budget", "fuse"} {
		if memory[name] > memory["uniform"]*33/32 { // what filter.Budget lets an average be exceeded by
			t.Errorf("%s takes %d bytes, the same bits everywhere %d", name, memory[name], memory["uniform"])
		}
	}
}

// TestFilterBudgetHolds writes in the order of the keys, at random, and over
// and over, with deletes, flushes and compactions beside one another: the
// filters of the live tables never take more than the budget, which is far too
// small for all of them, nor more than the average.
func TestFilterBudgetHolds(t *testing.T) {
	seed := newSeed(t)
	for _, policy := range []filter.Policy{
		{BudgetBytes: 8000}, {BudgetBytes: 8000, Uniform: true}, {BudgetBytes: 2000, SkipBottom: true},
		{BudgetBytes: 8000, FromBottom: []float64{8, 16}}, {BudgetBytes: 1000}, {},
	} {
		for _, load := range []struct {
			name string
			key  func(rng *rand.Rand, i int) int
		}{
			{"sequential", func(_ *rand.Rand, i int) int { return i }},
			{"random", func(rng *rand.Rand, _ int) int { return rng.IntN(1 << 30) }},
			{"overwrite", func(rng *rand.Rand, _ int) int { return rng.IntN(3000) }},
		} {
			t.Run(fmt.Sprintf("%+v/%s", policy, load.name), func(t *testing.T) {
				o := tiny
				o.Filters, o.Workers, o.Compression = policy, 4, NoCompression
				mem := vfs.NewMem()
				db := mustOpen(t, mem, "/store", o)
				rng := newRand(seed)
				most := uint64(0)
				check := func(when string) {
					t.Helper()
					used, keys := liveFilters(db)
					most = max(most, used)
					if policy.BudgetBytes > 0 && used > uint64(policy.BudgetBytes) {
						t.Fatalf("%s: filters take %d bytes", when, used)
					}
					tables := uint64(db.state.Load().Version.Tables())
					if perKey := (keys*10)/8*105/100 + 88*tables; policy.BudgetBytes == 0 && load.name != "overwrite" && used > perKey {
						t.Fatalf("%s: filters take %d bytes, %d keys in %d tables at most %d", when, used, keys, tables, perKey)
					}
				}
				for i := range 10_000 {
					key := fmt.Appendf(nil, "%010d", load.key(rng, i))
					if load.name == "overwrite" && rng.IntN(4) == 0 {
						must(t, db.Delete(key))
					} else {
						must(t, db.Put(key, key))
					}
					if i%8 == 0 {
						check(fmt.Sprint("after write ", i))
					}
				}
				flushAll(t, db)
				quiesce(db)()
				check("at rest")
				must(t, db.Close())
				db = mustOpen(t, mem, "/store", o)
				check("reopened")
				must(t, db.RebuildFilters(context.Background()))
				check("rebuilt")
				t.Logf("most %d bytes", most)
				if policy.BudgetBytes == 8000 && policy.FromBottom == nil {
					for _, m := range db.Metrics().Tables {
						if m.FilterBytes == 0 || most < 7500 && load.name != "overwrite" {
							t.Errorf("%d of %d bytes used, and table %d of %d keys has no filter after a rebuild", most, policy.BudgetBytes, m.File, m.Keys)
						}
					}
				}
				must(t, db.Close())
			})
		}
	}
}

// bitsPerTable returns the least and the most bits a key that filters have. Of a
// small table they tell how filters are rounded, up to 512 bits, and not what for.
func bitsPerTable(db *DB) (least, most float64) {
	least = 1000
	for _, m := range db.Metrics().Tables {
		if float64(m.FilterBytes)*8 < 100*m.BitsPerKey { // 100 keys
			continue
		}
		least, most = min(least, m.BitsPerKey), max(most, m.BitsPerKey)
	}
	return least, most
}

// TestFiltersFollowTheSurvivors deletes 99 of 100 keys: the compaction that
// drops them leaves filters of the exact size for those that are left.
func TestFiltersFollowTheSurvivors(t *testing.T) {
	db := mustOpen(t, vfs.NewMem(), "/store", tiny)
	const n = 20_000
	for i := range n {
		must(t, db.Put(fmt.Appendf(nil, "%06d", i*7919%n), nil))
	}
	compactAll(t, db)
	before, keys := liveFilters(db)
	if keys != n || before < n*9/8 {
		t.Fatalf("%d bytes of filters for %d keys", before, keys)
	}
	for i := range n {
		if i%100 != 0 {
			must(t, db.Delete(fmt.Appendf(nil, "%06d", i)))
		}
	}
	compactAll(t, db)
	after, keys := liveFilters(db)
	const blocks = (n/100*10 + 511) / 512 // of 64 bytes
	// Each table rounds up to whole blocks and has a trailer of 24 bytes.
	tables := uint64(db.state.Load().Version.Tables())
	if most := (blocks+tables-1)*64 + tables*24; keys != n/100 || tables > 2 || after < blocks*64+tables*24 || after > most {
		t.Errorf("%d keys in %d tables have filters of %d bytes, want %d keys and at most %d bytes", keys, tables, after, n/100, most)
	}
	must(t, db.Close())
}

// TestLoadInOrderKeepsTheAverage loads keys in their order, so that tables
// move to the bottom as they were flushed: each has 10 bits per key, none the
// 20 of a small run.
func TestLoadInOrderKeepsTheAverage(t *testing.T) {
	db := mustOpen(t, vfs.NewMem(), "/store", tiny)
	for i := range 30_000 {
		must(t, db.Put(fmt.Appendf(nil, "%010d", i), nil))
	}
	flushAll(t, db)
	quiesce(db)()
	m := db.Metrics()
	if m.TrivialMoves < 50 || m.Compactions > 3 {
		t.Errorf("%d moves and %d compactions: not the load that this is about", m.TrivialMoves, m.Compactions)
	}
	for _, table := range m.Tables {
		if most := 10 + 512/float64(table.Keys); table.BitsPerKey < 10 || table.BitsPerKey > most {
			t.Errorf("table %d of %d keys has %.2f bits per key, want 10 to %.2f", table.File, table.Keys, table.BitsPerKey, most)
		}
	}
	must(t, db.Close())
}

// TestRebuildFilters opens one store with one policy after the other. A full
// compaction leaves tables of the bottom as they are if there is nothing to
// drop, and so their filters; RebuildFilters does not.
func TestRebuildFilters(t *testing.T) {
	mem := vfs.NewMem()
	without := tiny
	without.DisableFilters = true
	db := mustOpen(t, mem, "/store", without)
	want := fill(t, db, nil, 4000, 0)
	compactAll(t, db)
	must(t, db.Close())
	for _, test := range []struct {
		policy      filter.Policy
		least, most float64
	}{
		{filter.Policy{}, 10, 14},
		{filter.Policy{FromBottom: []float64{5}}, 5, 9},
		{filter.Policy{Uniform: true}, 10, 14},
		{filter.Policy{MaxTableBytes: 88}, 1, 10},
		{filter.Policy{SkipBottom: true}, 0, 0},
		{filter.Policy{BudgetBytes: 2000}, 1, 8},
		{filter.Policy{Kind: filter.KindStandard}, 10, 10.8}, // with eight bytes besides the bits
	} {
		o := tiny
		o.Filters = test.policy
		db := mustOpen(t, mem, "/store", o)
		beforeLeast, beforeMost := bitsPerTable(db)
		compactAll(t, db)
		if least, most := bitsPerTable(db); least != beforeLeast || most != beforeMost {
			t.Errorf("%+v: a compaction with nothing to drop made filters of %v to %v bits from %v to %v", test.policy, least, most, beforeLeast, beforeMost)
		}
		must(t, db.RebuildFilters(context.Background()))
		if least, most := bitsPerTable(db); least < test.least || most > test.most {
			t.Errorf("%+v: filters have %v to %v bits per key, want %v to %v", test.policy, least, most, test.least, test.most)
		}
		for _, m := range db.Metrics().Tables {
			if limit := test.policy.MaxTableBytes; limit > 0 && m.FilterBytes > uint64(limit) {
				t.Errorf("%+v: table %d has a filter of %d bytes", test.policy, m.File, m.FilterBytes)
			}
		}
		must(t, checkAll(db, want))
		must(t, db.Close())
	}
}

// TestSkipBottom looks up keys that are there: the bottom has no filter, the
// levels above have, and a policy that keeps them says so.
func TestSkipBottom(t *testing.T) {
	for _, skip := range []bool{false, true} {
		o := tiny
		o.Filters.SkipBottom = skip
		db := mustOpen(t, vfs.NewMem(), "/store", o)
		buildTree(t, db, 20_000, 2000, 200)
		rng := newRand(3)
		for range 5000 { // the keys of the bottom
			if ok, err := db.Has(binary.BigEndian.AppendUint64(nil, rng.Uint64()&^1)); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
		m := db.Metrics()
		bottom, above := m.Levels[6], m.Levels[5]
		if (bottom.FilterBytes == 0) != skip || above.FilterBytes == 0 {
			t.Errorf("skip %v: filters of %d bytes at the bottom, %d above", skip, bottom.FilterBytes, above.FilterBytes)
		}
		if bottom.Filter.TruePositives+bottom.Filter.Unfiltered < 4000 {
			t.Errorf("skip %v: %+v", skip, bottom.Filter)
		}
		verdict := m.FilterVerdict()
		t.Log(verdict)
		if strings.Contains(verdict, "SkipBottom") == skip {
			t.Errorf("skip %v: %s", skip, verdict)
		}
		must(t, db.Close())
	}
}

// TestFilterVerdict holds the sentences for figures of each kind.
func TestFilterVerdict(t *testing.T) {
	level := func(change func(l *LevelMetrics)) *Metrics {
		var m Metrics
		l := &m.Levels[6]
		*l = LevelMetrics{Level: 6, Tables: 1, Keys: 1000, FilterBytes: 1250, BitsPerKey: 10, PredictedRate: 0.0096647}
		change(l)
		return &m
	}
	for _, test := range []struct {
		name string
		m    *Metrics
		want []string
		not  []string
	}{
		{"nothing", level(func(*LevelMetrics) {}), []string{"No lookup"}, nil},
		{
			"as predicted", level(func(l *LevelMetrics) {
				l.Filter = FilterCounts{Probes: 1_000_000, Negatives: 990_335, FalsePositives: 9665, ExpectedFalsePositives: 9664.7}
			}),
			[]string{"saved 99.0% of the reads", "of 1M tables", "lookups read 9665", "0.967% of the absent keys", "0.966% was predicted. With half the bits, another 83.4 of 1,000"},
			[]string{"chance does", "SkipBottom", "no filter to ask", "do not pay"},
		},
		{
			"more than predicted", level(func(l *LevelMetrics) {
				l.Filter = FilterCounts{Probes: 10_000, Negatives: 9800, FalsePositives: 200, ExpectedFalsePositives: 97}
			}),
			[]string{"chance does not explain"}, nil,
		},
		{
			"hits only", level(func(l *LevelMetrics) {
				l.Filter = FilterCounts{Probes: 10_000, Negatives: 10, TruePositives: 9990, ExpectedFalsePositives: 0.1}
			}),
			[]string{"do not pay", "SkipBottom", "1.22 KiB"}, nil,
		},
		{
			"no filters", level(func(l *LevelMetrics) {
				l.FilterBytes, l.BitsPerKey, l.BadFilters = 0, 0, 2
				l.Filter = FilterCounts{Probes: 500, Unfiltered: 500}
			}),
			[]string{"saved 0.0%", "500 tables were read because they have no filter", "2 of those live because theirs is damaged", "RebuildFilters"},
			[]string{"do not pay", "SkipBottom"},
		},
	} {
		got := test.m.FilterVerdict()
		for _, want := range test.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %q lacks %q", test.name, got, want)
			}
		}
		for _, not := range test.not {
			if strings.Contains(got, not) {
				t.Errorf("%s: %q says %q", test.name, got, not)
			}
		}
	}
}

// TestFilterPolicyIsValidated wants what is wrong with a policy among the
// problems of the options.
func TestFilterPolicyIsValidated(t *testing.T) {
	o := Options{Filters: filter.Policy{Uniform: true, FromBottom: []float64{101}}}
	err := o.Validate()
	if _, err := Open("/store", &Options{FS: vfs.NewMem(), Filters: filter.Policy{Kind: 9}}); !errors.Is(err, ErrInvalidArgument) || !strings.Contains(err.Error(), "filter kind(9)") {
		t.Errorf("Open with an unknown kind: %v", err)
	}
	if !errors.Is(err, ErrInvalidArgument) || !strings.Contains(err.Error(), "both Uniform") || !strings.Contains(err.Error(), "FromBottom[0]") {
		t.Errorf("Validate says %v", err)
	}
}

// TestRateInterval draws counts from known rates: the interval holds the rate
// in about 95 of 100 cases, and is no wider than it has to be.
func TestRateInterval(t *testing.T) {
	rng := newRand(5)
	for _, p := range []float64{0.001, 0.01, 0.3} {
		const n, rounds = 20_000, 400
		held, width := 0, 0.0
		for range rounds {
			c := FilterCounts{Negatives: n}
			for range n {
				if rng.Float64() < p {
					c.FalsePositives++
					c.Negatives--
				}
			}
			low, high := c.RateInterval()
			if low <= p && p <= high {
				held++
			}
			width += (high - low) / rounds
		}
		if least := 2 * 1.96 * math.Sqrt(p*(1-p)/n+0.0004*p*p); held < rounds*92/100 || width > 1.15*least {
			t.Errorf("rate %v: held %d times in %d, %.5f wide on average, at least %.5f", p, held, rounds, width, least)
		}
	}
	if low, high := (FilterCounts{}).RateInterval(); low != 0 || high != 1 {
		t.Errorf("nothing measured: %v to %v", low, high)
	}
}

// TestJobsShareTheBudget has two compactions under way at the same time, of
// which one may fail: what one has reserved the other cannot have, nor what one
// will give back before it has.
func TestJobsShareTheBudget(t *testing.T) {
	o := tiny
	o.Filters.BudgetBytes = 1000
	db := mustOpen(t, vfs.NewMem(), "/store", o)
	table := func(out *outputs, n int) (filterBytes uint64) {
		for i := range n {
			must(t, out.Add(keys.Make(fmt.Appendf(nil, "%06d", i), 1, keys.KindPut), nil))
		}
		must(t, out.end())
		return out.added[len(out.added)-1].Meta.FilterBytes
	}
	a, b := db.newOutputs(6), db.newOutputs(5)
	first, second := table(a, 300), table(b, 300)
	if first < 600 || second == 0 || first+second > 1000 {
		t.Errorf("two filters of 300 keys take %d and %d bytes", first, second)
	}
	b.replaces([]*manifest.TableMeta{{UserKeys: 100, FilterBytes: 500}})
	if third := table(a, 300); first+third > 1000 {
		t.Errorf("another takes %d bytes, of those that the second has not yet freed", third)
	}
	must(t, a.discard(nil))
	a.built()
	c := db.newOutputs(6)
	if again := table(c, 300); again < 600 {
		t.Errorf("after the first was given up, %d bytes", again)
	}
	for _, out := range []*outputs{b, c} {
		must(t, out.discard(nil))
		out.built()
	}
	if len(db.writing) != 0 {
		t.Errorf("%d are still being written", len(db.writing))
	}
	must(t, db.Close())
}

// TestRecoveryKeepsTheBudget opens a store whose log fills many memtables: the
// tables that the replay makes share the budget, too.
func TestRecoveryKeepsTheBudget(t *testing.T) {
	mem := vfs.NewMem()
	o := tiny
	o.MemtableBytes = 4 << 20
	db := mustOpen(t, mem, "/store", o)
	want := fill(t, db, nil, 4000, 0)
	must(t, db.Close())
	o = tiny
	o.Filters.BudgetBytes, o.L0CompactTables, o.L0SlowTables, o.L0StopTables = 3000, 500, 501, 502
	db = mustOpen(t, mem, "/store", o)
	if used, keys := liveFilters(db); used > 3000 || used < 2000 || keys < 3500 {
		t.Errorf("%d bytes of filters for %d keys", used, keys)
	}
	must(t, checkAll(db, want))
	must(t, db.Close())
}
