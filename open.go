package sievedb

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"sievedb/internal/batch"
	"sievedb/internal/commit"
	"sievedb/internal/corrupt"
	"sievedb/internal/filecache"
	"sievedb/internal/keys"
	"sievedb/internal/manifest"
	"sievedb/internal/table"
	"sievedb/internal/tree"
	"sievedb/memtable"
	"sievedb/vfs"
	"sievedb/wal"
)

// Open opens the store in dir, and makes one if there is none. It fails at
// once with ErrLocked, naming the holder, if the store is in use; with
// ErrFormat, and nothing written, if dir holds another format or version; and
// with a *CorruptionError if what was durable is missing or damaged. A nil o
// is the defaults.
func Open(dir string, o *Options) (*DB, error) {
	db, err := newDB(dir, o)
	if err != nil {
		return nil, err
	}
	db.files = filecache.New(db.fs, db.dir, tableName, db.o.MaxOpenFiles, db.obsoleteTable)
	err = db.open()
	db.events.Deliver()
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", db.dir, err)
	}
	db.startWorkers()
	return db, nil
}

// newDB returns a store of which nothing was opened yet.
func newDB(dir string, o *Options) (*DB, error) {
	opts, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if dir, err = opts.FS.Abs(dir); err != nil {
		return nil, err
	}
	db := &DB{
		o: opts, fs: opts.FS, dir: dir,
		building: make(map[keys.FileNum]bool),
		writing:  make(map[*outputs]bool),
		closingc: make(chan struct{}),
		retry:    make(chan struct{}),
		wakeLog:  make(chan struct{}, 1),
		trash:    trash{wake: make(chan struct{}, 1)},
	}
	db.cond.L = &db.mu
	db.events.configure(opts)
	if opts.Latencies {
		db.latencies = &latencies{opened: time.Now()}
	}
	return db, nil
}

func (db *DB) open() (err error) {
	// Before anything is written, the lock file included: is it ours?
	if _, err := db.load(); err != nil {
		return err
	}
	if err := db.fs.MkdirAll(db.dir); err != nil {
		return err
	}
	db.lock, err = db.fs.Lock(db.path(lockName))
	var locked *vfs.LockedError
	if errors.As(err, &locked) {
		return fmt.Errorf("%w: %w", ErrLocked, locked)
	}
	if err != nil {
		return err
	}
	r := recovery{db: db}
	err = r.run()
	if err == nil {
		return nil
	}
	if r.log != nil {
		_, _, logErr := r.log.Close()
		err = errors.Join(err, logErr)
	}
	if db.manifest != nil {
		err = errors.Join(err, db.manifest.Close())
	}
	return errors.Join(err, db.files.CloseAll(), db.lock.Close())
}

// load returns what the manifest says, or a state without tables if there is
// no store and one may be made. It only reads.
func (db *DB) load() (*manifest.State, error) {
	st, err := manifest.Load(db.fs, db.dir)
	var version *manifest.VersionError
	switch {
	case err == nil && db.o.MustBeNew:
		return nil, fmt.Errorf("%w: MustBeNew is set and there is a store", ErrInvalidArgument)
	case err == nil:
		return st, nil
	case errors.As(err, &version):
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	case errors.Is(err, fs.ErrNotExist):
		return db.noStore()
	case db.foreign():
		return nil, fmt.Errorf("%w: this is the directory of another store, such as LevelDB, RocksDB or Pebble", ErrFormat)
	}
	return nil, err
}

// foreign reports whether CURRENT is that of the LevelDB family.
func (db *DB) foreign() bool {
	f, err := db.fs.Open(db.path(manifest.CurrentName))
	if err != nil {
		return false
	}
	defer f.Close()
	begin := make([]byte, len("MANIFEST-"))
	_, err = f.ReadAt(begin, 0)
	return err == nil && string(begin) == "MANIFEST-"
}

