// Package disk models what a file system holds, in memory: names and contents
// as they are now, and as much of them as a crash cannot take away.
//
//	d := disk.New()
//	f, err := d.Create("a")
//	f.WriteAt(p, 0)
//	f.Sync()               // the content is durable
//	err = d.SyncDir(".")   // and now the name is, too
//	after := d.Crash(disk.Lost)
//
// Nothing here is safe for concurrent use. Errors name the operation and the
// file, as the os package's do.
package disk

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Disk is a tree of directories and files. Relative names are relative to its
// root.
type Disk struct {
	root     *Node
	lastID   uint64
	unsynced []nameChange // what SyncDir has not made durable, oldest first
}

// Node is a file or a directory. Links are several names of one node, and a
// node without a name is still good for those who hold it.
type Node struct {
	id uint64 // order of creation: makes the random choices of a crash repeatable

	names   map[string]*Node // of a directory, and nil in a file
	durable map[string]*Node // the names that a crash keeps in any case

	content // of a file
}

// IsDir tells directories from files.
func (n *Node) IsDir() bool { return n.names != nil }

// dirEntry is a place for a name.
type dirEntry struct {
	dir  *Node
	name string
}

// nameChange moves child from one place to another, where it replaces a node or
// nil. A creation or a link has no from, a removal no to.
type nameChange struct {
	child    *Node
	from, to dirEntry
	replaced *Node
}

// apply makes the change in the names that namesOf returns, unless they lack an
// earlier change on which it builds: or a crash could leave two names of a
// renamed file, or none.
func (c nameChange) apply(namesOf func(dir *Node) map[string]*Node) {
	if c.from.dir != nil && namesOf(c.from.dir)[c.from.name] != c.child ||
		c.to.dir != nil && namesOf(c.to.dir)[c.to.name] != c.replaced {
		return
	}
	if c.from.dir != nil {
		delete(namesOf(c.from.dir), c.from.name)
	}
	if c.to.dir != nil {
		namesOf(c.to.dir)[c.to.name] = c.child
	}
}

// New returns a disk with an empty root directory.
func New() *Disk { return &Disk{root: newDir(0)} }

func newDir(id uint64) *Node {
	return &Node{id: id, names: map[string]*Node{}, durable: map[string]*Node{}}
}

// change makes a change of names that a crash may undo.
func (d *Disk) change(c nameChange) {
	c.apply(func(dir *Node) map[string]*Node { return dir.names })
	d.unsynced = append(d.unsynced, c)
}

// components splits a name into its elements, none for the root.
func components(name string) []string {
	clean := filepath.Clean(string(filepath.Separator) + name)
	return strings.FieldsFunc(clean, func(r rune) bool { return r == filepath.Separator })
}

// Lookup finds a file or a directory. Here and below, op is for the error.
func (d *Disk) Lookup(op, name string) (*Node, error) {
	n := d.root
	for _, c := range components(name) {
		if !n.IsDir() {
			return nil, &fs.PathError{Op: op, Path: name, Err: syscall.ENOTDIR}
		}
		if n = n.names[c]; n == nil {
			return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
		}
	}
	return n, nil
}

// File finds a file.
func (d *Disk) File(op, name string) (*Node, error) {
	n, err := d.Lookup(op, name)
	if err == nil && n.IsDir() {
		return nil, &fs.PathError{Op: op, Path: name, Err: syscall.EISDIR}
	}
	return n, err
}

func (d *Disk) dir(op, name string) (*Node, error) {
	n, err := d.Lookup(op, name)
	if err == nil && !n.IsDir() {
		return nil, &fs.PathError{Op: op, Path: name, Err: syscall.ENOTDIR}
	}
	return n, err
}

