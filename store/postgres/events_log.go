package postgres

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store/codec"
)

// eventLog encodes the events of a segment, each with the id of its job and its queue. The
// queue is empty if it is the same as that of the previous event, and so is the type of the job.
type eventLog struct {
	n     int
	data  []byte
	queue string // of the last event
	typ   string // of the job of the last event
	err   error  // the first one
}

// add appends an event of a job of a queue and type.
func (l *eventLog) add(queue, typ string, e *gq.Event) {
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
	one := *e
	if one.JobType = ""; typ != l.typ && !e.Type.OfProvider() {
		one.JobType, l.typ = typ, typ
	}
	l.data, l.err = codec.AppendEvent(&one, l.data)
	l.n++
}

// eventGuess estimates the size of an encoded event in bytes.
const eventGuess = 32

// maxOmitted is far more events than one job can have in a segment.
const maxOmitted = 1 << 20

// walkLog calls f for the events of a segment in order, with the position of each. A zero
// job id and a count stand for events that trimLog left out. If jobs is given, the log
// contains the ids from before the jobs had these numbers; walkLog computes the final ids
// (see insertFast).
func (k *idKey) walkLog(b []byte, jobs []int64, f func(place int, e gq.Event)) error {
	queue, typ := "", ""
	var before, now gq.JobID // the last id translated, and its final id
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
		if e.Job, e.Queue = id, queue; !e.Type.OfProvider() {
			typ = cmp.Or(e.JobType, typ)
			e.JobType = typ
		}
		f(place, e)
		b = rest
	}
	return nil
}

// decodeLog decodes the events of a segment whose first event has the number seq.
func (k *idKey) decodeLog(b []byte, jobs []int64, seq int64, at time.Time) (events []gq.Event, err error) {
	err = k.walkLog(b, jobs, func(place int, e gq.Event) {
		e.Seq, e.Time = uint64(seq)+uint64(place), at
		events = append(events, e)
	})
	if err != nil {
		return nil, fmt.Errorf("the record of event %d: %w", seq, err)
	}
	return events, nil
}

// trimLog removes the events of jobs that keep rejects. The others keep their positions.
func (k *idKey) trimLog(b []byte, jobs []int64, keep func(gq.JobID) bool) (lean []byte, err error) {
	var out eventLog
	next := 0
	err = k.walkLog(b, jobs, func(place int, e gq.Event) {
		if !keep(e.Job) {
			return
		}
		if place > next {
			out.data = append(out.data, make([]byte, len(e.Job))...)
			out.data = binary.AppendUvarint(out.data, uint64(place-next))
		}
		next = place + 1
		out.add(e.Queue, e.JobType, &e)
	})
	return out.data, errors.Join(err, out.err)
}
