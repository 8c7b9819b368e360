package sievedb

import (
	"errors"
	"maps"
	"time"

	"sievedb/compaction"
	"sievedb/internal/histogram"
	"sievedb/internal/keys"
	"sievedb/internal/manifest"
	"sievedb/internal/offheap"
	"sievedb/internal/table"
	"sievedb/internal/tree"
	"sievedb/sstable"
)

// FilterCounts says what point lookups (Get, GetTo, Has) did with tables whose
// key range covered the key. A lookup checks one table in each run at most.
type FilterCounts struct {
	// Probes is the number of tables checked: the sum of the next four.
	Probes uint64
	// Negatives are tables that were not read, because their filter said no.
	Negatives uint64
	// TruePositives are tables that had the key after their filter said maybe.
	TruePositives uint64
	// FalsePositives are tables that were read in vain: their filter said
	// maybe, and they did not have the key.
	FalsePositives uint64
	// Unfiltered are tables that were read because there was no filter to ask.
	Unfiltered uint64
	// ExpectedFalsePositives is what the tables' predicted rates say
	// FalsePositives should be: the sum over the tables of rate × (Negatives +
	// FalsePositives).
	ExpectedFalsePositives float64
	// BlocksCached and BlocksRead are the data blocks that lookups took from
	// the cache and from the files.
	BlocksCached, BlocksRead uint64
}

func (c *FilterCounts) add(o FilterCounts) {
	c.Probes += o.Probes
	c.Negatives += o.Negatives
	c.TruePositives += o.TruePositives
	c.FalsePositives += o.FalsePositives
	c.Unfiltered += o.Unfiltered
	c.ExpectedFalsePositives += o.ExpectedFalsePositives
	c.BlocksCached += o.BlocksCached
	c.BlocksRead += o.BlocksRead
}

// MeasuredRate returns the share of absent keys for which filters said maybe:
// FalsePositives / (FalsePositives + Negatives); zero if none was asked.
func (c FilterCounts) MeasuredRate() float64 {
	if n := c.FalsePositives + c.Negatives; n > 0 {
		return float64(c.FalsePositives) / float64(n)
	}
	return 0
}

// LevelMetrics describes one level.
type LevelMetrics struct {
	Level   int
	Tables  int
	Bytes   uint64 // of the tables' files
	Entries uint64 // of every kind, without range tombstones
	Deletes uint64 // of those, tombstones
	// RangeDeletes counts range tombstones, each of them once for every stretch
	// of keys that others or the bounds of tables cut it into.
	RangeDeletes uint64
	// Keys is the sum over the tables of their distinct keys.
	Keys uint64
	// FilterBytes are the filters' sizes in the files; they are resident once
	// they were asked.
	FilterBytes uint64
	// BitsPerKey is FilterBytes in bits over the keys of tables with a filter.
	BitsPerKey float64
	// PredictedRate is the mean false-positive rate of the filters, weighted
	// by keys, computed from their bits when they were built; 1 for a table
	// without one.
	PredictedRate float64
	// BadFilters are filters that could not be read or are damaged.
	BadFilters int
	// Filter counts since Open, of tables that are gone, too.
	Filter FilterCounts
}

// MemoryMetrics is where the memory of a store is, in bytes. Memtables and
// CacheSlabs are for the most part outside the Go heap. Total is the sum
// of what is listed before it.
type MemoryMetrics struct {
	Memtables     uint64 // with their trees and indexes
	CacheSlabs    uint64 // of the block cache, for all stores that share it
	CacheOverhead uint64
	CacheOverflow uint64 // blocks in use that the cache has no room for
	Filters       uint64 // resident
	Indexes       uint64 // resident
	RangeDeletes  uint64 // range tombstones of tables, resident
	Total         uint64

	// OffHeap is what the process holds outside the Go heap, for all its stores and
	// caches, and OffHeapRetired the part of it that belongs to memtables which were
	// flushed: it waits for the garbage collector to find that nobody reads them any more. Both are
	// zero where there is no such memory.
	OffHeap, OffHeapRetired uint64
	// OffHeapWarm is resident besides, for the next memtables to use again: as much as
	// the memtables of the open stores take, and 64 MiB, at most.
	OffHeapWarm uint64
}

