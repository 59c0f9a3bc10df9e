package postgres

import (
	"context"
	"testing"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// TestNothingInHandIsLost runs transactions that delete a job from its table and end
// without writing it again. However they end, they must not commit, and the job stays
// where it was.
func TestNothingInHandIsLost(t *testing.T) {
	s, err := Open(t.Context(), pgtest.Database(t), store.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	spec := gq.Spec{ID: machine.NewJobID(random()), Type: "t", Queue: "q"}.WithDefaults()
	if out, err := s.Insert(t.Context(), []store.Group{store.One(spec)}); err != nil || out[0].Err != nil {
		t.Fatal(err, out)
	}
	for name, end := range map[string]func(ctx context.Context, tx *txn) error{
		"with a commit":              func(_ context.Context, tx *txn) error { tx.written = true; return nil },
		"with what it relies on":     func(_ context.Context, tx *txn) error { tx.relies = true; return nil },
		"with its last statements":   func(ctx context.Context, tx *txn) error { tx.more.Queue("SELECT"); return tx.finish(ctx) },
		"with nothing but an answer": func(context.Context, *txn) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			err := s.transact(t.Context(), s.begins.write, func(tx *txn) error {
				from, err := tx.Query(t.Context(), "DELETE FROM gq.ready AS s RETURNING "+readyColumns)
				if err != nil {
					return err
				}
				rows, err := tx.take(from)
				if err != nil || len(rows) != 1 {
					t.Fatalf("took %d jobs: %v", len(rows), err)
				}
				return end(t.Context(), tx)
			})
			if err == nil && name != "with nothing but an answer" {
				t.Error("the transaction was committed")
			}
			if found, err := s.Get(t.Context(), []store.Ref{{Job: spec.ID}}, 0); err != nil || found[0].Err != nil || found[0].State.Status != gq.StatusScheduled {
				t.Errorf("the job is %+v, %v", found, err)
			}
		})
	}
}
