package trial

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"sievedb/cmd/kvbench/engines/internal/store"
	"sievedb/cmd/kvbench/internal/kernel"
	"sievedb/cmd/kvbench/internal/report"
	"sievedb/cmd/kvbench/internal/workload"
)

// measured is what a workload took.
type measured struct {
	operations int
	took       time.Duration
	histogram  *hdrhistogram.Histogram // nil if single operations were not timed
	kernel     *report.Kernel
}

// drawn is an operation that was chosen: on the i-th key, but for lookups of
// absent keys.
type drawn struct {
	op  workload.Op
	i   int
	key []byte
}

// chunk is how many operations are chosen at a time.
const chunk = 256

// timed makes n operations. They are chosen, and their keys written, between
// the timed stretches, so that the times are those of the engine; what is
// checked of each answer takes a few nanoseconds. Every 16th is timed by itself,
// for the percentiles: the clock would slow down all of them.
func (t *Trial) timed(db store.Store, n int, draw func(*drawn)) (*measured, error) {
	every := max(1, min(16, n/1000))
	m := &measured{operations: n, histogram: hdrhistogram.New(1, time.Minute.Nanoseconds(), 3)}
	var calls [chunk]drawn
	counts := kernel.Start()
	for made := 0; made < n; {
		now := calls[:min(chunk, n-made)]
		for i := range now {
			c := &now[i]
			draw(c)
			if c.op == workload.Absent {
				half := t.keys.Absent / 2 // inserts use up the others
				c.key = t.keys.AbsentKey(c.key[:0], half+t.rng.IntN(t.keys.Absent-half))
			} else {
				c.key = t.key(c.key[:0], c.i)
			}
		}
		start := time.Now()
		for i := range now {
			c := &now[i]
			if (made+i)%every > 0 {
				if err := t.do(db, c); err != nil {
					return nil, err
				}
				continue
			}
			begin := time.Now()
			if err := t.do(db, c); err != nil {
				return nil, err
			}
			ns := min(max(time.Since(begin).Nanoseconds(), 1), time.Minute.Nanoseconds())
			_ = m.histogram.RecordValue(ns) // its only error is a value beyond the range
		}
		m.took += time.Since(start)
		made += len(now)
	}
	m.kernel = counts.Stop()
	return m, nil
}

// key appends the i-th key of those that versions lists.
func (t *Trial) key(dst []byte, i int) []byte {
	if i < t.keys.Stored {
		return t.keys.StoredKey(dst, i)
	}
	return t.keys.AbsentKey(dst, i-t.keys.Stored)
}

// do makes one operation and checks its answer.
func (t *Trial) do(db store.Store, c *drawn) (err error) {
	switch c.op {
	case workload.Absent:
		var found bool
		if t.value, found, err = db.Get(t.value, c.key); found {
			err = fmt.Errorf("WRONG ANSWER: key %.64q was found, but never stored", c.key)
		}
		return err
	case workload.Read:
		return t.read(db, c)
	case workload.Scan:
		return t.scanFrom(db, c)
	case workload.Delete:
		t.versions[c.i] = deleted
		return db.Delete(c.key)
	}
	version := uint32(0)
	if t.versions != nil { // else a fill of a store of its own
		version = t.versions[c.i] + 1 // 0 after deleted
		t.versions[c.i] = version
	}
	return db.Put(c.key, t.values.Of(c.i, version))
}

func (t *Trial) read(db store.Store, c *drawn) (err error) {
	want := t.versions[c.i]
	if want != deleted {
		t.value, err = checked(db, t.value, c.key, t.values.Of(c.i, want))
		return err
	}
	var found bool
	if t.value, found, err = db.Get(t.value, c.key); found {
		err = fmt.Errorf("WRONG ANSWER: key %.64q was found, but deleted", c.key)
	}
	return err
}

// scanFrom reads 100 entries. While nothing was changed since the load, they
// are known; later only their order is.
func (t *Trial) scanFrom(db store.Store, c *drawn) error {
	const length = 100
	n, sum, ordered := 0, uint64(0), true
	last := t.value[:0]
	err := db.Scan(c.key, func(key, value []byte) bool {
		ordered = ordered && bytes.Compare(key, last) >= 0
		last = append(last[:0], key...)
		sum += fingerprint(key, value)
		n++
		return n < length
	})
	t.value = last
	switch {
	case err != nil:
		return err
	case !ordered:
		return errors.New("WRONG ANSWER: a scan is not in order")
	case t.changed || c.i >= t.keys.Stored:
		return nil
	}
	from := t.rank[c.i]
	if to := min(from+length, t.keys.Stored); n != to-from || sum != t.prints[to]-t.prints[from] {
		return fmt.Errorf("WRONG ANSWER: a scan from %.64q has %d entries, or not those %d that were stored", c.key, n, to-from)
	}
	return nil
}