// DiskMetrics is where the disk space of a store is, in bytes.
type DiskMetrics struct {
	Tables   uint64 // live tables
	Log      uint64 // live segments of the WAL
	Manifest uint64
	// Building are tables that flushes and compactions are writing.
	Building uint64
	// Obsolete are tables that are no longer part of the tree but still there,
	// because iterators read them or their removal is under way.
	Obsolete uint64
	// Pinned are those of Obsolete that are still read, by iterators or by
	// compactions that run.
	Pinned uint64
}

// CacheMetrics describes the block cache, for all stores that share it.
type CacheMetrics struct {
	CapacityBytes, UsedBytes int64
	Blocks                   int64
	Hits, Misses, Evictions  uint64
}

// Metrics is a picture of a store. Counts are since Open. Lookups that run at
// the same time may be counted in part, and those that run while their table
// is replaced may be missed.
type Metrics struct {
	Levels [manifest.NumLevels]LevelMetrics
	Tables []TableMetrics // the live ones, level by level, in the order in which lookups ask them
	Memory MemoryMetrics
	Disk   DiskMetrics
	Cache  CacheMetrics

	// Runs is the read amplification: how many sorted runs (memtables with
	// entries, tables of level 0, levels with tables) a lookup may have to ask.
	Runs int
	// WriteAmplification is the bytes written to log and tables, LogZeroBytes
	// included, for each of WrittenBytes.
	WriteAmplification float64
	// SpaceAmplification is the bytes of all tables for each byte of the
	// bottom level, which holds about one version of each key.
	SpaceAmplification float64

	// Batches are the writes and batches applied; WrittenBytes their keys and
	// values, with a few bytes for each operation.
	Batches, WrittenBytes         uint64
	LogBytes, LogSyncs, LogWrites uint64
	LogZeroBytes                  uint64 // written ahead of the records of a synced log, beside LogBytes
	Flushes, FlushedBytes         uint64
	Compactions, TrivialMoves     uint64
	DroppedTables                 uint64 // unread, because range tombstones hide them as a whole
	CompactedBytes                uint64 // written by compactions
	CompactionReadBytes           uint64 // sizes of their input tables
	CompactedBlocks               uint64 // data blocks written by compactions
	PassedBlocks                  uint64 // of those, taken over from the input tables as they are stored
	CompactionDebtBytes           uint64 // estimate of what they have yet to write

	// Scan counts of closed iterators.
	ScanBlocksCached, ScanBlocksRead, ScanBytesRead uint64
	ScanTombstones, ScanVersions                    uint64 // passed over
	// ScanHidden are entries that range tombstones hid and that were passed over
	// one by one, ScanStretches the times that many were at once.
	ScanHidden, ScanStretches uint64

	Snapshots      int
	OpenTableFiles int
	// Stalls counts writes that had to wait for a flush or a compaction,
	// StallTime for how long; SlowTime is how long writes were slowed down.
	Stalls              uint64
	StallTime, SlowTime time.Duration
	// BackgroundError is why flushes or compactions fail at present, though
	// they are tried again, or a failure that changed nothing.
	BackgroundError error
	// FatalError is why the store is read-only, or nil.
	FatalError error

	// Latencies are zero without Options.Latencies.
	Latencies LatencyMetrics
}

// LatencyMetrics is how long calls took that succeeded; a key that is not there
// is a success.
type LatencyMetrics struct {
	Get   Latency // Get, GetTo and Has, of the store and of snapshots
	Put   Latency // Put and Delete, with the wait for durability
	Apply Latency // the same
}

