// Package history is the arithmetic of queue history: it counts events by minute and hour, and
// encodes the counts. It does no I/O and reads no clock.
package history

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

var errForm = fmt.Errorf("history of a queue: %w", gq.ErrCorrupt)

// maxCount is far more than one interval can have, and small enough to add up.
const maxCount = 1 << 48

// The counts of a point, in the order of their encoding.
const (
	submitted = iota
	started
	completed
	failed
	retried
	deadLettered
	cancelled
	lost
	counters
)

// Point counts what happened in one interval.
type Point struct {
	counts    [counters]int64
	wait, run Sketch
}

// Counts reports whether an event is counted.
func Counts(e *gq.Event) bool {
	switch e.Type {
	case gq.EventSubmitted, gq.EventStarted, gq.EventCompleted, gq.EventFailed, gq.EventRetrying, gq.EventDeadLettered, gq.EventCancelled:
		return true
	default:
		return false
	}
}

// Add counts an event.
func (p *Point) Add(e *gq.Event) {
	switch e.Type {
	case gq.EventSubmitted:
		p.counts[submitted]++
	case gq.EventStarted:
		p.counts[started]++
		p.wait.Add(e.Elapsed)
	case gq.EventCompleted:
		p.counts[completed]++
	case gq.EventFailed:
		p.counts[failed]++
	case gq.EventRetrying:
		p.counts[retried]++
	case gq.EventDeadLettered:
		p.counts[deadLettered]++
	case gq.EventCancelled:
		p.counts[cancelled]++
	default: // not counted
	}
	if machine.EndsRun(e) {
		p.run.Add(e.Elapsed)
		if e.LeaseState == gq.LeaseExpired {
			p.counts[lost]++
		}
	}
}

// Merge adds another point.
func (p *Point) Merge(o *Point) {
	for i, n := range o.counts {
		p.counts[i] += n
	}
	p.wait.Merge(&o.wait)
	p.run.Merge(&o.run)
}

// Empty reports whether nothing happened.
func (p *Point) Empty() bool { return p.counts == [counters]int64{} }

// Fill sets everything but the time.
func (p *Point) Fill(to *gq.HistoryPoint) {
	c := &p.counts
	to.Submitted, to.Started, to.Completed, to.Failed = c[submitted], c[started], c[completed], c[failed]
	to.Retried, to.DeadLettered, to.Cancelled, to.Lost = c[retried], c[deadLettered], c[cancelled], c[lost]
	to.Wait, to.Run = p.wait.Latency(), p.run.Latency()
}

// append encodes a point: a bit for each count that is not zero and these, then the sketches.
func (p *Point) append(b []byte) []byte {
	at := len(b)
	b = append(b, 0)
	for i, n := range p.counts {
		if n != 0 {
			b[at] |= 1 << i
			b = binary.AppendUvarint(b, uint64(n))
		}
	}
	return p.run.append(p.wait.append(b))
}

// read decodes a point from the front of b, adds it, and returns the rest.
func (p *Point) read(b []byte) ([]byte, error) {
	if len(b) == 0 {
		return nil, errForm
	}
	has := b[0]
	b = b[1:]
	for i := range p.counts {
		if has&(1<<i) == 0 {
			continue
		}
		v, n := binary.Uvarint(b)
		if n <= 0 || v > maxCount {
			return nil, errForm
		}
		p.counts[i] += int64(v)
		b = b[n:]
	}
	b, err := p.wait.read(b)
	if err != nil {
		return nil, err
	}
	return p.run.read(b)
}

const (
	Minutes  = 60 // of an hour
	DayHours = 24 // of a day
)

// Hour is what happened in an hour, by the minute.
type Hour struct{ minutes [Minutes]*Point }

// HourOf numbers the hours since 1970.
func HourOf(t time.Time) int64 { return t.Unix() / 3600 }

// StartOf returns the beginning of an hour.
func StartOf(hour int64) time.Time { return time.Unix(hour*3600, 0).UTC() }

// Add counts an event at its minute.
func (h *Hour) Add(e *gq.Event) { at(h.minutes[:], int(e.Time.Unix()/60%Minutes)).Add(e) }

// Merge adds another record of the same hour.
func (h *Hour) Merge(o *Hour) { merge(h.minutes[:], o.minutes[:]) }

// Sum adds what happened from a minute of the hour up to another one, which is not included.
func (h *Hour) Sum(to *Point, from, end int) {
	for _, p := range h.minutes[max(from, 0):min(end, Minutes)] {
		if p != nil {
			to.Merge(p)
		}
	}
}

// Append encodes an hour.
func (h *Hour) Append(b []byte) []byte { return appendPoints(b, h.minutes[:]) }

// Decode adds an encoded hour.
func (h *Hour) Decode(b []byte) error { return decodePoints(b, h.minutes[:]) }

// Day is what happened in a day, by the hour.
type Day struct{ hours [DayHours]*Point }

// Add adds an hour of the day.
func (d *Day) Add(hour int64, o *Hour) { o.Sum(at(d.hours[:], int(hour%DayHours)), 0, Minutes) }

// Hour returns what happened in an hour of the day, nil if nothing did.
func (d *Day) Hour(hour int64) *Point { return d.hours[hour%DayHours] }

// Append encodes a day.
func (d *Day) Append(b []byte) []byte { return appendPoints(b, d.hours[:]) }

// Decode adds an encoded day.
func (d *Day) Decode(b []byte) error { return decodePoints(b, d.hours[:]) }

// at returns a point of a series, which it makes if there is none.
func at(series []*Point, i int) *Point {
	if series[i] == nil {
		series[i] = new(Point)
	}
	return series[i]
}

func merge(to, from []*Point) {
	for i, p := range from {
		if p != nil {
			at(to, i).Merge(p)
		}
	}
}

const version = 1

// appendPoints encodes a series: a version, and each point after its position.
func appendPoints(b []byte, series []*Point) []byte {
	b = append(b, version)
	for i, p := range series {
		if p != nil {
			b = p.append(append(b, byte(i)))
		}
	}
	return b
}

func decodePoints(b []byte, series []*Point) (err error) {
	if len(b) == 0 || b[0] != version {
		return errForm
	}
	for b = b[1:]; len(b) > 0; {
		i := int(b[0])
		if i >= len(series) {
			return errForm
		}
		if b, err = at(series, i).read(b[1:]); err != nil {
			return err
		}
	}
	return nil
}
