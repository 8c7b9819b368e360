// Package counters counts what point lookups do with tables, without becoming
// what they contend for.
//
//	line := c.Line(counters.Stripe())
//	line.Negatives.Add(1)
//	sums := c.Load()
//
// Everything is safe for concurrent use.
package counters

import (
	"sync/atomic"
	"unsafe"
)

// Counts is what lookups did with one table, or with all tables of a level.
// Checked lookups are those whose key lay within the table's bounds:
// Negatives + TruePositives + FalsePositives + Unfiltered.
type Counts struct {
	Negatives      uint64 // the filter said no: nothing was read
	TruePositives  uint64 // it said maybe, and the key was there, however old or new
	FalsePositives uint64 // it said maybe in vain
	Unfiltered     uint64 // there was no filter to ask
	BlocksCached   uint64 // data blocks that lookups found in the cache
	BlocksRead     uint64 // data blocks that lookups read from the file
}

// Add adds o to c.
func (c *Counts) Add(o Counts) {
	c.Negatives += o.Negatives
	c.TruePositives += o.TruePositives
	c.FalsePositives += o.FalsePositives
	c.Unfiltered += o.Unfiltered
	c.BlocksCached += o.BlocksCached
	c.BlocksRead += o.BlocksRead
}

// stripes is a power of two: so many goroutines can count side by side without
// sharing a cache line.
const stripes = 8

// Counters adds up Counts of concurrent lookups, striped so that counting does
// not become what they contend for.
type Counters struct {
	lines [stripes]Line
}

// Line is one stripe, a cache line. Its exported fields are those of Counts; what
// Hit counted comes on top.
type Line struct {
	Negatives, TruePositives, FalsePositives, Unfiltered, BlocksCached, BlocksRead atomic.Uint64

	hits atomic.Uint64
	// streak is where the hits in a row began: in its low half Negatives, and in
	// its high half hits, of that moment. Negatives alone end it, which so costs
	// them nothing.
	streak atomic.Uint64
}

// likelyAfter is how many hits in a row make another likely. Fewer would be wrong
// too often where hits and negatives take turns.
const likelyAfter = 4

// Hit counts a true positive with one block, which was cached: the lookup that
// there are most of, in one addition.
func (l *Line) Hit() {
	hits := l.hits.Add(1)
	if n := uint32(l.Negatives.Load()); n != uint32(l.streak.Load()) {
		l.streak.Store(hits<<32 | uint64(n))
	}
}

// HitLikely reports whether the last lookups that were counted here were hits, and
// some in a row, so that it is worth while to expect another. It is a guess.
func (l *Line) HitLikely() bool {
	began := l.streak.Load()
	return uint32(began) == uint32(l.Negatives.Load()) && uint32(l.hits.Load())-uint32(began>>32) >= likelyAfter
}

// Stripe picks a stripe by the address of the caller's stack, which differs
// between goroutines and costs nothing to know.
func Stripe() int {
	var here byte
	return int(uintptr(unsafe.Pointer(&here))>>11) & (stripes - 1)
}

// Line returns a stripe to count in.
func (c *Counters) Line(stripe int) *Line { return &c.lines[stripe] }

// Load returns the sums.
func (c *Counters) Load() (n Counts) {
	for i := range c.lines {
		l := &c.lines[i]
		hits := l.hits.Load()
		n.Add(Counts{
			Negatives:      l.Negatives.Load(),
			TruePositives:  l.TruePositives.Load() + hits,
			FalsePositives: l.FalsePositives.Load(),
			Unfiltered:     l.Unfiltered.Load(),
			BlocksCached:   l.BlocksCached.Load() + hits,
			BlocksRead:     l.BlocksRead.Load(),
		})
	}
	return n
}
