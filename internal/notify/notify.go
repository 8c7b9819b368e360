// Package notify delivers events: one at a time, in the order in which they were
// posted, while no lock is held. Whoever sees something posts it, under whatever
// lock, and whoever holds none delivers.
//
//	notify.Post(&q, listener.FlushEnd, info, slog.LevelInfo, err, "flush ends", slog.Uint64("bytes", n))
//	mu.Unlock()
//	q.Deliver()
//
// A Queue is safe for concurrent use once it is configured.
package notify

import (
	"context"
	"log/slog"
	"sync"
)

// Queue holds what was posted and not yet delivered. The zero Queue drops all.
type Queue struct {
	log *slog.Logger
	on  bool // there is a listener or a logger

	mu sync.Mutex // never held while something is called
	// Guarded by mu:
	queue      []func()
	delivering bool
	told       map[string]bool
}

// Configure says who is interested: a logger, which may be nil, and perhaps a
// listener. Call it before anything is posted.
func (q *Queue) Configure(log *slog.Logger, listening bool) {
	q.log, q.on = log, listening || log != nil
	q.told = make(map[string]bool)
}

// On reports whether anybody is interested.
func (q *Queue) On() bool { return q.on }

// Post queues one event: a call, unless it is nil, and a line of the log. A
// failure raises the level of that, and is its last attribute.
func Post[T any](q *Queue, call func(T), info T, level slog.Level, err error, message string, attrs ...slog.Attr) {
	if !q.on {
		return
	}
	if err != nil {
		attrs = append(attrs, slog.Any("error", err))
		level = max(level, slog.LevelWarn)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queue = append(q.queue, func() {
		if call != nil {
			call(info)
		}
		if q.log != nil {
			q.log.LogAttrs(context.Background(), level, message, attrs...)
		}
	})
}

// Deliver delivers what was posted, unless somebody is at it, who then goes on
// until nothing is left. A delivery that causes events itself finds that out,
// too. Call it with no lock held.
func (q *Queue) Deliver() {
	if !q.on {
		return
	}
	q.mu.Lock()
	if q.delivering {
		q.mu.Unlock()
		return
	}
	q.delivering = true
	for len(q.queue) > 0 {
		next := q.queue[0]
		q.queue = q.queue[1:]
		q.mu.Unlock()
		next()
		q.mu.Lock()
	}
	q.queue, q.delivering = nil, false
	q.mu.Unlock()
}

// First reports whether what is told for the first time.
func (q *Queue) First(what string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	told := q.told[what]
	q.told[what] = true
	return !told
}
