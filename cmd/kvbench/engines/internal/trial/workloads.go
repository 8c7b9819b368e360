package trial

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"sievedb/cmd/kvbench/engines/internal/store"
	"sievedb/cmd/kvbench/internal/kernel"
	"sievedb/cmd/kvbench/internal/workload"
)

// kind is a workload.
type kind struct {
	name, unit string
	writes     bool // to the store that the next ones find
	run        func(*Trial) (*measured, error)
}

// What the times are of.
const (
	operation = "operation"
	entry     = "entry"
	call      = "call"
)

// Names of the workloads after which the size of the store is of interest.
const (
	Load    = "fill, batches"
	Compact = "compact"
)

// workloads in the order in which they are made. The fills but for the load
// have a store of their own each.
var workloads = []kind{
	{"fill, sequential", operation, false, (*Trial).fillSequential},
	{"fill, random", operation, false, (*Trial).fillRandom},
	{"fill, synced", operation, false, (*Trial).fillSynced},
	{Load, entry, true, (*Trial).load},
	{"absent, loaded", operation, false, (*Trial).absent},
	{"present, loaded", operation, false, (*Trial).present},
	{Compact, call, true, (*Trial).compact},
	{"absent", operation, false, (*Trial).absent},
	{"present", operation, false, (*Trial).present},
	{"scan 100", operation, false, (*Trial).scan},
	{"full scan", entry, false, (*Trial).fullScan},
	{"full scan back", entry, false, (*Trial).fullScanBack},
	{"mixed", operation, true, (*Trial).mixed},
	{"overwrite", operation, true, (*Trial).overwrite},
	{"delete", operation, false, (*Trial).remove},
}

// Names returns the names of the workloads, in the order in which Run takes
// them.
func Names() (names []string) {
	for _, w := range workloads {
		names = append(names, w.name)
	}
	return names
}

func (t *Trial) fillSequential() (*measured, error) {
	first := make([]bool, t.keys.Stored) // the same keys as a random fill
	for i := range min(t.Singles, t.keys.Stored) {
		first[i] = true
	}
	order := slices.DeleteFunc(slices.Clone(t.sorted), func(i int) bool { return !first[i] })
	return t.fill(t.Options, order)
}

func (t *Trial) fillRandom() (*measured, error) { return t.fill(t.Options, t.firstKeys(t.Singles)) }

func (t *Trial) fillSynced() (*measured, error) {
	o := t.Options
	o.Synced = true
	return t.fill(o, t.firstKeys(t.Synced))
}

// firstKeys returns the first n keys in the order in which they are stored.
func (t *Trial) firstKeys(n int) []int {
	order := make([]int, min(n, t.keys.Stored))
	for i := range order {
		order[i] = i
	}
	return order
}

func (t *Trial) fill(o store.Options, order []int) (m *measured, err error) {
	err = t.withStore(o, func(db store.Store) error {
		next := 0
		m, err = t.timed(db, len(order), func(c *drawn) {
			c.op, c.i = workload.Insert, order[next]
			next++
		})
		if err != nil {
			return err
		}
		for _, i := range order[:min(len(order), 1000)] {
			t.value, err = checked(db, t.value, t.key(nil, i), t.values.Of(i, 0))
			if err != nil {
				return err
			}
		}
		return nil
	})
	return m, err
}

// checked looks a key up that must have this value.
func checked(db store.Store, dst, key, want []byte) ([]byte, error) {
	got, found, err := db.Get(dst, key)
	switch {
	case err != nil:
		return got, err
	case !found:
		return got, fmt.Errorf("WRONG ANSWER: key %.64q was stored, but not found", key)
	case !bytes.Equal(got, want):
		return got, fmt.Errorf("WRONG ANSWER: key %.64q has another value than was stored last", key)
	}
	return got, nil
}

func (t *Trial) load() (*measured, error) {
	dir := filepath.Join(t.Dir, "store")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	db, err := t.engine.Open(dir, &t.Options)
	if err != nil {
		return nil, err
	}
	t.db = db
	const batchLen = 100
	m := &measured{operations: t.keys.Stored}
	entries := make([]store.Entry, 0, batchLen)
	for i := 0; i < t.keys.Stored; {
		entries = entries[:0]
		for ; i < t.keys.Stored && len(entries) < batchLen; i++ {
			entries = append(entries, store.Entry{Key: t.key(nil, i), Value: t.values.Of(i, 0)})
		}
		start := time.Now()
		if err := db.PutBatch(entries); err != nil {
			return nil, err
		}
		m.took += time.Since(start)
	}
	t.versions = make([]uint32, t.keys.Stored)
	return m, nil
}

