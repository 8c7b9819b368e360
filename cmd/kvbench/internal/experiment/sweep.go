package experiment

import (
	"context"
	"errors"
	"fmt"

	"sievedb"
	"sievedb/cmd/kvbench/internal/loader"
	"sievedb/cmd/kvbench/internal/meter"
	"sievedb/cmd/kvbench/internal/place"
	"sievedb/cmd/kvbench/internal/report"
	"sievedb/cmd/kvbench/internal/workload"
	"sievedb/filter"
	"sievedb/vfs"
)

// SweepConfig is what a sweep needs beside Config, of which it uses the keys,
// Lookups and Seed.
type SweepConfig struct {
	Kinds    []filter.Kind // of filters
	Bits     []float64     // bits per key; zero is no filter
	TreeBits []float64     // averages at which policies are compared
	TreeKeys int           // of numbered keys, in the tree for that
}

// Sweep measures the false-positive rate at each filter size in a store that is
// one run of all keys, in memory, since nothing but counts is wanted. Then it
// compares policies in trees of several levels.
func Sweep(ctx context.Context, c *Config, s *SweepConfig, m *meter.Meter) (*report.Sweep, error) {
	keys, err := c.newKeys()
	if err != nil {
		return nil, err
	}
	run := &report.Sweep{Setup: report.SweepSetup{
		Workload: keys.Name, Seed: c.Seed, Keys: keys.Stored, Lookups: min(c.Lookups, keys.Absent), Machine: report.ThisMachine(),
	}}
	if run.Setup.Lookups == 0 {
		return nil, fmt.Errorf("of %s, no absent key lies between the stored ones", keys.Name)
	}
	asked := s.points()
	p := m.Phase("filter sizes", int64(len(asked)))
	for _, x := range asked {
		point, err2 := sweepPoint(ctx, keys, x.kind, x.bits, run.Setup.Lookups)
		if err2 != nil {
			err = fmt.Errorf("%v bits, %v: %w", x.bits, x.kind, err2)
			break
		}
		run.Points = append(run.Points, point)
		p.Add(1)
	}
	p.Done()
	if err == nil && len(s.TreeBits) > 0 {
		tree := *c
		tree.ValueBytes = 0
		if c.KeysFile == "" {
			keys = workload.Numbered(s.TreeKeys, c.Seed)
		}
		run.Setup.TreeKeys = keys.Stored
		run.Policies, err = tree.policies(ctx, s, keys, m)
	}
	if err != nil && (ctx.Err() == nil || len(run.Points) == 0) {
		return nil, err
	}
	run.Interrupted = err != nil
	run.Complete()
	return run, err
}

// asked is a filter to build.
type asked struct {
	kind filter.Kind
	bits float64
}

// fuseBits leave room for a fuse filter, which has one size.
const fuseBits = 11

// points are the filters of a sweep. No filter comes once, and a fuse filter.
func (s *SweepConfig) points() (all []asked) {
	for i, kind := range s.Kinds {
		if kind == filter.KindFuse {
			all = append(all, asked{kind, fuseBits})
			continue
		}
		for _, bits := range s.Bits {
			if bits > 0 || i == 0 {
				all = append(all, asked{kind, bits})
			}
		}
	}
	return all
}

func (s *SweepConfig) has(kind filter.Kind) bool {
	for _, k := range s.Kinds {
		if k == kind {
			return true
		}
	}
	return false
}

// sweepPoint stores all keys as one table and looks up absent ones.
func sweepPoint(ctx context.Context, keys *workload.Keys, kind filter.Kind, bits float64, n int) (point report.Point, err error) {
	point.Bits = bits
	o := &sievedb.Options{
		FS: vfs.NewMem(), Durability: sievedb.SyncNever, Filters: filter.Policy{Uniform: true, Kind: kind},
		FilterBitsPerKey: bits, DisableFilters: bits == 0,
		// All keys fit in the memtable, whose tree and index take some more.
		MemtableBytes: min(16<<20+3*keys.KeyBytes+256*int64(keys.Stored), 4<<30),
	}
	err = place.With(sievedb.Open, "/sweep", o, func(db *sievedb.DB) error {
		if err := storeAll(ctx, db, keys); err != nil {
			return err
		}
		if err := askAbsent(ctx, db, keys, n); err != nil {
			return err
		}
		m := db.Metrics()
		if len(m.Tables) != 1 {
			return fmt.Errorf("the keys make %d tables, not one; use fewer", len(m.Tables))
		}
		t := &m.Tables[0]
		point.Kind = t.FilterKind.String()
		point.BitsPerKey, point.Probes, point.FilterBytes = t.BitsPerKey, t.Probes, t.FilterBytes
		point.Asked = t.Filter.Negatives + t.Filter.FalsePositives + t.Filter.Unfiltered
		point.FalsePositives = t.Filter.FalsePositives + t.Filter.Unfiltered
		point.BuiltRate = 1
		if t.FilterBytes > 0 {
			point.BuiltRate = t.PredictedRate
		}
		return nil
	})
	return point, err
}

