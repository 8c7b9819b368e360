package sievedb

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"

	"sievedb/filter"
	"sievedb/internal/cache"
	"sievedb/vfs"
)

// Limits of what one entry can hold.
const (
	// MaxKeyBytes is the longest key, in bytes.
	MaxKeyBytes = 64 << 10
	// MaxValueBytes is the longest value, in bytes.
	MaxValueBytes = 1 << 30
)

// Durability says when a write is safe from a crash of the machine. A write
// that returned is always visible to later reads, whatever its durability.
type Durability uint8

const (
	// StoreDefault stands for the store's own setting, Options.Durability.
	StoreDefault Durability = iota
	// SyncAlways returns from a write once it survives a power failure.
	SyncAlways
	// SyncNever returns once the write is buffered. It reaches the operating
	// system within milliseconds, where it survives the death of the process,
	// and the disk with a later synced write, DB.Sync, DB.Flush, DB.Close, or
	// when its memtable, two full ones later at most, is a table. A crash loses
	// only a suffix of the writes.
	SyncNever
)

// String names the setting.
func (d Durability) String() string {
	switch d {
	case StoreDefault:
		return "StoreDefault"
	case SyncAlways:
		return "SyncAlways"
	case SyncNever:
		return "SyncNever"
	}
	return fmt.Sprintf("Durability(%d)", uint8(d))
}

// Compression says how data blocks are stored.
type Compression uint8

const (
	// Snappy compresses each block that thereby shrinks by an eighth or more.
	Snappy Compression = iota
	// NoCompression stores every block as it is.
	NoCompression
)

// String names the setting.
func (c Compression) String() string {
	switch c {
	case Snappy:
		return "Snappy"
	case NoCompression:
		return "NoCompression"
	}
	return fmt.Sprintf("Compression(%d)", uint8(c))
}

// Cache holds data blocks in memory, for one store or for several. It is safe
// for concurrent use and needs no closing.
type Cache struct{ blocks *cache.Cache }

// NewCache returns a cache of at most sizeBytes bytes, to be shared between
// stores through Options.Cache.
func NewCache(sizeBytes int64) *Cache { return &Cache{cache.New(max(sizeBytes, 0))} }

// Options tune a store. The zero value of each field means its default, which
// DB.Options shows; none of them changes what is already on disk, so any
// setting may differ from one Open to the next.
type Options struct {
	// FS is the file system; nil is the operating system's.
	FS vfs.FS
	// MustExist makes Open fail where there is no store yet.
	MustExist bool
	// MustBeNew makes Open fail where there is a store already.
	MustBeNew bool

	// Durability of Put, Delete, and of Apply with StoreDefault. Default:
	// SyncAlways.
	Durability Durability

	// MemtableBytes is the memory of one memtable, in bytes; up to three exist
	// at a time, and each becomes one table. Default: 32 MiB. As with CacheBytes,
	// most of it is outside the Go heap where that can be (on Linux), and GOMEMLIMIT
	// does not count it.
	MemtableBytes int64
	// CacheBytes is the memory for data blocks, in bytes; a negative number is
	// none. Default: 32 MiB. Ignored with Cache.
	CacheBytes int64
	// Cache is a cache shared with other stores; nil is one of this store's
	// own.
	Cache *Cache

	// BlockBytes is the size of a data block before compression, in bytes:
	// what one disk read brings. Default: 4 KiB.
	BlockBytes int
	// Compression of new data blocks. Default: Snappy.
	Compression Compression
	// FilterBitsPerKey is the memory that the filters of new tables spend on
	// each distinct key, from 1 to 100, on average: how it is spread over the
	// tree is what Filters says. Default: 10.
	FilterBitsPerKey float64
	// Filters is the policy of filter sizes and kinds. Default: small runs, which are as
	// often asked as large ones, get more bits for each key, so that a lookup
	// of an absent key reads least.
	Filters filter.Policy
	// DisableFilters builds no filters and asks none.
	DisableFilters bool

	// TableBytes is the size at which a compaction starts another table, at
	// the base level, in bytes; it doubles with each deeper level up to eight
	// times as much. Default: 8 MiB.
	TableBytes int64
	// L0CompactTables is the number of tables in level 0 at which they are
	// compacted; L0SlowTables, at which writes are slowed down; L0StopTables,
	// at which they wait. Defaults: 4, 10, 20.
	L0CompactTables, L0SlowTables, L0StopTables int
	// Workers is the number of compactions that may run at once. Default: a
	// quarter of the CPUs, at least 2 and at most 8.
	Workers int
	// MaxOpenFiles is the number of tables whose files are kept open, at least
	// 16. Default: 1000. Where the process may have few files open, half of
	// those at most.
	MaxOpenFiles int

	// Logger gets a line for each event, from level Debug for those of every
	// day to Error for damage and failures; nil is silence.
	Logger *slog.Logger
	// Events is told what happens; nil tells nobody.
	Events *EventListener
	// Latencies measures how long calls take, for Metrics.Latencies. It takes
	// about 120 KiB of memory, and each call reads the clock twice.
	Latencies bool
}

