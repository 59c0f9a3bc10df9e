package gq

import "time"

// Which optional fields of an Event follow.
const (
	eventHasLease = 1 << iota
	eventHasUntil
	eventHasDetail
	eventHasFailure
	eventHasReason
	eventHasCost
	eventBits
)

// AppendBinary appends the event without Seq, Time, Queue and Job, which a
// store keeps once for many events.
func (v *Event) AppendBinary(b []byte) ([]byte, error) {
	e := encoder{b}
	e.byte(byte(v.Type))
	e.byte(byte(v.Status))
	var has byte
	set := func(bit byte, present bool) {
		if present {
			has |= bit
		}
	}
	set(eventHasLease, v.Lease != "")
	set(eventHasUntil, !v.Until.IsZero())
	set(eventHasDetail, v.Detail != 0)
	set(eventHasFailure, v.Failure != nil)
	set(eventHasReason, v.Reason != "")
	set(eventHasCost, v.CostUnits != 0)
	e.byte(has)
	e.uvarint(uint64(v.Attempt))
	if has&eventHasLease != 0 {
		e.lease(v.Lease)
		e.uvarint(uint64(v.Version))
		e.byte(byte(v.LeaseState))
		e.string(v.Worker)
	}
	if has&eventHasUntil != 0 {
		e.fixed(uint64(v.Until.UnixNano()))
	}
	if has&eventHasDetail != 0 {
		e.byte(byte(v.Detail))
	}
	if has&eventHasFailure != 0 {
		e.failure(v.Failure)
	}
	if has&eventHasReason != 0 {
		e.string(v.Reason)
	}
	if has&eventHasCost != 0 {
		e.uvarint(uint64(v.CostUnits))
	}
	return e.b, nil
}

// DecodeEvent reads one event off the front of b and returns the rest.
func DecodeEvent(b []byte) (Event, []byte, error) {
	d := decoder{b: b}
	v := Event{Type: EventType(d.byte()), Status: Status(d.byte())}
	has := d.byte()
	v.Attempt = d.int()
	if d.err == nil && (!v.Type.Valid() || !v.Status.Valid() || has >= eventBits) {
		d.fail("event out of range")
	}
	if has&eventHasLease != 0 {
		v.Lease = d.lease()
		v.Version = LeaseVersion(d.uvarint())
		v.LeaseState = LeaseState(d.byte())
		v.Worker = d.string()
	}
	if has&eventHasUntil != 0 {
		v.Until = time.Unix(0, int64(d.fixed())).UTC()
	}
	if has&eventHasDetail != 0 {
		v.Detail = Detail(d.byte())
	}
	if has&eventHasFailure != 0 {
		v.Failure = d.failure()
	}
	if has&eventHasReason != 0 {
		v.Reason = d.string()
	}
	if has&eventHasCost != 0 {
		v.CostUnits = int64(d.uvarint())
	}
	rest := d.b
	d.b = nil
	if err := d.end("event"); err != nil {
		return Event{}, nil, err
	}
	return v, rest, nil
}
