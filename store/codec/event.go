package codec

import (
	"time"

	"github.com/gopherqueue/gq"
)

// The optional fields of an Event that follow.
const (
	eventHasLease = 1 << iota
	eventHasUntil
	eventHasDetail
	eventHasFailure
	eventHasReason
	eventHasCost
	eventHasBeat
	eventHasTrace // the last bit of the byte
)

// AppendEvent appends the event without Seq, Time, Queue and Job, which a store writes
// once for many events.
func AppendEvent(e *gq.Event, b []byte) ([]byte, error) {
	w := encoder{b}
	w.byte(byte(e.Type))
	w.byte(byte(e.Status))
	has := eventHas(e)
	w.byte(has)
	w.uvarint(uint64(e.Attempt))
	if has&eventHasLease != 0 {
		w.lease(e.Lease)
		w.uvarint(uint64(e.Version))
		w.byte(byte(e.LeaseState))
		w.string(e.Worker)
	}
	if has&eventHasUntil != 0 {
		w.fixed(uint64(e.Until.UnixNano()))
	}
	if has&eventHasDetail != 0 {
		w.byte(byte(e.Detail))
	}
	if has&eventHasFailure != 0 {
		w.failure(e.Failure)
	}
	if has&eventHasReason != 0 {
		w.string(e.Reason)
	}
	if has&eventHasCost != 0 {
		w.uvarint(uint64(e.CostUnits))
	}
	if has&eventHasBeat != 0 {
		w.fixed(uint64(e.Beat.UnixNano()))
	}
	if has&eventHasTrace != 0 {
		w.string(e.TraceParent)
	}
	return w.b, nil
}

func eventHas(e *gq.Event) (bits byte) {
	set := func(bit byte, present bool) {
		if present {
			bits |= bit
		}
	}
	set(eventHasLease, e.Lease != "")
	set(eventHasUntil, !e.Until.IsZero())
	set(eventHasDetail, e.Detail != 0)
	set(eventHasFailure, e.Failure != nil)
	set(eventHasReason, e.Reason != "")
	set(eventHasCost, e.CostUnits != 0)
	set(eventHasBeat, !e.Beat.IsZero())
	set(eventHasTrace, e.TraceParent != "")
	return bits
}

// DecodeEvent reads one event from the front of b and returns the rest.
func DecodeEvent(b []byte) (gq.Event, []byte, error) {
	d := decoder{b: b}
	v := gq.Event{Type: gq.EventType(d.byte()), Status: gq.Status(d.byte())}
	has := d.byte()
	v.Attempt = d.int()
	d.require(v.Type.Valid() && v.Status.Valid(), "event out of range")
	if has&eventHasLease != 0 {
		v.Lease = d.lease()
		v.Version = gq.LeaseVersion(d.uvarint())
		v.LeaseState = gq.LeaseState(d.byte())
		v.Worker = d.string()
		d.require(v.Lease != "" && (v.LeaseState == 0 || v.LeaseState.Valid()), "lease out of range")
	}
	if has&eventHasUntil != 0 {
		v.Until = time.Unix(0, int64(d.fixed())).UTC()
	}
	if has&eventHasDetail != 0 {
		v.Detail = gq.Detail(d.byte())
		d.require(v.Detail.Valid(), "unknown detail")
	}
	if has&eventHasFailure != 0 {
		v.Failure = d.failure()
	}
	if has&eventHasReason != 0 {
		v.Reason = d.string()
	}
	if has&eventHasCost != 0 {
		v.CostUnits = d.amount()
	}
	if has&eventHasBeat != 0 {
		v.Beat = time.Unix(0, int64(d.fixed())).UTC()
	}
	if has&eventHasTrace != 0 {
		v.TraceParent = d.string()
	}
	d.require(eventHas(&v) == has, "empty field")
	rest := d.b
	d.b = nil
	if err := d.end("event"); err != nil {
		return gq.Event{}, nil, err
	}
	return v, rest, nil
}
