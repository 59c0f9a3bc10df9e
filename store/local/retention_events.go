package local

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store/codec"
)

// dropEvents removes the part of the log that all cursors have passed. It moves the
// events of kept jobs to their jobs.
func (tx *txn) dropEvents() (err error) {
	s := tx.s
	horizon := slices.Min(s.marks.cursors[:])
	if horizon <= s.marks.dropped+1 {
		return nil
	}
	kept := map[uint64]*eventWriter{}
	it, err := s.iterate(prefixEvents)
	if err != nil {
		return err
	}
	defer func() { err = either(err, damaged(it.Close())) }()
	end := s.marks.dropped + 1 // of the part to remove
	for ok := it.First(); ok; ok = it.Next() {
		last, err := lastOf(it.Key(), it.Value())
		if err != nil {
			return err
		}
		if last >= horizon {
			break
		}
		end = last + 1
		var visitErr error
		err = s.visitEvents(it.Key(), it.Value(), func(e *storedEvent) bool {
			seq, alive, err := tx.keptSequence(e.Job)
			if err != nil {
				visitErr = err
				return false
			}
			if alive {
				visitErr = tx.carry(kept, seq, e)
			}
			return visitErr == nil
		})
		if err = errors.Join(err, visitErr); err != nil {
			return err
		}
	}
	if err := damaged(it.Error()); err != nil {
		return err
	}
	for seq, w := range kept {
		tx.put(prefixHistory, seq, w.b)
	}
	if end > s.marks.dropped+1 {
		tx.removeRange(numberKey(prefixEvents, 0), numberKey(prefixEvents, end))
	}
	s.marks.dropped = end - 1
	s.dropped.Store(end - 1)
	return nil
}

// lastOf returns the last event of a record.
func lastOf(key, value []byte) (uint64, error) {
	if len(key) != 9 || len(value) < 10 {
		return 0, fmt.Errorf("event record %q: %w", key, gq.ErrCorrupt)
	}
	count, n := binary.Uvarint(value[9:])
	if n <= 0 || count == 0 {
		return 0, fmt.Errorf("event record %q: %w", key, gq.ErrCorrupt)
	}
	return binary.BigEndian.Uint64(key[1:]) + count - 1, nil
}

// keptSequence returns a job's sequence number and whether the job is kept.
func (tx *txn) keptSequence(id gq.JobID) (uint64, bool, error) {
	if j := tx.t.get(id); j != nil {
		return j.seq, true, nil
	}
	k, _, err := tx.ended(id)
	if errors.Is(err, gq.ErrNotFound) {
		return 0, false, nil
	}
	return k.seq, err == nil, err
}

// carry appends an event to its job's own history: the sequence number, the time and
// the event, one after the other.
func (tx *txn) carry(kept map[uint64]*eventWriter, seq uint64, e *storedEvent) error {
	w := kept[seq]
	if w == nil {
		w = &eventWriter{}
		kept[seq] = w
		old, err := tx.s.read(numberKey(prefixHistory, seq))
		if err != nil && !errors.Is(err, gq.ErrNotFound) {
			return err
		}
		w.b = old
	}
	w.b = appendCarried(w.b, e)
	return nil
}

func appendCarried(b []byte, e *storedEvent) []byte {
	b = binary.BigEndian.AppendUint64(b, e.Seq)
	b = binary.BigEndian.AppendUint64(b, uint64(e.Time.UnixNano()))
	b = binary.BigEndian.AppendUint32(b, e.queue)
	b = append(b, e.Job[:]...)
	b, _ = codec.AppendEvent(&e.Event, b) // never fails
	return b
}

// carried reads the events that carry moved to a job.
func (s *Store) carried(seq uint64) ([]gq.Event, error) {
	raw, err := s.read(numberKey(prefixHistory, seq))
	if errors.Is(err, gq.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return decodeCarried(raw, func(number uint32) string {
		if t := s.table; int(number) < len(t.numbers) && t.numbers[number] != nil {
			return t.numbers[number].config.Name
		}
		return ""
	})
}

func decodeCarried(b []byte, name func(queue uint32) string) (events []gq.Event, err error) {
	const head = 8 + 8 + 4 + 16
	for first := true; first || len(b) > 0; first = false {
		if len(b) < head {
			return nil, fmt.Errorf("kept history: %w", gq.ErrCorrupt)
		}
		seq, at, queue := binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint32(b[16:])
		id := gq.JobID(b[20:head])
		var e gq.Event
		if e, b, err = codec.DecodeEvent(b[head:]); err != nil {
			return nil, err
		}
		e.Seq, e.Time, e.Job, e.Queue = seq, time.Unix(0, int64(at)).UTC(), id, name(queue)
		events = append(events, e)
	}
	return events, nil
}
