package sievedb

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"sievedb/internal/keys"
)

// load is writers that commit side by side, and what they told of it. Writer w
// has the keys that begin with its digit; its batch n is made from the seed, w
// and n alone, so that who knows how many batches of each writer a store holds
// knows all that it must hold. What the writers share are claims, for which they
// compete, and a total, which transactions count up.
//
// The order of commits is not known, but bounded: a batch that had returned
// before another began comes before it.
type load struct {
	seed       uint64
	durability Durability // the store's own
	writers    []past

	mu     sync.Mutex
	told   sync.Cond
	events []event
	claims map[string]string // those that are known to be durable
	seen   map[string]string // those of the last check
}

// past is what a writer's batches up to some number amount to.
type past struct {
	base   uint64
	models []model  // after batch base and those that follow
	totals []uint64 // how often it has counted the total up by then
}

// event is what a writer tells of its batch n, in a line of text if it is in
// another process.
type event struct {
	what   byte
	writer int
	n      uint64
}

// What an event tells. Its place among the others is before the call for what
// is begun, and after its return for everything else.
const (
	batchBegins  = 'b'
	batchVisible = 'v' // it returned
	batchDurable = 'd' // it returned, and was to be durable then
	claimWon     = 'w' // the claim of the batch is its own
	claimLost    = 'l' // somebody else's, which is durable
	syncBegins   = 's'
	syncReturned = 'r'
)

func (e event) String() string { return fmt.Sprintf("%c %d %d.\n", e.what, e.writer, e.n) }

// parseEvent reads a line without its end. One that a kill cut lacks the dot.
func parseEvent(line string) (e event, ok bool) {
	n, err := fmt.Sscanf(line, "%c %d %d.", &e.what, &e.writer, &e.n)
	return e, err == nil && n == 3 && line+"\n" == e.String()
}

func newLoad(seed uint64, writers int, d Durability) *load {
	l := &load{seed: seed, durability: d, writers: make([]past, writers)}
	l.told.L = &l.mu
	for w := range l.writers {
		l.writers[w] = past{models: []model{nil}, totals: []uint64{0}}
	}
	return l
}

func (l *load) tell(e event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
	l.told.Broadcast()
}

// bounds returns the number of events, as what a crash now follows and what it
// may follow.
func (l *load) bounds() (least, most int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.events), len(l.events)
}

var (
	totalKey    = []byte("total")
	claimPrefix = []byte("claim/")
)

func loadCounter(w int) []byte { return fmt.Appendf(nil, "%d", w) }

func claimOf(w int, n uint64) string { return fmt.Sprintf("%d %d", w, n) }

// loadBatch is a batch: its writes, of which the last is the writer's counter.
type loadBatch struct {
	changes    []change
	durability Durability
	claim      []byte // nil: none
	counts     bool   // it is a transaction that counts the total up
}

func (l *load) batch(w int, n uint64) loadBatch {
	rng := newRand(l.seed ^ n*0x9e3779b97f4a7c15 ^ uint64(w)<<56)
	key := func(i int) []byte { return fmt.Appendf(nil, "%d/%02d", w, i) }
	b := loadBatch{durability: []Durability{StoreDefault, StoreDefault, SyncAlways, SyncNever}[rng.IntN(4)]}
	put := func(k, v []byte) { b.changes = append(b.changes, change{keys.KindPut, k, v}) }
	number := binary.AppendUvarint(nil, n)
	kind := rng.IntN(10)
	if kind > 0 { // otherwise it is a single write
		for range 1 + rng.IntN(8) {
			k := rng.IntN(60)
			switch rng.IntN(10) {
			case 0:
				b.changes = append(b.changes, change{kind: keys.KindDelete, key: key(k)})
			case 1:
				b.changes = append(b.changes, change{keys.KindRangeDelete, key(k), key(min(k+rng.IntN(10), 99))})
			default:
				put(key(k), bytes.Repeat(number, rng.IntN(150)))
			}
		}
	}
	put(loadCounter(w), number)
	switch kind {
	case 1, 2:
		b.claim = fmt.Appendf(nil, "%s%08d", claimPrefix, n/16)
	case 3, 4:
		b.counts = true
	}
	return b
}

