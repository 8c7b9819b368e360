package sievedb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"sievedb/internal/invariants"
	"sievedb/vfs"
)

// linearKeys is how many keys the calls of one history may span.
const linearKeys = 3

// linearState is what the keys of a history hold; "" is nothing. Each write has
// a value of its own, so that a stale read gives itself away.
type linearState [linearKeys]string

// somePresent stands for a value that was there and was not looked at.
const somePresent = "*"

// linearCall is one call on a store, as a sequential store would see it: what
// it found, or demanded, and what it wrote.
type linearCall struct {
	what    string
	looked  [linearKeys]bool
	found   linearState
	wrote   [linearKeys]bool
	left    linearState
	outcome callOutcome
}

type callOutcome uint8

const (
	callDone    callOutcome = iota // it found what it found, and wrote
	callRefused                    // not all was as it demanded, and it wrote nothing
	callCut                        // by a crash: it is there as a whole or not at all
)

func (o callOutcome) String() string { return [...]string{"done", "refused", "cut"}[o] }

func (c *linearCall) look(i int, value string)  { c.looked[i], c.found[i] = true, value }
func (c *linearCall) write(i int, value string) { c.wrote[i], c.left[i] = true, value }
func (c *linearCall) writes() bool              { return c.wrote != [linearKeys]bool{} }

// matches reports whether all was as the call found or demanded it.
func (c *linearCall) matches(now linearState) bool {
	for i, looked := range c.looked {
		switch {
		case !looked:
		case c.found[i] == somePresent && now[i] != "":
		case c.found[i] != now[i]:
			return false
		}
	}
	return true
}

// step returns what the call makes of a sequential store, and whether it can
// have happened there.
func (c *linearCall) step(now linearState) (bool, linearState) {
	matches := c.matches(now)
	if c.outcome == callRefused {
		return !matches, now
	}
	if !matches {
		return c.outcome == callCut, now
	}
	for i, wrote := range c.wrote {
		if wrote {
			now[i] = c.left[i]
		}
	}
	return true, now
}

func (c *linearCall) String() string {
	s := fmt.Sprintf("%s %v:", c.what, c.outcome)
	for i := range linearKeys {
		if c.looked[i] {
			s += fmt.Sprintf(" %d=%q", i, c.found[i])
		}
		if c.wrote[i] {
			s += fmt.Sprintf(" %d:=%q", i, c.left[i])
		}
	}
	return s
}

var linearModel = porcupine.Model{
	Init: func() any { return linearState{} },
	Step: func(state, input, _ any) (bool, any) { return input.(*linearCall).step(state.(linearState)) },
}

// linearHistory is calls with the ticks of a clock at which they began and
// returned.
type linearHistory []porcupine.Operation

func (h *linearHistory) add(client int, c *linearCall, began, returned int64) {
	*h = append(*h, porcupine.Operation{ClientId: client, Input: c, Call: began, Return: returned})
}

