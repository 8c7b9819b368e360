package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sievedb/cmd/kvbench/internal/experiment"
	"sievedb/cmd/kvbench/internal/workload"
)

// opsFlags are those of the commands that make a mix of operations.
type opsFlags struct {
	ops          int
	mix          string
	distribution string
	scanLength   int
	synced       bool
	modify       bool
}

func (a *app) opsFlags(f *pflag.FlagSet, o *opsFlags, distribution string) {
	a.outputFlags(f)
	keys := 1_000_000
	if distribution == "" {
		keys = 2_000_000 // there is nothing to load before
	}
	a.sizeFlags(f, keys)
	a.storeFlags(f)
	f.IntVar(&a.MemtableMiB, "memtable", 0, "size of a memtable, in MiB, up to 4096; 0 is the store's default; small ones make deep trees")
	f.IntVar(&o.ops, "ops", 500_000, "number of operations")
	f.BoolVar(&o.synced, "sync", false, "wait for the disk in each write")
	f.BoolVar(&o.modify, "modify", false, "allow writing to the store that --db names")
	if distribution != "" {
		f.StringVar(&o.distribution, "distribution", distribution, "which stored keys are chosen: uniform, zipfian, or latest")
		f.IntVar(&o.scanLength, "scan-length", 100, "the most entries of a scan; each reads from 1 to so many")
	}
}

// mixes are the commands that are a mix under a name.
var mixes = []namedMix{
	{"fill", "insert=1", "Store all keys, one at a time, in random order"},
	{"read", "read=1", "Look up stored keys"},
	{"scan", "scan=1", "Read entries in order from stored keys on"},
	{"mixed", "read=50,absent=20,update=20,insert=5,scan=3,delete=2", "A mix of operations of your choice"},
	{"overwrite", "update=1", "Overwrite stored keys"},
	{"delete", "delete=1", "Delete stored keys"},
}

type namedMix struct{ name, mix, short string }

func (a *app) mixCommand(x namedMix) *cobra.Command {
	var o opsFlags
	cmd := &cobra.Command{Use: x.name, Short: x.short, Args: noArgs}
	distribution := "uniform"
	if x.name == "fill" {
		distribution = "" // it chooses none
	}
	a.opsFlags(cmd.Flags(), &o, distribution)
	o.mix = x.mix
	if x.name == "mixed" {
		cmd.Flags().StringVar(&o.mix, "mix", x.mix, "operations with their weights: read absent update insert scan rmw delete")
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		mix, err := workload.ParseMix(o.mix)
		if err != nil {
			return usageError{err}
		}
		return a.ops(cmd, &o, x.name, mix)
	}
	return cmd
}

func (a *app) ycsbCommand() *cobra.Command {
	var o opsFlags
	var name string
	cmd := &cobra.Command{
		Use:   "ycsb --workload a|b|c|d|e|f",
		Short: "A core workload of the Yahoo! Cloud Serving Benchmark",
		Long: `ycsb makes one of the core workloads after storing all keys:
  a  read 50 %, update 50 %; zipfian      d  read 95 %, insert 5 %; latest
  b  read 95 %, update 5 %; zipfian       e  scan 95 %, insert 5 %; zipfian
  c  read 100 %; zipfian                  f  read 50 %, read-modify-write 50 %; zipfian`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			mix, distribution, err := workload.YCSB(name)
			if err != nil {
				return usagef("--workload: %w", err)
			}
			if o.distribution == "" {
				o.distribution = distribution.String()
			}
			return a.ops(cmd, &o, "ycsb "+name, mix)
		},
	}
	a.opsFlags(cmd.Flags(), &o, " ")
	cmd.Flags().Lookup("distribution").DefValue = "the workload's"
	o.distribution = ""
	cmd.Flags().StringVar(&name, "workload", "", "which one, a to f")
	return cmd
}

func (a *app) ops(cmd *cobra.Command, o *opsFlags, name string, mix workload.Mix) error {
	f := cmd.Flags()
	a.preset(f)
	a.scale(f, "ops", &o.ops)
	if name == "fill" {
		o.distribution, o.scanLength = "uniform", 1
		if !f.Changed("ops") {
			o.ops = maxKeys // all keys, however many that is
		}
	}
	if err := a.validate(f); err != nil {
		return err
	}
	distribution, err := workload.ParseDistribution(o.distribution)
	switch {
	case err != nil:
		return usagef("--distribution: %w", err)
	case o.ops < 1 || o.ops > 1_000_000_000:
		return usagef("--ops is %d, not in [1, %d]", o.ops, 1_000_000_000)
	case a.MemtableMiB < 0 || a.MemtableMiB > 4096:
		return usagef("--memtable is %d MiB, not in [0, %d]", a.MemtableMiB, 4096)
	case o.scanLength < 1 || o.scanLength > 1_000_000:
		return usagef("--scan-length is %d, not in [1, %d]", o.scanLength, 1_000_000)
	case a.DB != "" && mix.Writes() && !o.modify:
		return usagef("%s writes, and the store in %s is not kvbench's: say --modify to let it", name, a.DB)
	}
	run, err := experiment.Ops(cmd.Context(), &a.Config, &experiment.OpsConfig{
		Command: name, Mix: mix, Distribution: distribution, Operations: o.ops, ScanLength: o.scanLength,
		Preload: name != "fill", Synced: o.synced, Modify: o.modify && mix.Writes(),
	}, a.meter)
	if run == nil {
		return err
	}
	return a.finish(run, err, nil)
}
