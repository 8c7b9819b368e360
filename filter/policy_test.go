package filter

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// fourLevels are the key counts that the figures in docs/filters.md are for.
var fourLevels = []float64{1000, 100, 10, 1}

// sumOfRates is what a lookup of an absent key reads with so many bits per run.
func sumOfRates(bits []float64) (rates float64) {
	for _, b := range bits {
		if b < 1 {
			rates++
		} else {
			rates += ExpectedRate(KindBlocked, uint32(b*1000+0.5))
		}
	}
	return rates
}

func mean(bits, runs []float64) float64 {
	spent := 0.0
	for i := range bits {
		spent += bits[i] * runs[i]
	}
	return spent / sum(runs)
}

// TestSpreadGolden holds what docs/filters.md says of a tree of four levels.
func TestSpreadGolden(t *testing.T) {
	for _, test := range []struct {
		average float64
		want    []float64
		gain    float64 // in the sum of rates, against the same bits everywhere
	}{
		{5, []float64{4.47, 9.26, 14.05, 18.85}, 2.79},
		{8, []float64{7.47, 12.26, 17.06, 20}, 2.75},
		{10, []float64{9.47, 14.27, 19.06, 20}, 2.72},
		{12, []float64{11.48, 16.28, 20, 20}, 2.64},
		{16, []float64{15.56, 20, 20, 20}, 2.12},
		{20, []float64{20, 20, 20, 20}, 1},
		{30, []float64{30, 30, 30, 30}, 1},
	} {
		got := Spread(test.average, fourLevels)
		for i := range got {
			if math.Abs(got[i]-test.want[i]) > 0.006 {
				t.Errorf("%v bits: run %d gets %.3f, want %v", test.average, i, got[i], test.want[i])
			}
		}
		uniform := sumOfRates(slices.Repeat([]float64{test.average}, len(got)))
		if gain := uniform / sumOfRates(got); math.Abs(gain-test.gain) > 0.006 {
			t.Errorf("%v bits: sums of rates %.5f and %.5f, gain %.3f, want %v", test.average, uniform, sumOfRates(got), gain, test.gain)
		}
	}
}

// TestSpreadIsNearlyBest compares with moving bits between any two runs, by the
// exact model: no move of an eighth of a bit of the smaller of the two runs
// gains more than a hundredth.
func TestSpreadIsNearlyBest(t *testing.T) {
	for _, average := range []float64{6, 8, 10, 12, 14} {
		bits := Spread(average, fourLevels)
		best := sumOfRates(bits)
		for from := range bits {
			for to := range bits {
				for _, step := range []float64{0.125, 0.5, 2} {
					moved := slices.Clone(bits)
					scale := step * min(fourLevels[from], fourLevels[to])
					moved[from] -= scale / fourLevels[from]
					moved[to] += scale / fourLevels[to]
					if moved[from] < 1 || moved[to] > CapBits {
						continue
					}
					if got := sumOfRates(moved); got < 0.99*best {
						t.Errorf("%v bits, %.2f: moving %v from %d to %d gives %.5f for %.5f", average, bits, step, from, to, got, best)
					}
				}
			}
		}
	}
}

// TestSpreadBounds tries random trees: the average is kept and, unless runs go
// without a filter or all have the cap, used up; larger runs never get more.
func TestSpreadBounds(t *testing.T) {
	rng := newRand(t)
	for range 2000 {
		runs := make([]float64, 1+rng.IntN(12))
		for i := range runs {
			runs[i] = math.Exp(rng.Float64() * 25)
		}
		average := 1 + 25*rng.Float64()
		bits := Spread(average, runs)
		most := max(CapBits, average)
		got := mean(bits, runs)
		if got > average*(1+1e-9) {
			t.Fatalf("%v for %v: average %v, want at most %v", bits, runs, got, average)
		}
		if !slices.Contains(bits, 0) && got < average*(1-1e-9) {
			t.Fatalf("%v for %v: average %v, want %v", bits, runs, got, average)
		}
		for i := range runs {
			if bits[i] != 0 && (bits[i] < 1 || bits[i] > most) {
				t.Fatalf("%v for %v: not 0 nor in [1, %v]", bits, runs, most)
			}
			for j := range runs {
				if runs[i] < runs[j] && bits[i] < bits[j] {
					t.Fatalf("%v for %v: the larger run gets more", bits, runs)
				}
			}
		}
	}
	if bits := Spread(10, []float64{0, 0}); bits[0] != bits[1] {
		t.Errorf("empty runs: %v", bits)
	}
	if bits := Spread(10, nil); len(bits) != 0 {
		t.Errorf("no runs: %v", bits)
	}
}

