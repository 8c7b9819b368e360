package sstable

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"sievedb/internal/cache"
	"sievedb/internal/keys"
)

// TestLeafSteps holds every step that a leaf makes or refuses, from each entry and
// in both directions, to the entries: block ends, versions, tombstones, snapshots
// and bounds.
func TestLeafSteps(t *testing.T) {
	var steps [2]int
	for name, shape := range shapes {
		t.Run(name, func(t *testing.T) {
			rnd := seed(t, 13)
			es := modelEntries(rnd, shape(rnd, 150))
			for n, size := range []int{64, 300, 300, 4096} {
				if n == 2 {
					es = zeroed(es)
				}
				f, m := build(t, WriterOptions{FileNum: 7, BlockSize: size}, es)
				c := newLeafCheck(rnd, open(t, f, m, cache.New(256<<10)), es)
				for pos := range es {
					for range 2 {
						for _, reverse := range []bool{false, true} {
							if err := c.walk(pos, reverse); err != nil {
								t.Fatalf("block size %d: %v", size, err)
							}
						}
					}
				}
				if err := c.it.Close(); err != nil {
					t.Fatal(err)
				}
				steps[0], steps[1] = steps[0]+c.steps[0], steps[1]+c.steps[1]
			}
		})
	}
	if steps[0] == 0 || steps[1] == 0 {
		t.Errorf("%d steps forward, %d backward", steps[0], steps[1])
	}
}

// zeroed returns es with sequence number zero where a key has no other version, as
// the bottom level has them.
func zeroed(es []entry) []entry {
	es = slices.Clone(es)
	for i := range es {
		if (i == 0 || es[i-1].key != es[i].key) && (i+1 == len(es) || es[i+1].key != es[i].key) {
			es[i].trl = keys.MakeTrailer(0, es[i].trl.Kind())
		}
	}
	return es
}

// leafCheck is an iterator over a table, its entries, and the block that each is in.
type leafCheck struct {
	rnd   *rand.Rand
	it    *Iter
	es    []entry
	block []int
	steps [2]int // made forward and backward
}

func newLeafCheck(rnd *rand.Rand, r *Reader, es []entry) *leafCheck {
	c := &leafCheck{rnd: rnd, it: r.NewIter(IterOptions{}), es: es}
	for ok := c.it.First(); ok; ok = c.it.Next() {
		c.block = append(c.block, c.it.blockIdx)
	}
	return c
}

// bound returns a key near that of entry pos, as it is or changed, or nil.
func (c *leafCheck) bound(pos int) []byte {
	near := min(max(pos-3+c.rnd.IntN(7), 0), len(c.es)-1)
	k := []byte(c.es[near].key)
	switch c.rnd.IntN(6) {
	case 0:
		return nil
	case 1:
		return append(k, 0)
	case 2:
		return k[:c.rnd.IntN(len(k)+1)]
	case 3:
		return []byte(c.es[c.rnd.IntN(len(c.es))].key)
	}
	return k
}

// walk goes from entry pos as far as the leaf does, and one step of the iterator
// more.
func (c *leafCheck) walk(pos int, reverse bool) error {
	bound, snapshot := c.bound(pos), keys.MaxSeqNum
	if c.rnd.IntN(2) == 0 {
		snapshot = keys.SeqNum(c.rnd.Uint64N(1000))
	}
	if !c.it.SeekGE([]byte(c.es[pos].key), c.es[pos].trl) {
		return fmt.Errorf("entry %d not found: %v", pos, c.it.Error())
	}
	leaf := c.it.Lend(bound, reverse)
	for {
		what := fmt.Sprintf("from %d, reverse %t, bound %.60q, snapshot %d", pos, reverse, bound, snapshot)
		if reverse && leaf != nil {
			if got, want := leaf.Alone(), c.alone(pos, bound); got != want {
				return fmt.Errorf("%s: alone: %t", what, got)
			} else if !want {
				return nil // no step backward is asked for
			}
		}
		next, step := pos+1, c.it.NextPut
		want := c.follows(pos, bound) && c.put(pos+1, snapshot)
		if reverse {
			next, step = pos-1, c.it.PrevPut
			want = c.alone(pos, bound) && c.alone(pos-1, bound) && c.put(pos-1, snapshot)
		}
		if leaf == nil {
			if want {
				return fmt.Errorf("%s: no leaf", what)
			}
			return nil
		}
		userKey, value, ok := step(snapshot)
		if ok != want {
			return fmt.Errorf("%s: %t, want %t", what, ok, want)
		}
		if !ok {
			return c.after(what, pos, reverse)
		}
		c.steps[max(pos-next, 0)]++
		pos = next
		if err := c.stands(what, pos); err != nil || string(userKey) != c.es[pos].key || !bytes.Equal(value, c.es[pos].value) {
			return fmt.Errorf("%s: shows %.60q = %q: %v", what, userKey, value, err)
		}
		if cap(value) > len(value) {
			return fmt.Errorf("%s: the value has room behind it", what)
		}
	}
}

// after goes on from pos with a step of the iterator itself.
func (c *leafCheck) after(what string, pos int, reverse bool) error {
	next, step := pos+1, c.it.Next
	if reverse {
		next, step = pos-1, c.it.Prev
	}
	if ok := step(); ok != (next >= 0 && next < len(c.es)) {
		return fmt.Errorf("%s: then the iterator moves: %t", what, ok)
	} else if !ok {
		return nil
	}
	return c.stands(what+", and a step", next)
}

func (c *leafCheck) stands(what string, pos int) error {
	e := c.es[pos]
	if k := c.it.Key(); !c.it.Valid() || string(k.UserKey) != e.key || k.Trailer != e.trl || !bytes.Equal(c.it.Value(), e.value) {
		return fmt.Errorf("%s: on %.60s = %q, want %.60q#%s = %q", what, k, c.it.Value(), e.key, e.trl, e.value)
	}
	return nil
}

// follows reports whether the entry after pos is in its block, of another user key,
// and before bound.
func (c *leafCheck) follows(pos int, bound []byte) bool {
	return pos+1 < len(c.es) && c.block[pos+1] == c.block[pos] && c.es[pos+1].key != c.es[pos].key &&
		(bound == nil || c.es[pos+1].key < string(bound))
}

// alone reports whether the entry before pos is in its block and of another user
// key, and that of pos after bound.
func (c *leafCheck) alone(pos int, bound []byte) bool {
	return pos > 0 && c.block[pos-1] == c.block[pos] && c.es[pos-1].key != c.es[pos].key &&
		(bound == nil || c.es[pos].key > string(bound))
}

func (c *leafCheck) put(pos int, snapshot keys.SeqNum) bool {
	return c.es[pos].trl.Kind() == keys.KindPut && c.es[pos].trl.Visible(snapshot)
}
