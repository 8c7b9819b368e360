package sstable

import (
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"sync/atomic"

	"sievedb/explain"
	"sievedb/internal/cache"
	"sievedb/internal/corrupt"
	"sievedb/internal/keys"
	"sievedb/internal/rangedel"
	"sievedb/sstable/internal/block"
)

// openReadBytes is what Open reads first: the footer, the properties and, of
// all but large tables, the index.
const openReadBytes = 32 << 10

// ReaderOptions are the settings of a Reader.
type ReaderOptions struct {
	Name  string       // of the file, for errors
	Cache *cache.Cache // of data blocks; nil: none are kept

	// WantSize is the size of the file in bytes, as the manifest has it.
	WantSize uint64
	// WantChecksum is Meta.Checksum, looked at if CheckIdentity is set: a
	// different table under the right name is corruption.
	WantChecksum  uint32
	CheckIdentity bool
}

// Reader reads one table. It is immutable but for its filter, which is loaded
// once, and hints into the cache, and safe for concurrent use. It has no
// handle of its own to close: src is the caller's.
type Reader struct {
	src      io.ReaderAt
	name     string
	cache    *cache.Cache
	cacheID  uint64
	checksum uint32
	footer   footer
	index    *index
	props    *Properties
	perBlock float64 // entries a data block, on average

	rangeDels *rangedel.Set // nil: none
	bounds    Bounds

	filter   atomic.Pointer[residentFilter] // nil until it was tried to load
	filterMu sync.Mutex                     // held while loading filter
}

// Open opens a table. It reads the footer, the properties, the index and the
// range tombstones, in one read or two, but not the filter. Errors of src.ReadAt are passed on,
// wrapped, then and later; what src read must never change.
func Open(src io.ReaderAt, o ReaderOptions) (*Reader, error) {
	r := &Reader{src: src, name: o.Name, cache: o.Cache}
	size := o.WantSize
	if size < footerLen || size > math.MaxInt64 {
		return nil, r.locate(corrupt.At(0, "table size", fmt.Sprintf("at least %d bytes", footerLen), size), 0)
	}
	tail := make([]byte, min(size, openReadBytes))
	tailOff := size - uint64(len(tail))
	if err := r.readAt(tail, tailOff, "footer"); err != nil {
		return nil, err
	}
	var err error
	r.footer, r.checksum, err = readFooter(tail[len(tail)-footerLen:], size)
	if err != nil {
		return nil, r.locate(err, size-footerLen)
	}
	if o.CheckIdentity && r.checksum != o.WantChecksum {
		return nil, r.locate(corrupt.At(0, "table identity", o.WantChecksum, r.checksum), size-12)
	}
	metaOff := r.footer.rangeTombstones.offset
	if metaOff < tailOff {
		if size-metaOff > math.MaxInt32 {
			return nil, r.locate(corrupt.At(0, "index length", math.MaxInt32, size-metaOff), metaOff)
		}
		// Bounded by the file's size, which the footer's place has proved.
		tail, tailOff = make([]byte, size-metaOff), metaOff
		if err := r.readAt(tail, tailOff, "index"); err != nil {
			return nil, err
		}
	}
	if err := r.readMeta(tail[metaOff-tailOff:]); err != nil {
		return nil, err
	}
	if r.cache == nil {
		r.cache = cache.New(0)
	}
	r.cacheID = r.cache.NewID()
	if r.footer.filter.length == 0 {
		r.filter.Store(&residentFilter{state: FilterNone})
	}
	return r, nil
}

