package iter

// Block is a block of a table.
type Block struct {
	// Data is the block decoded, and Frame the bytes of the file that it was decoded
	// from, their checksum included. Both were checked. Nil if they are not known.
	Data, Frame []byte
	// Compression and SizeBytes are what the table was written with: an
	// sstable.Compression, and the size from which on its blocks were full.
	Compression uint8
	SizeBytes   uint64
	// Left is the number of entries of the block after the one that was asked of.
	Left int
}

// Blocks is an Iterator that may know in which block it stands. What both methods
// tell holds until the next positioning call. They require that the iterator stands on an
// entry, to which it came forward.
type Blocks interface {
	// Block returns the block in which the entry lies.
	Block() Block
	// Whole reports whether the entry is the first one of its block, and the
	// iterator will show the others one after the other, all of them before the
	// user key bound; nil is no bound.
	Whole(bound []byte) bool
}

// BlockOf returns the block in which it stands, if it knows.
func BlockOf(it Iterator) Block {
	if b, ok := it.(Blocks); ok {
		return b.Block()
	}
	return Block{}
}

// WholeOf reports what Whole of it does, if it knows.
func WholeOf(it Iterator, bound []byte) bool {
	b, ok := it.(Blocks)
	return ok && b.Whole(bound)
}
