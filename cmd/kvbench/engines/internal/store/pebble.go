package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable"
)

var pebbleEngine = Engine{
	Name: "pebble", Module: "github.com/cockroachdb/pebble/v2",
	Note: "Has no filters by default; with them, Get asks all but those of the bottom level. It takes memtables out of its cache, which is larger by two of them here.",
	Open: openPebble,
}

// pebbleLogger drops what pebble would print.
type pebbleLogger struct{}

func (pebbleLogger) Infof(string, ...any)  {}
func (pebbleLogger) Errorf(string, ...any) {}

// Fatalf must not return.
func (pebbleLogger) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

type pebbleStore struct {
	db    *pebble.DB
	batch *pebble.Batch
	write *pebble.WriteOptions
}

func openPebble(dir string, o *Options) (Store, error) {
	options := &pebble.Options{Logger: pebbleLogger{}}
	if o.Tuned {
		// It takes its memtables, the one in use and one for the next, out of
		// the cache's memory: without them nothing would be left for blocks.
		options.Cache = pebble.NewCache(o.CacheBytes + 2*o.MemtableBytes)
		defer options.Cache.Unref() // the store holds it, too
		options.MemTableSize = uint64(o.MemtableBytes)
		options.FormatMajorVersion = pebble.FormatNewest
		for i := range options.Levels {
			l := &options.Levels[i]
			l.BlockSize, l.FilterPolicy, l.FilterType = blockBytes, bloom.FilterPolicy(o.BitsPerKey), pebble.TableFilter
			l.Compression = func() *sstable.CompressionProfile { return sstable.SnappyCompression }
		}
	}
	db, err := pebble.Open(dir, options)
	if err != nil {
		return nil, err
	}
	s := &pebbleStore{db, db.NewBatch(), pebble.NoSync}
	if o.Synced {
		s.write = pebble.Sync
	}
	return s, nil
}

func (s *pebbleStore) Put(key, value []byte) error { return s.db.Set(key, value, s.write) }

func (s *pebbleStore) PutBatch(entries []Entry) error {
	s.batch.Reset()
	for _, e := range entries {
		if err := s.batch.Set(e.Key, e.Value, nil); err != nil {
			return err
		}
	}
	return s.db.Apply(s.batch, s.write)
}

func (s *pebbleStore) Get(dst, key []byte) (value []byte, found bool, err error) {
	v, closer, err := s.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return dst, false, nil
	}
	if err != nil {
		return dst, false, err
	}
	value = append(dst[:0], v...)
	return value, true, closer.Close()
}

func (s *pebbleStore) Delete(key []byte) error { return s.db.Delete(key, s.write) }

func (s *pebbleStore) Scan(from []byte, visit func(key, value []byte) bool) error {
	it, err := s.db.NewIter(nil)
	if err != nil {
		return err
	}
	for ok := it.SeekGE(from); ok && visit(it.Key(), it.Value()); ok = it.Next() {
	}
	return it.Close()
}

func (s *pebbleStore) Backward(visit func(key, value []byte) bool) error {
	it, err := s.db.NewIter(nil)
	if err != nil {
		return err
	}
	for ok := it.Last(); ok && visit(it.Key(), it.Value()); ok = it.Prev() {
	}
	return it.Close()
}

func (s *pebbleStore) Compact() (bool, error) {
	if err := s.db.Flush(); err != nil {
		return true, err
	}
	it, err := s.db.NewIter(nil)
	if err != nil {
		return true, err
	}
	if !it.Last() {
		return true, it.Close()
	}
	end := append(bytes.Clone(it.Key()), 0) // the range is half open
	if err := it.Close(); err != nil {
		return true, err
	}
	return true, s.db.Compact(context.Background(), nil, end, true)
}

func (s *pebbleStore) Close() error { return errors.Join(s.batch.Close(), s.db.Close()) }
