package codec

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

// The optional fields of a State that follow.
const (
	hasInherited = 1 << iota
	hasWaits
	hasCounts
	hasRunAt
	hasScheduledAt
	hasStarted
	hasCompletedAt
	hasLease
	hasPrevious
	hasProgress
	hasFailure
	hasCancel
	hasReason
	hasBlobs
	hasAny
	hasTurn
	hasFirstLease // it was leased but never started
	hasReplacedBy
	hasGate
	hasOrderedAfter
	hasTrace
	hasSubmittedAt
	stateBits
)

// AppendState appends the state without its Sequence, under which a store keeps it.
func AppendState(s *gq.State, b []byte) ([]byte, error) {
	b, _, err := AppendMovableState(s, b)
	return b, err
}

// AppendMovableState is AppendState for a store that learns the time later: it also
// returns where CreatedAt begins, 8 bytes in big-endian order. All other instants are
// relative to it, so overwriting it moves them all.
func AppendMovableState(s *gq.State, b []byte) (state []byte, created int, err error) {
	e := encoder{b}
	e.byte(codecVersion)
	e.byte(byte(s.Status))
	e.byte(byte(s.Detail)<<4 | byte(s.Own))
	has := stateHas(s)
	e.uvarint(has)
	e.id(s.ID)
	e.policy(s.Policy)
	at := len(e.b)
	base := s.CreatedAt.UnixNano()
	e.fixed(uint64(base))
	e.time(s.UpdatedAt, base)
	e.uvarint(uint64(s.Depth))
	if has&hasTurn != 0 {
		e.uvarint(s.Turn)
	}
	if has&hasInherited != 0 {
		e.byte(byte(s.Inherited))
	}
	if has&hasWaits != 0 {
		e.uvarint(uint64(s.Waits))
	}
	if has&hasGate != 0 {
		e.byte(byte(s.Gate))
	}
	if has&hasCounts != 0 {
		e.uvarint(uint64(s.Attempt))
		e.uvarint(uint64(s.Bound - s.Policy.MaxAttempts))
		e.uvarint(uint64(s.Faults))
		e.uvarint(uint64(s.Losses))
		e.uvarint(uint64(s.Version))
	}
	if has&hasRunAt != 0 {
		e.time(s.RunAt, base)
	}
	if has&hasScheduledAt != 0 {
		e.time(s.ScheduledAt, base)
	}
	if has&hasStarted != 0 {
		e.time(s.StartedAt, base)
		e.time(s.FirstStartedAt, base)
	}
	if has&hasFirstLease != 0 {
		e.time(s.FirstStartedAt, base)
	}
	if has&hasCompletedAt != 0 {
		e.time(s.CompletedAt, base)
	}
	if has&hasLease != 0 {
		e.holding(s.Lease, base)
		e.fixed(s.Settled)
	}
	if has&hasPrevious != 0 {
		e.lease(s.PreviousLease)
		e.fixed(s.PreviousDigest)
	}
	if has&hasProgress != 0 {
		e.fixed(math.Float64bits(s.Progress))
		e.string(s.Note)
	}
	if has&hasFailure != 0 {
		e.failure(s.Failure)
	}
	if has&hasCancel != 0 {
		e.cancel(s.Cancellation)
	}
	if has&hasReason != 0 {
		e.string(s.Reason)
	}
	if has&hasReplacedBy != 0 {
		e.id(s.ReplacedBy)
	}
	if has&hasOrderedAfter != 0 {
		e.id(s.OrderedAfter)
	}
	if has&hasTrace != 0 {
		e.string(s.TraceParent)
	}
	if has&hasSubmittedAt != 0 {
		e.time(s.SubmittedAt, base)
	}
	if has&hasBlobs != 0 {
		e.uvarint(uint64(s.ResultBytes))
		e.uvarint(uint64(s.CheckpointBytes))
		e.uvarint(uint64(s.Checkpoints))
	}
	return e.b, at, nil
}

