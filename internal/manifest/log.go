package manifest

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"sievedb/internal/keys"
	"sievedb/internal/record"
	"sievedb/vfs"
)

// Log is a manifest that is being written, and the state that its edits amount
// to. It is not safe for concurrent use: the caller serialises all calls.
type Log struct {
	fsys vfs.FS
	dir  string
	name string // base name of the manifest
	file vfs.File

	state         *State
	sizeBytes     int64 // of the file, all of it durable
	snapshotBytes int64 // of that, the header and the first record

	buf []byte // of Append, reused
	err error  // the first failure of Append, which every later one returns
}

// Create makes the manifest num, which starts with a snapshot of st, and then
// has CURRENT name it, in the order of invariant 15: manifest synced, directory
// synced, CURRENT's replacement synced, renamed, directory synced. st is only
// read; its ManifestNum does not count and a nil Version is an empty tree. The
// log's state is that of st with the new number.
//
// It fails without touching a file if st is not valid, NextFileNum is not
// above num, or the file exists already. After an ErrNoRoom the manifest before
// this one is in force, and goes on. After any other error it is not known
// which manifest a crash will show, so that the caller must neither delete the
// manifest before this one nor append to it. Otherwise the caller deletes it.
func Create(fsys vfs.FS, dir string, num keys.FileNum, st *State) (*Log, error) {
	name := ManifestName(num)
	path := filepath.Join(dir, name)
	snapshot := st.snapshot()
	empty := &State{Version: &Version{}, ManifestNum: num, StoreID: st.StoreID}
	state, err := empty.Apply(snapshot)
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", name, err)
	}
	if num >= state.NextFileNum {
		return nil, fmt.Errorf("create %s: the next file number is only %d", name, state.NextFileNum)
	}
	// Truncating a file that a crash may bring back in force has lost stores.
	if _, err := fsys.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			err = fs.ErrExist
		}
		return nil, fmt.Errorf("create %s: %w", name, err)
	}

	content := appendHeader(nil, num, st.StoreID)
	frame := record.Frame{Number: uint32(num), Offset: headerLen}
	content = record.Append(content, frame, nil, appendEdit(nil, snapshot))
	file, err := prepare(fsys, dir, num, content)
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", name, err)
	}
	if err := installCurrent(fsys, dir); err != nil {
		file.Close()
		return nil, fmt.Errorf("create %s: %w", name, err)
	}
	size := int64(len(content))
	return &Log{fsys: fsys, dir: dir, name: name, file: file,
		state: state, sizeBytes: size, snapshotBytes: size}, nil
}

// ErrNoRoom is the error of a Create for which there was no room, before it
// touched CURRENT.
var ErrNoRoom = errors.New("no room for a manifest")

// prepare writes the content of the manifest num, and the replacement of CURRENT
// that names it. If there is no room it removes the manifest again; what stays
// of either is removed when the store is opened again.
func prepare(fsys vfs.FS, dir string, num keys.FileNum, content []byte) (vfs.File, error) {
	path := filepath.Join(dir, ManifestName(num))
	file, err := vfs.Create(fsys, path)
	if err == nil {
		err = writeAndSync(file, content)
	}
	if err == nil {
		if err = fsys.SyncDir(dir); err != nil {
			err = fmt.Errorf("sync directory: %w", err)
		}
	}
	if err == nil {
		err = prepareCurrent(fsys, dir, current{num: num, durableBytes: int64(len(content))})
	}
	if err == nil {
		return file, nil
	}
	if file != nil {
		file.Close()
	}
	if errors.Is(err, vfs.ErrExhausted) {
		_ = fsys.Remove(path)
		err = fmt.Errorf("%w: %w", ErrNoRoom, err)
	}
	return nil, err
}

// Append makes e durable and then part of the state. An edit that does not fit
// the state is refused: nothing was written and the log goes on. The same holds
// for one for which there was no room, a vfs.ErrExhausted. Any other error is
// final, every later call returns it, and it is not known whether a
// crash will show the edit (invariant 14): a sync is never retried. Such a log
// can only be replaced by a new one, which starts from State, that is without
// the edit.
func (l *Log) Append(e *Edit) error {
	if l.err != nil {
		return l.err
	}
	next, err := l.state.Apply(e)
	if err != nil {
		return fmt.Errorf("%s: edit does not fit: %w", l.name, err)
	}
	frame := record.Frame{Number: uint32(l.state.ManifestNum), Offset: l.sizeBytes, Synced: l.sizeBytes}
	l.buf = record.Append(l.buf[:0], frame, nil, appendEdit(nil, e))
	err = vfs.Append(l.file, l.buf, l.sizeBytes)
	if errors.Is(err, vfs.ErrExhausted) {
		return fmt.Errorf("%s: append edit: %w", l.name, err)
	}
	if err == nil {
		err = l.file.Sync()
	}
	if err != nil {
		l.err = fmt.Errorf("%s: append edit: %w", l.name, err)
		return l.err
	}
	l.sizeBytes += int64(len(l.buf))
	l.state = next
	return nil
}

// State returns the state after the last edit that was appended.
func (l *Log) State() *State { return l.state }

// SizeBytes returns the size of the manifest, in bytes.
func (l *Log) SizeBytes() int64 { return l.sizeBytes }

// ShouldRewrite reports whether the manifest is so much longer than its
// snapshot, four times and 1 MiB, that a new one should take its place. Reading
// a manifest then costs a small multiple of reading its state, and writing
// snapshots a third of writing edits at most.
func (l *Log) ShouldRewrite() bool { return l.sizeBytes > 4*l.snapshotBytes+1<<20 }

// Vouch has CURRENT say that the manifest is durable to its present end. An
// edit that was synced cannot be told from one that a crash tore unless
// something later vouches for it, which another edit does; so call this when no
// other will follow, in a clean close. After it, a manifest that lost its end
// is corrupt, where otherwise it would be taken for a shorter one. Requires:
// no manifest took the place of this one.
func (l *Log) Vouch() error {
	if l.err != nil {
		return l.err
	}
	c := current{num: l.state.ManifestNum, durableBytes: l.sizeBytes}
	err := prepareCurrent(l.fsys, l.dir, c)
	if err == nil {
		err = installCurrent(l.fsys, l.dir)
	}
	if err != nil {
		return fmt.Errorf("vouch for %s: %w", l.name, err)
	}
	return nil
}

// Close closes the file. What was appended is durable already.
func (l *Log) Close() error {
	if err := l.file.Close(); err != nil {
		return fmt.Errorf("close %s: %w", l.name, err)
	}
	return nil
}
