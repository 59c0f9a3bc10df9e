package access

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
)

// Submit needs submit on the queue of the job.
func (g *Guard) Submit(ctx context.Context, s gq.Spec) (gq.SubmitResult, error) {
	c, err := g.submits(ctx, s)
	if err != nil {
		return gq.SubmitResult{}, err
	}
	out, err := g.engine.Submit(c.submitting(ctx), s)
	return c.told(ctx, out, err)
}

// Replay needs submit on the job.
func (g *Guard) Replay(ctx context.Context, id gq.JobID) (gq.SubmitResult, error) {
	c, err := g.enter(ctx, Submit)
	if err != nil {
		return gq.SubmitResult{}, err
	}
	out, err := g.engine.Replay(called(c.asking(ctx, Submit)), id)
	return c.told(ctx, out, err)
}

// told is what a caller may know of the answer to a submission.
func (c *caller) told(ctx context.Context, out gq.SubmitResult, err error) (gq.SubmitResult, error) {
	if c.MayEverywhere(Submit | Read) {
		return out, err
	}
	if err != nil {
		err = c.concealHolder(ctx, err)
		return gq.SubmitResult{Err: err}, err
	}
	seen, err := c.conceal(ctx, []gq.SubmitResult{out})
	if err != nil {
		return gq.SubmitResult{}, err
	}
	return seen[0], seen[0].Err
}

// submitting returns a context in which a unique job replaces or postpones only jobs of queues
// that the caller may submit to.
func (c *caller) submitting(ctx context.Context) context.Context {
	if c.MayEverywhere(Submit) {
		return ctx
	}
	return engine.WithAuthorize(ctx, func(queue string) error {
		if c.May(Submit, queue) {
			return nil
		}
		return errForeignKey
	})
}

// errForeignKey says as little as possible about a job of a foreign queue.
const errForeignKey takenError = "a job of another queue has the key"

// concealHolder removes the holder of a key from an error if it is a job of a foreign queue.
func (c *caller) concealHolder(ctx context.Context, err error) error {
	u, ok := errors.AsType[*gq.UniqueError](err)
	if !ok {
		return err
	}
	foreign, failed := c.foreign(ctx, Submit|Read, []gq.JobID{u.Job})
	if failed != nil {
		return failed
	}
	if foreign[u.Job] {
		return errForeignKey
	}
	return err
}

func (g *Guard) submits(ctx context.Context, specs ...gq.Spec) (*caller, error) {
	c, err := g.enter(ctx, Submit)
	if err != nil || c.MayEverywhere(Submit) {
		return c, err
	}
	judged, err := c.specs(ctx, specs)
	if err != nil {
		return nil, err
	}
	return c, firstOf(judged)
}

// conceal removes jobs of foreign queues from results: one may hold the idempotency key
// of a submission.
func (c *caller) conceal(ctx context.Context, answers []gq.SubmitResult) ([]gq.SubmitResult, error) {
	if c.MayEverywhere(Submit | Read) {
		return answers, nil
	}
	for i := range answers {
		if answers[i].Err != nil {
			answers[i].Err = c.concealHolder(ctx, answers[i].Err)
		}
		if !answers[i].Existing {
			continue
		}
		foreign, err := c.foreign(ctx, Submit|Read, []gq.JobID{answers[i].ID()})
		if err != nil {
			return nil, err
		}
		if foreign[answers[i].ID()] {
			answers[i] = gq.SubmitResult{Err: errForeignKey}
		}
	}
	return answers, nil
}

