package sstable

import (
	"bytes"
	"errors"
	"fmt"

	"sievedb/filter"
	"sievedb/internal/iter"
	"sievedb/internal/keys"
	"sievedb/internal/rangedel"
	"sievedb/sstable/internal/block"
	"sievedb/vfs"
)

// DefaultBlockSizeBytes is the block size if WriterOptions gives none.
const DefaultBlockSizeBytes = 4 << 10

// writeChunkBytes is how much output is collected for one write.
const writeChunkBytes = 256 << 10

// startSyncBytes is how much of a table is left to the operating system before it
// is asked to write it. Were it all left to the sync at the end, whoever builds
// tables would wait for the disk half of the time.
const startSyncBytes = 1 << 20

// WriterOptions are the settings of a Writer.
type WriterOptions struct {
	FileNum keys.FileNum // seeds the filter

	// BlockSize is the size in bytes, before compression, past which a data
	// block takes no further entry; at most MaxBlockSizeBytes, zero for
	// DefaultBlockSizeBytes.
	BlockSize   int
	Compression Compression

	// FilterMillibits is the filter's size in thousandths of a bit per user
	// key; zero: no filter.
	FilterMillibits uint32
	// SizeFilter, if there is a filter, decides its kind and its size once the
	// number of keys and the bounds are known; zero is no filter. Finish calls
	// it once, before it writes the filter. Without it the filter is a blocked
	// one, of FilterMillibits.
	SizeFilter func(p *Properties) (kind filter.Kind, millibits uint32)
	// Source, if not nil, stands on the entry that is added, whenever one is. A
	// data block that comes out as the one it was read from is not compressed
	// again, but taken over as it is stored.
	Source iter.Blocks
	// VerifyFilter asks the finished filter for every key again before the
	// table is published.
	VerifyFilter bool
}

// Meta describes a finished table: what a manifest keeps of it. The slices
// belong to the caller of Finish.
type Meta struct {
	FileNum   keys.FileNum
	SizeBytes uint64 // of the file
	Checksum  uint32 // of the footer, which commits to all of the file

	Bounds

	Entries      uint64 // puts and deletes
	Deletes      uint64 // of those, tombstones
	RangeDeletes uint64 // range tombstones, as Properties counts them
	UserKeys     uint64 // distinct ones
	RawBytes     uint64 // user keys and values of the entries, before compression
	FilterBytes  uint64 // size of the filter payload; zero without a filter
	PassedBlocks uint64 // data blocks taken over from WriterOptions.Source

	Properties Properties
}

// Writer writes one table. It is for one goroutine at a time, and its first
// error sticks. It never closes the file.
type Writer struct {
	f   vfs.File
	o   WriterOptions
	err error

	block   block.Builder
	index   indexBuilder
	filter  *filter.Builder // nil: none
	props   Properties
	pending pendingEntry
	passed  uint64 // data blocks
	askAt   uint64 // number of entries with which makesWay asks the source

	rangeDels *rangedel.Set // nil: none

	lastKey     []byte // the last user key, valid once props.Entries > 0
	lastTrailer keys.Trailer
	lastHash    uint64

	out     []byte // not yet written
	scratch []byte // of the compressor
	sepBuf  []byte
	written uint64 // bytes given to the file
	started uint64 // bytes of them that are on their way to the disk
}

// pendingEntry is the index entry of the block that was finished last: its
// separator depends on the key that comes next.
type pendingEntry struct {
	length, sum uint32
	set         bool
}

// NewWriter returns a Writer to the empty file f, which must stay open until
// Finish. Options that make no sense are reported by the first Add.
func NewWriter(f vfs.File, o WriterOptions) *Writer {
	w := &Writer{f: f, o: o}
	if w.o.BlockSize == 0 {
		w.o.BlockSize = DefaultBlockSizeBytes
	}
	if w.o.BlockSize < 0 || w.o.BlockSize > MaxBlockSizeBytes {
		w.err = fmt.Errorf("sstable: block size of %d bytes, at most %d", o.BlockSize, MaxBlockSizeBytes)
	}
	if o.Compression > SnappyCompression {
		w.err = fmt.Errorf("sstable: unknown %s", o.Compression)
	}
	if o.FilterMillibits != 0 {
		if err := filter.ValidateMillibits(o.FilterMillibits); err != nil {
			w.err = fmt.Errorf("sstable: %w", err)
		}
		w.filter = filter.NewBuilder(o.FilterMillibits, filter.SeedFor(uint64(o.FileNum)))
	}
	w.block.Reset(w.o.BlockSize)
	w.props.FileNum = o.FileNum
	w.props.BlockSizeBytes = uint64(w.o.BlockSize)
	w.props.Compression = o.Compression
	return w
}

