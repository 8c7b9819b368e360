package loader

import (
	"context"
	"errors"
	"io"
	"testing"

	"go.uber.org/goleak"

	"sievedb"
	"sievedb/cmd/kvbench/internal/meter"
	"sievedb/cmd/kvbench/internal/workload"
	"sievedb/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var silent = meter.New(io.Discard)

// open opens a store in memory for loading.
func open(t *testing.T, w *Watcher) *sievedb.DB {
	t.Helper()
	o := sievedb.Options{FS: vfs.NewMem(), MemtableBytes: 16 << 10, TableBytes: 16 << 10}
	db, err := sievedb.Open("/db", Options(o, w))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// Between two flushes no memtable fills up, at any size of entries: that would
// be a flush at a place of its own. Afterwards the tree is at rest.
func TestLoadFlushesItself(t *testing.T) {
	for _, x := range []struct{ n, valueBytes int }{{300, 0}, {3000, 100}, {400, 8000}, {5000, 1}, {20_000, 20}} {
		keys, w := workload.Numbered(x.n, 1), NewWatcher()
		db := open(t, w)
		if err := Load(t.Context(), db, w, keys, keys.Stored, workload.NewValues(x.valueBytes, 1), silent); err != nil {
			t.Fatal(err)
		}
		m := db.Metrics()
		// A flush is made at the first entry from 4/5 of a memtable on.
		perEntry := int64(16 + x.valueBytes + memtableOverhead)
		perFlush := (16<<10*4/5 + perEntry - 1) / perEntry
		if want := uint64((int64(x.n) + perFlush - 1) / perFlush); m.Flushes != want {
			t.Errorf("%+v: %d flushes, want %d", x, m.Flushes, want)
		}
		var found uint64
		for _, l := range m.Levels {
			found += l.Keys
		}
		if found != uint64(x.n) || !w.Idle() || m.CompactionDebtBytes > 0 || m.Levels[0].Tables >= L0Tables {
			t.Errorf("%+v: %d keys, %d bytes of debt, %d tables in level 0", x, found, m.CompactionDebtBytes, m.Levels[0].Tables)
		}
		settled, err := Settle(t.Context(), db, silent)
		if err != nil || ShapeOf(&settled) != ShapeOf(&m) {
			t.Errorf("%+v: %v: the tree did not rest", x, err)
		}
	}
}

func TestLoadStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := NewWatcher()
	db := open(t, w)
	keys := workload.Numbered(1000, 1)
	if err := Load(ctx, db, w, keys, keys.Stored, workload.NewValues(1, 1), silent); !errors.Is(err, context.Canceled) {
		t.Errorf("load: %v", err)
	}
	if _, err := Settle(ctx, db, silent); !errors.Is(err, context.Canceled) {
		t.Errorf("settle: %v", err)
	}
}

// Nothing is synced through NoSync, whoever asks.
func TestNoSync(t *testing.T) {
	fs := NoSync{FS: vfs.NewMem()}
	f, err := fs.Create("/file")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := errors.Join(f.Sync(), fs.SyncDir("/nowhere")); err != nil {
		t.Errorf("it looked: %v", err)
	}
	if _, err := fs.OpenReadWrite("/none"); err == nil {
		t.Error("opened a file that is not there")
	}
}
