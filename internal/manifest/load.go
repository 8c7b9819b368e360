package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"sievedb/internal/corrupt"
	"sievedb/internal/keys"
	"sievedb/internal/record"
	"sievedb/vfs"
)

// maxLoadAttempts bounds how often Load starts again because a writer replaced
// the manifest that it was about to read.
const maxLoadAttempts = 8

// Load reads the state of the store in dir. It only reads, and may do so beside
// a writer. The error
//
//   - satisfies fs.ErrNotExist if there is no CURRENT: a fresh directory;
//   - is a *VersionError if CURRENT or the manifest has another format version;
//   - is a *corrupt.Error with file and offset if either is damaged, or if
//     CURRENT names a manifest that is not there.
//
// A record at the very end that a crash tore is left out.
func Load(fsys vfs.FS, dir string) (*State, error) {
	missing := keys.FileNum(0)
	for range maxLoadAttempts {
		cur, err := readCurrent(fsys, dir)
		if err != nil {
			return nil, err
		}
		if cur.num == missing {
			err := corrupt.At(0, "manifest", "the file that CURRENT names", ManifestName(missing)+" does not exist")
			return nil, corrupt.In(err, CurrentName, 0)
		}
		st, err := loadManifest(fsys, dir, cur)
		if !errors.Is(err, fs.ErrNotExist) {
			return st, err
		}
		// Look again: a writer may just have deleted it after making another.
		missing = cur.num
	}
	return nil, fmt.Errorf("%s changed %d times while it was read", CurrentName, maxLoadAttempts)
}

// loadManifest reads the manifest that cur names. Only if there is none does
// the error satisfy fs.ErrNotExist.
func loadManifest(fsys vfs.FS, dir string, cur current) (*State, error) {
	name := ManifestName(cur.num)
	f, err := fsys.Open(filepath.Join(dir, name))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, fmt.Errorf("size of %s: %w", name, err)
	}
	header := make([]byte, min(size, headerLen))
	if _, err := f.ReadAt(header, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	storeID, err := decodeHeader(header, name, cur.num)
	if err != nil {
		return nil, corrupt.In(err, name, 0)
	}
	r := replay{
		state:  State{Version: &Version{}, ManifestNum: cur.num, StoreID: storeID},
		tables: make(tableSet),
	}
	if err := r.records(record.NewReader(f, size, headerLen, uint32(cur.num)), cur.durableBytes); err != nil {
		var c *corrupt.Error
		if errors.As(err, &c) {
			return nil, corrupt.In(c, name, 0)
		}
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return &r.state, nil
}

// replay turns the edits of a manifest into a state. It checks the levels once
// at the end: State.Apply for each edit would take time proportional to the
// product of edits and tables.
type replay struct {
	state  State // without the tables until the end
	tables tableSet
}

// records applies all records of the log, of whose file durableBytes are known
// to have been durable.
func (r *replay) records(log *record.Reader, durableBytes int64) error {
	for {
		at := log.Offset()
		payload, err := log.Next()
		if err != nil {
			if err := checkEnd(err, log.Offset(), durableBytes); err != nil {
				return err
			}
			break
		}
		edit, err := decodeEdit(payload)
		if err != nil {
			return inRecord(err, at)
		}
		err = r.tables.apply(edit)
		if err == nil {
			err = r.state.applyNumbers(edit)
		}
		if err != nil {
			return corrupt.At(at, "edit", "one that fits those before it", err)
		}
	}
	if r.state.NextFileNum <= r.state.ManifestNum {
		return corrupt.At(log.Offset(), "next file number after the last edit",
			fmt.Sprintf("above the manifest's own, %d", r.state.ManifestNum), fmt.Sprint(r.state.NextFileNum))
	}
	all := &Edit{}
	for _, t := range r.tables {
		all.Added = append(all.Added, t)
	}
	v, err := r.state.Version.Apply(all)
	if err != nil {
		return corrupt.At(log.Offset(), "tables after the last edit", "a tree", err)
	}
	r.state.Version = v
	return nil
}

// checkEnd decides what the end of a manifest means, which is at offset end
// and was reported as err: nil if it is an end that a crash may leave.
func checkEnd(err error, end, durableBytes int64) error {
	var torn *record.TornError
	if err != io.EOF && !errors.As(err, &torn) {
		return err
	}
	switch {
	case end >= durableBytes:
		return nil
	case torn != nil:
		return torn.Cause
	}
	return corrupt.At(end, "end of the manifest", fmt.Sprintf("at %d or behind", durableBytes), fmt.Sprint(end))
}

// inRecord moves a corruption within the payload of the record at offset at
// to its offset in the file, past the chunk headers in between.
func inRecord(err error, at int64) error {
	var c *corrupt.Error
	if errors.As(err, &c) {
		return corrupt.In(c, "", at+record.Size(c.Offset)-c.Offset)
	}
	return err
}

// Ours reports whether the file of that base name can be a manifest: it begins
// like one, or like one that a crash cut short. It tells a directory whose
// store was never finished from one that belongs to another program.
func Ours(fsys vfs.FS, dir, name string) (bool, error) {
	f, err := fsys.Open(filepath.Join(dir, name))
	if err != nil {
		return false, err
	}
	defer f.Close()
	begin := make([]byte, len(headerMagic))
	n, err := f.ReadAt(begin, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("read %s: %w", name, err)
	}
	// A crash may leave zeros where content was not durable.
	begin = bytes.TrimRight(begin[:n], "\x00")
	return strings.HasPrefix(headerMagic, string(begin)), nil
}
