package matchmaker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/projection"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/store"
)

// Lease is a lease, active or ended.
type Lease struct {
	ID       gq.LeaseID
	Job      gq.JobID
	Provider string
	Kind     match.Kind
	Attempt  int64     // from 0
	Start    time.Time // when the round granted it
	AckBy    time.Time // deadline for its acknowledgement
	Acked    bool
	Deadline time.Time
	RenewBy  time.Time
	Renewals int
	Status   string    // ACTIVE, RENEWED, CANCELLED, EXPIRED, COMPLETED
	Reason   string    // why it was cancelled or has expired
	EndedAt  time.Time // zero while it is active
}

// leaseOf derives a lease from its job's history.
func leaseOf(job *gq.Job, history []gq.Event, id gq.LeaseID) (l Lease, found bool) {
	policy := job.State.Policy
	kind, _ := match.ParseKind(job.Spec.Type)
	var faults int64 // since the lease was granted
	ended := false
	for i := range history {
		e := &history[i]
		if e.Lease == id && !ended {
			switch e.Type {
			case gq.EventClaimed:
				found = true
				l = Lease{
					ID: id, Job: e.Job, Provider: e.Worker, Kind: kind, Start: e.Time, AckBy: e.Until,
					Deadline: e.Time.Add(policy.LeaseTTL), Status: projection.MatchingLease(gq.LeaseActive, 0),
				}
			case gq.EventStarted:
				l.Acked, l.Deadline = true, e.Until
			case gq.EventRenewed:
				l.Renewals++
				l.Deadline, l.Status = e.Until, projection.MatchingLease(gq.LeaseActive, l.Renewals)
			default:
			}
			if o := match.OutcomeOf(e); o != 0 {
				ended = true
				l.Status, l.Reason = endOf(e, o)
				l.EndedAt = l.endedAt(job, e, o)
			}
		}
		if found && e.Failure != nil && match.FaultOf(e.Failure.Code) != 0 {
			faults++
		}
	}
	l.Attempt = max(int64(job.State.Faults)-faults, 0) // a job has faults of the one whose place it took
	l.RenewBy = machine.RenewBy(gq.Lease{ExpiresAt: l.Deadline, TTL: policy.LeaseTTL}, policy)
	return l, found
}

// endedAt returns when a lease that an event ended was over: a timeout ends it at its
// deadline, however late the event was written.
func (l *Lease) endedAt(job *gq.Job, e *gq.Event, o match.Outcome) time.Time {
	switch {
	case o == match.AckTimeout:
		return l.AckBy
	case o == match.LeaseExpired:
		return l.Deadline
	case e.Type == gq.EventDeadLettered && e.Failure == nil:
		if end := machine.LifeEnd(&job.State); end.Before(e.Time) {
			return end
		}
		return e.Time
	default:
		return e.Time
	}
}

// endOf returns the status and reason of a lease that an event ended.
func endOf(e *gq.Event, o match.Outcome) (status, reason string) {
	switch o {
	case match.Done:
		return gq.LeaseCompleted.String(), ""
	case match.LeaseExpired:
		return gq.LeaseExpired.String(), o.String()
	case match.AckTimeout, match.ProofInvalid, match.ProviderFail:
		return gq.LeaseCancelled.String(), o.String()
	default:
		return gq.LeaseCancelled.String(), cancelReason(e)
	}
}

// cancelReason returns why a lease was cancelled without fault.
func cancelReason(e *gq.Event) string {
	switch e.Type {
	case gq.EventDeadLettered:
		return expiryReason(e.Reason)
	case gq.EventCancelled:
		return "job_cancelled"
	default:
		if e.Failure != nil { // failed through another face
			return e.Failure.Code
		}
		return e.Reason
	}
}

// Lease returns an active or ended lease, or [gq.ErrNotFound] if there was none or its
// job ended before the horizon.
func (d *Dispatcher) Lease(ctx context.Context, id gq.LeaseID) (Lease, error) {
	l, err := d.readLease(ctx, id)
	if err != nil {
		return Lease{}, fmt.Errorf("lease %.80q: %w", id, err)
	}
	return l, nil
}

func (d *Dispatcher) readLease(ctx context.Context, id gq.LeaseID) (Lease, error) {
	set, err := d.Settings(ctx)
	if err != nil {
		return Lease{}, err
	}
	job, err := d.findJob(ctx, id, 0)
	if err != nil {
		return Lease{}, err
	}
	history, err := d.store.History(ctx, job.State.ID)
	if err != nil {
		return Lease{}, err
	}
	now := d.now()
	s, events, err := machine.Advance(job.State, machine.Draw{}, now)
	if err != nil {
		return Lease{}, err
	}
	for i := range events {
		events[i].Time = now
	}
	if d.beyond(&s, &set, now) {
		return Lease{}, gq.ErrNotFound
	}
	job.State = s
	l, found := leaseOf(&job, append(history, events...), id)
	if !found {
		return Lease{}, gq.ErrNotFound
	}
	return l, nil
}

// Holding is an active lease and its job.
type Holding struct {
	Lease Lease
	Job   Job
}