func TestPolicyValidate(t *testing.T) {
	for _, good := range []Policy{
		{}, {Uniform: true}, {FromBottom: []float64{0, 1, 100}}, {BudgetBytes: 1, SkipBottom: true, MaxTableBytes: 1},
		{Kind: KindStandard, BottomKind: KindFuse}, {Uniform: true, Kind: KindFuse}, {FromBottom: []float64{10}, BottomKind: KindFuse},
	} {
		if err := good.Validate(); err != nil {
			t.Errorf("%+v: %v", good, err)
		}
	}
	for want, bad := range map[string]Policy{
		"both Uniform":      {Uniform: true, FromBottom: []float64{1}},
		"FromBottom[1]":     {FromBottom: []float64{1, 101}},
		"FromBottom[0]":     {FromBottom: []float64{math.NaN()}},
		"is empty":          {FromBottom: []float64{}},
		"BudgetBytes":       {BudgetBytes: -1},
		"MaxTableBytes":     {MaxTableBytes: -1},
		"filter kind(4)":    {Kind: KindFuse + 1},
		"filter kind(9)":    {BottomKind: 9},
		"without Uniform":   {Kind: KindFuse},
		"SkipBottom leaves": {SkipBottom: true, BottomKind: KindFuse},
	} {
		if err := bad.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", bad, err, want)
		}
	}
}

// TestSize takes each kind of policy through the table that it is about.
func TestSize(t *testing.T) {
	tree := Tree{Runs: []float64{1000, 100, 10, 1}, Keys: 1_111_000, Tables: 100}
	for _, test := range []struct {
		name     string
		b        Budget
		keys     uint64
		distance int
		change   func(*Tree)
		want     uint32
	}{
		{"uniform", Budget{Policy{Uniform: true}, 12.5}, 1000, 2, nil, 12_500},
		{"uniform, within bytes", Budget{Policy{Uniform: true, BudgetBytes: 1_111_000 + 88*100}, 10}, 1000, 2, nil, 8000},
		{"from bottom", Budget{Policy{FromBottom: []float64{5, 10}}, 7}, 1000, 0, nil, 5000},
		{"from bottom, the last for all above", Budget{Policy{FromBottom: []float64{5, 10}}, 7}, 1000, 3, nil, 10_000},
		{"from bottom, none", Budget{Policy{FromBottom: []float64{0.5}}, 7}, 1000, 0, nil, 0},
		{"average, bottom", Budget{Policy{}, 10}, 1000, 0, nil, 9473},
		{"average, overspent", Budget{Policy{}, 10}, 1000, 0, func(tree *Tree) { tree.Spent = 1e6 }, 9473},
		{"average, above, a thirty-second part exceeded", Budget{Policy{}, 10}, 100_000, 1, func(tree *Tree) { tree.Spent = 43_398 }, 10_004}, // but the rounding
		{"average, above, enough saved", Budget{Policy{}, 10}, 100_000, 1, func(tree *Tree) { tree.Spent = -1e6 }, 14_265},
		{"average, replaced", Budget{Policy{}, 10}, 100_000, 1, func(tree *Tree) { tree.Spent, tree.Replaced = 1e6, 1e6 }, 14_265},
		{"skip bottom", Budget{Policy{SkipBottom: true}, 10}, 1000, 0, nil, 0},
		{"skip bottom, above", Budget{Policy{SkipBottom: true}, 10}, 1000, 1, nil, 9482},
		{"table cap", Budget{Policy{Uniform: true, MaxTableBytes: 664}, 10}, 1000, 0, nil, 5120},
		{"table cap, too small for a filter", Budget{Policy{Uniform: true, MaxTableBytes: 87}, 10}, 1000, 0, nil, 0},
		{"bytes, spent", Budget{Policy{BudgetBytes: 5000}, 10}, 1000, 3, func(tree *Tree) { tree.Spent, tree.Keys = 5000, 4000 }, 0},
		{"bytes, room for 640", Budget{Policy{BudgetBytes: 5000}, 10}, 1000, 3, func(tree *Tree) { tree.Spent, tree.Keys, tree.Tables = 5000-664, 4000, 1 }, 5120},
		{"no keys", Budget{Policy{}, 10}, 0, 0, nil, 0},
	} {
		tree := tree
		if test.change != nil {
			test.change(&tree)
		}
		_, got, charge := test.b.Size(tree, test.keys, test.distance)
		if got != test.want {
			t.Errorf("%s: %d, want %d", test.name, got, test.want)
		}
		if got == 0 && charge != 0 {
			t.Errorf("%s: no filter is charged %d", test.name, charge)
		}
	}
}

