// Command frontier crawls a made-up web with concurrent workers and keeps the
// URL frontier of the crawl in a store: which URLs are known, which wait, who
// works on which, which are done. No URL is lost and none is claimed twice,
// whatever happens to the process. There is no network; the links of each page
// are computed from its number.
//
//	go run ./examples/frontier                                        # 20000 URLs
//	go run ./examples/frontier -urls 1000000 -dir /tmp/crawl -stop-after 300000
//	go run ./examples/frontier -urls 1000000 -dir /tmp/crawl          # goes on
//
// The second command dies like a process that is killed: nothing is closed or
// flushed. Kill it at any other moment, and the third still goes on.
//
// # How it works
//
// There are two keys for each URL that is known and not done, one for each that
// is done:
//
//	url/<url>   "waiting", or "done by run 2"
//	todo/<url>  "", or who has claimed it: "run 2 worker 5"
//
// A worker claims a URL by DB.CompareAndSwap of what it found under todo/ for
// its own name. Of several that try, one succeeds. A claim by an earlier run is
// one by a dead process, since a store is used by one process at a time: it is
// for the taking like one by nobody, so there is nothing to repair at a start.
//
// It finishes the URL in one DB.Update: the links that are not known yet become
// known and wait, and the URL itself is done. With less than a transaction a
// crash in between could lose them: known, so nobody adds them again, and not
// waiting. Whether a link is known is asked for every link; where it is not, the
// filters say so without reading a table.
//
// Both calls return once they are durable, so a URL costs two synced writes;
// workers that write at once share a sync.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

func main() {
	err := run(os.Args[1:], os.Stdout)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "frontier:", err)
		os.Exit(1)
	}
}

type config struct {
	urls, workers, stopAfter int
	dir                      string
}

func parse(args []string) (c config, err error) {
	flags := flag.NewFlagSet("frontier", flag.ContinueOnError)
	flags.IntVar(&c.urls, "urls", 20_000, "number of URLs of the web")
	flags.IntVar(&c.workers, "workers", 8, "number of concurrent workers")
	flags.StringVar(&c.dir, "dir", "", "directory of the store; without it, a temporary one that is removed")
	flags.IntVar(&c.stopAfter, "stop-after", 0, "die after so many URLs, without closing the store; 0 is never")
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	switch {
	case flags.NArg() > 0:
		return c, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case c.urls < 1 || c.workers < 1 || c.stopAfter < 0:
		return c, errors.New("-urls and -workers must be at least 1, -stop-after at least 0")
	case c.stopAfter > 0 && c.dir == "":
		return c, errors.New("-stop-after needs -dir, to go on from")
	}
	return c, nil
}

func run(args []string, out io.Writer) (err error) {
	c, err := parse(args)
	if err != nil {
		return err
	}
	if c.dir == "" {
		if c.dir, err = os.MkdirTemp("", "frontier-"); err != nil {
			return err
		}
		defer os.RemoveAll(c.dir)
	}
	web := web{pages: c.urls}
	f, err := openFrontier(c.dir, web)
	if err != nil {
		return err
	}
	start := time.Now()
	finished, err := crawl(f, web, c, out)
	took := time.Since(start)
	fmt.Fprintf(out, "run %d: %d URLs in %.1f s by %d workers, %.0f a second; %d claims taken over from earlier runs\n",
		f.run, finished, took.Seconds(), c.workers, float64(finished)/took.Seconds(), f.takenOver.Load())
	if errors.Is(err, errStopped) {
		fmt.Fprintln(out, "dying; the same command without -stop-after goes on")
		return nil // and nothing is closed
	}
	if err == nil {
		err = report(f, web, out)
	}
	return errors.Join(err, f.close())
}

var errStopped = errors.New("stopped as asked")

// crawl runs workers until no URL is left, one of them fails, or so many URLs
// are finished as the process should live for.
func crawl(f *frontier, web web, c config, out io.Writer) (finished int64, err error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	var count atomic.Int64
	var workers sync.WaitGroup
	for id := range c.workers {
		w := f.worker(id, c.workers)
		workers.Go(func() {
			for ctx.Err() == nil {
				url, err := w.claim()
				if err != nil || url == "" {
					cancel(err)
					return
				}
				links, err := web.fetch(url)
				if ctx.Err() != nil {
					return // dead, with a claim
				}
				if err == nil {
					err = w.finish(url, links)
				}
				if err != nil {
					cancel(err)
					return
				}
				n := count.Add(1)
				if n%int64(max(c.urls/10, 1)) == 0 {
					fmt.Fprintf(out, "finished %d\n", n)
				}
				if n == int64(c.stopAfter) {
					cancel(errStopped)
				}
			}
		})
	}
	workers.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return count.Load(), err
	}
	return count.Load(), nil
}

// report looks at the whole store: every URL of the web must be there and done.
func report(f *frontier, web web, out io.Writer) error {
	done, unfinished, err := f.audit()
	if err != nil {
		return err
	}
	total := 0
	for _, by := range slices.Sorted(maps.Keys(done)) {
		fmt.Fprintf(out, "%8d %s\n", done[by], by)
		total += done[by]
	}
	if total != web.pages || unfinished != 0 {
		return fmt.Errorf("%d of %d URLs are done, %d are not", total, web.pages, unfinished)
	}
	fmt.Fprintf(out, "all %d URLs are done, each once\n", total)
	return nil
}
