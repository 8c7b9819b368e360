// Package explain describes what one lookup did: every part of the store that
// could have held the key, in the order in which lookups come to them, and why
// each was read or not.
//
//	trace, err := db.Explain(key)
//	fmt.Print(trace)                    // for people
//	document, err := json.Marshal(trace) // for programs
//
// The words of the text are those of Cassandra's request tracing where that has
// them, so it says sstable where this store says table. The fields of the JSON
// are described in docs/read-path.md. Fields may be added to it; one that changes
// its meaning, or goes, makes another [Schema].
//
// A Trace is a plain value that nobody else keeps.
package explain

import (
	"encoding/hex"
	"time"
)

// Schema names the form of the JSON.
const Schema = "sievedb.explain/1"

// Trace is what one lookup did.
type Trace struct {
	Schema string `json:"schema"` // Schema
	Key    Key    `json:"key"`
	// Visible is the newest sequence number that the lookup could see.
	Visible uint64 `json:"visible_sequence"`
	Result  Result `json:"result"`
	// Sequence is that of the entry or range tombstone that decided, if one did.
	Sequence   uint64        `json:"sequence"`
	ValueBytes int           `json:"value_bytes"`
	Duration   time.Duration `json:"duration_ns"`
	// Restarts counts how often the lookup began again because a table that it
	// wanted to read had been replaced. Steps are those of the last attempt.
	Restarts int    `json:"restarts"`
	Error    string `json:"error,omitempty"` // why Result is Failed
	Steps    []Step `json:"steps"`
}

// Result is how a lookup ended.
type Result string

const (
	// Found says that a put decided.
	Found Result = "found"
	// Deleted says that a tombstone decided.
	Deleted Result = "deleted"
	// RangeDeleted says that the key was not found down to a range tombstone that
	// covers it, which hides all that is older.
	RangeDeleted Result = "range_deleted"
	// Absent says that no part of the store has a version that is visible.
	Absent Result = "absent"
	// Failed says that a table could not be read.
	Failed Result = "failed"
)

// Step is one part of the store: a memtable, a table of level 0, or a deeper
// level, in which one table at most can hold the key.
type Step struct {
	Part Part `json:"part"`
	// Level is that of tables, -1 of memtables.
	Level int `json:"level"`
	// Table is the file number of the table that can hold the key by its range,
	// or of the table of level 0; zero if no table of a deeper level can.
	Table  uint64 `json:"table,omitempty"`
	Tables int    `json:"tables,omitempty"` // 1 in level 0, all of a deeper level, none of a memtable
	Keys   uint64 `json:"keys"`             // distinct ones, of the memtable or Table
	// Range is what Table covers, nil without one.
	Range *Range `json:"range,omitempty"`

	Outcome Outcome `json:"outcome"`
	// Filter is what the table's filter said; empty if it was not asked.
	Filter Filter `json:"filter,omitempty"`
	// FilterKind names how the filter works, FilterBitsPerKey its size, and
	// FilterRate the share of absent keys for which its bits say maybe.
	FilterKind       string  `json:"filter_kind,omitempty"`
	FilterBitsPerKey float64 `json:"filter_bits_per_key,omitempty"`
	FilterRate       float64 `json:"filter_rate,omitempty"`
	// FilterBytesRead is the size of the filter in the file if this lookup was
	// the first to ask it; it is resident from then on.
	FilterBytesRead uint64 `json:"filter_bytes_read,omitempty"`
	// Blocks are the data blocks that the lookup looked into, mostly one.
	Blocks []Block `json:"blocks,omitempty"`

	// Sequence is that of the newest visible entry, if there is one: compactions
	// make it zero at the bottom, where there is nothing older to tell it from.
	Sequence uint64 `json:"sequence"`
	// RangeTombstone is the sequence number of the newest visible range tombstone
	// here that covers the key, zero if none does.
	RangeTombstone uint64        `json:"range_tombstone,omitempty"`
	Duration       time.Duration `json:"duration_ns"` // since the step before
}

// Range is what a table covers: the keys from SmallestKey to LargestKey. That
// is a key of the table, unless Exclusive is set, where a range tombstone ends,
// or ToEnd, where one has no end.
type Range struct {
	SmallestKey Key  `json:"smallest_key"`
	LargestKey  Key  `json:"largest_key"`
	Exclusive   bool `json:"exclusive,omitempty"`
	ToEnd       bool `json:"to_end,omitempty"`
}

// Part says what kind of part of the store a step is about.
type Part string

