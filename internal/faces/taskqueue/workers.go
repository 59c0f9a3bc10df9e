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
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/retry"
	"github.com/gopherqueue/gq/internal/taskwork"
)

const (
	heartbeatInterval = time.Second
	claimWait         = time.Minute
	callTimeout       = 3 * time.Second // less than the lease TTL
	retryFirst        = 100 * time.Millisecond
	retryMost         = 2 * time.Second
)

// Work is the part of a queue that workers need. An engine implements it.
type Work interface {
	Claim(ctx context.Context, r gq.ClaimRequest) ([]gq.Job, error)
	Start(ctx context.Context, lease gq.LeaseRef, ttl time.Duration) (gq.State, error)
	Heartbeat(ctx context.Context, beats []gq.Heartbeat) ([]gq.LeaseResult, error)
	Settle(ctx context.Context, outcomes []gq.Outcome) ([]gq.LeaseResult, error)
}

var _ Work = (*engine.Engine)(nil)

// Workers run jobs of the service. Each slot is a loop that claims a job, runs it,
// settles it and only then starts the next, so at most as many jobs are RUNNING as there
// are slots.
//
// Each job takes two commits, so a slot whose jobs take no time would mostly wait for the
// disk. It therefore claims more jobs at once, doubling the number each time. It holds
// them without starting them: they stay QUEUED and can be canceled. They start and end
// together in one commit while the slot claims the next ones. A job that does take time
// starts on its own, and the slot gives back any second one, because another slot may be
// free.
type Workers struct {
	queue Work
	slots int
	log   *slog.Logger
	name  string

	claiming sync.RWMutex // read-locked by a claim; a slot that gives a job back waits for it

	mu   sync.Mutex
	held map[gq.LeaseRef]context.CancelCauseFunc // guarded by mu
}

const (
	mostAhead  = 64      // most jobs that a slot holds at once
	mostOutput = 1 << 20 // most bytes of output in one commit, except for a single larger one
)

// NewWorkers creates workers with this many slots. Run starts them. A nil log discards.
func NewWorkers(q Work, slots int, log *slog.Logger) *Workers {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Workers{queue: q, slots: slots, log: log, name: fmt.Sprintf("taskqueue-%.12s", rand.Text()), held: make(map[gq.LeaseRef]context.CancelCauseFunc)}
}

// Run works until ctx ends and then gives running jobs back without using up an attempt.
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

// Why a running job is stopped early.
var (
	errAsked = errors.New("the job was asked to stop")
	errLost  = errors.New("the lease was lost")
)

// beat renews the leases of running jobs and stops jobs that were canceled or lost.
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
	var beats []gq.Heartbeat
	w.mu.Lock()
	for lease := range w.held {
		beats = append(beats, gq.Heartbeat{Lease: lease, Progress: -1})
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
		case end == nil: // already done
		case errs.KindOf(a.Err) == gq.KindStaleLease:
			end(errLost)
		case a.Err == nil && a.State.Cancellation.Requested():
			end(errAsked)
		}
	}
	return nil
}

// slot claims and runs jobs in a loop.
func (w *Workers) slot(ctx context.Context) {
	ahead := 1
	var settled sync.WaitGroup // tracks the outcomes of the previous jobs
	defer settled.Wait()
	for failures := 0; ctx.Err() == nil; {
		request := gq.ClaimRequest{Worker: w.name, Queues: []string{Queue}, N: ahead, Hold: true}
		if ahead == 1 {
			settled.Wait()
			request.Hold, request.Wait = false, claimWait
		}
		jobs, err := w.claim(ctx, request)
		if err != nil && ctx.Err() == nil {
			failures++
			if failures == 1 {
				w.log.Warn("task queue claim; trying again", "worker", w.name, "error", err)
			}
			retry.Pause(ctx, retryDelay(failures))
			continue
		}
		failures = 0
		settled.Wait()
		if w.runAll(ctx, jobs, &settled) {
			ahead = min(2*ahead, mostAhead)
		} else {
			ahead = 1
		}
	}
}

func (w *Workers) claim(ctx context.Context, r gq.ClaimRequest) ([]gq.Job, error) {
	w.claiming.RLock()
	defer w.claiming.RUnlock()
	if ctx.Err() != nil {
		return nil, nil
	}
	return w.queue.Claim(ctx, r)
}

// runAll runs jobs and settles them, some in the background under settled. It reports
// whether there were jobs and all of them took no time.
func (w *Workers) runAll(ctx context.Context, jobs []gq.Job, settled *sync.WaitGroup) (instant bool) {
	var done []ending
	var long *gq.Job
	bytes := 0
	for i := range jobs {
		job := &jobs[i]
		o := gq.Outcome{Verdict: gq.VerdictRelease, Reason: "the slot is taken"}
		switch {
		case takesNoTime(job):
			o = perform(ctx, job)
			o.Begin = true
		case long == nil:
			long = job
			continue
		}
		o.Lease = job.State.Lease.Ref()
		done = append(done, ending{job.Spec.ID, o})
		if bytes += len(o.Result); bytes > mostOutput {
			w.settle(ctx, done)
			done, bytes = nil, 0
		}
	}
	if long == nil {
		settled.Go(func() { w.settle(ctx, done) })
		return len(jobs) > 0
	}
	w.settle(ctx, done)
	if w.started(ctx, long) {
		w.execute(ctx, long)
	}
	return false
}

