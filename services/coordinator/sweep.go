package coordinator

import (
	"context"
	"fmt"
	"time"

	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
	"github.com/gopherqueue/gq/internal/taskwork"
	internalpb "github.com/gopherqueue/gq/services/api/taskqueueinternal/v1"
	"github.com/gopherqueue/gq/services/internal/rpc"
)

// WorkerLost is the failure reason of a job that was dispatched too often without an
// outcome.
const WorkerLost = "WORKER_LOST"

const (
	sweepInterval = 250 * time.Millisecond
	forgetAfter   = 10 * time.Minute // for a worker that is gone
)

// Run sweeps until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	tick := time.NewTicker(sweepInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			s.Sweep(ctx)
		}
	}
}

// Sweep marks silent workers as unavailable, takes back their jobs and overdue ones for
// another dispatch, and ends the jobs that were dispatched too often.
func (s *Service) Sweep(ctx context.Context) {
	gone, taken := s.takeBack(s.config.Now())
	const method = "Sweep"
	for _, id := range gone {
		s.config.Log.Warn(ctx, method, "worker_unavailable", "worker was not heard of in time", rpc.WorkerID(id))
	}
	s.logRedelivery(ctx, method, taken)
	spent := s.takeSpent()
	for i, h := range spent {
		reason := fmt.Sprintf("%s: handed out %d times without an outcome", WorkerLost, h.attempts)
		_, err := s.end(ctx, method, &internalpb.StoreResultRequest{
			JobId: h.jobID, TerminalStatus: publicpb.JobStatus_FAILED, OutputSummary: reason, Checksum: taskwork.EmptyChecksum,
		}, WorkerLost)
		if err != nil {
			s.putSpent(spent[i:])
			return // the next sweep tries again
		}
	}
}

// A redelivery is a job taken back from a worker.
type redelivery struct{ jobID, workerID, why string }

func (s *Service) takeBack(now time.Time) (gone []string, taken []redelivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, w := range s.workers {
		switch silent := now.Sub(w.lastBeat); {
		case w.available && silent > WorkerTimeout:
			w.available = false
			gone = append(gone, id)
		case silent > forgetAfter:
			delete(s.workers, id)
		}
	}
	for _, h := range s.held {
		switch {
		case h.worker == "": // in transit
		case !s.availableLocked(h.worker, now):
			taken = append(taken, s.takeBackLocked(h, "job is handed out again: its worker is unavailable"))
		case now.After(h.overdue):
			taken = append(taken, s.takeBackLocked(h, "job is handed out again: its outcome is long overdue"))
		}
	}
	return gone, taken
}

func (s *Service) takeBackLocked(h *handout, why string) redelivery {
	r := redelivery{h.jobID, h.worker, why}
	if h.attempts < s.config.MaxAttempts {
		s.keepLocked(h)
	} else {
		delete(s.held, h.jobID)
		s.spent = append(s.spent, h)
	}
	return r
}

func (s *Service) logRedelivery(ctx context.Context, method string, taken []redelivery) {
	for _, r := range taken {
		s.config.Log.Warn(ctx, method, "job_redelivery", r.why, rpc.JobID(r.jobID), rpc.WorkerID(r.workerID))
	}
}

func (s *Service) takeSpent() []*handout {
	s.mu.Lock()
	defer s.mu.Unlock()
	spent := s.spent
	s.spent = nil
	return spent
}

func (s *Service) putSpent(spent []*handout) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spent = append(s.spent, spent...)
}
