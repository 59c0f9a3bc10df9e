package local

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Deleted data takes disk space until Pebble compacts it with its tombstones. On a full
// disk Pebble does not: no new writes push the tombstones out of memory, and there are
// too few tables to merge. So the store requests a compaction.

// garbage is the range of sequence numbers whose removed jobs may still take disk
// space.
type garbage struct {
	mu        sync.Mutex // guards what follows
	low, high uint64     // none if high is 0
	busy      bool       // a compaction is running
}

func (l *garbage) add(low, high uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.high == 0 {
		l.low = low
	}
	l.low, l.high = min(l.low, low), max(l.high, high)
}

// take starts a compaction if there is garbage and none is running.
func (l *garbage) take() (low, high uint64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy || l.high == 0 {
		return 0, 0, false
	}
	low, high = l.low, l.high
	l.low, l.high, l.busy = 0, 0, true
	return low, high, true
}

// forget drops the range: there is enough space, so Pebble can compact when it likes.
func (l *garbage) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.low, l.high = 0, 0
}

func (l *garbage) done() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy = false
}

// How long to wait after a merge that failed for lack of space.
const (
	compactAgain   = time.Second
	compactSlowest = time.Minute
)

// compact starts merging the tables with removed jobs if disk space is short. It does
// not wait for the merge. A part that has no room yet is tried again, until all are merged
// or there is ample space.
func (s *Store) compact() {
	if !s.disk.short() {
		s.garbage.forget()
		return
	}
	if !s.reading() {
		return
	}
	low, high, ok := s.garbage.take()
	if !ok {
		s.reads.Done()
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		select {
		case <-s.stopped: // the store is being closed
		case <-ctx.Done():
		}
		cancel()
	}()
	go func() {
		defer s.reads.Done()
		defer cancel()
		defer s.garbage.done()
		for again := compactAgain; s.failure() == nil && !s.disk.ample(); again = min(2*again, compactSlowest) {
			err := s.merge(ctx, low, high)
			if err == nil || ctx.Err() != nil {
				return
			}
			s.log.Warn("what was removed could not be merged to make room and is tried again", "dir", s.dir, "error", err, "after_ms", again.Milliseconds())
			timer := time.NewTimer(again)
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
			timer.Stop()
		}
	}()
}

// merge merges the tables that hold jobs low to high, and those of dropped events.
// Pebble panics if its log is broken.
func (s *Store) merge(ctx context.Context, low, high uint64) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("merge: %v", r)
			s.fail(err)
		}
	}()
	for _, prefix := range numbered {
		err = either(err, s.mergeParts(ctx, prefix, low, high))
	}
	return either(err, s.mergeParts(ctx, prefixEvents, 0, s.dropped.Load()))
}

// mergeParts merges tables in parts small enough for the free space: a merge writes its
// output before it frees its input. A part that fails for lack of space does not stop
// the others, which may free some.
func (s *Store) mergeParts(ctx context.Context, prefix byte, low, high uint64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	start, end := numberKey(prefix, low), numberKey(prefix, high+1)
	size, err := s.db.EstimateDiskUsage(start, end)
	if err != nil {
		return err
	}
	if size > s.disk.reserve/uint64(forTables) && low < high {
		middle := low + (high-low)/2
		return either(s.mergeParts(ctx, prefix, low, middle), s.mergeParts(ctx, prefix, middle+1, high))
	}
	return s.db.Compact(ctx, start, end, false)
}

// either returns the first error only: the parts of a large store could fail with
// thousands.
func either(first, second error) error {
	if first != nil {
		return first
	}
	return second
}
