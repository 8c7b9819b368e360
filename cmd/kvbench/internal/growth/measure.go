package growth

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"sievedb"
	"sievedb/cmd/kvbench/internal/latency"
	"sievedb/cmd/kvbench/internal/loader"
	"sievedb/cmd/kvbench/internal/meter"
	"sievedb/cmd/kvbench/internal/place"
	"sievedb/cmd/kvbench/internal/report"
	"sievedb/cmd/kvbench/internal/workload"
)

// Config is what to measure.
type Config struct {
	Sizes      []int // in keys, each at least workload.MinKeys
	Readers    []int // each at least 1
	Lookups    int   // in each pass, at most one a key
	ValueBytes int
	Bits       float64
	CacheBytes int64 // as in sievedb.Options
	Seed       uint64
	// Dir is where to make the stores, which stay there; empty is a temporary
	// directory, which is removed unless Keep.
	Dir  string
	Keep bool
}

// Measure makes a store of each size, one after the other, and measures it. If
// the context ends it returns the sizes that are complete with the error, or
// nil if none is.
func Measure(ctx context.Context, c *Config, m *meter.Meter) (run *Result, err error) {
	p, err := place.New(c.Dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Leave(c.Keep, m)) }()
	run = &Result{Schema: Schema, Setup: Setup{
		Seed: c.Seed, Sizes: c.Sizes, Readers: c.Readers, Lookups: c.Lookups, ValueBytes: c.ValueBytes,
		BitsPerKey: c.Bits, Machine: report.ThisMachine(),
	}}
	for _, n := range c.Sizes {
		x := &sized{
			Config: c, meter: m, keys: workload.Computed(n, c.Seed), values: workload.NewValues(c.ValueBytes, c.Seed),
			dir: filepath.Join(p.Dir, fmt.Sprintf("%d-keys", n)), size: Size{Keys: n, UserBytes: uint64(n) * uint64(16+c.ValueBytes)},
		}
		x.lookups = min(c.Lookups, x.keys.Absent)
		err := x.measure(ctx, &run.Setup)
		if err == nil && c.Dir == "" && !c.Keep {
			err = os.RemoveAll(x.dir) // there may be no room for all of them
		}
		if err != nil {
			err = fmt.Errorf("%d keys: %w", n, err)
			if ctx.Err() == nil || len(run.Sizes) == 0 {
				return nil, err
			}
			run.Interrupted = true
			return run, err
		}
		run.Sizes = append(run.Sizes, x.size)
	}
	return run, nil
}

// sized measures a store of one size.
type sized struct {
	*Config
	meter   *meter.Meter
	keys    *workload.Keys
	values  workload.Values
	dir     string
	lookups int // in each pass
	size    Size
}

// options are those of a user who sets no others than the flags do.
func (x *sized) options() *sievedb.Options {
	return &sievedb.Options{Durability: sievedb.SyncNever, FilterBitsPerKey: x.Bits, CacheBytes: x.CacheBytes}
}

func (x *sized) measure(ctx context.Context, setup *Setup) error {
	o := x.options()
	o.MustBeNew = true
	err := place.With(sievedb.Open, x.dir, o, func(db *sievedb.DB) error {
		inForce := db.Options()
		setup.Workload, setup.CacheBytes = x.keys.Name, max(inForce.CacheBytes, 0)
		setup.MemtableBytes, setup.BlockBytes = inForce.MemtableBytes, inForce.BlockBytes
		if err := x.phase("fill", func() error { return x.fill(ctx, db) }); err != nil {
			return err
		}
		return x.phase("compact", func() error { return x.compact(ctx, db) })
	})
	if err != nil {
		return err
	}
	if err := x.phase("open", func() error { return x.open(ctx) }); err != nil {
		return err
	}
	objects := heapObjects()
	return place.With(sievedb.Open, x.dir, x.options(), func(db *sievedb.DB) error {
		for _, s := range []struct {
			name string
			f    func() error
		}{
			{"warm up", func() error { return x.warm(ctx, db) }},
			{"absent keys", func() error { return x.passes(ctx, db, Absent) }},
			{"present keys", func() error { return x.passes(ctx, db, Present) }},
			{"short scans", func() error { return x.shortScans(ctx, db) }},
			{"full scans", func() error { return x.fullScans(ctx, db) }},
		} {
			if err := x.phase(s.name, s.f); err != nil {
				return err
			}
		}
		now := heapObjects()
		x.describe(db.Metrics(), now-min(now, objects))
		return nil
	})
}

