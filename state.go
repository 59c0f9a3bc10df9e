package gq

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"time"
)

// State is the part of a job that changes, with the policy numbers its
// transitions need. It is small: the payload, the result and the checkpoint are
// stored apart, and only their sizes are known here.
//
// Every verb below takes a State by value and returns the next one with the
// events that tell of it. On an error the returned State is the unchanged one
// and there are no events. Lease, Failure and Policy are shared between copies
// and never written to.
type State struct {
	ID       JobID
	Sequence uint64  // order of submission within the store
	Turn     uint64  // among the keys of a fair queue, see FairTurn; 0 in other queues
	Policy   *Policy // fixed at submission

	Status    Status
	Detail    Detail
	Own       Priority // what the user asked for
	Inherited Priority // the most urgent of its dependencies, 0 for none
	Depth     int      // jobs on the longest chain of dependencies that ends here
	Waits     int      // dependencies that must still end
	AnyOpen   bool     // one of the AFTER_ANY dependencies must still end

	Attempt int // executions started; never decremented
	Bound   int // executions allowed: the policy's plus one for each that ended without fault
	Faults  int // failures that count
	Losses  int // leases that ran out

	CreatedAt      time.Time
	UpdatedAt      time.Time // last change of status
	RunAt          time.Time // not claimable before
	ScheduledAt    time.Time // became claimable
	StartedAt      time.Time // current or last attempt
	FirstStartedAt time.Time // first attempt; with a RunLifetime, first lease
	CompletedAt    time.Time // became terminal

	Version  LeaseVersion // the last one issued
	Lease    *Lease       // the current lease, or the last one
	Settled  uint64       // digest of the call that ended Lease
	Previous Settlement   // the lease before it

	Progress        float64 // 0 to 1, as the holder reported it
	Note            string
	Failure         *Failure // of the last attempt that failed
	Cancellation    Cancellation
	Reason          string // why it ended where it did, if not by its handler
	ResultBytes     int
	CheckpointBytes int
	Checkpoints     int // saved so far
}

// Settlement remembers how a lease ended, so that the identical call can be
// answered again when its reply was lost.
type Settlement struct {
	Lease  LeaseID
	Digest uint64
}

// Cancellation follows a cancel of a running job: asked for, told to the
// worker, honoured by it. The zero instants have not come.
type Cancellation struct {
	RequestedAt time.Time
	DeliveredAt time.Time
	HonouredAt  time.Time
	Reason      string
}

// Requested reports whether the job was asked to stop.
func (c Cancellation) Requested() bool { return !c.RequestedAt.IsZero() }

// Priority is the effective priority: the more urgent of the user's and what
// the dependencies hand down.
func (s State) Priority() Priority { return s.Own.Inherit(s.Inherited) }

// OrderKey sorts the claimable jobs of a queue; the smaller one is served
// first. It is opaque to stores, so that a new order needs no new store. Jobs
// with equal keys are served by ascending id.
type OrderKey struct{ Hi, Lo uint64 }

// Order is the job's place among the claimable jobs of its queue: by priority,
// in a fair queue then by turn, then by submission.
func (s *State) Order() OrderKey {
	return OrderKey{uint64(s.Priority())<<56 | s.Turn, s.Sequence}
}

// Less reports whether k is served before o.
func (k OrderKey) Less(o OrderKey) bool { return k.Hi < o.Hi || k.Hi == o.Hi && k.Lo < o.Lo }

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

// Live reports whether the job has yet to reach a terminal status.
func (s State) Live() bool { return !s.Status.Terminal() }

// At is the state as a reader should see it at an instant: a job whose run time
// has come is claimable, whether or not anyone has recorded that yet.
func (s State) At(now time.Time) State {
	if s.waitsForTime() && !now.Before(s.RunAt) {
		s.Status, s.ScheduledAt = Scheduled, s.RunAt
	}
	return s
}

func (s *State) waitsForTime() bool { return s.Status == Delayed || s.Status == Retrying }

// Claimable reports whether a claim may take the job at an instant.
func (s *State) Claimable(now time.Time) bool {
	return (s.Status == Scheduled || s.waitsForTime() && !now.Before(s.RunAt)) && !s.over(now)
}

