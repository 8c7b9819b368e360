// Package invariants holds checks that are compiled in only under the build
// tag "invariants" or the race detector, so that tests run with them and users
// do not pay for them.
//
//	if invariants.Enabled && a > b {
//		err = invariants.Broken("bounds cross: %d > %d", a, b)
//	}
package invariants

import "fmt"

// Broken returns an error for a broken in-memory invariant. The library never
// panics: a broken invariant becomes a background error that stops writes.
func Broken(format string, args ...any) error {
	return fmt.Errorf("sievedb: broken invariant: "+format, args...)
}
