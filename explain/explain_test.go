package explain

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

// everything is a trace that no lookup can make: it has each outcome and each
// answer of a filter once.
func everything() *Trace {
	range1 := &Range{SmallestKey: Key("a"), LargestKey: Key("n")}
	ask := func(table uint64, f Filter, o Outcome, blocks ...Block) Step {
		return Step{Part: Level0, Table: table, Tables: 1, Keys: 1000, Range: range1, Outcome: o,
			Filter: f, FilterKind: "blocked", FilterBitsPerKey: 10, FilterRate: 0.01, Blocks: blocks, Duration: 1500}
	}
	unfiltered := func(s Step) Step {
		s.FilterKind, s.FilterBitsPerKey, s.FilterRate = "", 0, 0
		return s
	}
	disk, cached := Block{Number: 7, Offset: 4096, BytesRead: 1234}, Block{Number: 8, Offset: 5330, Cached: true}
	t := &Trace{
		Schema: Schema, Key: Key("key\x00"), Visible: 12345, Result: Found, Sequence: 99, ValueBytes: 1,
		Duration: 1234 * time.Microsecond, Restarts: 2,
		Steps: []Step{
			{Part: Mutable, Level: -1, Keys: 1, Outcome: Missing, Duration: 400},
			{Part: Immutable, Level: -1, Keys: 12004, Outcome: Newer, Duration: 300},
			{Part: Immutable, Level: -1, Keys: 7, Outcome: Tombstone, Sequence: 100, Duration: 300},
			{Part: Immutable, Level: -1, Keys: 7, Outcome: RangeTombstone, RangeTombstone: 101, Duration: 300},
			{Part: Level0, Table: 20, Tables: 1, Keys: 5, Range: &Range{SmallestKey: Key("x"), LargestKey: Key("z"), Exclusive: true}, Outcome: OutOfRange, Duration: 20},
			{Part: Level0, Table: 19, Tables: 1, Keys: 5, Range: &Range{SmallestKey: Key("x"), LargestKey: Key{}, ToEnd: true}, Outcome: OutOfRange, Duration: 20},
			{Part: Level0, Table: 18, Tables: 1, Range: range1, Outcome: NoEntries, Duration: 20},
			ask(17, No, Filtered),
			ask(16, Maybe, Missing, disk),
			ask(15, Maybe, Newer, cached, disk),
			unfiltered(ask(14, None, Missing, disk)),
			unfiltered(ask(13, Damaged, Missing, disk)),
			unfiltered(ask(12, Off, Tombstone, disk)),
			ask(11, Maybe, RangeTombstone, disk),
			ask(10, No, Filtered),
			{Part: Level0, Table: 9, Tables: 1, Range: range1, Outcome: RangeTombstone, RangeTombstone: 50, Duration: 20},
			ask(8, Maybe, Error),
			{Part: Level, Level: 4, Tables: 29, Outcome: OutOfRange, Duration: 20},
			ask(6, Maybe, Put, disk),
			{Part: Level, Level: 6, Table: 5, Tables: 1470, Range: range1, Outcome: NotReached},
		},
	}
	fuse, restricted, last := &t.Steps[7], &t.Steps[14], &t.Steps[18]
	fuse.FilterKind, fuse.FilterBytesRead = "fuse", 4321
	restricted.RangeTombstone = 60
	t.Steps[13].RangeTombstone = 70
	last.Part, last.Level, last.Tables, last.Sequence = Level, 5, 3, 99
	return t
}

