package engine

import (
	"context"
	"fmt"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// Tx is the queue inside a transaction of the application, in the database that holds the
// queue. Submissions and settled leases take effect if and only if the transaction commits, and
// workers are notified after the commit.
//
//	tx, err := pool.Begin(ctx)                                  // pgx
//	…                                                           // the application's own statements
//	_, err = queue.In(store.Tx(tx)).Submit(ctx, gq.Spec{…})
//	err = tx.Commit(ctx)
//
// Defaults, checks, idempotency keys and errors are those of [Engine]. A result is valid once
// the transaction has committed. An error of a call, unlike that of one item, leaves the
// transaction unchanged. Calls have no timeout but that of their context, and a context that
// ends can close the transaction's connection.
//
// An open transaction delays its own events, and blocks only callers that need the same
// idempotency key or the same job.
type Tx struct {
	e    *Engine
	into store.Transaction
}

// In returns the queue inside a transaction. postgres.Store.Tx and postgres.Store.SQL convert
// transactions of pgx and database/sql.
func (e *Engine) In(t store.Transaction) *Tx { return &Tx{e, t} }

// Submit is [Engine.Submit].
func (t *Tx) Submit(ctx context.Context, s gq.Spec) (gq.SubmitResult, error) {
	out, err := t.SubmitBatch(ctx, []gq.Spec{s})
	if err != nil {
		return gq.SubmitResult{}, err
	}
	return out[0], out[0].Err
}

// SubmitBatch is [Engine.SubmitBatch].
func (t *Tx) SubmitBatch(ctx context.Context, specs []gq.Spec) ([]gq.SubmitResult, error) {
	out, err := t.e.submitBatch(ctx, t.into, specs)
	if err != nil {
		return nil, fmt.Errorf("submit: %w", err)
	}
	return out, nil
}

// SubmitGraph is [Engine.SubmitGraph].
func (t *Tx) SubmitGraph(ctx context.Context, drafts []gq.GraphJob) ([]gq.SubmitResult, error) {
	out, err := t.e.submitGraph(ctx, t.into, drafts)
	if err != nil {
		return nil, fmt.Errorf("submit graph: %w", err)
	}
	return out, nil
}

// SubmitWorkflow is [Engine.SubmitWorkflow].
func (t *Tx) SubmitWorkflow(ctx context.Context, f *gq.Flow) (gq.WorkflowID, error) {
	id, err := t.e.submitWorkflow(ctx, t.into, f)
	if err != nil {
		return id, fmt.Errorf("submit workflow: %w", err)
	}
	return id, nil
}

// Settle is [Engine.Settle].
func (t *Tx) Settle(ctx context.Context, outcomes []gq.Outcome) ([]gq.LeaseResult, error) {
	return t.e.settleInto(ctx, t.into, outcomes)
}

// Complete is [Engine.Complete]. A handler that completes its job together with its own writes
// returns nil after the commit. Its worker then completes the job again, which changes nothing.
func (t *Tx) Complete(ctx context.Context, lease gq.LeaseRef, result []byte) (gq.State, error) {
	answers, err := t.Settle(ctx, []gq.Outcome{{Lease: lease, Verdict: gq.VerdictComplete, Result: result}})
	if err != nil {
		return gq.State{}, err
	}
	return answers[0].State, answers[0].Err
}
