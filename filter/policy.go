package filter

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// CapBits is the most bits per key that a budget spends on a run, unless the
// average is more: from there on more bits save next to no reads.
const CapBits = 20

// averageSlack is the share by which an average may be exceeded. Small runs
// come and go and take little, but without their bits they cost as many reads
// as large ones: they should not miss them for want of a trifle.
const averageSlack = 1.0 / 32

// Policy says how much memory the filters of a tree get, and where. The zero
// Policy spends an average number of bits per key where that avoids the most
// reads: see Spread. It decides about tables that are written from now on;
// filters that are there stay until their table is rewritten.
type Policy struct {
	// Uniform gives the keys of every run the same number of bits.
	Uniform bool
	// FromBottom gives the bits per key of each run by its distance from the
	// bottom, which comes first; the last is for all above. A number below one
	// is no filter. It excludes Uniform and takes the place of the average.
	FromBottom []float64
	// BudgetBytes bounds the filters of all live tables together, in bytes, and
	// takes the place of the average; zero is no bound. A tree that outgrows
	// it gets smaller filters, and in the end none for what is added last.
	BudgetBytes int64
	// SkipBottom builds no filter where nothing older lies below. It is for
	// lookups of keys that are there: the last run that may hold a key then
	// does, and a filter could only say so.
	SkipBottom bool
	// MaxTableBytes bounds the filter of one table, in bytes; zero is no bound.
	MaxTableBytes int64
	// Kind is that of all filters; zero is KindBlocked. As a KindFuse has one
	// size, it goes with Uniform only: small runs would lack the bits that
	// Spread has for them.
	Kind Kind
	// BottomKind is the kind of filters where nothing older lies below; zero is
	// Kind. KindFuse takes 9 to 10 bits for each key there, of a rate of 0.39 %,
	// and the runs above share what an average, or a budget, leaves over. Where
	// lookups would read more for that, where the filter would take more than
	// its share, and in tables of fewer than MinFuseKeys, there is a blocked
	// filter of the wanted size instead.
	BottomKind Kind
}

// Validate returns nil, or one error that lists everything that makes no sense.
func (p *Policy) Validate() error {
	var problems []error
	if p.Uniform && p.FromBottom != nil {
		problems = append(problems, errors.New("both Uniform and FromBottom are set"))
	}
	for i, bits := range p.FromBottom {
		if !(bits >= 0 && bits <= MaxMillibits/1000) {
			problems = append(problems, fmt.Errorf("FromBottom[%d] is %v, not in [0, %d]", i, bits, MaxMillibits/1000))
		}
	}
	if p.FromBottom != nil && len(p.FromBottom) == 0 {
		problems = append(problems, errors.New("FromBottom is empty"))
	}
	if p.BudgetBytes < 0 || p.BudgetBytes > 1<<50 {
		problems = append(problems, fmt.Errorf("BudgetBytes is %d, not in [0, %d]", p.BudgetBytes, int64(1)<<50))
	}
	if p.MaxTableBytes < 0 {
		problems = append(problems, fmt.Errorf("MaxTableBytes is %d, less than 0", p.MaxTableBytes))
	}
	if max(p.Kind, p.BottomKind) > KindFuse {
		problems = append(problems, fmt.Errorf("Kind is %v and BottomKind %v: not both are known", p.Kind, p.BottomKind))
	}
	if p.Kind == KindFuse && !p.Uniform {
		problems = append(problems, errors.New("Kind is fuse, of one size, without Uniform; as BottomKind it goes with any policy"))
	}
	if p.SkipBottom && p.BottomKind != KindNone {
		problems = append(problems, errors.New("BottomKind is set, and SkipBottom leaves no filter for it"))
	}
	return errors.Join(problems...)
}

// kindAt returns the kind that a filter should be of.
func (p *Policy) kindAt(distance int) Kind {
	kind := p.Kind
	if distance == 0 && p.BottomKind != KindNone {
		kind = p.BottomKind
	}
	if kind == KindNone {
		return KindBlocked
	}
	return kind
}

