package decode

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"sievedb/filter"
	"sievedb/internal/codec"
	"sievedb/internal/corrupt"
	"sievedb/internal/rangedel"
	"sievedb/sstable"
)

// Handle says where a frame lies.
type Handle struct {
	Offset, Length uint64
	Sum            uint32
}

// Footer is what the last bytes of a table say.
type Footer struct {
	Filter, RangeTombstones, Index, Properties Handle
	Version, Checksum                          uint32
}

const (
	footerLen   = 96
	footerMagic = "SIEVETBL"
	footerType  = 0xf0
)

// Table is what could be read of a table.
type Table struct {
	// Blocks are the data blocks: all of them, as the index has them, or those
	// that were found by their checksums if Scanned.
	Blocks  []Block
	Scanned bool
	// DataEnd is where the data blocks end, or the end of what was looked at if
	// that is not known.
	DataEnd uint64

	Footer     *Footer       // nil if it is damaged
	Properties []Property    // nil if they are damaged
	Filter     filter.Reader // match-all without a usable filter
	RangeDels  *rangedel.Set // nil without range tombstones that can be read
	// Problems are what is damaged but for data blocks, each with file and
	// offset.
	Problems []error

	f    *File
	size uint64
}

// ReadTable reads all of a table of size bytes but its data blocks. Damage is
// in Table.Problems; an error says that nothing can be read, or that the table
// is of another version (sstable.ErrUnsupported).
func ReadTable(f *File, size int64) (*Table, error) {
	t := &Table{f: f, size: uint64(min(size, f.Size)), Filter: filter.MatchAll()}
	t.DataEnd = t.size
	if err := t.readFooter(); err != nil {
		if err = t.problem(err, t.size-min(t.size, footerLen)); err != nil {
			return nil, err
		}
	}
	if t.Footer != nil {
		t.DataEnd = t.Footer.Filter.Offset
		t.readParts()
	}
	if t.Blocks != nil {
		return t, nil
	}
	t.Scanned = true
	if t.DataEnd > maxRead {
		return t, fmt.Errorf("%s: %d bytes are too many to search for blocks", f.Name, t.DataEnd)
	}
	b, err := f.read(0, t.DataEnd)
	if err != nil {
		return nil, err
	}
	blocks, end := scan(b)
	t.Blocks, t.DataEnd = blocks, uint64(end)
	if t.Footer == nil {
		behind := uint64(0)
		if n := len(blocks); n > 0 {
			behind = blocks[n-1].End()
		}
		t.RangeDels = scanRangeDels(b[behind:])
	}
	return t, nil
}

// problem notes an error at offset base if it is damage, and returns it
// otherwise.
func (t *Table) problem(err error, base uint64) error {
	if errors.Is(err, corrupt.ErrCorrupt) {
		t.Problems = append(t.Problems, corrupt.In(err, t.f.Name, int64(base)))
		return nil
	}
	return fmt.Errorf("%s: %w", t.f.Name, err)
}

func (t *Table) readFooter() error {
	if t.size < footerLen {
		return corrupt.At(0, "table", fmt.Sprintf("at least %d bytes", footerLen), t.size)
	}
	b, err := t.f.read(t.size-footerLen, footerLen)
	if err != nil {
		return err
	}
	if m := b[88:]; string(m) != footerMagic {
		return corrupt.At(88, "magic", fmt.Sprintf("%q", footerMagic), fmt.Sprintf("%q", m))
	}
	f := Footer{Version: binary.LittleEndian.Uint32(b[80:]), Checksum: binary.LittleEndian.Uint32(b[84:])}
	if f.Version != sstable.FormatVersion {
		return fmt.Errorf("%w: table format version %d, this program reads %d", sstable.ErrUnsupported, f.Version, sstable.FormatVersion)
	}
	if got := codec.Checksum(footerType, b[:84], b[88:]); got != f.Checksum {
		return corrupt.At(84, "footer checksum", f.Checksum, got)
	}
	r := codec.NewReader(b)
	end := t.size - footerLen
	handles := []*Handle{&f.Filter, &f.RangeTombstones, &f.Index, &f.Properties}
	for _, h := range handles {
		*h = Handle{Offset: r.Uint64("offset"), Length: r.Uint64("length"), Sum: r.Uint32("checksum")}
	}
	for i := len(handles) - 1; i >= 0; i-- {
		h := handles[i]
		if h.Length > end || h.Offset != end-h.Length {
			return corrupt.At(int64(20*i), "handle", fmt.Sprintf("a block that ends at %d", end), fmt.Sprintf("offset %d, length %d", h.Offset, h.Length))
		}
		end = h.Offset
	}
	t.Footer = &f
	return nil
}

