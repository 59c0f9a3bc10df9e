// Package queue is the service that owns the order of the waiting jobs: first in, first
// out. It knows only their ids, keeps them in memory, and rejects more than it may hold
// with RESOURCE_EXHAUSTED.
package queue

import (
	"container/list"
	"context"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	internalpb "github.com/gopherqueue/gq/services/api/taskqueueinternal/v1"
)

const (
	maxIDBytes = 128
	maxAnswers = 50_000 // remembered answers to dequeues
)

// Config configures a queue service. Zero fields mean the default.
type Config struct {
	MaxJobs int    // ids held: 1 000 000
	Wake    func() // called after a job was added; may be nil
}

// Service serves QueueInternalService.
type Service struct {
	internalpb.UnimplementedQueueInternalServiceServer
	config Config

	mu      sync.Mutex // guards what follows
	waiting *list.List // ids, oldest first
	members map[string]*list.Element
	answers map[string]string // by dequeue_id: the job taken, empty for none
	asked   []string          // the dequeue_ids of answers, a ring that starts at oldest
	oldest  int
}

// New returns an empty queue.
func New(c Config) *Service {
	if c.MaxJobs == 0 {
		c.MaxJobs = 1_000_000
	}
	return &Service{config: c, waiting: list.New(), members: make(map[string]*list.Element), answers: make(map[string]string)}
}

// EnqueueJob adds a job at the end. A job that already waits keeps its place, with the
// same answer, so that the call can be repeated after a lost answer.
func (s *Service) EnqueueJob(_ context.Context, r *internalpb.EnqueueJobRequest) (*internalpb.EnqueueJobResponse, error) {
	if err := checkID(r.GetJobId()); err != nil {
		return nil, err
	}
	if !s.add(r.GetJobId()) {
		return nil, status.Errorf(codes.ResourceExhausted, "limit of %d waiting jobs reached", s.config.MaxJobs)
	}
	if s.config.Wake != nil {
		s.config.Wake()
	}
	return &internalpb.EnqueueJobResponse{Accepted: true}, nil
}

func (s *Service) add(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.members[id]; ok {
		return true
	}
	if len(s.members) >= s.config.MaxJobs {
		return false
	}
	s.members[id] = s.waiting.PushBack(id)
	return true
}

// DequeueJob removes the oldest job. A repeat with the same dequeue_id gets the same
// answer, since a job whose answer was lost would be lost too.
func (s *Service) DequeueJob(_ context.Context, r *internalpb.DequeueJobRequest) (*internalpb.DequeueJobResponse, error) {
	key := r.GetDequeueId()
	if len(key) > maxIDBytes {
		return nil, status.Errorf(codes.InvalidArgument, "dequeue_id has %d bytes, more than %d", len(key), maxIDBytes)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	id, again := s.answers[key]
	if !again {
		if first := s.waiting.Front(); first != nil {
			id = s.takeLocked(first)
		}
		s.rememberLocked(key, id)
	}
	return &internalpb.DequeueJobResponse{Found: id != "", JobId: id}, nil
}

// rememberLocked keeps an answer until maxAnswers later ones. An empty answer is kept
// too: a late duplicate of the call must not take a job.
func (s *Service) rememberLocked(key, id string) {
	if key == "" {
		return
	}
	s.answers[key] = id
	if len(s.asked) < maxAnswers {
		s.asked = append(s.asked, key)
		return
	}
	delete(s.answers, s.asked[s.oldest])
	s.asked[s.oldest] = key
	s.oldest = (s.oldest + 1) % maxAnswers
}

// RemoveJobIfPresent removes a waiting job unless the call was abandoned: a caller that
// gave up puts the job back, and a removal must not follow that. On one connection it
// cannot, since the end of a call is read before any later call.
func (s *Service) RemoveJobIfPresent(ctx context.Context, r *internalpb.RemoveJobIfPresentRequest) (*internalpb.RemoveJobIfPresentResponse, error) {
	if err := checkID(r.GetJobId()); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	e, ok := s.members[r.GetJobId()]
	if ok {
		s.takeLocked(e)
	}
	return &internalpb.RemoveJobIfPresentResponse{Removed: ok}, nil
}

func (s *Service) takeLocked(e *list.Element) string {
	id := s.waiting.Remove(e).(string)
	delete(s.members, id)
	return id
}

func checkID(id string) error {
	switch {
	case id == "":
		return status.Error(codes.InvalidArgument, "job_id is empty")
	case len(id) > maxIDBytes:
		return status.Errorf(codes.InvalidArgument, "job_id has %d bytes, more than %d", len(id), maxIDBytes)
	}
	return nil
}