// run commits the batches of writer w from n on until stop says so, and tells
// what happens.
func (l *load) run(db *DB, w int, n uint64, tell func(event), stop func() bool) error {
	rng := newRand(l.seed + uint64(w))
	for ; !stop(); n++ {
		b := l.batch(w, n)
		tell(event{batchBegins, w, n})
		durable, err := l.commit(db, w, n, b, tell)
		if err != nil {
			return fmt.Errorf("batch %d of writer %d: %w", n, w, err)
		}
		returned := event{batchVisible, w, n}
		if durable {
			returned.what = batchDurable
		}
		tell(returned)
		switch rng.IntN(60) {
		case 0:
			tell(event{syncBegins, w, n})
			if err = db.Sync(); err == nil {
				tell(event{syncReturned, w, n})
			}
		case 1:
			err = db.Flush(context.Background())
		case 2:
			err = db.Compact(context.Background(), nil, nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *load) commit(db *DB, w int, n uint64, b loadBatch, tell func(event)) (durable bool, err error) {
	byDefault := l.durability == SyncAlways
	durable = b.durability == SyncAlways || b.durability == StoreDefault && byDefault
	switch {
	case len(b.changes) == 1:
		return byDefault, db.Put(b.changes[0].key, b.changes[0].value)
	case b.counts:
		for err = ErrConflict; errors.Is(err, ErrConflict); {
			err = db.Update(b.count)
		}
		return byDefault, err
	}
	batch := db.NewBatch()
	for _, c := range b.changes {
		c.batch(batch)
	}
	if b.claim != nil {
		claiming := db.NewBatch()
		claiming.IfAbsent(b.claim)
		claiming.Put(b.claim, []byte(claimOf(w, n)))
		for _, c := range b.changes {
			c.batch(claiming)
		}
		err := db.Apply(claiming, b.durability)
		if err == nil {
			tell(event{claimWon, w, n})
		}
		if !errors.Is(err, ErrConflict) {
			return durable, err
		}
		if durable {
			tell(event{claimLost, w, n})
		}
	}
	return durable, db.Apply(batch, b.durability)
}

// count makes the batch in a transaction that counts the total up.
func (b *loadBatch) count(tx *Txn) error {
	v, err := tx.Get(totalKey)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	total, _ := binary.Uvarint(v)
	err = tx.Put(totalKey, binary.AppendUvarint(nil, total+1))
	for _, c := range b.changes {
		err = errors.Join(err, c.txn(tx))
	}
	return err
}

// past returns what the first n batches of writer w amount to. Called with mu
// held.
func (l *load) past(w int, n uint64) (m model, total uint64) {
	p := &l.writers[w]
	for next := p.base + uint64(len(p.models)); next <= n; next++ {
		last := len(p.models) - 1
		m, total := p.models[last], p.totals[last]
		b := l.batch(w, next)
		for _, c := range b.changes {
			m.apply(c)
		}
		if b.counts {
			total++
		}
		p.models, p.totals = append(p.models, m), append(p.totals, total)
	}
	return p.models[n-p.base], p.totals[n-p.base]
}

// forget takes what the last check found, so many batches of each writer, for
// the beginning: none of them is lost any more.
func (l *load) forget(found []uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for w, n := range found {
		p := &l.writers[w]
		l.past(w, n)
		p.models, p.totals = slices.Clone(p.models[n-p.base:]), slices.Clone(p.totals[n-p.base:])
		p.base = n
	}
	l.claims = l.seen
	l.events = slices.DeleteFunc(l.events, func(e event) bool {
		return e.what != syncBegins && e.what != syncReturned && e.n <= found[e.writer]
	})
}

// restart forgets what the last check did not find, too: a crash took it, and
// the writers begin again behind what was found.
func (l *load) restart(found []uint64) {
	l.forget(found)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = nil
	for w := range l.writers {
		p := &l.writers[w]
		p.models, p.totals = p.models[:1], p.totals[:1]
	}
}

// counters returns how many batches of each writer db holds.
func (l *load) counters(db *DB) ([]uint64, error) {
	found := make([]uint64, len(l.writers))
	for w := range found {
		v, err := db.Get(loadCounter(w))
		if err != nil && !errors.Is(err, ErrNotFound) {
			return nil, err
		}
		found[w], _ = binary.Uvarint(v)
	}
	return found, nil
}

// awaitBegun waits until the writers have told that they began these batches,
// which somebody has seen already.
func (l *load) awaitBegun(found []uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for w, n := range found {
		begun := func(e event) bool { return e.what == batchBegins && e.writer == w && e.n == n }
		for n > l.writers[w].base && !slices.ContainsFunc(l.events, begun) {
			l.told.Wait()
		}
	}
}

// check wants db to hold what a crash may leave that came after the first least
// events and before those behind most: everything that is told to be durable,
// and no batch without those that were committed before it. It returns how many
// batches of each writer that is.
func (l *load) check(db *DB, least, most int) (found []uint64, err error) {
	if found, err = l.counters(db); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.checkOrder(found, least, most); err != nil {
		return nil, err
	}
	want, total := model(nil), uint64(0)
	for w, n := range found {
		m, t := l.past(w, n)
		want, total = append(want, m...), total+t
	}
	l.seen = map[string]string{}
	for k, v := range db.Prefix(claimPrefix).All() {
		l.seen[string(k)] = string(v)
		want = append(want, entry{bytes.Clone(k), bytes.Clone(v)})
	}
	if err := l.checkClaims(found, least, most); err != nil {
		return nil, err
	}
	if total > 0 {
		want = append(want, entry{totalKey, binary.AppendUvarint(nil, total)})
	}
	if err := checkAll(db, want); err != nil {
		return nil, fmt.Errorf("after %v batches: %w", found, err)
	}
	return found, nil
}

// checkOrder checks the numbers of batches. Called with mu held.
func (l *load) checkOrder(found []uint64, least, most int) error {
	began := make([]map[uint64]int, len(found)) // where in the events
	returned := make([]map[uint64]int, len(found))
	syncs := make([]int, len(found))
	durableTo := -1 // what returned before this event is durable
	must := make([]uint64, len(found))
	for w := range found {
		began[w], returned[w], must[w] = map[uint64]int{}, map[uint64]int{}, l.writers[w].base
	}
	for i, e := range l.events[:most] {
		switch e.what {
		case batchBegins:
			began[e.writer][e.n] = i
		case batchVisible, batchDurable:
			returned[e.writer][e.n] = i
			if e.what == batchDurable && i < least {
				must[e.writer] = max(must[e.writer], e.n)
			}
		case syncBegins:
			syncs[e.writer] = i
		case syncReturned:
			if i < least {
				durableTo = max(durableTo, syncs[e.writer])
			}
		}
	}
	newest, newestAt := "", -1 // of the batches that are there, the one that began last
	for w, n := range found {
		for m, at := range returned[w] {
			if at < durableTo {
				must[w] = max(must[w], m)
			}
		}
		if n < must[w] {
			return fmt.Errorf("writer %d has %d batches, of which %d were durable", w, n, must[w])
		}
		at, ok := began[w][n]
		if n > l.writers[w].base && !ok {
			return fmt.Errorf("writer %d has %d batches, which is more than it began", w, n)
		}
		if ok && at > newestAt {
			newest, newestAt = claimOf(w, n), at
		}
	}
	for w, n := range found {
		if at, ok := returned[w][n+1]; ok && at < newestAt {
			return fmt.Errorf("batch %d of writer %d is gone, and what began after it is there: writer and batch %s", n+1, w, newest)
		}
	}
	return nil
}

// checkClaims checks the claims that were just seen. Called with mu held.
func (l *load) checkClaims(found []uint64, least, most int) error {
	for k, v := range l.seen {
		var w int
		var n uint64
		if _, err := fmt.Sscanf(v, "%d %d", &w, &n); err != nil || string(l.batch(w, n).claim) != k || n > found[w] {
			return fmt.Errorf("%s belongs to %q, which has no such batch", k, v)
		}
	}
	won := maps.Clone(l.claims)
	if won == nil {
		won = map[string]string{}
	}
	for i, e := range l.events[:most] {
		if e.what != claimWon && e.what != claimLost {
			continue
		}
		claim := string(l.batch(e.writer, e.n).claim)
		if e.what == claimWon && e.n <= found[e.writer] {
			won[claim] = claimOf(e.writer, e.n)
		}
		if e.what == claimLost && i < least && l.seen[claim] == "" {
			return fmt.Errorf("%s was refused to writer %d because somebody had it, and nobody has", claim, e.writer)
		}
	}
	for k, v := range won {
		if l.seen[k] != v {
			return fmt.Errorf("%s was won by %q and belongs to %q", k, v, l.seen[k])
		}
	}
	return nil
}
