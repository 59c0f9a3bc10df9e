package coordinator

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
	internalpb "github.com/gopherqueue/gq/services/api/taskqueueinternal/v1"
	"github.com/gopherqueue/gq/services/internal/rpc"
)

// tries limits how many jobs that need no worker one call passes over.
const tries = 16

// FetchWork gives a job to a worker, or says when to ask again.
func (s *Service) FetchWork(ctx context.Context, r *internalpb.FetchWorkRequest) (*internalpb.FetchWorkResponse, error) {
	if err := checkWorker(r.GetWorkerId()); err != nil {
		return nil, err
	}
	if !s.arrive(ctx, r.GetWorkerId()) {
		return s.hint(), nil // it must send a heartbeat first
	}
	for range tries {
		h, err := s.next(ctx, r.GetWorkerId())
		if err != nil {
			return nil, err
		}
		if h == nil {
			return s.idle(ctx, r.GetWorkerId()), nil
		}
		spec, err := s.dispatch(ctx, h, r.GetWorkerId())
		if err != nil {
			return nil, err
		}
		if spec != nil {
			return &internalpb.FetchWorkResponse{Assigned: true, JobId: h.jobID, Spec: spec}, nil
		}
	}
	return s.hint(), nil
}

// idle tells a worker to ask again later, and notes the time unless the call was
// abandoned.
func (s *Service) idle(ctx context.Context, workerID string) *internalpb.FetchWorkResponse {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.workers[workerID]; w != nil && w.slots > 0 && ctx.Err() == nil {
		w.idled = append(w.idled[max(0, len(w.idled)+1-w.slots):], s.config.Now())
	}
	return s.hint()
}

func (s *Service) hint() *internalpb.FetchWorkResponse {
	return &internalpb.FetchWorkResponse{RetryAfterMs: uint32(s.config.IdleHint.Milliseconds())}
}

// next takes a job to dispatch again, or one from the queue, and holds it. It returns
// nil if there is none.
func (s *Service) next(ctx context.Context, workerID string) (*handout, error) {
	if h := s.takePending(); h != nil {
		return h, nil
	}
	for range tries {
		answer, err := s.dequeue(ctx, workerID)
		if err != nil {
			return nil, err
		}
		if !answer.GetFound() {
			return nil, nil
		}
		h := &handout{jobID: answer.GetJobId(), unsure: true}
		if s.hold(h) {
			return h, nil
		}
		// It was queued twice, after an answer to the gateway was lost.
		s.config.Log.Info(ctx, "FetchWork", "dispatch_race", "job from the queue is handed out already", rpc.JobID(h.jobID))
	}
	return nil, nil
}

// dequeue takes a job from the queue. Without an answer a job may have been taken all
// the same, so the next call repeats the same dequeue.
func (s *Service) dequeue(ctx context.Context, workerID string) (*internalpb.DequeueJobResponse, error) {
	id := s.dequeueID()
	answer, err := s.config.Queue.DequeueJob(ctx, &internalpb.DequeueJobRequest{WorkerId: workerID, DequeueId: id})
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.unanswered = append(s.unanswered, id)
		return nil, rpc.Downstream("queue", err)
	}
	return answer, nil
}

// dequeueID returns the id of a dequeue that was not answered, or a new one.
func (s *Service) dequeueID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.unanswered); n > 0 {
		id := s.unanswered[n-1]
		s.unanswered = s.unanswered[:n-1]
		return id
	}
	s.dequeues++
	return s.term + "-" + strconv.FormatUint(s.dequeues, 36)
}

func (s *Service) takePending() *handout {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.pending) > 0 {
		h := s.pending[0]
		s.pending[0] = nil
		s.pending = s.pending[1:]
		if _, taken := s.held[h.jobID]; !taken {
			s.held[h.jobID] = h
			return h
		}
	}
	return nil
}

func (s *Service) hold(h *handout) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, taken := s.held[h.jobID]; taken {
		return false
	}
	s.held[h.jobID] = h
	return true
}

// drop forgets a job that has ended or that the job service does not know.
func (s *Service) drop(jobID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, jobID)
}

