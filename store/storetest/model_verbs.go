package storetest

import (
	"fmt"
	"math"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// verb is a change of a job: as a function of package machine, which the store applies, and
// as one of the model.
type verb struct {
	name  string
	apply store.Apply
	model func(j *modelJob, now time.Time) error // does not change j on an error

	settles    bool // it ends a lease
	metadata   *gq.Metadata
	result     []byte
	checkpoint []byte
}

// claim leases a ripe job to a worker.
func (j *modelJob) claim(lease gq.LeaseID, c store.Claim, now time.Time) {
	if j.expired(now) {
		j.advance(now)
	}
	claimable := j.s.ScheduledAt
	if j.s.RunAt.After(claimable) {
		claimable = j.s.RunAt
	}
	if j.s.Status != gq.StatusScheduled {
		j.become(gq.StatusScheduled, nil, now)
	}
	j.s.PreviousLease, j.previous = "", ""
	var attempt gq.LeaseID // the last that started
	if last := j.s.Lease; last != nil {
		j.s.PreviousLease, j.previous = last.ID, j.settled
		if attempt = last.Previous; last.Attempt > 0 {
			attempt = last.ID
		}
	}
	j.s.Version++
	j.settled, j.s.Progress, j.s.Note = "", 0, ""
	ttl := c.TTL
	if ttl == 0 && c.Hold {
		ttl = j.spec.Policy.Hold
	}
	if ttl == 0 {
		ttl = j.spec.Policy.LeaseTTL
	}
	j.s.Lease = &gq.Lease{
		ID: lease, Version: j.s.Version, State: gq.LeaseActive, Worker: c.Worker, Previous: attempt,
		GrantedAt: now, HeartbeatAt: now, ExpiresAt: now.Add(ttl), TTL: ttl, CostUnits: j.spec.CostUnits,
	}
	if j.spec.Policy.RunLifetime > 0 && j.s.FirstStartedAt.IsZero() {
		j.s.FirstStartedAt = now
	}
	if c.Hold {
		j.become(gq.StatusClaimed, j.s.Lease, now).Until = j.s.Lease.ExpiresAt
		return
	}
	j.start(claimable, now)
}

func (j *modelJob) start(claimable, now time.Time) {
	j.s.Attempt++
	l := *j.s.Lease
	l.Attempt = j.s.Attempt
	j.s.Lease = &l
	j.s.StartedAt = now
	if j.s.FirstStartedAt.IsZero() {
		j.s.FirstStartedAt = now
	}
	v := j.become(gq.StatusRunning, j.s.Lease, now)
	v.Until, v.Elapsed = l.ExpiresAt, since(claimable, now)
}

// named reports whether a worker names the job's lease.
func (j *modelJob) named(ref gq.LeaseRef) bool {
	l := j.s.Lease
	return l != nil && ref.ID == l.ID && (ref.Version == 0 || ref.Version == l.Version) && (ref.Worker == "" || ref.Worker == l.Worker)
}

// holder refuses every lease but the newest.
func (j *modelJob) holder(ref gq.LeaseRef, now time.Time) error {
	if !j.named(ref) || j.s.Lease.State != gq.LeaseActive || come(j.s.Lease.ExpiresAt, now) || come(j.lifeEnd(), now) {
		return gq.ErrStaleLease
	}
	return nil
}

// again reports whether a call repeats the one that ended the lease it names.
func (j *modelJob) again(ref gq.LeaseRef, call string) bool {
	if j.named(ref) && j.s.Lease.State == gq.LeaseCompleted {
		return j.settled == call
	}
	return ref.ID != "" && ref.ID == j.s.PreviousLease && j.previous == call
}

func completeVerb(ref gq.LeaseRef, result []byte) verb {
	call := fmt.Sprintf("complete %q", result)
	return verb{name: call, settles: true, apply: completing(ref, result), result: result, model: func(j *modelJob, now time.Time) error {
		if j.again(ref, call) {
			return nil
		}
		if err := j.holder(ref, now); err != nil {
			return err
		}
		switch {
		case j.s.Status != gq.StatusRunning:
			return gq.ErrIllegalMove
		case come(j.deadline(), now):
			return gq.ErrStaleLease
		}
		j.endLease(gq.LeaseCompleted, call)
		j.s.ResultBytes = len(result)
		if !j.s.Cancellation.RequestedAt.IsZero() && j.spec.Policy.CancelWins {
			j.cancelled(true, now)
			return nil
		}
		j.s.Progress = 1
		j.become(gq.StatusCompleted, j.s.Lease, now)
		return nil
	}}
}

func failVerb(ref gq.LeaseRef, f gq.Failure) verb {
	call := fmt.Sprintf("fail %v", f)
	return verb{name: call, settles: true, apply: failing(ref, f), model: func(j *modelJob, now time.Time) error {
		if j.again(ref, call) {
			return nil
		}
		if err := j.holder(ref, now); err != nil {
			return err
		}
		if j.s.Status != gq.StatusRunning {
			return gq.ErrIllegalMove
		}
		j.endLease(gq.LeaseCompleted, call)
		j.failed(f, true, now)
		return nil
	}}
}

func releaseVerb(ref gq.LeaseRef, delay time.Duration, reason string) verb {
	call := fmt.Sprintf("release %v %q", delay, reason)
	return verb{name: call, settles: true, apply: releasing(ref, delay, reason), model: func(j *modelJob, now time.Time) error {
		if j.again(ref, call) {
			return nil
		}
		if delay < 0 {
			return gq.ErrInvalid
		}
		if err := j.holder(ref, now); err != nil {
			return err
		}
		if come(j.deadline(), now) {
			return gq.ErrStaleLease
		}
		j.endLease(gq.LeaseCompleted, call)
		switch {
		case !j.s.Cancellation.RequestedAt.IsZero():
			j.cancelled(true, now)
		case j.s.Status == gq.StatusClaimed && delay == 0:
			j.become(gq.StatusScheduled, j.s.Lease, now).Reason = reason
		default:
			if j.s.Status == gq.StatusRunning {
				j.s.Bound++
			}
			if v := j.retry(delay, now); v.Status != gq.StatusDeadLetter {
				v.Reason = reason
			}
		}
		return nil
	}}
}

func heartbeatVerb(ref gq.LeaseRef, r machine.Report, checkpoint []byte) verb {
	r.CheckpointBytes = len(checkpoint)
	return verb{name: fmt.Sprintf("heartbeat %+v", r), apply: beating(ref, r), checkpoint: checkpoint, model: func(j *modelJob, now time.Time) error {
		if err := j.holder(ref, now); err != nil {
			return err
		}
		p := j.spec.Policy
		adds := p.Extend == gq.ExtendAdd
		switch {
		case come(j.deadline(), now):
			return gq.ErrStaleLease
		case math.IsNaN(r.Progress) || r.Progress > 1:
			return gq.ErrInvalid
		case adds && (j.s.Status == gq.StatusClaimed || j.s.Lease.Renewals >= p.RenewalsMax):
			return gq.ErrIllegalMove
		}
		l := *j.s.Lease
		l.HeartbeatAt = now
		if adds {
			l.Renewals++
			l.ExpiresAt = l.ExpiresAt.Add(l.TTL / 2) // the share used in this test
			j.note(gq.EventRenewed, &l, now).Until = l.ExpiresAt
		} else {
			l.ExpiresAt = now.Add(l.TTL)
		}
		j.s.Lease = &l
		if r.Progress >= 0 {
			j.s.Progress = r.Progress
		}
		if r.Note != "" {
			j.s.Note = r.Note
		}
		if len(checkpoint) > 0 {
			j.s.CheckpointBytes = len(checkpoint)
			j.s.Checkpoints++
		}
		if !j.s.Cancellation.RequestedAt.IsZero() && j.s.Cancellation.DeliveredAt.IsZero() {
			j.s.Cancellation.DeliveredAt = now
			j.note(gq.EventCancelDelivered, &l, now)
		}
		return nil
	}}
}

func prepareVerb(ref gq.LeaseRef, d gq.Detail) verb {
	return verb{name: fmt.Sprintf("prepare %v", d), apply: preparing(ref, d), model: func(j *modelJob, now time.Time) error {
		if err := j.holder(ref, now); err != nil {
			return err
		}
		forward := d >= j.s.Detail && (d == gq.DetailClaimed || d == gq.DetailPreparing || d == gq.DetailLeasePending)
		if j.s.Status != gq.StatusClaimed || !forward {
			return gq.ErrIllegalMove
		}
		l := *j.s.Lease
		l.HeartbeatAt, l.ExpiresAt = now, now.Add(l.TTL)
		j.s.Lease = &l
		if d != j.s.Detail {
			j.s.Detail = d
			v := j.note(gq.EventPreparing, &l, now)
			v.Detail, v.Until = d, l.ExpiresAt
		}
		return nil
	}}
}

func startVerb(ref gq.LeaseRef, ttl time.Duration) verb {
	return verb{name: fmt.Sprintf("start %v", ttl), apply: starting(ref, ttl), model: func(j *modelJob, now time.Time) error {
		if err := j.holder(ref, now); err != nil {
			return err
		}
		if j.s.Status != gq.StatusClaimed {
			return gq.ErrIllegalMove
		}
		l := *j.s.Lease
		l.TTL = ttl
		if ttl == 0 {
			l.TTL = j.spec.Policy.LeaseTTL
		}
		if j.spec.Policy.Extend != gq.ExtendAdd {
			l.GrantedAt = now
		}
		l.HeartbeatAt, l.ExpiresAt = now, l.GrantedAt.Add(l.TTL)
		if !now.Before(l.ExpiresAt) {
			return gq.ErrStaleLease
		}
		j.s.Lease = &l
		j.start(j.s.ScheduledAt, now)
		return nil
	}}
}

func cancelVerb(reason string) verb {
	return verb{name: "cancel " + reason, apply: cancelling(reason), model: func(j *modelJob, now time.Time) error {
		switch {
		case j.s.Status == gq.StatusCancelled:
			return nil
		case j.terminal():
			return gq.ErrIllegalMove
		}
		asked := !j.s.Cancellation.RequestedAt.IsZero()
		if !asked {
			j.s.Cancellation = gq.Cancellation{RequestedAt: now, Reason: reason}
		}
		switch {
		case j.s.Status == gq.StatusRunning && !j.expired(now):
			if !asked {
				j.note(gq.EventCancelRequested, j.s.Lease, now).Reason = reason
			}
			return nil
		case j.s.Status == gq.StatusRunning:
			j.endLease(gq.LeaseExpired, "")
		case j.s.Status == gq.StatusClaimed:
			j.endLease(gq.LeaseCancelled, "")
		}
		j.cancelled(false, now)
		return nil
	}}
}

func signalVerb(value []byte) verb {
	return verb{name: fmt.Sprintf("signal %q", value), apply: signalling(value), result: value, model: func(j *modelJob, now time.Time) error {
		if j.s.Status != gq.StatusPending || j.s.Gate != gq.GateSignal || come(j.lifeEnd(), now) || come(j.signalBy(), now) {
			return gq.ErrIllegalMove
		}
		j.s.Gate, j.s.ResultBytes = gq.GateSignalled, len(value)
		if open, anyOpen := j.waits(); open > 0 || anyOpen {
			j.note(gq.EventUpdated, nil, now)
		} else {
			j.proceed(now)
		}
		return nil
	}}
}

func updateVerb(m gq.Metadata) verb {
	return verb{name: fmt.Sprintf("update %+v", m), apply: updating(m.Priority), metadata: &m, model: func(j *modelJob, now time.Time) error {
		if j.terminal() || m.Priority != j.s.Own && j.held() {
			return gq.ErrIllegalMove
		}
		j.s.Own = m.Priority
		j.note(gq.EventUpdated, nil, now)
		return nil
	}}
}

func rescheduleVerb(at time.Time) verb {
	return verb{name: fmt.Sprintf("reschedule to %v", at), apply: rescheduling(at), model: func(j *modelJob, now time.Time) error {
		later := at.After(now)
		switch {
		case j.terminal() || j.held() || j.s.Status == gq.StatusPending || come(j.lifeEnd(), now):
			return gq.ErrIllegalMove
		case later && come(j.lifeEnd(), at):
			return gq.ErrInvalid
		case !later && j.s.Status == gq.StatusScheduled || later && j.s.Status != gq.StatusScheduled && j.s.RunAt.Equal(at):
			return nil
		case later && (j.s.Status == gq.StatusScheduled || come(j.s.RunAt, now)):
			return machine.ErrClaimable
		}
		j.s.RunAt = at
		if !later {
			j.s.RunAt = now
			j.become(gq.StatusScheduled, nil, now).Reason = "rescheduled"
			return nil
		}
		v := j.note(gq.EventUpdated, nil, now)
		v.Until, v.Reason = at, "rescheduled"
		return nil
	}}
}

func advanceVerb() verb {
	return verb{name: "advance", apply: advancing, model: func(j *modelJob, now time.Time) error {
		j.advance(now)
		return nil
	}}
}
