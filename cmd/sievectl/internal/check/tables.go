package check

import (
	"bytes"
	"path/filepath"
	"slices"

	"sievedb/cmd/sievectl/internal/decode"
	"sievedb/internal/keys"
	"sievedb/internal/manifest"
	"sievedb/sstable"
)

// checkedTable is a table that the store can open.
type checkedTable struct {
	level  int
	meta   *manifest.TableMeta // nil without a manifest
	reader *sstable.Reader
	parts  *decode.Table
}

// checkTable checks a table by itself and against what the manifest says of it,
// if that is known.
func (c *checker) checkTable(level int, name string, m *manifest.TableMeta) {
	info := c.level(level)
	info.Tables++
	f, err := decode.OpenFile(filepath.Join(c.Dir, name))
	if err != nil {
		c.problem(name, err)
		return
	}
	info.Bytes += uint64(f.Size)
	o := sstable.ReaderOptions{Name: name, WantSize: uint64(f.Size)}
	if m != nil {
		if o.WantSize != m.SizeBytes {
			c.problemf(name, "%d bytes, the manifest says %d", f.Size, m.SizeBytes)
		}
		o.WantChecksum, o.CheckIdentity = m.Checksum, true
	}
	r, found := Table(f, o)
	c.Problems = append(c.Problems, found...)
	if r == nil {
		return
	}
	parts, err := decode.ReadTable(f, f.Size)
	if err != nil {
		c.problem(name, err)
		return
	}
	t := &checkedTable{level, m, r, parts}
	c.tables = append(c.tables, t)
	p := r.Properties()
	info.Entries += p.Entries
	info.Deletes += p.Deletes
	if m != nil {
		c.compare(name, t)
	}
	if state, _ := r.LoadFilter(); state == sstable.FilterResident {
		measured := measureFilter(r)
		info.Filter.add(measured)
		if measured.Judged && !measured.good() {
			c.problemf(name, "the filter let %d of %d absent keys through; %.0f are expected of its rate %.3g, and more than 20 %% off is not chance",
				measured.Positives, measured.Asked, measured.Expected, p.FilterRate)
		}
	}
}

// level returns the summary of a level.
func (c *checker) level(level int) *Level {
	if n := len(c.Levels); n > 0 && c.Levels[n-1].Level == level {
		return c.Levels[n-1]
	}
	c.Levels = append(c.Levels, &Level{Level: level})
	return c.Levels[len(c.Levels)-1]
}

// compare compares a table with what the manifest says of it.
func (c *checker) compare(name string, t *checkedTable) {
	p, m := t.reader.Properties(), t.meta
	for _, n := range []struct {
		what      string
		want, got uint64
	}{
		{"entries", m.Entries, p.Entries},
		{"deletes", m.Deletes, p.Deletes},
		{"range tombstones", m.RangeDeletes, p.RangeDeletes},
		{"distinct user keys", m.UserKeys, p.UserKeys},
		{"bytes of keys and values", m.RawBytes, p.RawKeyBytes + p.RawValueBytes},
	} {
		if n.want != n.got {
			c.problemf(name, "%d %s, the manifest says %d", n.got, n.what, n.want)
		}
	}
	b := t.reader.Bounds() // of entries and range tombstones together
	got := keys.Range{Lo: b.Smallest, Hi: b.Largest, HiExclusive: b.LargestExclusive, ToEnd: b.ToEnd}
	if want := m.KeyRange(); !bytes.Equal(got.Lo, want.Lo) || got.CompareEnds(want) != 0 || b.SmallestSeq != m.SmallestSeq || b.LargestSeq != m.LargestSeq {
		c.problemf(name, "keys %.128v with sequence numbers %d to %d, the manifest says %.128v with %d to %d",
			got, b.SmallestSeq, b.LargestSeq, want, m.SmallestSeq, m.LargestSeq)
	}
	if m.LargestSeq > c.state.LastSeq {
		c.problemf(name, "sequence numbers up to %d, although those in tables end at %d", m.LargestSeq, c.state.LastSeq)
	}
}

// Rate compares the false positives of filters with what their rates
// predict.
type Rate struct {
	Asked     uint64  `json:"absent_keys"`
	Expected  float64 `json:"false_positives_expected"`
	Positives uint64  `json:"false_positives"`
	// Judged says that enough were expected for a deviation to mean something.
	Judged bool `json:"judged"`
}

