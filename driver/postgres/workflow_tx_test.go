package postgres_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	driver "github.com/gopherqueue/gq/driver/postgres"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
)

// TestPgxTxWorkflow: a workflow submitted in a pgx.Tx exists for nobody before the commit, not at
// all after a rollback, and runs after the commit. A pgx.Tx is told at once what is refused, and
// can go on.
func TestPgxTxWorkflow(t *testing.T) {
	pool := newPool(t, pgtest.Database(t))
	c, err := driver.Open(t.Context(), driver.WithPool(pool))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := pool.Exec(t.Context(), "CREATE TABLE orders (customer text PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
	order := func(customer string) (pgx.Tx, gq.WorkflowID) {
		t.Helper()
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), "INSERT INTO orders VALUES ($1)", customer); err != nil {
			t.Fatal(err)
		}
		flow := gq.NewWorkflow("order of " + customer)
		flow.Add("second", sendEmail.With(email{To: customer}), gq.After(flow.Add("first", sendEmail.With(email{To: customer}))))
		id, err := c.In(tx).SubmitWorkflow(t.Context(), flow)
		if err != nil || id.IsZero() {
			t.Fatal(id, err)
		}
		if _, err := c.Workflow(t.Context(), id); !errors.Is(err, gq.ErrNotFound) {
			t.Errorf("before the transaction has ended: %v", err)
		}
		return tx, id
	}
	claim := func() []gq.Job {
		t.Helper()
		jobs, err := c.Claim(t.Context(), gq.ClaimRequest{Worker: "w", Queues: []string{"mail"}, N: 10})
		if err != nil {
			t.Fatal(err)
		}
		return jobs
	}

	tx, gone := order("bob")
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Workflow(t.Context(), gone); !errors.Is(err, gq.ErrNotFound) {
		t.Errorf("after a rollback: %v", err)
	}
	if jobs := claim(); len(jobs) > 0 {
		t.Errorf("after a rollback there are jobs: %+v", jobs)
	}

	tx, id := order("ada")
	if _, err := c.In(tx).SubmitWorkflow(t.Context(), gq.NewWorkflow("empty")); !errors.Is(err, gq.ErrInvalid) {
		t.Errorf("a workflow without jobs: %v", err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	w, err := c.Workflow(t.Context(), id)
	if err != nil || w.Name != "order of ada" || w.Status != gq.WorkflowRunning || len(w.Jobs) != 2 {
		t.Fatalf("after the commit: %+v, %v", w, err)
	}
	for _, job := range w.Jobs {
		jobs, err := c.Claim(t.Context(), gq.ClaimRequest{Worker: "w", Queues: []string{"mail"}, N: 10, Wait: time.Minute})
		if err != nil || len(jobs) != 1 || jobs[0].State.ID != job.ID {
			t.Fatalf("claimed %+v, %v; want %s alone", jobs, err, job.Ref)
		}
		if _, err := c.Settle(t.Context(), []gq.Outcome{{Lease: jobs[0].State.Lease.Ref(), Verdict: gq.VerdictComplete}}); err != nil {
			t.Fatal(err)
		}
	}
	if w, err = c.Workflow(t.Context(), id); err != nil || w.Status != gq.WorkflowSucceeded {
		t.Errorf("after its last job: %+v, %v", w, err)
	}
	page, err := c.Workflows(t.Context(), gq.WorkflowQuery{})
	if err != nil || len(page.Workflows) != 1 {
		t.Errorf("%d workflows, %v; want one", len(page.Workflows), err)
	}
	var orders int
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM orders").Scan(&orders); err != nil || orders != 1 {
		t.Errorf("%d orders, %v; want one", orders, err)
	}
}