const (
	// Mutable is the memtable that takes the writes.
	Mutable Part = "memtable"
	// Immutable is a memtable that waits to be flushed.
	Immutable Part = "immutable_memtable"
	// Level0 is a table of level 0, whose tables may overlap.
	Level0 Part = "level0_table"
	// Level is a deeper level, whose tables do not overlap.
	Level Part = "level"
)

// Outcome is what came of a step.
type Outcome string

const (
	// NotReached: the lookup was over before it came here.
	NotReached Outcome = "not_reached"
	// OutOfRange: the key lies outside of the bounds. Nothing else was looked at.
	OutOfRange Outcome = "out_of_range"
	// NoEntries: the table holds range tombstones alone, and none covers the key.
	NoEntries Outcome = "no_entries"
	// Filtered: the filter said no, and no block was looked at.
	Filtered Outcome = "filtered"
	// Put: here is the newest visible version, and it is a value.
	Put Outcome = "put"
	// Tombstone: here is the newest visible version, and the key was deleted.
	Tombstone Outcome = "tombstone"
	// RangeTombstone: a range tombstone hides all versions that are here, if there
	// are any, and all that are older.
	RangeTombstone Outcome = "range_tombstone"
	// Missing: the key was looked for, and is not here.
	Missing Outcome = "missing"
	// Newer: the key is here, but in newer versions only than may be seen.
	Newer Outcome = "newer"
	// Error: a block could not be read.
	Error Outcome = "error"
)

// Filter is the answer of a filter.
type Filter string

const (
	// No is certain: the table does not hold the key.
	No Filter = "no"
	// Maybe: the table has to be read.
	Maybe Filter = "maybe"
	// None: the table has no filter.
	None Filter = "none"
	// Damaged: the filter could not be read, so that the table has to be.
	Damaged Filter = "damaged"
	// Off: Options.DisableFilters is set.
	Off Filter = "off"
)

// Block is a data block that a lookup looked into.
type Block struct {
	Number    int    `json:"number"` // in the table, from 0
	Offset    uint64 `json:"offset"` // in the file, in bytes
	Cached    bool   `json:"cached"` // it was in the block cache
	BytesRead uint64 `json:"bytes_read"`
}

// FalsePositive reports whether the filter said maybe in vain.
func (s *Step) FalsePositive() bool { return s.Filter == Maybe && s.Outcome == Missing }

// Totals adds up what a lookup did.
type Totals struct {
	Tables          int // all tables of the store
	RuledOutByRange int // of those: the key lies outside of what they cover
	NotReached      int // the lookup was over before it came to them

	Negatives      int // their filter said no
	TruePositives  int // it said maybe, and they hold the key, however old or new
	FalsePositives int // it said maybe in vain
	Unfiltered     int // there was no filter to ask
	// ExpectedFalsePositives is the sum of the rates of the filters that were
	// asked about a key that their table does not hold.
	ExpectedFalsePositives float64

	BlocksCached, BlocksRead   int
	BytesRead, FilterBytesRead uint64 // of blocks, and of filters that were not resident yet
}

// Totals returns the sums over all steps.
func (t *Trace) Totals() (n Totals) {
	for i := range t.Steps {
		t.Steps[i].addTo(&n)
	}
	return n
}

func (s *Step) addTo(n *Totals) {
	n.Tables += s.Tables
	switch s.Outcome {
	case NotReached:
		n.NotReached += s.Tables
	case OutOfRange, NoEntries:
		n.RuledOutByRange += s.Tables
	default:
		n.RuledOutByRange += max(0, s.Tables-1)
	}
	for _, b := range s.Blocks {
		if b.Cached {
			n.BlocksCached++
		} else {
			n.BlocksRead++
			n.BytesRead += b.BytesRead
		}
	}
	n.FilterBytesRead += s.FilterBytesRead
	switch {
	case s.Filter == "" || s.Outcome == Error:
	case s.Filter == No:
		n.Negatives++
		n.ExpectedFalsePositives += s.FilterRate
	case s.Filter != Maybe:
		n.Unfiltered++
	case s.FalsePositive():
		n.FalsePositives++
		n.ExpectedFalsePositives += s.FilterRate
	default:
		n.TruePositives++
	}
}

// Key is a user key, in JSON as hexadecimal digits.
type Key []byte

// MarshalText returns the key in hexadecimal digits.
func (k Key) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, k), nil }

// UnmarshalText is the inverse of MarshalText.
func (k *Key) UnmarshalText(digits []byte) (err error) {
	*k, err = hex.AppendDecode(Key{}, digits)
	return err
}
