package gq

import (
	"fmt"
	"slices"
	"time"
)

// Birth is what a store knows of a job that it is about to insert.
type Birth struct {
	ID        JobID
	Sequence  uint64
	Turn      uint64 // in a fair queue
	Policy    *Policy
	Own       Priority
	Inherited Priority
	Depth     int
	Waits     int  // dependencies to wait for
	AnyOpen   bool // and one of a group of AFTER_ANY dependencies
	RunAt     time.Time
	Events    []Event // the job's events are appended here; may be nil
}

// Born is the first state of a job and its first entries in the history: it is
// accepted as PENDING and moves on at once when it has nothing to wait for.
func Born(b Birth, now time.Time) (State, []Event) {
	s := State{
		ID: b.ID, Sequence: b.Sequence, Turn: b.Turn, Policy: b.Policy,
		Own: b.Own, Inherited: b.Inherited, Depth: b.Depth, Waits: b.Waits, AnyOpen: b.AnyOpen,
		Bound: b.Policy.MaxAttempts, CreatedAt: now, RunAt: b.RunAt,
	}
	t := step{State: s, events: slices.Grow(b.Events, 2)}
	t.move(Pending, now)
	t.ready(now)
	return t.State, t.events
}

// step is a State on its way: the verbs move it and collect what happened.
type step struct {
	State
	events []Event
}

// begin takes most verbs through with one allocation: they leave one event.
func begin(s State) step { return step{State: s, events: make([]Event, 0, 1)} }

// move takes a row of the table. Taking one that is not there is a defect of
// this package, found by its tests, so it panics.
func (t *step) move(to Status, now time.Time) *Event {
	if !CanMove(t.Status, to) {
		panic(fmt.Sprintf("gq: no move from %s to %s", t.Status, to))
	}
	t.Status, t.Detail, t.UpdatedAt = to, NoDetail, now
	switch {
	case to == Scheduled:
		t.ScheduledAt = now
	case to == Claimed:
		t.Detail = JustClaimed
	case to.Terminal():
		t.CompletedAt = now
	}
	return t.note(eventOf[to])
}

// note records an event about the job as it stands.
func (t *step) note(typ EventType) *Event {
	t.events = append(t.events, Event{Job: t.ID, Type: typ, Status: t.Status, Attempt: t.Attempt})
	return &t.events[len(t.events)-1]
}

// of adds the lease to an event.
func (e *Event) of(l *Lease) *Event {
	e.Lease, e.Version, e.LeaseState, e.Worker, e.CostUnits = l.ID, l.Version, l.State, l.Worker, l.CostUnits
	return e
}

// ready moves a job on that has nothing left to wait for.
func (t *step) ready(now time.Time) {
	if t.Waits > 0 || t.AnyOpen {
		return
	}
	if t.RunAt.After(now) {
		t.move(Delayed, now).Until = t.RunAt
		return
	}
	t.move(Scheduled, now)
}

// endLease closes the current lease.
func (t *step) endLease(how LeaseState, settled uint64) {
	l := *t.Lease
	l.State = how
	t.Lease, t.Settled = &l, settled
}

// illegal refuses a verb that the job's status does not allow.
func (s State) illegal(verb string) error {
	if s.Status.Terminal() {
		return ErrIllegalMove.Errorf("job %s is already %s", s.ID, s.Status)
	}
	return ErrIllegalMove.Errorf("cannot %s job %s while it is %s", verb, s.ID, s.Status)
}
