package offheap

import (
	"runtime"
	"runtime/metrics"
	"sync"
	"unsafe"

	"sievedb/internal/invariants"
)

const (
	// regionBytes is what is asked of the operating system at a time.
	regionBytes = MaxBytes
	// plainBytes are mapped before any is in huge pages: in a small store, much of
	// one would be touched, which takes up to milliseconds, for nothing.
	plainBytes = 32 << 20
	// maxWarmBytes bounds what KeepWarm can ask for.
	maxWarmBytes = 64 << 20
	// minRetired and minGrown are the garbage, known and possible, that is not
	// worth a run of the collector.
	minRetired = 16 << 20
	minGrown   = 128 << 20
)

// Stats is what the pool of the process holds, in bytes.
type Stats struct {
	Mapped  int64 // address space taken
	Granted int64 // in buffers
	Retired int64 // of Granted: those whose owners were retired
	Warm    int64 // free and resident
}

// Pages says which pages of the operating system buffers lie in.
type Pages int

const (
	// SmallPages are cheap to touch for the first time, and so for what somebody
	// waits for who fills it: no page takes longer than the few KiB that it has.
	SmallPages Pages = iota
	// HugePages, of 2 MiB, are cheaper to read at random, since address translation
	// misses less. They are asked for, once the process has taken 32 MiB, and not every
	// system gives them.
	HugePages

	numPages
)

// pool is the free buffers of the process, by pages and class.
type pool struct {
	mapRegion func(n int, huge bool) []byte // returns nil if there is none
	giveBack  func(b []byte)                // lets the system have the pages of b until they are touched again

	mu sync.Mutex
	// Guarded by mu:
	stats Stats
	warm  [numClasses][]*byte // free and resident, the last used last
	cold  [numClasses][]*byte // free, without pages
	rest  [numPages][]byte    // of the newest region: never given out
	keep  int64               // bytes that may be warm, at most maxWarmBytes of them
	// fresh is what was retired since the collector was last asked to run, and survived
	// how little was granted since.
	fresh, survived int64
}

var shared = pool{mapRegion: mapRegion, giveBack: giveBack}

// Metrics returns what the process holds now.
func Metrics() Stats {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	return shared.stats
}

// KeepWarm has more bytes of freed buffers stay resident, up to a bound: as much as
// will soon be asked for again, so that it need not be touched anew. A negative number takes that back.
func KeepWarm(more int64) { shared.keepWarm(more) }

func (p *pool) keepWarm(more int64) {
	excess := map[*byte]int{}
	p.mu.Lock()
	p.keep += more
	for class := range p.warm {
		for p.stats.Warm > p.warmLimit() && len(p.warm[class]) > 0 {
			excess[pop(&p.warm[class])] = class
			p.stats.Warm -= classBytes(class)
		}
	}
	p.mu.Unlock()
	p.cool(excess)
}

func (p *pool) warmLimit() int64 { return min(p.keep, maxWarmBytes) }

// take returns a whole buffer of a class, or nil.
func (p *pool) take(class int) []byte {
	n := classBytes(class)
	p.mu.Lock()
	defer p.mu.Unlock()
	var first *byte
	switch {
	case len(p.warm[class]) > 0:
		first = pop(&p.warm[class])
		p.stats.Warm -= n
	case len(p.cold[class]) > 0:
		first = pop(&p.cold[class])
	default:
		if first = p.carve(class); first == nil {
			return nil
		}
	}
	p.stats.Granted += n
	return unsafe.Slice(first, n)
}

func pop(list *[]*byte) *byte {
	last := len(*list) - 1
	b := (*list)[last]
	*list = (*list)[:last]
	return b
}

// carve returns a buffer of a class that was never given out. What is left of a
// region in which it does not fit goes to smaller classes.
func (p *pool) carve(class int) *byte {
	n, pages := classBytes(class), pagesOf(class)
	rest := p.rest[pages]
	if int64(len(rest)) < n {
		region := p.mapRegion(regionBytes, pages == HugePages && p.stats.Mapped >= plainBytes)
		if region == nil {
			return nil
		}
		for c := classOf(MaxBytes, pages); len(rest) > 0; c-- {
			for size := classBytes(c); int64(len(rest)) >= size; rest = rest[size:] {
				p.cold[c] = append(p.cold[c], unsafe.SliceData(rest))
			}
		}
		rest = region
		p.stats.Mapped += int64(len(region))
	}
	p.rest[pages] = rest[n:]
	return unsafe.SliceData(rest)
}

// give takes buffers back, of which retired bytes were retired.
func (p *pool) give(buffers map[*byte]int, retired int64) {
	excess := map[*byte]int{}
	p.mu.Lock()
	for first, class := range buffers {
		n := classBytes(class)
		if invariants.Enabled {
			poison(unsafe.Slice(first, n))
		}
		p.stats.Granted -= n
		if p.stats.Warm+n > p.warmLimit() {
			excess[first] = class
			continue
		}
		p.stats.Warm += n
		p.warm[class] = append(p.warm[class], first)
	}
	p.stats.Retired -= retired
	p.survived = min(p.survived, p.stats.Granted)
	p.mu.Unlock()
	p.cool(excess)
}

// cool gives the pages of free buffers back, without the lock, for it may take a
// while.
func (p *pool) cool(buffers map[*byte]int) {
	for first, class := range buffers {
		p.giveBack(unsafe.Slice(first, classBytes(class)))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for first, class := range buffers {
		p.cold[class] = append(p.cold[class], first)
	}
}

// poison makes a read of freed memory show.
func poison(b []byte) {
	b[0] = 0xdb
	for n := 1; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

func (p *pool) retire(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Retired += n
	p.fresh += n
}

// Collect runs the garbage collector if much memory may wait for it here, beside
// half of what is live on its own heap. Were the buffers part of the heap, it would
// by default run by itself at twice that share: so it costs a process with a large
// heap little, and one with a small heap little, too. Collect waits for it, so call it in
// the background.
func Collect() {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	var live int64
	if sample[0].Value.Kind() == metrics.KindUint64 {
		live = int64(sample[0].Value.Uint64())
	}
	if shared.due(live) {
		runtime.GC()
	}
}

// due reports whether the collector should run beside a heap of liveBytes, and
// takes it that it will. What was retired counts in full. Owners may also be dropped without a
// word, so growth counts, if it has doubled what is known to be in use.
func (p *pool) due(liveBytes int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	retired, grown := min(p.fresh, p.stats.Retired), p.stats.Granted-p.survived
	if retired < max(minRetired, liveBytes/2) && grown < max(minGrown, liveBytes/2, p.survived) {
		return false
	}
	p.fresh, p.survived = 0, p.stats.Granted
	return true
}
