package sievedb

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"sievedb/compaction"
	"sievedb/internal/keys"
	"sievedb/internal/notify"
	"sievedb/internal/table"
	"sievedb/internal/tree"
	"sievedb/sstable"
)

// EventListener is told what a store does. Each function may be nil. The
// struct is copied by Open.
//
// Calls come one at a time, in the order in which things happened, and soon
// after: from goroutines of the store, or from the call that caused the event
// or held it up, before that returns. No lock of the store is held, so a
// function may read from the store and ask for its Metrics. It must not block,
// for later events and the caller wait for it, and it must not write, nor call
// Flush, Compact or Close, which may wait for the goroutine that it runs in.
// Events of Open come before Open returns. Close delivers what is left; only
// the StallEnd of a write that Close interrupts may come later.
type EventListener struct {
	// FlushBegin and FlushEnd enclose each attempt to make a memtable a table,
	// also when Open recovers.
	FlushBegin, FlushEnd func(FlushInfo)
	// CompactionBegin and CompactionEnd enclose each attempt at a compaction or
	// a trivial move.
	CompactionBegin, CompactionEnd func(CompactionInfo)
	// StallBegin and StallEnd enclose what keeps writes from full speed. Each
	// write that has to wait has its own pair, as in Metrics.Stalls; StallSlowed
	// has one pair for as long as level 0 is long, without an end if the store
	// is closed meanwhile.
	StallBegin, StallEnd func(StallInfo)
	// TableCreated is called for each table that was written and is durable,
	// TableDeleted for each file of a table that is removed: obsolete, given
	// up half-written, or left behind by a crash.
	TableCreated, TableDeleted func(TableInfo)
	// BadFilter is called for each table whose filter was asked and could not
	// be had: its lookups read blocks that the filter would have saved. That is
	// noticed at the next flush, compaction, or call of Metrics, or by Close.
	BadFilter func(BadFilterInfo)
	// Corruption is called for the first damage that lookups, flushes and
	// compactions find in each file. Whoever meets it gets the error as well.
	Corruption func(*CorruptionError)
	// BackgroundError is called for each failure that no call returns and that
	// leaves the store writable: what failed is tried again.
	BackgroundError func(error)
	// FatalError is called once, when the store becomes read-only.
	FatalError func(error)
}

// FlushInfo describes a flush. FlushBegin knows MemtableBytes only.
type FlushInfo struct {
	MemtableBytes int64  // memory of the memtable
	Table         uint64 // file number of the new table
	Bytes         uint64 // size of its file
	Entries       uint64 // in it, of every kind
	Duration      time.Duration
	Err           error // why it failed; the rest says how far it came
}

// CompactionInfo describes a compaction. CompactionBegin does not know what
// comes after InputBytes. The slices belong to the listener.
type CompactionInfo struct {
	Reason                  string // "l0", "size", "tombstones", "dead entries", "manual" or "dropped"
	TrivialMove             bool   // the inputs change their level as they are
	StartLevel, OutputLevel int
	InputTables             []uint64 // file numbers, of both levels
	InputBytes              uint64   // sizes of their files

	OutputTables []uint64 // new ones: none in a trivial move, nor of "dropped", where range tombstones hide the inputs as a whole
	OutputBytes  uint64
	OutputBlocks uint64 // data blocks
	PassedBlocks uint64 // of those, taken over from the inputs as they are stored
	Dropped      uint64 // entries that nobody needs any more
	Duration     time.Duration
	Err          error // why it failed, ErrClosed if Close interrupted it
}

// StallReason says what keeps writes from full speed.
type StallReason uint8

const (
	// StallMemtables: writes wait, because all memtables are full and wait to
	// be flushed.
	StallMemtables StallReason = iota + 1
	// StallLevel0: writes wait, because level 0 has Options.L0StopTables tables.
	StallLevel0
	// StallSlowed: writes are slowed down, because level 0 has
	// Options.L0SlowTables tables or more.
	StallSlowed
)

// String names the reason.
func (r StallReason) String() string {
	if names := [...]string{"none", "memtables", "level 0", "slowed down"}; int(r) < len(names) {
		return names[r]
	}
	return fmt.Sprintf("StallReason(%d)", uint8(r))
}

// StallInfo describes a stall: its Duration is known at its end.
type StallInfo struct {
	Reason    StallReason
	Memtables int // that waited to be flushed when it began
	L0Tables  int // in level 0 when it began
	Duration  time.Duration
}

