// Package crash kills a process that writes to a store, at random moments, and
// checks after each kill that the store has what was acknowledged.
//
// The process that writes is this program again, with the arguments of
// ChildArgs; it calls Write. Batches are numbered, and what each holds follows
// from the seed and its number, so that the store can be compared with what
// the batches up to any one make. Each batch also stores its own number, so
// that the store says which one that is. One goroutine runs everything but
// the reading of the child's output.
package crash

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"sievedb"
	"sievedb/cmd/kvbench/internal/meter"
	"sievedb/cmd/kvbench/internal/report"
	"sievedb/cmd/kvbench/internal/workload"
)

// Config says what to do.
type Config struct {
	Kills      int
	Seed       uint64
	Keys       int
	ValueBytes int
	Synced     bool
	Dir        string // of a store that may be there already in part
	// ChildArgs are the arguments of this program that make it call Write; the
	// number of the first batch is added as the last one.
	ChildArgs []string
}

// patience is how long a child may take for one batch before it counts as
// hung, far longer than any flush or compaction of so little.
const patience = time.Minute

// Run makes the kills. It returns what it found so far together with the error
// of a context that ended, and nothing with any other.
func Run(ctx context.Context, c *Config, m *meter.Meter) (*report.Crash, error) {
	run := &report.Crash{Setup: report.CrashSetup{
		Kills: c.Kills, Seed: c.Seed, Keys: c.Keys, ValueBytes: c.ValueBytes, Synced: c.Synced, Machine: report.ThisMachine(),
	}}
	rng := rand.New(rand.NewPCG(c.Seed, 5))
	model := newModel(c)
	p := m.Phase("kills", int64(c.Kills))
	defer p.Done()
	for range c.Kills {
		acknowledged, err := c.kill(ctx, model.last, rng)
		if ctx.Err() != nil {
			err = ctx.Err() // it killed the child
		}
		if err == nil {
			var k report.Kill
			k, err = c.verify(model, acknowledged)
			run.Kills = append(run.Kills, k)
		}
		if err != nil {
			if ctx.Err() == nil || len(run.Kills) == 0 {
				return nil, fmt.Errorf("kill %d: %w", len(run.Kills)+1, err)
			}
			run.Interrupted = true
			run.Complete()
			return run, err
		}
		p.Add(1)
	}
	run.Complete()
	return run, nil
}

