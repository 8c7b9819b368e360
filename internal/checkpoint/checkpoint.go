// Package checkpoint writes the state that a store had at one moment into
// another directory, as a store of its own. Tables never change, so that a hard
// link of each is enough; logs grow, so that their prefixes are copied: a linked
// log would share its future with the live store (invariant 18).
//
//	err := checkpoint.Vacant(fs, dir)             // refuse early
//	err = checkpoint.Write(&source, dir, proceed) // durable when it returns nil
//
// Write has no state of its own and may run beside itself; one directory takes
// one checkpoint, which its lock file sees to. What a Source names must stay
// there and unchanged until Write returns.
package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"sievedb/internal/keys"
	"sievedb/internal/manifest"
	"sievedb/vfs"
	"sievedb/wal"
)

// Source is the state to be written, and where its files are.
type Source struct {
	FS  vfs.FS
	Dir string // of the store
	// State has every segment sealed, at the length of the prefix that is
	// copied, and a NextFileNum above the number of every file.
	State *manifest.State
	// Segments are the files of State.Segments, in their order: open, because
	// a live store removes the names at any time.
	Segments []vfs.File
	// TableName names the files of tables, LockName the lock file.
	TableName func(keys.FileNum) string
	LockName  string
}

// Vacant returns nil if dir does not exist or is empty, and otherwise an error
// that satisfies fs.ErrExist, or why that cannot be told. It only reads.
func Vacant(fsys vfs.FS, dir string) error {
	names, err := fsys.List(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case len(names) > 0:
		return fmt.Errorf("%s is not empty, it holds %s: %w", dir, names[0], fs.ErrExist)
	}
	return nil
}

// Write makes dir, which must be vacant and absolute, a store with src's state.
// The new store keeps the store's identity: it is the same one at an earlier
// moment, as a copy of all its files would be, and the copied segments name it.
//
// proceed is called before each step and each MiB copied; its error ends Write.
// After any error all that Write made is removed again, CURRENT first, so that
// what a crash leaves of it is no store, or one that opens with an error that
// names what is missing, or the whole checkpoint.
func Write(src *Source, dir string, proceed func() error) (err error) {
	if err := Vacant(src.FS, dir); err != nil {
		return err
	}
	w := &writer{Source: src, dir: dir, proceed: proceed}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.undo())
		}
	}()
	if err := w.begin(); err != nil {
		return err
	}
	for _, tables := range src.State.Version.Levels {
		for _, m := range tables {
			if err := w.table(m); err != nil {
				return err
			}
		}
	}
	for i, s := range src.State.Segments {
		if err := w.copy(wal.SegmentName(s.FileNum), src.Segments[i], s.SizeBytes); err != nil {
			return err
		}
	}
	return w.commit()
}

// writer is one Write.
type writer struct {
	*Source
	dir     string
	proceed func() error

	lock io.Closer // nil before it is taken and once it was released
	made []string  // files that may exist because of this, in order
	dirs []string  // directories that may, the deepest first
}

func (w *writer) path(name string) string { return filepath.Join(w.dir, name) }

// begin makes the directory, durably, and locks it against other checkpoints
// and against an Open before all is there.
func (w *writer) begin() error {
	if err := w.proceed(); err != nil {
		return err
	}
	for dir := w.dir; ; dir = filepath.Dir(dir) {
		_, err := w.FS.Stat(dir)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			return err
		}
		w.dirs = append(w.dirs, dir)
	}
	if err := w.FS.MkdirAll(w.dir); err != nil {
		return err
	}
	if len(w.dirs) == 0 { // whoever made it may not have synced its name
		if err := w.FS.SyncDir(filepath.Dir(w.dir)); err != nil {
			return err
		}
	}
	lock, err := w.FS.Lock(w.path(w.LockName))
	var locked *vfs.LockedError
	if errors.As(err, &locked) {
		return err // the file is somebody else's
	}
	w.made = append(w.made, w.path(w.LockName))
	if err != nil {
		return err
	}
	w.lock = lock
	names, err := w.FS.List(w.dir)
	if err == nil && len(names) > 1 { // another was faster and has finished
		err = fmt.Errorf("%s is not empty any more: %w", w.dir, fs.ErrExist)
	}
	return err
}

// table links one table, or copies it where that is not possible: to another
// file system, or on one that knows no hard links.
func (w *writer) table(m *manifest.TableMeta) error {
	if err := w.proceed(); err != nil {
		return err
	}
	name := w.TableName(m.FileNum)
	from, to := filepath.Join(w.Dir, name), w.path(name)
	w.made = append(w.made, to)
	linkErr := w.FS.Link(from, to)
	if linkErr == nil {
		return nil
	}
	f, err := w.FS.Open(from)
	if err == nil {
		err = errors.Join(w.copy(name, f, m.SizeBytes), f.Close())
	}
	if err != nil {
		return fmt.Errorf("link failed: %w; copy failed: %w", linkErr, err)
	}
	return nil
}

// copy copies the first sizeBytes bytes of a file, durably but for its name.
func (w *writer) copy(name string, from io.ReaderAt, sizeBytes uint64) error {
	to := w.path(name)
	// Never into a file that is there: a link that was made although it was
	// reported as failed shares its content with the live store.
	if _, err := w.FS.Stat(to); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			err = fs.ErrExist
		}
		return fmt.Errorf("%s: %w", to, err)
	}
	w.made = append(w.made, to)
	f, err := w.FS.Create(to)
	if err != nil {
		return err
	}
	err = w.fill(f, from, int64(sizeBytes))
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("copying %s: %w", name, err)
	}
	return nil
}

func (w *writer) fill(f vfs.File, from io.ReaderAt, sizeBytes int64) error {
	const step = 1 << 20
	buf := make([]byte, min(sizeBytes, step))
	for at := int64(0); at < sizeBytes; at += int64(len(buf)) {
		if err := w.proceed(); err != nil {
			return err
		}
		buf = buf[:min(sizeBytes-at, step)]
		if n, err := from.ReadAt(buf, at); n < len(buf) {
			if errors.Is(err, io.EOF) {
				err = fmt.Errorf("%w: %d bytes of %d", io.ErrUnexpectedEOF, at+int64(n), sizeBytes)
			}
			return err
		}
		if _, err := f.Write(buf); err != nil {
			return err
		}
	}
	return nil
}

// commit makes the names durable and then a manifest that knows them, CURRENT
// last.
func (w *writer) commit() error {
	if err := w.proceed(); err != nil {
		return err
	}
	// Before the manifest exists: a manifest alone is taken for the beginning
	// of a new store, not for a checkpoint that a crash cut short.
	if err := w.FS.SyncDir(w.dir); err != nil {
		return err
	}
	st := *w.State
	num := st.NextFileNum
	st.NextFileNum = num + 1
	w.made = append(w.made, w.path(manifest.ManifestName(num)), w.path(manifest.CurrentTempName), w.path(manifest.CurrentName))
	log, err := manifest.Create(w.FS, w.dir, num, &st)
	if err != nil {
		return err
	}
	return errors.Join(log.Close(), w.unlock())
}

func (w *writer) unlock() error {
	lock := w.lock
	w.lock = nil
	if lock == nil {
		return nil
	}
	return lock.Close()
}

// undo removes what was made, in reverse order.
func (w *writer) undo() error {
	errs := []error{w.unlock()}
	remove := func(name string) {
		if err := w.FS.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	for i := len(w.made) - 1; i >= 0; i-- {
		remove(w.made[i])
	}
	for _, dir := range w.dirs {
		remove(dir)
	}
	return errors.Join(errs...)
}
