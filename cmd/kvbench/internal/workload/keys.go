// Package workload decides what kvbench stores and asks for: keys, values, and
// mixes of operations. Everything follows from a seed.
//
// A Keys is read-only once made, and safe for concurrent use; choosers and
// draws of a mix are for one goroutine.
//
//	k := workload.Numbered(1000, 42)
//	key = k.StoredKey(key[:0], 0)
package workload

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"

	"sievedb"
)

// MinKeys is the least number of keys that is worth a run.
const MinKeys = 100

// Keys says which keys are stored and which absent ones are looked up. All
// absent keys are distinct and lie between the least and the greatest stored
// key; outside them the tables' key ranges would do the filters' work.
type Keys struct {
	Name           string
	Stored, Absent int
	KeyBytes       int64 // of all stored keys together
	Outside        int   // keys that were left out, because they lie outside
	Repeated       int   // lines that were left out, because they were there already
	// StoredKey and AbsentKey append the i-th key, in the order in which they
	// are stored or looked up.
	StoredKey, AbsentKey func(dst []byte, i int) []byte
	// above is a key above every stored one.
	above []byte
}

// OutsideKey appends the i-th of the keys beyond the stored ones, which are the
// control: no table's key range holds them.
func (k *Keys) OutsideKey(dst []byte, i int) []byte {
	return fmt.Appendf(append(dst, k.above...), "%09d", i)
}

// beyond returns a key that is greater than key, and no longer unless key has
// no byte but 0xff.
func beyond(key []byte) []byte {
	for i, c := range key {
		if c < 0xff {
			return append(bytes.Clone(key[:i]), c+1)
		}
	}
	return append(bytes.Clone(key), 0)
}

// Numbered stores the n even numbers from 0 on, in random order, as 16 digits
// each; the odd numbers between them are absent.
func Numbered(n int, seed uint64) *Keys {
	stored, absent := permutation(n, seed, 1), permutation(n-1, seed, 2)
	return numbered("numbered", n, func(i int) uint64 { return uint64(stored[i]) }, func(i int) uint64 { return uint64(absent[i]) })
}

// Computed is Numbered in another order, which is computed as keys are asked
// for: whatever their number, they take no memory.
func Computed(n int, seed uint64) *Keys {
	return numbered("numbered, in computed order", n, newShuffled(n, seed, 1).at, newShuffled(n-1, seed, 2).at)
}

// numbered returns the keys whose orders stored and absent are.
func numbered(name string, n int, stored, absent func(i int) uint64) *Keys {
	return &Keys{
		Name: name, Stored: n, Absent: n - 1, KeyBytes: 16 * int64(n),
		StoredKey: func(dst []byte, i int) []byte { return appendNumber(dst, 2*stored(i)) },
		AbsentKey: func(dst []byte, i int) []byte { return appendNumber(dst, 2*absent(i)+1) },
		above:     beyond(appendNumber(nil, 2*uint64(n-1))),
	}
}

// appendNumber appends 16 digits. fmt would take longer than some lookups.
func appendNumber(dst []byte, n uint64) []byte {
	var digits [16]byte
	for i := len(digits) - 1; i >= 0; i-- {
		digits[i] = byte('0' + n%10)
		n /= 10
	}
	return append(dst, digits[:]...)
}

// permutation returns the numbers below n in an order that depends on seed and
// stream only.
func permutation(n int, seed, stream uint64) []uint32 {
	p := make([]uint32, n)
	for i := range p {
		p[i] = uint32(i)
	}
	shuffle(p, seed, stream)
	return p
}

func shuffle[T any](s []T, seed, stream uint64) {
	rand.New(rand.NewPCG(seed, stream)).Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
}

// FromFile stores a random half of the file's distinct lines, or of a sample
// of them; a sample of zero is all.
func FromFile(name string, sample int, seed uint64) (*Keys, error) {
	keys, repeated, err := readLines(name)
	if err != nil {
		return nil, err
	}
	if len(keys) < 2*MinKeys {
		return nil, fmt.Errorf("%s has %d distinct keys; at least %d are needed", name, len(keys), 2*MinKeys)
	}
	shuffle(keys, seed, 1)
	if sample > 0 && sample < len(keys) {
		keys = keys[:sample]
	}
	half := (len(keys) + 1) / 2
	stored, rest := keys[:half], keys[half:]
	lo, hi := slices.MinFunc(stored, bytes.Compare), slices.MaxFunc(stored, bytes.Compare)
	absent := slices.DeleteFunc(rest, func(k []byte) bool { return bytes.Compare(k, lo) < 0 || bytes.Compare(k, hi) > 0 })
	k := listed(name, stored, absent, hi)
	k.Outside, k.Repeated = len(keys)-half-len(absent), repeated
	return k, nil
}

// listed returns the keys of two lists, which it keeps.
func listed(name string, stored, absent [][]byte, greatest []byte) *Keys {
	k := &Keys{Name: name, Stored: len(stored), Absent: len(absent), above: beyond(greatest)}
	for _, key := range stored {
		k.KeyBytes += int64(len(key))
	}
	k.StoredKey = func(dst []byte, i int) []byte { return append(dst, stored[i]...) }
	k.AbsentKey = func(dst []byte, i int) []byte { return append(dst, absent[i]...) }
	return k
}

// readLines returns the distinct lines of a file, sorted, without empty ones,
// and how many repeat another.
func readLines(name string) (keys [][]byte, repeated int, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, 0, err // it names the file
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, sievedb.MaxKeyBytes+2) // and the end of the line
	tooLong := false
	for !tooLong && lines.Scan() {
		if line := lines.Bytes(); len(line) > 0 {
			tooLong = len(line) > sievedb.MaxKeyBytes
			keys = append(keys, bytes.Clone(line))
		}
	}
	err = lines.Err()
	if tooLong || errors.Is(err, bufio.ErrTooLong) {
		return nil, 0, fmt.Errorf("%s has a line of more than %d bytes, the longest key", name, sievedb.MaxKeyBytes)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("reading %s: %w", name, err)
	}
	n := len(keys)
	slices.SortFunc(keys, bytes.Compare)
	keys = slices.CompactFunc(keys, bytes.Equal)
	return keys, n - len(keys), nil
}
