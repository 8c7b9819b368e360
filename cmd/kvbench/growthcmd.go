package main

import (
	"github.com/spf13/cobra"

	"sievedb/cmd/kvbench/internal/growth"
	"sievedb/cmd/kvbench/internal/workload"
)

const (
	maxGrowthKeys = 1_000_000_000 // they are computed, and take no memory
	maxReaders    = 1024
)

func (a *app) growthCommand() *cobra.Command {
	var c growth.Config
	cmd := &cobra.Command{
		Use:   "growth",
		Short: "How the costs grow with the number of keys and of readers",
		Long: `growth fills a store of each size, one key at a time in random order, compacts
it, and measures lookups with each number of goroutines, scans, opening, space,
memory and garbage collection. Keys are computed as they are needed, so that
their number is bounded by the disk alone: it takes about twice the keys and
values of the largest store while that is compacted.`,
		Example: "  kvbench growth --sizes 1000000,10000000 --readers 1,2,4,8 --save growth.json",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.growth(cmd, &c) },
	}
	f := cmd.Flags()
	a.outputFlags(f)
	a.scaleFlags(f)
	a.newStoreFlags(f, 32)
	f.IntSliceVar(&c.Sizes, "sizes", []int{100_000, 1_000_000}, "numbers of keys, each of which makes a store")
	f.IntSliceVar(&c.Readers, "readers", []int{1, 2, 4, 8, 16}, "numbers of goroutines that look keys up")
	f.IntVar(&a.Lookups, "lookups", 100_000, "number of lookups in each pass, of all readers together, at most one a key")
	return cmd
}

func (a *app) growth(cmd *cobra.Command, c *growth.Config) error {
	f := cmd.Flags()
	a.preset(f)
	for i := range c.Sizes {
		a.scale(f, "sizes", &c.Sizes[i])
	}
	if err := a.validate(f); err != nil {
		return err
	}
	if len(c.Sizes) == 0 || len(c.Readers) == 0 {
		return usagef("--sizes and --readers need at least one number each")
	}
	for i, n := range c.Sizes {
		if n < workload.MinKeys || n > maxGrowthKeys {
			return usagef("--sizes has %d, not in [%d, %d]", n, workload.MinKeys, maxGrowthKeys)
		}
		if i > 0 && n <= c.Sizes[i-1] {
			return usagef("--sizes has %d after %d; they must rise", n, c.Sizes[i-1])
		}
	}
	for i, n := range c.Readers {
		if n < 1 || n > maxReaders {
			return usagef("--readers has %d, not in [%d, %d]", n, 1, maxReaders)
		}
		if i > 0 && n <= c.Readers[i-1] {
			return usagef("--readers has %d after %d; they must rise", n, c.Readers[i-1])
		}
	}
	c.Lookups, c.ValueBytes, c.Bits, c.CacheBytes = a.Lookups, a.ValueBytes, a.Bits, a.CacheBytes()
	c.Seed, c.Dir, c.Keep = a.Seed, a.Dir, a.Keep
	run, err := growth.Measure(cmd.Context(), c, a.meter)
	if run == nil {
		return err
	}
	return a.finish(run, err, nil)
}
