package access

import (
	"context"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
)

// redacted is the text in place of one that a caller may not see.
const redacted = "redacted"

// redacting is an engine whose answers leave out the content of jobs that the caller may not
// see: payloads, results, checkpoints, notes of workers and messages of failures. Who sees content
// is decided here and nowhere else.
type redacting struct{ engine.API }

// Content returns a function that says of which queues' jobs a caller may see the content; nil
// means all.
func (*Guard) Content(ctx context.Context) func(queue string) bool { return contentOf(ctx) }

func contentOf(ctx context.Context) func(queue string) bool {
	i, err := From(ctx)
	if err != nil || i.content || !i.hidden {
		return nil
	}
	return i.MaySeeContent
}

// carrying tells the engine what the caller may not see.
func carrying(ctx context.Context) context.Context {
	if may := contentOf(ctx); may != nil {
		return engine.WithoutContent(ctx, may)
	}
	return ctx
}

func redactState(s *gq.State) {
	s.Note = ""
	if s.Failure != nil {
		f := *s.Failure
		if f.Message != "" {
			f.Message = redacted
		}
		s.Failure = &f
	}
}

func redactJob(j *gq.Job) {
	j.Spec.Payload.Data, j.Result, j.Checkpoint, j.Inputs = nil, nil, nil, nil
	j.Redacted = true
	redactState(&j.State)
}

// RedactEvent removes what only callers who see the content of jobs may know.
func (*Guard) RedactEvent(e gq.Event) gq.Event { return redactEvent(e) }

func redactEvent(e gq.Event) gq.Event {
	if e.Failure != nil && e.Failure.Message != "" {
		f := *e.Failure
		f.Message = redacted
		e.Failure = &f
	}
	e.Note = ""
	return e
}

func redactEvents(may func(string) bool, events []gq.Event) []gq.Event {
	if may == nil {
		return events
	}
	events = slices.Clone(events) // others share them
	for i := range events {
		if !may(events[i].Queue) {
			events[i] = redactEvent(events[i])
		}
	}
	return events
}

// job redacts a job that a call returns.
func (redacting) job(ctx context.Context, j gq.Job, err error) (gq.Job, error) {
	if may := contentOf(ctx); may != nil && !may(j.Spec.Queue) {
		redactJob(&j) // whatever the error is: a wait that runs out returns both
	}
	return j, err
}

// state redacts a state, whose queue is not known: for callers who may not see the content of
// all jobs that they read.
func (redacting) state(ctx context.Context, s gq.State, err error) (gq.State, error) {
	if contentOf(ctx) != nil {
		redactState(&s)
	}
	return s, err
}

func (r redacting) results(ctx context.Context, out []gq.SubmitResult, err error) ([]gq.SubmitResult, error) {
	for i := range out {
		out[i].State, _ = r.state(ctx, out[i].State, nil)
	}
	return out, err
}

func (r redacting) result(ctx context.Context, out gq.SubmitResult, err error) (gq.SubmitResult, error) {
	out.State, _ = r.state(ctx, out.State, nil)
	return out, err
}

func (redacting) workflow(ctx context.Context, w gq.Workflow, err error) (gq.Workflow, error) {
	if may := contentOf(ctx); may != nil {
		for i := range w.Jobs {
			if j := &w.Jobs[i].Job; !may(j.Spec.Queue) {
				redactJob(j)
			}
		}
	}
	return w, err
}

func (r redacting) spawned(ctx context.Context, out []gq.LeaseResult, err error) ([]gq.LeaseResult, error) {
	for i := range out {
		out[i].Spawned, _ = r.results(ctx, out[i].Spawned, nil)
	}
	return out, err
}

func (r redacting) Heartbeat(ctx context.Context, beats []gq.Heartbeat) ([]gq.LeaseResult, error) {
	out, err := r.API.Heartbeat(ctx, beats)
	return r.spawned(ctx, out, err)
}

func (r redacting) Settle(ctx context.Context, outcomes []gq.Outcome) ([]gq.LeaseResult, error) {
	out, err := r.API.Settle(ctx, outcomes)
	return r.spawned(ctx, out, err)
}

func (r redacting) Get(ctx context.Context, id gq.JobID, parts gq.Parts) (gq.Job, error) {
	j, err := r.API.Get(ctx, id, parts)
	return r.job(ctx, j, err)
}

func (r redacting) ByLease(ctx context.Context, lease gq.LeaseID, parts gq.Parts) (gq.Job, error) {
	j, err := r.API.ByLease(ctx, lease, parts)
	return r.job(ctx, j, err)
}

func (r redacting) Wait(ctx context.Context, id gq.JobID) (gq.Job, error) {
	j, err := r.API.Wait(ctx, id)
	return r.job(ctx, j, err)
}

func (r redacting) UpdateMetadata(ctx context.Context, id gq.JobID, p gq.MetadataPatch) (gq.Job, error) {
	j, err := r.API.UpdateMetadata(carrying(ctx), id, p)
	return r.job(ctx, j, err)
}

func (r redacting) Jobs(ctx context.Context, ids []gq.JobID, parts gq.Parts) (map[gq.JobID]gq.Job, error) {
	jobs, err := r.API.Jobs(ctx, ids, parts)
	if may := contentOf(ctx); may != nil {
		for id, j := range jobs {
			if !may(j.Spec.Queue) {
				redactJob(&j)
				jobs[id] = j
			}
		}
	}
	return jobs, err
}

