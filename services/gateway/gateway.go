// Package gateway is the service that clients call. It owns the public API and the
// order of the calls behind it, but no state of jobs: any number of gateways may share
// the same services.
package gateway

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
	"github.com/gopherqueue/gq/internal/taskwork"
	internalpb "github.com/gopherqueue/gq/services/api/taskqueueinternal/v1"
	"github.com/gopherqueue/gq/services/internal/rpc"
)

// actor names the gateway in its transitions.
const actor = "gateway"

// Jobs is the part of the job service that a gateway may call: everything, but only
// transitions from QUEUED to CANCELED.
type Jobs = internalpb.JobInternalServiceClient

// Queue is the part of the queue service that a gateway may call.
type Queue interface {
	EnqueueJob(context.Context, *internalpb.EnqueueJobRequest, ...grpc.CallOption) (*internalpb.EnqueueJobResponse, error)
	RemoveJobIfPresent(context.Context, *internalpb.RemoveJobIfPresentRequest, ...grpc.CallOption) (*internalpb.RemoveJobIfPresentResponse, error)
}

// Results is the part of the result service that a gateway may call: it stores only the
// envelopes of jobs canceled while queued.
type Results = internalpb.ResultInternalServiceClient

// Config configures a gateway.
type Config struct {
	Log     *rpc.Log
	Now     func() time.Time // nil is time.Now
	Jobs    Jobs
	Queue   Queue
	Results Results
}

// Service serves TaskQueuePublicService.
type Service struct {
	publicpb.UnimplementedTaskQueuePublicServiceServer
	Config
	keys     keyLocks
	putBacks chan struct{} // holds an element for each job that waits to be put back
}

// New returns a gateway.
func New(c Config) *Service {
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Service{Config: c, putBacks: make(chan struct{}, maxPutBacks)}
}

// GetJobStatus reads a job's status.
func (s *Service) GetJobStatus(ctx context.Context, r *publicpb.GetJobStatusRequest) (*publicpb.GetJobStatusResponse, error) {
	record, err := s.record(ctx, r.GetJobId())
	if err != nil {
		return nil, err
	}
	job := record.GetSummary()
	answer := &publicpb.GetJobStatusResponse{
		JobId: job.GetJobId(), Status: job.GetStatus(), CancelRequested: job.GetCancelRequested(),
		CreatedAtMs: job.GetCreatedAtMs(), StartedAtMs: job.GetStartedAtMs(), FinishedAtMs: job.GetFinishedAtMs(),
	}
	if job.GetStatus() == publicpb.JobStatus_FAILED {
		answer.FailureReason = record.GetFailureReason()
	}
	return answer, nil
}

// GetJobResult reads a job's result. A job that ended without one is an anomaly, and
// the answer is UNAVAILABLE.
func (s *Service) GetJobResult(ctx context.Context, r *publicpb.GetJobResultRequest) (*publicpb.GetJobResultResponse, error) {
	record, err := s.record(ctx, r.GetJobId())
	if err != nil {
		return nil, err
	}
	current := record.GetSummary().GetStatus()
	if !terminal(current) {
		return &publicpb.GetJobResultResponse{JobId: r.GetJobId(), Checksum: taskwork.EmptyChecksum}, nil
	}
	envelope, err := s.Results.GetResult(ctx, &internalpb.GetResultRequest{JobId: r.GetJobId()})
	if err != nil {
		return nil, rpc.Downstream("result", err)
	}
	if !envelope.GetFound() || envelope.GetTerminalStatus() != current {
		s.Log.Anomaly(ctx, "GetJobResult", "terminal_without_result", r.GetJobId(), "job has ended but its result is missing", currentStatus(current))
		return nil, status.Errorf(codes.Unavailable, "job is %v but its result is missing", current)
	}
	return &publicpb.GetJobResultResponse{
		JobId: r.GetJobId(), ResultReady: true, TerminalStatus: current, OutputBytes: envelope.GetOutputBytes(),
		OutputSummary: envelope.GetOutputSummary(), RuntimeMs: envelope.GetRuntimeMs(), Checksum: envelope.GetChecksum(),
	}, nil
}

// ListJobs reads a page of jobs.
func (s *Service) ListJobs(ctx context.Context, r *publicpb.ListJobsRequest) (*publicpb.ListJobsResponse, error) {
	list, err := s.Jobs.ListJobRecords(ctx, &internalpb.ListJobRecordsRequest{StatusFilter: r.GetStatusFilter(), Page: r.GetPage(), Sort: r.GetSort()})
	if err != nil {
		return nil, rpc.Downstream("job", err)
	}
	return &publicpb.ListJobsResponse{Jobs: list.GetJobs(), Page: list.GetPage()}, nil
}

func (s *Service) record(ctx context.Context, id string) (*internalpb.GetJobRecordResponse, error) {
	if id == "" {
		return nil, status.Error(codes.InvalidArgument, "job_id is empty")
	}
	record, err := s.Jobs.GetJobRecord(ctx, &internalpb.GetJobRecordRequest{JobId: id})
	if err != nil {
		return nil, rpc.Downstream("job", err)
	}
	return record, nil
}

func terminal(s publicpb.JobStatus) bool {
	return s == publicpb.JobStatus_DONE || s == publicpb.JobStatus_FAILED || s == publicpb.JobStatus_CANCELED
}
