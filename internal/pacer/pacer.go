// Package pacer delays writes that come faster than their background work.
package pacer

import (
	"sync"
	"sync/atomic"
	"time"
)

// Pacer delays writes so that they come no faster than a rate. The zero Pacer
// does not delay. It is safe for concurrent use.
type Pacer struct {
	picosPerByte atomic.Int64
	slept        atomic.Int64 // nanoseconds, of all writers together

	mu   sync.Mutex
	next time.Time // guarded by mu: when the writes so far are paid for
}

// maxDelay bounds one delay, of however large a batch.
const maxDelay = time.Second

// maxCredit bounds how far writes may catch up, after sleeps that took longer
// than they were asked to or because none came. Without credit, writers on a busy
// machine, where each sleep lasts some milliseconds too long, get on at a small
// part of the rate.
const maxCredit = 100 * time.Millisecond

// maxPace bounds the delay of one MiB to a second.
const maxPace = 1e6

// Set sets the rate, in picoseconds for each byte; zero is no limit.
func (p *Pacer) Set(picosPerByte float64) {
	p.picosPerByte.Store(int64(min(picosPerByte, maxPace)))
}

// Wait delays a write of sizeBytes bytes, or until closing. Delays too short to
// sleep add up.
func (p *Pacer) Wait(sizeBytes int64, closing <-chan struct{}) {
	rate := p.picosPerByte.Load()
	if rate == 0 {
		return
	}
	now := time.Now()
	p.mu.Lock()
	if earliest := now.Add(-maxCredit); p.next.Before(earliest) {
		p.next = earliest
	}
	p.next = p.next.Add(time.Duration(float64(sizeBytes) * float64(rate) / 1000))
	// The rate may be another by then, so nobody waits longer than this.
	if limit := now.Add(maxDelay); p.next.After(limit) {
		p.next = limit
	}
	delay := p.next.Sub(now)
	p.mu.Unlock()
	if delay < time.Millisecond {
		return
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-closing:
	case <-timer.C:
	}
	p.slept.Add(int64(time.Since(now)))
}

// Slept returns for how long writes were delayed, all writers together.
func (p *Pacer) Slept() time.Duration { return time.Duration(p.slept.Load()) }
