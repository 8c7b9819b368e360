package growth

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"sievedb"
	"sievedb/cmd/kvbench/internal/latency"
)

// pace is how often keys are looked up beside writes: often enough for a
// percentile, and so seldom that the writes hardly notice.
const pace = 500 * time.Microsecond

// beside looks keys up while others are stored.
type beside struct {
	x               *sized
	db              *sievedb.DB
	stored          atomic.Int64 // keys that are there
	stop            chan struct{}
	done            chan error
	absent, present *latency.Recorder
	lookups         uint64 // of each
}

func startBeside(x *sized, db *sievedb.DB) *beside {
	b := &beside{x: x, db: db, stop: make(chan struct{}), done: make(chan error, 1), absent: latency.New(0), present: latency.New(0)}
	go func() { b.done <- b.run() }()
	return b
}

// end ends the lookups; then the results may be read.
func (b *beside) end() error {
	close(b.stop)
	return <-b.done
}

// run looks up an absent and a present key at a time, and once more at the end,
// so that even a short fill has some.
func (b *beside) run() error {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	rng := rand.New(rand.NewPCG(b.x.Seed, 5))
	var key, value []byte
	for ended := false; !ended; {
		select {
		case <-b.stop:
			ended = true
		case <-tick.C:
		}
		stored := int(b.stored.Load())
		if stored == 0 {
			continue
		}
		for _, s := range []struct {
			keys string
			i    int
			r    *latency.Recorder
		}{{Absent, rng.IntN(b.x.keys.Absent), b.absent}, {Present, rng.IntN(stored), b.present}} {
			var err error
			key = b.x.key(s.keys, key[:0], s.i)
			start := time.Now()
			value, err = b.db.GetTo(value[:0], key)
			took := time.Since(start)
			if err := b.x.check(s.keys, s.i, key, value, err); err != nil {
				return fmt.Errorf("lookups beside: %w", err)
			}
			s.r.Record(took)
		}
		b.lookups++
	}
	return nil
}

// warm opens the tables and fills the cache, so that the first pass does not
// pay for it alone. It takes keys from the end of the order, which no pass
// reaches before it has had nearly all others.
func (x *sized) warm(ctx context.Context, db *sievedb.DB) error {
	p := x.progress("warm up", int64(2*x.lookups))
	defer p.Done()
	var key, value []byte
	for i := range x.lookups {
		if i%256 == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
			p.Set(int64(2 * i))
		}
		for _, keys := range []string{Absent, Present} {
			var err error
			at := x.keys.Absent - 1 - i
			key = x.key(keys, key[:0], at)
			value, err = db.GetTo(value[:0], key)
			if err := x.check(keys, at, key, value, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// passes looks keys up with each number of readers, other keys each time as
// long as there are some.
func (x *sized) passes(ctx context.Context, db *sievedb.DB, keys string) error {
	for i, n := range x.Readers {
		pass, err := x.pass(ctx, db, keys, n, i*x.lookups)
		if err != nil {
			return fmt.Errorf("%d readers: %w", n, err)
		}
		x.size.Lookups = append(x.size.Lookups, pass)
	}
	return nil
}

// pass looks up so many keys from the given one on, in equal shares. The
// calling goroutine is one of the readers, which tells how far they are.
func (x *sized) pass(ctx context.Context, db *sievedb.DB, keys string, readers, from int) (Pass, error) {
	p := x.progress(fmt.Sprintf("%s keys, %d readers", keys, readers), int64(x.lookups))
	defer p.Done()
	all, errs := make([]*latency.Recorder, readers), make([]error, readers)
	read := func(r int, told func(done int)) {
		lo, hi := share(x.lookups, readers, r), share(x.lookups, readers, r+1)
		all[r] = latency.New((hi - lo) / sampleEvery)
		errs[r] = x.read(ctx, db, keys, from+lo, hi-lo, all[r], told)
	}
	m := db.Metrics()
	before := m.Total()
	start := time.Now()
	var wg sync.WaitGroup
	for r := 1; r < readers; r++ {
		wg.Go(func() { read(r, func(int) {}) })
	}
	read(0, func(done int) { p.Set(int64(done) * int64(readers)) })
	wg.Wait()
	seconds := time.Since(start).Seconds()
	m = db.Metrics()
	after := m.Total()
	return Pass{
		Keys: keys, Readers: readers, Lookups: x.lookups, Seconds: seconds,
		BlocksRead: after.BlocksRead - before.BlocksRead, BlocksCached: after.BlocksCached - before.BlocksCached,
		FalsePositives: after.FalsePositives - before.FalsePositives, Latency: latency.Merge(all).Latency(),
	}, cmp.Or(errs...)
}

// share returns where the part of reader r of n lookups begins.
func share(n, readers, r int) int { return int(int64(n) * int64(r) / int64(readers)) }

// sampleEvery is which lookups are timed one by one. Reading the clock for each
// would take a third of what the lookup of an absent key does, and so distort
// the lookups a second.
const sampleEvery = 8

// read is one reader.
func (x *sized) read(ctx context.Context, db *sievedb.DB, keys string, from, n int, r *latency.Recorder, told func(done int)) error {
	total := x.keys.Absent
	var key, value []byte
	for i := range n {
		if i%256 == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
			told(i)
		}
		at := (from + i) % total
		key = x.key(keys, key[:0], at)
		var err error
		if i%sampleEvery == 0 {
			start := time.Now()
			value, err = db.GetTo(value[:0], key)
			r.Record(time.Since(start))
		} else {
			value, err = db.GetTo(value[:0], key)
		}
		if err := x.check(keys, at, key, value, err); err != nil {
			return err
		}
	}
	return nil
}
