package machine

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
)

// Grant has the data of a new lease.
type Grant struct {
	Lease      gq.LeaseID // never issued before
	Worker     string
	Start      bool          // the execution starts with the claim
	TTL        time.Duration // 0 takes the policy's lease TTL, or its hold where Start is false
	DefaultTTL time.Duration // that of [gq.ClaimRequest]
	CostUnits  int64
	Events     []gq.Event // the claim's events are appended here; may be nil
}

// Claim leases a claimable job to a worker, with a larger version. A job whose delay or backoff
// is over becomes SCHEDULED first.
func Claim(s gq.State, g Grant, now time.Time) (gq.State, []gq.Event, error) {
	if !Claimable(&s, now) {
		return s, nil, illegal(s, "claim")
	}
	if g.Lease == "" {
		return s, nil, invalid("lease", "a claim needs a lease id")
	}
	if err := checkTTL(g.TTL); err != nil {
		return s, nil, err
	}
	t := step{State: s, events: slices.Grow(g.Events, 1)}
	claimable := later(t.ScheduledAt, t.RunAt)
	if t.Status != gq.StatusScheduled {
		t.move(gq.StatusScheduled, now)
	}
	before := t.LastAttempt()
	if t.Lease != nil {
		t.PreviousLease, t.PreviousDigest = t.Lease.ID, t.Settled
	}
	t.Version++
	t.Settled, t.Progress, t.Note = 0, 0, ""
	ttl := g.ttl(t.Policy)
	t.Lease = &gq.Lease{
		ID: g.Lease, Version: t.Version, State: gq.LeaseActive, Worker: g.Worker, Previous: before,
		GrantedAt: now, HeartbeatAt: now, ExpiresAt: now.Add(ttl), TTL: ttl, CostUnits: g.CostUnits,
	}
	if t.FirstStartedAt.IsZero() && t.Policy.RunLifetime > 0 {
		t.FirstStartedAt = now // even if its holder never starts it
	}
	if g.Start {
		t.start(claimable, now)
	} else {
		withLease(t.move(gq.StatusClaimed, now), t.Lease).Until = t.Lease.ExpiresAt
	}
	return t.State, t.events, nil
}

// ttl returns the lease time of a job. A short DefaultTTL must not replace a lease time that
// the job or its queue sets, nor that of a lease with a limited number of renewals.
func (g *Grant) ttl(p *gq.Policy) time.Duration {
	switch {
	case g.TTL > 0:
		return g.TTL
	case !g.Start:
		return p.Hold
	case g.DefaultTTL > 0 && g.DefaultTTL < p.LeaseTTL && p.Extend == gq.ExtendReset && p.KeepsLeaseTTL():
		return g.DefaultTTL
	}
	return p.LeaseTTL
}

func checkTTL(ttl time.Duration) error {
	if ttl < 0 || ttl > gq.MaxDuration {
		return invalid("ttl", fmt.Sprintf("%v is not between 0 and %v", ttl, gq.MaxDuration))
	}
	return nil
}

func (t *step) start(claimable, now time.Time) {
	t.Attempt++
	t.Lease.Attempt = t.Attempt
	t.StartedAt = now
	if t.FirstStartedAt.IsZero() {
		t.FirstStartedAt = now
	}
	e := withLease(t.move(gq.StatusRunning, now), t.Lease)
	e.Until, e.Elapsed = t.Lease.ExpiresAt, elapsed(claimable, now)
}

// Prepare records what the holder of a claimed job is doing and renews its hold. Details only
// move forward.
func Prepare(s gq.State, ref gq.LeaseRef, d gq.Detail, now time.Time) (gq.State, []gq.Event, error) {
	if err := holds(&s, ref, now); err != nil {
		return s, nil, err
	}
	if s.Status != gq.StatusClaimed || d < s.Detail || d > gq.DetailLeasePending || d == gq.DetailNone {
		return s, nil, fmt.Errorf("report %s: %w", d, illegal(s, "prepare"))
	}
	t := begin(s)
	l := *t.Lease
	l.HeartbeatAt, l.ExpiresAt = now, now.Add(l.TTL)
	t.Lease = &l
	if d != t.Detail {
		t.Detail = d
		e := withLease(t.note(gq.EventPreparing), &l)
		e.Detail, e.Until = d, l.ExpiresAt
	}
	return t.State, t.events, nil
}

