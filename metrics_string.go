package sievedb

import (
	"fmt"
	"strings"
)

// String returns the figures as a table for people:
//
//	level  tables      size   entries  filters  bits/key  predicted    probes …
func (m Metrics) String() string {
	var b strings.Builder
	b.WriteString("level  tables      size    entries    filters  b/key  predicted   measured     probes  negatives   true pos  false pos   expected    cached      read\n")
	var all LevelMetrics
	row := func(name string, l *LevelMetrics) {
		f := &l.Filter
		fmt.Fprintf(&b, "%5s  %6d  %8s  %9s  %9s  %5.1f  %9s  %9s  %9s  %9s  %9s  %9s  %9s  %8s  %8s\n",
			name, l.Tables, size(l.Bytes), count(l.Entries), size(l.FilterBytes), l.BitsPerKey,
			percent(l.PredictedRate, l.Keys > 0), percent(f.MeasuredRate(), f.Negatives+f.FalsePositives > 0),
			count(f.Probes), count(f.Negatives), count(f.TruePositives), count(f.FalsePositives),
			count(uint64(f.ExpectedFalsePositives+0.5)), count(f.BlocksCached), count(f.BlocksRead))
	}
	for i := range m.Levels {
		l := &m.Levels[i]
		all.Tables += l.Tables
		all.Bytes += l.Bytes
		all.Entries += l.Entries
		all.FilterBytes += l.FilterBytes
		all.BitsPerKey += l.BitsPerKey * float64(l.Keys)
		all.PredictedRate += l.PredictedRate * float64(l.Keys)
		all.Keys += l.Keys
		all.Filter.add(l.Filter)
		if l.Tables > 0 || l.Filter.Probes > 0 {
			row(fmt.Sprint("L", i), l)
		}
	}
	if all.Keys > 0 {
		all.BitsPerKey /= float64(all.Keys)
		all.PredictedRate /= float64(all.Keys)
	}
	row("total", &all)

	fmt.Fprintf(&b, "filters: %s\n", m.FilterVerdict())
	fmt.Fprintf(&b, "amplification: write %.2f  read %d runs  space %.2f\n", m.WriteAmplification, m.Runs, m.SpaceAmplification)
	fmt.Fprintf(&b, "writes: %s batches of %s  log %s, zeros ahead of it %s, in %s writes, %s syncs  flushed %s in %d  compacted %s from %s in %d, %s of %s blocks as they were, %d moved, %d dropped, debt %s\n",
		count(m.Batches), size(m.WrittenBytes), size(m.LogBytes), size(m.LogZeroBytes), count(m.LogWrites), count(m.LogSyncs), size(m.FlushedBytes), m.Flushes,
		size(m.CompactedBytes), size(m.CompactionReadBytes), m.Compactions, count(m.PassedBlocks), count(m.CompactedBlocks), m.TrivialMoves, m.DroppedTables, size(m.CompactionDebtBytes))
	fmt.Fprintf(&b, "scans: %s blocks cached, %s read (%s)  passed over %s tombstones, %s versions, %s under range tombstones, %s stretches of such\n",
		count(m.ScanBlocksCached), count(m.ScanBlocksRead), size(m.ScanBytesRead), count(m.ScanTombstones), count(m.ScanVersions), count(m.ScanHidden), count(m.ScanStretches))
	mem := m.Memory
	fmt.Fprintf(&b, "memory: memtables %s + cache %s + its tables %s + overflow %s + filters %s + indexes %s + range tombstones %s = %s\n",
		size(mem.Memtables), size(mem.CacheSlabs), size(mem.CacheOverhead), size(mem.CacheOverflow), size(mem.Filters), size(mem.Indexes), size(mem.RangeDeletes), size(mem.Total))
	fmt.Fprintf(&b, "outside the heap, of the process: %s, of which %s wait to be freed  kept for the next memtables %s\n",
		size(mem.OffHeap), size(mem.OffHeapRetired), size(mem.OffHeapWarm))
	fmt.Fprintf(&b, "cache: %s of %s in %s blocks  %s hits, %s misses, %s evictions\n",
		size(uint64(m.Cache.UsedBytes)), size(uint64(m.Cache.CapacityBytes)), count(uint64(m.Cache.Blocks)), count(m.Cache.Hits), count(m.Cache.Misses), count(m.Cache.Evictions))
	fmt.Fprintf(&b, "disk: tables %s  log %s  manifest %s  being written %s  obsolete %s, of which pinned %s\n",
		size(m.Disk.Tables), size(m.Disk.Log), size(m.Disk.Manifest), size(m.Disk.Building), size(m.Disk.Obsolete), size(m.Disk.Pinned))
	fmt.Fprintf(&b, "stalls: %d for %v, slowed down for %v  snapshots %d  open table files %d\n",
		m.Stalls, m.StallTime.Round(1e6), m.SlowTime.Round(1e6), m.Snapshots, m.OpenTableFiles)
	for _, call := range []struct {
		name string
		l    *Latency
	}{{"get", &m.Latencies.Get}, {"put", &m.Latencies.Put}, {"apply", &m.Latencies.Apply}} {
		if l := call.l; l.Count > 0 {
			fmt.Fprintf(&b, "%s: %s calls  mean %v  p50 %v  p90 %v  p99 %v  p99.9 %v  max %v\n",
				call.name, count(l.Count), l.Mean, l.P50, l.P90, l.P99, l.P999, l.Max)
		}
	}
	if m.FatalError != nil {
		fmt.Fprintf(&b, "READ-ONLY: %v\n", m.FatalError)
	}
	if m.BackgroundError != nil {
		fmt.Fprintf(&b, "background: %v\n", m.BackgroundError)
	}
	return b.String()
}

// size prints bytes with three digits or so and a binary unit.
func size(n uint64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	v, units := float64(n)/(1<<10), "KMGTPE"
	for v >= 1000 && len(units) > 1 {
		v, units = v/(1<<10), units[1:]
	}
	return fmt.Sprintf("%.3g %ciB", v, units[0])
}

// count prints a number, with a decimal unit from ten thousand on.
func count(n uint64) string {
	if n < 10_000 {
		return fmt.Sprint(n)
	}
	v, units := float64(n)/1e3, "kMGTPE"
	for v >= 1000 && len(units) > 1 {
		v, units = v/1e3, units[1:]
	}
	return fmt.Sprintf("%.4g%c", v, units[0])
}

func percent(rate float64, known bool) string {
	if !known {
		return "-"
	}
	return fmt.Sprintf("%.3f%%", 100*rate)
}
