package sievedb

import (
	"errors"

	"sievedb/internal/corrupt"
)

// The errors that a program may want to tell apart with errors.Is. They come
// wrapped in errors that name the key, the file, the directory or the limit.
var (
	// ErrNotFound says that the key is not in the store.
	ErrNotFound = errors.New("sievedb: key not found")
	// ErrClosed says that the store, the iterator or the snapshot was closed.
	ErrClosed = errors.New("sievedb: closed")
	// ErrLocked says that another process, or this one, holds the directory.
	ErrLocked = errors.New("sievedb: the directory is in use")
	// ErrReadOnly says that the store takes no writes; reads go on. Either
	// OpenReadOnly opened it, or an earlier write to the WAL or the manifest
	// failed, and not for want of space alone: then the error comes wrapped with
	// that first failure, and reopening recovers what was durable.
	ErrReadOnly = errors.New("sievedb: the store is read-only")
	// ErrCorrupt says that a file does not hold what the store wrote; the
	// details are in a *CorruptionError.
	ErrCorrupt = corrupt.ErrCorrupt
	// ErrInvalidArgument says that an argument or an option is out of range.
	ErrInvalidArgument = errors.New("sievedb: invalid argument")
	// ErrFormat says that the directory was written by a version of the format
	// that this program does not read, or is not a store.
	ErrFormat = corrupt.ErrFormat
)

// CorruptionError locates damage: file, offset, what was looked at, what was
// wanted, and what was found. Get it with errors.As.
type CorruptionError = corrupt.Error
