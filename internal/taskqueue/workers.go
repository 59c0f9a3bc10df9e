package taskqueue

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/taskwork"
)

const (
	heartbeatInterval = time.Second
	claimWait         = time.Minute
	callTimeout       = 3 * time.Second // below the TTL of a lease
	retryFirst        = 100 * time.Millisecond
	retryMost         = 2 * time.Second
)

// Work is what workers need of a queue. Package engine has it.
type Work interface {
	Claim(ctx context.Context, r gq.ClaimRequest) ([]gq.Job, error)
	Heartbeat(ctx context.Context, beats []gq.Beat) ([]gq.Answer, error)
	Settle(ctx context.Context, outcomes []gq.Outcome) ([]gq.Answer, error)
}

var _ Work = (*engine.Engine)(nil)

// Workers run jobs of the service: one loop for each slot, which claims a job,
// does its work, settles it and only then claims the next. So no more jobs are
// ever RUNNING here than there are slots.
type Workers struct {
	queue Work
	slots int
	log   *slog.Logger
	name  string

	mu   sync.Mutex
	held map[gq.LeaseRef]context.CancelCauseFunc // guarded by mu
}

// NewWorkers makes workers of so many slots. They start with Run. A nil log is
// silence.
func NewWorkers(q Work, slots int, log *slog.Logger) *Workers {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Workers{queue: q, slots: slots, log: log, name: fmt.Sprintf("taskqueue-%.12s", rand.Text()), held: make(map[gq.LeaseRef]context.CancelCauseFunc)}
}

// Run works until ctx ends. Jobs that run then are given back without using up
// an attempt.
func (w *Workers) Run(ctx context.Context) error {
	beating, stop := context.WithCancel(context.WithoutCancel(ctx))
	var slots, beats sync.WaitGroup
	beats.Go(func() { w.beat(beating) })
	for range w.slots {
		slots.Go(func() { w.slot(ctx) })
	}
	slots.Wait()
	stop()
	beats.Wait()
	return nil
}

// Why the work on a job ends early.
var (
	errAsked = errors.New("the job was asked to stop")
	errLost  = errors.New("the lease was lost")
)

// beat keeps the leases of running jobs alive, and learns which to stop.
func (w *Workers) beat(ctx context.Context) {
	tick := time.NewTicker(heartbeatInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := w.beatOnce(ctx); err != nil && ctx.Err() == nil {
				w.log.Warn("task queue heartbeat", "worker", w.name, "error", err)
			}
		}
	}
}

func (w *Workers) beatOnce(ctx context.Context) error {
	var beats []gq.Beat
	w.mu.Lock()
	for lease := range w.held {
		beats = append(beats, gq.Beat{Lease: lease, Progress: -1})
	}
	w.mu.Unlock()
	if len(beats) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answers, err := w.queue.Heartbeat(ctx, beats)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, a := range answers {
		end := w.held[beats[i].Lease]
		switch {
		case end == nil: // it is done
		case gq.KindOf(a.Err) == gq.KindStaleLease:
			end(errLost)
		case a.Err == nil && a.State.Cancellation.Requested():
			end(errAsked)
		}
	}
	return nil
}

// slot runs one job after the other.
func (w *Workers) slot(ctx context.Context) {
	for failures := 0; ctx.Err() == nil; {
		jobs, err := w.queue.Claim(ctx, gq.ClaimRequest{Worker: w.name, Queues: []string{Queue}, N: 1, Wait: claimWait})
		if err != nil && ctx.Err() == nil {
			failures++
			if failures == 1 {
				w.log.Warn("task queue claim; trying again", "worker", w.name, "error", err)
			}
			pause(ctx, retryDelay(failures))
			continue
		}
		failures = 0
		for i := range jobs {
			w.execute(ctx, &jobs[i])
		}
	}
}

// execute runs a job and settles it.
func (w *Workers) execute(ctx context.Context, job *gq.Job) {
	lease := job.State.Lease.Ref()
	running, end := context.WithCancelCause(ctx)
	defer end(nil)
	w.mu.Lock()
	w.held[lease] = end
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.held, lease)
	}()
	o := perform(running, job)
	if errors.Is(context.Cause(running), errLost) {
		w.log.Warn("task queue job lost; it runs elsewhere", "worker", w.name, "job", job.Spec.ID.String())
		return
	}
	o.Lease = lease
	w.settle(ctx, job.Spec.ID, o)
}

// perform does the work. If ctx ends first the outcome says why.
func perform(ctx context.Context, job *gq.Job) gq.Outcome {
	var todo work
	if err := json.Unmarshal(job.Spec.Payload.Data, &todo); err != nil {
		return failing("invalid_payload", "the payload is not that of a job of the task queue")
	}
	d := time.Duration(todo.DurationMS) * time.Millisecond
	finished := d == 0 || pause(ctx, d)
	switch {
	case !finished && errors.Is(context.Cause(ctx), errAsked):
		return gq.Outcome{Verdict: gq.Failing, Failure: gq.Failure{Category: gq.CategoryCancelled, Code: "cancel_requested", Message: errAsked.Error()}}
	case !finished:
		return gq.Outcome{Verdict: gq.GivenBack, Reason: "the server stops"}
	case todo.OutputBytes > taskwork.MaxOutputBytes:
		return failing(taskwork.TooLarge, fmt.Sprintf("%d bytes, more than %d", todo.OutputBytes, taskwork.MaxOutputBytes))
	default:
		return gq.Outcome{Verdict: gq.Succeeded, Result: taskwork.Output(job.Spec.Type, todo.OutputBytes)}
	}
}

func failing(code, message string) gq.Outcome {
	return gq.Outcome{Verdict: gq.Failing, Failure: gq.Failure{Category: gq.CategoryPermanent, Code: code, Message: message}}
}

// settle reports an outcome until the queue has answered or ctx has ended; the
// job runs again then when its lease is over.
func (w *Workers) settle(ctx context.Context, id gq.JobID, o gq.Outcome) {
	for failures := 1; ; failures++ {
		err := w.settleOnce(ctx, o)
		switch kind := gq.KindOf(err); {
		case err == nil:
			return
		case kind == gq.KindInvalid && o.Verdict == gq.Succeeded: // the store takes smaller results only
			smaller := failing(taskwork.TooLarge, fmt.Sprintf("%d bytes are more than the store takes", len(o.Result)))
			smaller.Lease = o.Lease
			o = smaller
			continue
		case kind == gq.KindUnavailable || kind == gq.KindTimeout || kind == gq.KindInternal:
			if failures == 1 {
				w.log.Warn("task queue outcome; trying again", "worker", w.name, "job", id.String(), "error", err)
			}
			if pause(ctx, retryDelay(failures)) {
				continue
			}
		}
		w.log.Warn("task queue outcome not taken", "worker", w.name, "job", id.String(), "verdict", o.Verdict.String(), "error", err)
		return
	}
}

func (w *Workers) settleOnce(ctx context.Context, o gq.Outcome) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout) // also while stopping
	defer cancel()
	answers, err := w.queue.Settle(ctx, []gq.Outcome{o})
	if err != nil {
		return err
	}
	return answers[0].Err
}

// retryDelay is how long to wait after a number of failures in a row.
func retryDelay(failures int) time.Duration {
	return min(retryFirst<<min(failures-1, 10), retryMost)
}

// pause waits. It returns false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
