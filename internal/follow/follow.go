// Package follow reads the directory of a store that somebody else may be
// writing at the same time, into open tables and memtables, and again from
// where it was. It writes nothing (invariant 19).
//
//	d := follow.New(follow.Options{FS: fs, Dir: dir, Lock: &lock, Load: …, OpenTable: …})
//	u, err := d.Read() // the first time everything
//	u, err = d.Read()  // and then what is new
//	publish(u.LastSeq) // and only now may readers see it
//
// Read adds to the newest memtable while others read from it, as a writer does:
// they see nothing new before a larger sequence number is published to them.
//
// A Directory is for one goroutine at a time; tables and memtables are as safe
// as they are elsewhere.
package follow

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"sievedb/internal/corrupt"
	"sievedb/internal/keys"
	"sievedb/internal/manifest"
	"sievedb/internal/table"
	"sievedb/memtable"
	"sievedb/vfs"
	"sievedb/wal"
)

// Options says what is followed, and how its files are opened.
type Options struct {
	FS  vfs.FS
	Dir string
	// Lock is the memtables' writer's lock: who makes iterators over them
	// gives it to NewIter.
	Lock sync.Locker
	// MemtableBytes is a hint of the size of a memtable, in bytes.
	MemtableBytes int64
	// Load returns what the manifest says now. Its error ends Read.
	Load func() (*manifest.State, error)
	// OpenTable opens a table for a level.
	OpenTable func(*manifest.TableMeta, int) (*table.Table, error)
}

// Directory is a directory as far as it was read.
type Directory struct {
	o     Options
	log   *log                  // nil before the first state was loaded
	known map[keys.FileNum]bool // tables of the last Update, which its receiver has
	last  keys.SeqNum           // of the last Update
}

// New returns a directory of which nothing was read.
func New(o Options) *Directory { return &Directory{o: o} }

// Update is what Read found, and all that a reader needs: it holds whole batches
// and no gap.
type Update struct {
	State *manifest.State
	// Opened are the tables of State that no earlier Update had; they belong
	// to the receiver.
	Opened map[keys.FileNum]*table.Table
	// Mutable is the memtable of the newest segment, to which later calls of
	// Read add; Immutables are those before it, newest first.
	Mutable    *memtable.Table
	Immutables []*memtable.Table
	// LastSeq is the newest sequence number in any of it.
	LastSeq keys.SeqNum
}

// maxAttempts bounds how often Read starts again because a writer changed the
// directory meanwhile. One with memtables of 16 KiB, which it replaces several
// times while a manifest is read, was faster 16 times in a row once in 100,000
// calls; an attempt costs about what loading the manifest does.
const maxAttempts = 64

// ErrOvertaken says that a writer was faster than Read at every attempt.
var ErrOvertaken = errors.New("the store changed again and again while it was read")

// Read reads what is new. A writer removes files, and writes where they are
// being read, so a failure is first taken for its doing, and Read starts again
// from CURRENT. But a writer only removes what its manifest does not name any
// more, and its log vouches only for bytes that are there: so the same damage
// twice is damage.
//
// The error is then a *corrupt.Error, also if the directory went back in time
// or holds another store; that of Load or of reading; or one that says that a
// writer was always faster. After it everything is as it was, and Read may be
// called again.
func (d *Directory) Read() (*Update, error) {
	opened := map[keys.FileNum]*table.Table{}
	var damage corrupt.Error
	for range maxAttempts {
		st, err := d.o.Load()
		if err != nil {
			return nil, errors.Join(err, discard(opened))
		}
		if err = d.readOnce(st, opened); err == nil {
			return d.update(st, opened), nil
		}
		var c *corrupt.Error
		if !errors.As(err, &c) && !errors.Is(err, fs.ErrNotExist) || c != nil && *c == damage {
			return nil, errors.Join(err, discard(opened))
		}
		if c != nil {
			damage = *c
		}
	}
	return nil, errors.Join(fmt.Errorf("%w: %d times", ErrOvertaken, maxAttempts), discard(opened))
}

// readOnce reads the log on, and opens the tables of st that are not open yet, in
// opened, where they wait for another attempt.
func (d *Directory) readOnce(st *manifest.State, opened map[keys.FileNum]*table.Table) error {
	if d.log == nil {
		d.log = &log{o: &d.o, store: st.StoreID}
	}
	if d.log.store != st.StoreID {
		return replaced(st, "store ID", fmt.Sprintf("%x", d.log.store), fmt.Sprintf("%x", st.StoreID))
	}
	// The log first: a busy writer is done with a segment sooner than with a
	// table, and what was read of it is kept for the next attempt, too.
	if err := d.log.read(st); err != nil {
		return err
	}
	if d.log.last < d.last {
		return replaced(st, "newest sequence number", fmt.Sprintf("at least %d", d.last), fmt.Sprint(d.log.last))
	}
	for level, metas := range st.Version.Levels {
		for _, m := range metas {
			if d.known[m.FileNum] || opened[m.FileNum] != nil {
				continue
			}
			t, err := d.o.OpenTable(m, level)
			if err != nil {
				return err
			}
			opened[m.FileNum] = t
		}
	}
	return nil
}

// replaced says that another store, or an older copy, took the place of the one
// that was followed.
func replaced(st *manifest.State, what, want, got string) error {
	return corrupt.In(corrupt.At(0, what+" of the store that is followed", want, got), manifest.ManifestName(st.ManifestNum), 0)
}

// update returns what was read, and gives up the tables that earlier attempts
// opened for nothing.
func (d *Directory) update(st *manifest.State, opened map[keys.FileNum]*table.Table) *Update {
	u := &Update{State: st, Opened: map[keys.FileNum]*table.Table{}, LastSeq: d.log.last}
	u.Mutable, u.Immutables = d.log.memtables()
	d.known, d.last = map[keys.FileNum]bool{}, u.LastSeq
	for _, metas := range st.Version.Levels {
		for _, m := range metas {
			d.known[m.FileNum] = true
			if t := opened[m.FileNum]; t != nil {
				u.Opened[m.FileNum] = t
				delete(opened, m.FileNum)
			}
		}
	}
	_ = discard(opened) // what closing a file that was only read may report concerns nobody
	return u
}

func discard(tables map[keys.FileNum]*table.Table) error {
	var errs []error
	for _, t := range tables {
		errs = append(errs, t.Discard())
	}
	return errors.Join(errs...)
}

// Position is how far a segment was read: whole records, and where they end.
type Position struct {
	Segment   keys.FileNum
	SizeBytes int64
}

// Positions returns how far the live segments were read, ascending.
func (d *Directory) Positions() []Position {
	var ps []Position
	for _, s := range d.log.segments {
		ps = append(ps, Position{s.num, s.end})
	}
	return ps
}

// Store returns the identity of the store. Requires: a Read without an error.
func (d *Directory) Store() wal.StoreID { return d.log.store }
