package local

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store/codec"
)

// Skim implements [store.Skimmer]. Like Events it takes no lock.
func (s *Store) Skim(ctx context.Context, after uint64, limit int, f func(*gq.Event)) (newest uint64, err error) {
	if ctx.Err() != nil {
		return after, context.Cause(ctx)
	}
	if !s.reading() {
		return after, s.failure()
	}
	defer s.reads.Done()
	last := s.lastEvent.Load()
	if after >= last || limit < 1 {
		return after, nil
	}
	it, err := s.iterate(prefixEvents)
	if err != nil {
		return after, err
	}
	defer func() { err = either(err, damaged(it.Close())) }()
	if dropped := max(s.dropped.Load(), s.gone.Load()); after < dropped { // see Events
		return after, fmt.Errorf("events up to %d are dropped: %w", dropped, gq.ErrGone)
	}
	names := *s.table.names.Load()
	end := min(last, after+uint64(limit))
	var e gq.Event
	for ok := it.SeekLT(numberKey(prefixEvents, after+2)); ok && after < end; ok = it.Next() {
		if after, err = skimRecord(it.Key(), it.Value(), names, after, end, &e, f); err != nil {
			return after, err
		}
	}
	return after, damaged(it.Error())
}

// skimRecord calls f with e for the events of a record after one and up to another, and returns
// the last. See decodeEvents for the format.
func skimRecord(key, b []byte, names []string, after, end uint64, e *gq.Event, f func(*gq.Event)) (uint64, error) {
	bad := func() (uint64, error) { return after, fmt.Errorf("event record %q: %w", key, gq.ErrCorrupt) }
	if len(key) != 9 || len(b) < 10 || b[0] != eventsVersion {
		return bad()
	}
	seq := binary.BigEndian.Uint64(key[1:])
	at := time.Unix(0, int64(binary.BigEndian.Uint64(b[1:]))).UTC()
	count, n := uvarint(b[9:])
	if n == 0 {
		return bad()
	}
	b = b[9+n:]
	queue := ""
	for range count {
		if seq > end {
			break
		}
		if len(b) == 0 || b[0] == 0 && len(b) < 17 {
			return bad()
		}
		if b[0] == 0 {
			b = b[17:]
			number, n := uvarint(b)
			if n == 0 {
				return bad()
			}
			_, m := uvarint(b[n:])
			if m == 0 {
				return bad()
			}
			if queue, b = "", b[n+m:]; number < uint64(len(names)) {
				queue = names[number]
			}
		} else {
			b = b[1:]
		}
		rest, err := codec.SkimEvent(e, b)
		if err != nil {
			return after, fmt.Errorf("event record %q: %w", key, err)
		}
		b = rest
		if seq > after {
			e.Seq, e.Time, e.Queue = seq, at, queue
			f(e)
			after = seq
		}
		seq++
	}
	return after, nil
}
