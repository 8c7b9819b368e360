package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"sievedb"
	"sievedb/vfs"
)

// buildCost is what a filter costs when a table is written: how much longer it
// takes to flush the same memtable with a filter than without, into memory, so
// that no disk blurs it. The least of many flushes is compared, since all that
// disturbs a flush makes it longer; what is left of the noise is the reason to
// show both.
type buildCost struct {
	keys          int
	without, with float64 // nanoseconds a key, the least of buildRounds flushes
}

const (
	buildKeys   = 20_000
	buildRounds = 25
)

func measureBuild(ctx context.Context, w *workload, bits float64, p *progress) (c buildCost, err error) {
	c = buildCost{keys: min(w.stored, buildKeys), without: math.Inf(1), with: math.Inf(1)}
	off, err := openBuild(w, c.keys, &sievedb.Options{DisableFilters: true})
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, off.Close()) }()
	on, err := openBuild(w, c.keys, &sievedb.Options{FilterBitsPerKey: bits})
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, on.Close()) }()

	bar := p.bar("filter build", buildRounds)
	defer bar.Finish()
	for range buildRounds {
		// In turn, so that a slow phase of the machine meets both.
		for _, x := range []struct {
			db    *sievedb.DB
			least *float64
		}{{off, &c.without}, {on, &c.with}} {
			took, err := timeFlush(ctx, x.db, w, c.keys)
			if err != nil {
				return c, err
			}
			*x.least = min(*x.least, float64(took.Nanoseconds())/float64(c.keys))
		}
		bar.Add(1)
	}
	for _, db := range []*sievedb.DB{off, on} {
		if m := db.Metrics(); m.Flushes != buildRounds || m.Compactions > 0 {
			return c, fmt.Errorf("%d flushes and %d compactions instead of %d flushes", m.Flushes, m.Compactions, buildRounds)
		}
	}
	return c, nil
}

// openBuild opens a store in memory whose memtable has room for n keys and
// which compacts nothing.
func openBuild(w *workload, n int, o *sievedb.Options) (*sievedb.DB, error) {
	o.FS, o.Durability = vfs.NewMem(), sievedb.SyncNever
	o.L0CompactTables = 2 * buildRounds
	perKey := 256 + 2*w.keyBytes/int64(w.stored) // with what the memtable adds
	o.MemtableBytes = 4<<20 + perKey*int64(n)
	return sievedb.Open("/build", o)
}

// timeFlush writes the first n keys with empty values as one table.
func timeFlush(ctx context.Context, db *sievedb.DB, w *workload, n int) (time.Duration, error) {
	b := db.NewBatch()
	var key []byte
	for i := range n {
		key = w.storedKey(key[:0], i)
		b.Put(key, nil)
	}
	if err := db.Apply(b, sievedb.StoreDefault); err != nil {
		return 0, err
	}
	start := time.Now()
	err := db.Flush(ctx)
	return time.Since(start), err
}