// TableInfo describes a table. TableDeleted knows Table and Err only.
type TableInfo struct {
	Table   uint64 // file number
	Level   int
	Bytes   uint64 // of the file
	Entries uint64 // of every kind
	Err     error  // why the file could not be removed: the next Open tries again
}

// BadFilterInfo describes a filter that could not be had.
type BadFilterInfo struct {
	Table uint64 // file number
	Level int
	Err   error // why: often a *CorruptionError
}

// events passes on what happens, in order. Its queue's lock is taken last.
type events struct {
	notify.Queue
	listener EventListener
}

// configure takes listener and logger from o. Called before anything happens.
func (e *events) configure(o *Options) {
	if o.Events != nil {
		e.listener = *o.Events
	}
	e.Configure(o.Logger, o.Events != nil)
}

// beginFlush tells of a flush of b to out; the function that it returns posts
// its end. Called with no lock held.
func (db *DB) beginFlush(b buffer, out *outputs) (end func(error)) {
	e, start := &db.events, time.Now()
	info := FlushInfo{MemtableBytes: b.SizeBytes()}
	notify.Post(&e.Queue, e.listener.FlushBegin, info, slog.LevelDebug, nil, "flush begins", slog.Int64("memtable_bytes", info.MemtableBytes))
	e.Deliver()
	return func(err error) {
		for _, t := range out.added {
			info.Table, info.Bytes, info.Entries = uint64(t.Meta.FileNum), t.Meta.SizeBytes, t.Meta.Entries
		}
		info.Duration, info.Err = time.Since(start), err
		notify.Post(&e.Queue, e.listener.FlushEnd, info, slog.LevelInfo, err, "flush ends", slog.Uint64("table", info.Table),
			slog.Uint64("bytes", info.Bytes), slog.Uint64("entries", info.Entries), slog.Duration("duration", info.Duration))
	}
}

// compactionInfo is what is known of a plan before it is carried out.
func compactionInfo(p *compaction.Plan) CompactionInfo {
	info := CompactionInfo{
		Reason: p.Reason.String(), TrivialMove: p.TrivialMove,
		StartLevel: p.StartLevel, OutputLevel: p.OutputLevel, InputBytes: p.InputBytes(),
	}
	for _, tables := range p.Inputs {
		for _, m := range tables {
			info.InputTables = append(info.InputTables, uint64(m.FileNum))
		}
	}
	return info
}

// wrote notes the tables that a compaction wrote, out of so many entries.
func (i *CompactionInfo) wrote(out *outputs, entries uint64) {
	i.OutputBlocks, i.PassedBlocks = out.blocks, out.passed
	for _, t := range out.added {
		i.OutputTables = append(i.OutputTables, uint64(t.Meta.FileNum))
		i.OutputBytes += t.Meta.SizeBytes
		entries -= t.Meta.Entries
	}
	i.Dropped = entries
}

func (i *CompactionInfo) attrs() []slog.Attr {
	return []slog.Attr{
		slog.String("reason", i.Reason), slog.Bool("trivial_move", i.TrivialMove),
		slog.Int("start_level", i.StartLevel), slog.Int("output_level", i.OutputLevel),
		slog.Int("input_tables", len(i.InputTables)), slog.Uint64("input_bytes", i.InputBytes),
	}
}

// compactionBegins tells of a compaction. Called with no lock held.
func (db *DB) compactionBegins(info CompactionInfo) {
	e := &db.events
	info.InputTables = slices.Clone(info.InputTables)
	notify.Post(&e.Queue, e.listener.CompactionBegin, info, slog.LevelDebug, nil, "compaction begins", info.attrs()...)
	e.Deliver()
}

// compactionEnds tells of the end of a compaction.
func (db *DB) compactionEnds(info CompactionInfo) {
	e := &db.events
	attrs := append(info.attrs(), slog.Int("output_tables", len(info.OutputTables)), slog.Uint64("output_bytes", info.OutputBytes), slog.Uint64("passed_blocks", info.PassedBlocks),
		slog.Uint64("dropped", info.Dropped), slog.Duration("duration", info.Duration))
	notify.Post(&e.Queue, e.listener.CompactionEnd, info, slog.LevelInfo, info.Err, "compaction ends", attrs...)
}

func (e *events) stallBegins(info StallInfo) {
	notify.Post(&e.Queue, e.listener.StallBegin, info, slog.LevelWarn, nil, "stall begins", slog.String("reason", info.Reason.String()),
		slog.Int("memtables", info.Memtables), slog.Int("l0_tables", info.L0Tables))
}

