// Package sys holds the calls for files that differ between operating systems.
// They are safe for concurrent use.
//
//	f, err := sys.OpenLocked(name)
//	if errors.Is(err, sys.ErrHeld) {
//		return err // somebody else has the lock
//	}
//	defer sys.Unlock(f)
package sys

import "errors"

// ErrHeld is what OpenLocked returns for a lock that another holder has.
var ErrHeld = errors.New("lock is held")
