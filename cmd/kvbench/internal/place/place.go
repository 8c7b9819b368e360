// Package place finds directories for the stores of kvbench, opens stores there,
// and cleans up. Its functions are safe for concurrent use.
//
//	p, err := place.New(dir)
//	defer func() { err = errors.Join(err, p.Leave(keep, m)) }()
package place

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sievedb"
	"sievedb/cmd/kvbench/internal/meter"
)

// Place is where a new store is to be.
type Place struct {
	Dir       string
	temporary string // to be removed
}

// New finds a place in dir, which must hold nothing, or, if dir is empty, in a
// temporary directory.
func New(dir string) (Place, error) {
	if dir != "" {
		if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
			return Place{}, fmt.Errorf("%s is not empty", dir)
		}
		return Place{Dir: dir}, nil
	}
	temp, err := os.MkdirTemp("", "kvbench-")
	if err != nil {
		return Place{}, fmt.Errorf("temporary directory: %w", err)
	}
	return Place{Dir: filepath.Join(temp, "store"), temporary: temp}, nil
}

// Leave removes what is temporary, or, if it is kept, says where it is.
func (p Place) Leave(keep bool, m *meter.Meter) error {
	switch {
	case p.temporary == "":
		return nil
	case keep:
		m.Note("kept in %s", p.Dir)
		return nil
	}
	return os.RemoveAll(p.temporary)
}

// With opens a store for f. Close returns background errors, which f may have
// met already: nobody needs them twice.
func With(open func(string, *sievedb.Options) (*sievedb.DB, error), dir string, o *sievedb.Options, f func(*sievedb.DB) error) error {
	db, err := open(dir, o)
	if err != nil {
		return err
	}
	err = f(db)
	if closing := db.Close(); closing != nil && (err == nil || !tells(err, closing)) {
		err = errors.Join(err, closing)
	}
	return err
}

// tells reports whether err says all that other does, which may be several
// errors, each on a line.
func tells(err, other error) bool {
	for line := range strings.SplitSeq(other.Error(), "\n") {
		if !strings.Contains(err.Error(), line) {
			return false
		}
	}
	return true
}
