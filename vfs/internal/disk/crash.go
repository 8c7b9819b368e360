package disk

import (
	"maps"
	"math/rand/v2"
)

// Seeds of Crash with a fixed meaning.
const (
	Lost uint64 = 0 // everything that was not synced is lost
	Kept uint64 = 1 // nothing is lost
)

// Crash returns what a crash could leave, as vfs.Mem.CrashClone says. It shares
// the content with d until either writes it.
func (d *Disk) Crash(seed uint64) *Disk {
	namesOf := d.namesAfterCrash(seed)
	survivors := map[*Node]*Node{}
	var survive func(n *Node) *Node
	survive = func(n *Node) *Node {
		if s := survivors[n]; s != nil {
			return s
		}
		s := &Node{id: n.id}
		survivors[n] = s
		if !n.IsDir() {
			s.content = newContent(n.content.afterCrash(seed, n.id))
			return s
		}
		s.names = map[string]*Node{}
		for name, child := range namesOf(n) {
			s.names[name] = survive(child)
		}
		s.durable = maps.Clone(s.names)
		return s
	}
	return &Disk{root: survive(d.root), lastID: d.lastID}
}

// namesAfterCrash decides which changes of names survive, and returns the
// function that tells the surviving names of a directory.
func (d *Disk) namesAfterCrash(seed uint64) func(dir *Node) map[string]*Node {
	if seed == Kept {
		return func(dir *Node) map[string]*Node { return dir.names }
	}
	changed := map[*Node]map[string]*Node{}
	namesOf := func(dir *Node) map[string]*Node {
		if changed[dir] == nil {
			changed[dir] = maps.Clone(dir.durable)
		}
		return changed[dir]
	}
	if seed == Lost {
		return namesOf
	}
	rng := rand.New(rand.NewPCG(seed, d.root.id))
	journal, until := rng.IntN(2) == 0, rng.IntN(len(d.unsynced)+1)
	for i, c := range d.unsynced {
		if kept := rng.IntN(2) == 0; journal && i < until || !journal && kept {
			c.apply(namesOf)
		}
	}
	return namesOf
}

// afterCrash decides which changes of the content survive.
func (c *content) afterCrash(seed, id uint64) *image {
	switch {
	case seed == Lost || len(c.unsynced) == 0:
		return c.durable
	case seed == Kept:
		c.shared = true
		return c.current
	}
	rng := rand.New(rand.NewPCG(seed, id))
	sector := []int64{512, 4096}[rng.IntN(2)]
	keep := rng.IntN(5) // of four: all and nothing are likely, too
	img := c.durable.clone()
	for _, change := range c.unsynced {
		if change.data == nil {
			if rng.IntN(4) < keep {
				img.resize(change.off)
			}
			continue
		}
		for off, rest := change.off, change.data; len(rest) > 0; {
			n := min(int64(len(rest)), sector-off%sector)
			switch {
			case rng.IntN(4) < keep:
				img.writeAt(rest[:n], off)
			case off+n > img.size && rng.IntN(2) == 0:
				img.writeAt(tornTail(rng, off+n-img.size), img.size)
			}
			off, rest = off+n, rest[n:]
		}
	}
	return img
}

// tornTail returns what a file holds where its size was written and its data
// was not: zeros, or what the blocks held before.
func tornTail(rng *rand.Rand, n int64) []byte {
	tail := make([]byte, n)
	if rng.IntN(2) == 0 {
		for i := range tail {
			tail[i] = byte(rng.Uint32())
		}
	}
	return tail
}
