package sievedb

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"sievedb/vfs"
)

// recorder keeps what a listener was told. After every call it does what do
// says.
type recorder struct {
	do func()

	mu sync.Mutex
	// Guarded by mu:
	calls  int  // under way
	nested bool // two calls ran side by side
	events []recorded
}

type recorded struct {
	name string
	info any
}

func record[T any](r *recorder, name string) func(T) {
	return func(info T) {
		r.mu.Lock()
		r.calls++
		r.nested = r.nested || r.calls > 1
		r.events = append(r.events, recorded{name, info})
		r.mu.Unlock()
		if r.do != nil {
			r.do()
		}
		r.mu.Lock()
		r.calls--
		r.mu.Unlock()
	}
}

func (r *recorder) listener() *EventListener {
	return &EventListener{
		FlushBegin: record[FlushInfo](r, "FlushBegin"), FlushEnd: record[FlushInfo](r, "FlushEnd"),
		CompactionBegin: record[CompactionInfo](r, "CompactionBegin"), CompactionEnd: record[CompactionInfo](r, "CompactionEnd"),
		StallBegin: record[StallInfo](r, "StallBegin"), StallEnd: record[StallInfo](r, "StallEnd"),
		TableCreated: record[TableInfo](r, "TableCreated"), TableDeleted: record[TableInfo](r, "TableDeleted"),
		BadFilter: record[BadFilterInfo](r, "BadFilter"), Corruption: record[*CorruptionError](r, "Corruption"),
		BackgroundError: record[error](r, "BackgroundError"), FatalError: record[error](r, "FatalError"),
	}
}

// take returns what was told since the last call.
func (r *recorder) take() []recorded {
	r.mu.Lock()
	defer r.mu.Unlock()
	events := r.events
	r.events = nil
	return events
}

// of returns the infos of the events of one name.
func of[T any](events []recorded, name string) (infos []T) {
	for _, e := range events {
		if e.name == name {
			infos = append(infos, e.info.(T))
		}
	}
	return infos
}

func names(events []recorded) string {
	var s []string
	for _, e := range events {
		s = append(s, e.name)
	}
	return strings.Join(s, " ")
}

func expectEvents(t *testing.T, r *recorder, want string) []recorded {
	t.Helper()
	events := r.take()
	if got := names(events); got != want {
		t.Fatalf("events: %s\nwant:   %s", got, want)
	}
	return events
}

// logLines decodes what a JSON logger wrote.
func logLines(t *testing.T, b *bytes.Buffer) (lines []map[string]any) {
	t.Helper()
	for line := range bytes.Lines(b.Bytes()) {
		var m map[string]any
		must(t, json.Unmarshal(line, &m))
		lines = append(lines, m)
	}
	return lines
}

