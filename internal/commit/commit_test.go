package commit

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"sievedb/filter"
	"sievedb/internal/batch"
	"sievedb/internal/keys"
	"sievedb/memtable"
	"sievedb/vfs"
	"sievedb/wal"
)

// owner has one memtable and says no when a test wants it to.
type owner struct {
	mem     *memtable.Table
	admit   error
	full    int // how often Room says ErrFull
	admits  int
	refused error
}

func (o *owner) Admit(int64) error {
	o.admits++
	return o.admit
}

func (o *owner) Room(int64) (*memtable.Table, error) {
	if o.full > 0 {
		o.full--
		return nil, ErrFull
	}
	return o.mem, o.refused
}

func newPipeline(t testing.TB, o Owner) (*Pipeline, *vfs.Mem) {
	t.Helper()
	fs := vfs.NewMem()
	if err := fs.MkdirAll("db"); err != nil {
		t.Fatal(err)
	}
	log, err := wal.Create(wal.Options{FS: fs, Dir: "db"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	return New(log, 0, o), fs
}

func one(key, value string) *batch.Batch {
	b := &batch.Batch{}
	b.Put([]byte(key), []byte(value))
	return b
}

// lockedOwner is an owner whose Admit runs beside itself.
type lockedOwner struct{ owner }

func (o *lockedOwner) Admit(int64) error { return nil }

// Concurrent batches get consecutive sequence numbers, become visible as a
// whole, and replay to exactly what the memtable holds (invariant 8).
func TestReplayEqualsMemtable(t *testing.T) {
	o := &lockedOwner{owner{mem: memtable.New(memtable.Options{})}}
	p, fs := newPipeline(t, o)
	const writers, batches, perBatch = 4, 60, 5
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range batches {
				var b batch.Batch
				for j := range perBatch {
					b.Put([]byte(fmt.Sprint("shared", j)), []byte(fmt.Sprint(w, i, j)))
				}
				if err := p.Commit(&b, i%3 == 0); err != nil {
					t.Error(err)
				}
				if v := p.Visible(); v%perBatch != 0 {
					t.Errorf("visible %d: half a batch", v)
				}
			}
		})
	}
	wg.Wait()
	if v := p.Visible(); v != writers*batches*perBatch {
		t.Errorf("visible %d, want %d", v, writers*batches*perBatch)
	}
	if err := p.log.Sync(p.log.End()); err != nil {
		t.Fatal(err)
	}
	replayed := memtable.New(memtable.Options{})
	next := keys.SeqNum(1)
	if _, err := wal.Replay(fs.CrashClone(vfs.CrashLost), "db", wal.StoreID{}, wal.Segment{Num: 1}, func(payload []byte) error {
		r, err := batch.Decode(payload)
		if err != nil {
			return err
		}
		if r.Seq() != next {
			return fmt.Errorf("batch at %d, want %d", r.Seq(), next)
		}
		next += keys.SeqNum(r.Count())
		return Apply(replayed, *r)
	}); err != nil {
		t.Fatal(err)
	}
	for snapshot := keys.SeqNum(0); snapshot < next; snapshot += 7 {
		for j := range perBatch {
			k := []byte(fmt.Sprint("shared", j))
			a, ta, oka := o.mem.Get(k, filter.Hash(k), snapshot)
			b, tb, okb := replayed.Get(k, filter.Hash(k), snapshot)
			if string(a) != string(b) || ta != tb || oka != okb {
				t.Fatalf("%s at %d: %q %v, replayed %q %v", k, snapshot, a, ta, b, tb)
			}
		}
	}
}

// A batch that is refused leaves nothing behind: no sequence number, no record.
func TestRefusal(t *testing.T) {
	boom := errors.New("boom")
	o := &owner{mem: memtable.New(memtable.Options{}), admit: boom}
	p, _ := newPipeline(t, o)
	if err := p.Commit(one("a", "1"), true); !errors.Is(err, boom) {
		t.Errorf("Admit's error: %v", err)
	}
	o.admit, o.refused = nil, boom
	if err := p.Commit(one("a", "1"), true); !errors.Is(err, boom) {
		t.Errorf("Room's error: %v", err)
	}
	if p.Visible() != 0 || p.log.Metrics().Appends != 0 || !o.mem.Empty() {
		t.Error("a refused batch left something behind")
	}
	o.refused, o.full, o.admits = nil, 3, 0
	if err := p.Commit(one("a", "1"), true); err != nil || o.admits != 4 {
		t.Errorf("a full memtable: %v after %d admissions", err, o.admits)
	}
	if !p.Lock.TryLock() {
		t.Fatal("the commit lock is held")
	}
	p.last = keys.MaxSeqNum
	p.Lock.Unlock()
	if err := p.Commit(one("a", "1"), true); err == nil {
		t.Error("sequence numbers ran over")
	}
}

// The log took the batch and the memtable did not: the caller must know.
func TestApplyFailure(t *testing.T) {
	frozen := memtable.New(memtable.Options{})
	frozen.Freeze()
	p, _ := newPipeline(t, &owner{mem: frozen})
	if err := p.Commit(one("a", "1"), true); !errors.Is(err, ErrApply) || p.Visible() != 0 {
		t.Errorf("%v, visible %d", err, p.Visible())
	}
	// Its sequence numbers are in the log: nobody else may get them.
	before := p.log.Metrics().Appends
	if err := p.Commit(one("b", "2"), true); !errors.Is(err, ErrApply) || p.log.Metrics().Appends != before {
		t.Errorf("after a batch that was logged in vain: %v", err)
	}
}

func BenchmarkCommit(b *testing.B) {
	o := &owner{mem: memtable.New(memtable.Options{})}
	p, _ := newPipeline(b, o)
	var x batch.Batch
	key := make([]byte, 16)
	value := make([]byte, 100)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%50_000 == 0 {
			o.mem = memtable.New(memtable.Options{})
		}
		key[0], key[1], key[2] = byte(i*7), byte(i>>8), byte(i>>16)
		x.Reset()
		x.Put(key, value)
		if err := p.Commit(&x, false); err != nil {
			b.Fatal(err)
		}
	}
}
