package engine

import (
	"context"
	"fmt"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// Tx is the queue within a transaction of the application's own, in the database
// that the queue lives in. Jobs that are submitted exist if and only if the
// transaction commits, jobs that are settled are settled if and only if it does,
// and workers hear of both when it has.
//
//	tx, err := pool.Begin(ctx)                                  // pgx
//	…                                                           // the application's own statements
//	_, err = queue.In(store.Tx(tx)).Submit(ctx, gq.Spec{…})
//	err = tx.Commit(ctx)
//
// Defaults, checks, idempotency keys and errors are those of [Engine]. An answer
// holds once the transaction has committed; an error, as opposed to that of one
// item of a batch, leaves the transaction as it was. How long a call waits is up to
// its context, and a context that ends may take the transaction's connection with
// it.
//
// A transaction that stays open keeps its events back, and whoever needs what it
// has locked: the same idempotency key, the same job. Nobody else notices.
type Tx struct {
	e    *Engine
	into store.Transaction
}

// In is the queue within a transaction. Package postgres makes one of what pgx and
// database/sql call a transaction: postgres.Store.Tx and postgres.Store.SQL.
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

// Settle is [Engine.Settle].
func (t *Tx) Settle(ctx context.Context, outcomes []gq.Outcome) ([]gq.LeaseResult, error) {
	return t.e.settleInto(ctx, t.into, outcomes)
}

// Complete is [Engine.Complete]. A handler that completes its job together with
// its own writes returns nil after the commit: its worker then says the same again,
// which changes nothing.
func (t *Tx) Complete(ctx context.Context, lease gq.LeaseRef, result []byte) (gq.State, error) {
	answers, err := t.Settle(ctx, []gq.Outcome{{Lease: lease, Verdict: gq.VerdictComplete, Result: result}})
	if err != nil {
		return gq.State{}, err
	}
	return answers[0].State, answers[0].Err
}
