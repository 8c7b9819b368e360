package filter

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"sievedb/internal/invariants"
)

func within(got, want, relative float64) bool { return math.Abs(got-want) <= relative*want }

// Rates of the exact model, computed to more digits outside this package.
func TestExpectedRateGolden(t *testing.T) {
	for bitsPerKey, want := range map[uint32]float64{
		4: 0.1481155732, 5: 0.0930624928, 6: 0.0577423817, 7: 0.0366130145, 8: 0.0232633759, 9: 0.0148574131,
		10: 0.0096647484, 11: 0.0062506022, 12: 0.0041349171, 13: 0.0027255273, 14: 0.0018381840,
		15: 0.0012322360, 16: 0.0008439133, 17: 0.0005777976, 18: 0.0004013958, 19: 0.0002809825, 20: 0.0001978318,
	} {
		if got := ExpectedRate(KindBlocked, bitsPerKey*1000); math.Abs(got-want) > 5.1e-11 {
			t.Errorf("%d bits per key: %.10f, want %.10f", bitsPerKey, got, want)
		}
	}
	for k, percent := range map[uint8]float64{
		1: 9.516258, 2: 3.335174, 3: 1.811366, 4: 1.266970, 5: 1.045324, 6: 0.966475, 7: 0.968605, 8: 1.028399,
	} {
		if got := 100 * modelRate(10_000, k); math.Abs(got-percent) > 5.1e-7 {
			t.Errorf("10 bits per key, k %d: %.6f %%, want %.6f %%", k, got, percent)
		}
	}
}

// Rates of kinds 2 and 3, the former computed to more digits outside this package.
func TestExpectedRateOfKinds(t *testing.T) {
	for bitsPerKey, want := range map[uint32]float64{
		4: 0.1468915977, 5: 0.0918488392, 6: 0.0560566708, 7: 0.0346578423, 8: 0.0215771415, 9: 0.0132721400, 10: 0.0081937221,
		11: 0.0050864106, 12: 0.0031423503, 13: 0.0019384117, 14: 0.0012011660, 15: 0.0007439920, 16: 0.0004587107,
		17: 0.0002839064, 18: 0.0001761497, 19: 0.0001085676, 20: 0.0000671371,
	} {
		if got := ExpectedRate(KindStandard, bitsPerKey*1000); math.Abs(got-want) > 5.1e-11 {
			t.Errorf("standard, %d bits per key: %.10f, want %.10f", bitsPerKey, got, want)
		}
	}
	if fuse, none := ExpectedRate(KindFuse, 9000), ExpectedRate(KindNone, 9000); fuse != 0.00390625 || none != 1 {
		t.Errorf("fuse %v, none %v", fuse, none)
	}
	for millibits, want := range map[uint32]uint8{1: 1, 1000: 1, 4000: 3, 9000: 6, 10_000: 7, 14_000: 10, 20_000: 14, 44_000: 30, 1 << 31: 30} {
		if got := standardProbesFor(millibits); got != want {
			t.Errorf("standardProbesFor(%d) = %d, want %d", millibits, got, want)
		}
	}
}

func TestExpectedRateShape(t *testing.T) {
	if ExpectedRate(KindBlocked, 0) != ExpectedRate(KindBlocked, MinMillibits) || ExpectedRate(KindBlocked, 1<<32-1) != ExpectedRate(KindBlocked, MaxMillibits) {
		t.Error("sizes out of bounds are not taken as the bound")
	}
	last, step := 1.0, uint32(250)
	if invariants.Enabled {
		step = 1_000
	}
	for m := uint32(MinMillibits); m <= MaxMillibits; m += step {
		got := ExpectedRate(KindBlocked, m)
		if !(got > 0 && got < last) {
			t.Fatalf("%d millibits: rate %g after %g", m, got, last)
		}
		last = got
		// The steps of k cost little against the best k there is.
		if m > 30_000 {
			continue
		}
		best := 1.0
		for k := uint8(1); k <= maxProbes; k++ {
			best = min(best, modelRate(m, k))
		}
		if got > 1.02*best {
			t.Errorf("%d millibits: rate %g with k %d, %g with the best k", m, got, probesFor(m), best)
		}
	}
}

