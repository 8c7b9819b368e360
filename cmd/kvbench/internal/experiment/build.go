package experiment

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"sievedb"
	"sievedb/cmd/kvbench/internal/meter"
	"sievedb/cmd/kvbench/internal/report"
	"sievedb/cmd/kvbench/internal/workload"
	"sievedb/vfs"
)

const (
	buildKeys   = 20_000
	buildRounds = 25
)

// measureBuild finds what a filter costs when a table is written: how much
// longer it takes to flush the same memtable with a filter than without, into
// memory, so that no disk blurs it. The least of many flushes is compared, since
// all that disturbs a flush makes it longer; what is left of the noise is the
// reason to show both.
func measureBuild(ctx context.Context, w *workload.Keys, bits float64, m *meter.Meter) (c report.Build, err error) {
	c = report.Build{Keys: min(w.Stored, buildKeys), Without: math.Inf(1), With: math.Inf(1)}
	off, err := openBuild(w, c.Keys, &sievedb.Options{DisableFilters: true})
	if err != nil {
		return report.Build{}, err
	}
	defer func() { err = errors.Join(err, off.Close()) }()
	on, err := openBuild(w, c.Keys, &sievedb.Options{FilterBitsPerKey: bits})
	if err != nil {
		return report.Build{}, err
	}
	defer func() { err = errors.Join(err, on.Close()) }()

	p := m.Phase("filter build", buildRounds)
	defer p.Done()
	for range buildRounds {
		// In turn, so that a slow phase of the machine meets both.
		for _, x := range []struct {
			db    *sievedb.DB
			least *float64
		}{{off, &c.Without}, {on, &c.With}} {
			took, err := timeFlush(ctx, x.db, w, c.Keys)
			if err != nil {
				return report.Build{}, err
			}
			*x.least = min(*x.least, float64(took.Nanoseconds())/float64(c.Keys))
		}
		p.Add(1)
	}
	for _, db := range []*sievedb.DB{off, on} {
		if m := db.Metrics(); m.Flushes != buildRounds || m.Compactions > 0 {
			return report.Build{}, fmt.Errorf("%d flushes and %d compactions instead of %d flushes", m.Flushes, m.Compactions, buildRounds)
		}
	}
	return c, nil
}

// openBuild opens a store in memory whose memtable has room for n keys and
// which compacts nothing.
func openBuild(w *workload.Keys, n int, o *sievedb.Options) (*sievedb.DB, error) {
	o.FS, o.Durability = vfs.NewMem(), sievedb.SyncNever
	o.L0CompactTables = 2 * buildRounds
	perKey := 256 + 2*w.KeyBytes/int64(w.Stored) // with what the memtable adds
	o.MemtableBytes = 4<<20 + perKey*int64(n)
	return sievedb.Open("/build", o)
}

// timeFlush writes the first n keys with empty values as one table.
func timeFlush(ctx context.Context, db *sievedb.DB, w *workload.Keys, n int) (time.Duration, error) {
	b := db.NewBatch()
	var key []byte
	for i := range n {
		key = w.StoredKey(key[:0], i)
		b.Put(key, nil)
	}
	if err := db.Apply(b, sievedb.StoreDefault); err != nil {
		return 0, err
	}
	start := time.Now()
	err := db.Flush(ctx)
	return time.Since(start), err
}