// entry finds the place of name, whose directory must exist, and its node or
// nil.
func (d *Disk) entry(op, name string) (dirEntry, *Node, error) {
	parts := components(name)
	if len(parts) == 0 {
		return dirEntry{}, nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	parent, err := d.dir(op, filepath.Join(parts[:len(parts)-1]...))
	if err != nil {
		return dirEntry{}, nil, err
	}
	e := dirEntry{parent, parts[len(parts)-1]}
	return e, parent.names[e.name], nil
}

// Create returns the file called name, which it makes if it is not there.
func (d *Disk) Create(op, name string) (*Node, error) {
	e, n, err := d.entry(op, name)
	if err != nil || n != nil {
		if err == nil && n.IsDir() {
			err = &fs.PathError{Op: op, Path: name, Err: syscall.EISDIR}
		}
		return n, err
	}
	d.lastID++
	n = &Node{id: d.lastID, content: newContent(&image{})}
	d.change(nameChange{child: n, to: e})
	return n, nil
}

// Mkdir makes a directory.
func (d *Disk) Mkdir(name string) error {
	e, n, err := d.entry("mkdir", name)
	if err == nil && n != nil {
		err = &fs.PathError{Op: "mkdir", Path: name, Err: fs.ErrExist}
	}
	if err != nil {
		return err
	}
	d.lastID++
	d.change(nameChange{child: newDir(d.lastID), to: e})
	return nil
}

// Remove removes a name of a file, or an empty directory.
func (d *Disk) Remove(name string) error {
	e, n, err := d.entry("remove", name)
	if err != nil {
		return err
	}
	if n == nil {
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	}
	if len(n.names) > 0 {
		return &fs.PathError{Op: "remove", Path: name, Err: syscall.ENOTEMPTY}
	}
	d.change(nameChange{child: n, from: e})
	return nil
}

// Rename moves a name. Like os.Rename it does not replace a directory.
func (d *Disk) Rename(oldName, newName string) error {
	from, n, err := d.entry("rename", oldName)
	if err != nil {
		return err
	}
	to, target, err := d.entry("rename", newName)
	if err != nil {
		return err
	}
	oldParts, newParts := components(oldName), components(newName)
	switch {
	case n == nil:
		err = fs.ErrNotExist
	case target == n:
		return nil // two names of one file stay, as POSIX wants it
	case target != nil && target.IsDir():
		err = fs.ErrExist
	case target != nil && n.IsDir():
		err = syscall.ENOTDIR
	case len(newParts) > len(oldParts) && slices.Equal(newParts[:len(oldParts)], oldParts):
		err = fs.ErrInvalid // a directory into itself
	}
	if err != nil {
		return &os.LinkError{Op: "rename", Old: oldName, New: newName, Err: err}
	}
	d.change(nameChange{child: n, from: from, to: to, replaced: target})
	return nil
}

// Link gives a file another name.
func (d *Disk) Link(oldName, newName string) error {
	n, err := d.Lookup("link", oldName)
	if err != nil {
		return err
	}
	to, target, err := d.entry("link", newName)
	if err != nil {
		return err
	}
	if n.IsDir() {
		err = fs.ErrPermission
	} else if target != nil {
		err = fs.ErrExist
	}
	if err != nil {
		return &os.LinkError{Op: "link", Old: oldName, New: newName, Err: err}
	}
	d.change(nameChange{child: n, to: to})
	return nil
}

// List returns the names in a directory, sorted.
func (d *Disk) List(name string) ([]string, error) {
	dir, err := d.dir("list", name)
	if err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(dir.names)), nil
}

// SyncDir makes the names in a directory durable. A rename between two
// directories is one transaction, so it draws the other one's changes along.
func (d *Disk) SyncDir(name string) error {
	dir, err := d.dir("sync", name)
	if err != nil {
		return err
	}
	dirs := map[*Node]bool{dir: true}
	for before := 0; before != len(dirs); {
		before = len(dirs)
		for _, c := range d.unsynced {
			if c.from.dir != nil && c.to.dir != nil && (dirs[c.from.dir] || dirs[c.to.dir]) {
				dirs[c.from.dir], dirs[c.to.dir] = true, true
			}
		}
	}
	d.unsynced = slices.DeleteFunc(d.unsynced, func(c nameChange) bool {
		synced := dirs[c.from.dir] || dirs[c.to.dir]
		if synced {
			c.apply(func(dir *Node) map[string]*Node { return dir.durable })
		}
		return synced
	})
	return nil
}