// keep puts a job back into the list of jobs to dispatch next.
func (s *Service) keep(h *handout) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keepLocked(h)
}

func (s *Service) keepLocked(h *handout) {
	delete(s.held, h.jobID)
	h.worker = ""
	s.pending = append(s.pending, h)
}

// dispatch gives a held job to a worker. It returns no spec if the job needs no worker
// any more. In any case it keeps the job until the job has ended or is unknown.
func (s *Service) dispatch(ctx context.Context, h *handout, workerID string) (*publicpb.JobSpec, error) {
	if h.unsure {
		mine, err := s.start(ctx, h)
		if err != nil || !mine {
			return nil, err
		}
		h.unsure = false
	}
	record, err := s.config.Jobs.GetJobRecord(ctx, &internalpb.GetJobRecordRequest{JobId: h.jobID})
	if err != nil {
		return nil, s.postpone(ctx, h, err)
	}
	job := record.GetSummary()
	switch {
	case job.GetStatus() != publicpb.JobStatus_RUNNING:
		s.config.Log.Info(ctx, "FetchWork", "dispatch_race", "job has ended before it was handed out again", rpc.JobID(h.jobID), currentStatus(job.GetStatus()))
		s.drop(h.jobID)
		return nil, nil
	case job.GetCancelRequested():
		if _, err := s.end(ctx, "FetchWork", canceledEnvelope(h.jobID, 0, record.GetFailureReason()), record.GetFailureReason()); err != nil {
			s.keep(h)
			return nil, err
		}
		s.drop(h.jobID)
		return nil, nil
	}
	if ctx.Err() != nil {
		s.config.Log.Warn(ctx, "FetchWork", "dispatch_postponed", "job stays with the coordinator: the worker no longer waits for it", rpc.JobID(h.jobID), rpc.WorkerID(workerID))
		s.keep(h)
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	s.assign(h, workerID, time.Duration(record.GetSpec().GetWorkDurationMs())*time.Millisecond)
	return record.GetSpec(), nil
}

func (s *Service) assign(h *handout, workerID string, work time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.worker, h.since = workerID, s.config.Now()
	h.overdue = h.since.Add(work + s.config.Grace)
	h.attempts++
}

// start moves a job from QUEUED to RUNNING. It reports whether the job may be
// dispatched.
func (s *Service) start(ctx context.Context, h *handout) (mine bool, err error) {
	change, err := s.config.Jobs.TransitionJobStatus(ctx, &internalpb.TransitionJobStatusRequest{
		JobId: h.jobID, ExpectedFromStatus: publicpb.JobStatus_QUEUED, ToStatus: publicpb.JobStatus_RUNNING, Actor: actor,
	})
	if err != nil {
		return false, s.postpone(ctx, h, err)
	}
	// Only the coordinator starts jobs, and no worker has this one: if it is RUNNING,
	// an attempt whose answer was lost has started it.
	if change.GetApplied() || change.GetCurrentStatus() == publicpb.JobStatus_RUNNING {
		return true, nil
	}
	s.config.Log.Info(ctx, "FetchWork", "dispatch_race", "job was not started: another transition came first", rpc.JobID(h.jobID),
		slog.String("expected_status", publicpb.JobStatus_QUEUED.String()), currentStatus(change.GetCurrentStatus()))
	s.drop(h.jobID)
	return false, nil
}

// postpone keeps a job if the job service did not answer. It reports and drops a job
// that the service does not know, and returns no error then.
func (s *Service) postpone(ctx context.Context, h *handout, err error) error {
	if status.Code(err) == codes.NotFound {
		s.config.Log.Anomaly(ctx, "FetchWork", "queued_but_unknown", h.jobID, "job from the queue is unknown to the job service")
		s.drop(h.jobID)
		return nil
	}
	s.config.Log.Warn(ctx, "FetchWork", "dispatch_postponed", "job stays with the coordinator: "+status.Convert(err).Message(), rpc.JobID(h.jobID))
	s.keep(h)
	return rpc.Downstream("job", err)
}

func currentStatus(s publicpb.JobStatus) slog.Attr {
	return slog.String("current_status", s.String())
}
