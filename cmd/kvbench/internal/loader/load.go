// Package loader stores keys so that the same ones make the same tree, and waits
// for trees to come to rest. A Watcher is safe for concurrent use; the rest is
// for one goroutine, which nothing else may write beside.
//
//	w := loader.NewWatcher()
//	db, err := sievedb.Open(dir, loader.Options(o, w))
//	err = loader.Load(ctx, db, w, keys, keys.Stored, values, m)
package loader

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"sievedb"
	"sievedb/cmd/kvbench/internal/meter"
	"sievedb/cmd/kvbench/internal/workload"
)

// Options makes a load give the same tree each time, together with Load:
// one compaction at a time, and none while something is flushed.
func Options(o sievedb.Options, w *Watcher) *sievedb.Options {
	o.Workers = 1
	o.L0CompactTables = L0Tables
	o.Durability = sievedb.SyncNever
	o.Events = w.listener()
	return &o
}

// L0Tables is the number of tables in level 0 at which they are compacted: the
// default, which Load has to know.
const L0Tables = 4

// Watcher knows whether a compaction runs.
type Watcher struct {
	mu      sync.Mutex
	running int           // guarded by mu
	ended   chan struct{} // holds a token when a compaction has ended
}

// NewWatcher returns a Watcher that has seen nothing.
func NewWatcher() *Watcher { return &Watcher{ended: make(chan struct{}, 1)} }

func (w *Watcher) listener() *sievedb.EventListener {
	return &sievedb.EventListener{
		CompactionBegin: func(sievedb.CompactionInfo) { w.add(1) },
		CompactionEnd: func(sievedb.CompactionInfo) {
			w.add(-1)
			select {
			case w.ended <- struct{}{}:
			default:
			}
		},
	}
}

func (w *Watcher) add(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running += n
}

// Idle reports whether no compaction runs.
func (w *Watcher) Idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.running == 0
}

// Load stores the first n keys, so that the tree depends on them and the
// options alone. Compactions beside flushes would take as many tables of level
// 0 as there happen to be. Therefore it flushes at fixed keys, and once
// level 0 is to be compacted waits until nothing more is due.
func Load(ctx context.Context, db *sievedb.DB, w *Watcher, keys *workload.Keys, n int, values workload.Values, m *meter.Meter) error {
	p := m.Phase("load", int64(n))
	defer p.Done()
	p.Extra(func() string { return Stalls(db) })
	o := db.Options()
	const batchLen = 100
	// The memtable must not fill up between two flushes: it would be flushed
	// beside the next writes, and file numbers, which the filters' hashes depend
	// on, be given out in the order of the day.
	flushBytes := o.MemtableBytes * 4 / 5
	b := db.NewBatch()
	var key []byte
	var bytes int64
	flushes := 0
	for i := 0; i < n; {
		b.Reset()
		for b.Len() < batchLen && i < n && (b.Len() == 0 || bytes < flushBytes) {
			key = keys.StoredKey(key[:0], i)
			b.Put(key, values.Of(i, 0))
			bytes += int64(len(key) + len(values.Of(i, 0)) + memtableOverhead)
			i++
		}
		if err := cmp.Or(ctx.Err(), db.Apply(b, sievedb.StoreDefault)); err != nil {
			return err
		}
		p.Add(int64(b.Len()))
		if bytes < flushBytes && i < n {
			continue
		}
		bytes = 0
		if err := db.Flush(ctx); err != nil {
			return err
		}
		if flushes++; flushes%L0Tables == 0 {
			if err := quiesce(ctx, db, w); err != nil {
				return err
			}
		}
	}
	return quiesce(ctx, db, w)
}

// Stalls words what slowed writes down so far.
func Stalls(db *sievedb.DB) string {
	m := db.Metrics()
	return fmt.Sprintf("%d tables, %d runs, %d stalls of %.1f s, slowed for %.1f s",
		len(m.Tables), m.Runs, m.Stalls, m.StallTime.Seconds(), m.SlowTime.Seconds())
}

// EntryOverhead is about what an entry takes in a table beside its key and
// value, in bytes.
const EntryOverhead = 12

// memtableOverhead is the most that it takes in a memtable, with tree and index.
const memtableOverhead = 112

// quiesce waits until no compaction is due or runs. One that is due stays so
// until it has changed the tree, and is not over before it is told so.
func quiesce(ctx context.Context, db *sievedb.DB, w *Watcher) error {
	for {
		m := db.Metrics()
		if err := cmp.Or(m.FatalError, m.BackgroundError); err != nil {
			return err
		}
		if m.CompactionDebtBytes == 0 && w.Idle() {
			return nil
		}
		timer := time.NewTimer(10 * time.Millisecond)
		select {
		case <-ctx.Done():
		case <-w.ended:
		case <-timer.C:
		}
		timer.Stop()
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// Settle waits until the tree has stayed as it is for a while, since Metrics
// does not tell all that may be due. That it then stays so during the lookups
// is checked there.
func Settle(ctx context.Context, db *sievedb.DB, meter *meter.Meter) (sievedb.Metrics, error) {
	const interval, calm = 20 * time.Millisecond, 15
	tick := time.NewTicker(interval)
	defer tick.Stop()
	m := db.Metrics()
	debt := m.CompactionDebtBytes
	p := meter.Phase("settle", int64(debt))
	defer p.Done()
	for unchanged := 0; unchanged < calm; {
		select {
		case <-ctx.Done():
			return m, ctx.Err()
		case <-tick.C:
		}
		next := db.Metrics()
		if err := cmp.Or(next.FatalError, next.BackgroundError); err != nil {
			return m, err
		}
		unchanged++
		if next.CompactionDebtBytes > 0 || ShapeOf(&next) != ShapeOf(&m) {
			unchanged = 0
		}
		m = next
		p.Set(int64(debt - min(debt, m.CompactionDebtBytes)))
	}
	return m, nil
}

// Shape tells whether a tree was changed.
type Shape [len(sievedb.Metrics{}.Levels)]struct {
	tables int
	bytes  uint64
}

// ShapeOf returns the shape of the tree.
func ShapeOf(m *sievedb.Metrics) (s Shape) {
	for i := range m.Levels {
		s[i].tables, s[i].bytes = m.Levels[i].Tables, m.Levels[i].Bytes
	}
	return s
}
