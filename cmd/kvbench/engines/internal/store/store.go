// Package store puts one face on several embedded key-value stores, as thin as
// their differences allow: one file for each engine. A Store is for one
// goroutine.
//
//	s, err := store.Engines()[0].Open(dir, &store.Options{})
package store

// Options are what a store is opened with.
type Options struct {
	// Synced makes each write wait for the disk. It holds for the defaults, too.
	Synced bool
	// Tuned sets what follows, as far as the engine knows it; otherwise it has
	// its own defaults.
	Tuned         bool
	CacheBytes    int64 // of data blocks
	MemtableBytes int64
	BitsPerKey    int // of the filter of each table
}

// blockBytes is the size of a data block of tuned stores.
const blockBytes = 4 << 10

// Entry is what PutBatch writes. The slices belong to the caller.
type Entry struct{ Key, Value []byte }

// Store is an open store.
type Store interface {
	Put(key, value []byte) error
	// PutBatch writes all entries or none.
	PutBatch(entries []Entry) error
	// Get returns the value, which may use dst's memory and is valid until the
	// next call.
	Get(dst, key []byte) (value []byte, found bool, err error)
	Delete(key []byte) error
	// Scan visits entries in order from the first key at or after from on, all
	// if it is nil, until visit returns false. The slices are valid during the
	// visit.
	Scan(from []byte, visit func(key, value []byte) bool) error
	// Backward visits all entries from the last one on.
	Backward(visit func(key, value []byte) bool) error
	// Compact makes of everything what the engine makes of it at best. It
	// reports false where there is no such thing.
	Compact() (done bool, err error)
	Close() error
}

// Engine is a kind of store.
type Engine struct {
	Name   string
	Module string // the Go module that it comes from
	Note   string // what is particular about it, for the report
	// Open makes a store in dir, which exists, or opens the one that is there.
	Open func(dir string, o *Options) (Store, error)
}

// Engines returns all of them, sievedb first.
func Engines() []Engine { return []Engine{sieve, pebbleEngine, badgerEngine, goleveldb, bboltEngine} }
