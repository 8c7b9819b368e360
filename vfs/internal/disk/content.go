package disk

import (
	"io"
	"slices"
)

const (
	// A write after a sync copies one chunk and the table of chunks, so the
	// chunk is about as large as the table of a file of some tens of MiB.
	chunkBytes = 8 << 10
	// MaxFileBytes keeps a wild size from allocating a wild table.
	MaxFileBytes = 16 << 30
)

// image is the content of a file at one moment. Its chunks are shared with
// other images; nil ones read as zeros.
type image struct {
	chunks []*chunk
	size   int64
	owner  *owner
}

// chunk may be written only through the image that has the same owner.
type chunk struct {
	data  [chunkBytes]byte
	owner *owner
}

// owner is an identity; of non-zero size, so that each has its own address.
type owner struct{ _ byte }

// clone returns a copy that shares every chunk, which neither of the two may
// then write in place: the receiver must not be written any more.
func (img *image) clone() *image {
	return &image{chunks: slices.Clone(img.chunks), size: img.size, owner: new(owner)}
}

// at returns the chunk with the byte at off and the offset in it, ready to be
// written.
func (img *image) at(off int64) []byte {
	i := int(off / chunkBytes)
	if c := img.chunks[i]; c == nil || c.owner != img.owner {
		own := &chunk{owner: img.owner}
		if c != nil {
			own.data = c.data
		}
		img.chunks[i] = own
	}
	return img.chunks[i].data[off%chunkBytes:]
}

func (img *image) resize(size int64) {
	chunks := int((size + chunkBytes - 1) / chunkBytes)
	if size >= img.size {
		img.chunks = append(img.chunks, make([]*chunk, chunks-len(img.chunks))...)
	} else {
		clear(img.chunks[chunks:])
		img.chunks = img.chunks[:chunks]
		if size%chunkBytes != 0 {
			clear(img.at(size)) // or a later extension would bring it back
		}
	}
	img.size = size
}

func (img *image) writeAt(p []byte, off int64) {
	if end := off + int64(len(p)); end > img.size {
		img.resize(end)
	}
	for len(p) > 0 {
		n := copy(img.at(off), p)
		p, off = p[n:], off+int64(n)
	}
}

func (img *image) readAt(p []byte, off int64) (int, error) {
	read := 0
	for read < len(p) && off < img.size {
		part := p[read:min(int64(len(p)), int64(read)+img.size-off)]
		in := off % chunkBytes
		part = part[:min(int64(len(part)), chunkBytes-in)]
		if c := img.chunks[off/chunkBytes]; c != nil {
			copy(part, c.data[in:])
		} else {
			clear(part)
		}
		read, off = read+len(part), off+int64(len(part))
	}
	if read < len(p) {
		return read, io.EOF
	}
	return read, nil
}

// content is the content of a file: as it reads now, as it was synced last, and
// the changes that lead from this to that. Offsets and sizes are in bytes, not
// negative, and at most MaxFileBytes; the caller sees to that.
type content struct {
	current  *image
	shared   bool // current is also durable, or in a clone: copy before writing
	durable  *image
	unsynced []contentChange
}

// contentChange is a write of data at off, or, without data, a new size off.
type contentChange struct {
	off  int64
	data []byte
}

// newContent starts with a content that is durable and will not be written.
func newContent(img *image) content {
	return content{current: img, durable: img, shared: true}
}

func (c *content) own() *image {
	if c.shared {
		c.current, c.shared = c.current.clone(), false
	}
	return c.current
}

// Size returns the size in bytes.
func (c *content) Size() int64 { return c.current.size }

// ReadAt reads as io.ReaderAt says.
func (c *content) ReadAt(p []byte, off int64) (int, error) { return c.current.readAt(p, off) }

// WriteAt writes a copy of p, extending the file as needed.
func (c *content) WriteAt(p []byte, off int64) {
	if len(p) == 0 {
		return
	}
	c.own().writeAt(p, off)
	c.unsynced = append(c.unsynced, contentChange{off, slices.Clone(p)})
}

// Resize cuts the file, or extends it with zeros.
func (c *content) Resize(size int64) {
	if size != c.current.size {
		c.own().resize(size)
		c.unsynced = append(c.unsynced, contentChange{off: size})
	}
}

// Sync makes the content durable.
func (c *content) Sync() {
	c.durable, c.shared, c.unsynced = c.current, true, nil
}