const everythingText = `Executing single-key query on "key\x00", as of sequence number 12345
Began again 2 times, since compactions replaced tables meanwhile
400 ns  memtable            Merging memtable contents (1 key): not there
300 ns  immutable memtable  Merging memtable contents (12,004 keys): only newer versions than this lookup may see
300 ns  immutable memtable  Merging memtable contents (7 keys): found, tombstone #100
300 ns  immutable memtable  Merging memtable contents (7 keys): range tombstone #101 hides the key
 20 ns  L0 000020.sst       Check against min and max keys allows skipping sstable 20 ["x", "z")
 20 ns  L0 000019.sst       Check against min and max keys allows skipping sstable 19 ["x", end]
 20 ns  L0 000018.sst       sstable 18 holds range tombstones only, and none covers the key
1.5 µs  L0 000017.sst       Fuse filter allows skipping sstable 17 (filter read from disk, 4,321 B)
1.5 µs  L0 000016.sst       Index lookup complete (Bloom filter false positive) for sstable 16: block 7 from disk (1,234 B), not there
1.5 µs  L0 000015.sst       Merging data from sstable 15: Bloom filter says maybe, block 8 from cache, block 7 from disk (1,234 B), only newer versions than this lookup may see
1.5 µs  L0 000014.sst       Merging data from sstable 14: no filter, block 7 from disk (1,234 B), not there
1.5 µs  L0 000013.sst       Merging data from sstable 13: filter damaged, block 7 from disk (1,234 B), not there
1.5 µs  L0 000012.sst       Merging data from sstable 12: filters are off, block 7 from disk (1,234 B), found, tombstone #0
1.5 µs  L0 000011.sst       Merging data from sstable 11: Bloom filter says maybe, block 7 from disk (1,234 B), range tombstone #70 hides the key
1.5 µs  L0 000010.sst       Bloom filter allows skipping sstable 10; range tombstone #60 hides all that is older
 20 ns  L0 000009.sst       sstable 9: range tombstone #50 hides the key
1.5 µs  L0 000008.sst       Merging data from sstable 8: Bloom filter says maybe, no block, failed
 20 ns  L4                  Check against min and max keys allows skipping 29 sstables
1.5 µs  L5 000006.sst       Merging data from sstable 6: Bloom filter says maybe, block 7 from disk (1,234 B), found, put #99
        L6 000005.sst       not reached: what is newer has decided
Found: put #99, a value of 1 byte, in 1.2 ms.
1,515 sstables: 34 ruled out by key range, 2 by filter, 7 read, 1,470 not reached.
Blocks: 7 from disk (8,638 B), 1 from cache. False positives: 1, 0.03 expected.
`

func TestText(t *testing.T) {
	if got := everything().String(); got != everythingText {
		t.Errorf("got:\n%s\nwant:\n%s", got, everythingText)
	}
	for _, c := range []struct {
		trace Trace
		want  string
	}{
		{Trace{Result: Absent}, "Not found, in 0 ns.\n"},
		{Trace{Result: Deleted, Sequence: 7}, "Not found: deleted by tombstone #7, in"},
		{Trace{Result: RangeDeleted, Sequence: 8, Steps: []Step{{Tables: 1, Outcome: RangeTombstone}}},
			"Not found: deleted by range tombstone #8, in 0 ns.\n1 sstable: 0 ruled out by key range, 0 by filter, 1 by range tombstone, 0 read, 0 not reached.\n"},
		{Trace{Result: Failed, Error: "the disk is gone"}, "Failed: the disk is gone, in"},
		{Trace{Key: Key(strings.Repeat("k", 100))}, `query on "` + strings.Repeat("k", 64) + `", as`},
	} {
		if got := c.trace.String(); !strings.Contains(got, c.want) {
			t.Errorf("got:\n%s\nwant:\n%s", got, c.want)
		}
	}
}

// TestJSON holds the form that docs/read-path.md describes: another one needs
// another Schema.
func TestJSON(t *testing.T) {
	trace := everything()
	document, err := json.Marshal(trace)
	if err != nil {
		t.Fatal(err)
	}
	var back Trace
	if err := json.Unmarshal(document, &back); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(&back, trace) {
		t.Errorf("came back as %+v", back)
	}
	trace.Steps = []Step{trace.Steps[0], trace.Steps[4], trace.Steps[7], trace.Steps[9], trace.Steps[15], trace.Steps[17], trace.Steps[18]}
	trace.Error = "why"
	if document, err = json.MarshalIndent(trace, "", " "); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/trace.json")
	if err != nil {
		t.Fatal(err)
	}
	if got := append(document, '\n'); !bytes.Equal(got, bytes.ReplaceAll(want, []byte("\r\n"), []byte("\n"))) {
		t.Errorf("got:\n%s", got)
	}
}