// readParts reads what the footer leads to.
func (t *Table) readParts() {
	note := func(h Handle, err error) {
		if err == nil {
			return
		}
		if err = t.problem(err, h.Offset); err != nil {
			t.Problems = append(t.Problems, err)
		}
	}
	var err error
	f := t.Footer
	p, err := t.part(f.Index, kindIndex)
	if err == nil {
		t.Blocks, err = decodeIndex(p, t.DataEnd)
	}
	note(f.Index, err)
	if p, err = t.part(f.Properties, kindProperties); err == nil {
		t.Properties, err = decodeProperties(p)
	}
	note(f.Properties, err)
	if f.Filter.Length > 0 {
		if p, err = t.part(f.Filter, kindFilter); err == nil {
			t.Filter, err = filter.Open(p)
		}
		note(f.Filter, err)
	}
	if f.RangeTombstones.Length > 0 {
		if p, err = t.part(f.RangeTombstones, kindRangeDels); err == nil {
			t.RangeDels, err = rangedel.Decode(p)
		}
		note(f.RangeTombstones, err)
	}
}

// part returns the decoded payload of a frame that the footer leads to.
func (t *Table) part(h Handle, kind uint8) ([]byte, error) {
	b, err := t.f.read(h.Offset, h.Length)
	if err != nil {
		return nil, err
	}
	fr, err := openFrame(b)
	switch {
	case err != nil:
		return nil, err
	case fr.sum != h.Sum:
		return nil, corrupt.At(int64(len(b)-4), "checksum", h.Sum, fr.sum)
	case fr.kind != kind:
		return nil, corrupt.At(int64(len(b)-frameTailLen), "kind of block", kind, fr.kind)
	}
	return fr.payload, nil
}

// Entries returns the entries of data block i, and whether it is compressed.
// The error, with file and offset, says why they cannot be had.
func (t *Table) Entries(i int) (entries []Entry, compressed bool, err error) {
	at := &t.Blocks[i]
	b, err := t.f.read(at.Offset, at.Length)
	if err != nil {
		return nil, false, err
	}
	fr, err := openFrame(b)
	switch {
	case err != nil:
	case fr.sum != at.Sum:
		err = corrupt.At(int64(len(b)-4), "checksum of the data block", at.Sum, fr.sum)
	case fr.kind != kindData:
		err = corrupt.At(int64(len(b)-frameTailLen), "kind of block", kindData, fr.kind)
	default:
		entries, err = decodeBlock(fr.payload)
	}
	return entries, fr.compressed, corrupt.In(err, t.f.Name, int64(at.Offset))
}

// Property is one property of a table. Its value is printed, or, if the
// program does not know the property, its bytes.
type Property struct {
	Tag    uint16 `json:"tag"`
	Name   string `json:"name"`
	Value  string `json:"value"`
	Number uint64 `json:"-"`
}

// Tags of the properties that programs look for.
const (
	TagEntries     = 1
	TagUserKeys    = 3
	TagSmallestKey = 9
	TagLargestKey  = 10
	TagLargestSeq  = 12
	TagFilterKind  = 15
	TagFilterRate  = 19
)

// propertyNames are the names of the properties, by tag.
var propertyNames = [...]string{
	1: "entries", "deletes", "user keys", "raw key bytes", "raw value bytes", "data blocks", "data bytes",
	"raw block bytes", "smallest key", "largest key", "smallest sequence number", "largest sequence number",
	"block size bytes", "compression", "filter kind", "filter keys", "filter millibits", "filter probes",
	"filter rate", "file number", "range tombstones",
}

func decodeProperties(p []byte) (all []Property, err error) {
	r := codec.NewReader(p)
	for r.Len() > 0 && r.Err() == nil {
		tag := r.Uint16("property tag")
		value := r.LenBytes("property value")
		p := Property{Tag: tag, Name: fmt.Sprintf("property %d, not known here", tag), Value: Key(value).String()}
		if int(tag) < len(propertyNames) && tag > 0 {
			p.Name = propertyNames[tag]
		}
		if len(value) == 8 && tag != TagSmallestKey && tag != TagLargestKey {
			p.Number = binary.LittleEndian.Uint64(value)
			p.Value = fmt.Sprint(p.Number)
		}
		switch tag {
		case TagFilterKind:
			p.Value = fmt.Sprintf("%d (%s)", p.Number, filter.Kind(min(p.Number, math.MaxUint8)))
		case TagFilterRate:
			p.Value = fmt.Sprintf("%.4g", math.Float64frombits(p.Number))
		}
		all = append(all, p)
	}
	return all, r.Err()
}

// Number returns the property of that tag if it is a number that could be
// read.
func (t *Table) Number(tag uint16) (n uint64, ok bool) {
	for _, p := range t.Properties {
		if p.Tag == tag {
			return p.Number, true
		}
	}
	return 0, false
}
