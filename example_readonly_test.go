package sievedb_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"sievedb"
)

// A backup: it is consistent whatever writes go on, and opens as a store.
func ExampleDB_Checkpoint() {
	dir, err := os.MkdirTemp("", "sievedb-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := sievedb.Open(filepath.Join(dir, "store"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := db.Put([]byte("user:1"), []byte("Ada")); err != nil {
		log.Fatal(err)
	}

	backup := filepath.Join(dir, "backup")
	if err := db.Checkpoint(context.Background(), backup); err != nil {
		log.Fatal(err)
	}
	if err := db.Put([]byte("user:1"), []byte("Grace")); err != nil {
		log.Fatal(err)
	}

	restored, err := sievedb.Open(backup, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer restored.Close()
	name, err := restored.Get([]byte("user:1"))
	fmt.Printf("%s %v\n", name, err)
	// Output: Ada <nil>
}

// A reader beside a writer, which may be in another process.
func ExampleOpenReadOnly() {
	dir, err := os.MkdirTemp("", "sievedb-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	writer, err := sievedb.Open(dir, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer writer.Close()

	reader, err := sievedb.OpenReadOnly(dir, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer reader.Close()
	if err := writer.Put([]byte("user:1"), []byte("Ada")); err != nil {
		log.Fatal(err)
	}
	_, err = reader.Get([]byte("user:1"))
	fmt.Println(err)

	if err := reader.Refresh(); err != nil {
		log.Fatal(err)
	}
	name, err := reader.Get([]byte("user:1"))
	fmt.Printf("%s %v\n", name, err)
	// Output:
	// sievedb: key not found
	// Ada <nil>
}

// Explain says which parts of the store could have had a key, and why each was
// read or not.
func ExampleDB_Explain() {
	db := open(sievedb.Options{}, "a=1 c=3 e=5")
	defer db.Close()
	if err := db.Flush(context.Background()); err != nil {
		log.Fatal(err)
	}
	for _, key := range []string{"b", "c", "z"} {
		trace, err := db.Explain([]byte(key)) // fmt.Print(trace) prints a table
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: %s\n", key, trace.Result)
		for _, step := range trace.Steps {
			fmt.Printf("  %s: %s, blocks read: %d\n", step.Part, step.Outcome, len(step.Blocks))
		}
	}
	// Output:
	// b: absent
	//   memtable: missing, blocks read: 0
	//   level0_table: filtered, blocks read: 0
	// c: found
	//   memtable: missing, blocks read: 0
	//   level0_table: put, blocks read: 1
	// z: absent
	//   memtable: missing, blocks read: 0
	//   level0_table: out_of_range, blocks read: 0
}
