package sstable

import (
	"fmt"
	"math"

	"sievedb/filter"
	"sievedb/internal/corrupt"
)

// FilterState tells what a table's filter is good for.
type FilterState uint8

const (
	// FilterUnread: nobody has asked yet.
	FilterUnread FilterState = iota
	// FilterNone: the table was written without one.
	FilterNone
	// FilterResident: in memory and answering.
	FilterResident
	// FilterBad: it could not be read or is damaged; it matches all.
	FilterBad
)

// String names the state.
func (s FilterState) String() string {
	switch s {
	case FilterUnread:
		return "unread"
	case FilterNone:
		return "none"
	case FilterResident:
		return "resident"
	case FilterBad:
		return "bad"
	}
	return fmt.Sprintf("filter state(%d)", uint8(s))
}

// residentFilter is the outcome of the one attempt at loading. Immutable; the
// garbage collector owns it, so that a probe needs no reference count.
type residentFilter struct {
	reader filter.Reader
	state  FilterState
	err    error // why the state is FilterBad
}

// MayContain asks the filter about a filter.Hash. may false is certain: the
// table has no entry of that user key. consulted is false if no filter
// answered. The first call reads the filter from the file; all others take no
// lock and allocate nothing.
func (r *Reader) MayContain(hash uint64) (may, consulted bool) {
	f := r.filter.Load()
	if f == nil {
		f = r.loadFilter()
	}
	if f.state != FilterResident {
		return true, false
	}
	return f.reader.MayContain(hash), true
}

// PrefetchFilter has the CPU bring closer what the filter will be asked for, if it
// was loaded.
func (r *Reader) PrefetchFilter(hash uint64) {
	if f := r.filter.Load(); f != nil && f.state == FilterResident {
		f.reader.Prefetch(hash)
	}
}

// LoadFilter reads the filter if that was not tried before. It is tried once:
// a filter that cannot be had matches all from then on, which costs reads but
// no answer, and err says why. The state is FilterBad exactly if err is not
// nil.
func (r *Reader) LoadFilter() (FilterState, error) {
	f := r.filter.Load()
	if f == nil {
		f = r.loadFilter()
	}
	return f.state, f.err
}

// FilterState tells what is known of the filter without reading it.
func (r *Reader) FilterState() FilterState {
	if f := r.filter.Load(); f != nil {
		return f.state
	}
	return FilterUnread
}

// FilterBytes returns the memory that the filter keeps, in bytes; zero before
// it is loaded.
func (r *Reader) FilterBytes() int64 {
	f := r.filter.Load()
	if f == nil || f.state != FilterResident {
		return 0
	}
	return int64(f.reader.Bytes())
}

func (r *Reader) loadFilter() *residentFilter {
	r.filterMu.Lock()
	defer r.filterMu.Unlock()
	if f := r.filter.Load(); f != nil {
		return f
	}
	f := &residentFilter{state: FilterResident}
	if f.reader, f.err = r.readFilter(); f.err != nil {
		f.state = FilterBad
	}
	r.filter.Store(f)
	return f
}

// readFilter reads the filter from the file and checks it against the
// properties: a filter of another number of keys, none above all, would say no
// where it must not.
func (r *Reader) readFilter() (filter.Reader, error) {
	h := r.footer.filter
	if h.length > math.MaxInt { // possible where int has 32 bits
		return filter.MatchAll(), fmt.Errorf("sstable: %s: filter of %d bytes is too large for this machine", r.name, h.length)
	}
	frame := make([]byte, h.length)
	if err := r.readAt(frame, h.offset, "filter"); err != nil {
		return filter.MatchAll(), err
	}
	payload, _, err := openFrame(frame, kindFilter, h.sum)
	if err != nil {
		return filter.MatchAll(), r.locate(err, h.offset)
	}
	fr, err := filter.Open(payload)
	if err != nil {
		return filter.MatchAll(), r.locate(err, h.offset)
	}
	if fr.Keys() != r.props.FilterKeys || fr.Keys() == 0 {
		return filter.MatchAll(), r.locate(corrupt.At(0, "filter keys", r.props.FilterKeys, fr.Keys()), h.offset)
	}
	return fr, nil
}
