package experiment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

// OpsConfig is what a mix of operations needs beside Config.
type OpsConfig struct {
	Command      string
	Mix          workload.Mix
	Distribution workload.Distribution
	// Operations are as many as the stored keys at most if nothing is loaded.
	Operations int
	ScanLength int // the most entries of a scan, at least 1
	Preload    bool
	Synced     bool
	// Modify allows writing to the existing store.
	Modify bool
}

// samples is how many times the amplification is looked at, about.
const samples = 60

// ops is one run of Ops. The i-th key is the i-th stored one, or, beyond those,
// one of the first half of the absent keys, which inserts use up; lookups of
// absent keys take the others.
type ops struct {
	*Config
	*OpsConfig
	meter  *meter.Meter
	keys   *workload.Keys
	values workload.Values
	dir    string
	known  int // keys that were stored so far
	// versions says what each known key should have.
	versions []uint32
	rng      *rand.Rand
	chooser  *workload.Chooser
	run      *report.Ops
	kinds    map[workload.Op]*kind
	start    time.Time
	// Reused by every operation:
	key, value []byte
}

type kind struct {
	*latency.Recorder
	count, found uint64
}

// What versions hold beside the number of a value.
const (
	deleted   = ^uint32(0)
	notOurs   = deleted - 1 // of an existing store: some value
	lastValue = notOurs - 1
)

// Ops loads a store, or takes the existing one, and makes a mix of operations.
// Every answer is compared with what was written.
func Ops(ctx context.Context, c *Config, oc *OpsConfig, m *meter.Meter) (run *report.Ops, err error) {
	o := &ops{
		Config: c, OpsConfig: oc, meter: m, run: &report.Ops{}, kinds: map[workload.Op]*kind{},
		values: workload.NewValues(c.ValueBytes, c.Seed), rng: rand.New(rand.NewPCG(c.Seed, 4)),
	}
	o.chooser = workload.NewChooser(oc.Distribution, o.rng)
	if c.DB != "" {
		o.dir = c.DB
		o.keys, err = c.existingKeys(c.KeysCount, m)
	} else {
		o.keys, err = c.newKeys()
	}
	if err != nil {
		return nil, err
	}
	if c.DB == "" {
		p, err2 := place.New(c.Dir)
		if err2 != nil {
			return nil, err2
		}
		defer func() { err = errors.Join(err, p.Leave(c.Keep, m)) }()
		o.dir = p.Dir
		if !oc.Preload {
			oc.Operations = min(oc.Operations, o.keys.Stored)
		}
	}
	if err := o.prepare(ctx); err != nil {
		return nil, err
	}
	err = o.measure(ctx)
	if err != nil && (ctx.Err() == nil || o.run.Done == 0) {
		return nil, err
	}
	o.run.Interrupted = err != nil
	return o.run, err
}

// prepare stores what is to be there before.
func (o *ops) prepare(ctx context.Context) error {
	version := uint32(0)
	switch {
	case o.DB != "":
		version = notOurs
	case !o.Preload:
		return nil
	default:
		w := loader.NewWatcher()
		options := o.storeOptions()
		options.FS = loader.NoSync{FS: vfs.OS()}
		start := time.Now()
		err := place.With(sievedb.Open, o.dir, loader.Options(options, w), func(db *sievedb.DB) error {
			return loader.Load(ctx, db, w, o.keys, o.keys.Stored, o.values, o.meter)
		})
		if err != nil {
			return fmt.Errorf("loading: %w", err)
		}
		o.run.LoadSeconds = time.Since(start).Seconds()
	}
	o.known = o.keys.Stored
	o.versions = make([]uint32, o.known)
	for i := range o.versions {
		o.versions[i] = version
	}
	return nil
}

func (o *ops) storeOptions() sievedb.Options {
	options := sievedb.Options{
		FilterBitsPerKey: o.Bits, CacheBytes: o.CacheBytes(), Durability: sievedb.SyncNever, MemtableBytes: int64(o.MemtableMiB) << 20,
	}
	if o.Synced {
		options.Durability = sievedb.SyncAlways
	}
	return options
}