// TestEvents follows a script: each event comes once, in order, with the right
// figures, and the log gets one line for each.
func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, r, log := vfs.NewMem(), &recorder{}, &bytes.Buffer{}
		o := tiny
		o.Events = r.listener()
		o.Logger = slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		db := mustOpen(t, mem, "/store", o)
		size := func(num uint64) uint64 {
			info, err := mem.Stat(fmt.Sprintf("/store/%06d.sst", num))
			must(t, err)
			return uint64(info.SizeBytes)
		}
		total := 0
		step := func(want string, do func()) []recorded {
			t.Helper()
			do()
			synctest.Wait()
			events := expectEvents(t, r, want)
			total += len(events)
			return events
		}

		var flushed []TableInfo
		flush := func(entries uint64, puts ...string) {
			events := step("FlushBegin TableCreated FlushEnd", func() {
				for _, k := range puts {
					must(t, db.Put([]byte(k), []byte("v")))
				}
				flushAll(t, db)
			})
			begin, made, end := events[0].info.(FlushInfo), events[1].info.(TableInfo), events[2].info.(FlushInfo)
			if want := (FlushInfo{MemtableBytes: begin.MemtableBytes}); begin != want || begin.MemtableBytes <= 0 {
				t.Errorf("flush begins: %+v", begin)
			}
			if want := (TableInfo{Table: made.Table, Bytes: size(made.Table), Entries: entries}); made != want {
				t.Errorf("table created: %+v, want %+v", made, want)
			}
			if want := (FlushInfo{MemtableBytes: begin.MemtableBytes, Table: made.Table, Bytes: made.Bytes, Entries: entries}); end != want {
				t.Errorf("flush ends: %+v, want %+v", end, want)
			}
			flushed = append(flushed, made)
		}
		step("", func() {})
		flush(2, "a", "b", "b")
		flush(2, "b", "c")

		events := step("CompactionBegin TableCreated CompactionEnd TableDeleted TableDeleted", func() { compactAll(t, db) })
		begin, made, end := events[0].info.(CompactionInfo), events[1].info.(TableInfo), events[2].info.(CompactionInfo)
		want := CompactionInfo{
			Reason: "manual", OutputLevel: made.Level, InputTables: []uint64{flushed[1].Table, flushed[0].Table},
			InputBytes: flushed[0].Bytes + flushed[1].Bytes,
		}
		if fmt.Sprint(begin) != fmt.Sprint(want) {
			t.Errorf("compaction begins: %+v, want %+v", begin, want)
		}
		want.OutputTables, want.OutputBytes, want.OutputBlocks, want.Dropped = []uint64{made.Table}, size(made.Table), 1, 1
		if fmt.Sprint(end) != fmt.Sprint(want) || made.Level == 0 || made.Entries != 3 || made.Bytes != want.OutputBytes {
			t.Errorf("compaction ends: %+v, want %+v; created: %+v", end, want, made)
		}
		deleted := []uint64{events[3].info.(TableInfo).Table, events[4].info.(TableInfo).Table}
		slices.Sort(deleted)
		if !slices.Equal(deleted, []uint64{flushed[0].Table, flushed[1].Table}) {
			t.Errorf("tables %v were deleted", deleted)
		}

		step("", func() { must(t, db.Close()) })
		lines := logLines(t, log)
		if len(lines) != total {
			t.Errorf("%d lines for %d events:\n%s", len(lines), total, log)
		}
		last := lines[len(lines)-3]
		if last["msg"] != "compaction ends" || last["level"] != "INFO" || last["reason"] != "manual" ||
			last["input_tables"] != 2.0 || last["output_bytes"] != float64(want.OutputBytes) || last["dropped"] != 1.0 {
			t.Errorf("the line of the compaction: %v", last)
		}
	})
}

// TestEventsOfOpen has Open replay more than a memtable, sweep a table that a
// crash left behind, and find that tables lack the filters it is asked for.
func TestEventsOfOpen(t *testing.T) {
	mem, r, log := vfs.NewMem(), &recorder{}, &bytes.Buffer{}
	o := tiny
	o.DisableFilters = true
	db := mustOpen(t, mem, "/store", o)
	want := fill(t, db, nil, 100, 0)
	flushAll(t, db)
	must(t, db.Close())

	o = tiny
	o.MemtableBytes = 1 << 20
	o.DisableFilters = true
	db = mustOpen(t, mem, "/store", o)
	want = fill(t, db, want, 400, 1)
	mem = mem.CrashClone(vfs.CrashKept)
	must(t, db.Close())
	writeFile(t, mem, "/store/999999.sst", []byte("half a table"))

	o = tiny
	o.L0CompactTables = 20 // nothing happens but what Open does
	o.Events = r.listener()
	o.Logger = slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	db = mustOpen(t, mem, "/store", o)
	events := r.take()
	created, deleted := of[TableInfo](events, "TableCreated"), of[TableInfo](events, "TableDeleted")
	ends := of[FlushInfo](events, "FlushEnd")
	if len(ends) < 2 || len(ends) != len(of[FlushInfo](events, "FlushBegin")) || len(created) != len(ends) {
		t.Errorf("events of a recovery: %s", names(events))
	}
	if len(deleted) != 1 || deleted[0] != (TableInfo{Table: 999999}) {
		t.Errorf("deleted: %+v", deleted)
	}
	lines := logLines(t, log)
	if len(lines) != 1 || lines[0]["msg"] != "tables without filters" || lines[0]["level"] != "WARN" ||
		lines[0]["tables"] != 1.0 || lines[0]["of"] != float64(1+len(created)) {
		t.Errorf("the log: %v", lines)
	}
	must(t, checkAll(db, want))
	must(t, db.Close())
}

