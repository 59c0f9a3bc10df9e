package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "github.com/lib/pq"              // the driver "postgres"

	"github.com/gopherqueue/gq"
	driver "github.com/gopherqueue/gq/driver/postgres"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
	pgstore "github.com/gopherqueue/gq/store/postgres"
)

type email struct{ To string }

var sendEmail = gq.NewKind[email, gq.None]("email.send", gq.InQueue("mail"))

// database opens a client and a connection of the application to one database.
func database(t *testing.T, driverName string, options ...driver.Option) (*gq.Client, *sql.DB) {
	t.Helper()
	url := pgtest.Database(t)
	c, err := driver.Open(t.Context(), append(options, driver.WithPool(newPool(t, url)))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	db, err := sql.Open(driverName, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return c, db
}

func begin(t *testing.T, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback() })
	return tx
}

func execSQL(t *testing.T, db *sql.DB, text string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), text, args...); err != nil {
		t.Fatal(err)
	}
}

// wrapped is a transaction as other packages wrap it.
type wrapped struct{ *sql.Tx }

// TestSQLTx: a job submitted in a *sql.Tx has an id at once, exists for nobody before the commit
// and for everybody after it, and can be claimed, cancelled and waited for.
func TestSQLTx(t *testing.T) {
	for _, name := range []string{"pgx", "postgres"} {
		t.Run(name, func(t *testing.T) {
			c, db := database(t, name, driver.WithSchema("jobs"))
			tx := begin(t, db)
			id, err := sendEmail.Submit(t.Context(), c.In(tx), email{To: "ada"}, gq.WithPriority(gq.PriorityHigh))
			if err != nil || id.IsZero() {
				t.Fatal(id, err)
			}
			if _, err := c.Get(t.Context(), id, 0); !errors.Is(err, gq.ErrNotFound) {
				t.Errorf("before the commit: %v", err)
			}
			cancelled, err := sendEmail.Submit(t.Context(), c.In(&wrapped{tx}), email{To: "bob"})
			if err != nil {
				t.Fatal(err)
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			if s, err := c.Cancel(t.Context(), cancelled, "not needed"); err != nil || s.Status != gq.StatusCancelled {
				t.Errorf("cancelled after the commit: %+v, %v", s, err)
			}
			job, err := c.Get(t.Context(), id, gq.WithPayload)
			if err != nil || string(job.Spec.Payload.Data) != `{"To":"ada"}` || job.Metadata.Priority != gq.PriorityHigh || job.Spec.Queue != "mail" {
				t.Fatalf("after the commit: %+v, %v", job, err)
			}
			jobs, err := c.Claim(t.Context(), gq.ClaimRequest{Worker: "w", Queues: []string{"mail"}, N: 1, Wait: 10 * time.Second})
			if err != nil || len(jobs) != 1 || jobs[0].State.ID != id {
				t.Fatalf("claimed %+v, %v", jobs, err)
			}
			if _, err := c.Settle(t.Context(), []gq.Outcome{{Lease: jobs[0].State.Lease.Ref(), Verdict: gq.VerdictComplete}}); err != nil {
				t.Fatal(err)
			}
			if _, err := sendEmail.Wait(t.Context(), c, id); err != nil {
				t.Error(err)
			}

			tx = begin(t, db)
			gone, err := sendEmail.Submit(t.Context(), c.In(tx), email{})
			if err != nil {
				t.Fatal(err)
			}
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Get(t.Context(), gone, 0); !errors.Is(err, gq.ErrNotFound) {
				t.Errorf("after a rollback: %v", err)
			}
		})
	}
}

// TestSQLTxAtOnce: every call that names a job does so right after the commit, also by the id of a submission
// that turns out to repeat an older one.
func TestSQLTxAtOnce(t *testing.T) {
	c, db := database(t, "postgres")
	ctx := t.Context()
	older, err := sendEmail.Submit(ctx, c, email{To: "ada"}, gq.Key("k"))
	if err != nil {
		t.Fatal(err)
	}
	submit := func(options ...gq.Option) gq.JobID {
		t.Helper()
		tx := begin(t, db)
		id, err := sendEmail.Submit(ctx, c.In(tx), email{To: "ada"}, options...)
		if err := errors.Join(err, tx.Commit()); err != nil {
			t.Fatal(err)
		}
		return id
	}
	at := time.Now().Add(time.Hour).Truncate(time.Second)
	if s, err := c.Reschedule(ctx, submit(), at); err != nil || !s.RunAt.Equal(at) {
		t.Errorf("reschedule: %+v, %v", s, err)
	}
	if j, err := c.UpdateMetadata(ctx, submit(gq.Key("k")), gq.MetadataPatch{Priority: gq.PriorityHigh}); err != nil || j.State.ID != older || j.Metadata.Priority != gq.PriorityHigh {
		t.Errorf("update: %+v, %v", j.State, err)
	}
	var changes sync.WaitGroup
	for i := range 8 {
		for _, id := range []gq.JobID{older, submit(gq.Key("k"))} {
			changes.Go(func() {
				if _, err := c.UpdateMetadata(ctx, id, gq.MetadataPatch{SetTags: map[string]string{fmt.Sprint(i, id): "x"}}); err != nil {
					t.Error(err)
				}
			})
		}
	}
	changes.Wait()
	if j, err := c.Get(ctx, older, 0); err != nil || len(j.Metadata.Tags) != 16 {
		t.Errorf("of 16 tags that were set at the same time, by two ids of a job, it has %d: %v", len(j.Metadata.Tags), err)
	}
	others, stop := context.WithCancel(ctx)
	var waits sync.WaitGroup
	defer waits.Wait()
	defer stop()
	for range 50 { // of many jobs that somebody waits for, an engine reads the events
		id, err := sendEmail.Submit(ctx, c, email{})
		if err != nil {
			t.Fatal(err)
		}
		waits.Go(func() { _, _ = c.Wait(others, id) })
	}
	repeated := submit(gq.Key("k"))
	waited := make(chan error, 1)
	go func() {
		j, err := c.Wait(ctx, repeated)
		if err == nil && (j.State.ID != older || j.State.Status != gq.StatusCancelled) {
			err = errors.New("got job " + j.State.ID.String() + ", " + j.State.Status.String())
		}
		waited <- err
	}()
	time.Sleep(time.Second) // so that all wait
	if _, err := c.Cancel(ctx, repeated, ""); err != nil {
		t.Errorf("cancel: %v", err)
	}
	select {
	case err := <-waited:
		if err != nil {
			t.Errorf("wait: %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("wait does not return")
	}
	if err := c.Purge(ctx, repeated); err != nil {
		t.Errorf("purge: %v", err)
	}
	if _, err := c.Get(ctx, older, 0); !errors.Is(err, gq.ErrNotFound) {
		t.Errorf("purged: %v", err)
	}
}

// TestSQLTxErrors: what can be decided at once is; completing cannot.
func TestSQLTxErrors(t *testing.T) {
	c, db := database(t, "postgres")
	tx := begin(t, db)
	var invalid *gq.InvalidError
	if _, err := c.In(tx).Submit(t.Context(), gq.Spec{Queue: "no queue", Type: "t"}); !errors.As(err, &invalid) || invalid.Faults[0].Field != "queue" {
		t.Errorf("an invalid queue: %v", err)
	}
	if _, err := c.In(tx).Complete(t.Context(), gq.LeaseRef{ID: "x", Version: 1}, nil); !errors.Is(err, gq.ErrInvalid) || !strings.Contains(err.Error(), "pgx.Tx") {
		t.Errorf("completing: %v", err)
	}
	if _, err := c.In(db).Submit(t.Context(), gq.Spec{Type: "t"}); !errors.Is(err, gq.ErrInvalid) || !strings.Contains(err.Error(), "*sql.Tx") {
		t.Errorf("a *sql.DB: %v", err)
	}
	graph, err := c.In(tx).SubmitGraph(t.Context(), []gq.GraphJob{
		{Spec: gq.Spec{Type: "b"}, Ref: "b", Needs: []gq.Dependency{{Kind: gq.DependencyAfter, Ref: "a"}}},
		{Spec: gq.Spec{Type: "a"}, Ref: "a"},
	})
	if err != nil {
		t.Fatalf("the transaction goes on after refused submissions: %v", err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if job, err := c.Get(t.Context(), graph[0].ID(), 0); err != nil || job.State.Status != gq.StatusPending {
		t.Errorf("the job that waits for the other: %+v, %v", job.State, err)
	}
}

// TestSQLTxKeys: a key that another job has leads to that job, or to the refusal that says so.
func TestSQLTxKeys(t *testing.T) {
	c, db := database(t, "pgx")
	submit := func(to string) gq.JobID {
		t.Helper()
		tx := begin(t, db)
		id, err := sendEmail.Submit(t.Context(), c.In(tx), email{To: to}, gq.Key("welcome"))
		if err == nil {
			err = tx.Commit()
		}
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	first := submit("ada")
	if job, err := c.Get(t.Context(), first, 0); err != nil || job.State.ID != first {
		t.Fatal(job.State, err)
	}
	if again := submit("ada"); again != first {
		if job, err := c.Get(t.Context(), again, 0); err != nil || job.State.ID != first {
			t.Errorf("the same submission again is %+v, %v", job.State, err)
		}
		if events, err := c.History(t.Context(), again); err != nil || len(events) == 0 || events[0].Job != first {
			t.Errorf("its history: %+v, %v", events, err)
		}
	}
	if _, err := c.Get(t.Context(), submit("bob"), 0); !errors.Is(err, gq.ErrNotFound) || !strings.Contains(err.Error(), "refused") {
		t.Errorf("another submission with the same key: %v", err)
	}
}

// TestSubmitFromSQL: the function returns the id of the job, with all that a submission can have.
func TestSubmitFromSQL(t *testing.T) {
	for _, schema := range []string{"gq", `jobs-2 "x'$`} {
		t.Run(schema, func(t *testing.T) {
			c, db := database(t, "postgres", driver.WithSchema(schema))
			function := `"` + strings.ReplaceAll(schema, `"`, `""`) + `".submit`
			ask := func(args string) gq.JobID {
				t.Helper()
				var text string
				if err := db.QueryRowContext(t.Context(), "SELECT "+function+"("+args+")").Scan(&text); err != nil {
					t.Fatal(err)
				}
				id, err := gq.ParseJobID(text)
				if err != nil {
					t.Fatal(err)
				}
				return id
			}
			id := ask(`'email.send', '{"to": "ada", "cc": null}'::jsonb, queue => 'mail', delay => '90 minutes', key => 'k1', priority => 'HIGH',
				options => '{"tags": {"a": "b"}, "policy": {"max_attempts": 7}, "queue": "overridden"}'`)
			job, err := c.Get(t.Context(), id, gq.WithPayload)
			if err != nil {
				t.Fatal(err)
			}
			if string(job.Spec.Payload.Data) != `{"cc": null, "to": "ada"}` || job.Spec.Queue != "mail" || job.Spec.Type != "email.send" || job.Spec.Key.Name != "k1" ||
				job.Spec.Delay != 90*time.Minute || job.Metadata.Priority != gq.PriorityHigh || job.Metadata.Tags["a"] != "b" || job.Spec.Policy.MaxAttempts != 7 {
				t.Errorf("%s %+v", job.Spec.Payload.Data, job.Spec)
			}
			if job, err := c.Get(t.Context(), ask(`'plain', priority => '3', run_at => now() + '1 hour'`), gq.WithPayload); err != nil ||
				job.Spec.Queue != gq.DefaultQueue || string(job.Spec.Payload.Data) != "null" || time.Until(job.Spec.RunAt) < 50*time.Minute {
				t.Errorf("%+v, %v", job.Spec, err)
			}
			for args, word := range map[string]string{
				`''`:                                   "type",
				`NULL`:                                 "type",
				`'t', delay => '-1 hour'`:              "delay",
				`'t', options => '{"nonsense": true}'`: "nonsense",
				`'t', priority => 'SOMEWHAT'`:          "priority",
				`'t', options => '[]'`:                 "options",
			} {
				if _, err := c.Get(t.Context(), ask(args), 0); !errors.Is(err, gq.ErrNotFound) || !strings.Contains(err.Error(), word) {
					t.Errorf("submit(%s): %v, want a refusal because of %s", args, err, word)
				}
			}
		})
	}
}

// TestTriggerSubmits: a trigger on a table of the application submits as a role that may do
// nothing else with the queue.
func TestTriggerSubmits(t *testing.T) {
	c, db := database(t, "pgx")
	execSQL(t, db, `
		CREATE ROLE only_submits;
		GRANT USAGE ON SCHEMA gq TO only_submits;
		GRANT EXECUTE ON FUNCTION gq.submit TO only_submits;
		CREATE TABLE public.orders (id text PRIMARY KEY);
		GRANT INSERT ON public.orders TO only_submits;
		CREATE FUNCTION order_placed() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			PERFORM gq.submit('order.mail', jsonb_build_object('order', NEW.id), queue => 'mail');
			RETURN NEW;
		END $$;
		CREATE TRIGGER placed AFTER INSERT ON public.orders FOR EACH ROW EXECUTE FUNCTION order_placed()`)
	t.Cleanup(func() {
		db.ExecContext(context.Background(), "DROP OWNED BY only_submits; DROP ROLE only_submits") //nolint:errcheck // the database goes with it
	})
	tx := begin(t, db)
	for _, text := range []string{"SET LOCAL ROLE only_submits", "INSERT INTO public.orders VALUES ('a-1'), ('a-2')"} {
		if _, err := tx.ExecContext(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	var got []string
	for len(got) < 2 {
		jobs, err := c.Claim(t.Context(), gq.ClaimRequest{Worker: "w", Queues: []string{"mail"}, N: 2, Wait: 20 * time.Second})
		if err != nil || len(jobs) == 0 {
			t.Fatalf("claimed %q, then %v", got, err)
		}
		for _, j := range jobs {
			got = append(got, string(j.Spec.Payload.Data))
		}
	}
	if want := []string{`{"order": "a-1"}`, `{"order": "a-2"}`}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, text := range []string{"SELECT * FROM gq.inbox", "INSERT INTO gq.inbox (ids) VALUES ('{}')", "SELECT * FROM gq.ready", "DELETE FROM gq.refused"} {
		tx := begin(t, db)
		if _, err := tx.ExecContext(t.Context(), "SET LOCAL ROLE only_submits"); err != nil {
			t.Fatal(err)
		}
		if _, err := tx.ExecContext(t.Context(), text); err == nil || !strings.Contains(err.Error(), "permission denied") {
			t.Errorf("%s: %v, want permission denied", text, err)
		}
	}
}

// BenchmarkCommitToClaim measures the time from the commit of a *sql.Tx until a waiting worker
// has the job.
func BenchmarkCommitToClaim(b *testing.B) {
	url := pgtest.Database(b)
	c, err := gq.Open(b.Context(), url)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	db, err := sql.Open("pgx", url)
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	var took []time.Duration
	for b.Loop() {
		claimed := make(chan error, 1)
		go func() {
			jobs, err := c.Claim(b.Context(), gq.ClaimRequest{Worker: "w", Queues: []string{"mail"}, N: 1, Wait: 30 * time.Second})
			if err == nil && len(jobs) != 1 {
				err = errors.New("no job")
			}
			claimed <- err
		}()
		tx, err := db.BeginTx(b.Context(), nil)
		if err == nil {
			_, err = sendEmail.Submit(b.Context(), c.In(tx), email{})
		}
		if err == nil {
			err = tx.Commit()
		}
		committed := time.Now()
		if err == nil {
			err = <-claimed
		}
		if err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(committed))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}

// TestSQLTxWorkflow: a workflow submitted in a *sql.Tx has an id at once, exists for nobody before
// the commit and for everybody after it. The same submission again is the same workflow, and
// another one with its id is refused.
func TestSQLTxWorkflow(t *testing.T) {
	for _, name := range []string{"pgx", "postgres"} {
		t.Run(name, func(t *testing.T) {
			c, db := database(t, name, driver.WithSchema("jobs"))
			submit := func(tx *sql.Tx, id gq.WorkflowID, to string) gq.WorkflowID {
				t.Helper()
				flow := gq.NewWorkflow("welcome " + to)
				flow.ID = id
				first := flow.Add("first", sendEmail.With(email{To: to}))
				flow.Signal("approved", time.Hour, gq.After(first))
				flow.Finally("last", sendEmail.With(email{To: to}))
				id, err := c.In(tx).SubmitWorkflow(t.Context(), flow)
				if err != nil || id.IsZero() {
					t.Fatal(id, err)
				}
				return id
			}
			tx := begin(t, db)
			id := submit(tx, gq.WorkflowID{}, "ada")
			if _, err := c.Workflow(t.Context(), id); !errors.Is(err, gq.ErrNotFound) {
				t.Errorf("before the commit: %v", err)
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			w, err := c.Workflow(t.Context(), id)
			if err != nil || w.Name != "welcome ada" || w.Status != gq.WorkflowRunning || len(w.Jobs) != 3 {
				t.Fatalf("after the commit: %+v, %v", w, err)
			}
			if _, err := c.Signal(t.Context(), id, "approved", "yes"); err != nil {
				t.Error(err)
			}
			if last, err := c.Get(t.Context(), w.Jobs[2].ID, 0); err != nil || last.Spec.Workflow != id || last.State.Status != gq.StatusPending {
				t.Errorf("%+v, %v", last, err)
			}

			// The same id: twice in one transaction that commits, then with other content.
			tx = begin(t, db)
			twice := machine.NewWorkflowID(time.Now(), [16]byte{7})
			submit(tx, twice, "bob")
			submit(tx, twice, "bob")
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			if w, err = c.Workflow(t.Context(), twice); err != nil || w.Name != "welcome bob" {
				t.Errorf("%+v, %v", w, err)
			}
			tx = begin(t, db)
			submit(tx, twice, "eve")
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			waitForInbox(t, c, 1)
			if again, err := c.Workflow(t.Context(), twice); err != nil || again.Name != "welcome bob" {
				t.Errorf("%+v, %v", again, err)
			}
			in, err := c.Inbox(t.Context(), "", 0)
			if err != nil || in.Refused != 1 || in.Submissions[0].Jobs != 3 || !strings.Contains(in.Submissions[0].Problem, gq.ErrKeyReused.Error()) {
				t.Errorf("%+v, %v", in, err)
			}

			// A queue without room refuses the whole workflow, which says so; retried, it is there.
			if _, err := c.PutQueue(t.Context(), gq.Queue{Name: "mail", MaxDepth: 1}); err != nil {
				t.Fatal(err)
			}
			tx = begin(t, db)
			id = submit(tx, gq.WorkflowID{}, "zoe")
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Workflow(t.Context(), id); !errors.Is(err, gq.ErrNotFound) || !strings.Contains(err.Error(), "refused") {
				t.Errorf("a full queue: %v", err)
			}
			if _, err := c.PutQueue(t.Context(), gq.Queue{Name: "mail"}); err != nil {
				t.Fatal(err)
			}
			if n, err := c.RetryRefused(t.Context(), gq.RefusedSelection{Jobs: []gq.JobID{gq.JobID(id)}}); err != nil || n != 1 {
				t.Errorf("retried %d, %v", n, err)
			}
			if w, err := c.Workflow(t.Context(), id); err != nil || w.Name != "welcome zoe" {
				t.Errorf("after the retry: %+v, %v", w, err)
			}

			tx = begin(t, db)
			id = submit(tx, gq.WorkflowID{}, "nobody")
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Workflow(t.Context(), id); !errors.Is(err, gq.ErrNotFound) {
				t.Errorf("after a rollback: %v", err)
			}
			page, err := c.Workflows(t.Context(), gq.WorkflowQuery{})
			if err != nil || len(page.Workflows) != 3 {
				t.Errorf("%d workflows, %v", len(page.Workflows), err)
			}
		})
	}
}

// waitForInbox waits until the inbox is empty and so many submissions were refused.
func waitForInbox(t *testing.T, c *gq.Client, refused int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for tick := time.NewTicker(10 * time.Millisecond); ; {
		in, err := c.Inbox(ctx, "", 0)
		if err != nil {
			t.Fatal(err)
		}
		if in.Waiting == 0 && in.Refused == refused {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("the inbox has %d waiting and %d refused", in.Waiting, in.Refused)
		}
	}
}

// TestTakeInAll: a workflow that was submitted twice does not keep submissions after it waiting.
func TestTakeInAll(t *testing.T) {
	url := pgtest.Database(t)
	c, err := driver.Open(t.Context(), driver.WithPool(newPool(t, url)))
	if err != nil {
		t.Fatal(err)
	}
	flow := gq.NewWorkflow("once")
	flow.ID = machine.NewWorkflowID(time.Now(), [16]byte{7})
	flow.Add("only", sendEmail.With(email{To: "ada"}))
	if _, err := c.SubmitWorkflow(t.Context(), flow); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	tx := begin(t, db)
	if _, err := c.In(tx).SubmitWorkflow(t.Context(), flow); err != nil {
		t.Fatal(err)
	}
	const jobs = 1500 // more than two commits take in
	specs := make([]gq.Spec, jobs)
	for i := range specs {
		specs[i] = gq.Spec{Type: "t"}
	}
	if _, err := c.In(tx).SubmitBatch(t.Context(), specs); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil { // before anybody can take them in
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	s, err := pgstore.Open(t.Context(), url, store.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	taken, err := engine.TakeIn(t.Context(), s, engine.Options{})
	if err != nil || taken.Taken != 1+jobs || taken.Refused != 0 {
		t.Errorf("took in %+v of %d, %v", taken, 1+jobs, err)
	}
}
