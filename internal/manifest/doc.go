// Package manifest holds what the store knows of its own files: immutable
// versions of the tree (which table lies in which level), edits that turn one
// version into the next, and the log of edits on disk that brings the newest
// version back after a restart.
//
// Versions, edits and states are plain immutable values: any number of
// goroutines may read them once they are published. A Log has no lock inside;
// its caller serialises all calls to it.
//
//	st, err := manifest.Load(fs, dir)            // fs.ErrNotExist: a fresh directory
//	l, err := manifest.Create(fs, dir, num, st)  // a new manifest that starts with st
//	err = l.Append(&manifest.Edit{Added: …})     // durable when it returns nil
//	v := l.State().Version                       // the version with the edit
package manifest
