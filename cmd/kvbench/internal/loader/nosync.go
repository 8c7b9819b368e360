package loader

import "sievedb/vfs"

// NoSync is a file system that makes nothing durable. The tree that the
// benchmark needs takes thousands of small flushes, whose waits for the disk
// would be most of its time; a power failure merely costs a run. Loading is
// therefore no measure of the store's writes, which the report says.
type NoSync struct{ vfs.FS }

// Create makes a file that is never synced.
func (n NoSync) Create(name string) (vfs.File, error) { return noSyncFile(n.FS.Create(name)) }

// OpenReadWrite opens a file that is never synced.
func (n NoSync) OpenReadWrite(name string) (vfs.File, error) {
	return noSyncFile(n.FS.OpenReadWrite(name))
}

// SyncDir does nothing.
func (NoSync) SyncDir(string) error { return nil }

type unsynced struct{ vfs.File }

func noSyncFile(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return unsynced{f}, nil
}

func (unsynced) Sync() error { return nil }
