// Package decode reads the files of a store one by one, without opening the
// store, and goes on behind damage where the store itself would stop: what is
// bad is described, with its place in the file, and what lies behind it is
// read.
//
//	f, err := decode.OpenFile("db/000012.sst")
//	t, err := decode.ReadTable(f, f.Size)
//	for i := range t.Blocks {
//		entries, err := t.Entries(i) // *corrupt.Error: this block is lost
//	}
//
// It is written from docs/format.md and shares no decoder of tables and edits
// with the store, so that each proves the other. It trusts nothing that no
// checksum vouches for, and bounds each length before it allocates.
//
// Nothing here is safe for concurrent use.
package decode

import (
	"encoding/hex"
	"strconv"
)

// Key is a user key: quoted for people, hexadecimal in JSON.
type Key []byte

// String returns the key as a Go string literal.
func (k Key) String() string { return strconv.Quote(string(k)) }

// MarshalText returns the key in hexadecimal digits.
func (k Key) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, k), nil }

// Gap is a part of a file that could not be used: bytes Offset to End.
type Gap struct {
	Offset, End int64
	Cause       error
	// Torn says that nothing vouches for the bytes having been durable: an end
	// that a crash may leave.
	Torn bool
}
