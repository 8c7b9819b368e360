package cache

import (
	"flag"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the randomised tests; zero chooses one")

// newRand returns a generator and logs the seed that reproduces it.
func newRand(t *testing.T) *rand.Rand {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d (give it back with -seed)", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

type blockKey struct{ id, offset uint64 }

// held is a handle of the model test with what it must hold until released.
type held struct {
	Handle
	key      blockKey
	version  uint64
	size     int
	reserved bool
}

// model is the plain counterpart of a cache: which version of each block was
// published last, if it was not dropped since. The cache may forget a block at
// any time, but never return another version.
type model struct {
	t         *testing.T
	rnd       *rand.Rand
	c         *Cache
	published map[blockKey]uint64
	held      []held
	hints     []atomic.Uint64
	versions  uint64
	sizes     []int
}

const modelIDs, modelOffsets = 4, 150

func (m *model) key() blockKey {
	return blockKey{m.rnd.Uint64N(modelIDs), m.rnd.Uint64N(modelOffsets) * 4096}
}

// hint returns one of a few hints that all keys share, so most are wrong.
func (m *model) hint() *atomic.Uint64 {
	switch m.rnd.IntN(4) {
	case 0:
		return nil
	case 1:
		h := new(atomic.Uint64)
		h.Store(m.rnd.Uint64() & 0x1_0007_f0ff)
		return h
	}
	return &m.hints[m.rnd.IntN(len(m.hints))]
}

func (m *model) verify(h held) {
	m.t.Helper()
	if len(h.Bytes()) != h.size || !matches(h.Bytes(), h.key.id, h.key.offset, h.version) {
		m.t.Fatalf("block %v (version %d, %d bytes) changed while it was held", h.key, h.version, h.size)
	}
}

func (m *model) get() {
	k := m.key()
	h, ok := m.c.Get(k.id, k.offset, m.hint())
	if !ok {
		return
	}
	version, there := m.published[k]
	if !there || !matches(h.Bytes(), k.id, k.offset, version) {
		m.t.Fatalf("Get of %v returned something else than version %d", k, version)
	}
	m.held = append(m.held, held{h, k, version, len(h.Bytes()), false})
}

func (m *model) reserve() {
	k, size := m.key(), m.sizes[m.rnd.IntN(len(m.sizes))]
	if m.rnd.IntN(50) == 0 {
		size = m.rnd.IntN(300 << 10)
	}
	m.versions++
	h := held{m.c.Reserve(k.id, k.offset, size), k, m.versions, size, true}
	fill(h.Bytes(), k.id, k.offset, h.version)
	m.held = append(m.held, h)
}

func (m *model) publish() {
	h := &m.held[m.rnd.IntN(len(m.held))]
	m.verify(*h)
	had := peek(m.c, h.key.id, h.key.offset)
	h.Publish(m.hint(), m.rnd.IntN(3) == 0)
	if !h.reserved {
		m.verify(*h)
		return
	}
	if had {
		h.version, h.size = m.published[h.key], len(h.Bytes())
		h.reserved = false
	} else if peek(m.c, h.key.id, h.key.offset) {
		m.published[h.key] = h.version
		h.reserved = false
	} // else it is a heap buffer
	m.verify(*h)
}

func (m *model) release() {
	i := m.rnd.IntN(len(m.held))
	m.verify(m.held[i])
	m.held[i].Release()
	m.held[i] = m.held[len(m.held)-1]
	m.held = m.held[:len(m.held)-1]
}

func (m *model) drop() {
	id := m.rnd.Uint64N(modelIDs)
	m.c.Drop(id)
	for k := range m.published {
		if k.id == id {
			delete(m.published, k)
			if peek(m.c, k.id, k.offset) {
				m.t.Fatalf("%v survived Drop", k)
			}
		}
	}
}

func (m *model) step(maxHeld int) {
	switch n := m.rnd.IntN(1000); {
	case n < 2:
		m.drop()
	case n < 5: // the sizes change
		m.sizes = m.sizes[:0]
		for range 1 + m.rnd.IntN(3) {
			m.sizes = append(m.sizes, m.rnd.IntN(1<<(7+m.rnd.IntN(10))))
		}
	case n < 300 && len(m.held) < maxHeld:
		m.get()
	case n < 600 && len(m.held) < maxHeld:
		m.reserve()
	case len(m.held) > 0 && n < 800:
		m.publish()
	case len(m.held) > 0:
		m.release()
	}
}

func TestModel(t *testing.T) {
	rnd := newRand(t)
	for _, capacityBytes := range []int64{1000, 100_000, 1 << 20, 16 << 20} {
		for _, maxHeld := range []int{10, 200} {
			m := &model{t: t, rnd: rnd, c: New(capacityBytes), published: map[blockKey]uint64{},
				hints: make([]atomic.Uint64, 20), sizes: []int{4096}}
			for range 3000 {
				m.step(maxHeld)
				if rnd.IntN(50) == 0 {
					check(t, m.c)
				}
			}
			for len(m.held) > 0 {
				m.release()
			}
			got := m.c.Metrics()
			if got.PinnedBytes != 0 || got.OverflowBytes != 0 || got.Hits == 0 && capacityBytes > 1000 {
				t.Fatalf("capacity %d: %+v", capacityBytes, got)
			}
			emptied(t, m.c, 0, 1, 2, 3)
		}
	}
}

// TestHammer runs everything at once on few slots and shared hints. The blocks
// are verified whenever they are held, so under the race detector any write to
// a pinned block is seen twice.
func TestHammer(t *testing.T) {
	rnd := newRand(t)
	c := New(256 << 10)
	hints := make([]atomic.Uint64, 60)
	var stop atomic.Bool
	var wg sync.WaitGroup
	for worker := range 6 {
		seed := rnd.Uint64()
		wg.Go(func() {
			defer stop.Store(true)
			rnd := rand.New(rand.NewPCG(seed, uint64(worker)))
			var own []Handle
			var keys []blockKey
			for range 4000 {
				k := blockKey{rnd.Uint64N(3), rnd.Uint64N(60)}
				size := []int{700, 4096, 4096, 3000, 20000}[k.offset%5]
				hint := &hints[(k.offset+rnd.Uint64N(8)/7)%60] // now and then another's
				c.Prefetch(hint, 1, 64, 64)
				h, ok := c.Get(k.id, k.offset, hint)
				if !ok {
					h = c.Reserve(k.id, k.offset, size)
					fill(h.Bytes(), k.id, k.offset, 0)
					if rnd.IntN(10) > 0 {
						h.Publish(hint, rnd.IntN(2) == 0)
					}
				}
				own, keys = append(own, h), append(keys, k)
				for len(own) > 6 || len(own) > 0 && rnd.IntN(3) == 0 {
					i := rnd.IntN(len(own))
					if !matches(own[i].Bytes(), keys[i].id, keys[i].offset, 0) {
						t.Errorf("block %v is wrong", keys[i])
					}
					own[i].Release()
					own[i], keys[i] = own[len(own)-1], keys[len(own)-1]
					own, keys = own[:len(own)-1], keys[:len(own)-1]
				}
			}
			for i := range own {
				own[i].Release()
			}
		})
	}
	wg.Go(func() {
		for n := uint64(0); !stop.Load(); n++ {
			c.Drop(n % 3)
			if m := c.Metrics(); m.SlabBytes > m.CapacityBytes {
				t.Errorf("capacity exceeded: %+v", m)
			}
		}
	})
	wg.Wait()
	m := c.Metrics()
	if m.PinnedBytes != 0 || m.OverflowBytes != 0 || m.HintHits == 0 || m.Evictions == 0 {
		t.Fatalf("%+v", m)
	}
	emptied(t, c, 0, 1, 2)
}

// TestOneSlotContended makes one slot change hands as fast as it can under
// readers that hold a hint to it: the ABA case.
func TestOneSlotContended(t *testing.T) {
	c := New(16 << 10) // slots of 2 KiB; blocks of up to 8 KiB get a slab of their own
	var hints [2]atomic.Uint64
	var stop atomic.Bool
	var wg sync.WaitGroup
	for reader := range 3 {
		wg.Go(func() {
			for n := uint64(reader); !stop.Load(); n++ {
				offset := n % 2
				// Both hints name the one slot for most of the time.
				if h, ok := c.Get(1, offset, &hints[n/2%2]); ok {
					if !matches(h.Bytes(), 1, offset, 0) {
						t.Errorf("asked for block %d, got another", offset)
						stop.Store(true)
					}
					h.Release()
				}
			}
		})
	}
	for n := uint64(0); n < 5000 && !stop.Load(); n++ {
		put(c, 1, n%2, 100, &hints[n%2], false)
		c.Drop(1)
	}
	stop.Store(true)
	wg.Wait()
	emptied(t, c, 1)
}
