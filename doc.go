// Package sievedb is an embedded, ordered key-value store: a log-structured
// merge tree whose heart is its filters. Every sorted run can say "that key is
// not here" from memory before anything touches the disk, and the store counts
// how many disk reads that saved (DB.Metrics).
//
//	db, err := sievedb.Open("dir", nil)
//	defer db.Close()
//	err = db.Put([]byte("key"), []byte("value")) // durable when it returns nil
//	v, err := db.Get([]byte("key"))              // the caller's own copy
//	for k, v := range db.Prefix([]byte("user:")).All() {
//		…
//	}
//
// Keys order bytewise; a nil key is the empty key, a key like any other. A
// store is written by one process at a time; OpenReadOnly reads it beside that
// one. A DB and its snapshots are safe for
// concurrent use; an Iterator and a Batch are for one goroutine at a time.
// Slices that are passed in are copied, never kept. The package never panics,
// exits or prints, and starts no goroutine before Open nor leaves one after
// Close.
package sievedb
