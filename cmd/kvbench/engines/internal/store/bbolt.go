package store

import (
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"
)

var bboltEngine = Engine{
	Name: "bbolt", Module: "go.etcd.io/bbolt",
	Note: "A B+tree in one file mapped into memory: no filters, no compression, no compaction; a write changes the tree at once.",
	Open: openBbolt,
}

type bboltStore struct{ db *bbolt.DB }

var bucketName = []byte("kvbench")

func openBbolt(dir string, o *Options) (Store, error) {
	options := *bbolt.DefaultOptions
	options.NoSync = !o.Synced
	if o.Tuned {
		options.NoFreelistSync, options.FreelistType = true, bbolt.FreelistMapType
	}
	const owner = 0o600
	db, err := bbolt.Open(filepath.Join(dir, "bolt.db"), os.FileMode(owner), &options)
	if err != nil {
		return nil, err
	}
	err = db.Update(func(t *bbolt.Tx) error {
		_, err := t.CreateBucketIfNotExists(bucketName)
		return err
	})
	return &bboltStore{db}, err
}

func (s *bboltStore) update(f func(*bbolt.Bucket) error) error {
	return s.db.Update(func(t *bbolt.Tx) error { return f(t.Bucket(bucketName)) })
}

func (s *bboltStore) Put(key, value []byte) error {
	return s.update(func(b *bbolt.Bucket) error { return b.Put(key, value) })
}

func (s *bboltStore) PutBatch(entries []Entry) error {
	return s.update(func(b *bbolt.Bucket) error {
		for _, e := range entries {
			if err := b.Put(e.Key, e.Value); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *bboltStore) Get(dst, key []byte) (value []byte, found bool, err error) {
	value = dst[:0]
	err = s.db.View(func(t *bbolt.Tx) error {
		v := t.Bucket(bucketName).Get(key)
		value, found = append(value, v...), v != nil
		return nil
	})
	return value, found, err
}

func (s *bboltStore) Delete(key []byte) error {
	return s.update(func(b *bbolt.Bucket) error { return b.Delete(key) })
}

func (s *bboltStore) Scan(from []byte, visit func(key, value []byte) bool) error {
	return s.db.View(func(t *bbolt.Tx) error {
		c := t.Bucket(bucketName).Cursor()
		for k, v := c.Seek(from); k != nil && visit(k, v); k, v = c.Next() {
		}
		return nil
	})
}

func (s *bboltStore) Backward(visit func(key, value []byte) bool) error {
	return s.db.View(func(t *bbolt.Tx) error {
		c := t.Bucket(bucketName).Cursor()
		for k, v := c.Last(); k != nil && visit(k, v); k, v = c.Prev() {
		}
		return nil
	})
}

func (s *bboltStore) Compact() (bool, error) { return false, nil }

func (s *bboltStore) Close() error { return s.db.Close() }
