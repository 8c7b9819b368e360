package experiment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"sievedb"
	"sievedb/cmd/kvbench/internal/kernel"
	"sievedb/cmd/kvbench/internal/latency"
	"sievedb/cmd/kvbench/internal/loader"
	"sievedb/cmd/kvbench/internal/meter"
	"sievedb/cmd/kvbench/internal/place"
	"sievedb/cmd/kvbench/internal/report"
	"sievedb/cmd/kvbench/internal/workload"
	"sievedb/vfs"
)

// lookups is one run of Lookups.
type lookups struct {
	*Config
	meter    *meter.Meter
	keys     *workload.Keys
	values   workload.Values
	n        int // lookups of absent or present keys, each
	dir      string
	existing bool
	tree     loader.Shape
	options  sievedb.Options // in force
	run      *report.Lookups
	absentOn sievedb.Metrics // of that pass
	off      sievedb.Metrics // of absent keys without filters
}

// Lookups loads a store, or takes the existing one, and looks up absent keys,
// keys outside, and present ones, each without and with filters.
func Lookups(ctx context.Context, c *Config, m *meter.Meter) (run *report.Lookups, err error) {
	l := &lookups{Config: c, meter: m, existing: c.DB != "", run: &report.Lookups{}}
	l.values = workload.NewValues(c.ValueBytes, c.Seed)
	if l.existing {
		l.dir = c.DB
		l.keys, err = c.existingKeys(c.Lookups, m)
	} else {
		l.keys, err = c.newKeys()
	}
	if err != nil {
		return nil, err
	}
	if l.n = min(c.Lookups, l.keys.Absent, l.keys.Stored); l.n == 0 {
		return nil, fmt.Errorf("of %s, %d keys are stored and %d lie between them: nothing to look up", l.keys.Name, l.keys.Stored, l.keys.Absent)
	}
	if !l.existing {
		p, err2 := place.New(c.Dir)
		if err2 != nil {
			return nil, err2
		}
		defer func() { err = errors.Join(err, p.Leave(c.Keep, m)) }()
		l.dir = p.Dir
		if err := l.load(ctx); err != nil {
			return nil, fmt.Errorf("loading: %w", err)
		}
	}
	build, err := l.passes(ctx)
	if err != nil && (ctx.Err() == nil || l.run.Absent.Without.Lookups == 0) {
		return nil, err
	}
	l.complete(build)
	l.run.Interrupted = err != nil
	return l.run, err
}

// storeOptions returns the options of all passes. They make the tree three
// levels deep, whatever the amount of data: each level is a tenth of the next,
// and the smallest at least four memtables, so that a memtable is at most a
// 400th of what is in the bottom level. It is a 580th, so that all levels are
// in use towards the end of the load.
func (c *Config) storeOptions(k *workload.Keys) sievedb.Options {
	totalBytes := k.KeyBytes + int64(k.Stored)*int64(c.ValueBytes+loader.EntryOverhead)
	memtable := min(max(totalBytes/580, 16<<10), 32<<20)
	return sievedb.Options{
		MustExist:        true,
		Durability:       sievedb.SyncNever,
		MemtableBytes:    memtable,
		TableBytes:       memtable,
		FilterBitsPerKey: c.Bits,
		CacheBytes:       c.CacheBytes(),
	}
}

func (l *lookups) load(ctx context.Context) error {
	w := loader.NewWatcher()
	o := l.storeOptions(l.keys)
	o.MustExist, o.MustBeNew = false, true
	o.FS = loader.NoSync{FS: vfs.OS()}
	return place.With(sievedb.Open, l.dir, loader.Options(o, w), func(db *sievedb.DB) error {
		start := time.Now()
		if err := loader.Load(ctx, db, w, l.keys, l.keys.Stored, l.values, l.meter); err != nil {
			return err
		}
		l.run.Load.Seconds = time.Since(start).Seconds()
		start = time.Now()
		_, err := loader.Settle(ctx, db, l.meter)
		l.run.Load.SettleSeconds = time.Since(start).Seconds()
		return err
	})
}

// passes makes all of them. What was measured until an error stays in run.
func (l *lookups) passes(ctx context.Context) (b report.Build, err error) {
	r := l.run
	absent := func(dst []byte, i int) []byte { return l.keys.AbsentKey(dst, i) }
	present := func(dst []byte, i int) []byte { return l.keys.StoredKey(dst, i) }
	for _, x := range []struct {
		into    *report.Pass
		metrics *sievedb.Metrics
		series
	}{
		{&r.Absent.Without, &l.off, series{"absent keys, filters off", absent, false, true}},
		{&r.Absent.With, &l.absentOn, series{"absent keys, filters on", absent, false, false}},
		{&r.Outside.Without, nil, series{"keys outside, filters off", l.keys.OutsideKey, false, true}},
		{&r.Outside.With, nil, series{"keys outside, filters on", l.keys.OutsideKey, false, false}},
		{&r.Present.Without, nil, series{"present keys, filters off", present, true, true}},
		{&r.Present.With, nil, series{"present keys, filters on", present, true, false}},
	} {
		metrics, err := l.pass(ctx, x.series, x.into)
		if x.metrics != nil {
			*x.metrics = metrics
		}
		if err != nil {
			return b, fmt.Errorf("%s: %w", x.label, err)
		}
	}
	b, err = measureBuild(ctx, l.keys, l.Bits, l.meter)
	if err != nil {
		err = fmt.Errorf("cost of building filters: %w", err)
	}
	return b, err
}

