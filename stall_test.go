package sievedb

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"sievedb/vfs"
)

// TestStalledWriter blocks all flushes until a writer waits for room. Reads of
// every kind go on meanwhile, Flush and Compact obey their context, and Close
// sets the writer free.
func TestStalledWriter(t *testing.T) {
	for _, closes := range []bool{false, true} {
		t.Run(fmt.Sprintf("closed meanwhile: %v", closes), func(t *testing.T) {
			f := vfs.NewFaulty(vfs.NewMem())
			o := tiny
			o.Durability = SyncNever
			db := mustOpen(t, f, "/store", o)
			want := fill(t, db, nil, 20, 0)
			gate := make(chan struct{})
			f.SetHook(func(c vfs.Call) {
				if ok, _ := filepath.Match("*.sst", filepath.Base(c.Name)); ok && c.Op == vfs.OpCreate {
					<-gate
				}
			})
			writer := make(chan error, 1)
			go func() {
				for i := range 5000 {
					if err := db.Put(fmt.Appendf(nil, "more-%05d", i), make([]byte, 100)); err != nil {
						writer <- err
						return
					}
				}
				writer <- nil
			}()
			for db.Metrics().Stalls == 0 {
				runtime.Gosched()
			}

			it := db.Prefix([]byte("key-"))
			n := 0
			for range it.All() {
				n++
			}
			if n != len(want) || it.Err() != nil {
				t.Errorf("a scan sees %d keys: %v", n, it.Err())
			}
			if v, err := db.Get(want[3].key); err != nil || string(v) != string(want[3].value) {
				t.Errorf("get: %v", err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			for name, call := range map[string]func() error{
				"flush":   func() error { return db.Flush(ctx) },
				"compact": func() error { return db.Compact(ctx, nil, nil) },
			} {
				done := make(chan error, 1)
				go func() { done <- call() }()
				select {
				case err := <-done:
					if !errors.Is(err, context.Canceled) {
						t.Errorf("%s: %v", name, err)
					}
				case <-time.After(5 * time.Second): // instead of a hang of the test
					t.Errorf("%s does not obey its context", name)
				}
			}
			if closes {
				closed := make(chan error)
				go func() { closed <- db.Close() }()
				if err := <-writer; !errors.Is(err, ErrClosed) {
					t.Errorf("the writer: %v", err)
				}
				close(gate)
				must(t, <-closed)
				return
			}
			close(gate)
			must(t, <-writer)
			must(t, db.Close())
		})
	}
}
