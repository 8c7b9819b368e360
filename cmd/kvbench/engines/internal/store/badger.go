package store

import (
	"errors"
	"math"

	badger "github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
)

var badgerEngine = Engine{
	Name: "badger", Module: "github.com/dgraph-io/badger/v4",
	Note: "Has filters by default. Every read and write is a transaction. Has no flush: to compact, it is closed, opened and flattened.",
	Open: openBadger,
}

type badgerStore struct {
	db      *badger.DB
	options badger.Options
}

func openBadger(dir string, o *Options) (Store, error) {
	options := badgerOptions(dir, o)
	db, err := badger.Open(options)
	if err != nil {
		return nil, err
	}
	return &badgerStore{db, options}, nil
}

func badgerOptions(dir string, o *Options) badger.Options {
	b := badger.DefaultOptions(dir).WithLogger(nil).WithSyncWrites(o.Synced)
	if !o.Tuned {
		return b
	}
	// A Bloom filter with the best number of probes.
	rate := math.Pow(2, -math.Ln2*float64(o.BitsPerKey))
	return b.WithMemTableSize(o.MemtableBytes).WithBlockCacheSize(o.CacheBytes).WithBlockSize(blockBytes).
		WithBloomFalsePositive(rate).WithCompression(options.Snappy).WithDetectConflicts(false).
		WithValueThreshold(64 << 10) // its default is too large for a small memtable
}

func (s *badgerStore) update(f func(*badger.Txn) error) error {
	t := s.db.NewTransaction(true)
	defer t.Discard()
	if err := f(t); err != nil {
		return err
	}
	return t.Commit()
}

func (s *badgerStore) Put(key, value []byte) error {
	return s.update(func(t *badger.Txn) error { return t.Set(key, value) })
}

func (s *badgerStore) PutBatch(entries []Entry) error {
	return s.update(func(t *badger.Txn) error {
		for _, e := range entries {
			if err := t.Set(e.Key, e.Value); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *badgerStore) Get(dst, key []byte) (value []byte, found bool, err error) {
	t := s.db.NewTransaction(false)
	defer t.Discard()
	item, err := t.Get(key)
	if errors.Is(err, badger.ErrKeyNotFound) {
		return dst, false, nil
	}
	if err != nil {
		return dst, false, err
	}
	value, err = item.ValueCopy(dst[:0])
	return value, err == nil, err
}

func (s *badgerStore) Delete(key []byte) error {
	return s.update(func(t *badger.Txn) error { return t.Delete(key) })
}

func (s *badgerStore) Scan(from []byte, visit func(key, value []byte) bool) error {
	return s.visit(from, false, visit)
}

func (s *badgerStore) Backward(visit func(key, value []byte) bool) error {
	return s.visit(nil, true, visit)
}

func (s *badgerStore) visit(from []byte, reverse bool, visit func(key, value []byte) bool) error {
	t := s.db.NewTransaction(false)
	defer t.Discard()
	o := badger.DefaultIteratorOptions
	o.PrefetchValues = false // they are in the tables
	o.Reverse = reverse
	it := t.NewIterator(o)
	defer it.Close()
	for it.Seek(from); it.Valid(); it.Next() {
		item, more := it.Item(), false
		err := item.Value(func(value []byte) error {
			more = visit(item.Key(), value)
			return nil
		})
		if err != nil || !more {
			return err
		}
	}
	return nil
}

func (s *badgerStore) Compact() (bool, error) {
	if err := s.db.Close(); err != nil {
		return true, err
	}
	db, err := badger.Open(s.options)
	if err != nil {
		return true, err
	}
	s.db = db
	const workers = 2
	return true, db.Flatten(workers)
}

func (s *badgerStore) Close() error { return s.db.Close() }
