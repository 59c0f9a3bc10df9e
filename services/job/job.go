// Package job is the service that owns the record of every job: spec, times, status,
// cancellation flag, and the keys of submits.
//
// Records live in memory only. A full table forgets the jobs that ended first;
// if nothing has ended, it refuses new jobs with RESOURCE_EXHAUSTED.
package job

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
	internalpb "github.com/gopherqueue/gq/services/api/taskqueueinternal/v1"
	"github.com/gopherqueue/gq/services/internal/rpc"
)

// Limits of one request.
const (
	maxSpecBytes = 64 << 10
	maxKeyBytes  = 1 << 10
)

// Config configures a job service. Zero fields mean the default.
type Config struct {
	Log   *rpc.Log
	Now   func() time.Time // time.Now
	NewID func() string    // a random UUIDv4; design B draws ids that hash to its node

	MaxJobs  int // records kept, live or ended: 100 000
	MaxBytes int // bytes of specs kept: 256 MiB

	Overdue   time.Duration // report a run that takes this much longer than its work: 60 s
	Overtaken time.Duration // report a queued job if jobs younger by this much have started: 30 s
}

func (c *Config) setDefaults() {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.NewID == nil {
		c.NewID = NewID
	}
	if c.MaxJobs == 0 {
		c.MaxJobs = 100_000
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = 256 << 20
	}
	if c.Overdue == 0 {
		c.Overdue = 60 * time.Second
	}
	if c.Overtaken == 0 {
		c.Overtaken = 30 * time.Second
	}
}

// Service serves JobInternalService.
type Service struct {
	internalpb.UnimplementedJobInternalServiceServer
	config Config
	table  *table
}

// New returns a service without jobs.
func New(c Config) *Service {
	c.setDefaults()
	return &Service{config: c, table: newTable(c)}
}

// CreateJob creates a QUEUED job, or returns the job that its key created before.
func (s *Service) CreateJob(_ context.Context, r *internalpb.CreateJobRequest) (*internalpb.CreateJobResponse, error) {
	switch size := proto.Size(r.GetSpec()); {
	case r.GetSpec().GetJobType() == "":
		return nil, status.Error(codes.InvalidArgument, "spec.job_type is empty")
	case size > maxSpecBytes:
		return nil, status.Errorf(codes.InvalidArgument, "spec has %d bytes, more than %d", size, maxSpecBytes)
	case len(r.GetClientRequestId()) > maxKeyBytes:
		return nil, status.Errorf(codes.InvalidArgument, "client_request_id has %d bytes, more than %d", len(r.GetClientRequestId()), maxKeyBytes)
	}
	return s.table.create(proto.CloneOf(r.GetSpec()), r.GetClientRequestId()) // a copy: callers in the same process may change theirs
}

// DeleteJobIfStatus deletes a job that was never accepted, and its key.
func (s *Service) DeleteJobIfStatus(_ context.Context, r *internalpb.DeleteJobIfStatusRequest) (*internalpb.DeleteJobIfStatusResponse, error) {
	if err := needID(r); err != nil {
		return nil, err
	}
	if !known(r.GetExpectedStatus()) {
		return nil, status.Errorf(codes.InvalidArgument, "expected_status %v is not a status", r.GetExpectedStatus())
	}
	deleted, current := s.table.deleteIf(r.GetJobId(), r.GetExpectedStatus())
	return &internalpb.DeleteJobIfStatusResponse{Deleted: deleted, CurrentStatus: current}, nil
}

// GetJobRecord reads a job.
func (s *Service) GetJobRecord(_ context.Context, r *internalpb.GetJobRecordRequest) (*internalpb.GetJobRecordResponse, error) {
	if err := needID(r); err != nil {
		return nil, err
	}
	rec, ok := s.table.get(r.GetJobId())
	if !ok {
		return nil, unknownJob(r.GetJobId())
	}
	return &internalpb.GetJobRecordResponse{Summary: rec.summary(), FailureReason: rec.reason, Spec: proto.CloneOf(rec.spec)}, nil
}

// ListJobRecords reads a page of jobs.
func (s *Service) ListJobRecords(_ context.Context, r *internalpb.ListJobRecordsRequest) (*internalpb.ListJobRecordsResponse, error) {
	p, err := parsePage(r)
	if err != nil {
		return nil, err
	}
	jobs, next := s.table.list(p)
	return &internalpb.ListJobRecordsResponse{Jobs: jobs, Page: &publicpb.PageResponse{NextPageToken: next}}, nil
}

// TransitionJobStatus moves a job from an expected status to another.
func (s *Service) TransitionJobStatus(ctx context.Context, r *internalpb.TransitionJobStatusRequest) (*internalpb.TransitionJobStatusResponse, error) {
	from, to := r.GetExpectedFromStatus(), r.GetToStatus()
	if err := needID(r); err != nil {
		return nil, err
	}
	if !known(from) {
		return nil, status.Errorf(codes.InvalidArgument, "expected_from_status %v is not a status", from)
	}
	if !known(to) {
		return nil, status.Errorf(codes.InvalidArgument, "to_status %v is not a status", to)
	}
	verdict, current := s.table.transition(r.GetJobId(), from, to, r.GetActor(), r.GetReason())
	attrs := []slog.Attr{
		rpc.JobID(r.GetJobId()), slog.String("expected_status", from.String()), slog.String("current_status", current.String()),
		slog.String("to_status", to.String()), slog.String("actor", r.GetActor()),
	}
	const method = "TransitionJobStatus"
	switch verdict {
	case missing:
		return nil, unknownJob(r.GetJobId())
	case illegal:
		s.config.Log.Warn(ctx, method, "invalid_transition", "transition refused: not in the table of transitions", attrs...)
	case notAllowed:
		s.config.Log.Warn(ctx, method, "invalid_transition", "transition refused: not this actor's to make", attrs...)
	case lateTerminal:
		s.config.Log.Info(ctx, method, "terminal_conflict", "later terminal write ignored: the first one stands", attrs...)
	case mismatch:
		s.config.Log.Info(ctx, method, "cas_mismatch", "status is not the expected one", attrs...)
	case applied:
		s.config.Log.Debug(ctx, method, "transition", "status changed", attrs...)
	}
	return &internalpb.TransitionJobStatusResponse{Applied: verdict == applied, CurrentStatus: current}, nil
}

// SetCancelRequested flags a live job. It does not change an ended one.
func (s *Service) SetCancelRequested(_ context.Context, r *internalpb.SetCancelRequestedRequest) (*internalpb.SetCancelRequestedResponse, error) {
	if err := needID(r); err != nil {
		return nil, err
	}
	set, current, ok := s.table.setCancel(r.GetJobId(), r.GetCancelRequested(), r.GetReason())
	if !ok {
		return nil, unknownJob(r.GetJobId())
	}
	return &internalpb.SetCancelRequestedResponse{Applied: set, CurrentStatus: current}, nil
}

func needID(r interface{ GetJobId() string }) error {
	if r.GetJobId() == "" {
		return status.Error(codes.InvalidArgument, "job_id is empty")
	}
	return nil
}

func unknownJob(id string) error {
	return status.Errorf(codes.NotFound, "job %.64q is unknown", id)
}
