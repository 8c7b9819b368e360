package store

import (
	"context"
	"errors"
	"iter"

	"sievedb"
)

var sieve = Engine{
	Name: "sievedb", Module: "sievedb",
	Note: "Has filters by default and asks them in every table.",
	Open: openSieve,
}

type sieveStore struct {
	db    *sievedb.DB
	batch *sievedb.Batch
}

func openSieve(dir string, o *Options) (Store, error) {
	options := &sievedb.Options{Durability: sievedb.SyncNever}
	if o.Synced {
		options.Durability = sievedb.SyncAlways
	}
	if o.Tuned {
		options.CacheBytes, options.MemtableBytes = o.CacheBytes, o.MemtableBytes
		options.FilterBitsPerKey, options.BlockBytes = float64(o.BitsPerKey), blockBytes
	}
	db, err := sievedb.Open(dir, options)
	if err != nil {
		return nil, err
	}
	return &sieveStore{db, db.NewBatch()}, nil
}

func (s *sieveStore) Put(key, value []byte) error { return s.db.Put(key, value) }

func (s *sieveStore) PutBatch(entries []Entry) error {
	s.batch.Reset()
	for _, e := range entries {
		s.batch.Put(e.Key, e.Value)
	}
	return s.db.Apply(s.batch, sievedb.StoreDefault)
}

func (s *sieveStore) Get(dst, key []byte) (value []byte, found bool, err error) {
	value, err = s.db.GetTo(dst[:0], key)
	if errors.Is(err, sievedb.ErrNotFound) {
		return value, false, nil
	}
	return value, err == nil, err
}

func (s *sieveStore) Delete(key []byte) error { return s.db.Delete(key) }

func (s *sieveStore) Scan(from []byte, visit func(key, value []byte) bool) error {
	it := s.db.Scan(from, nil)
	return visitAll(it, it.All(), visit)
}

func (s *sieveStore) Backward(visit func(key, value []byte) bool) error {
	it := s.db.All()
	return visitAll(it, it.Backward(), visit)
}

func visitAll(it *sievedb.Iterator, entries iter.Seq2[[]byte, []byte], visit func(key, value []byte) bool) error {
	for key, value := range entries {
		if !visit(key, value) {
			break
		}
	}
	return it.Err()
}

func (s *sieveStore) Compact() (bool, error) {
	return true, s.db.Compact(context.Background(), nil, nil)
}

func (s *sieveStore) Close() error { return s.db.Close() }