// readMeta decodes range tombstones, index and properties from meta, which
// begins at the former.
func (r *Reader) readMeta(meta []byte) error {
	f := &r.footer
	err := r.decodeIn(meta, f.index, kindIndex, func(payload []byte) (err error) {
		r.index, err = readIndex(payload, f.filter.offset)
		return err
	})
	if err != nil {
		return err
	}
	err = r.decodeIn(meta, f.properties, kindProperties, func(payload []byte) (err error) {
		r.props, err = readProperties(payload)
		return err
	})
	if err != nil {
		return err
	}
	p, n := r.props, r.index.n()
	if p.DataBlocks != uint64(n) || p.DataBytes != f.filter.offset || (n == 0) != (p.Entries == 0) || n > 0 && !r.index.endsWith(n-1, p.LargestKey) {
		return r.locate(corrupt.At(0, "properties", fmt.Sprintf("%d data blocks of %d bytes, as the index has them",
			n, f.filter.offset), fmt.Sprintf("%d of %d with %d entries", p.DataBlocks, p.DataBytes, p.Entries)), f.properties.offset)
	}
	r.perBlock = min(float64(p.Entries)/float64(max(n, 1)), block.MaxSizeBytes)
	return r.readRangeDels(meta)
}

// decodeIn has decode look at the payload of h, which lies in meta.
func (r *Reader) decodeIn(meta []byte, h handle, kind blockKind, decode func(payload []byte) error) error {
	start := h.offset - r.footer.rangeTombstones.offset
	payload, c, err := unframe(meta[start:start+h.length], kind, h.sum, math.MaxInt32)
	if err == nil {
		err = decode(payload)
	}
	if err != nil {
		return r.locateIn(err, h.offset, c)
	}
	return nil
}

// unframe checks a frame and returns its payload, which aliases frame unless
// it was compressed.
func unframe(frame []byte, kind blockKind, sum uint32, limit int) ([]byte, Compression, error) {
	payload, c, err := openFrame(frame, kind, sum)
	if err != nil || c == NoCompression {
		return payload, NoCompression, err
	}
	n, err := decodedLen(payload, c, limit)
	if err != nil {
		return nil, NoCompression, err
	}
	decoded := make([]byte, n)
	return decoded, c, decodePayload(decoded, payload, c)
}

// readAt fills p from the file.
func (r *Reader) readAt(p []byte, off uint64, what string) error {
	n, err := r.src.ReadAt(p, int64(off))
	switch {
	case err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("sstable: %s: reading %s at %d: %w", r.name, what, off, err)
	case n < len(p):
		return r.locate(corrupt.At(int64(n), what, fmt.Sprintf("%d bytes", len(p)), fmt.Sprintf("%d, then the end of the file", n)), off)
	}
	return nil
}

// isCorrupt reports whether err is about the bytes, and not about reading them.
func isCorrupt(err error) bool { return errors.Is(err, corrupt.ErrCorrupt) }

// locate adds the file, and base to the offset, to an error about its bytes,
// and the file's name to any other.
func (r *Reader) locate(err error, base uint64) error {
	if isCorrupt(err) {
		return corrupt.In(err, r.name, int64(base))
	}
	return fmt.Errorf("sstable: %s: %w", r.name, err)
}

// locateIn is locate for an error within a payload. An offset in a payload
// that was compressed is none in the file: the error then names the block.
func (r *Reader) locateIn(err error, frameOff uint64, c Compression) error {
	var e *corrupt.Error
	if c != NoCompression && errors.As(err, &e) {
		at := *e
		at.What, at.Offset = fmt.Sprintf("%s at %d once decompressed", e.What, e.Offset), 0
		err = &at
	}
	return r.locate(err, frameOff)
}

// Found is what Get found.
type Found struct {
	Value   []byte       // dst, with the value appended if the entry is a put
	Trailer keys.Trailer // of the entry
	OK      bool         // whether there is an entry, a tombstone included
	HasKey  bool         // whether the table has the user key, visible or newer

	BlocksCached int // data blocks that were in the cache
	BlocksRead   int // data blocks that were read from the file
}

// Get looks for the newest entry of userKey that is visible at snapshot and
// appends its value to dst. hash is filter.Hash(userKey); the filter is not
// asked: MayContain does that; nor are the range tombstones. Get allocates nothing if dst has room and the
// block is cached. It does not keep userKey.
func (r *Reader) Get(dst, userKey []byte, hash uint64, snapshot keys.SeqNum) (Found, error) {
	return r.Lookup(dst, userKey, hash, snapshot, false, r.Prefetch(userKey), nil)
}