// Built filters against the exact model, from both sides: a rate that is too
// low is as wrong as one that is too high. Twelve filters of whole blocks and
// 8,000 expected false positives: 5 % are 4 standard deviations. The seed is
// fixed because chance is part of the test.
func TestMeasuredRate(t *testing.T) {
	const filters, keys = 12, 51_200
	last := uint32(20)
	if invariants.Enabled {
		last = 12 // low rates need many queries, and there is no race to find here
	}
	rng := rand.New(rand.NewPCG(1, 0))
	for bitsPerKey := uint32(4); bitsPerKey <= last; bitsPerKey++ {
		model := ExpectedRate(KindBlocked, bitsPerKey*1000)
		queries := int(8_000/model) / filters
		yes, realised := 0, 0.0
		for i := range filters {
			hashes := make([]uint64, keys)
			for j := range hashes {
				hashes[j] = rng.Uint64()
			}
			payload, info := filterOf(t, hashes, bitsPerKey*1000, SeedFor(uint64(i)))
			if info.Millibits != bitsPerKey*1000 {
				t.Fatalf("%d bits per key became %d", bitsPerKey, info.Millibits)
			}
			realised += info.Rate / filters
			r := mustOpen(t, payload)
			yes += falsePositives(&r, rng, queries)
		}
		measured := float64(yes) / float64(filters*queries)
		if !within(measured, model, 0.05) {
			t.Errorf("%d bits per key: measured %.6f, model %.6f", bitsPerKey, measured, model)
		}
		// What the bits say is sharper than queries.
		if !within(realised, model, 0.015) {
			t.Errorf("%d bits per key: realised %.6f, model %.6f", bitsPerKey, realised, model)
		}
		if !within(measured, realised, 0.05) {
			t.Errorf("%d bits per key: measured %.6f, realised %.6f", bitsPerKey, measured, realised)
		}
	}
}

// TestRateMatrix holds every kind, at 4 to 20 bits per key, against its exact
// model, from both sides, for families of keys, and of hashes sharded by themselves:
// twelve filters each, and enough expected false positives for 5 % to be 4
// standard deviations. It takes minutes (make long), so that without
// -sievedb.ops one family after the other has its turn, at one size.
func TestRateMatrix(t *testing.T) {
	if invariants.Enabled {
		t.Skip("many queries, and no race to find")
	}
	type family struct {
		name string
		hash func(i uint64) uint64
	}
	families := []family{{"random", func(i uint64) uint64 { return SeedFor(i ^ 1<<62) }}}
	var key []byte
	for _, f := range keyFamilies {
		families = append(families, family{f.name, func(i uint64) uint64 {
			key = f.key(key[:0], i)
			return Hash(key)
		}})
	}
	for _, f := range hashFamilies {
		if !strings.HasPrefix(f.name, "counter") { // which are spread more evenly than chance would
			families = append(families, family{f.name, f.hash})
		}
	}
	turn := 0
	for bitsPerKey := uint32(4); bitsPerKey <= 20; bitsPerKey++ {
		for _, kind := range kinds {
			if kind == KindFuse && bitsPerKey != 10 { // it has one size
				continue
			}
			for _, f := range families {
				expected := *rateOps
				if expected == 0 {
					expected = 6400
					if turn++; bitsPerKey != 4+uint32(turn)%8 || kind == KindBlocked && turn%2 == 0 || kind == KindFuse && turn%4 > 0 {
						continue
					}
				}
				checkRate(t, f.name, f.hash, kind, bitsPerKey*1000, expected)
			}
		}
	}
}

