package main

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

// workload says which keys are stored and which absent ones are looked up. All
// absent keys are distinct and lie between the least and the greatest stored
// key; outside them the tables' key ranges would do the filters' work.
type workload struct {
	name           string
	stored, absent int
	keyBytes       int64 // of all stored keys together
	outside        int   // keys that were left out, because they lie outside
	// storedKey and absentKey append the i-th key, in the order in which they
	// are stored or looked up.
	storedKey, absentKey func(dst []byte, i int) []byte
}

// numberedKeys stores the n even numbers from 0 on, in random order, as 16
// digits each; the odd numbers between them are absent.
func numberedKeys(n int, seed uint64) *workload {
	stored, absent := permutation(n, seed, 1), permutation(n-1, seed, 2)
	return &workload{
		name: "numbered", stored: n, absent: n - 1, keyBytes: 16 * int64(n),
		storedKey: func(dst []byte, i int) []byte { return appendNumber(dst, 2*uint64(stored[i])) },
		absentKey: func(dst []byte, i int) []byte { return appendNumber(dst, 2*uint64(absent[i])+1) },
	}
}

func appendNumber(dst []byte, n uint64) []byte { return fmt.Appendf(dst, "%016d", n) }

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

// keysOfFile stores a random half of the file's distinct lines, or of a sample
// of them.
func keysOfFile(name string, sample int, seed uint64) (*workload, error) {
	keys, err := readKeys(name)
	if err != nil {
		return nil, err
	}
	if len(keys) < 2*minKeys {
		return nil, fmt.Errorf("%s has %d distinct keys; at least %d are needed", name, len(keys), 2*minKeys)
	}
	shuffle(keys, seed, 1)
	if sample > 0 && sample < len(keys) {
		keys = keys[:sample]
	}
	stored, rest := keys[:(len(keys)+1)/2], keys[(len(keys)+1)/2:]
	w := &workload{name: name, stored: len(stored)}
	for _, k := range stored {
		w.keyBytes += int64(len(k))
	}
	lo, hi := slices.MinFunc(stored, bytes.Compare), slices.MaxFunc(stored, bytes.Compare)
	absent := slices.DeleteFunc(rest, func(k []byte) bool { return bytes.Compare(k, lo) < 0 || bytes.Compare(k, hi) > 0 })
	w.absent, w.outside = len(absent), len(rest)-len(absent)
	w.storedKey = func(dst []byte, i int) []byte { return append(dst, stored[i]...) }
	w.absentKey = func(dst []byte, i int) []byte { return append(dst, absent[i]...) }
	return w, nil
}

// readKeys returns the distinct lines of a file, sorted, without empty ones.
func readKeys(name string) ([][]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err // it names the file
	}
	defer f.Close()
	var keys [][]byte
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, sievedb.MaxKeyBytes+2) // and the end of the line
	for lines.Scan() {
		if line := lines.Bytes(); len(line) > 0 {
			keys = append(keys, bytes.Clone(line))
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, fmt.Errorf("%s has a line of more than %d bytes, the longest key", name, sievedb.MaxKeyBytes)
	} else if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	slices.SortFunc(keys, bytes.Compare)
	return slices.CompactFunc(keys, bytes.Equal), nil
}
