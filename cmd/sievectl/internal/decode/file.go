package decode

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// pageBytes is the unit in which a file is read around places that cannot be
// read.
const pageBytes = 4 << 10

// File is a file that is looked at. It is opened for each read, so that any
// number of tables can be in use under a limit of open files. What the disk
// cannot read comes back as zeros, which no checksum accepts, and Err tells.
type File struct {
	Name string // base name
	Size int64

	path string
	err  error
}

// OpenFile returns the regular file of that path.
func OpenFile(path string) (*File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a file", path)
	}
	return &File{Name: filepath.Base(path), Size: info.Size(), path: path}, nil
}

// Err returns the first failure to read a part of the file, or nil.
func (f *File) Err() error { return f.err }

// ReadAt is that of io.ReaderAt, except that it fails only if nothing can be
// read at all.
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	h, err := os.Open(f.path)
	if err != nil {
		return 0, err
	}
	defer h.Close()
	n, err := h.ReadAt(p, off)
	if err == nil || errors.Is(err, io.EOF) {
		return n, err
	}
	if f.err == nil {
		f.err = fmt.Errorf("at %d: %w; what cannot be read is taken for zeros", off+int64(n), err)
	}
	return f.readPages(h, p, off)
}

// readPages fills p page by page, with zeros where that fails.
func (f *File) readPages(h io.ReaderAt, p []byte, off int64) (int, error) {
	end := min(int64(len(p)), max(f.Size-off, 0))
	for at := int64(0); at < end; at += pageBytes {
		page := p[at:min(at+pageBytes, end)]
		if _, err := h.ReadAt(page, off+at); err != nil {
			clear(page)
		}
	}
	if end < int64(len(p)) {
		return int(end), io.EOF
	}
	return len(p), nil
}

// read returns n bytes at off.
func (f *File) read(off, n uint64) ([]byte, error) {
	if size := uint64(f.Size); n > size || off > size-n || n > maxRead {
		return nil, fmt.Errorf("%s: %d bytes at %d of %d cannot be read", f.Name, n, off, f.Size)
	}
	p := make([]byte, n)
	got, err := f.ReadAt(p, int64(off))
	if err != nil && !(errors.Is(err, io.EOF) && got == len(p)) {
		return nil, fmt.Errorf("%s: reading %d bytes at %d: %w", f.Name, n, off, err)
	}
	return p, nil
}

// maxRead bounds what is read at once, so that a length fits an int and two
// such parts the address space of 64 bits.
const maxRead = 1<<31 - 1
