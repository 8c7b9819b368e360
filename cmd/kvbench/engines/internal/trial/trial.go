// Package trial makes the workloads on one engine and times them. It checks
// every answer against what was written: a wrong one is an error. A Trial is
// for one goroutine; Serve runs one in a process of its own.
//
//	t, err := trial.New(engine, &config)
//	sample, err := t.Run("absent")
package trial

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"sievedb/cmd/kvbench/engines/internal/store"
	"sievedb/cmd/kvbench/internal/versus"
	"sievedb/cmd/kvbench/internal/workload"
)

// Config is what each engine is asked for, the same for all.
type Config struct {
	Keys       int    // numbered keys, unless there is a file
	KeysFile   string // one key a line; half of them are stored
	Seed       uint64
	ValueBytes int
	Singles    int // writes of one entry, in fills
	Synced     int // writes that wait for the disk
	Lookups    int // and operations of the mix, overwrites, and twice the deletes
	Scans      int // of 100 entries
	Dir        string
	Options    store.Options
	// Rest is how long no file may change until a store is at rest; zero does
	// not wait for that.
	Rest time.Duration
}

// NewKeys returns the keys that the configuration names.
func (c *Config) NewKeys() (*workload.Keys, error) {
	if c.KeysFile != "" {
		return workload.FromFile(c.KeysFile, 0, c.Seed)
	}
	return workload.Numbered(c.Keys, c.Seed), nil
}

// Trial is one engine, with a store that the workloads change one after the
// other.
type Trial struct {
	*Config
	engine store.Engine
	keys   *workload.Keys
	values workload.Values
	db     store.Store // nil until it is loaded
	rng    *rand.Rand  // of the workload that runs

	// versions says what value each key has that was stored so far: the stored
	// ones, then the first half of the absent ones, which inserts use up.
	versions []uint32
	changed  bool     // since the load
	sorted   []int    // the stored keys in their order
	rank     []int    // the place of each of them there
	prints   []uint64 // sums of the fingerprints of the sorted entries before each

	value []byte // reused by every lookup
}

// deleted is the version of a key that is gone.
const deleted = ^uint32(0)

// New prepares a trial in the configuration's directory, which must exist.
func New(engine store.Engine, c *Config) (*Trial, error) {
	keys, err := c.NewKeys()
	if err != nil {
		return nil, err
	}
	if keys.Absent < 2 { // one to insert, one to look up
		return nil, fmt.Errorf("of %s, no absent keys lie between the stored ones", keys.Name)
	}
	t := &Trial{Config: c, engine: engine, keys: keys, values: workload.NewValues(c.ValueBytes, c.Seed)}
	n := keys.Stored
	all := make([][]byte, n)
	t.sorted, t.rank, t.prints = make([]int, n), make([]int, n), make([]uint64, n+1)
	for i := range n {
		all[i], t.sorted[i] = keys.StoredKey(nil, i), i
	}
	slices.SortFunc(t.sorted, func(i, j int) int { return bytes.Compare(all[i], all[j]) })
	for at, i := range t.sorted {
		t.rank[i] = at
		t.prints[at+1] = t.prints[at] + fingerprint(all[i], t.values.Of(i, 0))
	}
	return t, nil
}

// fingerprint sums up an entry so cheaply that times stay those of the engine.
func fingerprint(key, value []byte) uint64 {
	sum := uint64(len(key)) + uint64(len(value))<<16 + uint64(key[len(key)-1])<<32
	if len(value) > 0 {
		sum += uint64(value[0]) << 40
	}
	return sum
}

// Run makes a workload and, if it writes, waits until the store is at rest.
// Those of Names belong in their order. It returns nil for what the engine has not.
func (t *Trial) Run(name string) (*versus.Sample, error) {
	i := slices.IndexFunc(workloads, func(w kind) bool { return w.name == name })
	if i < 0 {
		return nil, fmt.Errorf("no workload is called %q", name)
	}
	w := workloads[i]
	if t.db == nil && i > slices.IndexFunc(workloads, func(w kind) bool { return w.name == Load }) {
		return nil, fmt.Errorf("%s: nothing was loaded", name)
	}
	t.rng = rand.New(rand.NewPCG(t.Seed, uint64(i)))
	m, err := w.run(t)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if w.writes && t.Rest > 0 {
		if err := rest(t.Dir, t.Rest); err != nil {
			return nil, fmt.Errorf("after %s: %w", name, err)
		}
	}
	if m == nil {
		return nil, nil
	}
	x := &versus.Sample{Workload: name, Engine: t.engine.Name, Unit: w.unit, Operations: m.operations,
		MeanNs: float64(m.took.Nanoseconds()) / float64(max(m.operations, 1))}
	if m.histogram != nil {
		x.P50Ns, x.P99Ns = m.histogram.ValueAtQuantile(50), m.histogram.ValueAtQuantile(99)
	}
	if m.kernel != nil {
		x.ReadCalls = &m.kernel.ReadCalls
	}
	return x, nil
}

// Close closes the store.
func (t *Trial) Close() error {
	if t.db == nil {
		return nil
	}
	return t.db.Close()
}

// withStore opens a store of its own for f, and removes it.
func (t *Trial) withStore(o store.Options, f func(store.Store) error) error {
	dir := filepath.Join(t.Dir, "fill")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	db, err := t.engine.Open(dir, &o)
	if err != nil {
		return err
	}
	err = errors.Join(f(db), db.Close())
	return errors.Join(err, os.RemoveAll(dir))
}

// rest waits until no file was changed for a while: what is due in the
// background is done then. Engines do not all tell, but all write files.
func rest(dir string, calm time.Duration) error {
	const looks, most = 10, 2400 // in each calm while, and in all
	last, unchanged := "", 0
	for range most {
		now, err := listing(dir)
		if err != nil {
			return err
		}
		if unchanged++; now != last {
			last, unchanged = now, 0
		}
		if unchanged == looks {
			return nil
		}
		time.Sleep(calm / looks)
	}
	return errors.New("the store does not come to rest")
}

// listing says which files there are, how large and how new.
func listing(dir string) (string, error) {
	var b bytes.Buffer
	err := walk(dir, func(name string, info fs.FileInfo) {
		fmt.Fprintln(&b, name, info.Size(), info.ModTime().UnixNano())
	})
	return b.String(), err
}

// DiskBytes returns what the files of the store occupy.
func (t *Trial) DiskBytes() (sum uint64, err error) {
	err = walk(t.Dir, func(_ string, info fs.FileInfo) { sum += occupied(info) })
	return sum, err
}

// walk visits files, of which some may vanish meanwhile.
func walk(dir string, visit func(name string, info fs.FileInfo)) error {
	return filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			var info fs.FileInfo
			if info, err = d.Info(); err == nil {
				visit(name, info)
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
}