func firstOf(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// SubmitBatch needs submit on the queue of each job; other jobs are rejected one by one.
func (g *Guard) SubmitBatch(ctx context.Context, specs []gq.Spec) ([]gq.SubmitResult, error) {
	c, err := g.enter(ctx, Submit)
	if err != nil {
		return nil, err
	}
	judged, err := c.specs(ctx, specs)
	if err != nil {
		return nil, err
	}
	return batch(judged, specs, func(err error) gq.SubmitResult { return gq.SubmitResult{Err: err} }, func(allowed []gq.Spec) ([]gq.SubmitResult, error) {
		out, err := g.engine.SubmitBatch(c.submitting(ctx), allowed)
		if err != nil {
			return nil, err
		}
		return c.conceal(ctx, out)
	})
}

// batch runs do for the items that were not rejected and returns all results in the
// original order.
func batch[I, A any](judged []error, items []I, refusal func(error) A, do func([]I) ([]A, error)) ([]A, error) {
	if firstOf(judged) == nil {
		return do(items)
	}
	out := make([]A, len(items))
	var allowed []I
	var at []int
	for i, err := range judged {
		if err != nil {
			out[i] = refusal(err)
			continue
		}
		allowed, at = append(allowed, items[i]), append(at, i)
	}
	if len(allowed) == 0 {
		return out, nil
	}
	answers, err := do(allowed)
	if err != nil {
		return nil, err
	}
	for k, i := range at {
		out[i] = answers[k]
	}
	return out, nil
}

// SubmitGraph needs submit on the queues of all its jobs.
func (g *Guard) SubmitGraph(ctx context.Context, drafts []gq.GraphJob) ([]gq.SubmitResult, error) {
	specs := make([]gq.Spec, len(drafts))
	for i := range drafts {
		specs[i] = drafts[i].Spec
	}
	c, err := g.submits(ctx, specs...)
	if err != nil {
		return nil, err
	}
	out, err := g.engine.SubmitGraph(c.submitting(ctx), drafts)
	if err != nil {
		return nil, c.concealHolder(ctx, err)
	}
	return c.conceal(ctx, out)
}

// Edit needs submit on the job and on the queue that it moves to, and to move it the content of the job.
func (g *Guard) Edit(ctx context.Context, id gq.JobID, change gq.JobEdit) (gq.SubmitResult, error) {
	c, err := g.enter(ctx, Submit)
	if err != nil {
		return gq.SubmitResult{}, err
	}
	if change.Queue != "" && !c.May(Submit, change.Queue) {
		return gq.SubmitResult{}, c.missing(Submit, " on the queue that the job would move to")
	}
	return g.engine.Edit(c.asking(ctx, Submit), id, change)
}

// GetFor is Get for callers with one of the given scopes on the job's queue.
func (g *Guard) GetFor(ctx context.Context, s Scope, id gq.JobID, parts gq.Parts) (gq.Job, error) {
	ctx, err := g.asking(ctx, s)
	if err != nil {
		return gq.Job{}, err
	}
	return g.engine.Get(ctx, id, parts)
}

// Jobs needs read; jobs of other queues are omitted.
func (g *Guard) Jobs(ctx context.Context, ids []gq.JobID, parts gq.Parts) (map[gq.JobID]gq.Job, error) {
	c, err := g.enter(ctx, Read)
	if err != nil {
		return nil, err
	}
	jobs, err := g.engine.Jobs(ctx, ids, parts)
	if err != nil || c.MayEverywhere(Read) {
		return jobs, err
	}
	maps.DeleteFunc(jobs, func(_ gq.JobID, j gq.Job) bool { return !c.May(Read, j.Spec.Queue) })
	return jobs, nil
}

// List needs read on the queue that it names. If it names none, pages omit jobs that the
// caller may not read, and so may be short.
func (g *Guard) List(ctx context.Context, q gq.Query) (gq.Page, error) {
	c, err := g.enter(ctx, Read)
	if err != nil {
		return gq.Page{}, err
	}
	if q.Queue != "" {
		if err := c.on(Read, q.Queue); err != nil {
			return gq.Page{}, err
		}
	}
	page, err := g.engine.List(ctx, q)
	if err != nil || c.MayEverywhere(Read) {
		return page, err
	}
	page.Jobs = slices.DeleteFunc(page.Jobs, func(j gq.Job) bool { return !c.May(Read, j.Spec.Queue) })
	return page, nil
}

// CancelWhere needs submit on the queue that it names, or on all queues.
func (g *Guard) CancelWhere(ctx context.Context, q gq.Query, reason string) (gq.CancelReport, error) {
	if err := g.selects(ctx, Submit, q); err != nil {
		return gq.CancelReport{}, err
	}
	return g.engine.CancelWhere(ctx, q, reason)
}

// ReplayWhere needs submit on the queue that it names, or on all queues.
func (g *Guard) ReplayWhere(ctx context.Context, q gq.Query) (gq.ReplayReport, error) {
	if err := g.selects(ctx, Submit, q); err != nil {
		return gq.ReplayReport{}, err
	}
	return g.engine.ReplayWhere(called(ctx), q)
}

// called returns a context with the name of the caller.
func called(ctx context.Context) context.Context {
	i, err := From(ctx)
	if err != nil || i.Name == "" {
		return ctx
	}
	return engine.WithCaller(ctx, i.Name)
}

// CountWhere needs read on the queue that it names, or on all queues.
func (g *Guard) CountWhere(ctx context.Context, q gq.Query) (gq.CountReport, error) {
	if err := g.selects(ctx, Read, q); err != nil {
		return gq.CountReport{}, err
	}
	return g.engine.CountWhere(ctx, q)
}

// selects rejects callers without a scope on the queue that a query names, or on all queues.
func (g *Guard) selects(ctx context.Context, s Scope, q gq.Query) error {
	c, err := g.enter(ctx, s)
	if err != nil {
		return err
	}
	if q.Queue == "" {
		return c.everywhere(s)
	}
	return c.on(s, q.Queue)
}

// PurgeWhere needs admin on the queue that it names, or on all queues.
func (g *Guard) PurgeWhere(ctx context.Context, q gq.Query) (int, error) {
	if err := g.selects(ctx, Admin, q); err != nil {
		return 0, err
	}
	return g.engine.PurgeWhere(ctx, q)
}

// Wait needs read on the job's queue and a place among the waiting calls, and ends when the token
// becomes invalid.
func (g *Guard) Wait(ctx context.Context, id gq.JobID) (gq.Job, error) {
	ctx, err := g.asking(ctx, Read)
	if err != nil {
		return gq.Job{}, err
	}
	free, err := g.waiting.Take(ctx)
	if err != nil {
		return gq.Job{}, err
	}
	defer free()
	valid, cancel := g.WhileValid(ctx)
	defer cancel()
	job, err := g.engine.Wait(valid, id)
	if invalid := g.StillValid(ctx); invalid != nil {
		return gq.Job{}, invalid
	}
	return job, err
}

// Explain needs read on the job's queue. It replaces related jobs of other queues by
// their number.
func (g *Guard) Explain(ctx context.Context, id gq.JobID) (gq.Explanation, error) {
	c, err := g.enter(ctx, Read)
	if err != nil {
		return gq.Explanation{}, err
	}
	x, err := g.engine.Explain(c.asking(ctx, Read), id)
	if err != nil || c.MayEverywhere(Read) {
		return x, err
	}
	if err := c.hide(ctx, &x.Reason); err != nil {
		return gq.Explanation{}, err
	}
	for i := range x.Also {
		if err := c.hide(ctx, &x.Also[i]); err != nil {
			return gq.Explanation{}, err
		}
	}
	return x, nil
}

// hide removes jobs of foreign queues from a reason.
func (c *caller) hide(ctx context.Context, r *gq.Reason) error {
	ids := make([]gq.JobID, len(r.Jobs))
	for i, j := range r.Jobs {
		ids[i] = j.Job
	}
	foreign, err := c.foreign(ctx, Read, ids)
	if err != nil {
		return err
	}
	var shown []gq.Related
	for _, j := range r.Jobs {
		if foreign[j.Job] {
			r.More++
			continue
		}
		shown = append(shown, j)
	}
	r.Jobs = shown
	return nil
}

// Follow passes on the events that the caller may read, while its token is valid.
func (g *Guard) Follow(ctx context.Context, after uint64, f func([]gq.Event) error) error {
	c, err := g.enter(ctx, Read)
	if err != nil {
		return err
	}
	valid, cancel := c.while(ctx)
	defer cancel()
	err = g.engine.Follow(valid, after, func(events []gq.Event) error {
		if err := c.Valid(ctx); err != nil {
			return err
		}
		if !c.MayEverywhere(Read) {
			events = slices.DeleteFunc(slices.Clone(events), func(e gq.Event) bool { return !c.May(Read, e.Queue) })
		}
		if len(events) == 0 {
			return nil
		}
		return f(events)
	})
	if err == nil && valid.Err() != nil && ctx.Err() == nil {
		err = c.Valid(ctx)
	}
	return err
}
