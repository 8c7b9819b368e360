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

// Line is one stripe. Its fields are those of Counts.
type Line struct {
	Negatives, TruePositives, FalsePositives, Unfiltered, BlocksCached, BlocksRead atomic.Uint64

	_ [16]byte
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
		n.Add(Counts{
			Negatives:      l.Negatives.Load(),
			TruePositives:  l.TruePositives.Load(),
			FalsePositives: l.FalsePositives.Load(),
			Unfiltered:     l.Unfiltered.Load(),
			BlocksCached:   l.BlocksCached.Load(),
			BlocksRead:     l.BlocksRead.Load(),
		})
	}
	return n
}