func (r redacting) List(ctx context.Context, q gq.Query) (gq.Page, error) {
	page, err := r.API.List(ctx, q)
	if may := contentOf(ctx); may != nil {
		for i := range page.Jobs {
			if !may(page.Jobs[i].Spec.Queue) {
				redactJob(&page.Jobs[i])
			}
		}
	}
	return page, err
}

func (r redacting) Explain(ctx context.Context, id gq.JobID) (gq.Explanation, error) {
	x, err := r.API.Explain(carrying(ctx), id)
	x.Timeline = redactEvents(contentOf(ctx), x.Timeline)
	return x, err
}

func (r redacting) History(ctx context.Context, id gq.JobID) ([]gq.Event, error) {
	events, err := r.API.History(ctx, id)
	return redactEvents(contentOf(ctx), events), err
}

func (r redacting) Events(ctx context.Context, after uint64, limit int) ([]gq.Event, error) {
	events, err := r.API.Events(ctx, after, limit)
	return redactEvents(contentOf(ctx), events), err
}

func (r redacting) Follow(ctx context.Context, after uint64, f func([]gq.Event) error) error {
	if may := contentOf(ctx); may != nil {
		return r.API.Follow(ctx, after, func(events []gq.Event) error { return f(redactEvents(may, events)) })
	}
	return r.API.Follow(ctx, after, f)
}

func (r redacting) Workflow(ctx context.Context, id gq.WorkflowID) (gq.Workflow, error) {
	w, err := r.API.Workflow(ctx, id)
	return r.workflow(ctx, w, err)
}

func (r redacting) RetryWorkflow(ctx context.Context, id gq.WorkflowID) (gq.Workflow, error) {
	w, err := r.API.RetryWorkflow(ctx, id)
	return r.workflow(ctx, w, err)
}

func (r redacting) AddToWorkflow(ctx context.Context, id gq.WorkflowID, f *gq.Flow) (gq.Workflow, error) {
	w, err := r.API.AddToWorkflow(carrying(ctx), id, f)
	return r.workflow(ctx, w, err)
}

func (r redacting) Workflows(ctx context.Context, q gq.WorkflowQuery) (gq.WorkflowPage, error) {
	page, err := r.API.Workflows(ctx, q)
	for i := range page.Workflows {
		page.Workflows[i], _ = r.workflow(ctx, page.Workflows[i], nil)
	}
	return page, err
}

func (r redacting) Schedule(ctx context.Context, name string) (gq.Schedule, error) {
	s, err := r.API.Schedule(ctx, name)
	redactSchedule(contentOf(ctx), &s)
	return s, err
}

func (r redacting) Schedules(ctx context.Context) ([]gq.Schedule, error) {
	list, err := r.API.Schedules(ctx)
	for i := range list {
		redactSchedule(contentOf(ctx), &list[i])
	}
	return list, err
}

// redactSchedule removes the payload of a schedule's jobs. Only administrators write schedules, and
// these see everything, so nobody writes a redacted one back.
func redactSchedule(may func(string) bool, s *gq.Schedule) {
	queue := s.Template.Queue
	if queue == "" {
		queue = gq.DefaultQueue
	}
	if may != nil && !may(queue) {
		s.Template.Payload.Data = nil
	}
}

func (r redacting) Submit(ctx context.Context, s gq.Spec) (gq.SubmitResult, error) {
	out, err := r.API.Submit(ctx, s)
	return r.result(ctx, out, err)
}

func (r redacting) SubmitBatch(ctx context.Context, specs []gq.Spec) ([]gq.SubmitResult, error) {
	out, err := r.API.SubmitBatch(ctx, specs)
	return r.results(ctx, out, err)
}

func (r redacting) SubmitGraph(ctx context.Context, jobs []gq.GraphJob) ([]gq.SubmitResult, error) {
	out, err := r.API.SubmitGraph(ctx, jobs)
	return r.results(ctx, out, err)
}

func (r redacting) Replay(ctx context.Context, id gq.JobID) (gq.SubmitResult, error) {
	out, err := r.API.Replay(ctx, id)
	return r.result(ctx, out, err)
}

func (r redacting) Edit(ctx context.Context, id gq.JobID, change gq.JobEdit) (gq.SubmitResult, error) {
	out, err := r.API.Edit(carrying(ctx), id, change)
	return r.result(ctx, out, err)
}

func (r redacting) Cancel(ctx context.Context, id gq.JobID, reason string) (gq.State, error) {
	s, err := r.API.Cancel(ctx, id, reason)
	return r.state(ctx, s, err)
}

func (r redacting) Reschedule(ctx context.Context, id gq.JobID, at time.Time) (gq.State, error) {
	s, err := r.API.Reschedule(ctx, id, at)
	return r.state(ctx, s, err)
}

func (r redacting) Advance(ctx context.Context, id gq.JobID) (gq.State, error) {
	s, err := r.API.Advance(ctx, id)
	return r.state(ctx, s, err)
}

func (r redacting) Signal(ctx context.Context, id gq.WorkflowID, name string, value any) (gq.State, error) {
	s, err := r.API.Signal(ctx, id, name, value)
	return r.state(ctx, s, err)
}