// check searches an order in which a sequential store would have answered all
// calls as they were answered, and in which no call stands before one that had
// returned when it began. Without one it says how far it came, and what cannot
// follow.
func (h linearHistory) check() error {
	result, info := porcupine.CheckOperationsVerbose(linearModel, h, 30*time.Second)
	if result == porcupine.Ok {
		return nil
	}
	var best linearHistory
	for _, part := range info.PartialLinearizationsOperations() {
		for _, order := range part {
			if len(order) > len(best) {
				best = order
			}
		}
	}
	show := func(op porcupine.Operation) string {
		return fmt.Sprintf("\n  client %d [%d, %d] %v", op.ClientId, op.Call, op.Return, op.Input)
	}
	var s strings.Builder
	var state linearState
	placed := map[any]bool{}
	for i, op := range best {
		_, state = op.Input.(*linearCall).step(state)
		placed[op.Input] = true
		if i >= len(best)-8 {
			s.WriteString(show(op))
		}
	}
	fmt.Fprintf(&s, "\nleave %q, after which none of these can come:", state)
	rest := slices.DeleteFunc(slices.Clone(h), func(op porcupine.Operation) bool { return placed[op.Input] })
	slices.SortFunc(rest, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	first := int64(math.MaxInt64)
	for _, op := range rest {
		if op.Call < first {
			first = min(first, op.Return)
			s.WriteString(show(op))
		}
	}
	return fmt.Errorf("%s: %d of %d calls can be put in order, of which the last%s", result, len(best), len(h), &s)
}

// crashed returns what a crash between the ticks from and to leaves of the
// history. What had returned by then is durable, what came later never
// happened, and what is between may be there, which is as good as a call that
// never returned. That plain reads see only what is durable is not promised.
func (h linearHistory) crashed(from, to int64) (left linearHistory) {
	for _, op := range h {
		c := op.Input.(*linearCall)
		switch {
		case op.Call > to || c.outcome == callDone && !c.writes():
			continue
		case op.Return > from && c.outcome == callRefused:
			continue
		case op.Return > from:
			c.outcome, op.Return = callCut, math.MaxInt64
		}
		left = append(left, op)
	}
	return left
}

// linearGroup is the keys of one history, and the history.
type linearGroup struct {
	prefix string
	keys   int

	mu      sync.Mutex // guards history
	history linearHistory
}

func (g *linearGroup) key(i int) []byte { return fmt.Appendf(nil, "%s%d", g.prefix, i) }

func (g *linearGroup) add(client int, c *linearCall, began, returned int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.history.add(client, c, began, returned)
}

// encodeLinear makes a value of a name, of a length of its own, so that
// memtables fill up.
func encodeLinear(name string) []byte {
	h := fnv.New32a()
	h.Write([]byte(name))
	return []byte(name + strings.Repeat(".", 1+int(h.Sum32()%400)))
}

func decodeLinear(value []byte) string {
	name, _, _ := strings.Cut(string(value), ".")
	if string(encodeLinear(name)) != string(value) {
		return fmt.Sprintf("damaged: %q", value)
	}
	return name
}

// lookup adds to c what the key i holds.
func (g *linearGroup) lookup(c *linearCall, i int, from getter) error {
	v, err := from.Get(g.key(i))
	if errors.Is(err, ErrNotFound) {
		c.look(i, "")
		return nil
	}
	if err == nil {
		c.look(i, decodeLinear(v))
	}
	return err
}

// scan adds to c what all keys hold at one instant.
func (g *linearGroup) scan(c *linearCall, from interface{ Prefix([]byte) *Iterator }, backward bool) error {
	index := map[string]int{}
	for i := range g.keys {
		index[string(g.key(i))] = i
		c.look(i, "")
	}
	it := from.Prefix([]byte(g.prefix))
	entries := it.All()
	if backward {
		entries = it.Backward()
	}
	for k, v := range entries {
		i, known := index[string(k)]
		if !known {
			return errors.Join(fmt.Errorf("an unknown key %q", k), it.Close())
		}
		c.look(i, decodeLinear(v))
	}
	return it.Err()
}

// linearClient makes calls, one after the other.
type linearClient struct {
	*linearRound
	id     int
	rng    *rand.Rand
	seen   map[*linearGroup]linearState // what it saw last, for its conditions
	writes int
}

// value returns one that nobody wrote before.
func (c *linearClient) value() string {
	c.writes++
	return fmt.Sprintf("%d-%d-%d", c.number, c.id, c.writes)
}

func (c *linearClient) valueOrNone() string {
	if c.rng.IntN(4) == 0 {
		return ""
	}
	return c.value()
}

// one reports true once in n times.
func (c *linearClient) one(n int) bool { return c.rng.IntN(n) == 0 }

var (
	errAbort  = errors.New("aborted by choice")   // ends some transactions
	errGaveUp = errors.New("lost too many times") // a transaction that tells nothing
)

// run makes one random call and notes it in op. It returns ErrConflict if the
// store refused it.
func (c *linearClient) run(g *linearGroup, op *linearCall) error {
	i := c.rng.IntN(g.keys)
	switch c.rng.IntN(13) {
	case 0:
		op.what = "Get"
		return g.lookup(op, i, c.db)
	case 1:
		op.what = "Has"
		ok, err := c.db.Has(g.key(i))
		if op.look(i, ""); ok {
			op.look(i, somePresent)
		}
		return err
	case 2:
		op.what = "Snapshot"
		s := c.db.Snapshot()
		defer s.Close()
		for i := range g.keys {
			if err := g.lookup(op, i, s); err != nil {
				return err
			}
		}
		return nil
	case 3:
		op.what = "Prefix"
		return g.scan(op, c.db, c.one(2))
	case 4:
		op.what = "Put"
		op.write(i, c.value())
		return c.db.Put(g.key(i), encodeLinear(op.left[i]))
	case 5:
		op.what = "Delete"
		op.write(i, "")
		return c.db.Delete(g.key(i))
	case 6, 7, 8:
		return c.putIf(g, op, i)
	case 9:
		op.what = "Apply"
		return c.apply(g, op)
	case 10:
		op.what = "DeleteRange"
		return c.db.DeleteRange(c.someOf(g, op))
	}
	op.what = "Update"
	err := c.db.Update(func(tx *Txn) error { return c.transact(g, op, tx) })
	switch {
	case errors.Is(err, errAbort):
		op.wrote = [linearKeys]bool{} // what it read was so at one instant all the same
		return nil
	case errors.Is(err, ErrConflict):
		return errGaveUp
	}
	return err
}

func (c *linearClient) putIf(g *linearGroup, op *linearCall, i int) (err error) {
	old, done := c.seen[g][i], false
	op.look(i, old)
	op.write(i, c.value())
	if old == "" {
		op.what = "PutIfAbsent"
		done, err = c.db.PutIfAbsent(g.key(i), encodeLinear(op.left[i]))
	} else {
		op.what = "CompareAndSwap"
		done, err = c.db.CompareAndSwap(g.key(i), encodeLinear(old), encodeLinear(op.left[i]))
	}
	if err == nil && !done {
		err = ErrConflict
	}
	return err
}

// apply applies a batch with some conditions and some writes.
func (c *linearClient) apply(g *linearGroup, op *linearCall) error {
	b := c.db.NewBatch()
	if c.one(4) {
		b.DeleteRange(c.someOf(g, op))
	}
	for i := range g.keys {
		if c.one(2) {
			op.look(i, c.seen[g][i])
			if op.found[i] == "" {
				b.IfAbsent(g.key(i))
			} else {
				b.IfValue(g.key(i), encodeLinear(op.found[i]))
			}
		}
		if c.one(2) {
			op.write(i, c.valueOrNone())
			if op.left[i] == "" {
				b.Delete(g.key(i))
			} else {
				b.Put(g.key(i), encodeLinear(op.left[i]))
			}
		}
	}
	return c.db.Apply(b, StoreDefault)
}

// transact reads some keys and then writes some.
func (c *linearClient) transact(g *linearGroup, op *linearCall, tx *Txn) error {
	*op = linearCall{what: op.what} // forget an attempt that lost
	if c.one(3) {
		if err := g.scan(op, tx, c.one(2)); err != nil {
			return err
		}
	} else {
		for i := range g.keys {
			if c.one(2) {
				if err := g.lookup(op, i, tx); err != nil {
					return err
				}
			}
		}
	}
	if err := c.maybeSome(g, op, tx.DeleteRange); err != nil {
		return err
	}
	for i := range g.keys {
		if !c.one(2) {
			continue
		}
		var err error
		if op.write(i, c.valueOrNone()); op.left[i] == "" {
			err = tx.Delete(g.key(i))
		} else {
			err = tx.Put(g.key(i), encodeLinear(op.left[i]))
		}
		if err != nil {
			return err
		}
	}
	if c.one(8) {
		return errAbort
	}
	return nil
}

// linearRound is one life of a store, from its opening to its end.
type linearRound struct {
	db     *DB
	number int
	groups []*linearGroup
	clock  *atomic.Int64 // ticks when a call begins and when it returns
	ends   int64         // the tick at which the store is closed or crashes
	ending func()        // called then, or when a client fails
}

// client makes calls until the store is closed.
func (r *linearRound) client(id int, seed uint64) error {
	c := &linearClient{linearRound: r, id: id, rng: newRand(seed), seen: map[*linearGroup]linearState{}}
	for {
		g := r.groups[c.rng.IntN(len(r.groups))]
		if !c.one(4) { // else its conditions are about the past
			var peek linearCall
			for i := range g.keys {
				if err := g.lookup(&peek, i, r.db); err != nil && !errors.Is(err, ErrClosed) {
					return err
				}
			}
			c.seen[g] = peek.found
		}
		if err := c.disturb(); err != nil {
			return err
		}
		var op linearCall
		began := r.clock.Add(1)
		err := c.run(g, &op)
		returned := r.clock.Add(1)
		if began == r.ends || returned == r.ends {
			r.ending()
		}
		switch {
		case errors.Is(err, ErrClosed):
			return nil // and it wrote nothing
		case errors.Is(err, errGaveUp):
			continue
		case errors.Is(err, ErrConflict):
			op.outcome, op.wrote = callRefused, [linearKeys]bool{}
		case err != nil:
			return fmt.Errorf("%v: %w", &op, err)
		}
		g.add(id, &op, began, returned)
	}
}

// disturb flushes and compacts now and then, under the calls of the others. A
// goroutine that did nothing else would take the time of all when they wait.
func (c *linearClient) disturb() error {
	switch {
	case c.one(150):
		return c.db.Compact(context.Background(), nil, nil)
	case c.one(30):
		return c.db.Flush(context.Background())
	}
	return nil
}

// live runs clients until end, which closes the store, is called after so many
// ticks.
func (r *linearRound) live(t *testing.T, clients int, ticks int64, rng *rand.Rand, end func()) {
	t.Helper()
	ending := make(chan struct{})
	r.ends, r.ending = r.clock.Load()+ticks, sync.OnceFunc(func() { close(ending) })
	var wg sync.WaitGroup
	start := func(f func() error) {
		wg.Go(func() {
			if err := f(); err != nil && !errors.Is(err, ErrClosed) {
				t.Error(err)
				r.ending()
			}
		})
	}
	for id := range clients {
		seed := rng.Uint64()
		start(func() error { return r.client(id, seed) })
	}
	<-ending
	end()
	wg.Wait()
}

// TestLinearizable wants every call, whatever its kind, to happen at one
// instant between its begin and its return, as if the store did one thing at a
// time, while memtables are flushed and tables compacted under it; a close in
// the middle must lose nothing that returned and keep nothing that returned
// ErrClosed, and a crash must lose nothing that a write, a refusal or a
// transaction told (invariants 1, 7, 9, 10).
func TestLinearizable(t *testing.T) {
	rounds := 200
	if invariants.Enabled {
		rounds = 50 // the search is slow then
	}
	for _, c := range []struct {
		name       string
		durability Durability
		crash      bool
	}{
		{"closed", SyncAlways, false},
		{"closed, not synced", SyncNever, false},
		{"crashed", SyncAlways, true},
	} {
		t.Run(c.name, func(t *testing.T) { testLinearizable(t, c.durability, c.crash, rounds) })
	}
}

func testLinearizable(t *testing.T, d Durability, crash bool, rounds int) {
	rng := newRand(newSeed(t))
	const clients, ticks = 8, 600
	mem := vfs.NewMem()
	o := tiny
	o.Durability, o.L0CompactTables = d, 2
	groups := []*linearGroup{{prefix: "one", keys: 1}, {prefix: "three", keys: linearKeys}}
	counts := map[string]int{}
	var clock atomic.Int64
	var flushes, compactions uint64
	// open opens the store, and ends the histories of the last round and begins
	// those of this one with what it finds.
	open := func(round int) *DB {
		db := mustOpen(t, mem, "/store", o)
		for _, g := range groups {
			last := &linearCall{what: "reopened"}
			must(t, g.scan(last, db, false))
			g.history.add(clients, last, clock.Add(1), clock.Add(1))
			if err := g.history.check(); err != nil {
				t.Fatalf("round %d, keys %s: %v", round, g.prefix, err)
			}
			for _, op := range g.history {
				c := op.Input.(*linearCall)
				counts[fmt.Sprint(c.what, "/", c.outcome)]++
			}
			first := &linearCall{what: "opened"}
			for i := range g.keys {
				first.write(i, last.found[i])
			}
			g.history = nil
			g.history.add(clients, first, clock.Add(1), clock.Add(1))
		}
		return db
	}
	for round := range rounds {
		r := &linearRound{db: open(round), number: round, groups: groups, clock: &clock}
		var from, to int64
		left := mem
		r.live(t, clients, ticks+rng.Int64N(ticks), rng, func() {
			m := r.db.Metrics()
			flushes, compactions = flushes+m.Flushes, compactions+m.Compactions
			if crash {
				from = clock.Load()
				left = mem.CrashClone(rng.Uint64())
				to = clock.Load()
			}
			must(t, r.db.Close())
		})
		mem = left
		for _, g := range groups {
			if crash {
				g.history = g.history.crashed(from, to)
			}
		}
	}
	must(t, open(rounds).Close())
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%7d × %s", counts[kind], kind)
	}
	t.Logf("%d flushes, %d compactions", flushes, compactions)
	wanted := strings.Fields("PutIfAbsent/refused CompareAndSwap/refused Apply/refused Update/done")
	if crash {
		wanted = append(wanted, "DeleteRange/cut", "PutIfAbsent/cut", "CompareAndSwap/cut", "Apply/cut", "Update/cut")
	} else {
		wanted = append(wanted, "DeleteRange/done", "Get/done", "Has/done", "Snapshot/done", "Prefix/done")
	}
	for _, kind := range wanted {
		if counts[kind] == 0 {
			t.Errorf("no call was %s: there is nothing to be learnt from this", kind)
		}
	}
	if flushes < uint64(rounds)/4 || compactions < uint64(rounds)/4 {
		t.Errorf("too quiet: %d flushes, %d compactions", flushes, compactions)
	}
}
