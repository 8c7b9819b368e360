package sstable

import (
	"bytes"
	"fmt"

	"sievedb/filter"
	"sievedb/internal/corrupt"
	"sievedb/internal/keys"
	"sievedb/sstable/internal/block"
)

// Verify reads the whole table, past the cache, and checks all that it can
// say of itself: checksums and structure of every block, order of the entries
// across blocks, separators, tags, that every user key passes the filter, that
// the filter's bits give the predicted rate and its answers keep it, the range
// tombstones, and the properties. It returns the first *corrupt.Error, or what reading failed
// with.
func (r *Reader) Verify() error {
	v := verifier{r: r, filter: filter.MatchAll()}
	if err := r.verifyRangeDels(); err != nil {
		return err
	}
	if r.footer.filter.length > 0 {
		var err error
		if v.filter, err = r.readFilter(); err != nil {
			return err
		}
		if err := r.verifyRate(v.filter); err != nil {
			return r.locate(err, r.footer.filter.offset)
		}
	}
	var stats IterStats
	f := fetcher{r: r, stats: &stats, noFill: true, next: -1}
	defer f.close()
	for i := range r.index.n() {
		data, err := f.get(i)
		if err != nil {
			return err
		}
		b := block.Of(data)
		v.got.RawBlockBytes += uint64(len(data))
		for n := range b.Len() {
			if err := v.entry(i, &b, n); err != nil {
				return r.locate(err, r.index.blocks[i].offset)
			}
		}
	}
	return v.properties()
}

// verifyRate holds the filter against the kind and the rate that the table says.
func (r *Reader) verifyRate(f filter.Reader) error {
	if kind := f.Kind(); kind != r.props.FilterKind {
		return corrupt.At(0, "filter kind", r.props.FilterKind, kind)
	}
	if rate := f.Rate(); rate != r.props.FilterRate {
		return corrupt.At(0, "filter rate", r.props.FilterRate, rate)
	}
	return f.CheckRate()
}

// verifier is the state of one Verify: what was counted so far.
type verifier struct {
	r       *Reader
	filter  filter.Reader
	got     Properties
	key     []byte // of the current entry
	last    []byte // user key of the entry before
	lastTrl keys.Trailer
}

// entry checks entry n of block i.
func (v *verifier) entry(i int, b *block.View, n int) error {
	suffix, trailer, valueOff := b.Entry(n)
	v.key = append(append(v.key[:0], b.Prefix()...), suffix...)
	first := v.got.Entries == 0
	c := bytes.Compare(v.last, v.key)
	if !first && (c > 0 || c == 0 && v.lastTrl <= trailer) {
		return corrupt.At(0, "entry order", fmt.Sprintf("after %q#%s", v.last, v.lastTrl), fmt.Sprintf("%q#%s", v.key, trailer))
	}
	// find leads to the first block that may hold the key: this one, or, for
	// further versions, the one where they began.
	if at, _ := v.r.index.find(v.key); at != i && (first || c != 0 || at > i) {
		return corrupt.At(0, "separators", fmt.Sprintf("key %q in block %d", v.key, i), at)
	}
	h := filter.Hash(v.key)
	if tag := b.Tag(n); tag != byte(h) {
		return corrupt.At(0, "hash tag", byte(h), tag)
	}
	if !v.filter.MayContain(h) {
		return corrupt.At(0, "filter answer to a key of the table", "maybe", fmt.Sprintf("no to %q", v.key))
	}
	p := &v.got
	seq := trailer.SeqNum()
	if first {
		p.SmallestKey, p.SmallestSeq = bytes.Clone(v.key), seq
	}
	if first || c != 0 {
		p.UserKeys++
	}
	p.Entries++
	if trailer.Kind() == keys.KindDelete {
		p.Deletes++
	}
	p.RawKeyBytes += uint64(len(v.key))
	p.RawValueBytes += uint64(len(b.Value(n, valueOff)))
	p.SmallestSeq, p.LargestSeq = min(p.SmallestSeq, seq), max(p.LargestSeq, seq)
	v.last, v.lastTrl = append(v.last[:0], v.key...), trailer
	return nil
}

// properties compares what was counted with what the table says.
func (v *verifier) properties() error {
	p, g := v.r.props, &v.got
	at := v.r.footer.properties.offset
	for _, c := range []struct {
		what      string
		want, got uint64
	}{
		{"entries", p.Entries, g.Entries},
		{"deletes", p.Deletes, g.Deletes},
		{"user keys", p.UserKeys, g.UserKeys},
		{"raw key bytes", p.RawKeyBytes, g.RawKeyBytes},
		{"raw value bytes", p.RawValueBytes, g.RawValueBytes},
		{"raw block bytes", p.RawBlockBytes, g.RawBlockBytes},
		{"smallest sequence number", uint64(p.SmallestSeq), uint64(g.SmallestSeq)},
		{"largest sequence number", uint64(p.LargestSeq), uint64(g.LargestSeq)},
	} {
		if c.want != c.got {
			return v.r.locate(corrupt.At(0, c.what+" in the properties", c.want, c.got), at)
		}
	}
	if !v.filter.IsMatchAll() && p.FilterKeys != g.UserKeys {
		return v.r.locate(corrupt.At(0, "filter keys in the properties", p.FilterKeys, g.UserKeys), at)
	}
	if !bytes.Equal(p.SmallestKey, g.SmallestKey) || !bytes.Equal(p.LargestKey, v.last) {
		return v.r.locate(corrupt.At(0, "keys in the properties", fmt.Sprintf("%q to %q", p.SmallestKey, p.LargestKey),
			fmt.Sprintf("%q to %q", g.SmallestKey, v.last)), at)
	}
	return nil
}
