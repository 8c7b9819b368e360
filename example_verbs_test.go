package sievedb_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"strconv"
	"strings"

	"sievedb"
	"sievedb/vfs"
)

// open opens a store in memory, with some entries, each a word "key=value".
func open(o sievedb.Options, entries string) *sievedb.DB {
	o.FS = vfs.NewMem()
	db, err := sievedb.Open("/store", &o)
	if err != nil {
		log.Fatal(err)
	}
	for entry := range strings.FieldsSeq(entries) {
		key, value, _ := strings.Cut(entry, "=")
		if err := db.Put([]byte(key), []byte(value)); err != nil {
			log.Fatal(err)
		}
	}
	return db
}

// show prints what an iterator yields, in one line.
func show(it *sievedb.Iterator) {
	var entries []string
	for k, v := range it.All() {
		entries = append(entries, fmt.Sprintf("%s=%s", k, v))
	}
	if err := it.Err(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(strings.Join(entries, " "))
}

func ExampleOpen() {
	fs := vfs.NewMem() // nil, or no options at all, is the operating system's
	db, err := sievedb.Open("/store", &sievedb.Options{FS: fs, MustBeNew: true})
	fmt.Println(err)
	_, err = sievedb.Open("/store", &sievedb.Options{FS: fs})
	fmt.Println("a second time:", errors.Is(err, sievedb.ErrLocked))
	fmt.Println(db.Close())
	// Output:
	// <nil>
	// a second time: true
	// <nil>
}

// Close waits for what is in progress and makes everything durable.
func ExampleDB_Close() {
	db := open(sievedb.Options{Durability: sievedb.SyncNever}, "k=v")
	fmt.Println(db.Close())
	fmt.Println(db.Close()) // as often as you like
	_, err := db.Get([]byte("k"))
	fmt.Println(errors.Is(err, sievedb.ErrClosed))
	// Output:
	// <nil>
	// <nil>
	// true
}

func ExampleDB_Put() {
	db := open(sievedb.Options{}, "")
	defer db.Close()
	if err := db.Put([]byte("greeting"), []byte("hello")); err != nil {
		log.Fatal(err) // it may or may not survive
	}
	// It survives a power failure from here on.
	show(db.All())
	// Output: greeting=hello
}

func ExampleDB_Get() {
	db := open(sievedb.Options{}, "greeting=hello empty=")
	defer db.Close()
	for _, key := range []string{"greeting", "empty", "absent"} {
		value, err := db.Get([]byte(key))
		switch {
		case errors.Is(err, sievedb.ErrNotFound):
			fmt.Printf("%s is not there\n", key)
		case err != nil:
			log.Fatal(err)
		default:
			fmt.Printf("%s is %q\n", key, value)
		}
	}
	// Output:
	// greeting is "hello"
	// empty is ""
	// absent is not there
}

// GetTo appends to a buffer that is used again and again.
func ExampleDB_GetTo() {
	db := open(sievedb.Options{}, "a=1 b=22 c=333")
	defer db.Close()
	buf := make([]byte, 0, 64)
	for _, key := range []string{"a", "b", "c"} {
		var err error
		if buf, err = db.GetTo(buf[:0], []byte(key)); err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: %d bytes\n", key, len(buf))
	}
	// Output:
	// a: 1 bytes
	// b: 2 bytes
	// c: 3 bytes
}

func ExampleDB_Has() {
	db := open(sievedb.Options{}, "seen=")
	defer db.Close()
	for _, key := range []string{"seen", "new"} {
		ok, err := db.Has([]byte(key))
		fmt.Println(key, ok, err)
	}
	// Output:
	// seen true <nil>
	// new false <nil>
}

func ExampleDB_Delete() {
	db := open(sievedb.Options{}, "a=1 b=2")
	defer db.Close()
	fmt.Println(db.Delete([]byte("a")))
	fmt.Println(db.Delete([]byte("a"))) // it is gone already
	show(db.All())
	// Output:
	// <nil>
	// <nil>
	// b=2
}

// Scan walks over a range, its upper end exclusive.
func ExampleDB_Scan() {
	db := open(sievedb.Options{}, "a=1 b=2 c=3 d=4")
	defer db.Close()
	show(db.Scan([]byte("b"), []byte("d")))
	show(db.Scan([]byte("b"), nil)) // no upper end
	// Output:
	// b=2 c=3
	// b=2 c=3 d=4
}

func ExampleDB_Prefix() {
	db := open(sievedb.Options{}, "team:1=red user:1=Ada user:2=Grace zoo=1")
	defer db.Close()
	show(db.Prefix([]byte("user:")))
	// Output: user:1=Ada user:2=Grace
}

func ExampleDB_All() {
	db := open(sievedb.Options{}, "b=2 a=1")
	defer db.Close()
	it := db.All()
	for k, v := range it.All() { // closes it, a break included
		fmt.Printf("%s is %s\n", k, v)
	}
	if err := it.Err(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// a is 1
	// b is 2
}

func ExampleIterator_Backward() {
	db := open(sievedb.Options{}, "day:1=Mon day:2=Tue day:3=Wed")
	defer db.Close()
	it := db.Prefix([]byte("day:"))
	for _, v := range it.Backward() {
		fmt.Printf("%s\n", v)
	}
	if err := it.Err(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// Wed
	// Tue
	// Mon
}

// An iterator can be moved by hand, in both directions.
func ExampleIterator_SeekGE() {
	db := open(sievedb.Options{}, "a=1 c=3 e=5")
	defer db.Close()
	it := db.All()
	defer it.Close()
	if it.SeekGE([]byte("b")) {
		fmt.Printf("%s=%s\n", it.Key(), it.Value())
	}
	if it.Prev() {
		fmt.Printf("%s=%s\n", it.Key(), it.Value())
	}
	if it.SeekLT([]byte("z")) {
		fmt.Printf("%s=%s\n", it.Key(), it.Value())
	}
	fmt.Println(it.Next(), it.Err())
	// Output:
	// c=3
	// a=1
	// e=5
	// false <nil>
}

func ExampleDB_Snapshot() {
	db := open(sievedb.Options{}, "a=1 b=2")
	defer db.Close()
	snap := db.Snapshot()
	defer snap.Close()
	if err := db.Delete([]byte("a")); err != nil {
		log.Fatal(err)
	}
	show(snap.All())
	show(db.All())
	// Output:
	// a=1 b=2
	// b=2
}

func ExampleDB_Apply() {
	db := open(sievedb.Options{}, "from=10 to=0")
	defer db.Close()
	b := db.NewBatch()
	b.Put([]byte("from"), []byte("7"))
	b.Put([]byte("to"), []byte("3"))
	b.Delete([]byte("no matter"))
	fmt.Println(b.Len(), "writes:", db.Apply(b, sievedb.SyncAlways))
	show(db.All())
	// Output:
	// 3 writes: <nil>
	// from=7 to=3
}

// A batch can be bound to conditions: all of them hold when it is applied, or
// nothing of it is written.
func ExampleBatch_IfValue() {
	db := open(sievedb.Options{}, "version=1 text=draft")
	defer db.Close()
	b := db.NewBatch()
	b.IfValue([]byte("version"), []byte("1"))
	b.Put([]byte("version"), []byte("2"))
	b.Put([]byte("text"), []byte("final"))
	fmt.Println(db.Apply(b, sievedb.StoreDefault))
	err := db.Apply(b, sievedb.StoreDefault) // the version is 2 now
	fmt.Println("again:", errors.Is(err, sievedb.ErrConflict))
	show(db.All())
	// Output:
	// <nil>
	// again: true
	// text=final version=2
}

// One set of keys is added together, and only if none of it is taken.
func ExampleBatch_IfAbsent() {
	db := open(sievedb.Options{}, "name:ada=1")
	defer db.Close()
	for id, name := range []string{"ada", "grace"} {
		b := db.NewBatch()
		b.IfAbsent([]byte("name:" + name))
		b.Put([]byte("name:"+name), strconv.AppendInt(nil, int64(id), 10))
		b.Put(fmt.Appendf(nil, "id:%d", id), []byte(name))
		fmt.Println(name, errors.Is(db.Apply(b, sievedb.StoreDefault), sievedb.ErrConflict))
	}
	show(db.All())
	// Output:
	// ada true
	// grace false
	// id:1=grace name:ada=1 name:grace=1
}

// Of several that put the same key at once, one does.
func ExampleDB_PutIfAbsent() {
	db := open(sievedb.Options{}, "")
	defer db.Close()
	for _, who := range []string{"worker 1", "worker 2"} {
		done, err := db.PutIfAbsent([]byte("job"), []byte(who))
		fmt.Println(who, done, err)
	}
	show(db.All())
	// Output:
	// worker 1 true <nil>
	// worker 2 false <nil>
	// job=worker 1
}

// A counter that loses no step, however many count.
func ExampleDB_CompareAndSwap() {
	db := open(sievedb.Options{}, "hits=41")
	defer db.Close()
	for {
		old, err := db.Get([]byte("hits"))
		if err != nil {
			log.Fatal(err)
		}
		n, err := strconv.Atoi(string(old))
		if err != nil {
			log.Fatal(err)
		}
		swapped, err := db.CompareAndSwap([]byte("hits"), old, []byte(strconv.Itoa(n+1)))
		if err != nil {
			log.Fatal(err)
		}
		if swapped {
			break
		}
	}
	show(db.All())
	// Output: hits=42
}

// A transaction reads, decides, and writes, as if it were alone. Its function
// is called again if what it read was changed meanwhile.
func ExampleDB_Update() {
	db := open(sievedb.Options{}, "seats=1")
	defer db.Close()
	errFull := errors.New("no seat is left")
	book := func(name string) error {
		return db.Update(func(tx *sievedb.Txn) error {
			seats, err := tx.Get([]byte("seats"))
			if err != nil {
				return err
			}
			if bytes.Equal(seats, []byte("0")) {
				return errFull // and nothing is written
			}
			if err := tx.Put([]byte("seats"), []byte("0")); err != nil {
				return err
			}
			return tx.Put([]byte("booked:"+name), nil)
		})
	}
	fmt.Println(book("Ada"))
	fmt.Println(book("Grace"))
	show(db.All())
	// Output:
	// <nil>
	// no seat is left
	// booked:Ada= seats=0
}

// View reads several keys as they were at one instant.
func ExampleDB_View() {
	db := open(sievedb.Options{}, "from=7 to=3")
	defer db.Close()
	err := db.View(func(tx *sievedb.Txn) error {
		from, err := tx.Get([]byte("from"))
		if err != nil {
			return err
		}
		to, err := tx.Get([]byte("to"))
		if err != nil {
			return err
		}
		fmt.Printf("%s and %s\n", from, to)
		return nil
	})
	fmt.Println(err)
	// Output:
	// 7 and 3
	// <nil>
}

// Flush makes the memtable a table, so that the next Open has nothing to replay.
func ExampleDB_Flush() {
	db := open(sievedb.Options{}, "a=1 b=2")
	defer db.Close()
	fmt.Println(db.Flush(context.Background()))
	fmt.Println(db.Metrics().Flushes, "flush")
	// Output:
	// <nil>
	// 1 flush
}

// Compact gives the space of what was deleted or overwritten back at once,
// which the store otherwise does by and by.
func ExampleDB_Compact() {
	db := open(sievedb.Options{}, "a=1 b=2 c=3")
	defer db.Close()
	if err := db.Delete([]byte("a")); err != nil {
		log.Fatal(err)
	}
	fmt.Println(db.Compact(context.Background(), nil, nil)) // everything
	m := db.Metrics()
	bottom := m.Levels[len(m.Levels)-1]
	fmt.Println(bottom.Entries, "entries,", bottom.Deletes, "tombstones")
	// Output:
	// <nil>
	// 2 entries, 0 tombstones
}

// Writes that are not worth a wait each are made durable together.
func ExampleDB_Sync() {
	db := open(sievedb.Options{Durability: sievedb.SyncNever}, "")
	defer db.Close()
	for i := range 1000 {
		if err := db.Put(fmt.Appendf(nil, "reading %03d", i), []byte("0")); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(db.Sync()) // all or, if it fails, perhaps only the first of them
	// Output: <nil>
}

// Metrics says among much else what the filters saved.
func ExampleDB_Metrics() {
	db := open(sievedb.Options{}, "a=1 c=3 e=5")
	defer db.Close()
	if err := db.Flush(context.Background()); err != nil {
		log.Fatal(err)
	}
	for _, key := range []string{"a", "b"} {
		if _, err := db.Has([]byte(key)); err != nil {
			log.Fatal(err)
		}
	}
	m := db.Metrics() // fmt.Println(m) prints a table of everything
	total := m.Total()
	fmt.Println("tables asked:", total.Probes)
	fmt.Println("had the key:", total.TruePositives)
	fmt.Println("filter said no:", total.Negatives)
	fmt.Println("filter said maybe in vain:", total.FalsePositives)
	// Output:
	// tables asked: 2
	// had the key: 1
	// filter said no: 1
	// filter said maybe in vain: 0
}

// Settings that are left out have defaults, which DB.Options shows.
func ExampleDB_Options() {
	db := open(sievedb.Options{MemtableBytes: 1 << 20}, "")
	defer db.Close()
	o := db.Options()
	fmt.Println(o.Durability, o.MemtableBytes>>20, "MiB,", o.FilterBitsPerKey, "bits")
	// Output: SyncAlways 1 MiB, 10 bits
}

// A store for data that can be had again: no syncs, larger blocks, more bits for
// the filters.
func ExampleOptions() {
	db, err := sievedb.Open("/cache", &sievedb.Options{
		FS:               vfs.NewMem(), // leave it out for a store on disk
		Durability:       sievedb.SyncNever,
		BlockBytes:       16 << 10,
		FilterBitsPerKey: 14,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	fmt.Println(db.Options().Durability)
	// Output: SyncNever
}

// Validate tells of everything that is wrong, not only of the first.
func ExampleOptions_Validate() {
	o := sievedb.Options{BlockBytes: 1, Workers: 1000}
	err := o.Validate()
	fmt.Println(errors.Is(err, sievedb.ErrInvalidArgument))
	fmt.Println(err)
	// Output:
	// true
	// sievedb: invalid argument: options: BlockBytes is 1, not in [64, 32768]
	// Workers is 1000, not in [1, 64]
}

// Two stores share the memory of one cache.
func ExampleNewCache() {
	cache := sievedb.NewCache(64 << 20)
	users := open(sievedb.Options{Cache: cache}, "1=Ada")
	defer users.Close()
	teams := open(sievedb.Options{Cache: cache}, "1=red")
	defer teams.Close()
	for _, db := range []*sievedb.DB{users, teams} {
		if err := db.Flush(context.Background()); err != nil {
			log.Fatal(err)
		}
		show(db.All())
	}
	fmt.Println(users.Metrics().Cache.Blocks == teams.Metrics().Cache.Blocks)
	// Output:
	// 1=Ada
	// 1=red
	// true
}

// A listener hears what the store does by itself. It must not block and not
// write to the store.
func ExampleEventListener() {
	db := open(sievedb.Options{Events: &sievedb.EventListener{
		FlushEnd: func(f sievedb.FlushInfo) {
			fmt.Println("flushed", f.Entries, "entries:", f.Err)
		},
		FatalError: func(err error) {
			fmt.Println("read-only from now on:", err)
		},
	}}, "a=1 b=2")
	defer db.Close()
	if err := db.Flush(context.Background()); err != nil {
		log.Fatal(err)
	}
	// Output: flushed 2 entries: <nil>
}
