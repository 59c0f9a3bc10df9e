package native

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

// cancelWatch waits for a request to stop the job of one heartbeat. It listens before the heartbeat,
// which is the first to tell the job.
type cancelWatch struct {
	asked chan struct{} // holds one

	mu     sync.Mutex
	job    gq.JobID   // zero before the heartbeat; guarded by mu
	before []gq.JobID // jobs that were asked to stop before it; guarded by mu
}

func (c *cancelWatch) tell(jobs []gq.JobID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.job.IsZero() {
		c.before = append(c.before, jobs...)
	} else if slices.Contains(jobs, c.job) {
		c.wakeLocked()
	}
}

func (c *cancelWatch) wakeLocked() {
	select {
	case c.asked <- struct{}{}:
	default:
	}
}

// wait reports whether the job is asked to stop within that time, before its next heartbeat is due and
// before the context ends.
func (c *cancelWatch) wait(ctx context.Context, s *gq.State, most time.Duration) bool {
	if s.Lease == nil || s.Policy == nil {
		return false
	}
	c.mu.Lock()
	c.job = s.ID
	if slices.Contains(c.before, s.ID) {
		c.wakeLocked()
	}
	c.before = nil
	c.mu.Unlock()
	timer := time.NewTimer(min(most, machine.RenewBy(*s.Lease, s.Policy).Sub(s.Lease.HeartbeatAt)))
	defer timer.Stop()
	select {
	case <-c.asked:
		return true
	case <-timer.C:
		return false
	case <-ctx.Done():
		return false
	}
}

// heartbeatWaiting sends a heartbeat and, if its caller wants to wait, answers when somebody asks the
// job to stop.
func (h *HTTP) heartbeatWaiting(ctx context.Context, beat gq.Heartbeat, most time.Duration) ([]gq.LeaseResult, error) {
	if most == 0 || h.options.CancelRequests == nil {
		return h.engine.Heartbeat(ctx, []gq.Heartbeat{beat})
	}
	watch := &cancelWatch{asked: make(chan struct{}, 1)}
	defer h.options.CancelRequests(watch.tell)()
	answers, err := h.engine.Heartbeat(ctx, []gq.Heartbeat{beat})
	if err != nil || answers[0].Err != nil || answers[0].State.Cancellation.Requested() {
		return answers, err
	}
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(h.draining, cancel)()
	if !watch.wait(waiting, &answers[0].State, most) {
		return answers, nil
	}
	return h.engine.Heartbeat(ctx, []gq.Heartbeat{{Lease: beat.Lease, Progress: -1}}) // tells the request and records that
}
