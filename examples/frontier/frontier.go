package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"sievedb"
)

// frontier is the state of a crawl, in a store. It is safe for concurrent use.
type frontier struct {
	db        *sievedb.DB
	run       int // counts the openings of the store
	takenOver atomic.Int64
}

// Keys, and the values under url/.
const (
	urlPrefix  = "url/"
	todoPrefix = "todo/"
	todoEnd    = "todo0" // the first key after those that begin with todo/
	waiting    = "waiting"
)

var (
	pagesKey = []byte("pages")
	runsKey  = []byte("runs")
)

func urlKey(url string) []byte  { return []byte(urlPrefix + url) }
func todoKey(url string) []byte { return []byte(todoPrefix + url) }

// openFrontier opens the store in dir, or makes one, with the first page of the
// web as the only URL.
func openFrontier(dir string, web web) (*frontier, error) {
	db, err := sievedb.Open(dir, nil)
	if err != nil {
		return nil, err
	}
	f := &frontier{db: db}
	if err := f.begin(web); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return f, nil
}

func (f *frontier) close() error { return f.db.Close() }

func (f *frontier) begin(web web) error {
	pages := []byte(strconv.Itoa(web.pages))
	first, err := f.db.PutIfAbsent(pagesKey, pages)
	if err != nil {
		return err
	}
	if !first {
		before, err := f.db.Get(pagesKey)
		if err != nil {
			return err
		}
		if string(before) != string(pages) {
			return fmt.Errorf("the store holds a crawl of %s URLs, not of %s", before, pages)
		}
	}
	return f.db.Update(func(tx *sievedb.Txn) error {
		runs, err := tx.Get(runsKey)
		if err != nil && !errors.Is(err, sievedb.ErrNotFound) {
			return err
		}
		f.run = 1
		if runs != nil {
			n, err := strconv.Atoi(string(runs))
			if err != nil {
				return fmt.Errorf("the number of runs: %w", err)
			}
			f.run = n + 1
		}
		if err := tx.Put(runsKey, []byte(strconv.Itoa(f.run))); err != nil {
			return err
		}
		return add(tx, web.url(0))
	})
}

// add makes a URL known and waiting, if it is not known yet.
func add(tx *sievedb.Txn, url string) error {
	known, err := tx.Has(urlKey(url))
	if known || err != nil {
		return err
	}
	if err := tx.Put(urlKey(url), []byte(waiting)); err != nil {
		return err
	}
	return tx.Put(todoKey(url), nil)
}

// audit returns how many URLs are done, by which run, and how many are not.
func (f *frontier) audit() (done map[string]int, unfinished int, err error) {
	done = map[string]int{}
	err = f.db.View(func(tx *sievedb.Txn) error {
		urls := tx.Prefix([]byte(urlPrefix))
		for _, state := range urls.All() {
			if string(state) == waiting {
				unfinished++
			} else {
				done[string(state)]++
			}
		}
		todo := tx.Prefix([]byte(todoPrefix))
		left := 0
		for range todo.All() {
			left++
		}
		if err := errors.Join(urls.Err(), todo.Err()); err != nil {
			return err
		}
		if left != unfinished {
			return fmt.Errorf("%d URLs are not done, and %d are to be done", unfinished, left)
		}
		return nil
	})
	return done, unfinished, err
}

// worker takes URLs from the frontier. It is for one goroutine.
type worker struct {
	*frontier
	name   string
	cursor []byte      // where to look on
	found  []candidate // seen to be free, and not tried yet
}

// candidate is an entry under todo/ that is not claimed by this run.
type candidate struct {
	key, holder []byte
}

// worker returns one of several, which begin at different places in order to
// get little in each other's way.
func (f *frontier) worker(id, of int) *worker {
	return &worker{
		frontier: f,
		name:     fmt.Sprintf("run %d worker %d", f.run, id),
		cursor:   fmt.Appendf(nil, "%shttps://site%03d", todoPrefix, id*sites/of),
	}
}

// claim returns a URL that is now this worker's alone, or "" if all are done.
func (w *worker) claim() (url string, err error) {
	for {
		for len(w.found) > 0 {
			c := w.found[0]
			w.found = w.found[1:]
			mine, err := w.db.CompareAndSwap(c.key, c.holder, []byte(w.name))
			if err != nil {
				return "", err
			}
			if mine {
				if len(c.holder) > 0 {
					w.takenOver.Add(1)
				}
				return string(c.key[len(todoPrefix):]), nil
			}
		}
		if left, err := w.look(); !left || err != nil {
			return "", err
		}
	}
}

// look finds candidates, and reports whether any URL is left to be done.
func (w *worker) look() (left bool, err error) {
	if _, err := w.scan(w.cursor); len(w.found) > 0 || err != nil {
		return true, err
	}
	left, err = w.scan([]byte(todoPrefix))
	if left && len(w.found) == 0 {
		// The others are at work on all that are left, and may find more.
		time.Sleep(time.Millisecond)
	}
	return left, err
}

// scan collects candidates from a key on, and reports whether there is
// anything at all.
func (w *worker) scan(from []byte) (left bool, err error) {
	const enough = 32
	ours := fmt.Sprintf("run %d ", w.run)
	todo := w.db.Scan(from, []byte(todoEnd))
	for key, holder := range todo.All() {
		left = true
		if strings.HasPrefix(string(holder), ours) {
			continue
		}
		w.found = append(w.found, candidate{append([]byte(nil), key...), append([]byte(nil), holder...)})
		if len(w.found) == enough {
			break
		}
	}
	if len(w.found) > 0 {
		w.cursor = w.found[len(w.found)-1].key
	}
	return left, todo.Err()
}

// finish makes the links of a claimed URL known, and the URL itself done.
func (w *worker) finish(url string, links []string) error {
	return w.db.Update(func(tx *sievedb.Txn) error {
		holder, err := tx.Get(todoKey(url))
		if err != nil || string(holder) != w.name {
			return fmt.Errorf("%s claimed %s, which is held by %q: %w", w.name, url, holder, err)
		}
		for _, link := range links {
			if err := add(tx, link); err != nil {
				return err
			}
		}
		if err := tx.Delete(todoKey(url)); err != nil {
			return err
		}
		return tx.Put(urlKey(url), fmt.Appendf(nil, "done by run %d", w.run))
	})
}
