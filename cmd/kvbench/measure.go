package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"sievedb"
	"sievedb/vfs"
)

// results is everything that was measured, before any arithmetic.
type results struct {
	config   *config
	workload *workload
	options  sievedb.Options // as loaded, defaults filled in
	lookups  int

	loadTime, settleTime time.Duration
	loaded               sievedb.Metrics // after settling

	absentOff, absentOn   pass
	presentOff, presentOn pass

	build buildCost
}

// pass is one series of lookups in a store that was just opened.
type pass struct {
	metrics   sievedb.Metrics // its counts are those of the pass alone
	latencies *hdrhistogram.Histogram
}

// measure loads the store and makes the four passes. It removes what it made,
// unless the user named the directory.
func measure(ctx context.Context, c *config, w *workload, p *progress) (r *results, err error) {
	r = &results{config: c, workload: w, lookups: min(c.lookups, w.absent, w.stored)}
	if r.lookups == 0 {
		return nil, fmt.Errorf("no absent key of %s lies between the stored ones", w.name)
	}
	dir := c.dir
	if entries, err := os.ReadDir(dir); dir != "" && err == nil && len(entries) > 0 {
		return nil, fmt.Errorf("%s is not empty", dir)
	}
	if dir == "" {
		temp, err := os.MkdirTemp("", "kvbench-")
		if err != nil {
			return nil, fmt.Errorf("temporary directory: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
		dir = filepath.Join(temp, "store")
	}
	values := newValues(c.valueBytes, c.seed)
	if err := r.load(ctx, dir, values, p); err != nil {
		return nil, fmt.Errorf("loading: %w", err)
	}
	for _, x := range []struct {
		into *pass
		series
	}{
		{&r.absentOff, series{"absent keys, filters off", false, true}},
		{&r.absentOn, series{"absent keys, filters on", false, false}},
		{&r.presentOff, series{"present keys, filters off", true, true}},
		{&r.presentOn, series{"present keys, filters on", true, false}},
	} {
		if *x.into, err = r.pass(ctx, dir, x.series, values, p); err != nil {
			return nil, fmt.Errorf("%s: %w", x.label, err)
		}
	}
	r.build, err = measureBuild(ctx, w, c.bits, p)
	if err != nil {
		return nil, fmt.Errorf("cost of building filters: %w", err)
	}
	return r, nil
}

// storeOptions returns the options of all passes. They make the tree three
// levels deep, whatever the amount of data: each level is a tenth of the next,
// and the smallest at least four memtables, so that a memtable is at most a
// 400th of what is in the bottom level. It is a 1000th, so that all levels are
// in use from the middle of the load on.
func storeOptions(c *config, w *workload) *sievedb.Options {
	cache := int64(c.cacheMiB) << 20
	if cache == 0 {
		cache = -1
	}
	const entryOverhead = 12
	totalBytes := w.keyBytes + int64(w.stored)*int64(c.valueBytes+entryOverhead)
	memtable := min(max(totalBytes/1000, 16<<10), 32<<20)
	return &sievedb.Options{
		MustExist:        true,
		Durability:       sievedb.SyncNever,
		MemtableBytes:    memtable,
		TableBytes:       memtable,
		FilterBitsPerKey: c.bits,
		CacheBytes:       cache,
	}
}

// load stores all keys and waits until the tree is at rest.
func (r *results) load(ctx context.Context, dir string, values values, p *progress) error {
	o := storeOptions(r.config, r.workload)
	o.MustExist, o.MustBeNew = false, true
	o.FS = noSync{vfs.OS()}
	return withStore(dir, o, func(db *sievedb.DB) (err error) {
		r.options = db.Options()
		start := time.Now()
		if err := r.store(ctx, db, values, p); err != nil {
			return err
		}
		r.loadTime = time.Since(start)
		start = time.Now()
		r.loaded, err = settle(ctx, db, p)
		r.settleTime = time.Since(start)
		return err
	})
}

// withStore opens a store for f.
func withStore(dir string, o *sievedb.Options, f func(*sievedb.DB) error) error {
	db, err := sievedb.Open(dir, o)
	if err != nil {
		return err
	}
	return errors.Join(f(db), db.Close())
}

// store puts all keys and flushes them.
func (r *results) store(ctx context.Context, db *sievedb.DB, values values, p *progress) error {
	const batchLen = 100
	bar := p.bar("load", int64(r.workload.stored))
	defer bar.Finish()
	b := db.NewBatch()
	var key []byte
	for i := 0; i < r.workload.stored; {
		for n := min(batchLen, r.workload.stored-i); b.Len() < n; i++ {
			key = r.workload.storedKey(key[:0], i)
			b.Put(key, values.of(i))
		}
		if err := cmp.Or(ctx.Err(), db.Apply(b, sievedb.StoreDefault)); err != nil {
			return err
		}
		_ = bar.Add(b.Len())
		b.Reset()
	}
	return db.Flush(ctx)
}

// settle waits until no compaction is due or running. Metrics does not tell
// what runs, so the tree must stay as it is for a while; that it then stays so
// during the lookups is checked there.
func settle(ctx context.Context, db *sievedb.DB, p *progress) (sievedb.Metrics, error) {
	const interval, calm = 20 * time.Millisecond, 25
	tick := time.NewTicker(interval)
	defer tick.Stop()
	m := db.Metrics()
	debt := m.CompactionDebtBytes
	bar := p.bar("settle", int64(debt))
	defer bar.Finish()
	for unchanged := 0; unchanged < calm; {
		select {
		case <-ctx.Done():
			return m, ctx.Err()
		case <-tick.C:
		}
		next := db.Metrics()
		if err := errors.Join(next.FatalError, next.BackgroundError); err != nil {
			return m, err
		}
		unchanged++
		if next.CompactionDebtBytes > 0 || shapeOf(&next) != shapeOf(&m) {
			unchanged = 0
		}
		m = next
		_ = bar.Set64(int64(debt - min(debt, m.CompactionDebtBytes)))
	}
	return m, nil
}

// shape tells whether a tree was changed.
type shape [len(sievedb.Metrics{}.Levels)]struct {
	tables int
	bytes  uint64
}

func shapeOf(m *sievedb.Metrics) (s shape) {
	for i := range m.Levels {
		s[i].tables, s[i].bytes = m.Levels[i].Tables, m.Levels[i].Bytes
	}
	return s
}

// series says what a pass looks up, and how.
type series struct {
	label         string
	present       bool
	ignoreFilters bool
}

// pass opens the store, with an empty cache and all counts at zero, and looks
// up the first keys of the workload.
func (r *results) pass(ctx context.Context, dir string, s series, values values, p *progress) (result pass, err error) {
	o := storeOptions(r.config, r.workload)
	o.DisableFilters = s.ignoreFilters
	bar := p.bar(s.label, int64(r.lookups))
	defer bar.Finish()
	// From 1 ns to a minute, to three digits.
	result.latencies = hdrhistogram.New(1, time.Minute.Nanoseconds(), 3)
	err = withStore(dir, o, func(db *sievedb.DB) error {
		var key, value []byte
		for i := range r.lookups {
			if i%256 == 0 {
				if err := ctx.Err(); err != nil {
					return err
				}
				_ = bar.Set(i)
			}
			key = s.key(r.workload, key[:0], i)
			var err error
			start := time.Now()
			value, err = db.GetTo(value[:0], key)
			took := time.Since(start)
			if err := s.check(key, value, values.of(i), err); err != nil {
				return err
			}
			// Its only error is a value beyond the range; a minute will do for it.
			_ = result.latencies.RecordValue(min(max(took.Nanoseconds(), 1), time.Minute.Nanoseconds()))
		}
		result.metrics = db.Metrics()
		if m := &result.metrics; m.Flushes+m.Compactions+m.TrivialMoves > 0 || shapeOf(m) != shapeOf(&r.loaded) {
			return errors.New("a compaction changed the tree during the lookups; the passes cannot be compared")
		}
		return nil
	})
	return result, err
}

func (s series) key(w *workload, dst []byte, i int) []byte {
	if s.present {
		return w.storedKey(dst, i)
	}
	return w.absentKey(dst, i)
}

// check returns what is wrong with the outcome of a lookup. A benchmark that
// does not look at its answers measures nothing.
func (s series) check(key, value, stored []byte, err error) error {
	switch {
	case err != nil && (s.present || !errors.Is(err, sievedb.ErrNotFound)):
		return fmt.Errorf("key %.64q: %w", key, err)
	case err == nil && !s.present:
		return fmt.Errorf("key %.64q was found, but never stored", key)
	case s.present && !bytes.Equal(value, stored):
		return fmt.Errorf("key %.64q has another value than was stored", key)
	}
	return nil
}

// values gives each key a value that does not compress and is known again.
type values struct {
	pool []byte
	size int
}

const valuePool = 1 << 20

func newValues(sizeBytes int, seed uint64) values {
	var s [32]byte
	for i := range 8 {
		s[i] = byte(seed >> (8 * i))
	}
	v := values{make([]byte, valuePool+sizeBytes), sizeBytes}
	_, _ = rand.NewChaCha8(s).Read(v.pool) // never fails
	return v
}

// of returns the value of the i-th stored key. It belongs to v.
func (v values) of(i int) []byte {
	// An odd factor reaches every offset, and neighbours are far apart.
	at := uint32(i) * 2654435761 % valuePool
	return v.pool[at:][:v.size]
}