func (o *ops) measure(ctx context.Context) error {
	open := sievedb.Open
	if o.DB != "" && !o.Modify {
		open = o.openExisting
	}
	options := o.storeOptions()
	return place.With(open, o.dir, &options, func(db *sievedb.DB) error {
		if o.Cold { // opening reads, and the kernel reads ahead
			if err := kernel.DropPageCache(o.dir); err != nil {
				return err
			}
		}
		counts := kernel.Start()
		err := o.loop(ctx, db)
		if err == nil && o.Mix.Writes() {
			// The compactions that the writes made necessary are part of their price.
			if err = db.Flush(ctx); err == nil {
				_, err = loader.Settle(ctx, db, o.meter)
			}
		}
		o.run.Kernel = counts.Stop()
		o.complete(db)
		return err
	})
}

// loop makes the operations.
func (o *ops) loop(ctx context.Context, db *sievedb.DB) error {
	p := o.meter.Phase(o.Command, int64(o.Operations))
	defer p.Done()
	p.Extra(func() string { return loader.Stalls(db) })
	for op, share := range o.Mix {
		if share > 0 {
			o.kinds[workload.Op(op)] = &kind{Recorder: latency.New(int(share * float64(o.Operations)))}
		}
	}
	every := max(1, o.Operations/samples)
	o.start = time.Now()
	defer func() { o.run.Seconds = time.Since(o.start).Seconds() }()
	for i := range o.Operations {
		if i%64 == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		op := o.Mix.Draw(o.rng)
		took, found, err := o.do(db, op)
		if errors.Is(err, errNoKeysLeft) {
			o.meter.Note("%v after %d operations", err, i)
			return nil
		}
		if err != nil {
			return fmt.Errorf("operation %d, %v: %w", i, op, err)
		}
		k := o.kinds[op]
		k.Record(took)
		k.count++
		k.found += found
		o.run.Done++
		p.Often()
		if (i+1)%every == 0 {
			o.sample(db.Metrics())
		}
	}
	return nil
}

var errNoKeysLeft = errors.New("all keys are used up")

// do makes one operation, timed without the choice of its key and the check of
// its answer. Found is the number of entries that it met.
func (o *ops) do(db *sievedb.DB, op workload.Op) (took time.Duration, found uint64, err error) {
	switch op {
	case workload.Insert:
		return o.insert(db)
	case workload.Absent:
		return o.absent(db)
	}
	if o.known == 0 {
		return 0, 0, errNoKeysLeft
	}
	i := o.chooser.Next(o.known)
	o.setKey(i)
	start := time.Now()
	switch op {
	case workload.Scan:
		return o.scan(db)
	case workload.Read, workload.ReadModifyWrite:
		o.value, err = db.GetTo(o.value[:0], o.key)
		took = time.Since(start)
		if found, err = o.check(i, err); err != nil || op == workload.Read {
			return took, found, err
		}
		start = time.Now()
		err = o.put(db, i)
		return took + time.Since(start), found, err
	case workload.Update:
		err = o.put(db, i)
	case workload.Delete:
		err = db.Delete(o.key)
		if o.versions[i] != deleted {
			found = 1
		}
		o.versions[i] = deleted
	}
	return time.Since(start), found, err
}

func (o *ops) setKey(i int) {
	if i < o.keys.Stored {
		o.key = o.keys.StoredKey(o.key[:0], i)
	} else {
		o.key = o.keys.AbsentKey(o.key[:0], i-o.keys.Stored)
	}
}

// put writes the next version of the i-th key, which is in o.key.
func (o *ops) put(db *sievedb.DB, i int) error {
	next := uint32(1)
	if v := o.versions[i]; v < lastValue {
		next = v + 1
	}
	o.versions[i] = next
	return db.Put(o.key, o.values.Of(i, next))
}

func (o *ops) insert(db *sievedb.DB) (time.Duration, uint64, error) {
	i := o.known
	if i >= o.keys.Stored+o.keys.Absent/2 {
		return 0, 0, errNoKeysLeft
	}
	o.known++
	o.versions = append(o.versions, 0)
	o.setKey(i)
	start := time.Now()
	err := db.Put(o.key, o.values.Of(i, 0))
	return time.Since(start), 0, err
}

