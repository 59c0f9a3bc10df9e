package storetest

import (
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

// The reference model: the behaviour of a job, implemented a second time from the
// documentation, as simply as possible. It uses the types of package gq as data and none of
// its rules.

// modelJob is a job in the model.
type modelJob struct {
	spec       gq.Spec
	s          gq.State // Settled and Previous.Digest are not used
	metadata   gq.Metadata
	result     []byte
	checkpoint []byte
	edges      []modelEdge
	events     []gq.Event // Seq is not used
	settled    string     // the call that ended the current lease
	previous   string     // the call that ended the previous lease
	key        time.Time  // end of its idempotency window, zero without a key
	relevelled bool       // its priority changed since its turn was read
}

// modelEdge is a dependency that a job waits for.
type modelEdge struct {
	parent *modelJob
	kind   gq.DependencyKind
	told   bool
}

func (j *modelJob) clone() *modelJob {
	c := *j
	c.edges = slices.Clone(j.edges)
	c.events = slices.Clone(j.events)
	return &c
}

func (j *modelJob) terminal() bool {
	switch j.s.Status {
	case gq.StatusCompleted, gq.StatusFailed, gq.StatusDeadLetter, gq.StatusCancelled:
		return true
	default:
		return false
	}
}

func (j *modelJob) held() bool {
	return j.s.Status == gq.StatusClaimed || j.s.Status == gq.StatusRunning
}

// priority returns the more urgent of the job's own and the inherited priority.
func (j *modelJob) priority() gq.Priority { return urgent(j.s.Own, j.s.Inherited) }

// urgent returns the more urgent of two priorities; 0 is none.
func urgent(a, b gq.Priority) gq.Priority {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

var modelEvents = map[gq.Status]gq.EventType{
	gq.StatusPending: gq.EventSubmitted, gq.StatusDelayed: gq.EventDelayed, gq.StatusScheduled: gq.EventScheduled, gq.StatusClaimed: gq.EventClaimed,
	gq.StatusRunning: gq.EventStarted, gq.StatusRetrying: gq.EventRetrying, gq.StatusCompleted: gq.EventCompleted, gq.StatusFailed: gq.EventFailed,
	gq.StatusDeadLetter: gq.EventDeadLettered, gq.StatusCancelled: gq.EventCancelled,
}

// note adds an event to the history, about lease if there is one.
func (j *modelJob) note(what gq.EventType, l *gq.Lease, now time.Time) *gq.Event {
	v := gq.Event{Time: now, Queue: j.spec.Queue, JobType: j.spec.Type, Job: j.spec.ID, Type: what, Status: j.s.Status, Attempt: j.s.Attempt, TraceParent: j.s.TraceParent}
	if l != nil {
		v.Lease, v.Version, v.LeaseState, v.Worker, v.CostUnits = l.ID, l.Version, l.State, l.Worker, l.CostUnits
	}
	j.events = append(j.events, v)
	return &j.events[len(j.events)-1]
}

// become changes the status and adds the event.
func (j *modelJob) become(to gq.Status, l *gq.Lease, now time.Time) *gq.Event {
	ran, claimed := j.s.Status == gq.StatusRunning, j.s.Status == gq.StatusClaimed
	lost := !j.held() && !j.terminal() && j.s.Lease != nil && j.s.Lease.Attempt == 0
	j.s.Status, j.s.Detail, j.s.UpdatedAt = to, gq.DetailNone, now
	if to == gq.StatusScheduled && !claimed && !lost {
		j.s.ScheduledAt = now
	}
	if to == gq.StatusClaimed {
		j.s.Detail = gq.DetailClaimed
	}
	if j.terminal() {
		j.s.CompletedAt = now
	}
	v := j.note(modelEvents[to], l, now)
	if claimed && (to == gq.StatusRunning || to == gq.StatusRetrying) || lost && to == gq.StatusScheduled {
		v.Detail = gq.DetailClaimed
	}
	if ran {
		v.Elapsed = since(j.s.StartedAt, now)
	}
	return v
}

// since is how long something took, as events tell it.
func since(begin, now time.Time) time.Duration {
	return max(now.Sub(begin).Truncate(time.Microsecond), 0)
}

// proceed moves a job without open dependencies to SCHEDULED or DELAYED.
func (j *modelJob) proceed(now time.Time) {
	open, anyOpen := j.waits()
	switch {
	case open > 0 || anyOpen:
	case j.s.Gate == gq.GateSignal:
		if j.s.ScheduledAt.IsZero() {
			j.s.ScheduledAt = now
		}
	case j.s.Gate == gq.GateSignalled:
		j.s.Progress = 1
		j.become(gq.StatusCompleted, nil, now)
	case j.s.Gate == gq.GateFailure:
		j.s.Reason = "no_failure"
		j.become(gq.StatusCancelled, nil, now).Reason = "no_failure"
	case j.s.RunAt.After(now):
		j.become(gq.StatusDelayed, nil, now).Until = j.s.RunAt
	default:
		j.become(gq.StatusScheduled, nil, now)
	}
}

// waits counts the dependencies that a PENDING job still waits for.
func (j *modelJob) waits() (open int, anyOpen bool) {
	group, told := false, false // about AFTER_ANY dependencies
	for _, e := range j.edges {
		switch {
		case e.kind == gq.DependencyAfterAny:
			group, told = true, told || e.told
		case !e.told:
			open++
		}
	}
	return open, group && !told
}

// tell records for a PENDING job how the dependency of an edge ended.
func (j *modelJob) tell(edge int, parent *modelJob, now time.Time) {
	e := &j.edges[edge]
	e.told = true
	if e.kind == machine.DependencyOrder {
		j.proceed(now)
		return
	}
	j.s.Inherited = urgent(j.s.Inherited, parent.priority())
	end := parent.s.Status
	if j.s.Gate == gq.GateFailure && e.kind == gq.DependencyFanIn && end != gq.StatusCompleted {
		j.s.Gate = 0
	}
	if e.kind == gq.DependencyAfterAny || e.kind == gq.DependencyFanIn || end == gq.StatusCompleted {
		j.proceed(now)
		return
	}
	j.s.Reason = "dependency"
	switch end {
	case gq.StatusFailed:
		j.s.Failure = &gq.Failure{Category: gq.CategoryPermanent, Code: "dependency_failed", Message: "a job it depends on failed"}
	case gq.StatusDeadLetter:
		j.s.Failure = &gq.Failure{Category: gq.CategoryPermanent, Code: "dependency_dead_lettered", Message: "a job it depends on was dead-lettered"}
	default:
		j.s.Cancellation = gq.Cancellation{RequestedAt: now, Reason: "dependency"}
		if j.s.Gate == gq.GateFailure {
			j.s.Reason = "no_failure"
		}
	}
	j.become(end, nil, now).Reason = j.s.Reason
}

// startBy returns when the job ends unless it has started, zero for never.
func (j *modelJob) startBy() time.Time {
	if j.spec.Policy.StartWithin == 0 || j.s.Attempt > 0 || j.spec.Gate == gq.GateSignal {
		return time.Time{}
	}
	return j.s.CreatedAt.Add(j.spec.Policy.StartWithin)
}

// lifeEnd returns the end of the job's lifetime or its start deadline, zero for never.
func (j *modelJob) lifeEnd() time.Time { return earliest(j.lifetimeEnd(), j.startBy()) }

// outlived ends a job at the end of its lifetime or at its start deadline.
func (j *modelJob) outlived(now time.Time) *gq.Event {
	life, start := j.lifetimeEnd(), j.startBy()
	if start.IsZero() || !life.IsZero() && life.Before(start) {
		return j.giveUp("lifetime", now)
	}
	j.s.Cancellation = gq.Cancellation{RequestedAt: now, Reason: "start_deadline"}
	return j.cancelled(false, now)
}

// lifetimeEnd returns the end of the job's lifetime, zero for never.
func (j *modelJob) lifetimeEnd() (end time.Time) {
	p := j.spec.Policy
	if p.Lifetime > 0 {
		end = j.s.CreatedAt.Add(p.Lifetime)
	}
	if p.RunLifetime > 0 && !j.s.FirstStartedAt.IsZero() {
		end = earliest(end, j.s.FirstStartedAt.Add(p.RunLifetime))
	}
	return end
}

// deadline returns when the running attempt times out, zero for never.
func (j *modelJob) deadline() time.Time {
	if j.s.Status != gq.StatusRunning || j.spec.Policy.ExecutionTimeout == 0 {
		return time.Time{}
	}
	return j.s.StartedAt.Add(j.spec.Policy.ExecutionTimeout)
}

// signalBy returns until when the job waits for its signal, zero for ever.
func (j *modelJob) signalBy() time.Time {
	if j.s.Status != gq.StatusPending || j.s.Gate != gq.GateSignal || j.s.ScheduledAt.IsZero() || j.spec.Policy.ExecutionTimeout == 0 {
		return time.Time{}
	}
	return j.s.ScheduledAt.Add(j.spec.Policy.ExecutionTimeout)
}

// earliest returns the earlier of two times; zero is never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// come reports whether a time has come; zero is never.
func come(t, now time.Time) bool { return !t.IsZero() && !t.After(now) }

// due returns when a sweep has to change the job, zero for never.
func (j *modelJob) due() time.Time {
	if j.terminal() {
		return time.Time{}
	}
	due := earliest(earliest(j.lifeEnd(), j.deadline()), j.signalBy())
	if j.s.Status == gq.StatusDelayed || j.s.Status == gq.StatusRetrying {
		due = earliest(due, j.s.RunAt)
	}
	if j.held() {
		due = earliest(due, j.s.Lease.ExpiresAt)
	}
	return due
}

// expired reports whether the lease that holds the job has expired.
func (j *modelJob) expired(now time.Time) bool { return j.held() && come(j.s.Lease.ExpiresAt, now) }

// ripe reports whether a claim may take the job in its current state.
func (j *modelJob) ripe(now time.Time) bool {
	waiting := (j.s.Status == gq.StatusDelayed || j.s.Status == gq.StatusRetrying) && come(j.s.RunAt, now)
	return (j.s.Status == gq.StatusScheduled || waiting) && !come(j.lifeEnd(), now)
}

// claimable reports whether a claim must find the job, possibly after its lease expired.
func (j *modelJob) claimable(now time.Time) bool {
	if j.expired(now) {
		j = j.clone()
		j.advance(now)
	}
	return j.ripe(now)
}

// advance applies what is due.
func (j *modelJob) advance(now time.Time) {
	switch {
	case j.terminal():
	case come(j.lifeEnd(), now):
		if j.held() {
			j.endLease(gq.LeaseCancelled, "")
		}
		j.outlived(now)
	case come(j.signalBy(), now):
		j.s.Reason = "signal_timeout"
		j.s.Failure = &gq.Failure{
			Category: gq.CategoryTimeout, Code: "signal_timeout", Message: "no signal came within " + j.spec.Policy.ExecutionTimeout.String(),
		}
		v := j.become(gq.StatusFailed, nil, now)
		v.Reason, v.Failure = j.s.Reason, j.s.Failure
	case (j.s.Status == gq.StatusDelayed || j.s.Status == gq.StatusRetrying) && come(j.s.RunAt, now):
		j.become(gq.StatusScheduled, nil, now)
	case come(j.deadline(), now) && j.deadline().Before(j.s.Lease.ExpiresAt):
		j.endLease(gq.LeaseCancelled, "")
		j.failed(gq.Failure{
			Category: gq.CategoryTimeout, Code: "execution_timeout",
			Message: "the handler ran longer than " + j.spec.Policy.ExecutionTimeout.String(),
		}, false, now)
	case j.expired(now):
		j.lost(now)
	}
}

func (j *modelJob) endLease(how gq.LeaseState, call string) {
	l := *j.s.Lease
	l.State = how
	j.s.Lease, j.settled = &l, call
}

// heldUnder returns the current lease of a held job.
func (j *modelJob) heldUnder() *gq.Lease {
	if !j.held() {
		return nil
	}
	return j.s.Lease
}

func (j *modelJob) giveUp(reason string, now time.Time) *gq.Event {
	j.s.Reason = reason
	v := j.become(gq.StatusDeadLetter, j.heldUnder(), now)
	v.Reason = reason
	return v
}

func (j *modelJob) cancelled(honoured bool, now time.Time) *gq.Event {
	if honoured {
		j.s.Cancellation.HonouredAt = now
	}
	j.s.Reason = j.s.Cancellation.Reason
	v := j.become(gq.StatusCancelled, j.heldUnder(), now)
	v.Reason = j.s.Reason
	return v
}

func (j *modelJob) retry(delay time.Duration, now time.Time) *gq.Event {
	j.s.RunAt = now.Add(delay)
	if come(j.lifeEnd(), j.s.RunAt) {
		return j.outlived(now)
	}
	v := j.become(gq.StatusRetrying, j.s.Lease, now)
	v.Until, v.Beat = j.s.RunAt, j.s.Lease.HeartbeatAt
	at := len(j.events) - 1
	if delay == 0 {
		j.become(gq.StatusScheduled, nil, now)
	}
	return &j.events[at]
}

// delay returns the backoff before retry n, without jitter.
func (j *modelJob) delay(n int) time.Duration {
	b := j.spec.Policy.Backoff
	d := b.Initial
	for i := 1; i < n && d < b.Max; i++ {
		switch b.Strategy {
		case gq.StrategyLinear:
			d += b.Initial
		case gq.StrategyExponential:
			d *= time.Duration(b.Multiplier) // an integer in this test
		default: // constant
		}
	}
	return min(d, b.Max)
}

func (j *modelJob) exhausted() bool {
	return j.s.Attempt >= j.s.Bound || j.s.Faults >= j.spec.Policy.MaxAttempts
}

// failed decides what follows a failed attempt. spoke says that the worker reported it.
func (j *modelJob) failed(f gq.Failure, spoke bool, now time.Time) {
	p := j.spec.Policy
	j.s.Faults++
	j.s.Failure = &f
	again := f.Category == gq.CategoryTemporary ||
		f.Category == gq.CategoryTimeout && p.RetryTimeout || f.Category == gq.CategorySystem && p.RetrySystem
	var v *gq.Event
	switch {
	case !j.s.Cancellation.RequestedAt.IsZero() || f.Category == gq.CategoryCancelled:
		v = j.cancelled(spoke, now)
	case !again || p.RetryNever:
		v = j.become(gq.StatusFailed, j.s.Lease, now)
	case j.exhausted():
		v = j.giveUp("attempts_exhausted", now)
	default:
		v = j.retry(max(j.delay(j.s.Faults), f.RetryAfter), now)
	}
	v.Failure = &f
}

// lost decides what follows an expired lease.
func (j *modelJob) lost(now time.Time) {
	p := j.spec.Policy
	running := j.s.Status == gq.StatusRunning
	j.endLease(gq.LeaseExpired, "")
	if !running && !p.HoldFault {
		j.become(gq.StatusScheduled, j.s.Lease, now).Reason = "hold_expired"
		return
	}
	j.s.Losses++
	f := gq.Failure{
		Category: gq.CategorySystem, Code: "lease_expired",
		Message: "worker " + j.s.Lease.Worker + " sent no sign of life for " + j.s.Lease.TTL.String(),
	}
	if !running {
		f.Code = "ack_timeout"
	}
	j.s.Failure = &f
	if p.OnLoss == gq.LossFree {
		j.s.Bound++
	} else {
		j.s.Faults++
	}
	var v *gq.Event
	switch {
	case !j.s.Cancellation.RequestedAt.IsZero():
		v = j.cancelled(false, now)
	case running && p.OnLoss == gq.LossFails:
		v = j.become(gq.StatusFailed, j.s.Lease, now)
	case running && p.OnLoss != gq.LossFree && !p.RetrySystem:
		v = j.become(gq.StatusFailed, j.s.Lease, now)
	case p.OnLoss != gq.LossFree && j.exhausted():
		v = j.giveUp("attempts_exhausted", now)
	case p.MaxLeaseLosses > 0 && j.s.Losses > p.MaxLeaseLosses:
		v = j.giveUp("lease_losses", now)
	case p.OnLoss == gq.LossBackoff:
		v = j.retry(j.delay(j.s.Faults), now)
	default:
		v = j.retry(0, now)
	}
	if j.s.Status.Terminal() && j.s.Status != gq.StatusCancelled && (p.OnLoss == gq.LossFails || p.RetryNever) {
		f.Category = gq.CategoryTimeout
	}
	v.Failure = &f
}
