package sstable

import (
	"bytes"
	"fmt"
	"sync"
	"unsafe"

	"sievedb/internal/cache"
	"sievedb/internal/corrupt"
	"sievedb/internal/prefetch"
	"sievedb/sstable/internal/block"
)

const (
	// firstAheadBytes and maxAheadBytes bound the read-ahead of a scan, which
	// doubles from read to read.
	firstAheadBytes = 64 << 10
	maxAheadBytes   = 256 << 10
	// sequentialMisses is the number of blocks that a scan reads one by one
	// before it reads ahead: a short scan should not pay for a long one.
	sequentialMisses = 2

	// enteredBytes of entries are prefetched at the end where a scan is likely to
	// enter the next block: enough to go on with while the rest is prefetched.
	enteredBytes = 1024
	// searchedBytes is about what a lookup reads of a block besides the entry: the
	// tags and offsets at its end.
	searchedBytes = 192
	// mappedBytes of its front are prefetched for their address, which may lie in
	// another page: the entry, wherever it is, then waits for memory only.
	mappedBytes = 1
	// guessedBytes are prefetched instead around where the entry is guessed to be. They
	// have its front, if 30 of 120 bytes are a block, for 99 % of keys at regular distances,
	// and for 65 % of those at random ones.
	guessedBytes = 512
	// minGuessable entries a block or more let a guess be worth while. Longer ones are
	// waited for less than they are copied.
	minGuessable = 3
)

// frames recycles the buffers that frames are read into.
var frames = sync.Pool{New: func() any { return new([]byte) }}

func takeFrame(n int) *[]byte {
	p := frames.Get().(*[]byte)
	if cap(*p) < n {
		*p = make([]byte, n)
	}
	*p = (*p)[:n]
	return p
}

func putFrame(p *[]byte) {
	*p = reuse(*p)
	frames.Put(p)
}

// cached returns block i, pinned, if it is in the cache.
func (r *Reader) cached(i int) (cache.Handle, bool) {
	return r.cache.Get(r.cacheID, r.index.blocks[i].offset, &r.index.hints[i])
}

// readBlock reads block i from the file into the cache and returns it, pinned.
// Two callers that miss at once both read; the cache keeps one copy. Waiting
// for the other would save a read that the page cache serves anyway, and cost
// every miss a lock.
func (r *Reader) readBlock(i int) (cache.Handle, error) {
	f := r.index.frame(i)
	frame := takeFrame(int(f.length))
	defer putFrame(frame)
	// What the block will be checked against comes closer while it is read.
	separator := r.index.separator(i)
	prefetch.Lines(unsafe.Pointer(unsafe.SliceData(separator)), uintptr(len(separator)))
	if err := r.readAt(*frame, f.offset, "data block"); err != nil {
		return cache.Handle{}, err
	}
	return r.admit(i, *frame, false)
}

// admit decodes and checks the frame of block i and puts it into the cache.
func (r *Reader) admit(i int, frame []byte, cold bool) (cache.Handle, error) {
	f := r.index.frame(i)
	payload, c, err := openFrame(frame, kindData, f.sum)
	if err != nil {
		return cache.Handle{}, r.locate(err, f.offset)
	}
	n, err := decodedLen(payload, c, block.MaxLen)
	if err != nil {
		return cache.Handle{}, r.locate(err, f.offset)
	}
	h := r.cache.Reserve(r.cacheID, f.offset, n)
	if err = decodePayload(h.Bytes(), payload, c); err == nil {
		err = r.validate(i, h.Bytes())
	}
	if err != nil {
		h.Release()
		return cache.Handle{}, r.locateIn(err, f.offset, c)
	}
	h.Publish(&r.index.hints[i], cold)
	return h, nil
}

// validate checks decoded block i by itself, and that its keys lie where the
// index has them: what a seek finds must not lie before what led to it, or a
// scan goes round for ever.
func (r *Reader) validate(i int, data []byte) error {
	if err := block.Validate(data); err != nil {
		return err
	}
	b := block.Of(data)
	var firstBuf, lastBuf [128]byte // longer keys are allocated
	suffix, _, _ := b.Entry(0)
	first := append(append(firstBuf[:0], b.Prefix()...), suffix...)
	suffix, _, _ = b.Entry(b.Len() - 1)
	last := append(append(lastBuf[:0], b.Prefix()...), suffix...)
	switch {
	case i > 0 && r.index.compare(i-1, first) > 0, r.index.compare(i, last) < 0:
		return corrupt.At(0, "keys of data block", fmt.Sprintf("those of block %d", i), fmt.Sprintf("%.64q to %.64q", string(first), string(last)))
	case i == 0 && !bytes.Equal(first, r.props.SmallestKey):
		return corrupt.At(0, "first key", fmt.Sprintf("%.64q", r.props.SmallestKey), fmt.Sprintf("%.64q", string(first)))
	}
	return nil
}