// TestSizeOfKinds takes each rule about kinds through a table that it is about.
func TestSizeOfKinds(t *testing.T) {
	tree := Tree{Runs: []float64{1000, 100, 10, 1}, Keys: 11_110_000, Tables: 100}
	below := Policy{BottomKind: KindFuse}
	one := func(tree *Tree) { tree.Runs = tree.Runs[:1] }
	fuse := FuseBytes(100_000)
	for _, test := range []struct {
		name     string
		b        Budget
		keys     uint64
		distance int
		change   func(*Tree)
		kind     Kind
		want     uint32
	}{
		{"standard", Budget{Policy{Kind: KindStandard}, 10}, 1000, 0, nil, KindStandard, 9473},
		{"fuse at the bottom", Budget{below, 10}, 100_000, 0, nil, KindFuse, 9473},
		{"blocked above, of what is left", Budget{below, 10}, 100_000, 1, nil, KindBlocked, 14_566},
		{"standard above", Budget{Policy{Kind: KindStandard, BottomKind: KindFuse}, 10}, 100_000, 1, nil, KindStandard, 14_566},
		{"too few keys", Budget{below, 10}, MinFuseKeys - 1, 0, nil, KindBlocked, 9473},
		{"more than its share", Budget{below, 9}, 100_000, 0, nil, KindBlocked, 8470},
		{"worse than so many bits in one run", Budget{below, 16}, 100_000, 0, one, KindBlocked, 16_000},
		{"tables above of fewer keys", Budget{below, 10}, 100_000, 1, func(tree *Tree) { tree.Tables = 2000 }, KindBlocked, 14_265},
		{"overspent, and takes less than the average", Budget{below, 10}, 100_000, 0, func(tree *Tree) { tree.Spent = 1e7 }, KindFuse, 9473},
		{"uniform", Budget{Policy{Uniform: true, Kind: KindFuse}, 16}, 100_000, 3, nil, KindFuse, 9502}, // as many as fit into its bytes
		{"from bottom", Budget{Policy{FromBottom: []float64{10, 16}, BottomKind: KindFuse}, 1}, 100_000, 0, nil, KindFuse, 9502},
		{"from bottom, too few bits", Budget{Policy{FromBottom: []float64{9, 16}, BottomKind: KindFuse}, 1}, 100_000, 0, nil, KindBlocked, 9000},
		{"from bottom, above", Budget{Policy{FromBottom: []float64{10, 16}, BottomKind: KindFuse}, 1}, 100_000, 1, nil, KindBlocked, 16_000},
		{"table cap", Budget{Policy{BottomKind: KindFuse, MaxTableBytes: int64(fuse) - 1}, 10}, 100_000, 0, nil, KindBlocked, 9473},
		{"bytes", Budget{Policy{BottomKind: KindFuse, BudgetBytes: 14_000_000}, 1}, 100_000, 0, nil, KindFuse, 9502},
		{"bytes, spent but for too little", Budget{Policy{BottomKind: KindFuse, BudgetBytes: 14_000_000}, 1}, 100_000, 0,
			func(tree *Tree) { tree.Spent = 14_000_000 - int64(fuse) + 1 }, KindBlocked, 9502},
	} {
		tree := tree
		if test.change != nil {
			test.change(&tree)
		}
		kind, millibits, charge := test.b.Size(tree, test.keys, test.distance)
		if kind != test.kind || math.Abs(float64(millibits)-float64(test.want)) > 10 {
			t.Errorf("%s: %v of %d, want %v of %d", test.name, kind, millibits, test.kind, test.want)
		}
		if kind == KindFuse && charge != test.b.Charge(test.keys, fuse) {
			t.Errorf("%s: charged %d for %d bytes", test.name, charge, fuse)
		}
	}
}

// TestRoughReads holds the formula against the exact model, and SpreadAbove
// against what it is to keep.
func TestRoughReads(t *testing.T) {
	for bits := 1.0; bits <= CapBits; bits += 0.5 {
		exact := ExpectedRate(KindBlocked, uint32(1000*bits))
		if got := roughReads([]float64{bits, 0}) - 1; !within(got, exact, 0.05) {
			t.Errorf("%v bits: %.6f, exactly %.6f", bits, got, exact)
		}
	}
	for _, average := range []float64{9.5, 10, 11} {
		bits := SpreadAbove(9.1, average, fourLevels)
		if got := mean(bits, fourLevels); bits[0] != 9.1 || got > average+1e-9 || got < average-1e-9 && bits[1] < CapBits {
			t.Errorf("%v: %v, average %v", average, bits, got)
		}
	}
	if got, want := SpreadAbove(9.1, 9, fourLevels), Spread(9, fourLevels); !slices.Equal(got, want) {
		t.Errorf("a bottom above the average: %v, want %v", got, want)
	}
}