// StateID returns where the ID begins in an encoded state.
func StateID(state []byte) int {
	_, n := binary.Uvarint(state[3:])
	return 3 + n
}

func stateHas(s *gq.State) (bits uint64) {
	set := func(bit uint64, present bool) {
		if present {
			bits |= bit
		}
	}
	set(hasTurn, s.Turn != 0)
	set(hasInherited, s.Inherited != 0)
	set(hasWaits, s.Waits != 0)
	set(hasAny, s.AnyOpen)
	set(hasGate, s.Gate != 0)
	set(hasCounts, s.Version != 0 || s.Attempt != 0 || s.Faults != 0 || s.Losses != 0 || s.Bound != s.Policy.MaxAttempts)
	set(hasRunAt, !s.RunAt.IsZero())
	set(hasScheduledAt, !s.ScheduledAt.IsZero())
	set(hasStarted, !s.StartedAt.IsZero())
	set(hasFirstLease, s.StartedAt.IsZero() && !s.FirstStartedAt.IsZero())
	set(hasCompletedAt, !s.CompletedAt.IsZero())
	set(hasLease, s.Lease != nil)
	set(hasPrevious, s.PreviousLease != "")
	set(hasProgress, s.Progress != 0 || s.Note != "")
	set(hasFailure, s.Failure != nil)
	set(hasCancel, s.Cancellation != gq.Cancellation{})
	set(hasReason, s.Reason != "")
	set(hasReplacedBy, !s.ReplacedBy.IsZero())
	set(hasOrderedAfter, !s.OrderedAfter.IsZero())
	set(hasTrace, s.TraceParent != "")
	set(hasSubmittedAt, !s.SubmittedAt.IsZero())
	set(hasBlobs, s.ResultBytes != 0 || s.CheckpointBytes != 0 || s.Checkpoints != 0)
	return bits
}

// DecodeState reads what AppendState wrote. intern returns the policy to point to, so
// that equal policies can share memory.
func DecodeState(b []byte, sequence uint64, intern func(gq.Policy) *gq.Policy) (gq.State, error) {
	d := decoder{b: b}
	d.version()
	s := gq.State{Sequence: sequence, Status: gq.Status(d.byte())}
	mixed := d.byte()
	s.Detail, s.Own = gq.Detail(mixed>>4), gq.Priority(mixed&15)
	has := d.uvarint()
	d.require(s.Status.Valid() && s.Detail.Valid() && s.Own.Valid() && has < stateBits, "state out of range")
	s.ID = d.id()
	policy := d.policy()
	created := d.fixed()
	if d.err != nil {
		return gq.State{}, d.end("state")
	}
	s.Policy = intern(*policy)
	s.CreatedAt = time.Unix(0, int64(created)).UTC()
	s.UpdatedAt = d.time(s.CreatedAt)
	s.Depth = d.int()
	s.Bound = s.Policy.MaxAttempts
	s.AnyOpen = has&hasAny != 0
	if has&hasTurn != 0 {
		s.Turn = d.uvarint()
		d.require(s.Turn <= machine.MaxTurn, "turn out of range")
	}
	if has&hasInherited != 0 {
		s.Inherited = gq.Priority(d.byte())
		d.require(s.Inherited.Valid(), "unknown priority")
	}
	if has&hasWaits != 0 {
		s.Waits = d.int()
	}
	if has&hasGate != 0 {
		s.Gate = gq.Gate(d.byte())
		d.require(s.Gate.Valid(), "unknown gate")
	}
	if has&hasCounts != 0 {
		s.Attempt = d.int()
		s.Bound += d.int()
		s.Faults = d.int()
		s.Losses = d.int()
		s.Version = gq.LeaseVersion(d.uvarint())
	}
	if has&hasRunAt != 0 {
		s.RunAt = d.time(s.CreatedAt)
	}
	if has&hasScheduledAt != 0 {
		s.ScheduledAt = d.time(s.CreatedAt)
	}
	if has&hasStarted != 0 {
		s.StartedAt = d.time(s.CreatedAt)
		s.FirstStartedAt = d.time(s.CreatedAt)
	}
	if has&hasFirstLease != 0 {
		d.require(has&hasStarted == 0, "two first starts")
		s.FirstStartedAt = d.time(s.CreatedAt)
	}
	if has&hasCompletedAt != 0 {
		s.CompletedAt = d.time(s.CreatedAt)
	}
	if has&hasLease != 0 {
		s.Lease = d.holding(s.CreatedAt)
		s.Settled = d.fixed()
	}
	if has&hasPrevious != 0 {
		s.PreviousLease, s.PreviousDigest = d.lease(), d.fixed()
		d.require(s.PreviousLease != "", "settlement without a lease")
	}
	if has&hasProgress != 0 {
		s.Progress = math.Float64frombits(d.fixed())
		s.Note = d.string()
		d.require(s.Progress >= 0 && s.Progress <= 1, "progress out of range")
	}
	if has&hasFailure != 0 {
		s.Failure = d.failure()
	}
	if has&hasCancel != 0 {
		s.Cancellation = d.cancel()
	}
	if has&hasReason != 0 {
		s.Reason = d.string()
	}
	if has&hasReplacedBy != 0 {
		s.ReplacedBy = d.id()
	}
	if has&hasOrderedAfter != 0 {
		s.OrderedAfter = d.id()
	}
	if has&hasTrace != 0 {
		s.TraceParent = d.string()
	}
	if has&hasSubmittedAt != 0 {
		s.SubmittedAt = d.time(s.CreatedAt)
	}
	if has&hasBlobs != 0 {
		s.ResultBytes = d.int()
		s.CheckpointBytes = d.int()
		s.Checkpoints = d.int()
	}
	d.require(stateHas(&s) == has, "empty field")
	d.require(!s.Status.Held() || s.Lease != nil && s.Lease.State == gq.LeaseActive, "held without a lease")
	if err := d.end("state"); err != nil {
		return gq.State{}, err
	}
	return s, nil
}

