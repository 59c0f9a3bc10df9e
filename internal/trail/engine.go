package trail

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/errs"
)

// Engine wraps an engine so that every call of an operator that changes something is recorded. It
// belongs below the guard.
func (t *Trail) Engine(e engine.API) engine.API { return &recorded{e, t} }

// recorded is an engine whose changes by operators are recorded.
type recorded struct {
	engine.API
	trail *Trail
}

// note records a call that has ended, unless the caller lacked the rights to make it.
func (r *recorded) note(ctx context.Context, verb, object, detail string, count int64, err error) {
	if err != nil {
		if k := errs.KindOf(err); k == gq.KindDenied || k == gq.KindUnauthenticated {
			return
		}
	}
	r.trail.Record(ctx, verb, object, detail, count, err)
}

func job(id gq.JobID) string { return "job " + id.String() }

func workflow(id gq.WorkflowID) string { return "workflow " + id.String() }

// where describes the jobs that a query selects.
func where(q *gq.Query) string {
	var parts []string
	add := func(name, value string) {
		if value != "" {
			parts = append(parts, name+"="+value)
		}
	}
	add("queue", q.Queue)
	states := make([]string, len(q.Statuses))
	for i, s := range q.Statuses {
		states[i] = s.String()
	}
	add("state", strings.Join(states, ","))
	add("type", strings.Join(q.Types, ","))
	add("key", strings.Join(q.Keys, ","))
	var tags []string
	for name, value := range q.Tags {
		tags = append(tags, name+":"+value)
	}
	slices.Sort(tags)
	add("tag", strings.Join(tags, ","))
	if !q.CreatedAfter.IsZero() {
		add("since", q.CreatedAfter.UTC().Format(time.RFC3339))
	}
	if !q.CreatedBefore.IsZero() {
		add("until", q.CreatedBefore.UTC().Format(time.RFC3339))
	}
	if len(parts) == 0 {
		return "all jobs"
	}
	return "jobs with " + strings.Join(parts, " ")
}

// limits describes the settings of a queue that a call has written.
func limits(q *gq.Queue, err error) string {
	if err != nil {
		return ""
	}
	parts := []string{fmt.Sprintf("paused=%t", q.Paused)}
	for _, n := range []struct {
		name  string
		value int
	}{{"max_running", q.MaxRunning}, {"max_depth", q.MaxDepth}, {"key_limit", q.KeyLimit}, {"rate", q.Rate.Count}} {
		if n.value > 0 {
			parts = append(parts, fmt.Sprintf("%s=%d", n.name, n.value))
		}
	}
	if q.Rate.Count > 0 {
		parts = append(parts, "rate_per="+q.Rate.Per.String())
	}
	if q.Pool != "" {
		parts = append(parts, "pool="+q.Pool)
	}
	return strings.Join(parts, " ")
}

func (r *recorded) DeclareQueue(ctx context.Context, q gq.Queue) (gq.Queue, error) {
	out, err := r.API.DeclareQueue(ctx, q)
	r.note(ctx, "declare", "queue "+q.Name, limits(&out, err), 0, err)
	return out, err
}

func (r *recorded) PutQueue(ctx context.Context, q gq.Queue) (gq.Queue, error) {
	out, err := r.API.PutQueue(ctx, q)
	r.note(ctx, "configure", "queue "+q.Name, limits(&out, err), 0, err)
	return out, err
}

func (r *recorded) ChangeQueue(ctx context.Context, name string, change func(*gq.Queue)) (gq.Queue, error) {
	out, err := r.API.ChangeQueue(ctx, name, change)
	r.note(ctx, "configure", "queue "+name, limits(&out, err), 0, err)
	return out, err
}

func (r *recorded) Pause(ctx context.Context, queue string) (gq.Queue, error) {
	out, err := r.API.Pause(ctx, queue)
	r.note(ctx, "pause", "queue "+queue, "", 0, err)
	return out, err
}

func (r *recorded) Resume(ctx context.Context, queue string) (gq.Queue, error) {
	out, err := r.API.Resume(ctx, queue)
	r.note(ctx, "resume", "queue "+queue, "", 0, err)
	return out, err
}