// Latency sums up the durations of one kind of call. Mean and Max are exact.
// The percentiles are within 1/32 (3.2 %) of the duration of that rank, up to
// 18 minutes: durations are counted in buckets, 16 to each power of two, and
// the middle of a bucket stands for all in it.
type Latency struct {
	Count                          uint64
	Mean, P50, P90, P99, P999, Max time.Duration
}

// latencies measures calls.
type latencies struct {
	opened          time.Time
	get, put, apply histogram.Histogram
}

// clock returns the time since the store was opened, zero if nothing is
// measured: that is what the hot paths pay then.
func (l *latencies) clock() time.Duration {
	if l == nil {
		return 0
	}
	return time.Since(l.opened)
}

func (l *latencies) metrics() (m LatencyMetrics) {
	if l == nil {
		return m
	}
	sum := func(h *histogram.Histogram) Latency {
		d := h.Load()
		return Latency{
			Count: d.Count, Mean: d.Mean(), Max: d.Max,
			P50: d.Quantile(0.5), P90: d.Quantile(0.9), P99: d.Quantile(0.99), P999: d.Quantile(0.999),
		}
	}
	return LatencyMetrics{Get: sum(&l.get), Put: sum(&l.put), Apply: sum(&l.apply)}
}

// Total returns the filter counts of all levels together.
func (m *Metrics) Total() (c FilterCounts) {
	for i := range m.Levels {
		c.add(m.Levels[i].Filter)
	}
	return c
}

// stats is what the background counts, guarded by DB.mu.
type stats struct {
	retired [manifest.NumLevels]FilterCounts // of tables that left their level

	flushes, flushedBytes               uint64
	compactions, moves, written, merged uint64
	blocks, passed                      uint64 // data blocks of compactions
	dropped                             uint64 // tables that were dropped unread
	// flushError and compactionError are what fails at present and is tried
	// again; noted is the newest failure that changes nothing.
	flushError, compactionError, noted error
	flushFailures                      int
	retrying                           int // compactions that failed and wait to be tried again
	stalls                             uint64
	stalled                            time.Duration
	l0Bytes                            float64 // compacted from level 0, decaying
	l0Seconds                          float64 // that this took, decaying
}

func (s *stats) flushed(bytes uint64) {
	s.flushes++
	s.flushedBytes += bytes
}

// failing returns why there is no progress in the background, or nil.
func (s *stats) failing() error {
	if s.flushError != nil {
		return s.flushError
	}
	return s.compactionError
}

func (s *stats) compacted(p *compaction.Plan, i *CompactionInfo) {
	if errors.Is(i.Err, ErrClosed) {
		return
	}
	if i.Err != nil || s.retrying == 0 { // one that fails still is not healed by another that works
		s.compactionError = i.Err
	}
	switch {
	case i.Err != nil:
		return
	case p.TrivialMove:
		s.moves++
		return
	case p.Drop:
		s.dropped += uint64(len(p.Inputs[0]))
		return
	}
	s.compactions++
	s.written += i.OutputBytes
	s.blocks += i.OutputBlocks
	s.passed += i.PassedBlocks
	s.merged += p.InputBytes()
	if p.StartLevel == 0 {
		const decay = 0.7
		var in uint64
		for _, m := range p.Inputs[0] {
			in += m.SizeBytes
		}
		s.l0Bytes = decay*s.l0Bytes + float64(in)
		s.l0Seconds = decay*s.l0Seconds + i.Duration.Seconds()
	}
}

// drainRate returns how fast level 0 is being compacted, in bytes a second.
func (s *stats) drainRate() float64 {
	const guess = 32 << 20 // before the first compaction
	if s.l0Seconds == 0 {
		return guess
	}
	return max(s.l0Bytes/s.l0Seconds, guess/32)
}

