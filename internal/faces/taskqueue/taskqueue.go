// Package taskqueue is design C of the task queue: the same public service as
// designs A and B, taskqueue.v1.TaskQueuePublicService, over the durable engine.
//
// It only translates. Every job of the service is a job of the queue [Queue] with the
// policy preset taskqueue; its type is the job_type, its payload is the rest of the spec
// as JSON. They are ordinary jobs: other workers may run them, and operators may pause or
// limit the queue.
//
// [Service] serves clients, [Workers] run the jobs. Neither needs the other: any
// number of servers may share a store, and each chooses how many jobs it runs.
//
// Errors are those of package gq; the gRPC server translates them to statuses.
package taskqueue

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/gopherqueue/gq"
	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/errs"
)

// Queue holds all jobs of the service.
const Queue = "taskqueue"

// keyScope is the idempotency scope of client_request_ids.
const keyScope = "taskqueue.v1"

// Engine is the part of an engine that the service needs; package engine documents it.
type Engine interface {
	Submit(ctx context.Context, s gq.Spec) (gq.SubmitResult, error)
	Get(ctx context.Context, id gq.JobID, parts gq.Parts) (gq.Job, error)
	List(ctx context.Context, q gq.Query) (gq.Page, error)
	Cancel(ctx context.Context, id gq.JobID, reason string) (gq.State, error)
}

var _ Engine = (*engine.Engine)(nil)

// Service serves TaskQueuePublicService.
type Service struct {
	publicpb.UnimplementedTaskQueuePublicServiceServer
	engine Engine
}

// New creates the service for a queue.
func New(e Engine) *Service { return &Service{engine: e} }

// work is the payload of a job.
type work struct {
	DurationMS  uint32            `json:"work_duration_ms"`
	OutputBytes uint32            `json:"payload_size_bytes"`
	Labels      map[string]string `json:"labels,omitempty"`
}

// SubmitJob submits a job. It returns once the job is stored.
func (s *Service) SubmitJob(ctx context.Context, r *publicpb.SubmitJobRequest) (*publicpb.SubmitJobResponse, error) {
	spec := r.GetSpec()
	if spec.GetJobType() == "" {
		return nil, invalid("spec.job_type", "is empty")
	}
	payload, err := json.Marshal(work{DurationMS: spec.GetWorkDurationMs(), OutputBytes: spec.GetPayloadSizeBytes(), Labels: spec.GetLabels()})
	if err != nil {
		return nil, fmt.Errorf("encode a job: %w", err)
	}
	job := gq.Spec{
		Queue: Queue, Type: spec.GetJobType(), Policy: gq.PresetTaskQueue.Policy(),
		Payload: gq.Payload{Data: payload, ContentType: gq.JSON},
	}
	if key := r.GetClientRequestId(); key != "" {
		job.Key = gq.IdempotencyKey{Scope: keyScope, Name: key, Fingerprint: fingerprint(spec.GetJobType(), payload)}
	}
	out, err := s.engine.Submit(ctx, job)
	if err != nil {
		return nil, renamed(err)
	}
	if out.Existing && !out.Same {
		return nil, usedKeyError(r.GetClientRequestId())
	}
	// A repeated submission gets the original answer, whatever the job's state.
	return &publicpb.SubmitJobResponse{
		JobId: out.ID().String(), InitialStatus: publicpb.JobStatus_QUEUED, AcceptedAtMs: out.State.CreatedAt.UnixMilli(),
	}, nil
}

// usedKeyError means that the key belongs to a job with another payload. It is a conflict
// with a clearer message than [gq.ErrConflict].
type usedKeyError string

func (e usedKeyError) Error() string {
	return fmt.Sprintf("client_request_id %.64q was used with another payload", string(e))
}

func (usedKeyError) Unwrap() error { return gq.ErrConflict }

// fingerprint hashes a job type and its payload, whose labels are sorted by key.
func fingerprint(jobType string, payload []byte) uint64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d|%s|%s", len(jobType), jobType, payload))
	return binary.BigEndian.Uint64(sum[:8]) | 1 // zero means none
}

// GetJobStatus reads the status of a job.
func (s *Service) GetJobStatus(ctx context.Context, r *publicpb.GetJobStatusRequest) (*publicpb.GetJobStatusResponse, error) {
	job, err := s.find(ctx, r.GetJobId(), 0)
	if err != nil {
		return nil, err
	}
	sum := summary(&job)
	answer := &publicpb.GetJobStatusResponse{
		JobId: sum.GetJobId(), Status: sum.GetStatus(), CancelRequested: sum.GetCancelRequested(),
		CreatedAtMs: sum.GetCreatedAtMs(), StartedAtMs: sum.GetStartedAtMs(), FinishedAtMs: sum.GetFinishedAtMs(),
	}
	if sum.GetStatus() == publicpb.JobStatus_FAILED {
		answer.FailureReason = failureReason(&job.State)
	}
	return answer, nil
}

// GetJobResult reads the result of a job. Status and result are written in one commit, so
// a job that has ended always has a result.
func (s *Service) GetJobResult(ctx context.Context, r *publicpb.GetJobResultRequest) (*publicpb.GetJobResultResponse, error) {
	job, err := s.find(ctx, r.GetJobId(), gq.WithResult)
	if err != nil {
		return nil, err
	}
	return result(&job), nil
}

// CancelJob ends a job immediately if it is not running. A running job is asked to stop
// and ends as CANCELED unless its outcome is reported first.
func (s *Service) CancelJob(ctx context.Context, r *publicpb.CancelJobRequest) (*publicpb.CancelJobResponse, error) {
	job, err := s.find(ctx, r.GetJobId(), 0)
	if err != nil {
		return nil, err
	}
	answer := &publicpb.CancelJobResponse{JobId: r.GetJobId(), Accepted: true, AlreadyTerminal: job.State.Status.Terminal()}
	state := job.State
	if !answer.GetAlreadyTerminal() {
		state, err = s.engine.Cancel(ctx, state.ID, r.GetReason())
		if errs.KindOf(err) == gq.KindConflict { // it ended meanwhile
			job, err = s.find(ctx, r.GetJobId(), 0)
			state, answer.AlreadyTerminal = job.State, true
		}
		if err != nil {
			return nil, err
		}
	}
	answer.CurrentStatus = statusOf(&state)
	return answer, nil
}

// find reads a job of the service. Jobs of other queues are not found.
func (s *Service) find(ctx context.Context, name string, parts gq.Parts) (gq.Job, error) {
	if name == "" {
		return gq.Job{}, invalid("job_id", "is empty")
	}
	unknown := fmt.Errorf("job %.64q: %w", name, gq.ErrNotFound)
	id, err := gq.ParseJobID(name)
	if err != nil || id.String() != name {
		return gq.Job{}, unknown
	}
	job, err := s.engine.Get(ctx, id, parts)
	if err == nil && job.Spec.Queue != Queue {
		err = unknown
	}
	return job, err
}

func invalid(field, problem string) error {
	return &gq.InvalidError{Faults: []gq.Fault{{Field: field, Problem: problem}}}
}

// fieldNames maps the fields of a submission to the service's names.
var fieldNames = map[string]string{"type": "spec.job_type", "payload": "spec", "idempotency_key": "client_request_id"}

// renamed replaces field names in faults by the service's names.
func renamed(err error) error {
	faults := errs.FaultsOf(err)
	if len(faults) == 0 {
		return err
	}
	told := make([]gq.Fault, len(faults))
	for i, f := range faults {
		if name, ok := fieldNames[f.Field]; ok {
			f.Field = name
		}
		told[i] = f
	}
	return &gq.InvalidError{Faults: told}
}