// add adds the figures of another filter.
func (r *Rate) add(o Rate) {
	r.Asked += o.Asked
	r.Expected += o.Expected
	r.Positives += o.Positives
	r.Judged = r.Judged || o.Judged
}

// good reports whether the rate is within 20 % of what was expected.
func (r *Rate) good() bool {
	ratio := float64(r.Positives) / r.Expected
	return ratio > 0.8 && ratio < 1.2
}

const (
	// A filter is judged if 400 false positives are expected, of which 20 % are
	// four standard deviations. It is asked until 2,000 are, where they are
	// nine, or maxAsked absent keys have been: with hundreds of tables, four
	// would cry wolf.
	judgeFrom    = 400
	expectEnough = 2000
	maxAsked     = 2_000_000
)

// measureFilter asks a table's filter about keys that it does not hold. The
// filter sees but hashes, and random ones are those of absent keys. They come
// from a fixed seed, so that a result can be had again.
func measureFilter(r *sstable.Reader) Rate {
	want := r.Properties().FilterRate
	if want == 0 {
		return Rate{}
	}
	c := Rate{Asked: uint64(min(expectEnough/want, maxAsked))}
	c.Expected = want * float64(c.Asked)
	c.Judged = c.Expected >= judgeFrom
	for x := range c.Asked {
		// splitmix64 (Steele, Lea and Flood, 2014)
		z := (x + 1) * 0x9E3779B97F4A7C15
		z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
		z = (z ^ z>>27) * 0x94D049BB133111EB
		if may, _ := r.MayContain(z ^ z>>31); may {
			c.Positives++
		}
	}
	return c
}

// sampleKeys is about how many keys are sampled for the order of their
// versions.
const sampleKeys = 1000

// checkOrder checks for a sample of user keys that newer runs hold newer
// versions only.
func (c *checker) checkOrder() {
	for _, t := range c.tables {
		n := max(1, sampleKeys/len(c.tables))
		step := max(1, len(t.parts.Blocks)/n)
		for i := 0; i < len(t.parts.Blocks); i += step {
			if entries, _, err := t.parts.Entries(i); err == nil {
				c.checkVersions(entries[len(entries)/2].UserKey)
			}
		}
	}
}

// checkVersions checks the versions of a user key in all runs, newest first.
func (c *checker) checkVersions(userKey []byte) {
	c.Sampled++
	newer, newerIn := keys.MaxSeqNum+1, ""
	for _, t := range c.tables {
		if !t.meta.KeyRange().Contains(userKey) {
			continue
		}
		it := t.reader.NewIter(sstable.IterOptions{})
		oldest := newer
		for ok := it.SeekGE(userKey, keys.SeekTrailer(keys.MaxSeqNum)); ok && bytes.Equal(it.Key().UserKey, userKey); ok = it.Next() {
			seq := it.Key().Trailer.SeqNum()
			if seq >= newer {
				c.problemf(t.reader.Name(), "key %.64q has version %d, although a newer run, in %s, has version %d", userKey, seq, newerIn, newer)
			}
			oldest = min(oldest, seq)
		}
		_ = it.Close() // what it cannot read was found before
		if oldest < newer {
			newer, newerIn = oldest, t.reader.Name()
		}
	}
}

// Table checks a table by itself: as the store reads it, and, if there is
// anything wrong, block by block for all that is. The reader is nil if the store
// cannot open the table.
func Table(f *decode.File, o sstable.ReaderOptions) (*sstable.Reader, []*Problem) {
	r, err := sstable.Open(f, o)
	if err == nil {
		err = r.Verify()
	}
	if err == nil && f.Err() == nil {
		return r, nil
	}
	var found []*Problem
	add := func(err error) {
		p := ProblemOf(f.Name, err)
		if !slices.ContainsFunc(found, func(o *Problem) bool { return o.Offset == p.Offset && (o.Offset >= 0 || o.Text == p.Text) }) {
			found = append(found, p)
		}
	}
	if err != nil {
		add(err)
	}
	if f.Err() != nil {
		add(f.Err())
	}
	t, err := decode.ReadTable(f, int64(o.WantSize))
	if err != nil { // another version, say: the store has said so already
		return r, found
	}
	for _, err := range t.Problems {
		add(err)
	}
	for i := range t.Blocks {
		if _, _, err := t.Entries(i); err != nil {
			add(err)
		}
	}
	return r, found
}
