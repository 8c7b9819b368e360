package store

import (
	"errors"

	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/filter"
	"github.com/syndtr/goleveldb/leveldb/iterator"
	"github.com/syndtr/goleveldb/leveldb/opt"
	"github.com/syndtr/goleveldb/leveldb/util"
)

var goleveldb = Engine{
	Name: "goleveldb", Module: "github.com/syndtr/goleveldb",
	Note: "Has no filters by default.",
	Open: openGoleveldb,
}

type goleveldbStore struct {
	db    *leveldb.DB
	batch leveldb.Batch
	write *opt.WriteOptions
}

func openGoleveldb(dir string, o *Options) (Store, error) {
	options := &opt.Options{}
	if o.Tuned {
		options = &opt.Options{
			BlockCacheCapacity: int(o.CacheBytes), WriteBuffer: int(o.MemtableBytes), BlockSize: blockBytes,
			Filter: filter.NewBloomFilter(o.BitsPerKey), Compression: opt.SnappyCompression,
		}
	}
	db, err := leveldb.OpenFile(dir, options)
	if err != nil {
		return nil, err
	}
	return &goleveldbStore{db: db, write: &opt.WriteOptions{Sync: o.Synced}}, nil
}

func (s *goleveldbStore) Put(key, value []byte) error { return s.db.Put(key, value, s.write) }

func (s *goleveldbStore) PutBatch(entries []Entry) error {
	s.batch.Reset()
	for _, e := range entries {
		s.batch.Put(e.Key, e.Value)
	}
	return s.db.Write(&s.batch, s.write)
}

func (s *goleveldbStore) Get(dst, key []byte) (value []byte, found bool, err error) {
	value, err = s.db.Get(key, nil)
	if errors.Is(err, leveldb.ErrNotFound) {
		return dst, false, nil
	}
	return value, err == nil, err
}

func (s *goleveldbStore) Delete(key []byte) error { return s.db.Delete(key, s.write) }

func (s *goleveldbStore) Scan(from []byte, visit func(key, value []byte) bool) error {
	it := s.db.NewIterator(nil, nil)
	return visitLevel(it, it.Seek(from), it.Next, visit)
}

func (s *goleveldbStore) Backward(visit func(key, value []byte) bool) error {
	it := s.db.NewIterator(nil, nil)
	return visitLevel(it, it.Last(), it.Prev, visit)
}

func visitLevel(it iterator.Iterator, ok bool, step func() bool, visit func(key, value []byte) bool) error {
	for ; ok && visit(it.Key(), it.Value()); ok = step() {
	}
	it.Release()
	return it.Error()
}

func (s *goleveldbStore) Compact() (bool, error) { return true, s.db.CompactRange(util.Range{}) }

func (s *goleveldbStore) Close() error { return s.db.Close() }