func (e *events) stallEnds(info StallInfo, start time.Time) {
	info.Duration = time.Since(start)
	notify.Post(&e.Queue, e.listener.StallEnd, info, slog.LevelInfo, nil, "stall ends", slog.String("reason", info.Reason.String()),
		slog.Duration("duration", info.Duration))
}

// stallInfo is the state of the store at the beginning of a stall. Called with
// mu held.
func (db *DB) stallInfo(reason StallReason) StallInfo {
	return StallInfo{Reason: reason, Memtables: len(db.immutables), L0Tables: len(db.state.Load().L0)}
}

// slowing tells when writes begin to be slowed down, and when no more. Called
// with mu held.
func (db *DB) slowing(slow bool) {
	s := &db.slowed
	switch {
	case slow && s.since.IsZero():
		s.info, s.since = db.stallInfo(StallSlowed), time.Now()
		db.events.stallBegins(s.info)
	case !slow && !s.since.IsZero():
		db.events.stallEnds(s.info, s.since)
		s.since = time.Time{}
	}
}

// slowed is the present slowdown of writes; since is zero if there is none.
type slowed struct {
	info  StallInfo
	since time.Time
}

func (e *events) tableCreated(t *table.Table) {
	info := TableInfo{Table: uint64(t.Meta.FileNum), Level: t.Level, Bytes: t.Meta.SizeBytes, Entries: t.Meta.Entries}
	notify.Post(&e.Queue, e.listener.TableCreated, info, slog.LevelDebug, nil, "table created", slog.Uint64("table", info.Table),
		slog.Int("level", info.Level), slog.Uint64("bytes", info.Bytes), slog.Uint64("entries", info.Entries))
}

func (e *events) tableDeleted(num keys.FileNum, err error) {
	notify.Post(&e.Queue, e.listener.TableDeleted, TableInfo{Table: uint64(num), Err: err}, slog.LevelDebug, err, "table deleted", slog.Uint64("table", uint64(num)))
}

// badFilters tells of the filters of s that could not be had.
func (e *events) badFilters(s *tree.State) {
	if e.On() {
		for t := range s.All() {
			e.checkFilter(t)
		}
	}
}

// checkFilter tells if the filter of t was asked and could not be had.
func (e *events) checkFilter(t *table.Table) {
	r := t.Opened()
	if !e.On() || r == nil || r.FilterState() != sstable.FilterBad || !e.First("filter of "+tableName(t.Meta.FileNum)) {
		return
	}
	_, err := r.LoadFilter() // which was tried, and says why it failed
	info := BadFilterInfo{Table: uint64(t.Meta.FileNum), Level: t.Level, Err: err}
	notify.Post(&e.Queue, e.listener.BadFilter, info, slog.LevelWarn, err, "filter unusable", slog.Uint64("table", info.Table), slog.Int("level", info.Level))
}

// missingFilters warns once of tables that were written without the filters
// that the options ask for: until compactions rewrite them, lookups read them.
func (db *DB) missingFilters(s *tree.State) {
	if db.o.Logger == nil || db.o.DisableFilters {
		return
	}
	without, all := 0, 0
	for t := range s.All() {
		all++
		if t.Meta.FilterBytes == 0 && t.Meta.Entries > 0 {
			without++
		}
	}
	if without > 0 {
		notify.Post(&db.events.Queue, nil, struct{}{}, slog.LevelWarn, nil, "tables without filters", slog.Int("tables", without), slog.Int("of", all))
	}
}

// damage tells of the damaged file that err names, if it does.
func (e *events) damage(err error) {
	if err == nil || !e.On() {
		return
	}
	var c *CorruptionError // on the heap, which nearly all calls are spared
	if !errors.As(err, &c) || !e.First(c.File) {
		return
	}
	notify.Post(&e.Queue, e.listener.Corruption, c, slog.LevelError, nil, "corruption", slog.String("file", c.File), slog.Int64("offset", c.Offset),
		slog.String("what", c.What), slog.String("want", c.Want), slog.String("got", c.Got))
}

// backgroundError tells of a failure that no call returns; one that made the
// store read-only was told as such.
func (db *DB) backgroundError(err error) {
	if err == nil || errors.Is(err, ErrClosed) {
		return
	}
	e := &db.events
	e.damage(err)
	if db.fatal.Load() == nil {
		notify.Post(&e.Queue, e.listener.BackgroundError, err, slog.LevelError, err, "background error")
	}
}

func (e *events) fatalError(err error) {
	notify.Post(&e.Queue, e.listener.FatalError, err, slog.LevelError, err, "the store is read-only")
}
