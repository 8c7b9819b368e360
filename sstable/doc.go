// Package sstable writes and reads immutable sorted tables: one file of
// internal keys and values in order, with a filter over its user keys, an
// index that is resident while the table is open, and checksums that the
// footer's one checksum commits to.
//
//	w := sstable.NewWriter(f, sstable.WriterOptions{FileNum: 7, FilterMillibits: 10_000})
//	err := w.Add(keys.Make(userKey, seq, keys.KindPut), value) // ascending
//	err = w.AddRangeDeletes(rangedel.Fragment(tombstones, snapshots))
//	meta, err := w.Finish()                                    // synced
//
//	r, err := sstable.Open(f, sstable.ReaderOptions{
//		Name: "000007.sst", Cache: c, WantSize: meta.SizeBytes,
//		WantChecksum: meta.Checksum, CheckIdentity: true,
//	})
//	h := filter.Hash(userKey)
//	cover := r.RangeDels().Covering(userKey, snapshot) // what is older is hidden
//	if may, _ := r.MayContain(h); may {
//		found, err := r.Get(nil, userKey, h, snapshot)
//	}
//
// The layout of the file stands above its codecs: the file and its footer in
// footer.go, the frame around every block in frame.go, the data block in
// internal/block/block.go, the index in index.go, the properties in properties.go;
// the range tombstones in package rangedel. A table may hold those only.
//
// A Reader is safe for concurrent use. A Writer and an Iter are for one
// goroutine at a time. The package starts no goroutines.
//
// Damage is reported as a *corrupt.Error that names the file and the offset. A
// table that is whole but needs a later version of the store is ErrUnsupported
// instead. Damage to a filter is no error of a lookup: the table then answers
// "maybe" to everything, and LoadFilter tells.
package sstable

import "sievedb/sstable/internal/block"

// ErrUnsupported marks a table that is not damaged but uses something that
// this version of the store does not know.
var ErrUnsupported = block.ErrUnsupported

const (
	// MaxUserKeyLen bounds a user key, in bytes.
	MaxUserKeyLen = block.MaxUserKeyLen
	// MaxValueLen bounds a value, in bytes.
	MaxValueLen = block.MaxValueLen
	// MaxBlockSizeBytes bounds WriterOptions.BlockSize.
	MaxBlockSizeBytes = block.MaxSizeBytes
)