// Has is Get for callers that do not want the value: Found.Value is nil.
func (r *Reader) Has(userKey []byte, hash uint64, snapshot keys.SeqNum) (Found, error) {
	return r.Lookup(nil, userKey, hash, snapshot, true, r.Prefetch(userKey), nil)
}

// Prefetch returns the number of the block in which a lookup of userKey begins,
// and has the CPU bring closer what that will read first, if it is cached.
func (r *Reader) Prefetch(userKey []byte) (block int) {
	block, at, bodyBytes := r.guess(userKey)
	if block < r.index.n() {
		r.cache.Prefetch(&r.index.hints[block], at, bodyBytes, searchedBytes)
	}
	return block
}

// guess returns the block that may have userKey, and about where in it the entry
// lies: in bodyBytes at at, as cache.Prefetch has it.
func (r *Reader) guess(userKey []byte) (block int, at float64, bodyBytes int) {
	block, at = r.index.find(userKey)
	if at < 0 || r.perBlock < minGuessable {
		return block, 0, mappedBytes
	}
	// The separators are half an entry before the first entry and behind the last.
	return block, float64(int(at*r.perBlock-0.5)) / r.perBlock, guessedBytes
}

// Lookup is Get or, with existsOnly, Has, but that Found.Value is then dst as it
// came. It begins with the block that Prefetch returned. Each block that is looked
// into is added to step, unless that is nil.
func (r *Reader) Lookup(dst, userKey []byte, hash uint64, snapshot keys.SeqNum, existsOnly bool, from int, step *explain.Step) (Found, error) {
	f := Found{Value: dst}
	for i := from; i < r.index.n(); i++ {
		h, cached := r.cached(i)
		if cached {
			f.BlocksCached++
		} else {
			var err error
			if h, err = r.readBlock(i); err != nil {
				return f, err
			}
			f.BlocksRead++
		}
		if step != nil {
			r.explain(step, i, cached)
		}
		b := block.Of(h.Bytes())
		value, trailer, ok := b.Get(userKey, byte(hash), snapshot)
		if ok {
			f.OK, f.Trailer = true, trailer
			if !existsOnly && trailer.Kind() == keys.KindPut {
				f.Value = append(dst, value...)
			}
		}
		f.HasKey = f.HasKey || trailer != 0
		more := !ok && r.index.endsWith(i, userKey) && b.LastIs(userKey)
		h.Release()
		if !more {
			break
		}
	}
	return f, nil
}

// explain adds block i to step.
func (r *Reader) explain(step *explain.Step, i int, cached bool) {
	frame := r.index.frame(i)
	b := explain.Block{Number: i, Offset: frame.offset, Cached: cached}
	if !cached {
		b.BytesRead = frame.length
	}
	step.Blocks = append(step.Blocks, b)
}

// RangeDels returns the range tombstones, which are resident; nil if there are
// none.
func (r *Reader) RangeDels() *rangedel.Set { return r.rangeDels }

// Bounds returns what the table covers.
func (r *Reader) Bounds() Bounds { return r.bounds }

// Properties returns what the table says of itself. It must not be changed.
func (r *Reader) Properties() *Properties { return r.props }

// Name returns the file's name, as given to Open.
func (r *Reader) Name() string { return r.name }

// Checksum returns the footer's checksum, which identifies the table.
func (r *Reader) Checksum() uint32 { return r.checksum }

// IndexBytes returns the memory that the index keeps, in bytes.
func (r *Reader) IndexBytes() int64 { return r.index.sizeBytes() }

// ApproximateOffset returns where in the file the data of userKey begins, or
// would begin, to within a data block.
func (r *Reader) ApproximateOffset(userKey []byte) uint64 {
	i, _ := r.index.find(userKey)
	return r.index.blocks[i].offset
}

// EvictBlocks drops the table's blocks from the cache, because the table is
// obsolete. Blocks that are in use go when they are released.
func (r *Reader) EvictBlocks() { r.cache.Drop(r.cacheID) }
