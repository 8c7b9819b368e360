package salvage

import (
	"bytes"
	"fmt"
	"path"
	"slices"

	"sievedb/cmd/sievectl/internal/decode"
)

// Report says what a repair found, wrote and lost.
type Report struct {
	Source string `json:"source"`
	Dest   string `json:"dest"`

	Files  []*FileReport `json:"files"`
	Losses []*Loss       `json:"losses"`
	// Damage is what was bad and cost nothing but certainty: a filter, an index
	// whose blocks were found without it.
	Damage []string `json:"damage"`
	// Notes say what else to know.
	Notes []string `json:"notes"`

	KeysWritten  uint64 `json:"keys_written"`
	BytesWritten uint64 `json:"bytes_written"` // of their keys and values
	// MaybeStale of the keys written lie where a table may have lost something
	// newer: they may have an older value than they should, or have been
	// deleted.
	MaybeStale uint64 `json:"keys_maybe_stale"`
}

// Whole reports whether nothing was damaged.
func (r *Report) Whole() bool { return len(r.Losses)+len(r.Damage) == 0 }

// FileReport says what one table or segment gave.
type FileReport struct {
	Name    string `json:"name"`
	Level   *int   `json:"level,omitempty"`   // of a table, if it is known
	Scanned bool   `json:"scanned,omitempty"` // blocks were found without an index
	Parts   uint64 `json:"parts"`             // blocks or records used
	Entries uint64 `json:"entries"`           // used
	// Lost is the number of entries that were not read, if it is known.
	Lost *uint64 `json:"entries_lost,omitempty"`
}

// Loss is a part of a file that could not be used.
type Loss struct {
	File    string  `json:"file"`
	Offset  int64   `json:"offset"`
	End     int64   `json:"end"`
	Entries *uint64 `json:"entries,omitempty"` // if it is known
	// Keys says which user keys may have been there, as far as that is known.
	Keys  *KeyRange `json:"keys,omitempty"`
	Cause string    `json:"cause"`
}

// String prints the loss on one line.
func (l *Loss) String() string {
	s := fmt.Sprintf("%s, bytes %d to %d", l.File, l.Offset, l.End)
	if l.Entries != nil {
		s += fmt.Sprintf(", entries: %d", *l.Entries)
	}
	if l.Keys != nil {
		s += ", " + l.Keys.String()
	}
	return s + ": " + l.Cause
}

// KeyRange is a range of user keys. A nil end is no bound.
type KeyRange struct {
	From    decode.Key `json:"from"`
	To      decode.Key `json:"to"`
	NotFrom bool       `json:"from_excluded"`
	NotTo   bool       `json:"to_excluded"`

	level int // of the table, which tells what is older
}

// String names the range.
func (r *KeyRange) String() string {
	s := "keys"
	switch {
	case r.From == nil && r.To == nil:
		return "any keys"
	case r.From != nil && r.NotFrom:
		s += " after " + r.From.String()
	case r.From != nil:
		s += " from " + r.From.String()
	}
	switch {
	case r.To != nil && r.NotTo:
		s += " below " + r.To.String()
	case r.To != nil:
		s += " to " + r.To.String()
	}
	return s
}

// passed reports whether key lies behind the range.
func (r *KeyRange) passed(key []byte) bool {
	c := bytes.Compare(key, r.To)
	return r.To != nil && (c > 0 || c == 0 && r.NotTo)
}

// holds reports whether key lies in the range.
func (r *KeyRange) holds(key []byte) bool {
	c := bytes.Compare(key, r.From)
	return !r.passed(key) && (r.From == nil || c > 0 || c == 0 && !r.NotFrom)
}

func (r *Report) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// lostRecords reports whether something of the WAL is lost.
func (r *Report) lostRecords() bool {
	return slices.ContainsFunc(r.Losses, func(l *Loss) bool { return path.Ext(l.File) == ".wal" })
}

func (r *Report) damaged(err error) { r.Damage = append(r.Damage, err.Error()) }

// lose adds a loss and returns it.
func (r *Report) lose(file string, offset, end int64, cause any) *Loss {
	l := &Loss{File: file, Offset: offset, End: end, Cause: fmt.Sprint(cause)}
	r.Losses = append(r.Losses, l)
	return l
}