// started starts a held job and reports whether it runs: a canceled one does not.
func (w *Workers) started(ctx context.Context, job *gq.Job) bool {
	if job.State.Status == gq.StatusRunning {
		return true
	}
	if ctx.Err() != nil {
		w.settle(ctx, []ending{{job.Spec.ID, gq.Outcome{Lease: job.State.Lease.Ref(), Verdict: gq.VerdictRelease, Reason: "the server stops"}}})
		return false
	}
	_, err := w.queue.Start(ctx, job.State.Lease.Ref(), 0)
	if err != nil && errs.KindOf(err) != gq.KindStaleLease {
		w.log.Warn("task queue start; the job waits until its hold is over", "worker", w.name, "job", job.Spec.ID.String(), "error", err)
	}
	return err == nil
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
	if ctx.Err() != nil { // make sure that no stopping slot claims the job given back here
		w.claiming.Lock()
		w.claiming.Unlock() //nolint:staticcheck // it was only waited for
	}
	o.Lease = lease
	w.settle(ctx, []ending{{job.Spec.ID, o}})
}

// takesNoTime reports whether a job ends as soon as it starts.
func takesNoTime(job *gq.Job) bool {
	var todo work
	return json.Unmarshal(job.Spec.Payload.Data, &todo) != nil || todo.DurationMS == 0
}

// perform does the work. If ctx ends first, the outcome says why.
func perform(ctx context.Context, job *gq.Job) gq.Outcome {
	var todo work
	if err := json.Unmarshal(job.Spec.Payload.Data, &todo); err != nil {
		return failing("invalid_payload", "the payload is not that of a job of the task queue")
	}
	d := time.Duration(todo.DurationMS) * time.Millisecond
	finished := d == 0 || retry.Pause(ctx, d)
	switch {
	case !finished && errors.Is(context.Cause(ctx), errAsked):
		return gq.Outcome{Verdict: gq.VerdictFail, Failure: gq.Failure{Category: gq.CategoryCancelled, Code: "cancel_requested", Message: errAsked.Error()}}
	case !finished:
		return gq.Outcome{Verdict: gq.VerdictRelease, Reason: "the server stops"}
	case todo.OutputBytes > taskwork.MaxOutputBytes:
		return failing(taskwork.TooLarge, fmt.Sprintf("%d bytes, more than %d", todo.OutputBytes, taskwork.MaxOutputBytes))
	default:
		return gq.Outcome{Verdict: gq.VerdictComplete, Result: taskwork.Output(job.Spec.Type, todo.OutputBytes)}
	}
}

func failing(code, message string) gq.Outcome {
	return gq.Outcome{Verdict: gq.VerdictFail, Failure: gq.Failure{Category: gq.CategoryPermanent, Code: code, Message: message}}
}

// ending is the outcome of one job.
type ending struct {
	id gq.JobID
	o  gq.Outcome
}

// settle reports outcomes, retrying until the queue answers or ctx ends. In the latter
// case the jobs run again when their leases expire.
func (w *Workers) settle(ctx context.Context, all []ending) {
	for failures := 1; len(all) > 0; failures++ {
		var again []ending
		var trouble error
		for i, err := range w.settleOnce(ctx, all) {
			e := all[i]
			switch kind := errs.KindOf(err); {
			case err == nil:
			case kind == gq.KindInvalid && e.o.Verdict == gq.VerdictComplete: // the store's limit for results is lower
				smaller := failing(taskwork.TooLarge, fmt.Sprintf("%d bytes are more than the store takes", len(e.o.Result)))
				smaller.Lease, smaller.Begin = e.o.Lease, e.o.Begin
				again = append(again, ending{e.id, smaller})
			case kind == gq.KindUnavailable || kind == gq.KindTimeout || kind == gq.KindInternal:
				again, trouble = append(again, e), err
			default:
				w.untaken(e, err)
			}
		}
		all = again
		if trouble == nil {
			continue
		}
		if failures == 1 {
			w.log.Warn("task queue outcome; trying again", "worker", w.name, "jobs", len(all), "error", trouble)
		}
		if !retry.Pause(ctx, retryDelay(failures)) {
			for _, e := range all {
				w.untaken(e, trouble)
			}
			return
		}
	}
}

// untaken logs an outcome that the queue did not accept, unless the job was canceled
// while it was held.
func (w *Workers) untaken(e ending, err error) {
	if e.o.Begin && errs.KindOf(err) == gq.KindStaleLease {
		return
	}
	w.log.Warn("task queue outcome not taken", "worker", w.name, "job", e.id.String(), "verdict", e.o.Verdict.String(), "error", err)
}

// settleOnce reports outcomes once and returns an error or nil for each.
func (w *Workers) settleOnce(ctx context.Context, all []ending) []error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout) // also while stopping
	defer cancel()
	outcomes, faults := make([]gq.Outcome, len(all)), make([]error, len(all))
	for i := range all {
		outcomes[i] = all[i].o
	}
	answers, err := w.queue.Settle(ctx, outcomes)
	for i := range faults {
		if faults[i] = err; err == nil {
			faults[i] = answers[i].Err
		}
	}
	return faults
}

// retryDelay returns the delay after this many consecutive failures.
func retryDelay(failures int) time.Duration {
	return min(retryFirst<<min(failures-1, 10), retryMost)
}
