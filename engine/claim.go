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

// MaxWait is the largest ClaimRequest.Wait.
const MaxWait = time.Hour

// Claim returns up to N claimable jobs, each under a lease, with their payloads and
// checkpoints. If there are none, it waits up to Wait for the first one and then returns no
// jobs.
//
// If the context ends while it waits, Claim returns no jobs and no error. A claim in flight at
// that moment releases its jobs without using up an attempt.
//
// Errors: [gq.ErrInvalid] with every fault, and those of the store.
func (e *Engine) Claim(ctx context.Context, r gq.ClaimRequest) ([]gq.Job, error) {
	c, err := claimOf(r)
	if err != nil {
		return nil, fmt.Errorf("claim for worker %.80q: %w", r.Worker, err)
	}
	began := time.Now()
	defer e.workers.asks(&c, r.Wait > 0, throughStream(ctx))()
	jobs, err := e.claim(ctx, c, r.Wait, began)
	if err != nil {
		return nil, fmt.Errorf("claim for worker %.80q: %w", r.Worker, err)
	}
	if len(jobs) > 0 {
		e.addInputs(ctx, jobs)
		e.addOutcomes(ctx, jobs)
		e.clock.observe(jobs[0].State.Lease.HeartbeatAt)
		e.workers.got(c.Worker, jobs, throughStream(ctx))
	}
	return jobs, nil
}

func (e *Engine) claim(ctx context.Context, c store.Claim, wait time.Duration, began time.Time) ([]gq.Job, error) {
	if wait == 0 {
		return e.tryClaim(ctx, c)
	}
	tried := e.claims.newsSoFar()
	if !e.claims.knownEmpty(&c) {
		jobs, err := e.tryClaim(ctx, c)
		if ctx.Err() != nil {
			e.giveBack(jobs) // they came when the caller had left
			return nil, nil  //nolint:nilerr // the end of a wait is no error
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
		tried = newsCounts{} // its jobs came too late and were released
	}
}

// claimOf turns a request into a claim and reports all faults.
func claimOf(r gq.ClaimRequest) (store.Claim, error) {
	c := store.Claim{
		Filter: store.Filter{Queues: r.Queues, Types: r.Types, Offers: r.Offers, MaxCost: r.MaxCost},
		N:      r.N, Worker: r.Worker, Hold: r.Hold, TTL: r.TTL, DefaultTTL: r.DefaultTTL, Parts: gq.WithPayload | gq.WithCheckpoint,
	}
	if len(c.Queues) == 0 {
		c.Queues = []string{gq.DefaultQueue}
	}
	plain := c
	plain.Queues = nil // checked below, as they may be patterns
	faults := slices.DeleteFunc(errs.FaultsOf(store.CheckClaim(plain)), func(f gq.Fault) bool { return f.Field == "queues" })
	for i, q := range c.Queues {
		faults = append(faults, errs.FaultsOf(machine.CheckQueuePattern(fmt.Sprintf("queues[%d]", i), q))...)
	}
	faults = append(faults, errs.FaultsOf(machine.CheckPatterns(c.Queues))...)
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

// tryClaim claims once. The call to the store does not end with the context, because its jobs
// would be lost until their leases expire. If the caller has left by then, the jobs are
// released.
func (e *Engine) tryClaim(ctx context.Context, c store.Claim) ([]gq.Job, error) {
	if ctx.Done() == nil {
		s := e.claimOnce(ctx, c)
		return e.usable(s), s.err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	w := &waiter{claim: c, got: make(chan claimResult, 1)}
	go func() {
		s := e.claimOnce(context.WithoutCancel(ctx), c)
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

func (e *Engine) claimOnce(ctx context.Context, c store.Claim) claimResult {
	asked := time.Now()
	claimed, err := e.claimAll(ctx, []store.Claim{c})
	if err != nil {
		return claimResult{err: err}
	}
	e.throttled(&c, &claimed[0])
	e.claims.retryAt(claimed[0].RetryAt)
	return claimResult{claimed[0].Jobs, asked, claimed[0].Err}
}

// usable returns the jobs of an answer that a worker can still use. It releases jobs whose
// lease is mostly over.
func (e *Engine) usable(s claimResult) []gq.Job {
	var late []gq.Job
	jobs := slices.DeleteFunc(s.jobs, func(j gq.Job) bool {
		l := j.State.Lease
		// Both estimates are upper bounds: the store granted the lease after it was
		// called, and its answers arrive late.
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

// throttled counts claims that the rates of keys held back, and records for Explain when the rate limit of a queue allows the next claim.
func (e *Engine) throttled(c *store.Claim, got *store.Claimed) {
	if got.KeyRate {
		e.counters.keyRate.Add(1)
	}
	if !got.RetryAt.IsZero() && len(c.Queues) == 1 {
		e.rates.Store(c.Queues[0], got.RetryAt)
	}
}

// giveBack releases jobs whose claimer has left.
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
		e.log.Warn("could not release jobs of an abandoned claim; their leases will expire", "jobs", len(jobs), "error", err)
	}
}