// series says what a pass looks up, and how.
type series struct {
	label         string
	key           func(dst []byte, i int) []byte
	present       bool
	ignoreFilters bool
}

// pass opens the store, with an empty cache and all counts at zero, and looks
// up the first keys of the series.
func (l *lookups) pass(ctx context.Context, s series, into *report.Pass) (metrics sievedb.Metrics, err error) {
	o := l.storeOptions(l.keys)
	open := sievedb.Open
	if l.existing {
		open = l.openExisting
		o.MemtableBytes, o.TableBytes = 0, 0 // what the store has is not ours to know
	}
	o.DisableFilters = s.ignoreFilters
	err = place.With(open, l.dir, &o, func(db *sievedb.DB) error {
		l.options = db.Options()
		first := db.Metrics()
		if l.Cold { // that reads, and the kernel reads ahead
			if err := kernel.DropPageCache(l.dir); err != nil {
				return err
			}
		}
		if l.tree == (loader.Shape{}) {
			l.tree = loader.ShapeOf(&first)
		}
		done, latency, counted, err := l.ask(ctx, db, s)
		metrics = db.Metrics()
		*into = report.NewPass(&metrics, done, latency, counted)
		if m := &metrics; err == nil && (m.Flushes+m.Compactions+m.TrivialMoves > 0 || loader.ShapeOf(m) != l.tree) {
			return errors.New("a compaction changed the tree during the lookups; the passes cannot be compared")
		}
		return err
	})
	return metrics, err
}

// ask makes the lookups of a pass and returns how many it made.
func (l *lookups) ask(ctx context.Context, db *sievedb.DB, s series) (done int, _ report.Latency, _ *report.Kernel, err error) {
	p := l.meter.Phase(s.label, int64(l.n))
	defer p.Done()
	r := latency.New(l.n)
	counts := kernel.Start()
	var key, value []byte
	for ; done < l.n; done++ {
		if done%256 == 0 {
			if err = ctx.Err(); err != nil {
				break
			}
			p.Set(int64(done))
		}
		key = s.key(key[:0], done)
		start := time.Now()
		value, err = db.GetTo(value[:0], key)
		took := time.Since(start)
		if err = l.check(s, key, value, done, err); err != nil {
			break
		}
		r.Record(took)
	}
	return done, r.Latency(), counts.Stop(), err
}

// check returns what is wrong with the outcome of a lookup. A benchmark that
// does not look at its answers measures nothing.
func (l *lookups) check(s series, key, value []byte, i int, err error) error {
	switch {
	case err != nil && (s.present || !errors.Is(err, sievedb.ErrNotFound)):
		return fmt.Errorf("key %.64q: %w", key, err)
	case err == nil && !s.present:
		return fmt.Errorf("key %.64q was found, but never stored", key)
	case s.present && !l.existing && !bytes.Equal(value, l.values.Of(i, 0)):
		return fmt.Errorf("key %.64q has another value than was stored", key)
	}
	return nil
}

// complete fills in what is known once the passes are over.
func (l *lookups) complete(b report.Build) {
	r, k := l.run, l.keys
	r.Setup = report.Setup{
		Workload: k.Name, Seed: l.Seed, Keys: k.Stored, KeyBytes: k.KeyBytes, ValueBytes: l.ValueBytes,
		Lookups: l.n, OutsideKeys: k.Outside, RepeatedLines: k.Repeated, BitsPerKey: l.Bits,
		CacheBytes: max(l.options.CacheBytes, 0), MemtableBytes: l.options.MemtableBytes,
		TableBytes: l.options.TableBytes, BlockBytes: l.options.BlockBytes,
		Store: l.DB, Cold: l.Cold, Machine: report.ThisMachine(),
	}
	if l.existing {
		r.Setup.ValueBytes = 0
	}
	r.Load.TableFileBytes, r.Load.Runs = l.off.Disk.Tables, l.off.Runs
	on := &l.absentOn
	if r.Absent.With.Lookups == 0 {
		on = &l.off // it has the tree, and no counts of filters
	}
	r.Levels = report.NewLevels(&l.off, on)
	r.Prediction = report.NewPrediction(on.Total())
	r.Complete(on.Memory.Filters, b)
}
