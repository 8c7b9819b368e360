package explain

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// String returns the trace as a table for people, a line for each step.
func (t *Trace) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Executing single-key query on %s, as of sequence number %d\n", t.Key, t.Visible)
	if t.Restarts > 0 {
		fmt.Fprintf(&b, "Began again %d times, since compactions replaced tables meanwhile\n", t.Restarts)
	}
	var rows [][3]string
	for i := range t.Steps {
		rows = append(rows, [3]string{t.Steps[i].took(), t.Steps[i].where(), t.Steps[i].what()})
	}
	var wide [2]int
	for _, r := range rows {
		for i := range wide {
			wide[i] = max(wide[i], utf8.RuneCountInString(r[i]))
		}
	}
	for _, r := range rows {
		fmt.Fprintf(&b, "%*s  %-*s  %s\n", wide[0], r[0], wide[1], r[1], r[2])
	}
	b.WriteString(t.summary())
	return b.String()
}

// String returns the key as a Go string literal, cut off after 64 bytes.
func (k Key) String() string { return fmt.Sprintf("%.64q", []byte(k)) }

func (s *Step) took() string {
	if s.Outcome == NotReached {
		return ""
	}
	return duration(s.Duration)
}

// duration prints d in one unit.
func duration(d time.Duration) string {
	switch {
	case d < time.Microsecond:
		return fmt.Sprintf("%d ns", d)
	case d < time.Millisecond:
		return fmt.Sprintf("%.1f µs", float64(d)/1e3)
	}
	return fmt.Sprintf("%.1f ms", float64(d)/1e6)
}

func (s *Step) where() string {
	switch {
	case s.Part == Mutable:
		return "memtable"
	case s.Part == Immutable:
		return "immutable memtable"
	case s.Table == 0:
		return fmt.Sprintf("L%d", s.Level)
	}
	return fmt.Sprintf("L%d %06d.sst", s.Level, s.Table)
}

func (s *Step) what() string {
	switch {
	case s.Outcome == NotReached:
		return "not reached: what is newer has decided"
	case s.Level < 0:
		return fmt.Sprintf("Merging memtable contents (%s): %s", many(s.Keys, "key"), s.outcome())
	case s.Outcome == OutOfRange && s.Table == 0:
		return "Check against min and max keys allows skipping " + many(s.Tables, "sstable")
	case s.Outcome == OutOfRange:
		return fmt.Sprintf("Check against min and max keys allows skipping sstable %d %s", s.Table, s.Range)
	case s.Outcome == NoEntries:
		return fmt.Sprintf("sstable %d holds range tombstones only, and none covers the key", s.Table)
	case s.Filter == "" && s.Outcome == RangeTombstone:
		return fmt.Sprintf("sstable %d: %s", s.Table, s.outcome())
	case s.Outcome == Filtered:
		return fmt.Sprintf("%s allows skipping sstable %d%s%s", s.filterName(), s.Table, s.loaded(), s.behind())
	case s.FalsePositive():
		return fmt.Sprintf("Index lookup complete (%s false positive) for sstable %d%s: %s, not there%s",
			lowerFirst(s.filterName()), s.Table, s.loaded(), s.blocks(), s.behind())
	}
	return fmt.Sprintf("Merging data from sstable %d: %s%s, %s, %s%s", s.Table, s.said(), s.loaded(), s.blocks(), s.outcome(), s.behind())
}

// String shows the range as an interval.
func (r *Range) String() string {
	switch {
	case r.ToEnd:
		return fmt.Sprintf("[%s, end]", r.SmallestKey)
	case r.Exclusive:
		return fmt.Sprintf("[%s, %s)", r.SmallestKey, r.LargestKey)
	}
	return fmt.Sprintf("[%s, %s]", r.SmallestKey, r.LargestKey)
}

func (s *Step) filterName() string {
	switch s.FilterKind {
	case "blocked", "standard":
		return "Bloom filter"
	case "":
		return "Filter"
	}
	return strings.ToUpper(s.FilterKind[:1]) + s.FilterKind[1:] + " filter"
}