// Spread returns the bits per key for each of several runs, given their sizes
// in any one unit, so that the bits per unit are average altogether and a
// lookup of an absent key, which asks every run, reads as little as possible.
//
// A filter's rate is about e^(-b·ln²2) for b bits per key. The sum of the rates
// for a given sum of n·b is least where the rates are proportional to the
// sizes n (Dayan, Athanassoulis and Idreos, "Monkey: Optimal Navigable
// Key-Value Store", 2017), so that a run gets
//
//	b = base + ln(largest/n) / ln²2
//
// bits, 4.79 more for each tenth part; base is what makes the average. A run
// with less than one bit gets no filter, and none gets more than CapBits, or
// average if that is more. The rates of blocked filters fall more slowly: with
// the exact model, 1:10:100:1000 keys and an average of 10 bits, the best step
// is 5.4 and its sum of rates 0.4 % lower, which is not worth a search.
func Spread(average float64, runs []float64) []float64 {
	bits := make([]float64, len(runs))
	total, largest := 0.0, 0.0
	for _, n := range runs {
		total += n
		largest = max(largest, n)
	}
	most := max(CapBits, average)
	spend := func(base float64) (mean float64) {
		for i, n := range runs {
			b := most
			if n > 0 {
				b = min(most, base+math.Log(largest/n)/(math.Ln2*math.Ln2))
			}
			if b < 1 {
				b = 0
			}
			bits[i] = b
			mean += b * n / total
		}
		return mean
	}
	// 60 halvings of this interval are more than a float64 can tell apart.
	low, high := -200.0, most
	for range 60 {
		if base := (low + high) / 2; spend(base) <= average {
			low = base
		} else {
			high = base
		}
	}
	spend(low)
	return bits
}

// SpreadAbove is Spread for a tree whose first run, the bottom, has filters of a
// size that is given, in bits per key: the others share what that leaves over. If
// it is more than the average there is nothing to share, and that is Spread.
func SpreadAbove(bottom, average float64, runs []float64) []float64 {
	if len(runs) < 2 || bottom > average {
		return Spread(average, runs)
	}
	left := (average*sum(runs) - bottom*runs[0]) / sum(runs[1:])
	return append([]float64{bottom}, Spread(min(left, max(CapBits, average)), runs[1:])...)
}

// Budget applies a Policy to tables as they are finished. It is a value
// without state: what is spent is in the tree.
type Budget struct {
	Policy
	// AverageBits is the average number of bits per key if the policy does not
	// say otherwise.
	AverageBits float64
}

// Tree is what the size of a filter depends on besides its table.
type Tree struct {
	// Runs are the sizes, in any one unit, that the runs of the tree should
	// have, the bottom first. What they are at the moment would be a poor guide
	// for filters that stay until the next compaction.
	Runs []float64
	// Keys and Tables are how many the tree has, with the new table.
	Keys, Tables uint64
	// Spent is the sum of the charges of all tables that will be there
	// together with the new one.
	Spent int64
	// Replaced is the sum of the charges of the tables that the new one helps
	// to replace, less those of their other replacements so far. So much may
	// be charged even if the budget is overspent, which it is after a change of
	// policy: the sum does not grow by it.
	Replaced int64
}

// Charge returns what a table with so many keys and a filter of so many bytes
// costs. A budget in bytes is charged the bytes. One of an average is charged
// what is above the average: bytes may be saved in one table and spent in
// another, and rounding up to whole blocks is free.
func (b *Budget) Charge(keys, filterBytes uint64) int64 {
	if filterBytes == 0 {
		return 0
	}
	return int64(filterBytes) - b.allowance(keys)
}

func (b *Budget) allowance(keys uint64) int64 {
	if b.BudgetBytes > 0 {
		return 0
	}
	return share(keys, b.AverageBits)
}

