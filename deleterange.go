package sievedb

import (
	"bytes"

	"sievedb/internal/batch"
	"sievedb/internal/keys"
)

// DeleteRange removes the keys k with lo <= k < hi, as many as there are, with
// one small write; a nil hi is no bound, as in Scan. Where lo >= hi nothing is
// removed, which is no error. Lookups under the range read no table that is older
// than it, scans pass over it as a whole, and tables that lie within it are
// dropped unread as soon as the memtable is flushed and no snapshot needs them.
// Both slices are copied. Its durability and its errors are those of Put.
func (db *DB) DeleteRange(lo, hi []byte) error {
	if err := checkRange(lo, hi); err != nil {
		return err
	}
	if emptyRange(lo, hi) {
		return db.writable()
	}
	b := scratch.Get().(*batch.Batch)
	b.Reset()
	b.DeleteRange(lo, hi)
	return db.applyScratch(b)
}

// DeleteRange adds a removal of the keys k with lo <= k < hi, those among them
// that the batch put before; a nil hi is no bound. Where lo >= hi it adds nothing.
// It copies both slices. A bound that is too long for a key is reported by Apply.
func (b *Batch) DeleteRange(lo, hi []byte) {
	if b.accept(checkRange(lo, hi)) && !emptyRange(lo, hi) && b.accept(b.checkSize(len(lo)+len(hi))) {
		b.ops.DeleteRange(lo, hi)
	}
}

// DeleteRange removes the keys k with lo <= k < hi in the transaction, its own
// among them; a nil hi is no bound, and where lo >= hi nothing is removed. Other
// transactions that read any key of the range, present or not, conflict with it.
// It copies both slices.
func (tx *Txn) DeleteRange(lo, hi []byte) error {
	if err := tx.write(checkRange(lo, hi)); err != nil || emptyRange(lo, hi) {
		return err
	}
	tx.writes.DeleteRange(lo, hi)
	return tx.add(lo, keys.KindRangeDelete, hi)
}

// emptyRange reports whether no key k has lo <= k < hi.
func emptyRange(lo, hi []byte) bool { return hi != nil && bytes.Compare(lo, hi) >= 0 }

func checkRange(lo, hi []byte) error {
	if err := checkKey(lo); err != nil {
		return err
	}
	return checkKey(hi)
}