// retire keeps the counts of a table that leaves its level.
func (s *stats) retire(level int, t *table.Table) { s.retired[level].add(countsOf(t)) }

func countsOf(t *table.Table) FilterCounts {
	c := t.Counters.Load()
	rate := 0.0
	if r := t.Opened(); r != nil { // or its filter was never asked
		rate = r.Properties().FilterRate
	}
	return FilterCounts{
		Probes:    c.Negatives + c.TruePositives + c.FalsePositives + c.Unfiltered,
		Negatives: c.Negatives, TruePositives: c.TruePositives,
		FalsePositives: c.FalsePositives, Unfiltered: c.Unfiltered,
		ExpectedFalsePositives: rate * float64(c.Negatives+c.FalsePositives),
		BlocksCached:           c.BlocksCached, BlocksRead: c.BlocksRead,
	}
}

// Metrics returns the figures of the store. It looks at every table and every
// cached block: ask once a second, not once a lookup. What tables say of
// themselves it reads from those that nobody has read from since Open.
func (db *DB) Metrics() Metrics {
	var m Metrics
	db.mu.Lock()
	s := db.state.Load()
	for !s.Acquire() {
		s = db.state.Load()
	}
	retired, st := db.stats.retired, db.stats
	m.Snapshots = len(db.snapshots)
	m.BackgroundError = errors.Join(db.stats.failing(), db.stats.noted)
	building, next := maps.Clone(db.building), keys.FileNum(db.nextFile.Load())
	db.mu.Unlock()

	if fatal := db.fatal.Load(); fatal != nil {
		m.FatalError = *fatal
	}
	db.levelMetrics(&m, s, &retired)
	db.memoryMetrics(&m, s)
	db.diskMetrics(&m, s, building, next)

	m.Runs = len(s.L0) + len(s.Runs) + len(s.Immutables)
	if !s.Mutable.Empty() {
		m.Runs++
	}
	log := db.log.Metrics()
	m.Batches, m.WrittenBytes = log.Appends, log.BodyBytes
	m.LogBytes, m.LogSyncs, m.LogWrites = log.AppendedBytes, log.Syncs, log.Writes
	m.LogZeroBytes = log.ZeroBytes
	m.Flushes, m.FlushedBytes = st.flushes, st.flushedBytes
	m.Compactions, m.TrivialMoves, m.DroppedTables = st.compactions, st.moves, st.dropped
	m.CompactedBytes, m.CompactionReadBytes = st.written, st.merged
	m.CompactedBlocks, m.PassedBlocks = st.blocks, st.passed
	m.CompactionDebtBytes = compaction.Debt(s.Version, db.shape())
	if m.WrittenBytes > 0 {
		m.WriteAmplification = float64(m.LogBytes+m.LogZeroBytes+m.FlushedBytes+m.CompactedBytes) / float64(m.WrittenBytes)
	}
	if n := len(s.Runs); n > 0 {
		m.SpaceAmplification = float64(m.Disk.Tables) / float64(m.Levels[s.Runs[n-1].Tables[0].Level].Bytes)
	}
	m.ScanBlocksCached, m.ScanBlocksRead = db.scans.blocksCached.Load(), db.scans.blocksRead.Load()
	m.ScanBytesRead = db.scans.bytesRead.Load()
	m.ScanTombstones, m.ScanVersions = db.scans.tombstones.Load(), db.scans.versions.Load()
	m.ScanHidden, m.ScanStretches = db.scans.hidden.Load(), db.scans.stretches.Load()
	m.Stalls, m.StallTime, m.SlowTime = st.stalls, st.stalled, db.pacer.Slept()
	m.OpenTableFiles = db.files.Open()
	m.Latencies = db.latencies.metrics()

	db.events.badFilters(s)
	db.note(s.Release())
	db.events.Deliver()
	return m
}

