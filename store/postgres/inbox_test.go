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
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/postgres"
)

func openSQL(t *testing.T, driver, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// asWritten takes the jobs of submissions as they are.
func asWritten(_ context.Context, s *store.Submission) (store.Group, error) {
	if s.Request != nil {
		return store.Group{}, gq.ErrInvalid.Errorf("no JSON here")
	}
	return store.Group{Jobs: s.Jobs}, nil
}

// write writes submissions to the inbox, one for each job, and ends the transaction.
func write(t testing.TB, s *postgres.Store, db *sql.DB, commit bool, specs ...gq.Spec) {
	t.Helper()
	tx, err := db.BeginTx(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback() //nolint:errcheck // it has no effect after the commit
	groups := make([]store.Group, len(specs))
	for i := range specs {
		groups[i] = store.Group{Jobs: specs[i : i+1], Mint: true}
	}
	out, err := s.InboxTx(tx).Insert(context.Background(), groups)
	if err != nil {
		t.Fatal(err)
	}
	for i := range out {
		if out[i].Err != nil || out[i].Jobs[0].State.ID != specs[i].ID {
			t.Fatalf("submission %d: %+v", i, out[i])
		}
	}
	if commit {
		err = tx.Commit()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func takeIn(t testing.TB, s *postgres.Store, limit int, ids ...gq.JobID) store.TakenIn {
	t.Helper()
	taken, err := s.TakeIn(context.Background(), ids, limit, asWritten)
	if err != nil {
		t.Fatal(err)
	}
	return taken
}

func jobCount(t testing.TB, s store.Store) (n int64) {
	t.Helper()
	counts, err := s.Counts(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range counts {
		n += c.Live()
	}
	return n
}

func manySpecs(queue string, n int) []gq.Spec {
	specs := make([]gq.Spec, n)
	for i := range specs {
		specs[i] = newSpec(queue)
		specs[i].Payload = gq.Payload{Data: fmt.Append(nil, i), ContentType: gq.JSON}
	}
	return specs
}

// TestInboxTakesIn: submissions of a *sql.Tx become jobs with the ids that were told, in the
// order in which they were written, if and only if the transaction commits.
func TestInboxTakesIn(t *testing.T) {
	for _, driver := range []string{"pgx", "postgres"} {
		for _, schema := range []string{"", awkward} {
			t.Run(driver+" "+schema, func(t *testing.T) {
				url := pgtest.Database(t)
				s := open(t, inSchema(url, schema), store.Config{})
				defer s.Close()
				db := openSQL(t, driver, url)
				specs := manySpecs("q", 1500) // more than one statement has
				specs[7].Payload = gq.Payload{Data: []byte{0, 1, 0xff, '\\', '\''}, ContentType: gq.OctetStream}
				write(t, s, db, true, specs...)
				write(t, s, db, false, newSpec("rolled-back"))
				if n := jobCount(t, s); n != 0 {
					t.Fatalf("there are %d jobs before they are taken in", n)
				}
				for got := 0; got < len(specs); {
					taken := takeIn(t, s, 400)
					if taken.Refused > 0 || taken.Taken == 0 {
						t.Fatalf("%+v after %d", taken, got)
					}
					got += taken.Taken
				}
				if taken := takeIn(t, s, 400); taken != (store.TakenIn{}) {
					t.Errorf("from an empty inbox: %+v", taken)
				}
				page, err := s.List(t.Context(), gq.Query{OldestFirst: true, Limit: 1000})
				if err != nil {
					t.Fatal(err)
				}
				for i, j := range page.Jobs {
					if j.State.ID != specs[i].ID || j.Spec.Queue != "q" {
						t.Fatalf("job %d is %s in %s, want %s", i, j.State.ID, j.Spec.Queue, specs[i].ID)
					}
				}
				found, err := s.Get(t.Context(), []store.Ref{{Job: specs[7].ID}}, gq.WithPayload)
				if err != nil || found[0].Err != nil || string(found[0].Spec.Payload.Data) != string(specs[7].Payload.Data) {
					t.Errorf("the payload: %+v, %v", found, err)
				}
			})
		}
	}
}

// TestInboxGraph: a graph is one submission; its jobs are inserted together.
func TestInboxGraph(t *testing.T) {
	url := pgtest.Database(t)
	s := open(t, url, store.Config{})
	defer s.Close()
	tx, err := openSQL(t, "pgx", url).BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	parent := newSpec("q")
	child := newSpec("q", gq.Dependency{Kind: gq.DependencyAfter, Job: parent.ID})
	if _, err := s.InboxTx(tx).Insert(t.Context(), []store.Group{{Jobs: []gq.Spec{child, parent}, Mint: true}}); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if taken := takeIn(t, s, 10, parent.ID); taken.Taken != 1 || taken.Refused != 0 {
		t.Fatalf("%+v", taken)
	}
	found, err := s.Get(t.Context(), []store.Ref{{Job: child.ID}, {Job: parent.ID}}, 0)
	if err != nil || found[0].Err != nil || found[1].Err != nil || found[0].State.Status != gq.StatusPending {
		t.Errorf("%+v, %v", found, err)
	}
}

// TestInboxCountsEveryRound: a submission whose documents another one of the call makes is taken in after it, and
// counts like the others.
func TestInboxCountsEveryRound(t *testing.T) {
	url := pgtest.Database(t)
	s := open(t, url, store.Config{})
	defer s.Close()
	writeWithDoc(t, s, openSQL(t, "pgx", url), newSpec("q"), newSpec("q"))
	write(t, s, openSQL(t, "pgx", url), true, newSpec("q"))
	repeated := 0
	taken, err := s.TakeIn(t.Context(), nil, 10, func(_ context.Context, sub *store.Submission) (store.Group, error) {
		if sub.Exists {
			repeated++
			return store.Group{}, nil
		}
		return store.Group{Jobs: sub.Jobs}, nil
	})
	if err != nil || taken.Taken != 3 || taken.Refused != 0 || repeated != 1 {
		t.Errorf("%+v and %d repeated, want 3 taken in and 1 repeated, %v", taken, repeated, err)
	}
	if n := jobCount(t, s); n != 2 {
		t.Errorf("%d jobs, want 2", n)
	}
}

// writeWithDoc writes submissions to the inbox that all make the same document.
func writeWithDoc(t *testing.T, s *postgres.Store, db *sql.DB, specs ...gq.Spec) {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback() //nolint:errcheck // it has no effect after the commit
	for _, spec := range specs {
		_, err := s.InboxTx(tx).Change(t.Context(), store.Change{Insert: []gq.Spec{spec}, Docs: []store.Doc{{Kind: "k", Name: "a", Data: []byte("1")}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

// TestInboxRefusedMakesNoDocument: the document of a submission that is refused does not exist for those after it.
func TestInboxRefusedMakesNoDocument(t *testing.T) {
	url := pgtest.Database(t)
	s := open(t, url, store.Config{})
	defer s.Close()
	orphan := newSpec("q", gq.Dependency{Kind: gq.DependencyAfter, Job: newSpec("q").ID})
	writeWithDoc(t, s, openSQL(t, "pgx", url), orphan, newSpec("q"))
	taken, err := s.TakeIn(t.Context(), nil, 10, func(_ context.Context, sub *store.Submission) (store.Group, error) {
		if sub.Exists {
			return store.Group{}, errors.New("no document exists")
		}
		return store.Group{Jobs: sub.Jobs}, nil
	})
	if err != nil || taken.Taken != 2 || taken.Refused != 1 {
		t.Errorf("%+v, want 2 taken in of which 1 is refused, %v", taken, err)
	}
	if n := jobCount(t, s); n != 1 {
		t.Errorf("%d jobs, want 1", n)
	}
	if _, err := s.Doc(t.Context(), "k", "a"); err != nil {
		t.Errorf("the document of the job: %v", err)
	}
}

// TestInboxNodesShare: nodes that take in at the same time share the submissions, and each
// becomes one job.
func TestInboxNodesShare(t *testing.T) {
	const nodes, n = 4, 2000
	url := pgtest.Database(t)
	var stores [nodes]*postgres.Store
	for i := range stores {
		stores[i] = open(t, url, store.Config{})
		defer stores[i].Close()
	}
	specs := manySpecs("q", n)
	write(t, stores[0], openSQL(t, "pgx", url), true, specs...)
	var all sync.WaitGroup
	var taken [nodes]int
	for i, s := range stores {
		all.Go(func() {
			for {
				some := takeIn(t, s, 50)
				taken[i] += some.Taken
				if jobCount(t, s) == n {
					return
				}
			}
		})
	}
	all.Wait()
	sum, busy := 0, 0
	for _, k := range taken {
		sum += k
		busy += min(k, 1)
	}
	if sum != n || busy < 2 {
		t.Errorf("the nodes took in %v, want %d in sum and not by one alone", taken, n)
	}
	refs := make([]store.Ref, n)
	for i := range specs {
		refs[i].Job = specs[i].ID
	}
	found, err := stores[0].Get(t.Context(), refs, 0)
	if err != nil || slices.ContainsFunc(found, func(f store.Found) bool { return f.Err != nil }) {
		t.Errorf("not all jobs are there: %v", err)
	}
}

// TestInboxCrash: connections are killed again and again while submissions are taken in. Each
// still becomes exactly one job.
func TestInboxCrash(t *testing.T) {
	const n = 600
	url := pgtest.Database(t)
	s := open(t, url, store.Config{})
	defer s.Close()
	write(t, s, openSQL(t, "pgx", url), true, manySpecs("q", n)...)
	killer := connect(t, url)
	killed := make(map[string]bool) // by payload: once in each batch
	read := func(ctx context.Context, sub *store.Submission) (store.Group, error) {
		if payload := string(sub.Jobs[0].Payload.Data); strings.HasSuffix(payload, "25") && !killed[payload] { // while the transaction has the rows locked
			killed[payload] = true
			var n int
			err := killer.QueryRow(ctx, `
				SELECT count(*) FROM (
					SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
					WHERE datname = current_database() AND pid <> pg_backend_pid() AND state = 'idle in transaction'
				) AS k`).Scan(&n)
			if err != nil || n == 0 {
				t.Errorf("killed %d connections: %v", n, err)
			}
		}
		return asWritten(ctx, sub)
	}
	deadline := time.Now().Add(time.Minute)
	for jobCount(t, s) < n && time.Now().Before(deadline) {
		_, err := s.TakeIn(t.Context(), nil, 50, read)
		if err != nil && !errors.Is(err, gq.ErrUnavailable) {
			t.Fatal(err)
		}
	}
	if got := jobCount(t, s); got != n || len(killed) < 6 {
		t.Errorf("%d jobs after %d kills, want %d", got, len(killed), n)
	}
	var left int
	if err := killer.QueryRow(t.Context(), "SELECT count(*) FROM gq.inbox").Scan(&left); err != nil || left != 0 {
		t.Errorf("%d submissions are left, %v", left, err)
	}
}

// TestInboxRefuses: what the rules refuse is kept with the reason, does not keep others out,
// and can be retried or discarded.
func TestInboxRefuses(t *testing.T) {
	url := pgtest.Database(t)
	s := open(t, url, store.Config{})
	defer s.Close()
	full := gq.Queue{Name: "full", Policy: gq.PresetJobModel.Policy(), MaxDepth: 1}
	if err := s.PutQueue(t.Context(), full); err != nil {
		t.Fatal(err)
	}
	keyed := func(fingerprint uint64) gq.Spec {
		spec := newSpec("q")
		spec.Key = gq.IdempotencyKey{Scope: "s", Name: "k", Fingerprint: fingerprint}
		return spec
	}
	first, same, other := keyed(7), keyed(7), keyed(8)
	orphan := newSpec("q", gq.Dependency{Kind: gq.DependencyAfter, Job: newSpec("q").ID})
	one, two := newSpec("full"), newSpec("full")
	twice := newSpec("q")
	write(t, s, openSQL(t, "pgx", url), true, one, first, two, same, orphan, other, twice, twice, newSpec("q"))
	taken := takeIn(t, s, 100)
	if taken.Taken != 9 || taken.Refused != 4 {
		t.Fatalf("%+v, want 9 of which 4 are refused", taken)
	}
	if n := jobCount(t, s); n != 4 {
		t.Errorf("%d jobs, want 4", n)
	}
	inbox, err := s.Refused(t.Context(), 0, 3)
	if err != nil || inbox.Refused != 4 || inbox.Waiting != 0 || len(inbox.Submissions) != 3 || inbox.Next == "" {
		t.Fatalf("%+v, %v", inbox, err)
	}
	after, err := store.ParseCursor(inbox.Next)
	if err != nil {
		t.Fatal(err)
	}
	rest, err := s.Refused(t.Context(), after, 3)
	if err != nil || len(rest.Submissions) != 1 || rest.Next != "" {
		t.Fatalf("%+v, %v", rest, err)
	}
	var got []string
	for _, r := range slices.Concat(inbox.Submissions, rest.Submissions) {
		got = append(got, r.Job.String()+" "+r.Queue)
		if r.Problem == "" || r.Type != one.Type || r.Jobs != 1 || r.WrittenAt.After(r.RefusedAt) {
			t.Errorf("%+v", r)
		}
	}
	want := []string{two.ID.String() + " full", orphan.ID.String() + " q", other.ID.String() + " q", twice.ID.String() + " q"}
	if !slices.Equal(got, want) {
		t.Errorf("refused are\n%q, want\n%q", got, want)
	}

	where, err := s.Whereabouts(t.Context(), two.ID)
	if err != nil || !strings.Contains(where.Problem, "depth") {
		t.Errorf("of the one in the full queue: %+v, %v", where, err)
	}
	if where, err := s.Whereabouts(t.Context(), same.ID); err != nil || where.Job != first.ID {
		t.Errorf("of the one with the key of %s: %+v, %v", first.ID, where, err)
	}
	if _, err := s.Whereabouts(t.Context(), newSpec("q").ID); !errors.Is(err, gq.ErrNotFound) {
		t.Errorf("of one that does not exist: %v", err)
	}

	full.MaxDepth = 2
	if err := s.PutQueue(t.Context(), full); err != nil {
		t.Fatal(err)
	}
	if n, err := s.RetryRefused(t.Context(), gq.RefusedSelection{Jobs: []gq.JobID{two.ID}}); err != nil || n != 1 {
		t.Fatalf("retried %d, %v", n, err)
	}
	if taken := takeIn(t, s, 100); taken.Taken != 1 || taken.Refused != 0 {
		t.Errorf("%+v after the queue has room", taken)
	}
	if n, err := s.DiscardRefused(t.Context(), gq.RefusedSelection{All: true}); err != nil || n != 3 {
		t.Errorf("discarded %d, %v, want 3", n, err)
	}
	if inbox, err := s.Refused(t.Context(), 0, 10); err != nil || inbox.Refused != 0 || len(inbox.Submissions) != 0 {
		t.Errorf("%+v, %v", inbox, err)
	}
}

// TestInboxUnwritable: a job that the server refuses to write does not keep others out.
func TestInboxUnwritable(t *testing.T) {
	url := pgtest.Database(t)
	s := open(t, url, store.Config{})
	defer s.Close()
	execute(t, url, "ALTER TABLE gq.ready ADD CONSTRAINT never CHECK (queue <> 'never')")
	write(t, s, openSQL(t, "pgx", url), true, newSpec("q"), newSpec("never"), newSpec("q"))
	if taken := takeIn(t, s, 100); taken.Taken != 3 || taken.Refused != 1 {
		t.Errorf("%+v, want 3 of which 1 is refused", taken)
	}
	inbox, err := s.Refused(t.Context(), 0, 10)
	if err != nil || len(inbox.Submissions) != 1 || !strings.Contains(inbox.Submissions[0].Problem, "never") {
		t.Errorf("%+v, %v", inbox, err)
	}
}

// TestInboxNews: a commit notifies every node, and a node that starts later learns of it too.
func TestInboxNews(t *testing.T) {
	url := pgtest.Database(t)
	listen := func() (*postgres.Store, chan struct{}) {
		s := open(t, url, store.Config{})
		t.Cleanup(func() { s.Close() })
		heard := make(chan struct{}, 1000)
		stop := s.Notify(false, func(n store.News) {
			if n.Inbox {
				heard <- struct{}{}
			}
		})
		t.Cleanup(stop)
		return s, heard
	}
	wait := func(heard chan struct{}) {
		t.Helper()
		select {
		case <-heard:
		case <-time.After(30 * time.Second):
			t.Fatal("nothing heard")
		}
	}
	s, first := listen()
	_, second := listen()
	db := openSQL(t, "postgres", url)
	write(t, s, db, true, newSpec("q"))
	wait(first)
	wait(second)
	_, later := listen()
	wait(later)
}

// TestInboxDuplicateExpires: what is known of a duplicate goes with the job that had its key.
func TestInboxDuplicateExpires(t *testing.T) {
	url := pgtest.Database(t)
	s := open(t, url, store.Config{})
	defer s.Close()
	a, b := newSpec("q"), newSpec("q")
	a.Key = gq.IdempotencyKey{Scope: "s", Name: "k", Fingerprint: 7}
	b.Key = a.Key
	write(t, s, openSQL(t, "pgx", url), true, a, b)
	takeIn(t, s, 10)
	if where, err := s.Whereabouts(t.Context(), b.ID); err != nil || where.Job != a.ID {
		t.Fatalf("%+v, %v", where, err)
	}
	claimed, err := s.Claim(t.Context(), []store.Claim{claimFrom("q", 1)})
	if err != nil || len(claimed[0].Jobs) != 1 {
		t.Fatal(err, claimed)
	}
	if out, err := s.Update(t.Context(), []store.Update{completing(claimed[0].Jobs[0])}); err != nil || out[0].Err != nil {
		t.Fatal(err, out)
	}
	if _, err := s.Purge(t.Context(), []gq.JobID{a.ID}); err != nil {
		t.Fatal(err)
	}
	if where, err := s.Whereabouts(t.Context(), b.ID); !errors.Is(err, gq.ErrNotFound) {
		t.Errorf("%+v, %v", where, err)
	}
}

// TestInboxTransactionsOnlySubmit: an update would have to be decided in the transaction.
func TestInboxTransactionsOnlySubmit(t *testing.T) {
	url := pgtest.Database(t)
	s := open(t, url, store.Config{})
	defer s.Close()
	tx, err := openSQL(t, "pgx", url).BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback() //nolint:errcheck // nothing was written
	if _, err := s.InboxTx(tx).Update(t.Context(), []store.Update{{}}); !errors.Is(err, gq.ErrInvalid) || !strings.Contains(err.Error(), "pgx.Tx") {
		t.Errorf("an update: %v", err)
	}
	out, err := s.InboxTx(tx).Insert(t.Context(), []store.Group{{Jobs: []gq.Spec{{}}}})
	if err != nil || !errors.Is(out[0].Err, gq.ErrInvalid) {
		t.Errorf("an invalid job: %+v, %v", out, err)
	}
}
