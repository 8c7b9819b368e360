package vfs

import (
	"errors"
	"fmt"

	"sievedb/vfs/internal/sys"
)

// ErrExhausted marks the error of a call that met a limit of the system and
// left everything as it was, so that it may be made again once there is room.
var ErrExhausted = errors.New("no room")

// Exhausted reports whether err says that there is no room: the disk is full, a
// quota or the largest size of a file is reached, or too many files are open.
func Exhausted(err error) bool { return sys.Exhausted(err) }

// MaxOpenFiles returns how many files this process may have open, or a number
// out of reach where that cannot be told or has no limit.
func MaxOpenFiles() int { return sys.MaxOpenFiles() }

// Create is fsys.Create, except that the error is ErrExhausted if there is no
// room for a file.
func Create(fsys FS, name string) (File, error) {
	f, err := fsys.Create(name)
	if Exhausted(err) {
		err = fmt.Errorf("%w: %w", ErrExhausted, err)
	}
	return f, err
}

// Append writes p at the end of f, which is its write position, size bytes from
// its beginning. If there is no room for p, f is cut back to size and synced,
// which proves that what it held before is unharmed, and the error is
// ErrExhausted. After any other error the content of f is unknown.
func Append(f File, p []byte, size int64) error {
	_, err := f.Write(p)
	if !Exhausted(err) {
		return err
	}
	undo := f.Truncate(size)
	if undo == nil {
		undo = f.Sync()
	}
	if undo != nil {
		return errors.Join(err, undo)
	}
	return fmt.Errorf("%w: %w", ErrExhausted, err)
}