// checkRate builds twelve filters of one family's keys, each of others, and asks
// each for absent keys of the family.
func checkRate(t *testing.T, name string, hash func(uint64) uint64, kind Kind, millibits uint32, expected int) {
	t.Helper()
	const filters, keys = 12, 51_200
	model := ExpectedRate(kind, millibits)
	queries := int(float64(max(expected, 6400))/model) / filters
	yes, asked := 0, 0
	for i := range uint64(filters) {
		b := NewBuilder(millibits, SeedFor(i))
		b.Choose(kind, millibits)
		start := i * keys
		for j := range uint64(keys) {
			b.Add(hash(start + j))
		}
		payload, _ := mustFinish(t, b, nil)
		b.Release()
		r := mustOpen(t, payload)
		if r.Kind() != kind {
			t.Fatalf("%v became %v", kind, r.Kind())
		}
		for j := range uint64(queries) {
			if r.MayContain(hash(1<<21 + start + j)) {
				yes++
			}
			asked++
		}
	}
	if measured := float64(yes) / float64(asked); !within(measured, model, 0.05) {
		t.Errorf("%s, %v, %d thousandths of a bit: measured %.6f, model %.6f", name, kind, millibits, measured, model)
	}
}

func falsePositives(r *Reader, rng *rand.Rand, queries int) int {
	yes := 0
	for range queries {
		if r.MayContain(rng.Uint64()) {
			yes++
		}
	}
	return yes
}

// No shape of keys spoils the rate, and no pattern of hashes either: those
// that were sharded by their own bits, and those that are no hashes. Absent
// keys are of the same family.
func TestRateOfFamilies(t *testing.T) {
	const keys, queries = 51_200, 400_000
	model := ExpectedRate(KindBlocked, 10_000)
	check := func(name string, hash func(uint64) uint64) {
		hashes := make([]uint64, keys)
		for i := range hashes {
			hashes[i] = hash(uint64(i))
		}
		payload, info := filterOf(t, hashes, 10_000, SeedFor(11))
		r := mustOpen(t, payload)
		yes := 0
		for i := range uint64(queries) {
			if r.MayContain(hash(keys + i)) {
				yes++
			}
		}
		if got := float64(yes) / queries; !within(got, model, 0.2) || !within(info.Rate, model, 0.2) {
			t.Errorf("%s: measured %.5f, realised %.5f, model %.5f", name, got, info.Rate, model)
		}
	}
	var key []byte
	for _, f := range keyFamilies {
		check(f.name, func(i uint64) uint64 {
			key = f.key(key[:0], i)
			return Hash(key)
		})
	}
	for _, f := range hashFamilies {
		check(f.name, f.hash)
	}
}

// The same keys in every level, as overwriting leaves them: one absent key
// must not be unlucky in all levels at once. With one seed for all of them it
// would be, which also shows that this test can tell.
func TestLevelsAreIndependent(t *testing.T) {
	const levels, keys, queries = 5, 51_200, 2_000_000
	ratio := func(kind Kind, keysOf func(level int) int, seed func(level uint64) uint64) float64 {
		model := ExpectedRate(kind, 10_000)
		independent := 1 - math.Pow(1-model, levels) - levels*model*math.Pow(1-model, levels-1)
		var readers [levels]Reader
		for i := range readers {
			hashes := randomHashes(rand.New(rand.NewPCG(5, 0)), keysOf(i))
			payload, _ := mustFinish(t, builderOf(kind, 10_000, seed(uint64(i)), hashes), nil)
			readers[i] = mustOpen(t, payload)
		}
		rng := rand.New(rand.NewPCG(6, 0))
		joint := 0
		for range queries {
			h, yes := rng.Uint64(), 0
			for i := range readers {
				if readers[i].MayContain(h) {
					yes++
				}
			}
			if yes >= 2 {
				joint++
			}
		}
		return float64(joint) / queries / independent
	}
	same := func(int) int { return keys }
	for _, kind := range kinds {
		if invariants.Enabled && kind != KindBlocked {
			continue // many queries, and no race to find
		}
		for name, keysOf := range map[string]func(int) int{"the same keys": same, "nested keys": func(level int) int { return keys - 10_000*level }} {
			if got := ratio(kind, keysOf, SeedFor); got < 0.7 || got > 1.3 {
				t.Errorf("%v, %s, a seed per table: two or more false positives %.2f times as often as independent ones", kind, name, got)
			}
		}
		if got := ratio(kind, same, func(uint64) uint64 { return 9 }); got < 5 {
			t.Errorf("%v, one seed: %.2f times as often, want the 10 that are known", kind, got)
		}
	}
}

