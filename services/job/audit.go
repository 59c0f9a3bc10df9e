package job

import (
	"context"
	"log/slog"
	"time"

	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
)

// auditInterval is how often Run looks for jobs that seem lost.
const auditInterval = 5 * time.Second

// Run audits until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	tick := time.NewTicker(auditInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			s.Audit(ctx)
		}
	}
}

// Audit reports, once each, jobs that the other services seem to have lost, judged only
// by what this service knows: running much longer than their work takes, or still
// queued although much younger jobs have started. It repairs nothing.
func (s *Service) Audit(ctx context.Context) {
	const method = "Audit"
	for _, r := range s.table.suspects() {
		kind, text := "queued_overtaken", "job is QUEUED although much younger jobs have started: the queue may have lost it"
		if r.status == publicpb.JobStatus_RUNNING {
			kind, text = "running_overdue", "job is RUNNING for much longer than its work takes: nobody may hold it"
		}
		s.config.Log.Anomaly(ctx, method, kind, r.id, text, slog.String("current_status", r.status.String()))
	}
}

// suspects returns copies of the jobs to report and marks them as reported.
func (t *table) suspects() (found []record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.nowLocked()
	for _, r := range t.order {
		if r.deleted || r.reported {
			continue
		}
		switch r.status {
		case publicpb.JobStatus_QUEUED:
			r.reported = t.frontier-r.created > t.config.Overtaken.Milliseconds()
		case publicpb.JobStatus_RUNNING:
			r.reported = now-r.started > int64(r.spec.GetWorkDurationMs())+t.config.Overdue.Milliseconds()
		default:
			continue
		}
		if r.reported {
			found = append(found, *r)
		}
	}
	return found
}
