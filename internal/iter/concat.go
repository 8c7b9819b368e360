package iter

import (
	"fmt"

	"sievedb/internal/keys"
)

// Tables is one sorted run of tables, by position. No user key is in two of
// them (invariant 4), and none changes while a Concat uses it. Whoever knows
// the bounds of a scan offers only the tables that overlap them, so that none
// is opened just to see that it lies beyond.
type Tables interface {
	// Len returns the number of tables.
	Len() int
	// Find returns the position of the first table whose last entry is at or
	// after the internal key (userKey, trailer), or Len. The trailer may be
	// ignored: the first table whose largest user key is at or after userKey
	// serves as well.
	Find(userKey []byte, trailer keys.Trailer) int
	// Open returns a new iterator over the table at position i.
	// 0 <= i < Len().
	Open(i int) (Iterator, error)
}

// Concat walks the tables of one run one after the other. It opens a table
// when it gets there and holds at most one open at a time.
type Concat struct {
	tables Tables
	n      int      // tables.Len(), zero once closed
	cur    Iterator // the open table, nil if none
	pos    int      // the position of cur
	valid  bool     // whether cur stands on an entry
	err    error
}

var _ Iterator = (*Concat)(nil)

// NewConcat returns an iterator over tables. It opens none as yet.
func NewConcat(tables Tables) *Concat {
	c := new(Concat)
	c.Reset(tables)
	return c
}

// Failed returns an iterator that stands on no entry, because of err.
func Failed(err error) Iterator { return &Concat{tables: noTables{}, err: err} }

type noTables struct{}

func (noTables) Len() int                      { return 0 }
func (noTables) Find([]byte, keys.Trailer) int { return 0 }
func (noTables) Open(int) (Iterator, error)    { return nil, nil }

// Reset makes c what NewConcat(tables) returns. It does not close what c had
// open; call Close first.
func (c *Concat) Reset(tables Tables) { *c = Concat{tables: tables, n: tables.Len()} }

// First implements Iterator.
func (c *Concat) First() bool {
	c.valid = false
	return c.ascend(0)
}

// Last implements Iterator.
func (c *Concat) Last() bool {
	c.valid = false
	return c.descend(c.n - 1)
}

// SeekGE implements Iterator.
func (c *Concat) SeekGE(userKey []byte, trailer keys.Trailer) bool {
	c.valid = false
	i := c.tables.Find(userKey, trailer)
	if i >= c.n || !c.open(i) {
		return false
	}
	// The table may end with newer versions of userKey; then the answer is the
	// first entry of the next one.
	return c.landed(c.cur.SeekGE(userKey, trailer)) || c.ascend(i+1)
}

// SeekLT implements Iterator.
func (c *Concat) SeekLT(userKey []byte, trailer keys.Trailer) bool {
	c.valid = false
	i := c.tables.Find(userKey, trailer)
	if i >= c.n {
		return c.descend(c.n - 1)
	}
	if !c.open(i) {
		return false
	}
	return c.landed(c.cur.SeekLT(userKey, trailer)) || c.descend(i-1)
}

// Next implements Iterator.
func (c *Concat) Next() bool {
	return c.valid && (c.landed(c.cur.Next()) || c.ascend(c.pos+1))
}

// Prev implements Iterator.
func (c *Concat) Prev() bool {
	return c.valid && (c.landed(c.cur.Prev()) || c.descend(c.pos-1))
}

// Valid implements Iterator.
func (c *Concat) Valid() bool { return c.valid }

// Key implements Iterator.
func (c *Concat) Key() keys.InternalKey { return c.cur.Key() }

// Value implements Iterator.
func (c *Concat) Value() []byte { return c.cur.Value() }

// Lend implements Lender.
func (c *Concat) Lend(bound []byte, reverse bool) Leaf {
	if l, ok := c.cur.(Lender); ok {
		return l.Lend(bound, reverse)
	}
	return nil
}

// Block implements Blocks.
func (c *Concat) Block() Block { return BlockOf(c.cur) }

// Whole implements Blocks.
func (c *Concat) Whole(bound []byte) bool { return WholeOf(c.cur, bound) }

// Error implements Iterator: the first failure of opening, walking or closing
// a table.
func (c *Concat) Error() error { return c.err }

// Close closes the open table. From then on c is an empty sequence.
func (c *Concat) Close() error {
	c.valid = false
	c.shut()
	c.tables, c.n = noTables{}, 0 // whoever keeps c for another use must not keep the tables with it
	return c.err
}

// ascend moves to the first entry of the tables from position i on.
func (c *Concat) ascend(i int) bool {
	for ; i < c.n && c.open(i); i++ {
		if c.landed(c.cur.First()) {
			return true
		}
	}
	return false
}

// descend moves to the last entry of the tables down from position i.
func (c *Concat) descend(i int) bool {
	for ; i >= 0 && c.open(i); i-- {
		if c.landed(c.cur.Last()) {
			return true
		}
	}
	return false
}

// landed notes where a positioning call left the open table, and its failure
// if there is one.
func (c *Concat) landed(ok bool) bool {
	c.valid = ok
	if !ok && c.err == nil {
		c.err = c.cur.Error()
	}
	return ok
}

// open makes the table at position i the open one. It reports false if c has
// failed.
func (c *Concat) open(i int) bool {
	if c.err != nil || c.cur != nil && c.pos == i {
		return c.err == nil
	}
	if c.shut(); c.err != nil {
		return false
	}
	in, err := c.tables.Open(i)
	if err != nil {
		c.err = fmt.Errorf("open table %d of %d of the run: %w", i+1, c.n, err)
		return false
	}
	c.cur, c.pos = in, i
	return true
}

// shut closes the open table, if there is one.
func (c *Concat) shut() {
	if c.cur == nil {
		return
	}
	if err := c.cur.Close(); err != nil && c.err == nil {
		c.err = err
	}
	c.cur = nil
}
