package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// MaxWait is the longest a claim may wait.
const MaxWait = time.Hour

// Claim gives up to N claimable jobs to a worker, each under a lease, with their
// payloads and checkpoints. Without any it waits up to Wait for the first one
// and answers with none when that is over.
//
// The end of the context while waiting is no error: the answer is none. A claim
// that was under way then gives its jobs back without fault.
//
// Errors: [gq.ErrInvalid] with every fault, and those of the store.
func (e *Engine) Claim(ctx context.Context, r gq.ClaimRequest) ([]gq.Job, error) {
	c, err := claimOf(r)
	if err != nil {
		return nil, fmt.Errorf("claim for worker %.80q: %w", r.Worker, err)
	}
	began := time.Now()
	defer e.workers.asks(&c, r.Wait > 0)()
	jobs, err := e.claim(ctx, c, r.Wait, began)
	if err != nil {
		return nil, fmt.Errorf("claim for worker %.80q: %w", r.Worker, err)
	}
	if len(jobs) > 0 {
		e.clock.saw(jobs[0].State.Lease.HeartbeatAt)
		e.workers.got(c.Worker, jobs)
	}
	return jobs, nil
}

func (e *Engine) claim(ctx context.Context, c store.Claim, wait time.Duration, began time.Time) ([]gq.Job, error) {
	if wait == 0 {
		return e.try(ctx, c)
	}
	tried := e.claims.until()
	if !e.claims.idle(&c) {
		jobs, err := e.try(ctx, c)
		if ctx.Err() != nil {
			return nil, nil //nolint:nilerr // the end of a wait is no error
		}
		if err != nil || len(jobs) > 0 {
			return jobs, err
		}
	}
	for {
		jobs, err := e.claims.wait(ctx, c, wait-time.Since(began), tried)
		if err != nil || len(jobs) > 0 || ctx.Err() != nil || time.Since(began) >= wait {
			return jobs, err
		}
		tried = 0 // what it got came too late and is there again
	}
}

// claimOf turns a request into a claim and reports everything that is wrong with
// it.
func claimOf(r gq.ClaimRequest) (store.Claim, error) {
	c := store.Claim{
		Filter: store.Filter{Queues: r.Queues, Types: r.Types, Offers: r.Offers, MaxCost: r.MaxCost},
		N:      r.N, Worker: r.Worker, Hold: r.Hold, TTL: r.TTL, Parts: gq.WithPayload | gq.WithCheckpoint,
	}
	if len(c.Queues) == 0 {
		c.Queues = []string{gq.DefaultQueue}
	}
	faults := errs.FaultsOf(store.CheckClaim(c))
	if r.Wait < 0 || r.Wait > MaxWait {
		faults = append(faults, gq.Fault{Field: "wait", Problem: fmt.Sprintf("%v is not between 0 and %v", r.Wait, MaxWait)})
	}
	for _, names := range []struct {
		field string
		names []string
	}{{"types", r.Types}, {"offers", r.Offers}} {
		for i, name := range names.names {
			faults = append(faults, errs.FaultsOf(machine.CheckName(fmt.Sprintf("%s[%d]", names.field, i), name))...)
		}
	}
	if len(faults) > 0 {
		return c, &gq.InvalidError{Faults: faults}
	}
	return c, nil
}

// try claims once. The claim itself does not end with the context, since what it
// got would be lost until the lease expires; if the caller has left by then the
// jobs are given back.
func (e *Engine) try(ctx context.Context, c store.Claim) ([]gq.Job, error) {
	if ctx.Done() == nil {
		s := e.one(ctx, c)
		return e.usable(s), s.err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	w := &waiter{claim: c, got: make(chan served, 1)}
	go func() {
		s := e.one(context.WithoutCancel(ctx), c)
		if !e.claims.deliver(w, s) {
			e.giveBack(s.jobs)
		}
	}()
	select {
	case s := <-w.got:
		return e.usable(s), s.err
	case <-ctx.Done():
		e.giveBack(e.claims.abandon(w))
		return nil, context.Cause(ctx)
	}
}

func (e *Engine) one(ctx context.Context, c store.Claim) served {
	asked := time.Now()
	claimed, err := e.store.Claim(ctx, []store.Claim{c})
	if err != nil {
		return served{err: err}
	}
	e.throttled(&c, &claimed[0])
	e.claims.comeBack(claimed[0].RetryAt)
	return served{claimed[0].Jobs, asked, claimed[0].Err}
}

// usable are the jobs of an answer that a worker can still use. If most of a lease is
// gone by the time that it gets to the worker, the job is given back.
func (e *Engine) usable(s served) []gq.Job {
	var late []gq.Job
	jobs := slices.DeleteFunc(s.jobs, func(j gq.Job) bool {
		l := j.State.Lease
		// Both are longer than it was: the store granted it after it was asked, and
		// answers are late.
		age := min(time.Since(s.asked), max(e.clock.now().Sub(l.GrantedAt), 0))
		if store.Usable(l, l.GrantedAt.Add(age)) {
			return false
		}
		late = append(late, j)
		return true
	})
	e.giveBack(late)
	return jobs
}

// throttled takes note of when a rate lets the next job of a queue through, so that
// Explain can tell.
func (e *Engine) throttled(c *store.Claim, got *store.Claimed) {
	if !got.RetryAt.IsZero() && len(c.Queues) == 1 {
		e.rates.Store(c.Queues[0], got.RetryAt)
	}
}

// giveBack returns jobs that nobody is there to run.
func (e *Engine) giveBack(jobs []gq.Job) {
	if len(jobs) == 0 {
		return
	}
	updates := make([]store.Update, len(jobs))
	for i := range jobs {
		updates[i] = store.GiveBack(&jobs[i].State, "claim abandoned")
	}
	ctx, cancel := context.WithTimeout(context.Background(), e.options.Timeout)
	defer cancel()
	if _, err := e.store.Update(ctx, updates); err != nil {
		e.log.Warn("give back jobs of a claim whose caller has left; their leases will expire", "jobs", len(jobs), "error", err)
	}
}
