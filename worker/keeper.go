package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

// watch is what the keeper knows of a running execution. Instants are of this
// machine's clock; a zero one never comes.
type watch struct {
	index     int           // in keeper.runs; -1 once the handler has returned or was abandoned
	interval  time.Duration // between heartbeats
	beatAt    time.Time     // next heartbeat
	lastBeat  time.Time     // when the last one was sent, or the job was received
	expires   time.Time     // the lease may have run out
	over      time.Time     // the lease has run out for certain
	timeoutAt time.Time     // the execution timeout is over
	graceAt   time.Time     // a handler that has not returned ignores its context
	cause     error         // why the context ended; nil while it has not
	lost      bool          // the outcome is worth nothing
	ignoring  bool

	fraction float64
	note     string
	unsent   bool // there is progress to report

	result   []byte
	children []gq.Spec
}

// keeper watches over everything that runs: it renews leases, and ends the
// contexts of executions that lost theirs or are over their time. One loop does
// so for all, with one timer.
type keeper struct {
	worker *Worker
	wake   chan struct{} // room for one

	mu       sync.Mutex
	runs     []*Run
	next     time.Time     // when the loop will look again; zero for not at all
	active   int           // executions whose outcome has not been handed over
	idle     chan struct{} // closed when there are none any more; nil while nobody asks
	ignoring int
	stats    keeperStats
}

type keeperStats struct {
	claimed, leasesLost, timedOut, cancels, ignored, abandoned uint64
}

// notice is something to log about an execution, and why its context is to end
// if it is. Both happen once the lock is no longer held.
type notice struct {
	run     *Run
	cause   error
	level   slog.Level
	message string // empty for none
	attr    slog.Attr
}

func tell(notices []notice) {
	for _, n := range notices {
		if n.message != "" {
			n.run.logged(n.level, n.message, n.attr)
		}
		if n.cause != nil {
			n.run.cancel(n.cause)
		}
	}
}

// loop calls step when something is due.
func (k *keeper) loop(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-k.wake:
		}
		now := time.Now()
		due, next := k.step(now)
		for len(due) > 0 {
			n := min(len(due), maxBatch)
			chunk := due[:n]
			k.worker.background.Go(func() { k.beat(ctx, chunk, now) })
			due = due[n:]
		}
		if next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(next))
		}
	}
}