// withDefaults returns the options in force, or one error that lists every
// problem.
func (o *Options) withDefaults() (*Options, error) {
	var c Options
	if o != nil {
		c = *o
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.FS == nil {
		c.FS = vfs.OS()
	}
	setDefault(&c.Durability, SyncAlways)
	setDefault(&c.MemtableBytes, 32<<20)
	setDefault(&c.CacheBytes, 32<<20)
	c.CacheBytes = max(c.CacheBytes, 0)
	if c.Cache == nil {
		c.Cache = NewCache(c.CacheBytes)
	}
	setDefault(&c.BlockBytes, 4<<10)
	setDefault(&c.FilterBitsPerKey, 10)
	setDefault(&c.TableBytes, 8<<20)
	setDefault(&c.L0CompactTables, 4)
	setDefault(&c.L0SlowTables, max(10, c.L0CompactTables))
	setDefault(&c.L0StopTables, max(20, c.L0SlowTables))
	setDefault(&c.Workers, min(max(runtime.NumCPU()/4, 2), 8))
	setDefault(&c.MaxOpenFiles, 1000)
	c.MaxOpenFiles = min(c.MaxOpenFiles, max(vfs.MaxOpenFiles()/2, 16))
	return &c, nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate returns nil, or one error that lists every setting that is out of
// range; errors.Is finds ErrInvalidArgument in it. Open calls it.
func (o *Options) Validate() error {
	var problems []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	inRange := func(name string, value, low, high int64) {
		check(value == 0 || value >= low && value <= high, "%s is %d, not in [%d, %d]", name, value, low, high)
	}
	check(!o.MustExist || !o.MustBeNew, "MustExist and MustBeNew exclude one another")
	check(o.Durability <= SyncNever, "Durability is %v", o.Durability)
	check(o.Compression <= NoCompression, "Compression is %v", o.Compression)
	inRange("MemtableBytes", o.MemtableBytes, 16<<10, 4<<30)
	check(o.CacheBytes <= 1<<46, "CacheBytes is %d, more than %d", o.CacheBytes, int64(1)<<46)
	inRange("BlockBytes", int64(o.BlockBytes), 64, 32<<10)
	if bits := o.FilterBitsPerKey; bits != 0 {
		check(bits >= 1 && bits <= 100 && filter.ValidateMillibits(millibits(bits)) == nil,
			"FilterBitsPerKey is %v, not in [1, 100]", bits)
	}
	err := o.Filters.Validate()
	check(err == nil, "Filters: %w", err)
	inRange("TableBytes", o.TableBytes, 4<<10, 1<<36)
	inRange("L0CompactTables", int64(o.L0CompactTables), 1, 1000)
	inRange("L0SlowTables", int64(o.L0SlowTables), 1, 1000)
	inRange("L0StopTables", int64(o.L0StopTables), 1, 1000)
	d := *o
	setDefault(&d.L0CompactTables, 4)
	setDefault(&d.L0SlowTables, max(10, d.L0CompactTables))
	setDefault(&d.L0StopTables, max(20, d.L0SlowTables))
	check(d.L0CompactTables <= d.L0SlowTables && d.L0SlowTables <= d.L0StopTables,
		"L0CompactTables %d, L0SlowTables %d and L0StopTables %d are not in this order",
		d.L0CompactTables, d.L0SlowTables, d.L0StopTables)
	inRange("Workers", int64(o.Workers), 1, 64)
	inRange("MaxOpenFiles", int64(o.MaxOpenFiles), 16, 1<<20)
	if problems == nil {
		return nil
	}
	return fmt.Errorf("%w: options: %w", ErrInvalidArgument, errors.Join(problems...))
}

// millibits converts bits per key to the unit of package filter. The caller
// checked the range.
func millibits(bitsPerKey float64) uint32 { return uint32(bitsPerKey*1000 + 0.5) }

// filterMillibits is about what a new table's filter spends on each key, until
// its size is known; zero is no filter.
func (o *Options) filterMillibits() uint32 {
	if o.DisableFilters {
		return 0
	}
	return millibits(o.FilterBitsPerKey)
}
