package machine

import (
	"fmt"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
)

// Submission has the data of a job that a store is about to insert.
type Submission struct {
	ID        gq.JobID
	Sequence  uint64
	Turn      uint64 // in a fair queue
	Policy    *gq.Policy
	Own       gq.Priority
	Inherited gq.Priority // from the dependencies that it names
	Depth     int
	Waits     int  // dependencies to wait for
	AnyOpen   bool // also waits for one of its AFTER_ANY dependencies
	Gate      gq.Gate
	RunAt     time.Time
	After     gq.JobID   // the job with the same order key that it waits for, also in Waits
	Trace     string     // see TraceParent
	Origin    string     // see Origin
	Events    []gq.Event // the job's events are appended here; may be nil

	// Replaces is the job whose place it takes, if the spec names one: the deadlines of that job and the priority
	// that it inherited go on. If the new job carries on, so does everything that its attempts have left.
	Replaces  *gq.State
	CarriesOn bool
}

// Priority returns the effective priority of the new job.
func (b *Submission) Priority() gq.Priority { return b.Own.Inherit(b.inherited()) }

// inherited returns the most urgent priority of its dependencies, including those of the job whose place it
// takes, which may have ended.
func (b *Submission) inherited() gq.Priority {
	if b.Replaces == nil {
		return b.Inherited
	}
	return b.Inherited.Inherit(b.Replaces.Inherited)
}

// Submit returns the first state and events of a job. It is PENDING, and moves on at once if it
// has no dependencies to wait for.
func Submit(b Submission, now time.Time) (gq.State, []gq.Event) {
	s := gq.State{
		ID: b.ID, Sequence: b.Sequence, Turn: b.Turn, Policy: b.Policy,
		Own: b.Own, Inherited: b.inherited(), Depth: b.Depth, Waits: b.Waits, AnyOpen: b.AnyOpen, Gate: b.Gate, OrderedAfter: b.After, TraceParent: b.Trace,
		Bound: b.Policy.MaxAttempts, CreatedAt: now, RunAt: b.RunAt,
	}
	if b.Replaces != nil {
		inherit(&s, b.Replaces, b.CarriesOn)
	}
	t := step{State: s, events: slices.Grow(b.Events, 2)}
	t.move(gq.StatusPending, now)
	if b.Origin != "" {
		t.events[len(t.events)-1].Reason = b.Origin
	}
	t.ready(now)
	if b.CarriesOn {
		t.events[len(t.events)-1].Reason = ReasonRescheduled
	}
	return t.State, t.events
}

// inherit gives a job what it has from the job whose place it takes. Its lease versions go on, so that they fence as
// before.
func inherit(s, old *gq.State, carriesOn bool) {
	s.SubmittedAt = Submitted(old)
	if !carriesOn {
		return
	}
	s.Attempt, s.Bound, s.Faults, s.Losses, s.Failure = old.Attempt, old.Bound, old.Faults, old.Losses, old.Failure
	s.StartedAt, s.FirstStartedAt, s.Version = old.StartedAt, old.FirstStartedAt, old.Version
	s.Progress, s.Note = old.Progress, old.Note
	s.CheckpointBytes, s.Checkpoints = old.CheckpointBytes, old.Checkpoints
	s.PreviousLease = old.LastAttempt()
}

// step is a state during a transition, with the events so far.
type step struct {
	gq.State
	events []gq.Event
}

// begin starts a transition. Most have one event, so one allocation suffices.
func begin(s gq.State) step { return step{State: s, events: make([]gq.Event, 0, 1)} }

// move makes a legal move. It panics if the table does not list the move, which is a bug in this
// package.
func (t *step) move(to gq.Status, now time.Time) *gq.Event {
	if !CanMove(t.Status, to) {
		panic(fmt.Sprintf("gq: no move from %s to %s", t.Status, to))
	}
	if t.Status == gq.StatusClaimed {
		t.undenied()
	}
	ran, held := t.Status == gq.StatusRunning, t.Status == gq.StatusClaimed
	lost := t.HoldLost()
	waited := held || lost // has been SCHEDULED since its last attempt
	t.Status, t.Detail, t.UpdatedAt = to, gq.DetailNone, now
	switch {
	case to == gq.StatusScheduled && !waited:
		t.ScheduledAt = now
	case to == gq.StatusClaimed:
		t.Detail = gq.DetailClaimed
	case to.Terminal():
		t.CompletedAt = now
	}
	e := t.note(eventOf[to])
	if held && (to == gq.StatusRunning || to == gq.StatusRetrying) || lost && to == gq.StatusScheduled {
		e.Detail = gq.DetailClaimed
	}
	if ran {
		e.Elapsed = elapsed(t.StartedAt, now)
	}
	return e
}

// elapsed returns the time since an instant in whole microseconds, which take less space in the
// log of events than nanoseconds.
func elapsed(since, now time.Time) time.Duration {
	return max(now.Sub(since), 0).Truncate(time.Microsecond)
}

// note records an event with the current state of the job.
func (t *step) note(typ gq.EventType) *gq.Event {
	t.events = append(t.events, gq.Event{Job: t.ID, Type: typ, Status: t.Status, Attempt: t.Attempt, TraceParent: t.TraceParent})
	return &t.events[len(t.events)-1]
}

// withLease adds the lease to an event.
func withLease(e *gq.Event, l *gq.Lease) *gq.Event {
	e.Lease, e.Version, e.LeaseState, e.Worker, e.CostUnits = l.ID, l.Version, l.State, l.Worker, l.CostUnits
	return e
}

// ready moves on a job that has no open dependencies.
func (t *step) ready(now time.Time) {
	if t.Waits > 0 || t.AnyOpen || t.gated(now) {
		return
	}
	if t.RunAt.After(now) {
		t.move(gq.StatusDelayed, now).Until = t.RunAt
		return
	}
	t.move(gq.StatusScheduled, now)
}

// endLease closes the current lease.
func (t *step) endLease(how gq.LeaseState, settled uint64) {
	l := *t.Lease
	l.State = how
	t.Lease, t.Settled = &l, settled
}

// illegal returns the error of a call that the job's status does not allow.
func illegal(s gq.State, verb string) error {
	if s.Status.Terminal() {
		return gq.ErrIllegalMove.Errorf("job %s is already %s", s.ID, s.Status)
	}
	return gq.ErrIllegalMove.Errorf("cannot %s job %s while it is %s", verb, s.ID, s.Status)
}