// holding returns a lease and its job, if the lease is still active.
func (d *Dispatcher) holding(found *store.Found, id gq.LeaseID, set *match.Settings) (h Holding, holds bool, err error) {
	if errors.Is(found.Err, gq.ErrNotFound) {
		return h, false, nil
	}
	if found.Err != nil {
		return h, false, found.Err
	}
	h.Job, err = d.jobOf(&found.Job, set) // with everything that is due applied
	if errors.Is(err, gq.ErrNotFound) {
		return h, false, nil
	}
	if err != nil {
		return h, false, err
	}
	s := &found.State
	if !s.Status.Held() || s.Lease.ID != id {
		return h, false, nil
	}
	h.Lease = heldLease(s, h.Job.Kind)
	return h, true, nil
}

// heldLease returns an active lease as leaseOf would: until it ends, the job's state has
// all of it.
func heldLease(s *gq.State, kind match.Kind) Lease {
	policy := s.Policy
	start := s.Lease.GrantedAt
	l := Lease{
		ID: s.Lease.ID, Job: s.ID, Provider: s.Lease.Worker, Kind: kind, Attempt: int64(s.Faults), Start: start, AckBy: start.Add(policy.Hold),
		Acked: s.Status == gq.StatusRunning, Deadline: start.Add(policy.LeaseTTL),
		Renewals: s.Lease.Renewals, Status: projection.MatchingLease(gq.LeaseActive, s.Lease.Renewals),
	}
	if l.Acked || l.Renewals > 0 {
		l.Deadline = s.Lease.ExpiresAt
	}
	l.RenewBy = machine.RenewBy(gq.Lease{ExpiresAt: l.Deadline, TTL: policy.LeaseTTL}, policy)
	return l
}

// Ref names a lease and, optionally, the provider that must hold it.
type Ref struct {
	Lease    gq.LeaseID
	Provider string
}

func (r Ref) ref() gq.LeaseRef { return gq.LeaseRef{ID: r.Lease, Worker: r.Provider} }

// Ack acknowledges a lease: the provider has started. It is idempotent.
func (d *Dispatcher) Ack(ctx context.Context, r Ref) (Lease, error) {
	return d.act(ctx, "ack", r, func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		next, events, err := machine.Start(s, r.ref(), 0, now)
		if errors.Is(err, gq.ErrIllegalMove) && s.Status == gq.StatusRunning { // repeated: an ended lease would be stale
			return s, nil, nil
		}
		return next, events, err
	})
}

// held reports whether a lease holds a job.
func held(s *gq.State, r Ref) bool {
	return s.Lease != nil && s.Lease.ID == r.Lease && s.Lease.State == gq.LeaseActive &&
		(r.Provider == "" || r.Provider == s.Lease.Worker)
}

// Renew extends the deadline of a lease, as often as the job's policy allows.
func (d *Dispatcher) Renew(ctx context.Context, r Ref) (Lease, error) {
	return d.act(ctx, "renew", r, func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		return machine.Heartbeat(s, r.ref(), machine.Report{Progress: -1}, now)
	})
}

// Decline returns a job that was not started. That is no fault.
func (d *Dispatcher) Decline(ctx context.Context, r Ref) (Lease, error) {
	return d.act(ctx, "decline", r, func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		if held(&s, r) && s.Status == gq.StatusRunning {
			return s, nil, gq.ErrIllegalMove // it was acknowledged
		}
		return machine.Revoke(s, r.ref(), match.ReasonDeclined, now)
	})
}

// Fail fails the attempt.
func (d *Dispatcher) Fail(ctx context.Context, r Ref, message string) (Lease, error) {
	return d.act(ctx, "fail", r, failing(r, match.CodeProviderFail, message))
}

func failing(r Ref, code, message string) store.Apply {
	return func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		return machine.Fail(s, r.ref(), gq.Failure{Category: gq.CategoryTemporary, Code: code, Message: message}, machine.Draw{}, now)
	}
}

// act changes the job of a lease. Errors: [gq.ErrNotFound] for an unknown lease,
// [gq.ErrStaleLease] for one that has ended or that another provider holds,
// [gq.ErrIllegalMove] for a change that comes too early or too late.
func (d *Dispatcher) act(ctx context.Context, verb string, r Ref, apply store.Apply) (Lease, error) {
	job, err := d.findJob(ctx, r.Lease, 0)
	if err != nil {
		return Lease{}, fmt.Errorf("%s lease %.80q: %w", verb, r.Lease, err)
	}
	began := time.Now()
	updated, err := d.store.Update(ctx, []store.Update{{Ref: store.Ref{Job: job.State.ID}, Apply: apply}})
	if err == nil {
		err = updated[0].Err
	}
	if err != nil {
		return Lease{}, d.leaseRefused(ctx, verb, r, err)
	}
	switch took := time.Since(began); verb {
	case "ack": // starts are not measured
	case "renew":
		d.options.Meter.Renewed(updated[0].State, took)
	default:
		d.options.Meter.Ended(updated[0].State, took)
	}
	return d.acted(ctx, verb, r)
}

// acted returns the result of a successful call. It checks the provider, because the
// store does not for a repeated call that ended an older lease.
func (d *Dispatcher) acted(ctx context.Context, verb string, r Ref) (Lease, error) {
	d.wake()
	l, err := d.Lease(ctx, r.Lease)
	if err == nil && r.Provider != "" && r.Provider != l.Provider {
		return Lease{}, d.leaseRefused(ctx, verb, r, gq.ErrStaleLease)
	}
	return l, err
}
