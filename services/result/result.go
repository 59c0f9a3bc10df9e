// Package result is the service that owns the result envelopes of ended jobs. The first
// envelope of a job counts.
//
// Envelopes are in memory only. When there are too many, or too many bytes of output,
// the oldest are forgotten. The limit on their number lets them outlast their job
// records; the limit on bytes may not, so the service logs each envelope that this
// limit removes.
package result

import (
	"context"
	"log/slog"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
	"github.com/gopherqueue/gq/internal/taskwork"
	internalpb "github.com/gopherqueue/gq/services/api/taskqueueinternal/v1"
	"github.com/gopherqueue/gq/services/internal/rpc"
)

const (
	maxIDBytes      = 128
	maxSummaryBytes = 8 << 10
)

// Config configures a result service. Zero fields mean the default.
type Config struct {
	Log        *rpc.Log
	MaxResults int // envelopes kept: 120 000, more than the job service keeps jobs
	MaxBytes   int // bytes of output and summaries: 512 MiB
}

// Service serves ResultInternalService.
type Service struct {
	internalpb.UnimplementedResultInternalServiceServer
	config Config

	mu        sync.Mutex // guards what follows
	envelopes map[string]*internalpb.GetResultResponse
	bytes     int
	age       []string // ids, oldest first, starting at first
	first     int
}

// New returns a service without results.
func New(c Config) *Service {
	if c.MaxResults == 0 {
		c.MaxResults = 120_000
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = 512 << 20
	}
	return &Service{config: c, envelopes: make(map[string]*internalpb.GetResultResponse)}
}

// StoreResult stores an envelope unless the job has one. An equal repeat is confirmed;
// a different one is rejected with the status of the stored one.
func (s *Service) StoreResult(ctx context.Context, r *internalpb.StoreResultRequest) (*internalpb.StoreResultResponse, error) {
	e, err := envelopeOf(r)
	if err != nil {
		return nil, err
	}
	first, forgotten := s.keep(e)
	for _, id := range forgotten {
		s.config.Log.Warn(ctx, "StoreResult", "result_evicted", "oldest result forgotten to make room", rpc.JobID(id))
	}
	if first == e {
		return &internalpb.StoreResultResponse{Stored: true, CurrentTerminalStatus: e.GetTerminalStatus()}, nil
	}
	same := first.GetTerminalStatus() == e.GetTerminalStatus() && first.GetChecksum() == e.GetChecksum()
	if !same {
		s.config.Log.Info(ctx, "StoreResult", "result_conflict", "job has another result already: the first one stands", rpc.JobID(r.GetJobId()),
			slog.String("current_status", first.GetTerminalStatus().String()), slog.String("to_status", e.GetTerminalStatus().String()))
	}
	return &internalpb.StoreResultResponse{Stored: same, AlreadyExists: true, CurrentTerminalStatus: first.GetTerminalStatus()}, nil
}

// GetResult reads an envelope.
func (s *Service) GetResult(_ context.Context, r *internalpb.GetResultRequest) (*internalpb.GetResultResponse, error) {
	if r.GetJobId() == "" {
		return nil, status.Error(codes.InvalidArgument, "job_id is empty")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.envelopes[r.GetJobId()]; ok {
		return e, nil // never changed after it was stored
	}
	return &internalpb.GetResultResponse{JobId: r.GetJobId()}, nil
}

func envelopeOf(r *internalpb.StoreResultRequest) (*internalpb.GetResultResponse, error) {
	refuse := func(format string, args ...any) (*internalpb.GetResultResponse, error) {
		return nil, status.Errorf(codes.InvalidArgument, format, args...)
	}
	switch t := r.GetTerminalStatus(); {
	case r.GetJobId() == "":
		return refuse("job_id is empty")
	case len(r.GetJobId()) > maxIDBytes:
		return refuse("job_id has %d bytes, more than %d", len(r.GetJobId()), maxIDBytes)
	case t < publicpb.JobStatus_DONE || t > publicpb.JobStatus_CANCELED:
		return refuse("terminal_status %v is not terminal", t)
	case len(r.GetOutputBytes()) > taskwork.MaxOutputBytes:
		return refuse("output has %d bytes, more than %d", len(r.GetOutputBytes()), taskwork.MaxOutputBytes)
	case len(r.GetOutputSummary()) > maxSummaryBytes:
		return refuse("output_summary has %d bytes, more than %d", len(r.GetOutputSummary()), maxSummaryBytes)
	}
	sum := taskwork.Checksum(r.GetOutputBytes())
	if r.GetChecksum() != "" && r.GetChecksum() != sum {
		return refuse("checksum is not that of the output")
	}
	return &internalpb.GetResultResponse{
		Found: true, JobId: r.GetJobId(), TerminalStatus: r.GetTerminalStatus(), RuntimeMs: r.GetRuntimeMs(),
		OutputSummary: r.GetOutputSummary(), OutputBytes: r.GetOutputBytes(), Checksum: sum,
	}, nil
}

// keep returns the job's envelope and the ids removed by the limit on bytes.
func (s *Service) keep(e *internalpb.GetResultResponse) (stands *internalpb.GetResultResponse, forgotten []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if first, ok := s.envelopes[e.GetJobId()]; ok {
		return first, nil
	}
	s.envelopes[e.GetJobId()] = e
	s.age = append(s.age, e.GetJobId())
	s.bytes += sizeOf(e)
	for len(s.envelopes) > s.config.MaxResults || s.bytes > s.config.MaxBytes {
		early := s.bytes > s.config.MaxBytes
		id := s.age[s.first]
		s.age[s.first] = ""
		s.first++
		s.bytes -= sizeOf(s.envelopes[id])
		delete(s.envelopes, id)
		if early {
			forgotten = append(forgotten, id)
		}
	}
	if s.first > 1024 && s.first > len(s.age)/2 {
		s.age = append([]string(nil), s.age[s.first:]...)
		s.first = 0
	}
	return e, forgotten
}

func sizeOf(e *internalpb.GetResultResponse) int {
	return len(e.GetOutputBytes()) + len(e.GetOutputSummary())
}