func (o *ops) absent(db *sievedb.DB) (time.Duration, uint64, error) {
	from := o.keys.Absent / 2
	if o.keys.Absent-from <= 0 {
		return 0, 0, errNoKeysLeft
	}
	o.key = o.keys.AbsentKey(o.key[:0], from+o.rng.IntN(o.keys.Absent-from))
	start := time.Now()
	var err error
	o.value, err = db.GetTo(o.value[:0], o.key)
	took := time.Since(start)
	switch {
	case err == nil:
		err = fmt.Errorf("key %.64q was found, but never stored", o.key)
	case errors.Is(err, sievedb.ErrNotFound):
		err = nil
	}
	return took, 0, err
}

// scan reads entries from o.key on. That they come in order is checked, and so
// is the value of the first.
func (o *ops) scan(db *sievedb.DB) (took time.Duration, found uint64, err error) {
	n := 1 + o.rng.IntN(o.ScanLength)
	start := time.Now()
	it := db.Scan(o.key, nil)
	last := o.value[:0]
	for key := range it.All() {
		if found > 0 && bytes.Compare(key, last) <= 0 || bytes.Compare(key, o.key) < 0 {
			err = fmt.Errorf("a scan from %.64q has %.64q after %.64q", o.key, key, last)
			break
		}
		last = append(last[:0], key...)
		if found++; found == uint64(n) {
			break
		}
	}
	err = errors.Join(err, it.Err())
	o.value = last
	return time.Since(start), found, err
}

// check returns what is wrong with the answer o.value for the i-th key.
func (o *ops) check(i int, err error) (found uint64, _ error) {
	want := o.versions[i]
	switch {
	case errors.Is(err, sievedb.ErrNotFound):
		if want != deleted {
			return 0, fmt.Errorf("key %.64q was stored, but not found", o.key)
		}
		return 0, nil
	case err != nil:
		return 0, err
	case want == deleted:
		return 0, fmt.Errorf("key %.64q was found, but deleted", o.key)
	case want != notOurs && !bytes.Equal(o.value, o.values.Of(i, want)):
		return 0, fmt.Errorf("key %.64q has another value than was stored last", o.key)
	}
	return 1, nil
}

func (o *ops) sample(m sievedb.Metrics) {
	o.run.Samples = append(o.run.Samples, report.Sample{
		Operations: o.run.Done, Seconds: time.Since(o.start).Seconds(),
		WriteAmplification: m.WriteAmplification, SpaceAmplification: m.SpaceAmplification, Runs: m.Runs,
	})
}

// complete fills in what is known at the end.
func (o *ops) complete(db *sievedb.DB) {
	r, m := o.run, db.Metrics()
	t := m.Total()
	o.sample(m)
	r.Schema = report.OpsSchema
	r.Setup = report.OpsSetup{
		Command: o.Command, Workload: o.keys.Name, Mix: o.Mix.String(), Distribution: o.Distribution.String(), Seed: o.Seed,
		Keys: o.keys.Stored, Operations: o.Operations, ValueBytes: o.ValueBytes, ScanLength: o.ScanLength, BitsPerKey: o.Bits,
		CacheBytes: max(o.CacheBytes(), 0), MemtableBytes: db.Options().MemtableBytes, Synced: o.Synced, Store: o.DB, Cold: o.Cold, Machine: report.ThisMachine(),
	}
	if o.DB == "" && !o.Preload {
		r.Setup.Keys = 0
	}
	for op := range o.Mix {
		if k := o.kinds[workload.Op(op)]; k != nil {
			r.Kinds = append(r.Kinds, report.Kind{Op: workload.Op(op).String(), Count: k.count, Found: k.found, Latency: k.Latency()})
		}
	}
	r.CountsExact = !o.Mix.Writes()
	r.BlocksRead, r.BlocksCached = t.BlocksRead+m.ScanBlocksRead, t.BlocksCached+m.ScanBlocksCached
	r.Negatives, r.FalsePositives = t.Negatives, t.FalsePositives
	r.Levels = report.NewLevels(&m, &m)
	for i := range r.Levels {
		r.Levels[i].BlocksReadWithout = 0 // filters were asked
	}
	r.Runs, r.WriteAmplification, r.SpaceAmplification = m.Runs, m.WriteAmplification, m.SpaceAmplification
	r.TableFileBytes, r.Stalls, r.StallSeconds = m.Disk.Tables, m.Stalls, (m.StallTime + m.SlowTime).Seconds()
}