// lowerFirst makes a name fit for the middle of a sentence; Bloom stays a name.
func lowerFirst(name string) string {
	if strings.HasPrefix(name, "Bloom") {
		return name
	}
	return strings.ToLower(name)
}

func (s *Step) said() string {
	switch s.Filter {
	case Maybe:
		return s.filterName() + " says maybe"
	case Damaged:
		return "filter damaged"
	case Off:
		return "filters are off"
	}
	return "no filter"
}

// loaded tells of a filter that was read for this lookup.
func (s *Step) loaded() string {
	if s.FilterBytesRead == 0 {
		return ""
	}
	return fmt.Sprintf(" (filter read from disk, %s B)", digits(s.FilterBytesRead))
}

// behind tells of a range tombstone that ends the lookup here.
func (s *Step) behind() string {
	if s.RangeTombstone == 0 || s.Outcome == RangeTombstone || s.Outcome == Put || s.Outcome == Tombstone {
		return ""
	}
	return fmt.Sprintf("; range tombstone #%d hides all that is older", s.RangeTombstone)
}

func (s *Step) blocks() string {
	var all []string
	for _, b := range s.Blocks {
		if b.Cached {
			all = append(all, fmt.Sprintf("block %d from cache", b.Number))
		} else {
			all = append(all, fmt.Sprintf("block %d from disk (%s B)", b.Number, digits(b.BytesRead)))
		}
	}
	if len(all) == 0 {
		return "no block"
	}
	return strings.Join(all, ", ")
}

func (s *Step) outcome() string {
	switch s.Outcome {
	case Put:
		return fmt.Sprintf("found, put #%d", s.Sequence)
	case Tombstone:
		return fmt.Sprintf("found, tombstone #%d", s.Sequence)
	case RangeTombstone:
		return fmt.Sprintf("range tombstone #%d hides the key", s.RangeTombstone)
	case Newer:
		return "only newer versions than this lookup may see"
	case Error:
		return "failed"
	}
	return "not there"
}

func (t *Trace) summary() string {
	var b strings.Builder
	switch t.Result {
	case Found:
		fmt.Fprintf(&b, "Found: put #%d, a value of %s", t.Sequence, many(t.ValueBytes, "byte"))
	case Deleted:
		fmt.Fprintf(&b, "Not found: deleted by tombstone #%d", t.Sequence)
	case RangeDeleted:
		fmt.Fprintf(&b, "Not found: deleted by range tombstone #%d", t.Sequence)
	case Failed:
		fmt.Fprintf(&b, "Failed: %s", t.Error)
	default:
		b.WriteString("Not found")
	}
	n := t.Totals()
	asked := n.Negatives + n.TruePositives + n.FalsePositives + n.Unfiltered
	fmt.Fprintf(&b, ", in %s.\n%s: %s ruled out by key range, %d by filter, ", duration(t.Duration), many(n.Tables, "sstable"), digits(n.RuledOutByRange), n.Negatives)
	if hidden := n.Tables - n.RuledOutByRange - asked - n.NotReached; hidden > 0 && t.Result == RangeDeleted {
		fmt.Fprintf(&b, "%d by range tombstone, ", hidden)
	}
	fmt.Fprintf(&b, "%d read, %s not reached.\n", asked-n.Negatives, digits(n.NotReached))
	fmt.Fprintf(&b, "Blocks: %d from disk (%s B), %d from cache.", n.BlocksRead, digits(n.BytesRead), n.BlocksCached)
	if n.Negatives+n.FalsePositives > 0 {
		fmt.Fprintf(&b, " False positives: %d, %s expected.", n.FalsePositives, expected(n.ExpectedFalsePositives))
	}
	b.WriteByte('\n')
	return b.String()
}

// expected prints a number of false positives, mostly a part of one.
func expected(n float64) string {
	if n < 0.001 {
		return "under 0.001"
	}
	return fmt.Sprintf("%.2g", n)
}

// many prints a number of things.
func many[N int | uint64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return digits(n) + " " + thing + "s"
}

// digits prints a number with commas.
func digits[N int | uint64](n N) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
