package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/wake"
	"github.com/gopherqueue/gq/machine"
)

// watch is the keeper's state of a running execution. Times are of this machine's clock; zero
// means never.
type watch struct {
	index     int           // in keeper.runs; -1 after the handler has returned or was abandoned
	interval  time.Duration // between heartbeats
	beatAt    time.Time     // next heartbeat
	lastBeat  time.Time     // when the last heartbeat was sent or the job was received
	expires   time.Time     // the lease may have expired
	over      time.Time     // the lease has certainly expired
	timeoutAt time.Time     // end of the execution timeout
	graceAt   time.Time     // a handler that still runs then ignores its context
	cause     error         // why the context ended; nil if it has not
	asked     bool          // somebody wants it to stop, as the next heartbeat will tell
	lost      bool          // the queue would reject the outcome
	ignoring  bool

	fraction float64
	note     string
	unsent   bool // fraction and note have not been sent

	result   []byte
	children []gq.Spec
}

// keeper renews the leases of all running executions and ends the contexts of those that lost
// their lease or exceeded their timeout. It has one loop with one timer.
type keeper struct {
	worker *Worker
	wake   chan struct{} // buffered

	mu       sync.Mutex
	runs     []*Run
	next     time.Time     // when the loop runs next; zero is never
	active   int           // executions whose outcome the settler does not have yet
	idle     chan struct{} // closed when active becomes 0; nil if nobody waits
	ignoring int
	stats    keeperStats
}

type keeperStats struct {
	claimed, leasesLost, timedOut, cancels, ignored, abandoned uint64
}

// notice is a log line about an execution, with the cause if its context must end. tell does
// both after the lock is released.
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

// loop calls step whenever an execution needs attention.
func (k *keeper) loop(ctx context.Context) {
	timer := time.NewTimer(0) // next may be of an earlier loop
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

// atLocked makes the loop run no later than t.
func (k *keeper) atLocked(t time.Time) {
	if t.IsZero() || !k.next.IsZero() && !t.Before(k.next) {
		return
	}
	k.next = t
	wake.Up(k.wake)
}

// add starts to watch a job. The queue granted its lease between asked and received. After a
// long wait the exact time is unknown, and add assumes that the answer took at most a third of
// the lease.
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

// interval returns the time between heartbeats; 0 is no heartbeats.
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

// nextLocked returns when the execution next needs attention.
func (r *Run) nextLocked() time.Time {
	if r.cause != nil {
		next := r.graceAt
		if !r.lost {
			next = wake.Earlier(next, r.over)
		}
		return next
	}
	return wake.Earlier(wake.Earlier(r.expires, r.timeoutAt), r.beatAt)
}

func reached(t, now time.Time) bool { return !t.IsZero() && !now.Before(t) }

// step ends the contexts that must end by now. It returns the executions whose leases must be
// renewed and when to call it again.
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
			notices = append(notices, k.loseLocked(r, now, "the queue was unreachable"))
		case reached(r.timeoutAt, now):
			notices = append(notices, k.timeoutLocked(r, now))
		default:
			beating = beating || reached(r.beatAt, now)
		}
	}
	for _, r := range k.runs {
		// Include executions that are due within half an interval, so that executions
		// that started at different times soon share calls.
		if beating && r.cause == nil && reached(r.beatAt, now.Add(r.interval/2)) {
			due = append(due, r)
			r.beatAt, r.lastBeat, r.asked = beatAfter(now, r.interval), now, false
		}
		next = wake.Earlier(next, r.nextLocked())
	}
	k.next = next
	return due, next
}

// stopLocked marks a context as ended. The caller passes the notice to tell, which ends it.
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
	n.level, n.message, n.attr = slog.LevelWarn, "execution timeout", milliseconds("limit_ms", r.policy.ExecutionTimeout)
	return n
}

// overdueLocked checks an execution whose context has ended.
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

// ended is the state of an execution when its handler returned.
type ended struct {
	cause    error // why its context had ended; nil if it had not
	lost     bool
	over     time.Time
	result   []byte
	children []gq.Spec
}

// remove stops watching an execution whose handler has returned. It reports false if the
// execution was abandoned.
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

// leave records that a removed execution is complete.
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

// whenIdle returns a channel that is closed once no handler runs and the settler has every
// outcome.
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

// stopAll ends all contexts because the worker stops. It returns half of the remaining time of
// the shortest lease; waiting longer would risk that a job cannot be released in time.
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

// abandon stops watching all running executions and returns them.
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
