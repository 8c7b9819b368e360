package manifest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"sievedb/internal/codec"
	"sievedb/internal/corrupt"
	"sievedb/internal/keys"
	"sievedb/vfs"
)

const (
	// CurrentName is the base name of the file that names the manifest.
	CurrentName = "CURRENT"
	// CurrentTempName is the base name under which its replacement is made.
	// One that lies about was left by a crash and may be removed.
	CurrentTempName = "CURRENT.tmp"

	manifestPrefix = "MANIFEST-"
)

// ManifestName returns the base name of a manifest.
func ManifestName(num keys.FileNum) string { return fmt.Sprintf("%s%06d", manifestPrefix, num) }

// ParseManifestName returns the number of the manifest that is called name. It
// takes only names that ManifestName returns.
func ParseManifestName(name string) (num keys.FileNum, ok bool) {
	digits, found := strings.CutPrefix(name, manifestPrefix)
	if !found {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || ManifestName(keys.FileNum(n)) != name {
		return 0, false
	}
	return keys.FileNum(n), true
}

// current is the content of CURRENT: one line of text, so that a person can
// read it.
//
//	sievedb 1 MANIFEST-000007 4711 89abcdef⏎
//	|       | |               |    |
//	magic   | manifest        |    masked CRC-32C over type byte 'C', then all of the
//	        version           |    line before it; 8 hexadecimal digits
//	                          durable bytes: length of the manifest's prefix that was
//	                          durable when the line was written
//
// A manifest that is cut or damaged within its durable bytes is corrupt,
// whereas one that ends in a bad record behind them was torn by a crash.
type current struct {
	num          keys.FileNum
	durableBytes int64
}

const (
	currentCRCTyp = 'C'
	maxCurrentLen = 128 // bounds what is read; the longest line has 78 bytes
)

func (c current) encode() []byte {
	line := fmt.Appendf(nil, "sievedb %d %s %d ", FormatVersion, ManifestName(c.num), c.durableBytes)
	return fmt.Appendf(line, "%08x\n", codec.ChecksumOf(currentCRCTyp, line))
}

// decodeCurrent is the inverse of encode: it takes nothing that encode would
// not write.
func decodeCurrent(b []byte) (current, error) {
	var c current
	var version uint64
	// What does not scan stays zero, and then the line is not the same.
	fmt.Sscanf(string(b), "sievedb %d MANIFEST-%d %d", &version, &c.num, &c.durableBytes)
	if version != 0 && version != FormatVersion {
		return current{}, &VersionError{File: CurrentName, Got: version, Want: FormatVersion}
	}
	if !bytes.Equal(c.encode(), b) {
		err := corrupt.At(0, "line", "one that this store wrote", fmt.Sprintf("%q", b))
		return current{}, corrupt.In(err, CurrentName, 0)
	}
	return c, nil
}

// readCurrent reads CURRENT. The error satisfies fs.ErrNotExist if there is
// none.
func readCurrent(fsys vfs.FS, dir string) (current, error) {
	f, err := fsys.Open(filepath.Join(dir, CurrentName))
	if err != nil {
		return current{}, fmt.Errorf("open %s: %w", CurrentName, err)
	}
	defer f.Close()
	b := make([]byte, maxCurrentLen)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return current{}, fmt.Errorf("read %s: %w", CurrentName, err)
	}
	return decodeCurrent(b[:n])
}

// prepareCurrent writes and syncs a replacement of CURRENT, which installCurrent
// then puts in its place.
func prepareCurrent(fsys vfs.FS, dir string, c current) error {
	f, err := vfs.Create(fsys, filepath.Join(dir, CurrentTempName))
	if err != nil {
		return fmt.Errorf("create %s: %w", CurrentTempName, err)
	}
	err = writeAndSync(f, c.encode())
	if err = cmp.Or(err, f.Close()); err != nil {
		return fmt.Errorf("%s: %w", CurrentTempName, err)
	}
	return nil
}

// installCurrent renames the replacement and syncs the directory. If that fails
// it is not known which of the two a crash will show.
func installCurrent(fsys vfs.FS, dir string) error {
	if err := fsys.Rename(filepath.Join(dir, CurrentTempName), filepath.Join(dir, CurrentName)); err != nil {
		return fmt.Errorf("rename %s to %s: %w", CurrentTempName, CurrentName, err)
	}
	if err := fsys.SyncDir(dir); err != nil {
		return fmt.Errorf("sync directory after renaming %s: %w", CurrentName, err)
	}
	return nil
}

func writeAndSync(f vfs.File, content []byte) error {
	if err := vfs.Append(f, content, 0); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	return nil
}
