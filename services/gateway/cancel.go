package gateway

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
	internalpb "github.com/gopherqueue/gq/services/api/taskqueueinternal/v1"
	"github.com/gopherqueue/gq/services/internal/rpc"
)

// A job that is QUEUED but not in the queue is usually about to change one of them, so
// the gateway checks again before it reports an anomaly.
const (
	recheckInterval = 30 * time.Millisecond
	rechecks        = 5
)

// Limits for jobs that may be out of the queue while it does not answer.
const (
	maxPutBacks     = 1000 // jobs at the same time
	putBackInterval = time.Second
	putBackFor      = 10 * time.Minute
)

// CancelJob ends a queued job. It flags a running one, which ends as CANCELED unless
// its outcome is reported first.
func (s *Service) CancelJob(ctx context.Context, r *publicpb.CancelJobRequest) (*publicpb.CancelJobResponse, error) {
	record, err := s.record(ctx, r.GetJobId())
	if err != nil {
		return nil, err
	}
	switch current := record.GetSummary().GetStatus(); {
	case terminal(current):
		return &publicpb.CancelJobResponse{JobId: r.GetJobId(), Accepted: true, CurrentStatus: current, AlreadyTerminal: true}, nil
	case current == publicpb.JobStatus_RUNNING:
		return s.flag(ctx, r)
	}
	for n := 0; ; n++ {
		removal, err := s.Queue.RemoveJobIfPresent(ctx, &internalpb.RemoveJobIfPresentRequest{JobId: r.GetJobId()})
		if err != nil { // the queue may have removed it, or may do so later
			s.putBack(ctx, r)
			return nil, rpc.Downstream("queue", err)
		}
		if removal.GetRemoved() {
			return s.cancelRemoved(ctx, r)
		}
		answer, err := s.flag(ctx, r)
		if err != nil || answer.GetCurrentStatus() != publicpb.JobStatus_QUEUED {
			return answer, err
		}
		if n == rechecks {
			return s.cancelAbsent(ctx, r, answer)
		}
		if !rpc.Wait(ctx, recheckInterval) {
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
}

// flag requests the cancellation of a running job.
func (s *Service) flag(ctx context.Context, r *publicpb.CancelJobRequest) (*publicpb.CancelJobResponse, error) {
	set, err := s.Jobs.SetCancelRequested(ctx, &internalpb.SetCancelRequestedRequest{JobId: r.GetJobId(), CancelRequested: true, Reason: rpc.Clip(r.GetReason(), maxReason)})
	if err != nil {
		return nil, rpc.Downstream("job", err)
	}
	return accepted(r, set.GetCurrentStatus()), nil
}

// cancelRemoved ends a job that was just removed from the queue: first the envelope,
// then the status.
func (s *Service) cancelRemoved(ctx context.Context, r *publicpb.CancelJobRequest) (*publicpb.CancelJobResponse, error) {
	_, err := s.Results.StoreResult(ctx, &internalpb.StoreResultRequest{
		JobId: r.GetJobId(), TerminalStatus: publicpb.JobStatus_CANCELED, OutputSummary: summaryOf(r.GetReason()),
	})
	if err != nil {
		s.putBack(ctx, r)
		return nil, rpc.Downstream("result", err)
	}
	return s.markCanceled(ctx, r)
}

// putBack undoes the removal of a job that could not be ended or may have been removed.
// It sets the flag first, so that the job ends as CANCELED when its turn comes. If the
// queue does not answer, the client gets an error and putBack keeps trying: a paused
// queue may remove the job when it resumes.
func (s *Service) putBack(ctx context.Context, r *publicpb.CancelJobRequest) {
	ctx = context.WithoutCancel(ctx) // the client's deadline may be near
	err := s.tryPutBack(ctx, r)
	if err == nil {
		return
	}
	select {
	case s.putBacks <- struct{}{}:
	default:
		s.notPutBack(ctx, r)
		return
	}
	s.Log.Warn(ctx, "CancelJob", "put_back_postponed", "job may be out of the queue and is put back as soon as the queue answers: "+status.Convert(err).Message(), rpc.JobID(r.GetJobId()))
	go func() {
		defer func() { <-s.putBacks }()
		for end := s.Now().Add(putBackFor); err != nil; err = s.tryPutBack(ctx, r) {
			if status.Code(err) == codes.Canceled || s.Now().After(end) { // Canceled: the gateway is stopping
				s.notPutBack(ctx, r)
				return
			}
			rpc.Wait(ctx, putBackInterval)
		}
	}()
}

func (s *Service) tryPutBack(ctx context.Context, r *publicpb.CancelJobRequest) error {
	flagged, flagErr := s.flag(ctx, r)
	if status.Code(flagErr) == codes.NotFound || terminal(flagged.GetCurrentStatus()) {
		return nil // it need not be queued any more
	}
	_, err := s.Queue.EnqueueJob(ctx, &internalpb.EnqueueJobRequest{JobId: r.GetJobId(), EnqueuedAtMs: s.Now().UnixMilli()})
	if err == nil && flagErr != nil {
		s.Log.Warn(ctx, "CancelJob", "cancel_lost", "job was put back into the queue without its cancellation", rpc.JobID(r.GetJobId()))
	}
	return err
}

func (s *Service) notPutBack(ctx context.Context, r *publicpb.CancelJobRequest) {
	s.Log.Anomaly(ctx, "CancelJob", "queued_not_in_queue", r.GetJobId(), "job was taken out of the queue to cancel it and could not be put back")
}

func (s *Service) markCanceled(ctx context.Context, r *publicpb.CancelJobRequest) (*publicpb.CancelJobResponse, error) {
	change, err := s.Jobs.TransitionJobStatus(ctx, &internalpb.TransitionJobStatusRequest{
		JobId: r.GetJobId(), ExpectedFromStatus: publicpb.JobStatus_QUEUED, ToStatus: publicpb.JobStatus_CANCELED, Actor: actor,
		Reason: rpc.Clip(r.GetReason(), maxReason),
	})
	switch {
	case err != nil:
		s.putBack(ctx, r) // the coordinator then finds the envelope and ends the job accordingly
		return nil, rpc.Downstream("job", err)
	case change.GetCurrentStatus() == publicpb.JobStatus_RUNNING:
		return s.flag(ctx, r)
	}
	return accepted(r, change.GetCurrentStatus()), nil
}

// cancelAbsent handles a job that stays QUEUED without being in the queue. If an
// earlier cancellation has stored its envelope, cancelAbsent completes it; otherwise
// this is an anomaly that v1 reports but does not repair.
func (s *Service) cancelAbsent(ctx context.Context, r *publicpb.CancelJobRequest, answer *publicpb.CancelJobResponse) (*publicpb.CancelJobResponse, error) {
	envelope, err := s.Results.GetResult(ctx, &internalpb.GetResultRequest{JobId: r.GetJobId()})
	if err == nil && envelope.GetFound() && envelope.GetTerminalStatus() == publicpb.JobStatus_CANCELED {
		return s.markCanceled(ctx, r)
	}
	s.Log.Anomaly(ctx, "CancelJob", "queued_not_in_queue", r.GetJobId(), "job is QUEUED but not in the queue", currentStatus(answer.GetCurrentStatus()))
	return answer, nil
}

func accepted(r *publicpb.CancelJobRequest, current publicpb.JobStatus) *publicpb.CancelJobResponse {
	return &publicpb.CancelJobResponse{JobId: r.GetJobId(), Accepted: true, CurrentStatus: current}
}

// maxReason limits how much of a reason is kept.
const maxReason = 1 << 10

func summaryOf(reason string) string {
	if reason == "" {
		return "canceled while queued"
	}
	return "canceled while queued: " + rpc.Clip(reason, maxReason)
}

func currentStatus(s publicpb.JobStatus) slog.Attr {
	return slog.String("current_status", s.String())
}
