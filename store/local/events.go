package local

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
)

// Events implements [store.Store]. It takes no lock, since followers of the log call it
// all the time and durable events do not change.
func (s *Store) Events(ctx context.Context, after uint64, limit int) (out []gq.Event, err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if !s.reading() {
		return nil, s.failure()
	}
	defer s.reads.Done()
	last := s.lastEvent.Load()
	it, err := s.iterate(prefixEvents)
	if err != nil {
		return nil, err
	}
	defer func() { err = either(err, damaged(it.Close())) }()
	if dropped := max(s.dropped.Load(), s.gone.Load()); after < dropped { // checked after the iterator exists, which then sees all later events
		return nil, fmt.Errorf("events up to %d are dropped: %w", dropped, gq.ErrGone)
	}
	if after >= last || limit < 1 {
		return nil, nil
	}
	out = make([]gq.Event, 0, min(last-after, uint64(limit)))
	// The record that holds the first wanted event begins at or before it.
	ok := it.SeekLT(numberKey(prefixEvents, after+2))
	for ; ok && len(out) < limit; ok = it.Next() {
		more := true
		err := s.visitEvents(it.Key(), it.Value(), func(e *storedEvent) bool {
			if e.Seq > last { // not durable yet
				more = false
			} else if e.Seq > after {
				out = append(out, e.Event)
			}
			return more && len(out) < limit
		})
		if err != nil {
			return nil, err
		}
		if !more {
			break
		}
	}
	if err := damaged(it.Error()); err != nil {
		return nil, err
	}
	return out, nil
}

// LastEvent implements [store.Store].
func (s *Store) LastEvent(ctx context.Context) (last uint64, err error) {
	if err := s.usable(ctx); err != nil {
		return 0, err
	}
	return s.lastEvent.Load(), nil
}

// visitEvents decodes a record of events and sets their queue names.
func (s *Store) visitEvents(key, value []byte, visit func(*storedEvent) bool) error {
	if len(key) != 9 {
		return fmt.Errorf("event key %q: %w", key, gq.ErrCorrupt)
	}
	names := *s.table.names.Load()
	return decodeEvents(value, binary.BigEndian.Uint64(key[1:]), func(e *storedEvent) bool {
		if int(e.queue) < len(names) {
			e.Queue = names[e.queue]
		}
		return visit(e)
	})
}

// History implements [store.Store].
func (s *Store) History(ctx context.Context, id gq.JobID) ([]gq.Event, error) {
	var out []gq.Event
	err := s.view(ctx, diskToo, func(time.Time) (then, error) {
		h, state, err := s.state(id)
		if err == nil {
			out, err = s.history(id, state.Sequence, h.lastEvent)
		}
		return nil, err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// history reads a job's event records from the newest back, then the events that were
// moved out of the log. The caller holds the lock.
func (s *Store) history(id gq.JobID, seq, last uint64) ([]gq.Event, error) {
	var parts [][]gq.Event
	for at := last; at > s.dropped.Load(); {
		raw, err := s.read(numberKey(prefixEvents, at))
		if err != nil {
			return nil, fmt.Errorf("event record %d of job %s: %w", at, id, corrupt(err))
		}
		var part []gq.Event
		next := uint64(0)
		err = s.visitEvents(numberKey(prefixEvents, at), raw, func(e *storedEvent) bool {
			if e.Job == id {
				if len(part) == 0 {
					next = e.previous
				}
				part = append(part, e.Event)
			}
			return true
		})
		if err != nil {
			return nil, err
		}
		if next >= at {
			return nil, fmt.Errorf("event record %d of job %s points forward: %w", at, id, gq.ErrCorrupt)
		}
		parts = append(parts, part)
		at = next
	}
	old, err := s.carried(seq)
	if err != nil {
		return nil, err
	}
	for _, part := range slices.Backward(parts) {
		old = append(old, part...)
	}
	return old, nil
}
