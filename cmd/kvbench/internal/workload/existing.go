package workload

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"

	"sievedb"
)

// FromStore draws up to n keys of a store, and up to n absent ones, each the
// immediate successor of a stored key. It reads the store from end to end.
func FromStore(db *sievedb.DB, name string, n int, seed uint64) (*Keys, error) {
	rng := rand.New(rand.NewPCG(seed, 3))
	var stored, absent reservoir
	stored.size, absent.size = n, n
	var last, successor []byte
	it := db.All()
	for key := range it.All() {
		// The successor of the key before lies between, unless it is this key.
		if stored.seen > 0 && len(successor) <= sievedb.MaxKeyBytes && !bytes.Equal(successor, key) {
			absent.offer(successor, rng)
		}
		stored.offer(key, rng)
		last = append(last[:0], key...)
		successor = append(append(successor[:0], key...), 0)
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("reading the keys of %s: %w", name, err)
	}
	if len(stored.keys) < MinKeys {
		return nil, fmt.Errorf("%s has %d keys; at least %d are needed", name, len(stored.keys), MinKeys)
	}
	shuffle(stored.keys, seed, 1)
	shuffle(absent.keys, seed, 2)
	return listed(name, stored.keys, absent.keys, last), nil
}

// reservoir is a uniform sample of a sequence of unknown length (Vitter's
// algorithm R, 1985).
type reservoir struct {
	size int
	seen int
	keys [][]byte
}

func (r *reservoir) offer(key []byte, rng *rand.Rand) {
	r.seen++
	if len(r.keys) < r.size {
		r.keys = append(r.keys, bytes.Clone(key))
		return
	}
	if i := rng.IntN(r.seen); i < r.size {
		r.keys[i] = append(r.keys[i][:0], key...)
	}
}

// FromFileAndStore divides the lines of a file into those that a store has and
// those that it has not, as far as they lie between its first and last key.
// Open the store without filters, so that they are not asked about themselves.
func FromFileAndStore(db *sievedb.DB, file string, sample int, seed uint64) (*Keys, error) {
	lines, repeated, err := readLines(file)
	if err != nil {
		return nil, err
	}
	shuffle(lines, seed, 1)
	if sample > 0 && sample < len(lines) {
		lines = lines[:sample]
	}
	lo, hi, err := bounds(db)
	if err != nil {
		return nil, err
	}
	var stored, absent [][]byte
	outside := 0
	for _, key := range lines {
		found, err := db.Has(key)
		switch {
		case err != nil:
			return nil, fmt.Errorf("key %.64q: %w", key, err)
		case found:
			stored = append(stored, key)
		case bytes.Compare(key, lo) < 0 || bytes.Compare(key, hi) > 0:
			outside++
		default:
			absent = append(absent, key)
		}
	}
	k := listed(file, stored, absent, hi)
	k.Outside, k.Repeated = outside, repeated
	return k, nil
}

func bounds(db *sievedb.DB) (lo, hi []byte, err error) {
	it := db.All()
	defer func() { err = errors.Join(err, it.Close()) }()
	if !it.First() {
		if err := it.Err(); err != nil {
			return nil, nil, fmt.Errorf("the first key: %w", err)
		}
		return nil, nil, errors.New("the store is empty")
	}
	lo = bytes.Clone(it.Key())
	if !it.Last() {
		return nil, nil, fmt.Errorf("the last key: %w", it.Err())
	}
	return lo, bytes.Clone(it.Key()), nil
}