// Add appends an entry; key and value are copied. Internal keys must come in
// strictly ascending order.
func (w *Writer) Add(key keys.InternalKey, value []byte) error {
	if w.err != nil {
		return w.err
	}
	newKey, err := w.check(key, value)
	if err != nil {
		w.err = err
		return err
	}
	if newKey {
		w.lastHash = filter.Hash(key.UserKey)
		w.props.UserKeys++
		if w.filter != nil {
			w.filter.Add(w.lastHash)
		}
	}
	if w.block.Full(key.UserKey) || w.makesWay() {
		if err := w.finishBlock(iter.Block{}); err != nil {
			return err
		}
	}
	if w.pending.set {
		w.sepBuf = w.sepBuf[:0]
		if newKey {
			w.sepBuf = keys.Separator(w.sepBuf, w.lastKey, key.UserKey)
		} else {
			w.sepBuf = append(w.sepBuf, w.lastKey...)
		}
		if err := w.addPending(w.sepBuf); err != nil {
			return err
		}
	}
	full := w.block.Add(key.UserKey, key.Trailer, value, byte(w.lastHash))
	w.count(key, value)
	if !full {
		return nil
	}
	b := iter.Block{}
	if w.o.Source != nil {
		b = w.o.Source.Block()
	}
	return w.finishBlock(b)
}

// makesWay reports whether the block should be finished, although it is not full,
// so that the entry to come begins a block that can be taken over. That must be
// worth a smaller block, so this one must be half full.
func (w *Writer) makesWay() bool {
	if w.o.Source == nil || w.props.Entries < w.askAt || w.block.Size() < w.o.BlockSize/2 {
		return false
	}
	b := w.o.Source.Block()
	w.askAt = w.props.Entries + 1 + uint64(b.Left) // when the next one begins, unless others come in between
	// A block of a table with larger blocks will be parted, and one that was not full be filled.
	return b.SizeBytes == uint64(w.o.BlockSize) && len(b.Data) >= w.o.BlockSize &&
		Compression(b.Compression) == w.o.Compression && w.o.Source.Whole(nil)
}

// check reports why an entry cannot come next, and whether its user key is
// another than the last one.
func (w *Writer) check(key keys.InternalKey, value []byte) (newKey bool, err error) {
	switch {
	case len(key.UserKey) > MaxUserKeyLen:
		return false, fmt.Errorf("sstable: user key of %d bytes, at most %d", len(key.UserKey), MaxUserKeyLen)
	case len(value) > MaxValueLen:
		return false, fmt.Errorf("sstable: value of %d bytes, at most %d", len(value), MaxValueLen)
	case !key.Trailer.Kind().Point():
		return false, fmt.Errorf("sstable: %w: writing an entry of kind %s", ErrUnsupported, key.Trailer.Kind())
	case w.props.Entries == 0:
		return true, nil
	}
	c := bytes.Compare(w.lastKey, key.UserKey)
	if c > 0 || c == 0 && w.lastTrailer <= key.Trailer {
		return false, fmt.Errorf("sstable: key %s added after %q#%s", key, w.lastKey, w.lastTrailer)
	}
	return c != 0, nil
}

// count takes an entry into the properties and makes its key the last one.
func (w *Writer) count(key keys.InternalKey, value []byte) {
	p := &w.props
	seq := key.Trailer.SeqNum()
	if p.Entries == 0 {
		p.SmallestKey = append([]byte{}, key.UserKey...)
		p.SmallestSeq = seq
	}
	p.Entries++
	if key.Trailer.Kind() == keys.KindDelete {
		p.Deletes++
	}
	p.RawKeyBytes += uint64(len(key.UserKey))
	p.RawValueBytes += uint64(len(value))
	p.SmallestSeq = min(p.SmallestSeq, seq)
	p.LargestSeq = max(p.LargestSeq, seq)
	w.lastKey = append(w.lastKey[:0], key.UserKey...)
	w.lastTrailer = key.Trailer
}

// EstimatedSize returns about how many bytes the file would have if the table
// were finished now. It never counts on compression of what is not yet
// compressed.
func (w *Writer) EstimatedSize() uint64 {
	size := w.written + uint64(len(w.out)) + uint64(w.block.Size()) + uint64(w.index.sizeBytes()) + footerLen
	if w.filter != nil {
		size += w.filter.Keys() * uint64(w.o.FilterMillibits) / 8000
	}
	return size + uint64(w.rangeDels.SizeBytes())
}

// finishBlock moves the current data block to the output. source is the block that
// its last entry was read from, if that is known.
func (w *Writer) finishBlock(source iter.Block) error {
	base := len(w.out)
	w.out = w.block.Finish(w.out)
	w.props.RawBlockBytes += uint64(len(w.out) - base)
	var h handle
	if Compression(source.Compression) == w.o.Compression && bytes.Equal(w.out[base:], source.Data) {
		h = w.adopt(base, source.Frame)
	} else {
		h = w.seal(base, kindData, w.o.Compression)
	}
	w.props.DataBlocks++
	w.props.DataBytes += h.length
	w.pending = pendingEntry{length: uint32(h.length), sum: h.sum, set: true}
	if len(w.out) >= writeChunkBytes {
		return w.flush()
	}
	return nil
}