// kill starts a child that writes the batches after last, and kills it after
// some were acknowledged. It returns the last of those.
func (c *Config) kill(ctx context.Context, last uint64, rng *rand.Rand) (acknowledged uint64, err error) {
	program, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("finding this program: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	args := append(append([]string{}, c.ChildArgs...), strconv.FormatUint(last+1, 10))
	child := exec.CommandContext(ctx, program, args...)
	var complaint strings.Builder
	child.Stderr = &complaint
	out, err := child.StdoutPipe()
	if err != nil {
		return 0, fmt.Errorf("starting the writer: %w", err)
	}
	if err := child.Start(); err != nil {
		return 0, fmt.Errorf("starting the writer: %w", err)
	}
	// Most kills hit in the middle of a stream of batches, some at the start.
	batches, delay := rng.IntN(400), time.Duration(rng.IntN(2000))*time.Microsecond
	acknowledged, killed := last, false
	lines := bufio.NewScanner(out)
	var wrong error
	for lines.Scan() {
		n, err := strconv.ParseUint(lines.Text(), 10, 64)
		if err != nil || n != acknowledged+1 {
			wrong = fmt.Errorf("the writer said %q after batch %d", lines.Text(), acknowledged)
			break
		}
		acknowledged = n
		if n >= last+uint64(batches) && !killed {
			time.Sleep(delay) // so that the moment is not always just after a write
			killed = true
			if err := child.Process.Kill(); err != nil {
				wrong = fmt.Errorf("killing the writer: %w", err)
				break
			}
		}
	}
	if wrong != nil {
		_ = child.Process.Kill()
	}
	_, _ = io.Copy(io.Discard, out)
	err = child.Wait()
	switch {
	case wrong != nil:
		return 0, wrong
	case !killed && ctx.Err() != nil:
		return 0, fmt.Errorf("the writer hung after batch %d", acknowledged)
	case !killed:
		return 0, fmt.Errorf("the writer ended by itself: %v: %s", err, strings.TrimSpace(complaint.String()))
	}
	return acknowledged, nil
}

// options make flushes and compactions frequent, so that kills hit them.
func (c *Config) options() *sievedb.Options {
	o := &sievedb.Options{MemtableBytes: 128 << 10, TableBytes: 64 << 10, Durability: sievedb.SyncNever}
	if c.Synced {
		o.Durability = sievedb.SyncAlways
	}
	return o
}

// Write is the child: it writes batches from first on until it is killed, the
// context ends or a write fails, and says the number of each that was
// acknowledged.
func Write(ctx context.Context, c *Config, first uint64, w io.Writer) (err error) {
	db, err := sievedb.Open(c.Dir, c.options())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	m := newModel(c)
	for n := first; ctx.Err() == nil; n++ {
		b := db.NewBatch()
		m.batch(n, func(key int, version uint32) {
			if version == deleted {
				b.Delete(appendKey(nil, key))
			} else {
				b.Put(appendKey(nil, key), m.values.Of(key, version))
			}
		})
		b.Put([]byte(counterKey), binary.LittleEndian.AppendUint64(nil, n))
		if err := db.Apply(b, sievedb.StoreDefault); err != nil {
			return fmt.Errorf("batch %d: %w", n, err)
		}
		if _, err := fmt.Fprintln(w, n); err != nil {
			return fmt.Errorf("acknowledging batch %d: %w", n, err)
		}
	}
	return ctx.Err()
}

// model is what the store should hold after batch last.
type model struct {
	seed     uint64
	values   workload.Values
	last     uint64
	versions []uint32
}

const (
	deleted    = ^uint32(0)
	counterKey = "~last batch" // after all others
)

func newModel(c *Config) *model {
	m := &model{seed: c.Seed, values: workload.NewValues(c.ValueBytes, c.Seed), versions: make([]uint32, c.Keys)}
	for i := range m.versions {
		m.versions[i] = deleted
	}
	return m
}

func appendKey(dst []byte, i int) []byte { return fmt.Appendf(dst, "key%08d", i) }

// batch yields the writes of batch n.
func (m *model) batch(n uint64, yield func(key int, version uint32)) {
	rng := rand.New(rand.NewPCG(m.seed, n))
	for range 1 + rng.IntN(8) {
		key, version := rng.IntN(len(m.versions)), rng.Uint32()%(1<<31)
		if rng.IntN(5) == 0 {
			version = deleted
		}
		yield(key, version)
	}
}

// advance makes the batches up to n.
func (m *model) advance(n uint64) {
	for m.last < n {
		m.last++
		m.batch(m.last, func(key int, version uint32) { m.versions[key] = version })
	}
}

// verify opens the store after a kill, advances the model to the batch that the
// store says was its last, and compares everything.
func (c *Config) verify(m *model, acknowledged uint64) (k report.Kill, err error) {
	start := time.Now()
	db, err := sievedb.Open(c.Dir, c.options())
	if err != nil {
		return k, fmt.Errorf("opening the store: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	k.Acknowledged, k.OpenSeconds = acknowledged, time.Since(start).Seconds()
	if k.Recovered, err = lastBatch(db); err != nil {
		return k, err
	}
	switch {
	case k.Recovered > acknowledged+1:
		return k, fmt.Errorf("batch %d is there, but %d was the last that could be on its way", k.Recovered, acknowledged+1)
	case k.Recovered < m.last:
		// The kill before, the store had these, and it was closed since.
		return k, fmt.Errorf("batch %d was there after the last kill; now %d is the last", m.last, k.Recovered)
	}
	m.advance(k.Recovered)
	k.Entries, err = m.compare(db)
	return k, err
}

func lastBatch(db *sievedb.DB) (uint64, error) {
	v, err := db.Get([]byte(counterKey))
	switch {
	case errors.Is(err, sievedb.ErrNotFound):
		return 0, nil
	case err != nil:
		return 0, err
	case len(v) != 8:
		return 0, fmt.Errorf("the number of the last batch has %d bytes", len(v))
	}
	return binary.LittleEndian.Uint64(v), nil
}

// compare looks at every key by itself and in a scan.
func (m *model) compare(db *sievedb.DB) (entries int, err error) {
	var key []byte
	for i, version := range m.versions {
		key = appendKey(key[:0], i)
		v, err := db.Get(key)
		switch {
		case err != nil && !errors.Is(err, sievedb.ErrNotFound):
			return entries, err
		case err != nil && version != deleted:
			return entries, fmt.Errorf("after batch %d, key %s is lost", m.last, key)
		case err == nil && version == deleted:
			return entries, fmt.Errorf("after batch %d, key %s is there, but was deleted or never written", m.last, key)
		case err == nil && !bytes.Equal(v, m.values.Of(i, version)):
			return entries, fmt.Errorf("after batch %d, key %s has another value", m.last, key)
		case err == nil:
			entries++
		}
	}
	if m.last > 0 {
		entries++ // the counter
	}
	scanned := 0
	it := db.All()
	for range it.All() {
		scanned++
	}
	if err := it.Err(); err != nil {
		return entries, fmt.Errorf("scanning: %w", err)
	}
	if scanned != entries {
		return entries, fmt.Errorf("after batch %d, a scan finds %d entries, lookups %d", m.last, scanned, entries)
	}
	return entries, nil
}
