package sievedb

import (
	"errors"
	"fmt"
	"testing"
)

// Conditional writes see range deletes: looked up in a table, in a memtable, or
// between the look-up and the commit.
func TestConditionsSeeRangeDeletes(t *testing.T) {
	db := openMem(t, tiny)
	put := func(want bool) {
		t.Helper()
		if done, err := db.PutIfAbsent([]byte("k"), []byte("v")); done != want || err != nil {
			t.Errorf("PutIfAbsent: %v, %v", done, err)
		}
	}
	swap := func(want bool) {
		t.Helper()
		if done, err := db.CompareAndSwap([]byte("k"), []byte("v"), []byte("v")); done != want || err != nil {
			t.Errorf("CompareAndSwap: %v, %v", done, err)
		}
	}
	for _, between := range []func(){func() {}, func() { flushAll(t, db) }, func() { compactAll(t, db) }} {
		put(true)
		between()
		put(false)
		must(t, db.DeleteRange([]byte("a"), []byte("z")))
		swap(false)
		between()
		swap(false)
		put(true)
		between()
		swap(true)
		must(t, db.DeleteRange([]byte("k"), nil))
	}
	must(t, db.Put([]byte("k"), []byte("v")))
	conditions := []condition{{key: []byte("k"), value: []byte("v")}}
	held := make([]bool, 1)
	at, err := db.evaluate(conditions, held)
	must(t, err)
	if !held[0] || db.recheck(conditions, held, at) != nil {
		t.Fatal("the condition does not hold to begin with")
	}
	must(t, db.DeleteRange([]byte("j"), []byte("l")))
	if err := db.recheck(conditions, held, at); !errors.Is(err, ErrConflict) {
		t.Errorf("a range delete after the look-up: %v", err)
	}
}

// A transaction sees its own range deletes, in their order among its writes, and
// nobody else does before it commits.
func TestTxnSeesItsOwnRangeDeletes(t *testing.T) {
	db := openMem(t, Options{MemtableBytes: 16 << 10})
	for _, k := range []string{"a", "b", "c", "d", "e"} {
		must(t, db.Put([]byte(k), []byte("old")))
	}
	must(t, db.DeleteRange([]byte("e"), nil))
	boom := errors.New("boom")
	for _, end := range []error{boom, nil} {
		err := db.Update(func(tx *Txn) error {
			must(t, tx.Put([]byte("c1"), []byte("own")))
			must(t, tx.DeleteRange([]byte("b"), []byte("d")))
			before := tx.All() // sees what was written before it
			must(t, tx.Put([]byte("c"), []byte("new")))
			must(t, tx.DeleteRange([]byte("z"), []byte("b")))
			want := "[a=old c=new d=old]"
			if got := fmt.Sprint(collect(t, tx.All())); got != want {
				t.Errorf("scan: %s, want %s", got, want)
			}
			must(t, tx.DeleteRange([]byte("d"), nil))
			if got := fmt.Sprint(collect(t, before)); got != "[a=old d=old]" {
				t.Errorf("a scan from before: %s", got)
			}
			var back []string
			for k := range tx.Scan([]byte("a1"), nil).Backward() {
				back = append(back, string(k))
			}
			if fmt.Sprint(back) != "[c]" {
				t.Errorf("backward: %v", back)
			}
			for k, want := range map[string]string{"a": "old", "b": "", "c": "new", "c1": "", "d": "", "e": ""} {
				v, err := tx.Get([]byte(k))
				has, errHas := tx.Has([]byte(k))
				if string(v) != want || (err == nil) != (want != "") || has != (want != "") || errHas != nil {
					t.Errorf("%s: %q, %v, %v, %v", k, v, err, has, errHas)
				}
			}
			if ok, err := db.Has([]byte("b")); !ok || err != nil {
				t.Errorf("from outside: %v, %v", ok, err)
			}
			return end
		})
		if !errors.Is(err, end) {
			t.Fatal(err)
		}
	}
	if got := fmt.Sprint(collect(t, db.All())); got != "[a=old c=new]" {
		t.Errorf("after the commit: %s", got)
	}
}

// A range delete conflicts with what was read of its keys, present or not, and
// with nothing else.
func TestTxnRangeDeleteConflicts(t *testing.T) {
	for _, c := range []struct {
		name     string
		read     func(tx *Txn)
		lo, hi   string
		conflict bool
	}{
		{"nothing read", func(tx *Txn) {}, "a", "z", false},
		{"a key in it", func(tx *Txn) { tx.Get([]byte("k5")) }, "k5", "k6", true},
		{"an absent key in it", func(tx *Txn) { tx.Has([]byte("k55")) }, "k5", "k6", true},
		{"the key at its end", func(tx *Txn) { tx.Get([]byte("k6")) }, "k5", "k6", false},
		{"the key before it", func(tx *Txn) { tx.Get([]byte("k4")) }, "k5", "k6", false},
		{"a scan into it", func(tx *Txn) { drain(tx.Scan([]byte("k2"), []byte("k5"))) }, "k4", "k9", true},
		{"a scan from its end on", func(tx *Txn) { drain(tx.Scan([]byte("k2"), []byte("k5"))) }, "a", "k2", false},
		{"a scan within it", func(tx *Txn) { drain(tx.Scan([]byte("k22"), []byte("k23"))) }, "k", "k9", true},
		{"a scan that stopped before it", func(tx *Txn) { it := tx.All(); it.First(); it.Close() }, "k1", "k9", false},
		{"without end, behind a scan to the end", func(tx *Txn) { drain(tx.Scan([]byte("k2"), nil)) }, "zz", "", true},
		{"without end, behind a scan that ends", func(tx *Txn) { drain(tx.Scan([]byte("k2"), []byte("k3"))) }, "zz", "", false},
	} {
		for _, after := range []string{"in the memtable", "flushed", "compacted"} {
			db := openMem(t, Options{})
			for i := range 9 {
				must(t, db.Put(fmt.Append(nil, "k", i), []byte("v")))
			}
			attempts := 0
			err := db.Update(func(tx *Txn) error {
				attempts++
				c.read(tx)
				if attempts == 1 {
					var hi []byte
					if c.hi != "" {
						hi = []byte(c.hi)
					}
					must(t, db.DeleteRange([]byte(c.lo), hi))
					switch after {
					case "flushed":
						flushAll(t, db)
					case "compacted":
						compactAll(t, db)
					}
				}
				return tx.Put([]byte("out"), []byte("mine"))
			})
			if err != nil || (attempts == 2) != c.conflict {
				t.Errorf("%s, %s: %d attempts, %v", c.name, after, attempts, err)
			}
		}
	}
}

// someOf notes in op that the keys of a range are deleted, and returns its bounds.
func (c *linearClient) someOf(g *linearGroup, op *linearCall) (lo, hi []byte) {
	from := c.rng.IntN(g.keys)
	to := from + 1 + c.rng.IntN(g.keys-from)
	for i := from; i < to; i++ {
		op.write(i, "")
	}
	if to == g.keys {
		return g.key(from), prefixEnd([]byte(g.prefix))
	}
	return g.key(from), g.key(to)
}

// maybeSome has del delete some keys, or does nothing.
func (c *linearClient) maybeSome(g *linearGroup, op *linearCall, del func(lo, hi []byte) error) error {
	if c.one(4) {
		return del(c.someOf(g, op))
	}
	return nil
}
