// Package worker is the service that runs jobs. It serves no API: it asks the
// coordinator for work in one loop per slot, sends heartbeats, and reports the outcome
// of each job. It runs only jobs it was given.
package worker

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
	"github.com/gopherqueue/gq/internal/taskwork"
	internalpb "github.com/gopherqueue/gq/services/api/taskqueueinternal/v1"
	"github.com/gopherqueue/gq/services/internal/rpc"
)

// HeartbeatInterval is how often a worker sends a heartbeat.
const HeartbeatInterval = taskwork.HeartbeatInterval

// DefaultSlots is the number of slots of a whole design.
const DefaultSlots = 6

// Coordinator is the only service that a worker may call.
type Coordinator = internalpb.CoordinatorInternalServiceClient

// Config configures a worker.
type Config struct {
	ID          string
	Slots       int // jobs that run at the same time
	Log         *rpc.Log
	Coordinator Coordinator

	// Wake ends the wait for work early, if the queue is in the same process. A woken
	// worker may ask before its hint is over, so it does not tell the coordinator its
	// number of slots.
	Wake <-chan struct{}
}

// Worker runs jobs.
type Worker struct {
	Config

	mu      sync.Mutex
	running map[string]context.CancelFunc // guarded by mu
}

// New returns a worker that does nothing until Run.
func New(c Config) *Worker {
	return &Worker{Config: c, running: make(map[string]context.CancelFunc)}
}

// Run works until ctx ends. The coordinator dispatches the jobs that run then again.
func (w *Worker) Run(ctx context.Context) error {
	var loops sync.WaitGroup
	defer loops.Wait()
	ready := make(chan struct{}) // closed by the first heartbeat that was answered
	loops.Go(func() { w.beat(ctx, sync.OnceFunc(func() { close(ready) })) })
	select {
	case <-ready:
	case <-ctx.Done():
		return nil
	}
	for range w.Slots {
		loops.Go(func() { w.slot(ctx) })
	}
	<-ctx.Done()
	return nil
}

// beat sends heartbeats.
func (w *Worker) beat(ctx context.Context, heard func()) {
	capacity := uint32(w.Slots)
	if w.Wake != nil {
		capacity = 0
	}
	for {
		start := time.Now()
		interval := HeartbeatInterval
		answer, err := w.Coordinator.WorkerHeartbeat(ctx, &internalpb.WorkerHeartbeatRequest{
			WorkerId: w.ID, HeartbeatAtMs: start.UnixMilli(), CapacityHint: capacity,
		})
		if err == nil {
			heard()
			w.stop(answer.GetCancelJobIds())
			if next := answer.GetNextHeartbeatInMs(); next > 0 {
				interval = time.Duration(next) * time.Millisecond
			}
		} else if ctx.Err() == nil {
			w.Log.Warn(ctx, "WorkerHeartbeat", "heartbeat_failed", status.Convert(err).Message(), rpc.WorkerID(w.ID))
		}
		if !rpc.Wait(ctx, interval-time.Since(start)) {
			return
		}
	}
}

func (w *Worker) stop(jobIDs []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range jobIDs {
		if cancel := w.running[id]; cancel != nil {
			cancel()
		}
	}
}

// slot runs one job after the other.
func (w *Worker) slot(ctx context.Context) {
	failures := 0
	for ctx.Err() == nil {
		work, err := w.Coordinator.FetchWork(ctx, &internalpb.FetchWorkRequest{WorkerId: w.ID})
		switch {
		case err != nil:
			failures++
			rpc.Wait(ctx, rpc.RetryDelay(failures, rand.Float64()))
		case work.GetAssigned():
			failures = 0
			w.execute(ctx, work.GetJobId(), work.GetSpec())
		default:
			failures = 0
			w.idle(ctx, max(minIdle, time.Duration(work.GetRetryAfterMs())*time.Millisecond))
		}
	}
}

// minIdle is the least time a slot waits before it asks again.
const minIdle = 50 * time.Millisecond

func (w *Worker) idle(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.Wake: // never, if nil
	case <-ctx.Done():
	}
}

// execute runs a job and reports its outcome.
func (w *Worker) execute(ctx context.Context, id string, spec *publicpb.JobSpec) {
	report := w.perform(ctx, id, spec)
	if report == nil {
		return
	}
	for failures := 1; ctx.Err() == nil; failures++ {
		_, err := w.Coordinator.ReportWorkOutcome(ctx, report)
		switch status.Code(err) {
		case codes.OK:
			return
		case codes.InvalidArgument:
			w.Log.Anomaly(ctx, "ReportWorkOutcome", "outcome_refused", id, status.Convert(err).Message(), rpc.WorkerID(w.ID))
			return // the coordinator dispatches the job again
		default:
			rpc.Wait(ctx, rpc.RetryDelay(failures, rand.Float64()))
		}
	}
}

// perform does the work. It returns nil if the worker must stop.
func (w *Worker) perform(ctx context.Context, id string, spec *publicpb.JobSpec) *internalpb.ReportWorkOutcomeRequest {
	running, cancel := context.WithCancel(ctx)
	w.mu.Lock()
	w.running[id] = cancel
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		delete(w.running, id)
		w.mu.Unlock()
		cancel()
	}()

	start := time.Now()
	finished := spec.GetWorkDurationMs() == 0 || rpc.Wait(running, time.Duration(spec.GetWorkDurationMs())*time.Millisecond)
	if ctx.Err() != nil {
		return nil
	}
	report := &internalpb.ReportWorkOutcomeRequest{
		WorkerId: w.ID, JobId: id, Checksum: taskwork.EmptyChecksum,
		RuntimeMs: uint32(min(time.Since(start).Milliseconds(), math.MaxUint32)),
	}
	switch {
	case !finished:
		report.Outcome = internalpb.JobOutcome_CANCELED
	case spec.GetPayloadSizeBytes() > taskwork.MaxOutputBytes:
		report.Outcome = internalpb.JobOutcome_FAILED
		report.FailureReason = taskwork.TooLarge
		report.OutputSummary = fmt.Sprintf("%s: %d bytes, more than %d", taskwork.TooLarge, spec.GetPayloadSizeBytes(), taskwork.MaxOutputBytes)
	default:
		report.Outcome = internalpb.JobOutcome_SUCCEEDED
		report.OutputBytes = taskwork.Output(spec.GetJobType(), spec.GetPayloadSizeBytes())
		report.Checksum = taskwork.Checksum(report.GetOutputBytes())
		report.OutputSummary = fmt.Sprintf("%d bytes", len(report.GetOutputBytes()))
	}
	return report
}