// warmed makes a quarter of the operations before it times them all.
func (t *Trial) warmed(n int, draw func(c *drawn)) (*measured, error) {
	if _, err := t.timed(t.db, n/4, draw); err != nil {
		return nil, err
	}
	return t.timed(t.db, n, draw)
}

func (t *Trial) absent() (*measured, error) {
	return t.warmed(t.Lookups, func(c *drawn) { c.op = workload.Absent })
}

func (t *Trial) present() (*measured, error) {
	return t.warmed(t.Lookups, func(c *drawn) { c.op, c.i = workload.Read, t.rng.IntN(t.keys.Stored) })
}

func (t *Trial) scan() (*measured, error) {
	return t.warmed(t.Scans, func(c *drawn) { c.op, c.i = workload.Scan, t.rng.IntN(t.keys.Stored) })
}

func (t *Trial) compact() (*measured, error) {
	start := time.Now()
	done, err := t.db.Compact()
	if err != nil || !done {
		return nil, err
	}
	return &measured{operations: 1, took: time.Since(start)}, nil
}

func (t *Trial) fullScan() (*measured, error) {
	return t.full(func(visit func(key, value []byte) bool) error { return t.db.Scan(nil, visit) }, 1)
}

func (t *Trial) fullScanBack() (*measured, error) { return t.full(t.db.Backward, -1) }

// full reads all entries, which must come in order.
func (t *Trial) full(scan func(visit func(key, value []byte) bool) error, sign int) (*measured, error) {
	n, sum, ordered := 0, uint64(0), true
	var last []byte
	visit := func(key, value []byte) bool {
		ordered = ordered && (n == 0 || sign*bytes.Compare(key, last) > 0)
		last = append(last[:0], key...)
		sum += fingerprint(key, value)
		n++
		return true
	}
	counts, start := kernel.Start(), time.Now()
	err := scan(visit)
	m := &measured{operations: n, took: time.Since(start), kernel: counts.Stop()}
	switch {
	case err != nil:
		return nil, err
	case !ordered:
		return nil, fmt.Errorf("WRONG ANSWER: the keys are not in order, at %.64q", last)
	case n != t.keys.Stored || sum != t.prints[n]:
		return nil, fmt.Errorf("WRONG ANSWER: %d entries, or not those %d that were stored", n, t.keys.Stored)
	}
	return m, nil
}

// mix is that of the definitions in package versus.
var mix = workload.Mix{workload.Read: 0.5, workload.Absent: 0.2, workload.Update: 0.2, workload.Insert: 0.05, workload.Scan: 0.03, workload.Delete: 0.02}

func (t *Trial) mixed() (*measured, error) {
	t.changed = true
	inserts := t.keys.Absent / 2
	return t.timed(t.db, t.Lookups, func(c *drawn) {
		c.op, c.i = mix.Draw(t.rng), t.rng.IntN(len(t.versions))
		if c.op == workload.Insert {
			if inserts == 0 {
				c.op = workload.Update
				return
			}
			inserts--
			c.i = len(t.versions)
			t.versions = append(t.versions, deleted)
		}
	})
}

func (t *Trial) overwrite() (*measured, error) {
	return t.timed(t.db, t.Lookups, func(c *drawn) { c.op, c.i = workload.Update, t.rng.IntN(len(t.versions)) })
}

// remove deletes, and then looks at some keys, deleted ones among them.
func (t *Trial) remove() (*measured, error) {
	draw := func(op workload.Op) func(c *drawn) {
		return func(c *drawn) { c.op, c.i = op, t.rng.IntN(len(t.versions)) }
	}
	m, err := t.timed(t.db, t.Lookups/2, draw(workload.Delete))
	if err != nil {
		return nil, err
	}
	_, err = t.timed(t.db, t.Lookups/4, draw(workload.Read))
	return m, err
}