func (r *recorded) DeleteQueue(ctx context.Context, name string) error {
	err := r.API.DeleteQueue(ctx, name)
	r.note(ctx, "delete", "queue "+name, "", 0, err)
	return err
}

func (r *recorded) SetQueueKey(ctx context.Context, k gq.QueueKey) (gq.QueueKey, error) {
	out, err := r.API.SetQueueKey(ctx, k)
	r.note(ctx, "limit", "key "+k.Key+" of queue "+k.Queue, fmt.Sprintf("limit=%d rate=%d", k.Limit, k.Rate.Count), 0, err)
	return out, err
}

func (r *recorded) UnsetQueueKey(ctx context.Context, queue, key string) error {
	err := r.API.UnsetQueueKey(ctx, queue, key)
	r.note(ctx, "unlimit", "key "+key+" of queue "+queue, "", 0, err)
	return err
}

func (r *recorded) PutPool(ctx context.Context, p gq.Pool) error {
	err := r.API.PutPool(ctx, p)
	r.note(ctx, "configure", "pool "+p.Name, fmt.Sprintf("capacity=%d", p.Capacity), 0, err)
	return err
}

func (r *recorded) ConfigurePool(ctx context.Context, p gq.Pool) error {
	err := r.API.ConfigurePool(ctx, p)
	r.note(ctx, "configure", "pool "+p.Name, fmt.Sprintf("capacity=%d", p.Capacity), 0, err)
	return err
}

func (r *recorded) UpdateMetadata(ctx context.Context, id gq.JobID, p gq.MetadataPatch) (gq.Job, error) {
	out, err := r.API.UpdateMetadata(ctx, id, p)
	var parts []string
	if p.Priority != 0 {
		parts = append(parts, "priority="+p.Priority.String())
	}
	if len(p.SetTags)+len(p.DropTags) > 0 {
		parts = append(parts, "tags")
	}
	if p.CorrelationID != nil {
		parts = append(parts, "correlation id")
	}
	if p.CallbackURL != nil {
		parts = append(parts, "callback")
	}
	r.note(ctx, "update", job(id), strings.Join(parts, " "), 0, err)
	return out, err
}

func (r *recorded) Reschedule(ctx context.Context, id gq.JobID, at time.Time) (gq.State, error) {
	out, err := r.API.Reschedule(ctx, id, at)
	detail := "now"
	if !at.IsZero() {
		detail = at.UTC().Format(time.RFC3339)
	}
	r.note(ctx, "reschedule", job(id), detail, 0, err)
	return out, err
}

func (r *recorded) Cancel(ctx context.Context, id gq.JobID, reason string) (gq.State, error) {
	out, err := r.API.Cancel(ctx, id, reason)
	r.note(ctx, "cancel", job(id), "", 0, err)
	return out, err
}

func (r *recorded) CancelWhere(ctx context.Context, q gq.Query, reason string) (gq.CancelReport, error) {
	out, err := r.API.CancelWhere(ctx, q, reason)
	r.note(ctx, "cancel", where(&q), "", int64(out.Cancelled+out.Requested), err)
	return out, err
}

func (r *recorded) Edit(ctx context.Context, id gq.JobID, change gq.JobEdit) (gq.SubmitResult, error) {
	out, err := r.API.Edit(ctx, id, change)
	var parts []string
	if change.Queue != "" {
		parts = append(parts, "queue="+change.Queue)
	}
	if change.Payload != nil {
		parts = append(parts, "payload")
	}
	if !change.RunAt.IsZero() {
		parts = append(parts, "run_at="+change.RunAt.UTC().Format(time.RFC3339))
	}
	if err == nil {
		parts = append(parts, "replaced by "+out.ID().String())
	}
	r.note(ctx, "edit", job(id), strings.Join(parts, " "), 0, err)
	return out, err
}

func (r *recorded) Replay(ctx context.Context, id gq.JobID) (gq.SubmitResult, error) {
	out, err := r.API.Replay(ctx, id)
	detail := ""
	if err == nil {
		if detail = "as " + out.ID().String(); out.Existing {
			detail = "already replayed " + detail
		}
	}
	r.note(ctx, "replay", job(id), detail, 0, err)
	return out, err
}