func (e *encoder) holding(l *gq.Lease, base int64) {
	e.lease(l.ID)
	e.uvarint(uint64(l.Version))
	e.byte(byte(l.State))
	e.string(l.Worker)
	e.uvarint(uint64(l.Attempt))
	e.lease(l.Previous)
	granted, beat := l.GrantedAt.UnixNano(), l.HeartbeatAt.UnixNano()
	e.varint(granted - base)
	e.varint(beat - granted)
	e.time(l.ExpiresAt, beat)
	e.varint(int64(l.TTL))
	e.uvarint(uint64(l.Renewals))
	e.uvarint(uint64(l.CostUnits))
}

func (d *decoder) holding(base time.Time) *gq.Lease {
	l := &gq.Lease{
		ID: d.lease(), Version: gq.LeaseVersion(d.uvarint()), State: gq.LeaseState(d.byte()),
		Worker: d.string(), Attempt: d.int(), Previous: d.lease(), GrantedAt: d.time(base),
	}
	l.HeartbeatAt = d.time(l.GrantedAt)
	l.ExpiresAt = d.time(l.HeartbeatAt)
	l.TTL = time.Duration(d.varint())
	l.Renewals = d.int()
	l.CostUnits = d.amount()
	d.require(l.ID != "" && l.State.Valid(), "lease out of range")
	return l
}

func (e *encoder) cancel(c gq.Cancellation) {
	for _, t := range []time.Time{c.RequestedAt, c.DeliveredAt, c.HonouredAt} {
		if t.IsZero() {
			e.byte(0)
			continue
		}
		e.byte(1)
		e.fixed(uint64(t.UnixNano()))
	}
	e.string(c.Reason)
}

func (d *decoder) cancel() (c gq.Cancellation) {
	for _, t := range []*time.Time{&c.RequestedAt, &c.DeliveredAt, &c.HonouredAt} {
		if d.flag() {
			*t = time.Unix(0, int64(d.fixed())).UTC()
		}
	}
	c.Reason = d.string()
	return c
}