// IterStats counts what an iterator did to get its blocks. The iterator's
// goroutine adds to it without synchronisation.
type IterStats struct {
	BlocksCached uint64 // data blocks found in the cache
	BlocksRead   uint64 // data blocks taken from the file
	BytesRead    uint64 // of all reads, blocks read ahead included
}

// fetcher gets one block after the other for one iterator. The block that it
// returned last is the only one that is valid.
type fetcher struct {
	r      *Reader
	stats  *IterStats
	noFill bool // neither look into the cache nor fill it

	handle  cache.Handle // pins the current block, unless noFill
	decoded []byte       // the current block, if noFill and it was compressed
	stored  []byte       // its frame, if noFill

	window    *[]byte // frames read ahead; nil: none
	windowOff uint64
	nextAhead int  // bytes of the next read ahead
	next      int  // the block that would be next in order
	back      bool // the block before the current one was asked for before it
	misses    int  // blocks of the present run in order that were not in the cache
}

// get returns block i decoded and checked.
func (f *fetcher) get(i int) ([]byte, error) {
	f.handle.Release()
	f.handle = cache.Handle{}
	f.back = i == f.next-2
	if i != f.next {
		f.misses, f.nextAhead = 0, firstAheadBytes
	}
	f.next = i + 1
	if f.noFill {
		return f.getPrivate(i)
	}
	// All of the block, for its entries will be read or searched, while its slot
	// is waited for. Full scans take half the time for it.
	f.r.cache.Prefetch(&f.r.index.hints[i], 0, block.MaxSizeBytes, searchedBytes)
	if h, ok := f.r.cached(i); ok {
		f.stats.BlocksCached++
		f.handle = h
		f.prefetchNext(i)
		return h.Bytes(), nil
	}
	want := 0
	if f.misses >= sequentialMisses {
		want = f.nextAhead
	}
	frame, err := f.frame(i, want)
	if err != nil {
		return nil, err
	}
	f.misses++
	f.handle, err = f.r.admit(i, frame, f.misses > sequentialMisses)
	if err != nil {
		return nil, err
	}
	return f.handle.Bytes(), nil
}

// prefetchNext has the CPU bring closer what is read first of the block that is
// likely to be entered after block i.
func (f *fetcher) prefetchNext(i int) {
	next, head, tail := i+1, enteredBytes, searchedBytes
	if f.back {
		next, head, tail = i-1, 0, searchedBytes+enteredBytes
	}
	if next >= 0 && next < f.r.index.n() {
		f.r.cache.Prefetch(&f.r.index.hints[next], 0, head, tail)
	}
}

// getPrivate is get past the cache. Going forward it always reads ahead.
func (f *fetcher) getPrivate(i int) ([]byte, error) {
	h := f.r.index.frame(i)
	want := maxAheadBytes
	if f.window != nil && h.offset < f.windowOff {
		want = 0
	}
	frame, err := f.frame(i, want)
	if err != nil {
		return nil, err
	}
	payload, c, err := openFrame(frame, kindData, h.sum)
	if err != nil {
		return nil, f.r.locate(err, h.offset)
	}
	if c != NoCompression {
		n, err := decodedLen(payload, c, block.MaxLen)
		if err != nil {
			return nil, f.r.locate(err, h.offset)
		}
		if cap(f.decoded) < n {
			f.decoded = make([]byte, n)
		}
		f.decoded = f.decoded[:n]
		if err := decodePayload(f.decoded, payload, c); err != nil {
			return nil, f.r.locateIn(err, h.offset, c)
		}
		payload = f.decoded
	}
	if err := f.r.validate(i, payload); err != nil {
		return nil, f.r.locateIn(err, h.offset, c)
	}
	f.stored = frame
	return payload, nil
}

// frame returns the frame of block i, from the window if it is there; if not,
// a read refills the window with at least wantBytes from block i on.
func (f *fetcher) frame(i, wantBytes int) ([]byte, error) {
	h := f.r.index.frame(i)
	f.stats.BlocksRead++
	if f.window == nil || h.offset < f.windowOff || h.end() > f.windowOff+uint64(len(*f.window)) {
		n := max(h.length, min(uint64(wantBytes), f.r.footer.filter.offset-h.offset))
		f.release()
		window := takeFrame(int(n))
		if err := f.r.readAt(*window, h.offset, "data blocks"); err != nil {
			putFrame(window)
			return nil, err
		}
		f.stats.BytesRead += n
		f.window, f.windowOff = window, h.offset
		if wantBytes > 0 {
			f.nextAhead = min(2*f.nextAhead, maxAheadBytes)
		}
	}
	start := h.offset - f.windowOff
	return (*f.window)[start : start+h.length], nil
}

// release gives the window back.
func (f *fetcher) release() {
	if f.window != nil {
		putFrame(f.window)
		f.window = nil
	}
}

// close lets go of everything.
func (f *fetcher) close() {
	f.handle.Release()
	f.handle = cache.Handle{}
	f.release()
}
