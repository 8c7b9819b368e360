//go:build !(linux && (amd64 || arm64))

package kernel

import "errors"

// DropPageCache is not to be had here without the rights of an administrator.
func DropPageCache(string) error {
	return errors.New("the page cache can be emptied on 64-bit Linux only: leave out --cold")
}
