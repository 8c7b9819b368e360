package sievedb

import (
	"bytes"
	"fmt"
)

// cursor is an iterator that stays open, and where it should stand.
type cursor struct {
	*Iterator
	view model
	at   int // in view; -1 is on no key
}

// move moves one of the cursors a few steps, with turns.
func (r *modelRun) move() {
	if len(r.cursors) < 4 {
		it, view := r.iterator(r.db, r.model, "the store, as a cursor")
		r.cursors = append(r.cursors, &cursor{it, view, -1})
	}
	i := r.rng.IntN(len(r.cursors))
	c := r.cursors[i]
	for range 1 + r.rng.IntN(12) {
		r.moveOnce(c)
	}
	if r.rng.IntN(10) == 0 {
		r.check(c.Close())
		r.cursors = append(r.cursors[:i], r.cursors[i+1:]...)
	}
}

func (r *modelRun) moveOnce(c *cursor) {
	var ok bool
	n := len(c.view)
	switch r.rng.IntN(10) {
	case 0:
		r.did = "cursor: first"
		ok, c.at = c.First(), min(0, n-1)
	case 1:
		r.did = "cursor: last"
		ok, c.at = c.Last(), n-1
	case 2:
		k := r.key()
		r.did = fmt.Sprintf("cursor: seek %.40q", k)
		ok = c.SeekGE(k)
		if c.at, _ = c.view.search(k); c.at == n {
			c.at = -1
		}
	case 3:
		k := r.key()
		r.did = fmt.Sprintf("cursor: seek before %.40q", k)
		ok = c.SeekLT(k)
		c.at, _ = c.view.search(k)
		c.at--
	case 4, 5, 6:
		r.did = fmt.Sprintf("cursor: next from %d of %d", c.at, n)
		ok = c.Next()
		if c.at >= 0 {
			if c.at++; c.at == n {
				c.at = -1
			}
		}
	default:
		r.did = fmt.Sprintf("cursor: prev from %d of %d", c.at, n)
		ok = c.Prev()
		c.at = max(c.at-1, -1)
	}
	r.check(c.Err())
	if want := c.at >= 0; ok != want || c.Valid() != want {
		r.fail("stands on %s: %v, want %s", show(c.Key(), c.Value()), ok, c.view.at(c.at))
	}
	if ok && (!bytes.Equal(c.Key(), c.view[c.at].key) || !bytes.Equal(c.Value(), c.view[c.at].value)) {
		r.fail("stands on %s, want %s", show(c.Key(), c.Value()), c.view.at(c.at))
	}
}