// TestEventsOfStalls blocks compactions until level 0 is so long that writes are
// slowed down and then wait, and later a flush until the memtables are full.
func TestEventsOfStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, r := vfs.NewFaulty(vfs.NewMem()), &recorder{}
		compact, flush := make(chan struct{}), make(chan struct{})
		var oldest atomic.Uint64 // file number of the table that cannot be read for now
		var noFlush atomic.Bool
		o := tiny
		o.Durability, o.CacheBytes = SyncNever, -1
		o.L0CompactTables, o.L0SlowTables, o.L0StopTables, o.Workers = 2, 3, 5, 1
		o.Events = r.listener()
		db := mustOpen(t, f, "/store", o)
		f.SetHook(func(c vfs.Call) {
			name := filepath.Base(c.Name)
			if c.Op == vfs.OpRead && name == fmt.Sprintf("%06d.sst", oldest.Load()) {
				<-compact
			}
			if c.Op == vfs.OpCreate && filepath.Ext(name) == ".sst" && noFlush.Load() {
				<-flush
			}
		})
		stalls := func(name string) []StallInfo {
			synctest.Wait()
			return of[StallInfo](r.take(), name)
		}
		must(t, db.Put([]byte("k"), nil))
		flushAll(t, db)
		synctest.Wait()
		oldest.Store(of[TableInfo](r.take(), "TableCreated")[0].Table)
		var wg sync.WaitGroup
		wg.Go(func() {
			for range 5 {
				must(t, db.Put([]byte("k"), nil))
				flushAll(t, db)
			}
		})
		slow, full := StallInfo{Reason: StallSlowed, L0Tables: 3}, StallInfo{Reason: StallLevel0, L0Tables: 5}
		begins := stalls("StallBegin")
		if len(begins) == 2 {
			slow.Memtables = begins[0].Memtables // the one that has just become a table
		}
		if !slices.Equal(begins, []StallInfo{slow, full}) {
			t.Errorf("without compactions: %+v", begins)
		}
		time.Sleep(3 * time.Second)
		close(compact)
		wg.Wait()
		compactAll(t, db)
		slow.Duration, full.Duration = 3*time.Second, 3*time.Second
		// A flush that comes last may slow writes down once more, for no time.
		if ends := stalls("StallEnd"); len(ends) < 2 || !slices.Contains(ends, slow) || !slices.Contains(ends, full) {
			t.Errorf("with compactions: %+v", ends)
		}

		noFlush.Store(true)
		wg.Go(func() {
			for i := range 500 {
				must(t, db.Put(fmt.Appendf(nil, "%d", i), make([]byte, 100)))
			}
		})
		want := StallInfo{Reason: StallMemtables, Memtables: 2}
		if begins := stalls("StallBegin"); !slices.Equal(begins, []StallInfo{want}) {
			t.Errorf("without flushes: %+v", begins)
		}
		time.Sleep(2 * time.Second)
		close(flush)
		wg.Wait()
		want.Duration = 2 * time.Second
		ends := stalls("StallEnd")
		if len(ends) == 0 || ends[0] != want {
			t.Errorf("with flushes: %+v", ends)
		}
		// Those that follow are short, and may be of any kind.
		waits := slices.DeleteFunc(ends, func(i StallInfo) bool { return i.Reason == StallSlowed })
		if m := db.Metrics(); m.Stalls != 1+uint64(len(waits)) || m.StallTime != 5*time.Second {
			t.Errorf("%d stalls of %v, %d ends", m.Stalls, m.StallTime, 1+len(waits))
		}
		must(t, db.Close())
	})
}

// TestEventsOfFailures fails a flush, a compaction, and the log.
func TestEventsOfFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, r := vfs.NewFaulty(vfs.NewMem()), &recorder{}
		o := tiny
		o.Events = r.listener()
		db := mustOpen(t, f, "/store", o)
		fail := func(want string, rule vfs.Rule, do func() error) []recorded {
			t.Helper()
			f.SetRules(rule)
			if err := do(); !errors.Is(err, rule.Err) {
				t.Errorf("%v, want %v", err, rule.Err)
			}
			synctest.Wait()
			return expectEvents(t, r, want)
		}
		check := func(e recorded, err error) {
			t.Helper()
			if e.name != "BackgroundError" && e.name != "FatalError" || !errors.Is(e.info.(error), err) {
				t.Errorf("%s: %v, want %v", e.name, e.info, err)
			}
		}
		flush := func() error { return db.Flush(context.Background()) }
		compact := func() error { return db.Compact(context.Background(), nil, nil) }

		must(t, db.Put([]byte("a"), nil))
		events := fail("FlushBegin TableDeleted FlushEnd BackgroundError",
			vfs.Rule{Ops: vfs.OpSync, Path: "*.sst", Err: syscall.ENOSPC}, flush)
		if err := events[2].info.(FlushInfo).Err; !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("the flush that failed: %v", err)
		}
		check(events[3], syscall.ENOSPC)
		time.Sleep(time.Minute) // it is tried again
		synctest.Wait()
		expectEvents(t, r, "FlushBegin TableCreated FlushEnd")
		must(t, db.Put([]byte("a"), nil))
		must(t, flush())
		synctest.Wait()
		expectEvents(t, r, "FlushBegin TableCreated FlushEnd")

		events = fail("CompactionBegin TableDeleted CompactionEnd BackgroundError",
			vfs.Rule{Ops: vfs.OpSync, Path: "*.sst", Err: syscall.EIO}, compact)
		if err := events[2].info.(CompactionInfo).Err; !errors.Is(err, syscall.EIO) {
			t.Errorf("the compaction that failed: %v", err)
		}
		check(events[3], syscall.EIO)
		must(t, compact())
		synctest.Wait()
		expectEvents(t, r, "CompactionBegin TableCreated CompactionEnd TableDeleted TableDeleted")
		if err := db.Metrics().BackgroundError; err != nil {
			t.Errorf("after it was tried again: %v", err)
		}

		put := func() error { return db.Put([]byte("b"), nil) }
		events = fail("FatalError", vfs.Rule{Ops: vfs.OpSync, Path: "*.wal", Err: syscall.EROFS}, put)
		check(events[0], syscall.EROFS)
		if err := put(); !errors.Is(err, ErrReadOnly) {
			t.Error(err)
		}
		if err := db.Close(); !errors.Is(err, syscall.EROFS) {
			t.Errorf("close: %v", err)
		}
		expectEvents(t, r, "")
	})
}

