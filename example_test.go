package sievedb_test

import (
	"errors"
	"fmt"
	"log"
	"os"

	"sievedb"
	"sievedb/vfs"
)

// Embed a store: open it, write, read, ask for what is not there, and walk over
// a prefix.
func Example() {
	dir, err := os.MkdirTemp("", "sievedb-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	db, err := sievedb.Open(dir, nil) // filters on, every write synced
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	b := db.NewBatch() // all or nothing
	b.Put([]byte("user:1"), []byte("Ada"))
	b.Put([]byte("user:2"), []byte("Grace"))
	if err := db.Apply(b, sievedb.SyncAlways); err != nil {
		log.Fatal(err)
	}

	name, err := db.Get([]byte("user:1"))
	fmt.Printf("%s %v\n", name, err)
	_, err = db.Get([]byte("user:3"))
	fmt.Println(errors.Is(err, sievedb.ErrNotFound))

	users := db.Prefix([]byte("user:"))
	for k, v := range users.All() {
		fmt.Printf("%s is %s\n", k, v)
	}
	if err := users.Err(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// Ada <nil>
	// true
	// user:1 is Ada
	// user:2 is Grace
}

// Remove a whole family of keys with one small write, however many there are.
func ExampleDB_DeleteRange() {
	db, err := sievedb.Open("/store", &sievedb.Options{FS: vfs.NewMem()})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	for i := range 1000 {
		if err := db.Put(fmt.Appendf(nil, "session:%04d", i), nil); err != nil {
			log.Fatal(err)
		}
	}
	if err := db.Put([]byte("user:1"), []byte("Ada")); err != nil {
		log.Fatal(err)
	}
	if err := db.DeleteRange([]byte("session:"), []byte("session;")); err != nil { // ; comes after :
		log.Fatal(err)
	}
	for k, v := range db.All().All() {
		fmt.Printf("%s is %s\n", k, v)
	}
	// Output:
	// user:1 is Ada
}
