package gateway

import (
	"context"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
	internalpb "github.com/gopherqueue/gq/services/api/taskqueueinternal/v1"
	"github.com/gopherqueue/gq/services/internal/rpc"
)

// SubmitJob creates a job, then queues it. The job is accepted once it is queued; if
// queueing fails, it is deleted.
func (s *Service) SubmitJob(ctx context.Context, r *publicpb.SubmitJobRequest) (*publicpb.SubmitJobResponse, error) {
	key := r.GetClientRequestId()
	if r.GetSpec().GetJobType() == "" {
		return nil, status.Error(codes.InvalidArgument, "spec.job_type is empty")
	}
	if key != "" {
		// While the first submit may still be undone, a repeat must wait for its
		// outcome.
		unlock, err := s.keys.lock(ctx, key)
		if err != nil {
			return nil, err
		}
		defer unlock()
	}
	created, err := s.Jobs.CreateJob(ctx, &internalpb.CreateJobRequest{Spec: r.GetSpec(), ClientRequestId: key})
	if err != nil {
		return nil, rpc.Downstream("job", err)
	}
	accepted := s.Now().UnixMilli()
	if created.GetStatus() == publicpb.JobStatus_QUEUED { // otherwise the job of an earlier submit has moved on
		if err := s.enqueue(ctx, created, accepted); err != nil {
			return nil, err
		}
	}
	if key != "" {
		// Repeats return the time of the first submit.
		record, err := s.record(ctx, created.GetJobId())
		if err != nil {
			return nil, err
		}
		accepted = record.GetSummary().GetCreatedAtMs()
	}
	return &publicpb.SubmitJobResponse{JobId: created.GetJobId(), InitialStatus: publicpb.JobStatus_QUEUED, AcceptedAtMs: accepted}, nil
}

// enqueue queues a job or deletes it. A job of an earlier submit may have been accepted
// then, so it stays as it is.
func (s *Service) enqueue(ctx context.Context, created *internalpb.CreateJobResponse, now int64) error {
	id := created.GetJobId()
	answer, err := s.Queue.EnqueueJob(ctx, &internalpb.EnqueueJobRequest{JobId: id, EnqueuedAtMs: now})
	if err == nil && answer.GetAccepted() {
		return nil
	}
	if created.GetDeduplicated() {
		s.Log.Warn(ctx, "SubmitJob", "repeat_not_queued", "whether the job of an earlier submit waits could not be made sure: it stays as it is", rpc.JobID(id))
		return status.Error(codes.Unavailable, "the job of an earlier submit with this key could not be queued again and stays as it is")
	}
	refusal := status.Error(codes.Unavailable, "the job could not be queued and was taken back")
	if status.Code(err) == codes.ResourceExhausted {
		refusal = err
	}

	undo := context.WithoutCancel(ctx) // the client's deadline may be near
	deleted, err := s.Jobs.DeleteJobIfStatus(undo, &internalpb.DeleteJobIfStatusRequest{JobId: id, ExpectedStatus: publicpb.JobStatus_QUEUED})
	switch current := deleted.GetCurrentStatus(); {
	case err != nil:
		s.Log.Anomaly(ctx, "SubmitJob", "queued_not_in_queue", id, "job could neither be queued nor taken back: "+status.Convert(err).Message())
	case deleted.GetDeleted(), current == publicpb.JobStatus_JOB_STATUS_UNSPECIFIED: // deleted now, or by an attempt whose answer was lost
	case current != publicpb.JobStatus_QUEUED:
		return nil // it was queued after all, and has been dequeued
	default:
		s.Log.Anomaly(ctx, "SubmitJob", "queued_not_in_queue", id, "job could not be queued and was not taken back")
	}
	return refusal
}

// keyLocks lets one submit at a time use a key.
type keyLocks struct {
	mu   sync.Mutex
	held map[string]*keyLock // guarded by mu
}

type keyLock struct {
	token chan struct{} // holds one element while the lock is free
	users int           // holder and waiters; guarded by keyLocks.mu
}

func (k *keyLocks) lock(ctx context.Context, key string) (unlock func(), err error) {
	k.mu.Lock()
	if k.held == nil {
		k.held = make(map[string]*keyLock)
	}
	l := k.held[key]
	if l == nil {
		l = &keyLock{token: make(chan struct{}, 1)}
		l.token <- struct{}{}
		k.held[key] = l
	}
	l.users++
	k.mu.Unlock()

	leave := func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(k.held, key)
		}
	}
	select {
	case <-l.token:
		return func() { l.token <- struct{}{}; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}
