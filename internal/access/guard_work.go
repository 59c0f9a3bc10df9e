package access

import (
	"context"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
)

// Claim needs work on every queue that it names. A wait needs a place among the waiting calls and
// ends when the token becomes invalid.
func (g *Guard) Claim(ctx context.Context, r gq.ClaimRequest) ([]gq.Job, error) {
	c, err := g.enter(ctx, Work)
	if err != nil {
		return nil, err
	}
	if len(r.Queues) == 0 {
		err = c.on(Work, gq.DefaultQueue)
	}
	for i := 0; err == nil && i < len(r.Queues); i++ {
		err = c.on(Work, r.Queues[i])
	}
	if err != nil {
		return nil, err
	}
	waits := ctx
	if r.Wait > 0 {
		free, err := g.waiting.Take(ctx)
		if err != nil {
			return nil, err
		}
		defer free()
		var cancel context.CancelFunc
		waits, cancel = c.while(ctx)
		defer cancel()
	}
	jobs, err := g.engine.Claim(waits, r)
	if r.Wait > 0 {
		if invalid := c.Valid(ctx); invalid != nil {
			g.giveBack(ctx, jobs)
			return nil, invalid
		}
	}
	return jobs, err
}

// giveBackWithin is the time limit for giving jobs back.
const giveBackWithin = 10 * time.Second

// giveBack releases jobs claimed for a caller whose token was revoked or expired while it
// waited.
func (g *Guard) giveBack(ctx context.Context, jobs []gq.Job) {
	if len(jobs) == 0 {
		return
	}
	outcomes := make([]gq.Outcome, len(jobs))
	for i := range jobs {
		outcomes[i] = gq.Outcome{Lease: jobs[i].State.Lease.Ref(), Verdict: gq.VerdictRelease, Reason: "the worker's token is no longer valid"}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackWithin)
	defer cancel()
	_, _ = g.engine.Settle(ctx, outcomes) // on failure their leases expire
}

// Heartbeat needs work on the queue of each leased job, and submit on the queues of the
// child jobs it submits.
func (g *Guard) Heartbeat(ctx context.Context, beats []gq.Heartbeat) ([]gq.LeaseResult, error) {
	c, err := g.enter(ctx, Work)
	if err != nil {
		return nil, err
	}
	judged, err := c.children(ctx, len(beats), func(i int) []gq.Spec { return beats[i].Spawn })
	if err != nil {
		return nil, err
	}
	return batch(judged, beats, refusedAnswer, func(allowed []gq.Heartbeat) ([]gq.LeaseResult, error) {
		return c.concealed(ctx)(g.engine.Heartbeat(c.asking(ctx, Work), allowed))
	})
}

// Settle needs work on the queue of each leased job, and submit on the queues of the
// child jobs it submits.
func (g *Guard) Settle(ctx context.Context, outcomes []gq.Outcome) ([]gq.LeaseResult, error) {
	c, err := g.enter(ctx, Work)
	if err != nil {
		return nil, err
	}
	judged, err := c.children(ctx, len(outcomes), func(i int) []gq.Spec { return outcomes[i].Spawn })
	if err != nil {
		return nil, err
	}
	return batch(judged, outcomes, refusedAnswer, func(allowed []gq.Outcome) ([]gq.LeaseResult, error) {
		return c.concealed(ctx)(g.engine.Settle(c.asking(ctx, Work), allowed))
	})
}

// concealed applies conceal to the children in results.
func (c *caller) concealed(ctx context.Context) func([]gq.LeaseResult, error) ([]gq.LeaseResult, error) {
	return func(answers []gq.LeaseResult, err error) ([]gq.LeaseResult, error) {
		for i := 0; err == nil && i < len(answers); i++ {
			if len(answers[i].Spawned) > 0 {
				answers[i].Spawned, err = c.conceal(ctx, answers[i].Spawned)
			}
		}
		return answers, err
	}
}

func refusedAnswer(err error) gq.LeaseResult { return gq.LeaseResult{Err: err} }

// children checks the jobs that holders of leases submit.
func (c *caller) children(ctx context.Context, n int, of func(int) []gq.Spec) ([]error, error) {
	out := make([]error, n)
	for i := range out {
		if len(of(i)) == 0 {
			continue
		}
		judged, err := c.specs(ctx, of(i))
		if err != nil {
			return nil, err
		}
		out[i] = firstOf(judged)
	}
	return out, nil
}

// Connected needs work on the queues that the worker claims from, as far as they are known. The
// claims of the stream are checked by themselves.
func (g *Guard) Connected(ctx context.Context, worker, version string) (through context.Context, end func(broke bool), err error) {
	c, err := g.enter(ctx, Work)
	if err != nil {
		return nil, nil, err
	}
	return g.engine.Connected(c.askingForWorker(ctx), worker, version)
}

// askingForWorker makes the engine check that the caller may speak for a worker.
func (c *caller) askingForWorker(ctx context.Context) context.Context {
	if c.MayEverywhere(Work) {
		return ctx
	}
	return engine.WithAuthorize(ctx, func(queue string) error {
		if c.May(Work, queue) {
			return nil
		}
		return c.missing(Work, " on the queues of this worker")
	})
}

// WorkerStopped needs work on the queues that the worker claims from, and on those of the jobs it
// holds.
func (g *Guard) WorkerStopped(ctx context.Context, worker string) error {
	c, err := g.enter(ctx, Work)
	if err != nil {
		return err
	}
	return g.engine.WorkerStopped(c.askingForWorker(ctx), worker)
}

// Workers lists the workers of queues that the caller may read, and shows only those
// queues. Leases may belong to other queues, and need read on all.
func (g *Guard) Workers(ctx context.Context) ([]gq.LiveWorker, error) {
	c, err := g.enter(ctx, Read)
	if err != nil {
		return nil, err
	}
	workers, err := g.engine.Workers(ctx)
	if err != nil || c.MayEverywhere(Read) {
		return workers, err
	}
	seen := make([]gq.LiveWorker, 0, len(workers))
	for _, w := range workers {
		w.Queues = slices.DeleteFunc(w.Queues, func(q string) bool { return !c.May(Read, q) })
		if len(w.Queues) > 0 {
			w.Leases = nil
			seen = append(seen, w)
		}
	}
	return seen, nil
}