// Size returns the kind and the bits per key, in thousandths, for the filter of
// a table with exactly so many keys, in a run at a distance from the bottom, and
// what they will be charged. KindNone, and zero bits, are no filter. Those of
// KindFuse are for the filter that may have to take its place, and never more
// than its own.
//
// With BudgetBytes, spent plus charge never exceeds the budget, unless it is
// replaced that did. An average is not as hard: it may be exceeded by a
// thirty-second part, and a table may always have the bits of the largest run,
// which are below the average, so that filters above a bottom that has shrunk
// do not leave the bottom without.
func (b *Budget) Size(tree Tree, keys uint64, distance int) (kind Kind, millibits uint32, charge int64) {
	w := b.want(tree, keys, distance)
	if w.bits < 1 || keys == 0 {
		return KindNone, 0, 0
	}
	millibits = uint32(w.bits*1000 + 0.5)
	limit := int64(math.MaxInt64)
	switch {
	case b.BudgetBytes > 0:
		limit = max(b.BudgetBytes-tree.Spent, tree.Replaced)
	case !b.Uniform && b.FromBottom == nil:
		slack := int64(float64(tree.Keys) * b.AverageBits / 8 * averageSlack)
		limit = max(slack-tree.Spent, tree.Replaced) + b.allowance(keys)
		limit = max(limit, share(keys, w.least))
	}
	if b.MaxTableBytes > 0 {
		limit = min(limit, b.MaxTableBytes)
	}
	kind = b.kindAt(distance)
	if kind == KindFuse {
		if n := FuseBytes(keys); w.fuse && n > 0 && int64(n) <= min(limit, share(keys, max(w.average, w.bits))) {
			return KindFuse, fit(keys, millibits, int64(n)), b.Charge(keys, n)
		}
		kind = KindBlocked
	}
	millibits = fit(keys, millibits, limit)
	if millibits == 0 {
		return KindNone, 0, 0
	}
	units, err := unitsFor(keys, millibits, limits[kind].minLog2)
	if err != nil {
		return KindNone, 0, 0 // no machine holds it
	}
	return kind, millibits, b.Charge(keys, uint64(units)<<limits[kind].minLog2+trailerBytes)
}

// share is what bits per key come to for a table, in bytes, with rounding up.
func share(keys uint64, bits float64) int64 {
	return int64(float64(keys)*bits/8) + trailerBytes + blockBytes
}

// wish is what a policy wants for a filter, whatever is spent, in bits per key.
type wish struct {
	bits    float64
	least   float64 // what the run with the least gets
	average float64 // of the tree, or zero if the policy has none
	fuse    bool    // a KindFuse at the bottom is worth it
}

func (b *Budget) want(tree Tree, keys uint64, distance int) wish {
	if b.SkipBottom && distance == 0 {
		return wish{}
	}
	if n := len(b.FromBottom); n > 0 {
		return wish{bits: b.FromBottom[min(distance, n-1)], fuse: true}
	}
	runs := tree.Runs
	all := float64(tree.Keys)
	if b.SkipBottom && len(runs) > 1 {
		all *= sum(runs[1:]) / sum(runs)
		runs, distance = runs[1:], distance-1
	}
	average := b.AverageBits
	if b.BudgetBytes > 0 {
		const overhead = trailerBytes + blockBytes // of a table, with rounding up
		average = max(0, 8*(float64(b.BudgetBytes)-overhead*float64(tree.Tables))/max(1, all))
		average = min(average, MaxMillibits/1000, CapBits)
	}
	if b.Uniform {
		return wish{average, average, average, true}
	}
	spread := Spread(average, runs)
	w := wish{bits: spread[min(distance, len(spread)-1)], least: slices.Min(spread), average: average}
	if b.BottomKind == KindFuse {
		if distance > 0 { // the bottom's tables are of the usual size
			keys = tree.Keys / max(1, tree.Tables)
		}
		bottom := 8 * float64(FuseBytes(keys)) / float64(max(1, keys))
		above := SpreadAbove(bottom, average, runs)
		w.fuse = bottom > 0 && bottom <= average && fuseRate+roughReads(above[1:]) < roughReads(spread)
		if w.fuse && distance > 0 {
			w.bits = above[min(distance, len(above)-1)]
		}
	}
	return w
}

// roughReads is about what the lookup of an absent key reads in runs that have so
// many bits per key, or none: the sum of the rates of blocked filters, within
// 5 % for what CapBits allows. ExpectedRate would take too long.
func roughReads(bits []float64) (rates float64) {
	for _, b := range bits {
		rates += math.Exp(0.1655*math.Pow(b/10, 2.7) - b*math.Ln2*math.Ln2)
	}
	return rates
}

// fit returns millibits, or as much of it as makes a filter of at most limit
// bytes, or zero if that is less than MinMillibits.
func fit(keys uint64, millibits uint32, limit int64) uint32 {
	blocks := uint64(max(0, limit-trailerBytes)) / blockBytes
	if most := float64(blocks) * blockBits * 1000 / float64(keys); most < float64(millibits) {
		millibits = uint32(most)
		// Beyond 2^53 the division rounds; the filter must not.
		if n, err := unitsFor(keys, millibits, blockShift); err != nil || uint64(n) > blocks {
			millibits--
		}
	}
	if millibits < MinMillibits {
		return 0
	}
	return millibits
}

func sum(values []float64) (total float64) {
	for _, v := range values {
		total += v
	}
	return total
}
