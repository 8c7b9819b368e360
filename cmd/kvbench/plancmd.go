package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"sievedb/cmd/kvbench/internal/document"
	"sievedb/filter"
)

func (a *app) planCommand() *cobra.Command {
	var keys int
	var bits float64
	var budget int64
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Show what a filter budget would buy, without making anything",
		Long: `plan spreads filter memory over a tree of so many keys, each level a tenth of
the next, with four runs in level 0, and prints the rates that theory gives and
the disk reads of a lookup of an absent key that follow, with the same bits in
each level, with the spread that avoids the most, and with a fuse filter at the
bottom (Policy.BottomKind) and what it leaves over spread above.`,
		Example: "  kvbench plan --keys-count 50000000 --budget-bytes 33554432",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case keys < 1000 || keys > 1_000_000_000:
				return usagef("--keys-count is %d, not in [%d, %d]", keys, 1000, 1_000_000_000)
			case budget < 0 || budget > 1<<50:
				return usagef("--budget-bytes is %d, not in [0, %d]", budget, int64(1)<<50)
			case budget > 0 && cmd.Flags().Changed("bits"):
				return usagef("--bits and --budget-bytes exclude one another")
			}
			if budget > 0 {
				bits = min(100, 8*float64(budget)/float64(keys))
			}
			if !(bits > 0 && bits <= 100) {
				return usagef("%v bits per key are not in (0, 100]", bits)
			}
			return writePlan(a.stdout, keys, bits)
		},
	}
	f := cmd.Flags()
	f.IntVarP(&keys, "keys-count", "n", 10_000_000, "number of keys")
	f.Float64Var(&bits, "bits", 10, "bits per key, on average")
	f.Int64Var(&budget, "budget-bytes", 0, "bytes for all filters together, instead of --bits")
	return cmd
}

// planRuns returns the names and the shares of the keys of the runs of a tree
// of three levels above the bottom, four runs in level 0 as large as the third.
func planRuns() (names []string, shares []float64) {
	total := 0.0
	for i, share := range []float64{1, 0.1, 0.01, 0.001, 0.001, 0.001, 0.001} {
		name := "L0"
		if i < 3 {
			name = fmt.Sprint("L", 6-i)
		}
		names, shares = append(names, name), append(shares, share)
		total += share
	}
	for i := range shares {
		shares[i] /= total
	}
	return names, shares
}

func writePlan(w io.Writer, keys int, average float64) error {
	names, shares := planRuns()
	spread := filter.Spread(average, shares)
	// A table of half a million keys is one of 64 MiB with values of 100 bytes.
	table := uint64(min(shares[0]*float64(keys), 500_000))
	fuse, built := spread, false
	if n := filter.FuseBytes(table); n > 0 {
		bottom := 8 * float64(n) / float64(table)
		fuse, built = filter.SpreadAbove(bottom, average, shares), bottom <= average
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s keys, %.2f bits per key on average: %s of filters.\n\n", document.Group(uint64(keys)), average,
		document.Size(uint64(average*float64(keys)/8)))
	fmt.Fprintf(&b, "run         keys   uniform bits      rate    spread bits      rate    fuse bits      rate\n")
	var uniformReads, spreadReads, fuseReads float64
	for i := range shares {
		u, s := rateOf(average), rateOf(spread[i])
		uniformReads, spreadReads = uniformReads+u, spreadReads+s
		f := rateOf(fuse[i])
		if i == 0 && built {
			f = filter.ExpectedRate(filter.KindFuse, 0)
		}
		fuseReads += f
		fmt.Fprintf(&b, "%-4s %11s   %12.2f %8.4f %%   %11.2f %8.4f %%   %9.2f %8.4f %%\n", names[i], document.Group(uint64(shares[i]*float64(keys))), average, 100*u, spread[i], 100*s, fuse[i], 100*f)
	}
	fmt.Fprintf(&b, "\nReads of an absent key that every run may hold: %.4f uniform, %.4f spread, %d without filters.\n", uniformReads, spreadReads, len(shares))
	switch {
	case spreadReads > 0.5*float64(len(shares)):
		b.WriteString("Filters DO NOT PAY much at this size: more than half of the reads remain.\n")
	case uniformReads > 0:
		fmt.Fprintf(&b, "The spread avoids %.1f %% of the reads that remain with uniform bits.\n", 100*(1-spreadReads/uniformReads))
		if built && fuseReads < spreadReads {
			fmt.Fprintf(&b, "A fuse filter at the bottom leaves %.4f: %.1f %% fewer than the spread.\n", fuseReads, 100*(1-fuseReads/spreadReads))
		} else {
			b.WriteString("A fuse filter at the bottom would not leave fewer.\n")
		}
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("writing the plan: %w", err)
	}
	return nil
}

// rateOf is the rate at bits per key; a run with less than one bit has no filter.
func rateOf(bits float64) float64 {
	if bits < 1 {
		return 1
	}
	return filter.ExpectedRate(filter.KindBlocked, uint32(1000*bits+0.5))
}
