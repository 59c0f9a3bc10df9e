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

// Lease is a lease as it stands or stood.
type Lease struct {
	ID       gq.LeaseID
	Job      gq.JobID
	Provider string
	Kind     match.Kind
	Attempt  int64     // from 0
	Start    time.Time // when it was given
	AckBy    time.Time // before which it must be acknowledged
	Acked    bool
	Deadline time.Time
	RenewBy  time.Time
	Renewals int
	Status   string    // ACTIVE, RENEWED, CANCELLED, EXPIRED, COMPLETED
	Reason   string    // why it was cancelled or has expired
	EndedAt  time.Time // zero while it lasts
}

// leaseOf reads a lease out of its job's history.
func leaseOf(job *gq.Job, history []gq.Event, id gq.LeaseID) (l Lease, found bool) {
	policy := job.State.Policy
	kind, _ := match.ParseKind(job.Spec.Type)
	var faults int64
	ended := false
	for i := range history {
		e := &history[i]
		if e.Lease == id && !ended {
			switch e.Type {
			case gq.EventClaimed:
				found = true
				l = Lease{
					ID: id, Job: e.Job, Provider: e.Worker, Kind: kind, Attempt: faults, Start: e.Time, AckBy: e.Until,
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
		if e.Failure != nil && match.FaultOf(e.Failure.Code) != 0 {
			faults++
		}
	}
	l.RenewBy = machine.RenewBy(gq.Lease{ExpiresAt: l.Deadline, TTL: policy.LeaseTTL}, policy)
	return l, found
}

// endedAt is when an event's end of a lease came: what time brings about comes at
// its time, however much later that was noticed.
func (l *Lease) endedAt(job *gq.Job, e *gq.Event, o match.Outcome) time.Time {
	switch {
	case o == match.AckTimeout:
		return l.AckBy
	case o == match.LeaseExpired:
		return l.Deadline
	case e.Type == gq.EventDeadLettered && e.Failure == nil:
		return earlier(e.Time, machine.LifeEnd(&job.State))
	default:
		return e.Time
	}
}

// endOf is how a lease reads that an event ended.
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

// cancelReason is why a lease was cancelled without fault.
func cancelReason(e *gq.Event) string {
	switch e.Type {
	case gq.EventDeadLettered:
		return expiryReason(e.Reason)
	case gq.EventCancelled:
		return "job_cancelled"
	default:
		if e.Failure != nil { // told through another face
			return e.Failure.Code
		}
		return e.Reason
	}
}

// Lease reads a lease, whatever has become of it. It is [gq.ErrNotFound] where
// there was none, or its job is past the horizon.
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
	l, found := leaseOf(&job, append(history, events...), id)
	if !found {
		return Lease{}, gq.ErrNotFound
	}
	return l, nil
}

// Holding is a lease that lasts, and its job.
type Holding struct {
	Lease Lease
	Job   Job
}

// Leases lists what a provider holds, the oldest first. It reads all jobs at once.
func (d *Dispatcher) Leases(ctx context.Context, provider string) ([]Holding, error) {
	open, err := d.openOf(ctx, provider)
	if err != nil {
		return nil, fmt.Errorf("leases of provider %.80q: %w", provider, err)
	}
	set, err := d.Settings(ctx)
	if err != nil {
		return nil, fmt.Errorf("leases of provider %.80q: %w", provider, err)
	}
	list := make([]Holding, 0, len(open))
	for from := 0; from < len(open); from += page {
		some := open[from:min(from+page, len(open))]
		refs := make([]store.Ref, len(some))
		for i := range some {
			refs[i] = store.Ref{Lease: some[i].Lease}
		}
		found, err := d.store.Get(ctx, refs, gq.WithPayload|gq.WithResult)
		if err != nil {
			return nil, fmt.Errorf("leases of provider %.80q: %w", provider, err)
		}
		for i := range found {
			switch h, holds, err := d.holding(&found[i], some[i].Lease, &set); {
			case err != nil:
				return nil, fmt.Errorf("leases of provider %.80q: lease %.80q: %w", provider, some[i].Lease, err)
			case holds:
				list = append(list, h)
			}
		}
	}
	return list, nil
}

// openOf is what a provider was given and has not ended, as far as is known.
func (d *Dispatcher) openOf(ctx context.Context, provider string) ([]entry, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.catchUp(ctx); err != nil {
		return nil, err
	}
	p := d.providers[provider]
	if p == nil {
		return nil, gq.ErrNotFound
	}
	return p.books().Open, nil
}

// holding is what was found of a lease, if it lasts.
func (d *Dispatcher) holding(found *store.Found, id gq.LeaseID, set *match.Settings) (h Holding, holds bool, err error) {
	if errors.Is(found.Err, gq.ErrNotFound) {
		return h, false, nil
	}
	if found.Err != nil {
		return h, false, found.Err
	}
	h.Job, err = d.jobOf(&found.Job, set) // as time has made it
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

// heldLease is a lease that lasts, as leaseOf reads it out of the whole history: the
// state has all of it until the lease ends.
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

// Ref names a lease and, where it is given, the provider that must hold it.
type Ref struct {
	Lease    gq.LeaseID
	Provider string
}

func (r Ref) ref() gq.LeaseRef { return gq.LeaseRef{ID: r.Lease, Worker: r.Provider} }

// Ack acknowledges a lease: the provider has begun. Doing so again is fine.
func (d *Dispatcher) Ack(ctx context.Context, r Ref) (Lease, error) {
	return d.act(ctx, "ack", r, func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		next, events, err := machine.Start(s, r.ref(), 0, now)
		if errors.Is(err, gq.ErrIllegalMove) && s.Status == gq.StatusRunning { // and lasts, or it would be stale
			return s, nil, nil
		}
		return next, events, err
	})
}

// held reports whether a job is held under a lease.
func held(s *gq.State, r Ref) bool {
	return s.Lease != nil && s.Lease.ID == r.Lease && s.Lease.State == gq.LeaseActive &&
		(r.Provider == "" || r.Provider == s.Lease.Worker)
}

// Renew moves the deadline of a lease on, as often as its terms allow.
func (d *Dispatcher) Renew(ctx context.Context, r Ref) (Lease, error) {
	return d.act(ctx, "renew", r, func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		return machine.Heartbeat(s, r.ref(), machine.Report{Progress: -1}, now)
	})
}

// Decline gives back a job that was not begun, without fault.
func (d *Dispatcher) Decline(ctx context.Context, r Ref) (Lease, error) {
	return d.act(ctx, "decline", r, func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		if held(&s, r) && s.Status == gq.StatusRunning {
			return s, nil, gq.ErrIllegalMove // it was acknowledged
		}
		return machine.Revoke(s, r.ref(), match.ReasonDeclined, now)
	})
}

