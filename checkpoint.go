package sievedb

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"sievedb/internal/checkpoint"
	"sievedb/internal/keys"
	"sievedb/internal/manifest"
	"sievedb/internal/tree"
	"sievedb/vfs"
	"sievedb/wal"
)

// Checkpoint makes dir a store that holds what this one holds now: every write
// that returned before the call, and of those beside it a part without a gap.
// Writes, flushes and compactions go on meanwhile. When it returns nil the
// checkpoint is durable, and opens with Open as a store that goes its own way,
// or with OpenReadOnly.
//
// Tables are hard-linked, and copied where the file system does not link; the
// log is copied, at most about three memtables. So a checkpoint takes little
// time and space at first, and as much as a copy of the store once compactions
// have replaced here what it still holds.
//
// If dir exists it must be empty: otherwise the error satisfies
// ErrInvalidArgument and fs.ErrExist, and nothing was written. If the context
// ends, the store is closed or something fails, what was made in dir is removed.
// A store that is read-only returns ErrReadOnly.
func (db *DB) Checkpoint(ctx context.Context, dir string) error {
	leave, err := db.enter()
	if err != nil {
		return err
	}
	defer leave()
	if err := db.writable(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if dir, err = db.fs.Abs(dir); err != nil {
		return err
	}
	if err := db.checkpoint(ctx, dir); err != nil {
		return fmt.Errorf("checkpoint in %s: %w", dir, err)
	}
	return nil
}

func (db *DB) checkpoint(ctx context.Context, dir string) (err error) {
	if err := checkpoint.Vacant(db.fs, dir); errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%w: %w", ErrInvalidArgument, err)
	} else if err != nil {
		return err
	}
	c, err := db.cut()
	if err != nil {
		return err
	}
	defer func() { db.note(c.release()) }()
	// Into the file, which is then copied, and onto the disk: a checkpoint must
	// not know of writes that a crash can still take from its store.
	if err := db.logFailure(db.log.Sync(c.end)); err != nil {
		return err
	}
	return checkpoint.Write(&checkpoint.Source{
		FS: db.fs, Dir: db.dir, State: &c.manifest, Segments: c.segments, TableName: tableName, LockName: lockName,
	}, dir, func() error { return errors.Join(ctx.Err(), db.usable()) })
}

// cut is the store at one moment, held so that no file of it is removed or
// closed before release.
type cut struct {
	state    *tree.State
	manifest manifest.State // its segments sealed where they ended at that moment
	segments []vfs.File     // the files of manifest.Segments
	end      wal.Position   // up to which they hold what the cut needs, once that is synced
}

// cut takes a cut of a store that can write. The commit lock makes the end of
// the log that of a batch; the manifest's lock, taken before the other is given
// up, keeps the manifest from knowing of a later segment, and everything that
// it names from becoming obsolete before it is held.
func (db *DB) cut() (c *cut, err error) {
	db.commit.Lock.Lock()
	c = &cut{end: db.log.End()}
	db.manifestMu.Lock()
	db.commit.Lock.Unlock()
	defer db.manifestMu.Unlock()

	c.manifest = *db.manifest.State()
	c.manifest.NextFileNum = keys.FileNum(db.nextFile.Load())
	c.manifest.Segments = slices.Clone(c.manifest.Segments)
	newest := &c.manifest.Segments[len(c.manifest.Segments)-1] // the log's own, always there
	newest.SizeBytes = uint64(c.end - db.logStart)
	for i := range c.manifest.Segments {
		c.manifest.Segments[i].Sealed = true // once the log is synced
	}
	c.state = db.acquire() // with the manifest's version: edits install it under the same lock
	for _, s := range c.manifest.Segments {
		f, err := db.fs.Open(filepath.Join(db.dir, wal.SegmentName(s.FileNum)))
		if err != nil {
			return nil, errors.Join(err, c.release())
		}
		c.segments = append(c.segments, f)
	}
	return c, nil
}

func (c *cut) release() error {
	errs := []error{c.state.Release()}
	for _, f := range c.segments {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