func (db *DB) levelMetrics(m *Metrics, s *tree.State, retired *[manifest.NumLevels]FilterCounts) {
	for i := range m.Levels {
		m.Levels[i].Level = i
		m.Levels[i].Filter = retired[i]
	}
	var filtered [manifest.NumLevels]uint64
	for t := range s.All() {
		l, described := &m.Levels[t.Level], tableMetrics(t)
		l.Tables++
		l.Bytes += t.Meta.SizeBytes
		l.Entries += t.Meta.Entries
		l.Deletes += t.Meta.Deletes
		l.RangeDeletes += t.Meta.RangeDeletes
		l.Keys += t.Meta.UserKeys
		l.FilterBytes += t.Meta.FilterBytes
		rate := 1.0
		if t.Meta.FilterBytes > 0 {
			filtered[t.Level] += t.Meta.UserKeys
			rate = described.PredictedRate
		}
		l.PredictedRate += rate * float64(t.Meta.UserKeys)
		m.Tables = append(m.Tables, described)
		l.Filter.add(described.Filter)
		if r := t.Opened(); r != nil {
			if r.FilterState() == sstable.FilterBad {
				l.BadFilters++
			}
			m.Memory.Filters += uint64(r.FilterBytes())
			m.Memory.Indexes += uint64(r.IndexBytes())
			m.Memory.RangeDeletes += uint64(r.RangeDels().SizeBytes())
		}
	}
	for i := range m.Levels {
		l := &m.Levels[i]
		if l.Keys > 0 {
			l.PredictedRate /= float64(l.Keys)
		}
		if filtered[i] > 0 {
			l.BitsPerKey = 8 * float64(l.FilterBytes) / float64(filtered[i])
		}
	}
}

func (db *DB) memoryMetrics(m *Metrics, s *tree.State) {
	mem := &m.Memory
	mem.Memtables = uint64(s.Mutable.SizeBytes())
	for _, t := range s.Immutables {
		mem.Memtables += uint64(t.SizeBytes())
	}
	c := db.o.Cache.blocks.Metrics()
	m.Cache = CacheMetrics{
		CapacityBytes: c.CapacityBytes, UsedBytes: c.UsedBytes, Blocks: c.Blocks,
		Hits: c.Hits, Misses: c.Misses, Evictions: c.Evictions,
	}
	mem.CacheSlabs, mem.CacheOverhead = uint64(c.SlabBytes), uint64(c.OverheadBytes)
	mem.CacheOverflow = uint64(c.OverflowBytes)
	mem.Total = mem.Memtables + mem.CacheSlabs + mem.CacheOverhead + mem.CacheOverflow + mem.Filters + mem.Indexes + mem.RangeDeletes
	off := offheap.Metrics()
	mem.OffHeap, mem.OffHeapRetired, mem.OffHeapWarm = uint64(off.Granted), uint64(off.Retired), uint64(off.Warm)
}

// diskMetrics asks the file system, so that what is there counts, not what
// should be.
func (db *DB) diskMetrics(m *Metrics, s *tree.State, building map[keys.FileNum]bool, next keys.FileNum) {
	live := make(map[keys.FileNum]bool)
	for t := range s.All() {
		live[t.Meta.FileNum] = true
	}
	removing := db.trash.pending()
	names, err := db.fs.List(db.dir)
	if err != nil {
		return // the directory is gone or unreadable: every operation says so
	}
	d := &m.Disk
	for _, name := range names {
		kind, num := parseName(name)
		info, err := db.fs.Stat(db.path(name))
		if err != nil {
			continue // removed since it was listed
		}
		switch size := uint64(info.SizeBytes); {
		case kind == kindSegment:
			d.Log += size
		case kind == kindManifest:
			d.Manifest += size
		case kind != kindTable:
		case live[num]:
			d.Tables += size
		case building[num] || num >= next: // begun since
			d.Building += size
		default:
			d.Obsolete += size
			if !removing[name] {
				d.Pinned += size
			}
		}
	}
}
