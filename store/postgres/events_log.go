package postgres

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store/codec"
)

// eventLog is the events of a segment as they are written: each with the id of its
// job and its queue, which is left empty where it is that of the event before.
type eventLog struct {
	n     int
	data  []byte
	queue string // of the last one
	err   error  // the first
}

// add writes an event of a queue.
func (l *eventLog) add(queue string, e *gq.Event) {
	if l.err != nil {
		return
	}
	l.data = append(l.data, e.Job[:]...)
	if queue == l.queue {
		l.data = append(l.data, 0)
	} else {
		l.queue = queue
		l.data = append(binary.AppendUvarint(l.data, uint64(len(queue))), queue...)
	}
	l.data, l.err = codec.AppendEvent(e, l.data)
	l.n++
}

// eventGuess is how many bytes an event has.
const eventGuess = 32

// maxOmitted is how many events of a job a segment may have, by far.
const maxOmitted = 1 << 20

// walkLog reads the events of a segment in their order, each with its place in
// it. Where events have been left out there is no id of a job but a zero one, and
// how many they were. Where jobs are given, the ids are those that the jobs had before
// they had these numbers: see insertFast.
func (k *idKey) walkLog(b []byte, jobs []int64, f func(place int, e gq.Event, encoded []byte)) error {
	queue := ""
	var before, now gq.JobID // the last id that was translated
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
		if id.IsZero() && size > maxWeight*maxOmitted {
			return gq.ErrCorrupt
		}
		if id.IsZero() {
			place += int(size) - 1
			continue
		}
		if size > uint64(len(b)) {
			return gq.ErrCorrupt
		}
		if size > 0 {
			queue, b = string(b[:size]), b[size:]
		}
		e, rest, err := codec.DecodeEvent(b)
		if err != nil {
			return err
		}
		if jobs != nil || !before.IsZero() {
			if id != before && len(jobs) == 0 {
				return gq.ErrCorrupt
			}
			if id != before {
				before, now, jobs = id, k.id(jobs[0], id), jobs[1:]
			}
			id = now
		}
		e.Job, e.Queue = id, queue
		f(place, e, b[:len(b)-len(rest)])
		b = rest
	}
	return nil
}

// decodeLog reads the events of a segment whose first has the number seq.
func (k *idKey) decodeLog(b []byte, jobs []int64, seq int64, at time.Time) (events []gq.Event, err error) {
	err = k.walkLog(b, jobs, func(place int, e gq.Event, _ []byte) {
		e.Seq, e.Time = uint64(seq)+uint64(place), at
		events = append(events, e)
	})
	if err != nil {
		return nil, fmt.Errorf("the record of event %d: %w", seq, err)
	}
	return events, nil
}

// trimLog leaves out the events of jobs that are not kept. The others stay in
// their places.
func (k *idKey) trimLog(b []byte, jobs []int64, keep func(gq.JobID) bool) (lean []byte, err error) {
	queue, next := "", 0
	err = k.walkLog(b, jobs, func(place int, e gq.Event, encoded []byte) {
		if !keep(e.Job) {
			return
		}
		if place > next {
			lean = append(lean, make([]byte, len(e.Job))...)
			lean = binary.AppendUvarint(lean, uint64(place-next))
		}
		next = place + 1
		lean = append(lean, e.Job[:]...)
		if e.Queue == queue {
			lean = binary.AppendUvarint(lean, 0)
		} else {
			queue = e.Queue
			lean = append(binary.AppendUvarint(lean, uint64(len(queue))), queue...)
		}
		lean = append(lean, encoded...)
	})
	return lean, err
}
