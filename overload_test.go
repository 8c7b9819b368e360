package sievedb

import (
	"encoding/binary"
	"os"
	"runtime/metrics"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sievedb/compaction"
	"sievedb/vfs"
)

// overload is what is looked at while a store gets more than it can compact.
type overload struct {
	l0Tables, l0Bytes, debtBytes, heapBytes uint64 // the most that was seen
	slowed                                  bool   // level 0 was long
}

func (o *overload) look(db *DB) {
	s := db.state.Load() // Metrics, which looks at every table, is for later
	tables := uint64(len(s.L0))
	o.l0Tables = max(o.l0Tables, tables)
	o.l0Bytes = max(o.l0Bytes, s.Version.SizeBytes(0))
	o.debtBytes = max(o.debtBytes, compaction.Debt(s.Version, db.shape()))
	if int(tables) >= db.o.L0SlowTables {
		o.slowed = true
	}
	heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(heap)
	o.heapBytes = max(o.heapBytes, heap[0].Value.Uint64())
}

// slowCompactions is a disk on which the tables that compactions write, all
// together, grow no faster than a rate, and those of flushes as fast as they can.
type slowCompactions struct {
	*vfs.Faulty
	db             *DB
	bytesPerSecond int

	mu      sync.Mutex
	flushes map[*outputs]bool
	slow    map[string]bool // the tables of compactions
	next    time.Time       // when what was written is paid for
}

func newSlowCompactions(fs vfs.FS, bytesPerSecond int) *slowCompactions {
	s := &slowCompactions{Faulty: vfs.NewFaulty(fs), bytesPerSecond: bytesPerSecond, flushes: map[*outputs]bool{}, slow: map[string]bool{}}
	s.SetHook(s.hook)
	return s
}

func (s *slowCompactions) hook(c vfs.Call) {
	if !strings.HasSuffix(c.Name, ".sst") || s.db == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch c.Op {
	case vfs.OpCreate:
		s.slow[c.Name] = true
		s.db.mu.Lock()
		for o := range s.db.writing {
			if o.level == 0 && !s.flushes[o] { // a flush, which writes one table
				s.flushes[o], s.slow[c.Name] = true, false
			}
		}
		s.db.mu.Unlock()
	case vfs.OpWrite:
		if !s.slow[c.Name] {
			return
		}
		if now := time.Now(); s.next.Before(now) {
			s.next = now
		}
		s.next = s.next.Add(time.Duration(c.Bytes) * time.Second / time.Duration(s.bytesPerSecond))
		if wait := time.Until(s.next); wait > 5*time.Millisecond { // shorter ones add up
			s.mu.Unlock()
			time.Sleep(wait)
			s.mu.Lock()
		}
	}
}

// TestOverload writes, from several goroutines and beside readers, faster than
// compactions can follow. The writers are slowed down and get on, no write or
// read fails, and what waits to be compacted stays within what the limits of
// level 0 allow, as does the memory.
func TestOverload(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	duration, disk, o := 2*time.Second, newSlowCompactions(vfs.NewMem(), 4<<20), Options{
		Durability: SyncNever, Latencies: true,
		MemtableBytes: 256 << 10, TableBytes: 128 << 10, CacheBytes: 1 << 20,
	}
	if *modelOps >= 1_000_000 {
		duration = 5 * time.Minute
		disk = newSlowCompactions(vfs.OS(), 32<<20)
		o.MemtableBytes, o.TableBytes, o.CacheBytes = 4<<20, 2<<20, 16<<20
	}
	db := mustOpen(t, disk, t.TempDir(), o)
	disk.db = db
	const keyCount, writers, readers, valueBytes = 1 << 20, 4, 1, 200
	seed := newSeed(t)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var puts, gets atomic.Uint64
	for w := range uint64(writers + readers) {
		wg.Go(func() {
			rng := newRand(seed + w)
			key, value := make([]byte, 8), make([]byte, valueBytes)
			for {
				select {
				case <-stop:
					return
				default:
				}
				binary.BigEndian.PutUint64(key, rng.Uint64N(keyCount))
				if w >= writers {
					v, err := db.Get(key)
					if err != nil && err != ErrNotFound || err == nil && string(v[valueBytes-8:]) != string(key) {
						t.Errorf("get: %x: %v", v, err)
						return
					}
					gets.Add(1)
					continue
				}
				for i := 0; i < valueBytes; i += 8 {
					binary.LittleEndian.PutUint64(value[i:], rng.Uint64())
				}
				copy(value[valueBytes-8:], key)
				if err := db.Put(key, value); err != nil {
					t.Errorf("put: %v", err)
					return
				}
				puts.Add(1)
			}
		})
	}
	var seen overload
	var progress []uint64 // puts in each twentieth of the time
	for begin, last := time.Now(), uint64(0); time.Since(begin) < duration || !seen.slowed; {
		seen.look(db)
		time.Sleep(5 * time.Millisecond) // between two looks
		if n := int(20 * time.Since(begin) / duration); n > len(progress) {
			progress = append(progress, puts.Load()-last)
			last = puts.Load()
		}
	}
	close(stop)
	wg.Wait() // nobody hangs
	m := db.Metrics()
	put := m.Latencies.Put
	t.Logf("%v: %d puts and %d gets, %d flushes and %d compactions; puts by twentieths of the time: %d",
		duration, puts.Load(), gets.Load(), m.Flushes, m.Compactions, progress)
	t.Logf("put: p50 %v, p99 %v, p99.9 %v, max %v; %d stalls of %v, slowed for %v", put.P50, put.P99, put.P999, put.Max, m.Stalls, m.StallTime, m.SlowTime)
	t.Logf("at most: %d tables and %d KiB in level 0, %d KiB to be compacted, heap %d KiB, RSS %s; the store has %d KiB",
		seen.l0Tables, seen.l0Bytes>>10, seen.debtBytes>>10, seen.heapBytes>>10, peakRSS(), m.Disk.Tables>>10)
	must(t, db.Close())

	// What waited to be flushed when level 0 was at its limit still comes.
	most := uint64(db.o.L0StopTables + maxImmutables)
	if seen.l0Tables > most || seen.l0Bytes > most*uint64(db.o.MemtableBytes) {
		t.Errorf("level 0 had %d tables of %d bytes, at most %d memtables", seen.l0Tables, seen.l0Bytes, most)
	}
	// As much again, because the collector lets it grow that far.
	if limit := 2 * uint64(db.o.CacheBytes+8*db.o.MemtableBytes+32<<20); seen.heapBytes > limit {
		t.Errorf("the heap had %d bytes, at most %d", seen.heapBytes, limit)
	}
}

// peakRSS is the largest resident memory of the process so far, where the system
// tells.
func peakRSS() string {
	status, _ := os.ReadFile("/proc/self/status")
	_, peak, _ := strings.Cut(string(status), "VmHWM:")
	peak, _, _ = strings.Cut(peak, "\n")
	return strings.TrimSpace(peak)
}