// atLocked asks the loop to look no later than t.
func (k *keeper) atLocked(t time.Time) {
	if t.IsZero() || !k.next.IsZero() && !t.Before(k.next) {
		return
	}
	k.next = t
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// add begins to watch over a job that was asked for at one instant and received
// at another. It was granted in between, at an unknown time if the queue made us
// wait: then we assume that the answer took no longer than a third of the lease.
func (k *keeper) add(r *Run, asked, received time.Time) {
	lease := r.job.State.Lease
	ttl := lease.ExpiresAt.Sub(lease.GrantedAt)
	granted := asked
	if limit := received.Add(-ttl / 3); granted.Before(limit) {
		granted = limit
	}
	r.expires, r.over = granted.Add(ttl), received.Add(ttl)
	r.interval = k.worker.interval(lease, r.policy)
	r.lastBeat = received
	r.beatAt = beatAfter(received, r.interval)
	r.timeoutAt = r.context.deadline

	k.mu.Lock()
	defer k.mu.Unlock()
	r.index = len(k.runs)
	k.runs = append(k.runs, r)
	k.active++
	k.stats.claimed++
	k.atLocked(r.nextLocked())
}

// interval is how long a holder may wait before it renews, by the policy; 0 is
// for ever.
func (w *Worker) interval(lease *gq.Lease, p *gq.Policy) time.Duration {
	if p.Extend == gq.ExtendAdd && lease.Renewals >= p.RenewalsMax {
		return 0
	}
	d := machine.RenewBy(*lease, p).Sub(lease.HeartbeatAt)
	if every := w.config.HeartbeatEvery; every > 0 && p.Extend == gq.ExtendReset {
		d = min(d, every)
	}
	return max(d, time.Millisecond)
}

func beatAfter(t time.Time, interval time.Duration) time.Time {
	if interval == 0 {
		return time.Time{}
	}
	return t.Add(interval)
}

// nextLocked is when the execution next needs attention.
func (r *Run) nextLocked() time.Time {
	if r.cause != nil {
		next := r.graceAt
		if !r.lost {
			next = earlier(next, r.over)
		}
		return next
	}
	return earlier(earlier(r.expires, r.timeoutAt), r.beatAt)
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func reached(t, now time.Time) bool { return !t.IsZero() && !now.Before(t) }

// step does what has become due at an instant. It returns the executions whose
// leases are to be renewed and when to call it again.
func (k *keeper) step(now time.Time) (due []*Run, next time.Time) {
	var notices []notice
	defer func() { tell(notices) }()
	k.mu.Lock()
	defer k.mu.Unlock()
	beating := false
	for _, r := range k.runs {
		switch {
		case r.cause != nil:
			notices = k.overdueLocked(notices, r, now)
		case reached(r.expires, now):
			notices = append(notices, k.loseLocked(r, now, "the queue could not be reached"))
		case reached(r.timeoutAt, now):
			notices = append(notices, k.timeoutLocked(r, now))
		default:
			beating = beating || reached(r.beatAt, now)
		}
	}
	for _, r := range k.runs {
		// Who is due within half an interval comes along, so that executions
		// that started at different times soon share their calls.
		if beating && r.cause == nil && reached(r.beatAt, now.Add(r.interval/2)) {
			due = append(due, r)
			r.beatAt, r.lastBeat = beatAfter(now, r.interval), now
		}
		next = earlier(next, r.nextLocked())
	}
	k.next = next
	return due, next
}

// stopLocked ends a context for a reason. The caller passes the notice to tell.
func (k *keeper) stopLocked(r *Run, cause error, now time.Time) notice {
	r.cause = cause
	r.graceAt = now.Add(k.worker.config.Grace)
	k.atLocked(r.nextLocked())
	return notice{run: r, cause: cause}
}

func (k *keeper) loseLocked(r *Run, now time.Time, why string) notice {
	r.lost = true
	k.stats.leasesLost++
	n := k.stopLocked(r, ErrLeaseLost, now)
	n.level, n.message, n.attr = slog.LevelWarn, "lease lost", slog.String("reason", why)
	return n
}

func (k *keeper) timeoutLocked(r *Run, now time.Time) notice {
	k.stats.timedOut++
	n := k.stopLocked(r, ErrExecutionTimeout, now)
	n.level, n.message, n.attr = slog.LevelWarn, "execution timeout", slog.Duration("limit", r.policy.ExecutionTimeout)
	return n
}

// overdueLocked looks after an execution whose context has ended.
func (k *keeper) overdueLocked(notices []notice, r *Run, now time.Time) []notice {
	if reached(r.graceAt, now) {
		r.graceAt = time.Time{}
		r.ignoring = true
		k.ignoring++
		k.stats.ignored++
		notices = append(notices, notice{
			run: r, level: slog.LevelError, message: "handler ignores the end of its context", attr: slog.Any("cause", r.cause),
		})
	}
	if !r.lost && reached(r.over, now) {
		r.lost = true
		k.stats.leasesLost++
		notices = append(notices, notice{
			run: r, level: slog.LevelWarn, message: "lease lost", attr: slog.String("reason", "the handler did not return in time"),
		})
	}
	return notices
}

// ended is what an execution leaves when its handler has returned.
type ended struct {
	cause    error // why its context had ended, nil if it had not
	lost     bool
	over     time.Time
	result   []byte
	children []gq.Spec
}

// remove ends the watch over an execution whose handler has returned. It reports
// false for one that was abandoned.
func (k *keeper) remove(r *Run) (ended, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r.index < 0 {
		return ended{}, false
	}
	k.removeLocked(r)
	return ended{r.cause, r.lost, r.over, r.result, r.children}, true
}

func (k *keeper) removeLocked(r *Run) {
	last := len(k.runs) - 1
	k.runs[r.index] = k.runs[last]
	k.runs[r.index].index = r.index
	k.runs[last] = nil
	k.runs = k.runs[:last]
	r.index = -1
	if r.ignoring {
		k.ignoring--
	}
}

// leave tells that nothing is left to be done about an execution that was
// removed.
func (k *keeper) leave() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.leaveLocked()
}

func (k *keeper) leaveLocked() {
	k.active--
	if k.active == 0 && k.idle != nil {
		close(k.idle)
		k.idle = nil
	}
}

// whenIdle is closed once nothing runs and every outcome was handed over.
func (k *keeper) whenIdle() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.idle != nil {
		return k.idle
	}
	idle := make(chan struct{})
	if k.active == 0 {
		close(idle)
	} else {
		k.idle = idle
	}
	return idle
}

// stopAll ends every context that has not ended, because the worker stops. It
// returns half of what is left of the shortest lease: after that a job might not
// be given back in time.
func (k *keeper) stopAll(now time.Time) time.Duration {
	var notices []notice
	defer func() { tell(notices) }()
	k.mu.Lock()
	defer k.mu.Unlock()
	shortest := gq.MaxDuration
	for _, r := range k.runs {
		if r.cause == nil {
			notices = append(notices, k.stopLocked(r, ErrDraining, now))
		}
		if !r.lost {
			shortest = min(shortest, r.expires.Sub(now)/2)
		}
	}
	return max(shortest, 0)
}

// abandon stops watching over what still runs.
func (k *keeper) abandon() []*Run {
	k.mu.Lock()
	defer k.mu.Unlock()
	left := make([]*Run, 0, len(k.runs))
	for len(k.runs) > 0 {
		r := k.runs[0]
		left = append(left, r)
		k.removeLocked(r)
		k.leaveLocked()
		k.stats.abandoned++
	}
	return left
}