// TestEventsOfManifestFailure fails the log of edits under the locks of a write
// and of a flush: the store becomes read-only, which is told once.
func TestEventsOfManifestFailure(t *testing.T) {
	for _, nth := range []int{1, 2} { // the edit of the rotation, that of the flush
		synctest.Test(t, func(t *testing.T) {
			f, r := vfs.NewFaulty(vfs.NewMem()), &recorder{}
			o := tiny
			o.Events = r.listener()
			db := mustOpen(t, f, "/store", o)
			must(t, db.Put([]byte("a"), nil))
			f.SetRules(vfs.Rule{Ops: vfs.OpSync, Path: "MANIFEST-*", Nth: nth, Err: syscall.EIO})
			if err := db.Flush(context.Background()); !errors.Is(err, syscall.EIO) {
				t.Error(err)
			}
			synctest.Wait()
			events := r.take()
			if fatal := of[error](events, "FatalError"); len(fatal) != 1 || !errors.Is(fatal[0], syscall.EIO) ||
				len(of[error](events, "BackgroundError")) != 0 {
				t.Errorf("edit %d: %s", nth, names(events))
			}
			if err := db.Close(); !errors.Is(err, syscall.EIO) {
				t.Errorf("close: %v", err)
			}
			expectEvents(t, r, "")
		})
	}
}

// TestEventsOfDamage damages a data block and a filter: each is told once, with
// what it is, however many lookups meet it.
func TestEventsOfDamage(t *testing.T) {
	mem := vfs.NewMem()
	db := mustOpen(t, mem, "/store", tiny)
	want := fill(t, db, nil, 60, 0)
	compactAll(t, db)
	var num uint64
	var filterOffset int
	for s := range db.state.Load().All() {
		num, filterOffset = uint64(s.Meta.FileNum), int(s.Opened().Properties().DataBytes)
	}
	must(t, db.Close())
	name := fmt.Sprintf("/store/%06d.sst", num)
	content := readFile(t, mem, name)

	for _, c := range []struct {
		off  int
		want string
	}{{10, "Corruption"}, {filterOffset + 10, "BadFilter"}} {
		fs, r, log := mem.CrashClone(vfs.CrashKept), &recorder{}, &bytes.Buffer{}
		damaged := bytes.Clone(content)
		damaged[c.off] ^= 0x41
		writeFile(t, fs, name, damaged)
		o := tiny
		o.CacheBytes, o.Events, o.Logger = -1, r.listener(), slog.New(slog.NewJSONHandler(log, nil))
		db := mustOpen(t, fs, "/store", o)
		for range 3 {
			for _, e := range want {
				_, err := db.Get(e.key)
				var ce *CorruptionError
				if err != nil && !errors.As(err, &ce) || err != nil && c.want != "Corruption" {
					t.Fatal(err)
				}
			}
		}
		db.Metrics()
		must(t, db.Close())
		switch e := expectEvents(t, r, c.want)[0].info.(type) {
		case *CorruptionError:
			if e.File != filepath.Base(name) {
				t.Error(e)
			}
		case BadFilterInfo:
			if e.Table != num || e.Level == 0 || !errors.Is(e.Err, ErrCorrupt) {
				t.Errorf("%+v", e)
			}
		}
		if lines := logLines(t, log); len(lines) != 1 {
			t.Errorf("%s: the log: %v", c.want, lines)
		}
	}
}