// TestLedger gives random tables one after the other what Size says, replaces
// some, and changes the budget: the sum of what filters take never exceeds it,
// and never grows while it does because the budget was lowered.
func TestLedger(t *testing.T) {
	rng := newRand(t)
	type table struct{ keys, bytes uint64 }
	built := map[Kind]int{}
	for range 200 {
		b := Budget{Policy{BudgetBytes: rng.Int64N(200_000), Uniform: rng.IntN(4) == 0}, 10}
		b.Kind, b.BottomKind = Kind(rng.IntN(3)), Kind(rng.IntN(4))
		var tables []table
		var spent int64
		for range 100 {
			if rng.IntN(30) == 0 {
				b.BudgetBytes = rng.Int64N(200_000)
			}
			keys := uint64(math.Exp(rng.Float64() * 9))
			if rng.IntN(20) == 0 {
				keys += MinFuseKeys
			}
			var replaced int64
			if len(tables) > 0 && rng.IntN(2) == 0 {
				i := rng.IntN(len(tables))
				replaced = b.Charge(tables[i].keys, tables[i].bytes)
				tables = slices.Delete(tables, i, i+1)
			}
			tree := Tree{Runs: []float64{1000, 100, 10, 10, 10, 10}, Keys: keys, Tables: uint64(len(tables)) + 1, Spent: spent - replaced, Replaced: replaced}
			for _, t := range tables {
				tree.Keys += t.keys
			}
			kind, millibits, charge := b.Size(tree, keys, rng.IntN(4))
			new := table{keys: keys}
			if millibits > 0 {
				builder := builderOf(kind, millibits, 1, randomHashes(rng, int(keys)))
				_, info := mustFinish(t, builder, nil)
				builder.Release()
				new.bytes = info.Bytes
				if info.Kind != kind {
					t.Fatalf("%v became %v", kind, info.Kind)
				}
				built[kind]++
			}
			if got := b.Charge(keys, new.bytes); got != charge {
				t.Fatalf("%d keys at %d: charged %d, takes %d", keys, millibits, charge, got)
			}
			before := spent
			spent += charge - replaced
			if spent > max(b.BudgetBytes, before) {
				t.Fatalf("%d bytes of %d, before %d", spent, b.BudgetBytes, before)
			}
			tables = append(tables, new)
		}
	}
	for _, kind := range kinds {
		if built[kind] == 0 {
			t.Errorf("%d %v filters: not what this is about", built[kind], kind)
		}
	}
}

func randomHashes(rng *rand.Rand, n int) []uint64 {
	hashes := make([]uint64, n)
	for i := range hashes {
		hashes[i] = rng.Uint64()
	}
	return hashes
}

// TestFit wants the largest size whose filter is within a limit.
func TestFit(t *testing.T) {
	rng := newRand(t)
	for range 20_000 {
		keys := uint64(math.Exp(rng.Float64() * 40))
		millibits := MinMillibits + rng.Uint32N(MaxMillibits-MinMillibits)
		limit := int64(math.Exp(rng.Float64() * 40))
		got := fit(keys, millibits, limit)
		bytes := func(m uint32) uint64 {
			n, err := unitsFor(keys, m, blockShift)
			if err != nil {
				return math.MaxUint64
			}
			return uint64(n)*blockBytes + trailerBytes
		}
		if got > 0 && (got < MinMillibits || got > millibits) {
			t.Fatalf("%d keys at %d in %d: %d", keys, millibits, limit, got)
		}
		if got > 0 && bytes(got) != math.MaxUint64 && bytes(got) > uint64(limit) {
			t.Fatalf("%d keys at %d in %d: %d takes %d", keys, millibits, limit, got, bytes(got))
		}
		if more := max(got+2, MinMillibits+2); more <= millibits && bytes(more) <= uint64(limit) {
			t.Fatalf("%d keys at %d in %d: %d, but %d would fit", keys, millibits, limit, got, more)
		}
	}
}

func ExampleSpread() {
	keys := []float64{1_000_000, 100_000, 10_000, 1000}
	fmt.Printf("%.1f\n", Spread(10, keys))
	// Output: [9.5 14.3 19.1 20.0]
}
