package itertest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"sievedb/internal/iter"
	"sievedb/internal/keys"
)

// SeedVariable is the environment variable that repeats a random test.
const SeedVariable = "SIEVEDB_SEED"

// Rand returns a random source and logs its seed, which is that of
// SeedVariable where it is set.
func Rand(t testing.TB) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv(SeedVariable); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", SeedVariable, err)
		}
		seed = n
	}
	t.Logf("%s=%d", SeedVariable, seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// randomCalls is the number of positioning calls of the random walk.
const randomCalls = 3000

// Check fails t unless the iterators that newIter makes keep the contract of
// iter.Iterator over the entries want: one full walk in each direction, then a
// random walk of all positioning calls, runs of steps and turns included, each
// compared with want; then Close, twice.
// Requires: want is in the order of internal keys.
func Check(t testing.TB, newIter func() iter.Iterator, want []Entry) {
	t.Helper()
	if err := check(newIter, want, Rand(t)); err != nil {
		t.Fatal(err)
	}
}

func check(newIter func() iter.Iterator, want []Entry, rnd *rand.Rand) error {
	walks := []func(*checker) error{(*checker).fresh, (*checker).forward, (*checker).backward, (*checker).random}
	for _, walk := range walks {
		c := &checker{in: newIter(), model: NewSlice(want), want: want, rnd: rnd}
		if err := walk(c); err != nil {
			return err
		}
		for range 2 {
			if err := c.in.Close(); err != nil {
				return fmt.Errorf("close: %w", err)
			}
		}
	}
	return nil
}

// checker makes the same calls to an iterator and to the model.
type checker struct {
	in     iter.Iterator
	model  *Slice
	want   []Entry
	rnd    *rand.Rand
	target []byte // buffer of the seek keys, overwritten after each seek
}

// fresh checks that a new iterator stands on no entry.
func (c *checker) fresh() error {
	if c.in.Valid() {
		return fmt.Errorf("a new iterator stands on %s", c.in.Key())
	}
	if err := c.same("Next of a new iterator", c.in.Next(), c.model.Next()); err != nil {
		return err
	}
	return c.same("Prev of a new iterator", c.in.Prev(), c.model.Prev())
}

func (c *checker) forward() error {
	err := c.same("First", c.in.First(), c.model.First())
	for range c.want {
		if err == nil {
			err = c.same("Next", c.in.Next(), c.model.Next())
		}
	}
	return err
}

func (c *checker) backward() error {
	err := c.same("Last", c.in.Last(), c.model.Last())
	for range c.want {
		if err == nil {
			err = c.same("Prev", c.in.Prev(), c.model.Prev())
		}
	}
	return err
}

func (c *checker) random() error {
	for n := 0; n < randomCalls; n++ {
		if err := c.call(); err != nil {
			return fmt.Errorf("random walk, step %d: %w", n, err)
		}
	}
	return nil
}

// call makes one random positioning call, or a short run of the same step.
func (c *checker) call() error {
	switch r := c.rnd.IntN(20); {
	case r == 0:
		return c.same("First", c.in.First(), c.model.First())
	case r == 1:
		return c.same("Last", c.in.Last(), c.model.Last())
	case r < 7:
		return c.seek()
	}
	steps, back := 1+c.rnd.IntN(4), c.rnd.IntN(2) == 0
	for range steps {
		var err error
		if back {
			err = c.same("Prev", c.in.Prev(), c.model.Prev())
		} else {
			err = c.same("Next", c.in.Next(), c.model.Next())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) seek() error {
	userKey, trailer := c.randomTarget()
	c.target = append(c.target[:0], userKey...)
	what, got, want := "", false, false
	if c.rnd.IntN(2) == 0 {
		what = fmt.Sprintf("SeekGE(%q, %s)", userKey, trailer)
		got, want = c.in.SeekGE(c.target, trailer), c.model.SeekGE(userKey, trailer)
	} else {
		what = fmt.Sprintf("SeekLT(%q, %s)", userKey, trailer)
		got, want = c.in.SeekLT(c.target, trailer), c.model.SeekLT(userKey, trailer)
	}
	for i := range c.target {
		c.target[i] ^= 0xff // nobody may have kept it
	}
	return c.same(what, got, want)
}

// randomTarget returns a user key that is in the model, or close to one that
// is, and a trailer that is, is close, or is extreme.
func (c *checker) randomTarget() ([]byte, keys.Trailer) {
	var k keys.InternalKey
	if len(c.want) > 0 {
		k = c.want[c.rnd.IntN(len(c.want))].Key.Clone()
	}
	switch c.rnd.IntN(8) {
	case 0:
		k.UserKey = append(k.UserKey, byte(c.rnd.Uint32()))
	case 1:
		if n := len(k.UserKey); n > 0 {
			k.UserKey = k.UserKey[:c.rnd.IntN(n)]
		}
	case 2:
		if n := len(k.UserKey); n > 0 {
			k.UserKey[c.rnd.IntN(n)] = byte(c.rnd.Uint32())
		}
	case 3:
		k.UserKey = nil
	}
	trailers := []keys.Trailer{k.Trailer, k.Trailer, k.Trailer - 1, k.Trailer + 1,
		0, ^keys.Trailer(0), keys.SeekTrailer(k.Trailer.SeqNum())}
	return k.UserKey, trailers[c.rnd.IntN(len(trailers))]
}

// same compares the iterator with the model after a call that reported got.
func (c *checker) same(what string, got, want bool) error {
	if err := c.in.Error(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if got != want {
		return fmt.Errorf("%s = %t, want %t (at %s)", what, got, want, c.where())
	}
	if c.in.Valid() != got {
		return fmt.Errorf("%s = %t, then Valid() = %t", what, got, !got)
	}
	if !want {
		return nil
	}
	for range 2 { // asking does not move
		k, v := c.in.Key(), c.in.Value()
		if keys.Compare(k, c.model.Key()) != 0 || !bytes.Equal(v, c.model.Value()) {
			return fmt.Errorf("%s: on %s = %.40q, want %s = %.40q", what, k, v, c.model.Key(), c.model.Value())
		}
	}
	return nil
}

// where names the entry of the model.
func (c *checker) where() string {
	if !c.model.Valid() {
		return "no entry"
	}
	return c.model.Key().String()
}