// TestEventsInCompaction damages a table that a compaction reads.
func TestEventsInCompaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, r := vfs.NewMem(), &recorder{}
		o := tiny
		o.CacheBytes, o.Events = -1, r.listener()
		db := mustOpen(t, mem, "/store", o)
		for range 2 {
			fill(t, db, nil, 20, 0)
			flushAll(t, db)
		}
		synctest.Wait()
		num := of[TableInfo](r.take(), "TableCreated")[0].Table
		name := fmt.Sprintf("/store/%06d.sst", num)
		damaged := readFile(t, mem, name)
		damaged[10] ^= 0x41
		f, err := mem.OpenReadWrite(name) // in place: the store has it open
		must(t, err)
		must(t, f.Truncate(0))
		_, err = f.Write(damaged)
		must(t, err)
		must(t, f.Close())
		if err := db.Compact(context.Background(), nil, nil); !errors.Is(err, ErrCorrupt) {
			t.Errorf("compact: %v", err)
		}
		synctest.Wait()
		expectEvents(t, r, "CompactionBegin CompactionEnd Corruption BackgroundError")
		if err := db.Close(); err != nil && !errors.Is(err, ErrCorrupt) {
			t.Error(err)
		}
	})
}

// TestListenerReads has every call of a listener read from the store and ask
// for its figures, while tiny memtables are flushed and compacted, and writers
// are stalled. Calls never run side by side.
func TestListenerReads(t *testing.T) {
	var db *DB
	opened := make(chan struct{})
	r := &recorder{do: func() {
		select {
		case <-opened:
		default:
			return // Open has not returned it
		}
		if _, err := db.Get([]byte("key-00001")); err != nil && !errors.Is(err, ErrClosed) && !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
		for range db.Prefix([]byte("key-0000")).All() {
		}
		_ = db.Metrics()
		_ = db.Snapshot().Close()
	}}
	o := tiny
	o.Durability, o.Events, o.Latencies = SyncNever, r.listener(), true
	o.L0CompactTables, o.L0SlowTables, o.L0StopTables = 2, 2, 3
	db = mustOpen(t, vfs.NewMem(), "/store", o)
	close(opened)
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for i := range 400 {
				if err := db.Put(fmt.Appendf(nil, "key-%05d", i*7%400), bytes.Repeat([]byte{byte(w)}, 100)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	compactAll(t, db)
	must(t, db.Close())
	events := r.take()
	if r.nested {
		t.Error("two calls ran side by side")
	}
	for _, pair := range []string{"Flush", "Compaction"} {
		if begins, ends := strings.Count(names(events), pair+"Begin"), strings.Count(names(events), pair+"End"); begins == 0 || begins != ends {
			t.Errorf("%s: %d begins, %d ends", pair, begins, ends)
		}
	}
	live := map[string]bool{}
	for _, i := range of[TableInfo](events, "TableCreated") {
		live[fmt.Sprintf("%06d.sst", i.Table)] = true
	}
	for _, i := range of[TableInfo](events, "TableDeleted") {
		delete(live, fmt.Sprintf("%06d.sst", i.Table))
	}
	files, err := db.fs.List("/store")
	must(t, err)
	files = slices.DeleteFunc(files, func(name string) bool { return filepath.Ext(name) != ".sst" })
	slices.Sort(files)
	if want := slices.Sorted(maps.Keys(live)); !slices.Equal(files, want) {
		t.Errorf("tables %v are there, by the events %v", files, want)
	}
}

// TestListenerOfNothing runs with a listener without functions, and with a
// logger alone.
func TestListenerOfNothing(t *testing.T) {
	for _, o := range []Options{{Events: &EventListener{}}, {Logger: slog.New(slog.DiscardHandler)}} {
		f := vfs.NewFaulty(vfs.NewMem())
		o.MemtableBytes, o.TableBytes, o.BlockBytes = tiny.MemtableBytes, tiny.TableBytes, tiny.BlockBytes
		db := mustOpen(t, f, "/store", o)
		want := fill(t, db, nil, 400, 0)
		compactAll(t, db)
		must(t, checkAll(db, want))
		f.SetRules(vfs.Rule{Ops: vfs.OpSync, Path: "*.wal", Sticky: true, Err: syscall.EIO})
		if err := db.Put([]byte("k"), nil); !errors.Is(err, syscall.EIO) {
			t.Error(err)
		}
		if err := db.Close(); !errors.Is(err, syscall.EIO) {
			t.Error(err)
		}
	}
}