// seal makes a frame of the payload at the end of the output.
func (w *Writer) seal(base int, kind blockKind, c Compression) handle {
	var sum uint32
	w.out, sum, w.scratch = sealFrame(w.out, base, kind, c, w.scratch)
	return handle{offset: w.written + uint64(base), length: uint64(len(w.out) - base), sum: sum}
}

// adopt puts a frame in the place of the payload at the end of the output, which is
// what the frame decodes to. Nothing in a frame depends on where it lies, and its
// checksum goes with it: what became of it since it was read will be noticed.
func (w *Writer) adopt(base int, frame []byte) handle {
	w.out = append(w.out[:base], frame...)
	w.passed++
	return handle{offset: w.written + uint64(base), length: uint64(len(frame)), sum: frameSum(frame)}
}

// addPending completes the index entry of the last finished block.
func (w *Writer) addPending(separator []byte) error {
	w.err = w.index.add(separator, w.pending.length, w.pending.sum)
	w.pending = pendingEntry{}
	return w.err
}

// flush writes the output.
func (w *Writer) flush() error {
	if _, err := w.f.Write(w.out); err != nil {
		w.err = fmt.Errorf("sstable: writing table %d: %w", w.o.FileNum, err)
		return w.err
	}
	w.written += uint64(len(w.out))
	w.out = reuse(w.out)
	if w.written-w.started >= startSyncBytes {
		vfs.StartSync(w.f, int64(w.started))
		w.started = w.written
	}
	return nil
}

// Finish completes the table and syncs the file; its name becomes durable with
// the directory, which is the caller's to sync. A table without entries and
// without range tombstones is an error. The Writer cannot be used afterwards.
func (w *Writer) Finish() (Meta, error) {
	if w.err != nil {
		return Meta{}, w.err
	}
	if w.props.Entries == 0 && w.rangeDels == nil {
		w.err = errors.New("sstable: a table needs at least one entry or range tombstone")
		return Meta{}, w.err
	}
	meta, err := w.finish()
	if w.filter != nil {
		w.filter.Release()
	}
	if err != nil {
		w.err = err
		return Meta{}, err
	}
	w.err = errors.New("sstable: writer is finished")
	return meta, nil
}

func (w *Writer) finish() (Meta, error) {
	if w.props.Entries > 0 {
		if !w.block.Empty() {
			if err := w.finishBlock(iter.Block{}); err != nil {
				return Meta{}, err
			}
		}
		if err := w.addPending(w.lastKey); err != nil {
			return Meta{}, err
		}
		w.props.LargestKey = bytes.Clone(w.lastKey)
	}
	var f footer
	filterBytes, err := w.writeFilter(&f)
	if err != nil {
		return Meta{}, err
	}
	w.writeRangeDels(&f)

	base := len(w.out)
	w.out = w.index.finish(w.out)
	f.index = w.seal(base, kindIndex, w.o.Compression)
	base = len(w.out)
	w.out = w.props.append(w.out)
	f.properties = w.seal(base, kindProperties, NoCompression)
	var sum uint32
	w.out, sum = f.append(w.out)
	if err := w.flush(); err != nil {
		return Meta{}, err
	}
	if err := w.f.Sync(); err != nil {
		return Meta{}, fmt.Errorf("sstable: syncing table %d: %w", w.o.FileNum, err)
	}
	p := w.props
	return Meta{
		FileNum: p.FileNum, SizeBytes: w.written, Checksum: sum, Bounds: boundsOf(&p, w.rangeDels),
		Entries: p.Entries, Deletes: p.Deletes, RangeDeletes: p.RangeDeletes, UserKeys: p.UserKeys,
		RawBytes: p.RawKeyBytes + p.RawValueBytes, FilterBytes: filterBytes,
		PassedBlocks: w.passed,
		Properties:   p,
	}, nil
}

// writeFilter appends the filter, sized from the exact number of user keys,
// and returns the size of its payload. Without a filter, or entries to have one
// of, its handle is empty, at the end of the data blocks.
func (w *Writer) writeFilter(f *footer) (payloadBytes uint64, err error) {
	f.filter.offset = w.written + uint64(len(w.out))
	if w.filter == nil || w.props.Entries == 0 {
		return 0, nil
	}
	if w.o.SizeFilter != nil {
		kind, millibits := w.o.SizeFilter(&w.props)
		if millibits == 0 {
			return 0, nil
		}
		w.filter.Choose(kind, millibits)
	}
	base := len(w.out)
	out, info, err := w.filter.Finish(w.out)
	if err != nil {
		return 0, fmt.Errorf("sstable: filter of table %d: %w", w.o.FileNum, err)
	}
	w.out = out
	if w.o.VerifyFilter {
		if err := w.filter.Verify(w.out[base:]); err != nil {
			return 0, fmt.Errorf("sstable: filter of table %d: %w", w.o.FileNum, err)
		}
	}
	f.filter = w.seal(base, kindFilter, NoCompression)
	w.props.FilterKind = info.Kind
	w.props.FilterKeys = info.Keys
	w.props.FilterMillibits = uint64(info.Millibits)
	w.props.FilterProbes = uint64(info.K)
	w.props.FilterRate = info.Rate
	return info.Bytes, nil
}
