package codec

import (
	"math"
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

// The highest bits of the byte of the type are set if Elapsed and JobType follow.
const (
	typeHasElapsed = 1 << 7
	typeHasJobType = 1 << 6
	typeBits       = typeHasElapsed | typeHasJobType
)

// AppendEvent appends the event without Seq, Time, Queue and Job, which a store writes
// once for many events, and with JobType only if it is set. Elapsed is in whole microseconds.
func AppendEvent(e *gq.Event, b []byte) ([]byte, error) {
	w := encoder{b}
	typ := byte(e.Type)
	if e.Elapsed != 0 {
		typ |= typeHasElapsed
	}
	if e.JobType != "" {
		typ |= typeHasJobType
	}
	w.byte(typ)
	w.byte(byte(e.Status))
	has := eventHas(e)
	w.byte(has)
	w.uvarint(uint64(e.Attempt))
	if e.Elapsed != 0 {
		w.uvarint(uint64(e.Elapsed / time.Microsecond))
	}
	if e.JobType != "" {
		w.string(e.JobType)
	}
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
	if e.Type.OfProvider() {
		w.string(e.Worker)
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
	typ := d.byte()
	v := gq.Event{Type: gq.EventType(typ &^ typeBits), Status: gq.Status(d.byte())}
	has := d.byte()
	v.Attempt = d.int()
	d.require(v.Type.Valid() && (v.Status.Valid() || v.Status == 0 && v.Type.OfProvider()), "event out of range")
	if typ&typeHasElapsed != 0 {
		v.Elapsed = d.elapsed()
	}
	if typ&typeHasJobType != 0 {
		v.JobType = d.string()
		d.require(v.JobType != "", "empty job type")
	}
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
	if v.Type.OfProvider() {
		v.Worker = d.string()
	}
	d.require(eventHas(&v) == has, "empty field")
	rest := d.b
	d.b = nil
	if err := d.end("event"); err != nil {
		return gq.Event{}, nil, err
	}
	return v, rest, nil
}

// elapsed reads a duration in microseconds that is not zero.
func (d *decoder) elapsed() time.Duration {
	v := d.uvarint()
	if v == 0 || v > uint64(math.MaxInt64/time.Microsecond) {
		d.fail("duration out of range")
		return 0
	}
	return time.Duration(v) * time.Microsecond
}

// SkimEvent is DecodeEvent for readers that count events, into a variable that they use again: it
// sets Type, Status, LeaseState, Elapsed and of Failure the category and the code, and copies
// nothing else.
func SkimEvent(v *gq.Event, b []byte) (rest []byte, err error) {
	d := decoder{b: b}
	*v = gq.Event{}
	typ := d.byte()
	v.Type, v.Status = gq.EventType(typ&^typeBits), gq.Status(d.byte())
	has := d.byte()
	d.uvarint()
	if typ&typeHasElapsed != 0 {
		v.Elapsed = d.elapsed()
	}
	if typ&typeHasJobType != 0 {
		d.bytes()
	}
	if has&eventHasLease != 0 {
		if d.flag() {
			d.take(16)
		} else {
			d.bytes()
		}
		d.uvarint()
		v.LeaseState = gq.LeaseState(d.byte())
		d.bytes()
	}
	if has&eventHasUntil != 0 {
		d.take(8)
	}
	if has&eventHasDetail != 0 {
		d.take(1)
	}
	if has&eventHasFailure != 0 {
		v.Failure = &gq.Failure{Category: gq.Category(d.byte()), Code: d.string()}
		d.bytes()
		d.varint()
	}
	if has&eventHasReason != 0 {
		d.bytes()
	}
	if has&eventHasCost != 0 {
		d.uvarint()
	}
	if has&eventHasBeat != 0 {
		d.take(8)
	}
	if has&eventHasTrace != 0 {
		d.bytes()
	}
	if v.Type.OfProvider() {
		d.bytes()
	}
	return d.b, d.err
}
