package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/store/local"
)

// localSlots is the number of concurrent handlers of GopherQueue, embedded and on its
// server.
const localSlots = 1000

// embeddedQueue is GopherQueue inside this process, with its store in a directory.
type embeddedQueue struct{ *node }

func openEmbedded(_ context.Context, t task) (client, error) {
	s, err := local.Open(t.URL, local.Options{})
	if err != nil {
		return nil, err
	}
	e, err := engine.New(s, engine.Options{})
	return embeddedQueue{&node{Engine: e, store: s}}, err
}

func (q embeddedQueue) work(ctx context.Context, handle func(i int)) error {
	return q.node.work(ctx, localSlots, handle)
}

func (q embeddedQueue) left(ctx context.Context) (int, error) {
	counts, err := q.Counts(ctx, gq.DefaultQueue)
	return live(counts), err
}

// live returns the number of unfinished jobs.
func live(counts []gq.Count) (n int) {
	for i := range counts {
		n += int(counts[i].Live())
	}
	return n
}

// batchedQueue is GopherQueue inside this process without package worker: callers claim
// and settle jobs in batches.
type batchedQueue struct{ embeddedQueue }

// Callers of a batchedQueue, and what each claims at a time.
const (
	batchCallers = 8
	batchClaim   = 100
)

func openBatched(ctx context.Context, t task) (client, error) {
	q, err := openEmbedded(ctx, t)
	if err != nil {
		return nil, err
	}
	return batchedQueue{q.(embeddedQueue)}, nil
}

func (q batchedQueue) work(ctx context.Context, handle func(i int)) error {
	ctx, q.cancel = context.WithCancel(ctx)
	q.wg.Go(func() { q.errs[0] = q.Run(ctx) })
	q.wg.Go(func() {
		q.errs[1] = together(batchCallers, func(k int) error { return q.loop(ctx, fmt.Sprint("caller", k), handle) })
	})
	return nil
}

// loop claims, runs and completes jobs until ctx ends.
func (q batchedQueue) loop(ctx context.Context, name string, handle func(i int)) error {
	outcomes := make([]gq.Outcome, batchClaim)
	for {
		jobs, err := q.Claim(ctx, gq.ClaimRequest{Worker: name, N: batchClaim, Wait: time.Minute})
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		for i := range jobs {
			n, err := number(jobs[i].Spec.Payload.Data)
			if err != nil {
				return err
			}
			handle(n)
			outcomes[i] = gq.Outcome{Lease: jobs[i].State.Lease.Ref(), Verdict: gq.VerdictComplete}
		}
		answers, err := q.Settle(ctx, outcomes[:len(jobs)])
		for i := range answers {
			err = errors.Join(err, answers[i].Err)
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
}
