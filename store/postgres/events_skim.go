package postgres

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store/codec"
)

// Skim implements [store.Skimmer].
func (s *Store) Skim(ctx context.Context, after uint64, limit int, f func(*gq.Event)) (uint64, error) {
	last, err := s.sequenced(ctx)
	if err != nil || after >= uint64(last) || limit < 1 || after >= math.MaxInt64 {
		return after, err
	}
	// A transaction that is repeated after a lost connection must not report events twice.
	var found []skimmed
	err = s.read(ctx, func(tx *txn) error {
		found = found[:0]
		var gone int64
		if err := tx.QueryRow(ctx, "SELECT greatest(gone, (SELECT max(gone) FROM gq.partition)) FROM gq.head").Scan(&gone); err != nil {
			return err
		}
		if after < uint64(gone) {
			return fmt.Errorf("after %d: not all events up to %d are there: %w", after, gone, gq.ErrGone)
		}
		found, err = tx.skim(ctx, int64(after), limit, found)
		return err
	})
	if err != nil {
		return after, err
	}
	for i := range found {
		v := &found[i]
		f(&gq.Event{
			Seq: v.seq, Time: instant(v.at), Queue: v.queue, Type: v.typ, Status: v.status,
			LeaseState: v.lease, Elapsed: v.elapsed, Failure: v.failure,
		})
		after = v.seq
	}
	return after, nil
}

// skimmed is the part of an event that Skim returns.
type skimmed struct {
	seq     uint64
	at      int64
	queue   string
	elapsed time.Duration
	failure *gq.Failure
	typ     gq.EventType
	status  gq.Status
	lease   gq.LeaseState
}

// skim appends up to limit events after a number, as eventsAfter reads them.
func (tx *txn) skim(ctx context.Context, after int64, limit int, out []skimmed) ([]skimmed, error) {
	err := tx.segmentsAfter(ctx, after, limit, "", nil, func(seq, at int64, data []byte) (int64, error) {
		last := seq
		err := skimLog(data, func(place int, e *gq.Event) {
			last = seq + int64(place)
			if last > after && len(out) < limit {
				out = append(out, skimmed{uint64(last), at, e.Queue, e.Elapsed, e.Failure, e.Type, e.Status, e.LeaseState})
			}
		})
		return last, err
	}, func() bool { return len(out) < limit })
	return out, err
}

// skimLog is walkLog for readers that only count: it does not compute the ids of jobs.
func skimLog(b []byte, f func(place int, e *gq.Event)) error {
	queue := ""
	var e gq.Event
	for place := 0; len(b) > 0; place++ {
		var id gq.JobID
		if len(b) < len(id) {
			return gq.ErrCorrupt
		}
		b = b[copy(id[:], b):]
		size, n := binary.Uvarint(b)
		if n <= 0 {
			return gq.ErrCorrupt
		}
		b = b[n:]
		if id.IsZero() {
			if size > maxWeight*maxOmitted {
				return gq.ErrCorrupt
			}
			place += int(size) - 1
			continue
		}
		if size > uint64(len(b)) {
			return gq.ErrCorrupt
		}
		if name := b[:size]; size > 0 && string(name) != queue {
			queue = string(name)
		}
		rest, err := codec.SkimEvent(&e, b[size:])
		if err != nil {
			return err
		}
		b, e.Queue = rest, queue
		f(place, &e)
	}
	return nil
}
