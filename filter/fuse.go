package filter

import (
	"slices"
	"sync"
)

// fuseAttempts bounds the construction. Three attempts in a hundred fail for want
// of luck; the first failure removes equal hashes, which no luck gets past. It is
// a variable so that a test can have all of them fail.
var fuseAttempts = 8

// fuseScratch is the memory of a construction: 24 bytes for each key, beside
// the 8 of its hash.
type fuseScratch struct {
	hashes []uint64 // by segment; then, from the front, the stack of what was peeled
	places []uint8  // of the stack: which of its three slots a hash owns
	xors   []uint64 // of each slot: of the hashes in it
	counts []uint8  // of each slot: 4 times their number, and the xor of their places in the low two bits
	queue  []uint32 // slots with one hash
}

var fusePool = sync.Pool{New: func() any { return new(fuseScratch) }}

// grow makes room for keys and slots.
func (s *fuseScratch) grow(keys, slots int) {
	s.hashes = slices.Grow(s.hashes[:0], keys)[:keys]
	s.places = slices.Grow(s.places[:0], keys)[:keys]
	s.xors = slices.Grow(s.xors[:0], slots)[:slots]
	s.counts = slices.Grow(s.counts[:0], slots)[:slots]
	s.queue = slices.Grow(s.queue[:0], slots)[:slots]
}

// chunks yields hashes in parts, all of them each time.
type chunks func(yield func([]uint64) bool)

// buildFuse stores the fingerprints of hashes in the field, which holds zeros
// and as many slots as t says, and returns the seed with which that went, and
// the exclusive or of the hashes as they were read. ok is false if no seed
// would do: the field is still zero.
func buildFuse(field []byte, all chunks, t trailer) (seed, xor uint64, ok bool) {
	s := fusePool.Get().(*fuseScratch)
	defer fusePool.Put(s)
	s.grow(int(t.nkeys), len(field))
	for attempt := range fuseAttempts {
		read := s.sort(all, t)
		if attempt == 0 {
			xor = read
		}
		if s.count(t) && s.peel(t) {
			s.assign(field, t)
			return t.seed, xor, true
		}
		if attempt == 0 {
			var distinct []uint64
			for hashes := range all {
				distinct = append(distinct, hashes...)
			}
			slices.Sort(distinct)
			distinct = slices.Compact(distinct)
			s.grow(len(distinct), len(field))
			all = func(yield func([]uint64) bool) { yield(distinct) }
		}
		t.seed = SeedFor(t.seed)
	}
	return 0, 0, false
}

// sort collects the mixed hashes in the order of their first segments, or
// nearly, so that what comes next stays within the processor's cache.
func (s *fuseScratch) sort(all chunks, t trailer) (xor uint64) {
	const buckets, shift = 1024, 64 - 10 // more than there are segments
	var at [buckets + 1]int
	for hashes := range all {
		for _, h := range hashes {
			at[fuseHash(h, t.seed)>>shift+1]++
		}
	}
	for i := range buckets {
		at[i+1] += at[i]
	}
	for hashes := range all {
		for _, h := range hashes {
			xor ^= h
			f := fuseHash(h, t.seed)
			s.hashes[at[f>>shift]] = f
			at[f>>shift]++
		}
	}
	return xor
}

// count enters every hash in its three slots. It reports false if a slot has
// more than 63, which only equal hashes can bring about.
func (s *fuseScratch) count(t trailer) bool {
	clear(s.counts)
	clear(s.xors)
	span := uint64(t.units-2) << t.log2
	full := byte(0)
	for _, f := range s.hashes {
		a, b, c := fuseSlots(f, span, t.log2)
		s.counts[a] += 4
		s.counts[b] = (s.counts[b] + 4) ^ 1
		s.counts[c] = (s.counts[c] + 4) ^ 2
		s.xors[a] ^= f
		s.xors[b] ^= f
		s.xors[c] ^= f
		// A count that has come round to zero is one of 64.
		if s.counts[a] < 4 || s.counts[b] < 4 || s.counts[c] < 4 {
			full = 1
		}
	}
	return full == 0
}

// peel takes away hashes that have a slot for themselves, until none is left,
// and stacks them. It reports false if hashes are left.
func (s *fuseScratch) peel(t trailer) bool {
	waiting := 0
	for slot, n := range s.counts {
		s.queue[waiting] = uint32(slot)
		if n>>2 == 1 {
			waiting++
		}
	}
	peeled := 0
	span := uint64(t.units-2) << t.log2
	for waiting > 0 {
		waiting--
		slot := s.queue[waiting]
		if s.counts[slot]>>2 != 1 {
			continue // its hash was taken away through another slot
		}
		f, place := s.xors[slot], s.counts[slot]&3
		s.hashes[peeled], s.places[peeled] = f, place
		peeled++
		a, b, c := fuseSlots(f, span, t.log2)
		slots := [5]uint64{a, b, c, a, b}
		for i := place + 1; i < place+3; i++ {
			other := slots[i]
			s.queue[waiting] = uint32(other)
			if s.counts[other]>>2 == 2 {
				waiting++
			}
			s.counts[other] = (s.counts[other] - 4) ^ i%3
			s.xors[other] ^= f
		}
	}
	return peeled == len(s.hashes)
}

// assign sets the slots. The last hash that was peeled comes first: whatever is
// assigned after it leaves its slots alone.
func (s *fuseScratch) assign(field []byte, t trailer) {
	span := uint64(t.units-2) << t.log2
	for i := len(s.hashes) - 1; i >= 0; i-- {
		f := s.hashes[i]
		a, b, c := fuseSlots(f, span, t.log2)
		v := fingerprint(f) ^ field[a] ^ field[b] ^ field[c] // its own slot is still zero
		field[[3]uint64{a, b, c}[s.places[i]]] = v
	}
}
