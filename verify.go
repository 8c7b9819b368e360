package sievedb

import (
	"context"
	"errors"
	"io/fs"

	"sievedb/internal/filecache"
	"sievedb/internal/keys"
	"sievedb/internal/manifest"
	"sievedb/internal/table"
	"sievedb/internal/tree"
	"sievedb/internal/verify"
	"sievedb/vfs"
	"sievedb/wal"
)

// Verify reads every file of the store as it is now and checks all that can be
// told from outside: that the manifest can be loaded; of each table all
// checksums, the order of its entries, that every key passes the filter, and
// that bounds, counts and sequence numbers are what the manifest says; and that
// the log can be replayed to its durable end. The blocks are read past the
// cache. It returns nil or all that is wrong, joined; errors.As finds the first
// *CorruptionError.
//
// It may run beside everything else, on a read-only store too, and takes no
// longer than reading the files does. The context is looked at between tables;
// when it ends, or the store is closed, Verify returns that and what it found.
func (db *DB) Verify(ctx context.Context) error {
	leave, err := db.enter()
	if err != nil {
		return err
	}
	defer leave()
	v := verification{db: db, ctx: ctx}
	if v.proceed() {
		_, err := manifest.Load(db.fs, db.dir)
		v.found(err)
	}
	if db.follow != nil {
		v.followed()
	} else {
		v.owned()
	}
	return errors.Join(v.errs...)
}

// verification is one Verify and what it found.
type verification struct {
	db    *DB
	ctx   context.Context
	errs  []error
	ended bool
}

// proceed reports whether to go on.
func (v *verification) proceed() bool {
	if v.ended {
		return false
	}
	if err := errors.Join(v.ctx.Err(), v.db.usable()); err != nil {
		v.ended = true
		v.errs = append(v.errs, err)
	}
	return !v.ended
}

func (v *verification) found(err error) {
	if err != nil {
		v.errs = append(v.errs, err)
		v.db.events.damage(err)
		v.db.events.Deliver()
	}
}

// owned verifies a store that can write, or could before a failure.
func (v *verification) owned() {
	c, err := v.db.cut()
	if err != nil {
		v.found(err)
		return
	}
	defer func() { v.db.note(c.release()) }()
	segments := c.manifest.Segments
	if err := v.db.logFailure(v.db.log.Sync(c.end)); err != nil {
		v.found(err) // and what the newest segment should hold is not known
		segments = segments[:len(segments)-1]
	}
	for i, s := range segments {
		v.segment(s.FileNum, c.segments[i], int64(s.SizeBytes))
	}
	v.tables(c.state)
}

// followed verifies a read-only store: the log as far as it was read, but for
// segments that a writer has removed since, as their entries are in tables.
func (v *verification) followed() {
	v.db.follow.mu.Lock()
	positions := v.db.follow.dir.Positions()
	state := v.db.acquire()
	v.db.follow.mu.Unlock()
	defer func() { v.db.note(state.Release()) }()
	for _, p := range positions {
		f, err := v.db.fs.Open(v.db.path(wal.SegmentName(p.Segment)))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			v.found(err)
			continue
		}
		v.segment(p.Segment, f, p.SizeBytes)
		v.db.note(f.Close())
	}
	v.tables(state)
}

// segment verifies what a segment held when Verify began.
func (v *verification) segment(num keys.FileNum, f vfs.File, sizeBytes int64) {
	if v.proceed() {
		v.found(verify.Segment(f, num, v.db.storeID, sizeBytes))
	}
}

func (v *verification) tables(s *tree.State) {
	for t := range s.All() {
		if !v.proceed() {
			return
		}
		v.found(v.db.closedError(v.table(t)))
	}
}

// table verifies a table that a held state has. It opens the file once more, so
// that what is in memory of it is verified, too, where it is on the disk.
func (v *verification) table(t *table.Table) error {
	files := filecache.New(v.db.fs, v.db.dir, tableName, 1, func(keys.FileNum) {})
	fresh, err := v.db.openTable(files, t.Meta, t.Level)
	if v.db.follow != nil && err != nil {
		if _, err := v.db.fs.Stat(v.db.path(tableName(t.Meta.FileNum))); errors.Is(err, fs.ErrNotExist) {
			return verify.Table(t) // the writer removed it: the handle is all that is left
		}
	}
	if err != nil {
		return err
	}
	return errors.Join(verify.Table(fresh), fresh.Discard())
}
