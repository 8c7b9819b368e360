// Package corrupt holds the one error that says "these bytes are not what the
// store wrote": file, offset, what was looked at, what was wanted and what was
// there. Decoders know the offset, the I/O layer above them adds the file:
//
//	return corrupt.At(off, "block checksum", want, got) // in a decoder
//	return corrupt.In(err, "000123.sst", base)           // one layer up
//
// All functions are safe for concurrent use.
package corrupt

import (
	"errors"
	"fmt"
)

// ErrCorrupt is what errors.Is finds in every Error.
var ErrCorrupt = errors.New("corrupt data")

// ErrFormat is what errors.Is finds where nothing is damaged, but a format or a
// version of it is not known here.
var ErrFormat = errors.New("sievedb: unknown format")

// Error is a located corruption.
type Error struct {
	File   string // base name of the file; empty until the I/O layer adds it
	Offset int64  // byte offset within File
	What   string // the thing that was decoded, such as "block checksum"
	Want   string // what the format asks for
	Got    string // what was found
}

// Error prints "corrupt data: FILE @OFFSET: WHAT: want WANT, got GOT".
func (e *Error) Error() string {
	file := e.File
	if file == "" {
		file = "?"
	}
	return fmt.Sprintf("%v: %s @%d: %s: want %s, got %s", ErrCorrupt, file, e.Offset, e.What, e.Want, e.Got)
}

// Is makes errors.Is(err, ErrCorrupt) hold.
func (e *Error) Is(target error) bool { return target == ErrCorrupt }

// At returns a corruption at offset, without a file as yet. want and got are
// printed with %v, integers of unsigned types in hexadecimal.
func At(offset int64, what string, want, got any) *Error {
	return &Error{Offset: offset, What: what, Want: show(want), Got: show(got)}
}

// In names the file of a corruption that has none yet and moves its offset by
// base, where base is the offset within the file of the buffer that was
// decoded. Any other error is returned as it is; nil stays nil.
func In(err error, file string, base int64) error {
	var e *Error
	if !errors.As(err, &e) || e.File != "" {
		return err
	}
	c := *e
	c.File = file
	c.Offset += base
	return &c
}

func show(v any) string {
	switch v.(type) {
	case uint8, uint16, uint32, uint64, uint, uintptr:
		return fmt.Sprintf("%#x", v)
	}
	return fmt.Sprint(v)
}