// storeAll stores all keys, with empty values, and flushes them once.
func storeAll(ctx context.Context, db *sievedb.DB, keys *workload.Keys) error {
	const batchLen = 1000
	b := db.NewBatch()
	var key []byte
	for i := range keys.Stored {
		key = keys.StoredKey(key[:0], i)
		b.Put(key, nil)
		if b.Len() == batchLen || i == keys.Stored-1 {
			if err := errors.Join(ctx.Err(), db.Apply(b, sievedb.StoreDefault)); err != nil {
				return err
			}
			b.Reset()
		}
	}
	return db.Flush(ctx)
}

func askAbsent(ctx context.Context, db *sievedb.DB, keys *workload.Keys, n int) error {
	var key, value []byte
	for i := range n {
		if i%1024 == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		key = keys.AbsentKey(key[:0], i)
		var err error
		if value, err = db.GetTo(value[:0], key); !errors.Is(err, sievedb.ErrNotFound) {
			return fmt.Errorf("absent key %.64q: found, or %w", key, err)
		}
	}
	return nil
}

// policies loads the same tree for each policy and average.
func (c *Config) policies(ctx context.Context, s *SweepConfig, keys *workload.Keys, m *meter.Meter) (points []report.PolicyPoint, err error) {
	for _, x := range []struct {
		name   string
		policy filter.Policy
	}{{"uniform", filter.Policy{Uniform: true}}, {"budget", filter.Policy{}}, {"fuse", filter.Policy{BottomKind: filter.KindFuse}}} {
		fuse := x.policy.BottomKind == filter.KindFuse
		if fuse && !s.has(filter.KindFuse) {
			continue
		}
		for _, bits := range s.TreeBits {
			o := c.storeOptions(keys)
			o.MustExist, o.FS = false, vfs.NewMem()
			if fuse { // takes tables of many keys
				entry := keys.KeyBytes/int64(max(keys.Stored, 1)) + int64(c.ValueBytes+loader.EntryOverhead)
				o.TableBytes = max(o.TableBytes, 4*filter.MinFuseKeys*entry)
			}
			o.FilterBitsPerKey, o.Filters = bits, x.policy
			w := loader.NewWatcher()
			err := place.With(sievedb.Open, "/tree", loader.Options(o, w), func(db *sievedb.DB) error {
				n := min(c.Lookups, keys.Absent)
				if err := loader.Load(ctx, db, w, keys, keys.Stored, workload.NewValues(c.ValueBytes, c.Seed), m); err != nil {
					return err
				}
				if err := askAbsent(ctx, db, keys, n); err != nil {
					return err
				}
				points = append(points, policyPoint(db.Metrics(), x.name, bits, n))
				return nil
			})
			if err != nil {
				return points, fmt.Errorf("policy %s at %v bits: %w", x.name, bits, err)
			}
		}
	}
	return points, nil
}

func policyPoint(m sievedb.Metrics, policy string, bits float64, n int) report.PolicyPoint {
	t := m.Total()
	p := report.PolicyPoint{
		Policy: policy, Bits: bits, Lookups: n,
		Expected: t.ExpectedFalsePositives + float64(t.Unfiltered), BlocksFetched: t.BlocksRead + t.BlocksCached,
	}
	var keys uint64
	for i := range m.Levels {
		p.FilterBytes += m.Levels[i].FilterBytes
		keys += m.Levels[i].Keys
	}
	p.BitsPerKey = 8 * float64(p.FilterBytes) / float64(max(keys, 1))
	p.FetchedPerKey, p.ExpectedPerKey = float64(p.BlocksFetched)/float64(n), p.Expected/float64(n)
	return p
}
