// Package coordinator is the service that knows which workers are alive and assigns
// jobs to them. It keeps neither specs nor results: it reads and writes them through
// the services that own them.
//
// A job taken from the queue is in exactly one place until it has ended: with a worker,
// or in the list of jobs to dispatch next. Both are in memory only, so a restarted
// coordinator has forgotten them; it accepts outcomes from workers all the same.
package coordinator

import (
	"context"
	"crypto/rand"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/gopherqueue/gq/internal/taskwork"
	internalpb "github.com/gopherqueue/gq/services/api/taskqueueinternal/v1"
	"github.com/gopherqueue/gq/services/internal/rpc"
)

// The fixed policy of heartbeats and idle workers.
const (
	HeartbeatInterval = taskwork.HeartbeatInterval
	WorkerTimeout     = taskwork.WorkerTimeout
	DefaultIdleHint   = 200 * time.Millisecond
	MinIdleHint       = 50 * time.Millisecond
	MaxIdleHint       = 1000 * time.Millisecond
)

const (
	actor      = "coordinator"
	maxWorkers = 10_000
	maxSlots   = 10_000 // of one worker
	maxIDBytes = 256
)

// Queue is the part of the queue service that a coordinator may call.
type Queue interface {
	DequeueJob(context.Context, *internalpb.DequeueJobRequest, ...grpc.CallOption) (*internalpb.DequeueJobResponse, error)
	RemoveJobIfPresent(context.Context, *internalpb.RemoveJobIfPresentRequest, ...grpc.CallOption) (*internalpb.RemoveJobIfPresentResponse, error)
}

// Jobs is the part of the job service that a coordinator may call.
type Jobs interface {
	TransitionJobStatus(context.Context, *internalpb.TransitionJobStatusRequest, ...grpc.CallOption) (*internalpb.TransitionJobStatusResponse, error)
	GetJobRecord(context.Context, *internalpb.GetJobRecordRequest, ...grpc.CallOption) (*internalpb.GetJobRecordResponse, error)
}

// Results is the part of the result service that a coordinator may call.
type Results interface {
	StoreResult(context.Context, *internalpb.StoreResultRequest, ...grpc.CallOption) (*internalpb.StoreResultResponse, error)
}

// Config configures a coordinator. Zero fields mean the default.
type Config struct {
	Log     *rpc.Log
	Now     func() time.Time // time.Now
	Queue   Queue
	Jobs    Jobs
	Results Results

	IdleHint    time.Duration // 200 ms; limited to [50 ms, 1 s]
	MaxAttempts int           // dispatches of a job before it is WORKER_LOST: 3
	Grace       time.Duration // how much longer than the work a worker may take: 30 s
}

func (c *Config) setDefaults() {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.IdleHint == 0 {
		c.IdleHint = DefaultIdleHint
	}
	c.IdleHint = min(max(c.IdleHint, MinIdleHint), MaxIdleHint)
	if c.MaxAttempts == 0 {
		c.MaxAttempts = 3
	}
	if c.Grace == 0 {
		c.Grace = 30 * time.Second
	}
}

// Service serves CoordinatorInternalService.
type Service struct {
	internalpb.UnimplementedCoordinatorInternalServiceServer
	config Config

	mu      sync.Mutex // guards what follows
	workers map[string]*worker
	held    map[string]*handout // jobs with a worker, or in transit to one
	pending []*handout          // to dispatch before anything from the queue
	spent   []*handout          // dispatched too often: to be ended

	term       string   // of this process, part of its dequeue ids
	dequeues   uint64   // so far
	unanswered []string // ids of dequeues that may have taken a job: to be repeated
}

// worker is what the coordinator knows about a worker.
type worker struct {
	lastBeat  time.Time
	available bool
	slots     int         // 0 if unknown
	idled     []time.Time // times of its last fetches that got no job, at most one per slot
}

// handout is a job taken from the queue.
type handout struct {
	jobID    string
	worker   string    // empty unless a worker has it
	attempts int       // times it was dispatched
	unsure   bool      // it is unknown whether the job is RUNNING
	since    time.Time // when the worker got it
	overdue  time.Time // when its outcome is long overdue
}

// New returns a coordinator without workers.
func New(c Config) *Service {
	c.setDefaults()
	return &Service{config: c, workers: make(map[string]*worker), held: make(map[string]*handout), term: rand.Text()}
}

// WorkerHeartbeat keeps a worker available, and returns which of its jobs should stop.
func (s *Service) WorkerHeartbeat(ctx context.Context, r *internalpb.WorkerHeartbeatRequest) (*internalpb.WorkerHeartbeatResponse, error) {
	id := r.GetWorkerId()
	if err := checkWorker(id); err != nil {
		return nil, err
	}
	s.mu.Lock()
	w, seen := s.workers[id]
	if !seen {
		if len(s.workers) >= maxWorkers {
			s.mu.Unlock()
			return nil, status.Errorf(codes.ResourceExhausted, "limit of %d workers reached", maxWorkers)
		}
		w = &worker{}
		s.workers[id] = w
	}
	back := !w.available
	w.lastBeat, w.available, w.slots = s.config.Now(), true, int(min(r.GetCapacityHint(), maxSlots))
	s.mu.Unlock()
	if back {
		s.config.Log.Info(ctx, "WorkerHeartbeat", "worker_available", "worker is available", rpc.WorkerID(id), slog.Uint64("capacity", uint64(r.GetCapacityHint())))
	}
	return &internalpb.WorkerHeartbeatResponse{
		Accepted: true, NextHeartbeatInMs: uint32(HeartbeatInterval.Milliseconds()), CancelJobIds: s.toStop(ctx, id),
	}, nil
}

// A heartbeat must be answered in time, however slow the job service is.
const (
	stopLookup = 200 * time.Millisecond // for all lookups of a heartbeat together
	stopAge    = 200 * time.Millisecond // younger runs are left to end by themselves
	stopMost   = 64
)

// toStop lists the jobs of a worker whose cancellation was requested.
func (s *Service) toStop(ctx context.Context, workerID string) (ids []string) {
	ctx, cancel := context.WithTimeout(ctx, stopLookup)
	defer cancel()
	for _, id := range s.heldBy(workerID) {
		record, err := s.config.Jobs.GetJobRecord(ctx, &internalpb.GetJobRecordRequest{JobId: id})
		if err != nil {
			break // only a hint: the next heartbeat tries again
		}
		if record.GetSummary().GetCancelRequested() {
			ids = append(ids, id)
		}
	}
	return ids
}

func (s *Service) heldBy(workerID string) (ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.config.Now().Add(-stopAge)
	for id, h := range s.held {
		if h.worker == workerID && h.since.Before(before) && len(ids) < stopMost {
			ids = append(ids, id)
		}
	}
	return ids
}

// availableLocked judges a worker at this moment, whether or not a sweep has run.
func (s *Service) availableLocked(id string, now time.Time) bool {
	w, ok := s.workers[id]
	return ok && w.available && now.Sub(w.lastBeat) <= WorkerTimeout
}

func checkWorker(id string) error {
	switch {
	case id == "":
		return status.Error(codes.InvalidArgument, "worker_id is empty")
	case len(id) > maxIDBytes:
		return status.Errorf(codes.InvalidArgument, "worker_id has %d bytes, more than %d", len(id), maxIDBytes)
	}
	return nil
}
