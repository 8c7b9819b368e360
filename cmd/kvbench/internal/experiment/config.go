// Package experiment makes the measurements of kvbench, through the public API
// of the store: it loads one, or takes an existing one, asks it, and returns
// what package report describes.
//
// Everything is done by one goroutine, one operation after the other, so that
// latencies are those of an idle store and counts are the same for a seed.
// Each function returns what was measured so far together with the error if
// its context ends; only if there is nothing does it return nil.
//
//	run, err := experiment.Lookups(ctx, &c, m)
package experiment

import (
	"os"

	"sievedb"
	"sievedb/cmd/kvbench/internal/meter"
	"sievedb/cmd/kvbench/internal/place"
	"sievedb/cmd/kvbench/internal/workload"
)

// Config is what all experiments have in common.
type Config struct {
	KeysCount  int    // numbered keys to store, unless there is a file
	KeysFile   string // one key a line; empty is numbered keys
	Sample     int    // of the keys in the file; zero is all
	Lookups    int    // at most, in each pass
	ValueBytes int
	Bits       float64
	CacheMiB   int
	// MemtableMiB is the size of a memtable for Ops; zero is the store's default.
	MemtableMiB int
	Seed        uint64
	// Dir is where to make the store, which stays there; empty is a temporary
	// directory, which is removed unless Keep.
	Dir  string
	Keep bool
	// DB is an existing store to read instead.
	DB   string
	Cold bool // empty the page cache before each pass
}

// newKeys returns the keys for a store that is to be made.
func (c *Config) newKeys() (*workload.Keys, error) {
	if c.KeysFile != "" {
		return workload.FromFile(c.KeysFile, c.Sample, c.Seed)
	}
	return workload.Numbered(c.KeysCount, c.Seed), nil
}

// existingKeys draws keys from the existing store.
func (c *Config) existingKeys(n int, m *meter.Meter) (k *workload.Keys, err error) {
	p := m.Phase("read the keys of the store", 0)
	defer p.Done()
	o := &sievedb.Options{DisableFilters: true}
	err = place.With(c.openExisting, c.DB, o, func(db *sievedb.DB) (err error) {
		if c.KeysFile != "" {
			k, err = workload.FromFileAndStore(db, c.KeysFile, c.Sample, c.Seed)
		} else {
			k, err = workload.FromStore(db, "its own keys", n, c.Seed)
		}
		return err
	})
	return k, err
}

// openExisting opens the existing store without changing anything in it.
func (c *Config) openExisting(dir string, o *sievedb.Options) (*sievedb.DB, error) {
	if _, err := os.Stat(dir); err != nil {
		return nil, err // it names the directory
	}
	return sievedb.OpenReadOnly(dir, o)
}

// CacheBytes returns the size of the cache as sievedb.Options want it.
func (c *Config) CacheBytes() int64 {
	if c.CacheMiB == 0 {
		return -1
	}
	return int64(c.CacheMiB) << 20
}