// Fail ends an attempt without success.
func (d *Dispatcher) Fail(ctx context.Context, r Ref, message string) (Lease, error) {
	return d.act(ctx, "fail", r, failing(r, match.CodeProviderFail, message))
}

func failing(r Ref, code, message string) store.Apply {
	return func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		return machine.Fail(s, r.ref(), gq.Failure{Category: gq.CategoryTemporary, Code: code, Message: message}, machine.Draw{}, now)
	}
}

// act applies a verb under a lease. An unknown lease is [gq.ErrNotFound], one
// that has ended or belongs to another [gq.ErrStaleLease], one for which it is too
// early or too late [gq.ErrIllegalMove].
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
	case "ack": // it only starts, which no face measures
	case "renew":
		d.options.Meter.Renewed(updated[0].State, took)
	default:
		d.options.Meter.Ended(updated[0].State, took)
	}
	return d.acted(ctx, verb, r)
}

// acted answers a call that was not refused. A repeat of the one that ended the
// lease before the newest is not asked whose it is: it is nobody else's.
func (d *Dispatcher) acted(ctx context.Context, verb string, r Ref) (Lease, error) {
	d.poke()
	l, err := d.Lease(ctx, r.Lease)
	if err == nil && r.Provider != "" && r.Provider != l.Provider {
		return Lease{}, d.leaseRefused(ctx, verb, r, gq.ErrStaleLease)
	}
	return l, err
}
