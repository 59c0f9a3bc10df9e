package taskqueue

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/gopherqueue/gq"
	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
	"github.com/gopherqueue/gq/internal/projection"
	"github.com/gopherqueue/gq/internal/taskwork"
)

// workerLost is the failure reason of a job whose workers all stopped responding.
const workerLost = "WORKER_LOST"

// statusOf returns the status that clients see.
func statusOf(s *gq.State) publicpb.JobStatus {
	return statusNamed(projection.View{Status: s.Status, Detail: s.Detail, Attempt: s.Attempt})
}

func statusNamed(v projection.View) publicpb.JobStatus {
	return publicpb.JobStatus(publicpb.JobStatus_value[v.TaskQueue()])
}

// summary returns a job as a list item.
func summary(j *gq.Job) *publicpb.JobSummary {
	s := &j.State
	return &publicpb.JobSummary{
		JobId: s.ID.String(), Status: statusOf(s), JobType: j.Spec.Type, CreatedAtMs: milli(s.CreatedAt),
		StartedAtMs: milli(s.FirstStartedAt), FinishedAtMs: milli(s.CompletedAt),
		CancelRequested: s.Cancellation.Requested() || s.Status == gq.StatusCancelled,
	}
}

// milli returns Unix milliseconds, 0 for the zero time.
func milli(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// result returns the result of a job, or that it has not ended.
func result(j *gq.Job) *publicpb.GetJobResultResponse {
	s := &j.State
	answer := &publicpb.GetJobResultResponse{JobId: s.ID.String(), Checksum: taskwork.EmptyChecksum}
	if !s.Status.Terminal() {
		return answer
	}
	answer.ResultReady, answer.TerminalStatus = true, statusOf(s)
	if !s.StartedAt.IsZero() {
		answer.RuntimeMs = uint32(min(max(s.CompletedAt.Sub(s.StartedAt).Milliseconds(), 0), math.MaxUint32))
	}
	switch answer.GetTerminalStatus() {
	case publicpb.JobStatus_DONE:
		answer.OutputBytes = j.Result
		answer.Checksum = taskwork.Checksum(j.Result)
		answer.OutputSummary = fmt.Sprintf("%d bytes", len(j.Result))
	case publicpb.JobStatus_CANCELED:
		answer.OutputSummary = "canceled while queued"
		if !s.FirstStartedAt.IsZero() {
			answer.OutputSummary = "canceled while running"
		}
		if s.Cancellation.Reason != "" {
			answer.OutputSummary += ": " + s.Cancellation.Reason
		}
	default:
		answer.OutputSummary = failureReason(s)
		if s.Failure != nil && s.Failure.Message != "" && s.Failure.Message != answer.GetOutputSummary() {
			answer.OutputSummary += ": " + s.Failure.Message
		}
	}
	return answer
}

// failureReason returns why a job failed.
func failureReason(s *gq.State) string {
	switch {
	case s.Failure == nil:
		return cmp.Or(s.Reason, "the worker gave no reason")
	case s.Failure.Code == "lease_expired":
		return workerLost
	default:
		return cmp.Or(s.Failure.Code, s.Failure.Message, s.Reason, "the worker gave no reason")
	}
}
