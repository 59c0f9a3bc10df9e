package coordinator

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
	"github.com/gopherqueue/gq/internal/taskwork"
	internalpb "github.com/gopherqueue/gq/services/api/taskqueueinternal/v1"
	"github.com/gopherqueue/gq/services/internal/rpc"
)

// Limits of texts from workers.
const (
	maxReason  = 1 << 10
	maxSummary = 4 << 10
)

var statusOf = map[internalpb.JobOutcome]publicpb.JobStatus{
	internalpb.JobOutcome_SUCCEEDED: publicpb.JobStatus_DONE,
	internalpb.JobOutcome_FAILED:    publicpb.JobStatus_FAILED,
	internalpb.JobOutcome_CANCELED:  publicpb.JobStatus_CANCELED,
}

// ReportWorkOutcome ends a job: first the envelope, then the status. The first report
// wins. It is accepted if the job ended as reported, or as CANCELED because that was
// requested before.
func (s *Service) ReportWorkOutcome(ctx context.Context, r *internalpb.ReportWorkOutcomeRequest) (*internalpb.ReportWorkOutcomeResponse, error) {
	const method = "ReportWorkOutcome"
	if err := checkWorker(r.GetWorkerId()); err != nil {
		return nil, err
	}
	wanted, ok := statusOf[r.GetOutcome()]
	switch {
	case r.GetJobId() == "":
		return nil, status.Error(codes.InvalidArgument, "job_id is empty")
	case !ok:
		return nil, status.Errorf(codes.InvalidArgument, "outcome: %v is not an outcome", r.GetOutcome())
	}
	record, err := s.config.Jobs.GetJobRecord(ctx, &internalpb.GetJobRecordRequest{JobId: r.GetJobId()})
	if status.Code(err) == codes.NotFound {
		s.config.Log.Anomaly(ctx, method, "outcome_of_unknown_job", r.GetJobId(), "outcome dropped: the job service does not know the job", rpc.WorkerID(r.GetWorkerId()))
		s.drop(r.GetJobId())
		return &internalpb.ReportWorkOutcomeResponse{}, nil
	}
	if err != nil {
		return nil, rpc.Downstream("job", err)
	}

	asked := record.GetSummary().GetCancelRequested()
	current := record.GetSummary().GetStatus()
	if current == publicpb.JobStatus_RUNNING {
		envelope, reason := s.envelopeOf(r, wanted)
		if asked {
			envelope, reason = canceledEnvelope(r.GetJobId(), r.GetRuntimeMs(), record.GetFailureReason()), record.GetFailureReason()
		}
		if current, err = s.end(ctx, method, envelope, reason); err != nil {
			return nil, err
		}
		wanted = envelope.GetTerminalStatus()
	}
	if current > publicpb.JobStatus_RUNNING {
		s.drop(r.GetJobId())
	}
	accepted := current == wanted || current == publicpb.JobStatus_CANCELED && asked
	if !accepted {
		s.config.Log.Info(ctx, method, "terminal_race", "outcome ignored: the job stands otherwise", rpc.JobID(r.GetJobId()), rpc.WorkerID(r.GetWorkerId()),
			currentStatus(current), slog.String("to_status", wanted.String()))
	}
	return &internalpb.ReportWorkOutcomeResponse{Accepted: accepted}, nil
}

// envelopeOf returns the envelope of a report, and the reason for the status. Too large
// an output makes it a failure without output.
func (s *Service) envelopeOf(r *internalpb.ReportWorkOutcomeRequest, wanted publicpb.JobStatus) (*internalpb.StoreResultRequest, string) {
	if len(r.GetOutputBytes()) > taskwork.MaxOutputBytes {
		return &internalpb.StoreResultRequest{
			JobId: r.GetJobId(), TerminalStatus: publicpb.JobStatus_FAILED, RuntimeMs: r.GetRuntimeMs(), Checksum: taskwork.EmptyChecksum,
			OutputSummary: fmt.Sprintf("%s: %d bytes, more than %d", taskwork.TooLarge, len(r.GetOutputBytes()), taskwork.MaxOutputBytes),
		}, taskwork.TooLarge
	}
	reason := rpc.Clip(r.GetFailureReason(), maxReason)
	summary := rpc.Clip(r.GetOutputSummary(), maxSummary)
	switch wanted {
	case publicpb.JobStatus_FAILED:
		reason = cmp.Or(reason, "the worker gave no reason")
		summary = cmp.Or(summary, reason)
	case publicpb.JobStatus_CANCELED:
		summary = cmp.Or(summary, "canceled while running")
	default:
	}
	return &internalpb.StoreResultRequest{
		JobId: r.GetJobId(), TerminalStatus: wanted, RuntimeMs: r.GetRuntimeMs(),
		OutputSummary: summary, OutputBytes: r.GetOutputBytes(), Checksum: r.GetChecksum(),
	}, reason
}

func canceledEnvelope(jobID string, runtime uint32, reason string) *internalpb.StoreResultRequest {
	summary := "canceled while running"
	if reason != "" {
		summary += ": " + reason
	}
	return &internalpb.StoreResultRequest{
		JobId: jobID, TerminalStatus: publicpb.JobStatus_CANCELED, RuntimeMs: runtime, OutputSummary: summary, Checksum: taskwork.EmptyChecksum,
	}
}

// end stores an envelope, then moves the job from RUNNING to the status of the envelope
// that won. It returns the job's status then.
func (s *Service) end(ctx context.Context, method string, envelope *internalpb.StoreResultRequest, reason string) (publicpb.JobStatus, error) {
	stored, err := s.config.Results.StoreResult(ctx, envelope)
	if err != nil {
		return 0, rpc.Downstream("result", err)
	}
	to := stored.GetCurrentTerminalStatus()
	change, err := s.config.Jobs.TransitionJobStatus(ctx, &internalpb.TransitionJobStatusRequest{
		JobId: envelope.GetJobId(), ExpectedFromStatus: publicpb.JobStatus_RUNNING, ToStatus: to, Actor: actor, Reason: reason,
	})
	if status.Code(err) == codes.NotFound {
		s.config.Log.Anomaly(ctx, method, "outcome_of_unknown_job", envelope.GetJobId(), "result is stored, but the job service does not know the job")
		return publicpb.JobStatus_JOB_STATUS_UNSPECIFIED, nil
	}
	if err != nil {
		return 0, rpc.Downstream("job", err)
	}
	if !change.GetApplied() && change.GetCurrentStatus() != to {
		s.config.Log.Info(ctx, method, "terminal_race", "status was set by another transition first: this result is ignored", rpc.JobID(envelope.GetJobId()),
			slog.String("expected_status", publicpb.JobStatus_RUNNING.String()), currentStatus(change.GetCurrentStatus()))
	}
	return change.GetCurrentStatus(), nil
}