// Ask records that the holder of a claimed job waits for capacity, renews its hold, and sets
// RunAt to the time at which the holder should ask again.
func Ask(s gq.State, ref gq.LeaseRef, again time.Duration, now time.Time) (gq.State, []gq.Event, error) {
	next, events, err := Prepare(s, ref, gq.DetailLeasePending, now)
	if err != nil {
		return s, nil, err
	}
	next.RunAt = now.Add(again)
	return next, events, nil
}

// Start begins to execute a claimed job. A ttl of 0 is the policy's. The ttl counts from now,
// or with ExtendAdd from the claim.
func Start(s gq.State, ref gq.LeaseRef, ttl time.Duration, now time.Time) (gq.State, []gq.Event, error) {
	if err := holds(&s, ref, now); err != nil {
		return s, nil, err
	}
	if s.Status != gq.StatusClaimed {
		return s, nil, illegal(s, "start")
	}
	if err := checkTTL(ttl); err != nil {
		return s, nil, err
	}
	if ttl == 0 {
		ttl = s.Policy.LeaseTTL
	}
	t := begin(s)
	l := *t.Lease
	if t.Policy.Extend == gq.ExtendReset {
		l.GrantedAt = now
	}
	l.HeartbeatAt, l.ExpiresAt, l.TTL = now, l.GrantedAt.Add(ttl), ttl
	if l.Expired(now) {
		return s, nil, fmt.Errorf("start job %s: its lease would have ended by now: %w", s.ID, gq.ErrStaleLease)
	}
	t.Lease = &l
	t.RunAt = earlier(t.RunAt, now) // Ask may have set a later time
	t.start(t.ScheduledAt, now)
	return t.State, t.events, nil
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Report is the content of a heartbeat. A negative progress and an empty note keep the last
// values.
type Report struct {
	Progress        float64
	Note            string
	CheckpointBytes int // size of the checkpoint stored with this heartbeat, 0 for none
}

// Heartbeat renews the lease and marks a cancel request as delivered, because the holder sees it
// in the returned state. It does not change Status or UpdatedAt.
func Heartbeat(s gq.State, ref gq.LeaseRef, r Report, now time.Time) (gq.State, []gq.Event, error) {
	if err := holds(&s, ref, now); err != nil {
		return s, nil, err
	}
	if err := inTime(s, now); err != nil {
		return s, nil, err
	}
	if math.IsNaN(r.Progress) || r.Progress > 1 {
		return s, nil, invalid("progress", fmt.Sprintf("%v is not between 0 and 1", r.Progress))
	}
	t := begin(s)
	l := *t.Lease
	switch {
	case t.Policy.Extend == gq.ExtendReset:
		l.ExpiresAt = now.Add(l.TTL)
	case t.Status == gq.StatusClaimed:
		return s, nil, illegal(s, "renew")
	case l.Renewals >= t.Policy.RenewalsMax:
		return s, nil, gq.ErrIllegalMove.Errorf("all %d renewals of job %s are used up", t.Policy.RenewalsMax, s.ID)
	default:
		l.Renewals++
		l.ExpiresAt = l.ExpiresAt.Add(share(l.TTL, t.Policy.ExtendPPB))
		withLease(t.note(gq.EventRenewed), &l).Until = l.ExpiresAt
	}
	l.HeartbeatAt = now
	t.Lease = &l
	if r.Progress >= 0 {
		t.Progress = r.Progress
	}
	if r.Note != "" {
		t.Note = Truncate(r.Note, gq.MaxReasonBytes)
	}
	if r.CheckpointBytes > 0 {
		t.CheckpointBytes = r.CheckpointBytes
		t.Checkpoints++
	}
	if t.Cancellation.Requested() && t.Cancellation.DeliveredAt.IsZero() {
		t.Cancellation.DeliveredAt = now
		withLease(t.note(gq.EventCancelDelivered), &l)
	}
	return t.State, t.events, nil
}

// Complete ends a running job with success. Repeating the call that ended the lease changes
// nothing and succeeds.
func Complete(s gq.State, ref gq.LeaseRef, result []byte, now time.Time) (gq.State, []gq.Event, error) {
	settled := digest('c', result)
	if repeated(&s, ref, settled) {
		return s, nil, nil
	}
	if err := holds(&s, ref, now); err != nil {
		return s, nil, err
	}
	if s.Status != gq.StatusRunning {
		return s, nil, illegal(s, "complete")
	}
	if err := inTime(s, now); err != nil {
		return s, nil, err
	}
	t := begin(s)
	t.endLease(gq.LeaseCompleted, settled)
	t.ResultBytes = len(result)
	if t.Cancellation.Requested() && t.Policy.CancelWins {
		t.cancelled(true, now)
		return t.State, t.events, nil
	}
	t.Progress = 1
	withLease(t.move(gq.StatusCompleted, now), t.Lease)
	return t.State, t.events, nil
}

// Fail ends the running attempt without success. The category of the failure and the policy
// decide whether to retry. The longer of RetryAfter and the backoff applies. If the retry would
// come after the end of the job's lifetime, the job becomes a dead letter at once, with
// [ReasonLifetime].
func Fail(s gq.State, ref gq.LeaseRef, f gq.Failure, d Draw, now time.Time) (gq.State, []gq.Event, error) {
	if !f.Category.Valid() {
		return s, nil, invalid("category", "must be one of TEMPORARY, PERMANENT, TIMEOUT, CANCELLED, SYSTEM")
	}
	f.Message, f.Code = Truncate(f.Message, gq.MaxMessageBytes), Truncate(f.Code, gq.MaxNameBytes)
	f.RetryAfter = min(max(f.RetryAfter, 0), gq.MaxDuration)
	settled := digest('f', []byte{byte(f.Category)}, []byte(f.Code), []byte(f.Message),
		binary.BigEndian.AppendUint64(nil, uint64(f.RetryAfter)))
	if repeated(&s, ref, settled) {
		return s, nil, nil
	}
	if err := holds(&s, ref, now); err != nil {
		return s, nil, err
	}
	if s.Status != gq.StatusRunning {
		return s, nil, illegal(s, "fail")
	}
	t := begin(s)
	t.endLease(gq.LeaseCompleted, settled)
	t.failed(f, d, now)
	return t.State, t.events, nil
}

// failed decides the next state after a failure that counts.
func (t *step) failed(f gq.Failure, d Draw, now time.Time) {
	t.Faults++
	t.Failure = &f
	var e *gq.Event
	switch {
	case t.Cancellation.Requested() || f.Category == gq.CategoryCancelled:
		e = t.cancelled(t.Lease.State == gq.LeaseCompleted, now)
	case !Retryable(f, t.Policy):
		e = withLease(t.move(gq.StatusFailed, now), t.Lease)
	case t.exhausted():
		e = t.giveUp(reasonExhausted, now)
	default:
		e = t.retry(max(Delay(t.Policy.Backoff, t.Faults, t.ID, d), f.RetryAfter), now)
	}
	e.Failure = &f
}

// exhausted reports whether no further execution is allowed.
func (t *step) exhausted() bool { return t.Attempt >= t.Bound || t.Faults >= t.Policy.MaxAttempts }

// retry schedules the next attempt. Without a delay the job is claimable at once. If the job's
// lifetime ends before the attempt, the job becomes a dead letter, and CANCELLED if it never
// started and its start deadline is before; RunAt still has the time of the attempt.
func (t *step) retry(delay time.Duration, now time.Time) *gq.Event {
	t.RunAt = now.Add(delay)
	if over(&t.State, t.RunAt) {
		return t.outlived(now)
	}
	e := withLease(t.move(gq.StatusRetrying, now), t.Lease)
	e.Until, e.Beat = t.RunAt, t.Lease.HeartbeatAt
	if delay == 0 {
		t.move(gq.StatusScheduled, now)
		e = &t.events[len(t.events)-2]
	}
	return e
}

// outlived ends a job whose lifetime is over, or that did not start in time. If both are true,
// what came first decides.
func (t *step) outlived(now time.Time) *gq.Event {
	if by := StartBy(&t.State); by.IsZero() || !by.Equal(LifeEnd(&t.State)) {
		return t.giveUp(ReasonLifetime, now)
	}
	t.Cancellation = gq.Cancellation{RequestedAt: now, Reason: ReasonStartDeadline}
	return t.cancelled(false, now)
}

func (t *step) giveUp(reason string, now time.Time) *gq.Event {
	held := t.Status.Held()
	e := t.move(gq.StatusDeadLetter, now)
	t.Reason, e.Reason = reason, reason
	if held {
		withLease(e, t.Lease)
	}
	return e
}

// cancelled ends the job as CANCELLED. The cancellation is honoured if the worker reported it.
// The event names the lease that ended with the job, not an earlier one.
func (t *step) cancelled(honoured bool, now time.Time) *gq.Event {
	if honoured {
		t.Cancellation.HonouredAt = now
	}
	held := t.Status.Held()
	e := t.move(gq.StatusCancelled, now)
	t.Reason = t.Cancellation.Reason
	e.Reason = t.Reason
	if held {
		withLease(e, t.Lease)
	}
	return e
}

// Release returns a held job without using up an attempt. The job is claimable after the delay.
// A job with a cancel request ends instead, and so does a job
// whose lifetime ends before the delay.
func Release(s gq.State, ref gq.LeaseRef, delay time.Duration, reason string, now time.Time) (gq.State, []gq.Event, error) {
	reason = Truncate(reason, gq.MaxReasonBytes)
	settled := digest('r', []byte(reason), binary.BigEndian.AppendUint64(nil, uint64(delay)))
	if repeated(&s, ref, settled) {
		return s, nil, nil
	}
	if delay < 0 || delay > gq.MaxDuration {
		return s, nil, invalid("delay", fmt.Sprintf("%v is not between 0 and %v", delay, gq.MaxDuration))
	}
	if err := holds(&s, ref, now); err != nil {
		return s, nil, err
	}
	if err := inTime(s, now); err != nil {
		return s, nil, err
	}
	t := begin(s)
	t.endLease(gq.LeaseCompleted, settled)
	switch {
	case t.Cancellation.Requested():
		t.cancelled(true, now)
	case t.Status == gq.StatusClaimed && delay == 0:
		t.RunAt = earlier(t.RunAt, now)
		e := withLease(t.move(gq.StatusScheduled, now), t.Lease)
		e.Reason = reason
	default:
		if t.Status == gq.StatusRunning {
			t.Bound++ // the attempt does not count
		}
		if e := t.retry(delay, now); e.Status != gq.StatusDeadLetter {
			e.Reason = reason
		}
	}
	return t.State, t.events, nil
}

// Cancel ends a job that is not running, and requests the cancellation of a running one.
// Cancelling a cancelled job changes nothing. For any other finished job the error is
// [gq.ErrIllegalMove].
func Cancel(s gq.State, reason string, now time.Time) (gq.State, []gq.Event, error) {
	reason = Truncate(reason, gq.MaxReasonBytes)
	if s.Status == gq.StatusCancelled {
		return s, nil, nil
	}
	if s.Status.Terminal() {
		return s, nil, illegal(s, "cancel")
	}
	t := begin(s)
	if t.Status == gq.StatusRunning && !t.Lease.Expired(now) {
		if t.Cancellation.Requested() {
			return s, nil, nil
		}
		t.Cancellation = gq.Cancellation{RequestedAt: now, Reason: reason}
		withLease(t.note(gq.EventCancelRequested), t.Lease).Reason = reason
		return t.State, t.events, nil
	}
	if !t.Cancellation.Requested() {
		t.Cancellation = gq.Cancellation{RequestedAt: now, Reason: reason}
	}
	switch t.Status {
	case gq.StatusRunning:
		t.endLease(gq.LeaseExpired, 0)
	case gq.StatusClaimed:
		t.endLease(gq.LeaseCancelled, 0)
	default: // no worker holds it
	}
	t.cancelled(false, now)
	return t.State, t.events, nil
}

// Advance applies the changes that are due by now: it ends a job whose lifetime or start deadline is over, ends an
// expired lease, times out a long execution or a wait for a signal, and makes a delayed job claimable. If nothing is
// due, it changes nothing.
func Advance(s gq.State, d Draw, now time.Time) (gq.State, []gq.Event, error) {
	if s.Status.Terminal() {
		return s, nil, nil
	}
	t := begin(s)
	switch {
	case over(&t.State, now):
		if t.Status.Held() {
			t.endLease(gq.LeaseCancelled, 0)
		}
		t.outlived(now)
	case reached(SignalBy(&t.State), now):
		t.unsignalled(now)
	case waitsForTime(&t.State) && !now.Before(t.RunAt):
		t.move(gq.StatusScheduled, now)
	case t.Status == gq.StatusRunning && tooLong(&t.State, now) && Deadline(&t.State).Before(t.Lease.ExpiresAt):
		t.endLease(gq.LeaseCancelled, 0)
		t.failed(gq.Failure{
			Category: gq.CategoryTimeout, Code: "execution_timeout",
			Message: fmt.Sprintf("the handler ran longer than %v", t.Policy.ExecutionTimeout),
		}, d, now)
	case t.Status.Held() && t.Lease.Expired(now):
		f := gq.Failure{Code: "lease_expired", Message: fmt.Sprintf("worker %s sent no sign of life for %v", t.Lease.Worker, t.Lease.TTL)}
		if t.Status == gq.StatusClaimed {
			f.Code = "ack_timeout"
		}
		t.lost(f, "hold_expired", d, now)
	}
	return t.State, t.events, nil
}

// Lose ends a lease whose worker is known to be gone, exactly as if the lease had expired. It
// changes nothing if the worker was granted or has renewed the lease after a time.
func Lose(s gq.State, ref gq.LeaseRef, since time.Time, d Draw, now time.Time) (gq.State, []gq.Event, error) {
	if err := holds(&s, ref, now); err != nil {
		return s, nil, err
	}
	if s.Lease.HeartbeatAt.After(since) {
		return s, nil, nil
	}
	t := begin(s)
	t.lost(gq.Failure{
		Code: CodeWorkerGone, Message: fmt.Sprintf("the connection of worker %s broke and it did not come back", t.Lease.Worker),
	}, CodeWorkerGone, d, now)
	return t.State, t.events, nil
}

// CodeWorkerGone is the code of a failure where the worker's process is gone.
const CodeWorkerGone = "worker_gone"

// lost decides the next state after a lease was lost. A job that had not started has no failure
// but a reason, unless its policy counts that as a fault. If every report of a worker is final
// (RetryNever), the only other end is that none came in time: a timeout.
func (t *step) lost(f gq.Failure, reason string, d Draw, now time.Time) {
	held := t.Status
	t.endLease(gq.LeaseExpired, 0)
	if held == gq.StatusClaimed && !t.Policy.HoldFault {
		t.RunAt = earlier(t.RunAt, now)
		withLease(t.move(gq.StatusScheduled, now), t.Lease).Reason = reason
		return
	}
	t.Losses++
	f.Category = gq.CategorySystem
	t.Failure = &f
	counts := t.Policy.OnLoss != gq.LossFree
	if counts {
		t.Faults++
	} else {
		t.Bound++
	}
	var e *gq.Event
	switch {
	case t.Cancellation.Requested():
		e = t.cancelled(false, now)
	case held == gq.StatusRunning && (t.Policy.OnLoss == gq.LossFails || counts && !t.Policy.RetrySystem):
		e = withLease(t.move(gq.StatusFailed, now), t.Lease)
	case counts && t.exhausted():
		e = t.giveUp(reasonExhausted, now)
	case t.Policy.MaxLeaseLosses > 0 && t.Losses > t.Policy.MaxLeaseLosses:
		e = t.giveUp(reasonLosses, now)
	case t.Policy.OnLoss == gq.LossBackoff:
		e = t.retry(Delay(t.Policy.Backoff, t.Faults, t.ID, d), now)
	default:
		e = t.retry(0, now)
	}
	if failed := t.Status == gq.StatusFailed || t.Status == gq.StatusDeadLetter; failed && (t.Policy.OnLoss == gq.LossFails || t.Policy.RetryNever) {
		f.Category = gq.CategoryTimeout
	}
	e.Failure = &f
}

// EndedDependency is a dependency that has reached a terminal status.
type EndedDependency struct {
	Kind     gq.DependencyKind
	Status   gq.Status
	Priority gq.Priority // effective
}

// ReasonDependency is the reason of a job that ended because a job that it depends on did not
// succeed.
const ReasonDependency = "dependency"

// DependencyEnded updates a waiting job after one of its dependencies has ended. It does not
// change a job that no longer waits.
func DependencyEnded(s gq.State, dep EndedDependency, now time.Time) (gq.State, []gq.Event, error) {
	if s.Status != gq.StatusPending || !Waits(dep.Kind) {
		return s, nil, nil
	}
	t := begin(s)
	if dep.Kind != DependencyOrder {
		t.Inherited = dep.Priority.Inherit(t.Inherited)
		if t.Gate == gq.GateFailure && dep.Kind == gq.DependencyFanIn && dep.Status != gq.StatusCompleted {
			t.Gate = 0
		}
	}
	end := func(to gq.Status) {
		t.Reason = ReasonDependency
		if t.Gate == gq.GateFailure && to == gq.StatusCancelled { // it follows a final job that also had no failure
			t.Reason = ReasonNoFailure
		}
		t.move(to, now).Reason = t.Reason
	}
	switch Propagate(dep.Kind, dep.Status) {
	case EffectCount:
		t.Waits = max(t.Waits-1, 0)
		t.ready(now)
	case EffectRelease:
		t.AnyOpen = false
		t.ready(now)
	case EffectFail:
		t.Failure = &gq.Failure{Category: gq.CategoryPermanent, Code: "dependency_failed", Message: "a job it depends on failed"}
		end(gq.StatusFailed)
	case EffectDeadLetter:
		t.Failure = &gq.Failure{Category: gq.CategoryPermanent, Code: "dependency_dead_lettered", Message: "a job it depends on was dead-lettered"}
		end(gq.StatusDeadLetter)
	case EffectCancel:
		t.Cancellation = gq.Cancellation{RequestedAt: now, Reason: ReasonDependency}
		end(gq.StatusCancelled)
	case EffectNone:
	}
	return t.State, t.events, nil
}

// Update records a change of metadata. The job must be live, and the priority cannot change
// while a worker holds the job.
func Update(s gq.State, own gq.Priority, now time.Time) (gq.State, []gq.Event, error) {
	if s.Status.Terminal() {
		return s, nil, illegal(s, "update")
	}
	if own != s.Own && s.Status.Held() {
		return s, nil, gq.ErrIllegalMove.Errorf("the priority of job %s cannot change while it is %s", s.ID, s.Status)
	}
	if !own.Valid() {
		return s, nil, invalid("priority", "must be one of CRITICAL, HIGH, NORMAL, LOW, BULK")
	}
	t := begin(s)
	t.Own = own
	t.note(gq.EventUpdated)
	return t.State, t.events, nil
}