// The realised rate of a small filter is what random queries find in it, each
// filter for itself: its own bits decide, not the average filter.
func TestRealisedRateOfSmallFilters(t *testing.T) {
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 1))
		hashes := make([]uint64, 200)
		for i := range hashes {
			hashes[i] = rng.Uint64()
		}
		payload, info := filterOf(t, hashes, 5_000, seed)
		r := mustOpen(t, payload)
		const queries = 300_000
		got := float64(falsePositives(&r, rng, queries)) / queries
		if sigma := math.Sqrt(info.Rate / queries); math.Abs(got-info.Rate) > 4*sigma {
			t.Errorf("seed %d: measured %.5f, realised %.5f ± %.5f", seed, got, info.Rate, sigma)
		}
	}
}

func ExampleExpectedRate() {
	fmt.Printf("%.4f %%\n", 100*ExpectedRate(KindBlocked, 10_000))
	// Output: 0.9665 %
}

// TestCheckRate accepts filters of all sizes and refuses one whose keys crowd
// into half of its blocks, of which Rate knows nothing.
func TestCheckRate(t *testing.T) {
	rng := newRand(t)
	for _, n := range []int{0, 1, 10, 1000, 50_000} {
		for _, millibits := range []uint32{1000, 5000, 10_000, 20_000, 100_000} {
			r, hashes := randomFilter(t, rng, n, millibits, rng.Uint64())
			if err := r.CheckRate(); err != nil {
				t.Errorf("%d keys, %d: %v", n, millibits, err)
			}
			if _, info := filterOf(t, hashes, millibits, r.seed); info.Rate != r.Rate() {
				t.Errorf("%d keys, %d: rate %v when built, %v when read", n, millibits, info.Rate, r.Rate())
			}
		}
	}
	for _, kind := range kinds[1:] {
		payload, info := mustFinish(t, builderOf(kind, 10_000, rng.Uint64(), randomHashes(rng, 20_000)), nil)
		if r := mustOpen(t, payload); r.CheckRate() != nil || r.Rate() != info.Rate || info.Kind != kind {
			t.Errorf("%v: %v, rate %v when built, %v when read", info.Kind, r.CheckRate(), info.Rate, r.Rate())
		}
	}
	// Standard filters of a word were called corrupt, one or two in a thousand: this one.
	few := rand.New(rand.NewPCG(27, 0))
	payload, _ := mustFinish(t, builderOf(KindStandard, 8000, 27, randomHashes(few, 1+few.IntN(8))), nil)
	if r := mustOpen(t, payload); r.CheckRate() != nil {
		t.Errorf("few keys: %v", r.CheckRate())
	}
	all := MatchAll()
	if err := all.CheckRate(); err != nil || all.Rate() != 1 {
		t.Errorf("match-all: %v, rate %v", err, all.Rate())
	}
	r, _ := randomFilter(t, rng, 50_000, 10_000, 1)
	r.field = append(make([]byte, len(r.field)), r.field...) // which no block number reaches beyond half
	if err := r.CheckRate(); err == nil {
		t.Error("a filter of which only the empty half is asked passes")
	}
}