// phase makes a part of the measurement and notes what it took of the process.
func (x *sized) phase(name string, f func() error) error {
	u := startUsage()
	if err := f(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	x.size.Phases = append(x.size.Phases, u.stop(name))
	return nil
}

// fill stores the keys. Beside it another goroutine looks keys up.
func (x *sized) fill(ctx context.Context, db *sievedb.DB) error {
	b := startBeside(x, db)
	err := x.puts(ctx, db, b)
	if err2 := b.end(); err == nil {
		err = err2
	}
	f := &x.size.Fill
	f.Absent, f.Present = Beside{b.lookups, b.absent.Latency()}, Beside{b.lookups, b.present.Latency()}
	return err
}

func (x *sized) puts(ctx context.Context, db *sievedb.DB, b *beside) error {
	n := x.size.Keys
	p := x.progress("fill", int64(n))
	defer p.Done()
	p.Extra(func() string { return loader.Stalls(db) })
	r := latency.New(n)
	var key []byte
	start := time.Now()
	for i := range n {
		if i%256 == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
			p.Set(int64(i))
		}
		key = x.keys.StoredKey(key[:0], i)
		began := time.Now()
		err := db.Put(key, x.values.Of(i, 0))
		took := time.Since(began)
		if err != nil {
			return err
		}
		r.Record(took)
		b.stored.Store(int64(i + 1))
	}
	x.size.Fill.Seconds, x.size.Fill.Put = time.Since(start).Seconds(), r.Latency()
	return nil
}

// compact waits for the compactions that the writes made necessary, which are
// part of their price, and then merges everything.
func (x *sized) compact(ctx context.Context, db *sievedb.DB) error {
	start := time.Now()
	if err := db.Flush(ctx); err != nil {
		return err
	}
	m, err := loader.Settle(ctx, db, x.meter)
	if err != nil {
		return err
	}
	f := &x.size.Fill
	f.SettleSeconds, f.WriteAmplification = time.Since(start).Seconds(), m.WriteAmplification
	f.Stalls, f.StallSeconds, f.SlowSeconds = m.Stalls, m.StallTime.Seconds(), m.SlowTime.Seconds()

	start = time.Now()
	p := x.progress("compact, bytes", int64(m.Disk.Tables))
	defer p.Done()
	done := make(chan error, 1)
	go func() { done <- db.Compact(ctx, nil, nil) }()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			x.size.Tree.CompactSeconds = time.Since(start).Seconds()
			return err
		case <-tick.C:
			p.Set(int64(db.Metrics().CompactedBytes - m.CompactedBytes))
		}
	}
}

// opens is how many times the store is opened.
const opens = 5

func (x *sized) open(ctx context.Context) error {
	for range opens {
		start := time.Now()
		err := place.With(sievedb.Open, x.dir, x.options(), func(*sievedb.DB) error {
			x.size.Tree.OpenSeconds = append(x.size.Tree.OpenSeconds, time.Since(start).Seconds())
			return ctx.Err()
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (x *sized) describe(m sievedb.Metrics, heapObjects uint64) {
	t := &x.size.Tree
	t.Tables, t.Runs, t.TableFileBytes = len(m.Tables), m.Runs, m.Disk.Tables
	t.DiskBytes = m.Disk.Tables + m.Disk.Log + m.Disk.Manifest
	t.FilterBytes, t.IndexBytes, t.HeapObjects = m.Memory.Filters, m.Memory.Indexes, heapObjects
}

// check returns what is wrong with the outcome of a lookup of the i-th absent
// or present key.
func (x *sized) check(keys string, i int, key, value []byte, err error) error {
	switch {
	case keys == Absent && errors.Is(err, sievedb.ErrNotFound):
		return nil
	case err != nil:
		return fmt.Errorf("%s key %q: %w", keys, key, err)
	case keys == Absent:
		return fmt.Errorf("key %q was found, but never stored", key)
	case !x.holds(i, value):
		return fmt.Errorf("key %q has another value than was stored", key)
	}
	return nil
}

func (x *sized) holds(i int, value []byte) bool { return string(value) == string(x.values.Of(i, 0)) }

func (x *sized) key(keys string, dst []byte, i int) []byte {
	if keys == Absent {
		return x.keys.AbsentKey(dst, i)
	}
	return x.keys.StoredKey(dst, i)
}

// progress is a phase of the meter that bears the number of keys.
func (x *sized) progress(label string, total int64) *meter.Phase {
	return x.meter.Phase(fmt.Sprintf("%d keys: %s", x.size.Keys, label), total)
}