func (r *recorded) ReplayWhere(ctx context.Context, q gq.Query) (gq.ReplayReport, error) {
	out, err := r.API.ReplayWhere(ctx, q)
	detail := ""
	if out.Existing > 0 {
		detail = fmt.Sprintf("%d were replayed before", out.Existing)
	}
	r.note(ctx, "replay", where(&q), detail, int64(len(out.Jobs)), err)
	return out, err
}

func (r *recorded) Purge(ctx context.Context, id gq.JobID) error {
	err := r.API.Purge(ctx, id)
	r.note(ctx, "purge", job(id), "", 0, err)
	return err
}

func (r *recorded) PurgeWhere(ctx context.Context, q gq.Query) (int, error) {
	n, err := r.API.PurgeWhere(ctx, q)
	r.note(ctx, "purge", where(&q), "", int64(n), err)
	return n, err
}

func (r *recorded) CancelWorkflow(ctx context.Context, id gq.WorkflowID, reason string) (gq.CancelReport, error) {
	out, err := r.API.CancelWorkflow(ctx, id, reason)
	r.note(ctx, "cancel", workflow(id), "", int64(out.Cancelled+out.Requested), err)
	return out, err
}

func (r *recorded) RetryWorkflow(ctx context.Context, id gq.WorkflowID) (gq.Workflow, error) {
	out, err := r.API.RetryWorkflow(ctx, id)
	r.note(ctx, "retry", workflow(id), "", 0, err)
	return out, err
}

func (r *recorded) Signal(ctx context.Context, id gq.WorkflowID, name string, value any) (gq.State, error) {
	out, err := r.API.Signal(ctx, id, name, value)
	r.note(ctx, "signal", workflow(id), name, 0, err)
	return out, err
}

func refused(which *gq.RefusedSelection) string {
	if which.All {
		return "all refused submissions"
	}
	return fmt.Sprintf("%d refused submissions", len(which.Jobs))
}

func (r *recorded) RetryRefused(ctx context.Context, which gq.RefusedSelection) (int, error) {
	n, err := r.API.RetryRefused(ctx, which)
	r.note(ctx, "retry", refused(&which), "", int64(n), err)
	return n, err
}

func (r *recorded) DiscardRefused(ctx context.Context, which gq.RefusedSelection) (int, error) {
	n, err := r.API.DiscardRefused(ctx, which)
	r.note(ctx, "discard", refused(&which), "", int64(n), err)
	return n, err
}

func (r *recorded) DeclareSchedule(ctx context.Context, s gq.Schedule) (gq.Schedule, error) {
	out, err := r.API.DeclareSchedule(ctx, s)
	r.note(ctx, "declare", "schedule "+s.Name, "", 0, err)
	return out, err
}

func (r *recorded) PutSchedule(ctx context.Context, s gq.Schedule) (gq.Schedule, error) {
	out, err := r.API.PutSchedule(ctx, s)
	r.note(ctx, "configure", "schedule "+s.Name, "", 0, err)
	return out, err
}

func (r *recorded) PauseSchedule(ctx context.Context, name string) (gq.Schedule, error) {
	out, err := r.API.PauseSchedule(ctx, name)
	r.note(ctx, "pause", "schedule "+name, "", 0, err)
	return out, err
}

func (r *recorded) ResumeSchedule(ctx context.Context, name string) (gq.Schedule, error) {
	out, err := r.API.ResumeSchedule(ctx, name)
	r.note(ctx, "resume", "schedule "+name, "", 0, err)
	return out, err
}

func (r *recorded) TriggerSchedule(ctx context.Context, name string) (gq.Firing, error) {
	out, err := r.API.TriggerSchedule(ctx, name)
	r.note(ctx, "trigger", "schedule "+name, "", 0, err)
	return out, err
}

func (r *recorded) BackfillSchedule(ctx context.Context, b gq.Backfill) (gq.BackfillReport, error) {
	out, err := r.API.BackfillSchedule(ctx, b)
	if !b.DryRun {
		r.note(ctx, "backfill", "schedule "+b.Schedule, "", int64(out.Submitted), err)
	}
	return out, err
}

func (r *recorded) DeleteSchedule(ctx context.Context, name string) error {
	err := r.API.DeleteSchedule(ctx, name)
	r.note(ctx, "delete", "schedule "+name, "", 0, err)
	return err
}
