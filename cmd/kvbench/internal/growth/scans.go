package growth

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"time"

	"sievedb"
	"sievedb/cmd/kvbench/internal/latency"
)

const (
	// scanLength is how many entries a short scan reads.
	scanLength = 100
	// lookupsPerScan is how many lookups a pass has for each short scan.
	lookupsPerScan = 20
)

// shortScans reads entries from stored keys on.
func (x *sized) shortScans(ctx context.Context, db *sievedb.DB) error {
	n := max(1, x.lookups/lookupsPerScan)
	p := x.progress("short scans", int64(n))
	defer p.Done()
	r := latency.New(n)
	var key, last []byte
	for i := range n {
		if err := ctx.Err(); err != nil {
			return err
		}
		key = x.keys.StoredKey(key[:0], i)
		last = last[:0]
		found := 0
		start := time.Now()
		it := db.Scan(key, nil)
		for k := range it.All() {
			if found == 0 && !bytes.Equal(k, key) || bytes.Compare(k, last) <= 0 {
				return fmt.Errorf("a scan from %q has %q after %q", key, k, last)
			}
			last = append(last[:0], k...)
			if found++; found == scanLength {
				break
			}
		}
		r.Record(time.Since(start))
		if err := it.Err(); err != nil {
			return err
		}
		p.Add(1)
	}
	x.size.Scans.Length, x.size.Scans.Count, x.size.Scans.Short = scanLength, n, r.Latency()
	return nil
}

// fullScans reads all entries in both directions.
func (x *sized) fullScans(ctx context.Context, db *sievedb.DB) (err error) {
	it := db.All()
	if x.size.Scans.Forward, err = x.fullScan(ctx, "scan forward", it, it.All(), 1); err != nil {
		return err
	}
	it = db.All()
	x.size.Scans.Reverse, err = x.fullScan(ctx, "scan reverse", it, it.Backward(), -1)
	return err
}

// fullScan reads the entries of an iterator, whose keys come in the given order:
// 1 is upwards.
func (x *sized) fullScan(ctx context.Context, label string, it *sievedb.Iterator, entries iter.Seq2[[]byte, []byte], order int) (s FullScan, err error) {
	n := x.size.Keys
	p := x.progress(label, int64(n))
	defer p.Done()
	perSlice := max(1, n/latency.Slices)
	var last []byte
	start := time.Now()
	began := start
	for key, value := range entries {
		if s.Entries > 0 && bytes.Compare(key, last) != order || len(value) != x.ValueBytes {
			return s, fmt.Errorf("%q with %d bytes after %q", key, len(value), last)
		}
		last = append(last[:0], key...)
		s.Entries++
		if s.Entries%perSlice == 0 {
			now := time.Now()
			s.SliceMeansNs = append(s.SliceMeansNs, float64(now.Sub(began).Nanoseconds())/float64(perSlice))
			began = now
		}
		if s.Entries%4096 == 0 {
			if err := ctx.Err(); err != nil {
				return s, err
			}
			p.Set(int64(s.Entries))
		}
	}
	s.Seconds = time.Since(start).Seconds()
	if err := it.Err(); err != nil {
		return s, err
	}
	if s.Entries != n {
		return s, fmt.Errorf("%d entries of %d", s.Entries, n)
	}
	return s, nil
}
