// Package verify checks the files of a store against what the manifest says of
// them, beside a writer or without one. It has no state: every function may run
// beside everything else.
//
//	err := verify.Table(table)
//	err = verify.Segment(file, num, store, sizeBytes)
//
// Damage is a *corrupt.Error; any other error is one of reading.
package verify

import (
	"fmt"

	"sievedb/internal/batch"
	"sievedb/internal/corrupt"
	"sievedb/internal/keys"
	"sievedb/internal/table"
	"sievedb/vfs"
	"sievedb/wal"
)

// Table reads all of t, past the cache, and compares what it holds with what it
// says of itself (sstable.Reader.Verify), and that with what the manifest says.
// The caller holds a state with t.
func Table(t *table.Table) error {
	r, err := t.Reader() // which compares the bounds
	if err != nil {
		return err
	}
	if err := r.Verify(); err != nil {
		return err
	}
	m, p, b := t.Meta, r.Properties(), r.Bounds()
	for _, c := range []struct {
		what      string
		want, got uint64
	}{
		{"entries", m.Entries, p.Entries},
		{"deletes", m.Deletes, p.Deletes},
		{"user keys", m.UserKeys, p.UserKeys},
		{"raw bytes", m.RawBytes, p.RawKeyBytes + p.RawValueBytes},
		{"range tombstones", m.RangeDeletes, p.RangeDeletes},
		{"smallest sequence number", uint64(m.SmallestSeq), uint64(b.SmallestSeq)},
		{"largest sequence number", uint64(m.LargestSeq), uint64(b.LargestSeq)},
	} {
		if c.want != c.got {
			return corrupt.In(corrupt.At(0, c.what+" as in the manifest", fmt.Sprint(c.want), fmt.Sprint(c.got)), r.Name(), 0)
		}
	}
	return nil
}

// Segment checks that the first sizeBytes bytes of segment num, which f has
// open, are whole records and can be replayed. What lies behind them may be
// written meanwhile. f stays open.
func Segment(f vfs.File, num keys.FileNum, store wal.StoreID, sizeBytes int64) error {
	fsys := openFile{file: prefix{f, sizeBytes}}
	_, err := wal.Replay(fsys, "", store, wal.Segment{Num: num, Sealed: true, SizeBytes: sizeBytes}, func(payload []byte) error {
		ops, err := batch.Decode(payload)
		if err != nil {
			return err
		}
		for _, ok := ops.Next(); ok; _, ok = ops.Next() {
		}
		return ops.Err()
	})
	return err
}

// openFile opens a file that is open already, whatever became of its name.
// wal.Replay calls nothing else.
type openFile struct {
	vfs.FS
	file vfs.File
}

func (o openFile) Open(string) (vfs.File, error) { return o.file, nil }

// prefix is the beginning of a file that grows or is cut behind it. Who opened
// the file closes it.
type prefix struct {
	vfs.File
	sizeBytes int64
}

func (p prefix) Size() (int64, error) {
	size, err := p.File.Size()
	return min(size, p.sizeBytes), err
}

func (p prefix) Close() error { return nil }