// noStore returns the state of a store that is to be made in a directory
// without CURRENT, if there is nothing else that must not be touched.
func (db *DB) noStore() (*manifest.State, error) {
	names, err := db.fs.List(db.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	foreign, others := "", false
	for _, name := range names {
		switch kind, _ := parseName(name); kind {
		case kindTable, kindSegment:
			if _, err := db.fs.Stat(db.path(manifest.CurrentName)); err == nil {
				return db.load() // somebody was just making the store
			}
			// CURRENT is written before any of these: without it they are the
			// rest of a store that lost it, and nothing may be deleted.
			return nil, corrupt.In(corrupt.At(0, "manifest pointer", "a file, since there is "+name, "none"), manifest.CurrentName, 0)
		case kindManifest:
			ours, err := manifest.Ours(db.fs, db.dir, name)
			if err != nil {
				return nil, err
			}
			if !ours {
				foreign = name
			}
		case kindOther:
			others = others || name != lockName
		}
	}
	// A manifest alone, whatever it holds, may be one of ours that a crash left
	// full of garbage before the store was made.
	if foreign != "" && others {
		return nil, fmt.Errorf("%w: %s belongs to another program", ErrFormat, foreign)
	}
	if db.o.MustExist || db.follow != nil {
		return nil, fmt.Errorf("%w: there is no store, and none may be made", fs.ErrNotExist)
	}
	st := &manifest.State{Version: &manifest.Version{}, NextFileNum: 1}
	_, err = rand.Read(st.StoreID[:])
	return st, err
}

// recovery brings a store from what is on disk to where reads and writes may
// begin. Nothing of the old state is touched before the new one is durable,
// except that a torn tail is cut off.
type recovery struct {
	db    *DB
	state *manifest.State

	lastSeq keys.SeqNum
	buffer  buffer // being filled from the log
	version *manifest.Version
	opened  map[keys.FileNum]*table.Table // every table of version
	log     *wal.Log
}

func (r *recovery) run() (err error) {
	db := r.db
	if r.state, err = db.load(); err != nil { // again, now under the lock
		return err
	}
	db.storeID = r.state.StoreID
	r.version, r.lastSeq = r.state.Version, r.state.LastSeq
	r.opened = map[keys.FileNum]*table.Table{}
	if err := r.chooseNumbers(); err != nil {
		return err
	}
	if err := r.openTables(); err != nil {
		return err
	}
	segments, err := r.replay()
	if err != nil {
		return err
	}
	return r.begin(segments)
}

// chooseNumbers makes the next file number larger than that of any file, those
// of a crash included, which no manifest knows (invariant 16).
func (r *recovery) chooseNumbers() error {
	names, err := r.db.fs.List(r.db.dir)
	if err != nil {
		return err
	}
	next := max(r.state.NextFileNum, 1)
	for _, name := range names {
		if kind, num := parseName(name); kind != kindOther {
			next = max(next, num+1)
		}
	}
	r.db.nextFile.Store(uint64(next))
	return nil
}

// openTables makes the tables of the version, whose files have to be there, but
// are not read yet.
func (r *recovery) openTables() error {
	for level, metas := range r.version.Levels {
		for _, m := range metas {
			if err := r.db.checkTable(m); err != nil {
				return err
			}
			t, err := table.New(r.db.files, m, level, r.db.o.Cache.blocks)
			if err != nil {
				return err
			}
			r.opened[m.FileNum] = t
		}
	}
	return nil
}

// checkTable looks whether the file of a table that the manifest names is there,
// without opening it.
func (db *DB) checkTable(m *manifest.TableMeta) error {
	name := tableName(m.FileNum)
	info, err := db.fs.Stat(db.path(name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return corrupt.In(corrupt.At(0, "table", "the file", "none"), name, 0)
	case err != nil:
		return err
	case uint64(info.SizeBytes) != m.SizeBytes:
		return corrupt.In(corrupt.At(info.SizeBytes, "size of the table", fmt.Sprint(m.SizeBytes), fmt.Sprint(info.SizeBytes)), name, 0)
	}
	return nil
}

// openTable opens a table that the manifest names, with a handle of files.
func (db *DB) openTable(files *filecache.Cache, m *manifest.TableMeta, level int) (*table.Table, error) {
	if err := db.checkTable(m); err != nil {
		return nil, err
	}
	return table.Open(files, m, level, db.o.Cache.blocks)
}

// replay reads the log into memtables, turns those that fill up into tables,
// and returns the segments that the last one still needs, all sealed. The log ends
// in the first segment of which a crash took a part: what is in later ones was
// committed after what is gone.
func (r *recovery) replay() (live []manifest.Segment, err error) {
	db := r.db
	for _, s := range r.state.Segments {
		from := wal.Segment{Num: s.FileNum, Sealed: s.Sealed, SizeBytes: int64(s.SizeBytes)}
		good, err := wal.Replay(db.fs, db.dir, db.storeID, from, func(payload []byte) error { return r.apply(payload, s.FileNum) })
		if err != nil {
			return nil, err
		}
		if !s.Sealed {
			// Cut and synced, before another segment is created (invariant 11).
			if err := wal.Seal(db.fs, db.dir, s.FileNum, good); err != nil {
				return nil, err
			}
		}
		live = append(live, manifest.Segment{FileNum: s.FileNum, Sealed: true, SizeBytes: uint64(good)})
		if good < int64(s.SizeBytes) {
			break
		}
	}
	for len(live) > 0 && (r.buffer.Table == nil || live[0].FileNum < r.buffer.segment) {
		live = live[1:]
	}
	return live, nil
}

// apply replays one batch, which segment holds.
func (r *recovery) apply(payload []byte, segment keys.FileNum) error {
	ops, err := batch.Decode(payload)
	if err != nil {
		return err
	}
	if last := ops.Seq() + keys.SeqNum(ops.Count()) - 1; ops.Count() > 0 && last <= r.state.LastSeq {
		return nil // in a table already: the segment lived on for what follows
	}
	if ops.Seq() <= r.lastSeq {
		return corrupt.At(0, "sequence number", fmt.Sprintf("more than %d", r.lastSeq), fmt.Sprint(ops.Seq()))
	}
	if b := r.buffer; b.Table != nil && !b.Empty() && b.SizeBytes()+int64(len(payload)) > r.db.o.MemtableBytes {
		if err := r.flush(); err != nil {
			return err
		}
	}
	if r.buffer.Table == nil {
		r.buffer = buffer{memtable.New(memtable.Options{SizeHintBytes: r.db.o.MemtableBytes}), segment}
	}
	if err := commit.Apply(r.buffer.Table, *ops); err != nil {
		return err
	}
	r.lastSeq = max(r.lastSeq, ops.Seq()+keys.SeqNum(ops.Count())-1)
	return nil
}

// flush turns the memtable into a table of level 0, which becomes part of the
// tree with the new manifest.
func (r *recovery) flush() error {
	r.buffer.Freeze()
	out := r.db.newOutputs(0)
	out.version = r.version
	defer out.built()
	end := r.db.beginFlush(r.buffer, out)
	err := r.db.writeMemtable(r.buffer, []keys.SeqNum{r.buffer.LargestSeq()}, out)
	end(err)
	if err != nil {
		return err
	}
	v, err := r.version.Apply(&manifest.Edit{Added: out.added})
	if err != nil {
		return err
	}
	r.version = v
	for num, t := range out.opened {
		r.opened[num] = t
	}
	r.buffer = buffer{}
	return nil
}

// begin makes a new manifest with what was recovered and a new segment, and
// puts it in force. Only then are files removed that are part of no more.
func (r *recovery) begin(segments []manifest.Segment) (err error) {
	db := r.db
	segment, num := db.newFileNum(), db.newFileNum()
	if r.buffer.Table == nil {
		r.buffer = buffer{memtable.New(memtable.Options{SizeHintBytes: db.o.MemtableBytes}), segment}
	}
	fresh := r.state.ManifestNum == 0
	createLog := func() error {
		r.log, err = wal.Create(wal.Options{
			FS: db.fs, Dir: db.dir, Store: db.storeID, Lazy: db.lazyLog(), Seal: db.sealSegment, Wake: db.wakeWriter,
		}, segment)
		return err
	}
	st := &manifest.State{
		Version: r.version, NextFileNum: keys.FileNum(db.nextFile.Load()), LastSeq: r.lastSeqInTables(),
		Segments: segments, StoreID: db.storeID,
	}
	if !fresh {
		// Whoever wrote CURRENT may have died before its name was durable, and a
		// segment that outlives it would be taken for the rest of a lost store.
		if err := db.fs.SyncDir(db.dir); err != nil {
			return err
		}
		// The segment exists before the manifest that asks for it.
		if err := createLog(); err != nil {
			return err
		}
		st.Segments = append(st.Segments, manifest.Segment{FileNum: segment})
	}
	if fresh { // whoever made the directory may have died before this
		if err := db.fs.SyncDir(filepath.Dir(db.dir)); err != nil {
			return err
		}
	}
	if db.manifest, err = manifest.Create(db.fs, db.dir, num, st); err != nil {
		return err
	}
	if fresh {
		// In a new store CURRENT comes first: a segment without it would be
		// taken for the rest of a store that lost it.
		if err := createLog(); err != nil {
			return err
		}
		if err := db.manifest.Append(&manifest.Edit{AddedSegments: []keys.FileNum{segment}, NextFileNum: st.NextFileNum}); err != nil {
			return err
		}
		// A manifest that lost this edit, the only one that names the segment,
		// would be that of a store in which nothing was ever written.
		if err := db.manifest.Vouch(); err != nil {
			return err
		}
	}
	db.log, db.mutable, db.flushed = r.log, r.buffer, st.LastSeq
	db.commit = commit.New(db.log, r.lastSeq, writes{db})
	db.swap(tree.NewState(db.mutable.Table, nil, r.version, func(level int, m *manifest.TableMeta) *table.Table {
		return r.opened[m.FileNum]
	}))
	db.pace()
	db.missingFilters(db.state.Load())
	return r.sweep()
}

// lastSeqInTables is the manifest's last sequence number: what is in the
// memtable is not covered by it, and is replayed again after the next crash.
func (r *recovery) lastSeqInTables() keys.SeqNum {
	last := r.state.LastSeq
	for _, t := range r.opened {
		last = max(last, t.Meta.LargestSeq)
	}
	return last
}

// sweep removes what a crash left behind, under the lock and after recovery is
// durable (invariant 17). What cannot be removed waits for the next open.
func (r *recovery) sweep() error {
	db := r.db
	names, err := db.fs.List(db.dir)
	if err != nil {
		return err
	}
	st := db.manifest.State()
	live := map[string]bool{manifest.ManifestName(st.ManifestNum): true}
	for _, s := range st.Segments {
		live[wal.SegmentName(s.FileNum)] = true
	}
	for num := range r.opened {
		live[tableName(num)] = true
	}
	for _, name := range names {
		if kind, _ := parseName(name); kind != kindOther && !live[name] {
			db.remove(name)
		}
	}
	return nil
}
