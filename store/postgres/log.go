package postgres

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
)

// appendLog writes the events of a segment: each with the id of its job and its
// queue, which is left empty where it is that of the event before.
func appendLog(b []byte, events []gq.Event) ([]byte, error) {
	queue := ""
	for i := range events {
		e := &events[i]
		b = append(b, e.Job[:]...)
		if e.Queue == queue {
			b = binary.AppendUvarint(b, 0)
		} else {
			queue = e.Queue
			b = append(binary.AppendUvarint(b, uint64(len(queue))), queue...)
		}
		var err error
		if b, err = e.AppendBinary(b); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// decodeLog reads the events of a segment whose first has the number seq.
func decodeLog(b []byte, seq int64, at time.Time) ([]gq.Event, error) {
	corrupt := func() error { return fmt.Errorf("the record of event %d is broken: %w", seq, gq.ErrCorrupt) }
	var events []gq.Event
	queue := ""
	for len(b) > 0 {
		var id gq.JobID
		if len(b) < len(id) {
			return nil, corrupt()
		}
		b = b[copy(id[:], b):]
		size, n := binary.Uvarint(b)
		if n <= 0 || size > uint64(len(b)-n) {
			return nil, corrupt()
		}
		if b = b[n:]; size > 0 {
			queue, b = string(b[:size]), b[size:]
		}
		e, rest, err := gq.DecodeEvent(b)
		if err != nil {
			return nil, fmt.Errorf("the record of event %d: %w", seq, err)
		}
		e.Seq, e.Time, e.Job, e.Queue = uint64(seq)+uint64(len(events)), at, id, queue
		events, b = append(events, e), rest
	}
	return events, nil
}