// Due is the next instant at which [State.Advance] will have something to do,
// and the zero instant if there is none.
func (s *State) Due() time.Time {
	due := s.lifeEnd()
	earlier := func(t time.Time) {
		if !t.IsZero() && (due.IsZero() || t.Before(due)) {
			due = t
		}
	}
	switch s.Status {
	case Delayed, Retrying:
		earlier(s.RunAt)
	case Claimed:
		earlier(s.Lease.ExpiresAt)
	case Running:
		earlier(s.Lease.ExpiresAt)
		earlier(s.deadline())
	case Pending, Scheduled:
	default:
		return time.Time{}
	}
	return due
}

// ReasonLifetime is the State.Reason of a job whose lifetime was over, or would
// have been before its next attempt.
const ReasonLifetime = "lifetime"

// lifeEnd is when the job must have ended, zero for never.
func (s *State) lifeEnd() (end time.Time) {
	if s.Policy.Lifetime > 0 {
		end = s.CreatedAt.Add(s.Policy.Lifetime)
	}
	if s.Policy.RunLifetime > 0 && !s.FirstStartedAt.IsZero() {
		if t := s.FirstStartedAt.Add(s.Policy.RunLifetime); end.IsZero() || t.Before(end) {
			end = t
		}
	}
	return end
}

func (s *State) over(now time.Time) bool {
	end := s.lifeEnd()
	return !end.IsZero() && !now.Before(end)
}

// deadline is when the running attempt exceeds its execution timeout.
func (s *State) deadline() time.Time {
	if s.Policy.ExecutionTimeout == 0 {
		return time.Time{}
	}
	return s.StartedAt.Add(s.Policy.ExecutionTimeout)
}

// tooLong reports whether the running attempt is over its deadline.
func (s *State) tooLong(now time.Time) bool {
	d := s.deadline()
	return s.Status == Running && !d.IsZero() && !now.Before(d)
}

// inTime refuses what a running attempt does beyond its deadline, except to
// report that it failed.
func (s State) inTime(now time.Time) error {
	if s.tooLong(now) {
		return fmt.Errorf("job %s is over its execution timeout of %v: %w", s.ID, s.Policy.ExecutionTimeout, ErrStaleLease)
	}
	return nil
}

// holds refuses everyone but the holder of the newest lease, while it lasts.
// Expiry is judged here and now, never only by a sweep.
func (s *State) holds(ref LeaseRef, now time.Time) error {
	switch {
	case !ref.names(s.Lease):
		return fmt.Errorf("job %s is not held under lease %.80q: %w", s.ID, ref.ID, ErrStaleLease)
	case s.Lease.State != LeaseActive:
		return fmt.Errorf("lease %s of job %s has ended (%s): %w", ref.ID, s.ID, s.Lease.State, ErrStaleLease)
	case s.Lease.Expired(now):
		return fmt.Errorf("lease %s of job %s expired: %w", ref.ID, s.ID, ErrStaleLease)
	case s.over(now):
		return fmt.Errorf("the lifetime of job %s is over: %w", s.ID, ErrStaleLease)
	}
	return nil
}

// repeated reports whether ref ended its lease by the very same call before.
func (s *State) repeated(ref LeaseRef, digest uint64) bool {
	if s.Lease != nil && ref.names(s.Lease) && s.Lease.State != LeaseActive {
		return s.Settled == digest
	}
	return ref.ID != "" && ref.ID == s.Previous.Lease && digest == s.Previous.Digest
}

// digest tells one settling call from another; zero is kept for "none". Both
// calls come from the holder of the same lease, so a plain hash will do (FNV-1a;
// large results through SHA-256, which is faster there).
func digest(verb byte, fields ...[]byte) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211
	h := (uint64(offset) ^ uint64(verb)) * prime
	for _, f := range fields {
		h = (h ^ uint64(len(f))) * prime
		if len(f) > 1024 {
			sum := sha256.Sum256(f)
			f = sum[:]
		}
		for _, c := range f {
			h = (h ^ uint64(c)) * prime
		}
	}
	return h | 1
}

// Attempting reports whether the lease, the progress and the note are those of an
// attempt that is under way or ended the job. They stay recorded while a job waits
// for its next attempt, and then say nothing about it.
func (s *State) Attempting() bool { return s.Status.Held() || s.Status.Terminal() }

// illegal refuses a verb that the job's status does not allow.
func (s State) illegal(verb string) error {
	if s.Status.Terminal() {
		return ErrIllegalMove.Errorf("job %s is already %s", s.ID, s.Status)
	}
	return ErrIllegalMove.Errorf("cannot %s job %s while it is %s", verb, s.ID, s.Status)
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
