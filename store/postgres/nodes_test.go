package postgres_test

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/postgres"
)

func newSpec(queue string, on ...gq.Dependency) gq.Spec {
	var raw [16]byte
	_, _ = rand.Read(raw[:])
	return gq.Spec{ID: machine.NewJobID(raw), Queue: queue, Type: "work", DependsOn: on}.WithDefaults()
}

func claimFrom(queue string, n int) store.Claim {
	return store.Claim{Filter: store.Filter{Queues: []string{queue}}, N: n, Worker: "worker"}
}

func completing(j gq.Job) store.Update {
	return store.Update{
		Ref: store.Ref{Lease: j.State.Lease.ID},
		Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
			return machine.Complete(s, j.State.Lease.Ref(), nil, now)
		},
	}
}

func mustInsert(t testing.TB, s store.Store, specs ...gq.Spec) {
	t.Helper()
	answers, err := s.Insert(t.Context(), []store.Group{{Jobs: specs}})
	if err == nil {
		err = answers[0].Err
	}
	if err != nil {
		t.Error(err)
	}
}

// twoNodes opens two stores on one database. The test fails if a deadlock occurred: even
// one that the server resolves costs a second.
func twoNodes(t *testing.T) []*postgres.Store {
	t.Helper()
	url := pgtest.Database(t)
	nodes := []*postgres.Store{open(t, url, store.Config{}), open(t, url, store.Config{})}
	t.Cleanup(func() {
		for _, s := range nodes {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		ctx := context.WithoutCancel(t.Context())
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close(ctx)
		// A connection reports its statistics when it ends.
		for others := 1; err == nil && others > 0; {
			err = conn.QueryRow(ctx, `
				SELECT count(*)
				FROM pg_stat_activity
				WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()`).Scan(&others)
		}
		var deadlocks int
		if err == nil {
			err = conn.QueryRow(ctx, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").Scan(&deadlocks)
		}
		if err != nil || deadlocks > 0 {
			t.Errorf("%d deadlocks, %v", deadlocks, err)
		}
	})
	return nodes
}

// TestNobodyWaitsInACircle lets many goroutines change and lock the same few jobs, each
// time in another order.
func TestNobodyWaitsInACircle(t *testing.T) {
	nodes := twoNodes(t)
	specs := make([]gq.Spec, 8)
	for i := range specs {
		specs[i] = newSpec("q")
	}
	mustInsert(t, nodes[0], specs...)
	shuffled := func() []gq.Spec {
		mine := slices.Clone(specs)
		mathrand.Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
		return mine
	}
	const rounds = 25
	var everyone sync.WaitGroup
	for _, s := range nodes {
		for range 2 {
			everyone.Go(func() {
				for range rounds {
					var updates []store.Update
					for _, spec := range shuffled() {
						updates = append(updates, store.Update{
							Ref: store.Ref{Job: spec.ID},
							Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
								return machine.Update(s, s.Own, now)
							},
						})
					}
					if _, err := s.Update(t.Context(), updates); err != nil {
						t.Error(err)
					}
				}
			})
		}
		everyone.Go(func() {
			for range rounds {
				var on []gq.Dependency
				for _, spec := range shuffled() {
					on = append(on, gq.Dependency{Kind: gq.DependencyFanIn, Job: spec.ID})
				}
				mustInsert(t, s, newSpec("q", on...))
			}
		})
		everyone.Go(func() {
			for range rounds {
				answers, err := s.Claim(t.Context(), []store.Claim{claimFrom("q", 3)})
				if err != nil {
					t.Error(err)
					return
				}
				for _, j := range answers[0].Jobs {
					_, err := s.Update(t.Context(), []store.Update{{
						Ref: store.Ref{Job: j.State.ID},
						Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
							return machine.Release(s, j.State.Lease.Ref(), 0, "", now)
						},
					}})
					if err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	everyone.Wait()
}

// TestHeirsAreLockedInOrder lets jobs that name a replaced job and a later one come while both the
// successor and the later one are changed, which lock in the opposite order if the successor is
// locked last.
func TestHeirsAreLockedInOrder(t *testing.T) {
	nodes := twoNodes(t)
	old, heir, later := newSpec("q"), newSpec("q"), newSpec("q")
	heir.Replaces = old.ID
	for _, spec := range []gq.Spec{old, heir, later} {
		mustInsert(t, nodes[0], spec)
	}
	const rounds = 60
	var everyone sync.WaitGroup
	for _, s := range nodes {
		everyone.Go(func() {
			for range rounds {
				mustInsert(t, s, newSpec("r", gq.Dependency{Kind: gq.DependencyAfter, Job: old.ID}, gq.Dependency{Kind: gq.DependencyAfter, Job: later.ID}))
			}
		})
		everyone.Go(func() {
			for range rounds {
				var updates []store.Update
				for _, spec := range []gq.Spec{heir, later} {
					updates = append(updates, store.Update{
						Ref:   store.Ref{Job: spec.ID},
						Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) { return machine.Update(s, s.Own, now) },
					})
				}
				if _, err := s.Update(t.Context(), updates); err != nil {
					t.Error(err)
				}
			}
		})
	}
	everyone.Wait()
}

// TestAKeysJobThatWasReplaced lets a job of a graph have a key whose job was replaced by one with
// another key. A job that depends on it waits for the successor.
func TestAKeysJobThatWasReplaced(t *testing.T) {
	s := open(t, pgtest.Database(t), store.Config{})
	defer s.Close()
	old, heir, again := newSpec("q"), newSpec("q"), newSpec("q")
	old.Key = gq.IdempotencyKey{Scope: "t", Name: "k", Fingerprint: 1}
	heir.Key, heir.Replaces = gq.IdempotencyKey{Scope: "t", Name: "other", Fingerprint: 2}, old.ID
	mustInsert(t, s, old)
	mustInsert(t, s, heir)
	again.Key = old.Key
	child := newSpec("q", gq.Dependency{Kind: gq.DependencyAfter, Job: again.ID})
	mustInsert(t, s, again, child)
	found, err := s.Get(t.Context(), []store.Ref{{Job: child.ID}}, 0)
	if err != nil || found[0].State.Status != gq.StatusPending {
		t.Errorf("the child is %s (%s), %v; want PENDING", found[0].State.Status, found[0].State.Reason, err)
	}
}

// TestTwoNodes runs all operations on two stores of one database at once. Both must see
// the same results.
func TestTwoNodes(t *testing.T) {
	spec.Covers(t, "Q-05")
	const families, limit = 30, 5
	nodes := twoNodes(t)
	queue := machine.NewQueue("q")
	queue.MaxRunning = limit
	if err := nodes[0].PutQueue(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	total := int64(len(nodes) * families * 3)

	var (
		everyone  sync.WaitGroup
		completed atomic.Int64
		held      atomic.Int64
		claims    sync.Map // gq.JobID: *atomic.Int64
		tailed    []gq.Event
	)
	running := func() bool { return completed.Load() < total && !t.Failed() }
	for _, s := range nodes {
		everyone.Go(func() {
			for range families {
				a, b := newSpec("q"), newSpec("q")
				mustInsert(t, s, newSpec("q", gq.Dependency{Kind: gq.DependencyAfter, Job: a.ID}, gq.Dependency{Kind: gq.DependencyFanIn, Job: b.ID}), b, a)
			}
		})
		everyone.Go(func() {
			for running() {
				if _, err := s.ReleaseDependents(t.Context(), 2); err != nil {
					t.Error(err)
				}
			}
		})
		for range 2 {
			everyone.Go(func() {
				for running() {
					answers, err := s.Claim(t.Context(), []store.Claim{claimFrom("q", 2)})
					if err != nil {
						t.Error(err)
						return
					}
					jobs := answers[0].Jobs
					if n := held.Add(int64(len(jobs))); n > limit {
						t.Errorf("%d jobs are held at once, more than %d", n, limit)
					}
					slices.Reverse(jobs) // the opposite of the others' order
					var updates []store.Update
					for _, j := range jobs {
						n, _ := claims.LoadOrStore(j.State.ID, new(atomic.Int64))
						n.(*atomic.Int64).Add(1)
						updates = append(updates, completing(j))
					}
					held.Add(-int64(len(jobs)))
					settled, err := s.Update(t.Context(), updates)
					if err != nil {
						t.Error(err)
						return
					}
					for _, u := range settled {
						if u.Err != nil {
							t.Error(u.Err)
						}
						completed.Add(1)
					}
				}
			})
		}
	}
	everyone.Go(func() {
		var after uint64
		for over := false; !over; {
			over = !running() // read once more after the end
			for more := true; more; {
				events, err := nodes[0].Events(t.Context(), after, 20)
				if err != nil {
					t.Error(err)
					return
				}
				if more = len(events) > 0; more {
					after = events[len(events)-1].Seq
					tailed = append(tailed, events...)
				}
			}
		}
	})
	everyone.Wait()

	claims.Range(func(id, n any) bool {
		if n := n.(*atomic.Int64).Load(); n != 1 {
			t.Errorf("job %v was claimed %d times", id, n)
		}
		return true
	})
	all, err := nodes[1].Events(t.Context(), 0, 100_000)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != len(tailed) {
		t.Errorf("whoever followed saw %d of %d events", len(tailed), len(all))
	}
	// The numbers of all events are in order, and so are the times of each job's events.
	last := make(map[gq.JobID]time.Time)
	for i, e := range all {
		if i > 0 && e.Seq <= all[i-1].Seq || e.Time.Before(last[e.Job]) {
			t.Errorf("event %d at %v is out of order", e.Seq, e.Time)
		}
		last[e.Job] = e.Time
	}
}

func connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

// patiently claims until it gets jobs. A claim that waited too long for a lock returns
// none and says when to retry.
func patiently(t *testing.T, s store.Store, c store.Claim) (jobs int) {
	t.Helper()
	for {
		began := time.Now()
		out, err := s.Claim(t.Context(), []store.Claim{c})
		if err != nil || out[0].Err != nil {
			t.Errorf("claim: %v, %+v", err, out)
			return 0
		}
		if jobs = len(out[0].Jobs); jobs > 0 || out[0].RetryAt.IsZero() || time.Since(began) < time.Second {
			return jobs
		}
	}
}

// TestClaimWaitsForALockedJob claims a job that is locked by a transaction that does not
// change it, as an insert locks the dependencies of its jobs.
func TestClaimWaitsForALockedJob(t *testing.T) {
	url := pgtest.Database(t)
	s := open(t, url, store.Config{})
	defer s.Close()
	mustInsert(t, s, newSpec("q"))

	conn := connect(t, url)
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT FROM gq.ready FOR SHARE"); err != nil {
		t.Fatal(err)
	}
	claimed := make(chan int)
	go func() { claimed <- patiently(t, s, claimFrom("q", 1)) }()
	watch := connect(t, url)
	for waiting := false; !waiting; {
		err := watch.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)").Scan(&waiting)
		if err != nil {
			t.Fatal(err)
		}
		select {
		case n := <-claimed:
			t.Fatalf("a claim found %d jobs while the only one was locked, want it to wait", n)
		default:
		}
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := <-claimed; n != 1 {
		t.Errorf("a claim found %d jobs after the lock was gone, want 1", n)
	}
}

// TestDurableWhateverTheDatabaseSays reads the settings at the moment of a write: without
// a pooler, where they belong to the connection, and with one, where each transaction
// sets them.
func TestDurableWhateverTheDatabaseSays(t *testing.T) {
	through := map[string]func(string) string{
		"direct": func(url string) string { return url },
		"pooled": behindPooler(t),
	}
	for name, through := range through {
		t.Run(name, func(t *testing.T) {
			url := pgtest.Database(t)
			for _, setting := range []string{"synchronous_commit = off", "default_transaction_isolation = serializable"} {
				execute(t, url, fmt.Sprintf(`DO $$ BEGIN EXECUTE 'ALTER DATABASE ' || current_database() || ' SET %s'; END $$`, setting))
			}
			s := open(t, through(url), store.Config{})
			defer s.Close()
			execute(t, url, `
				CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
				BEGIN
					IF current_setting('synchronous_commit') = 'off' THEN RAISE 'not durable'; END IF;
					IF current_setting('enable_seqscan') = 'on' THEN RAISE 'plans may go wrong'; END IF;
					IF current_setting('transaction_isolation') <> 'read committed' THEN RAISE 'what is read may be old'; END IF;
					RETURN NEW;
				END $$;
				CREATE TRIGGER refuse BEFORE INSERT ON gq.segment FOR EACH ROW EXECUTE FUNCTION refuse();
				CREATE TRIGGER refuse BEFORE INSERT ON gq.round FOR EACH ROW EXECUTE FUNCTION refuse();`)
			mustInsert(t, s, newSpec("q"))
			mustInsert(t, s, newSpec("q"), newSpec("q"))
			if _, err := s.Events(t.Context(), 0, 1); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestHeldClaimsDoNotQueueUp locks a queue and its pool. A claim that its pool does not
// count must not wait for these locks; a claim that starts its jobs must.
func TestHeldClaimsDoNotQueueUp(t *testing.T) {
	url := pgtest.Database(t)
	s := open(t, url, store.Config{})
	defer s.Close()
	if err := s.PutPool(t.Context(), gq.Pool{Name: "p", Capacity: 1, AtStart: true}); err != nil {
		t.Fatal(err)
	}
	q := machine.NewQueue("q")
	q.Pool = "p"
	if err := s.PutQueue(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	mustInsert(t, s, newSpec("q"), newSpec("q"), newSpec("q"))
	lock, err := connect(t, url).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{"SELECT FROM gq.queue FOR UPDATE", "SELECT FROM gq.pool FOR UPDATE"} {
		if _, err := lock.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	held := claimFrom("q", 2)
	held.Hold = true
	out, err := s.Claim(t.Context(), []store.Claim{held})
	if err != nil || len(out[0].Jobs) != 2 {
		t.Fatalf("claim: %v, %+v", err, out)
	}
	started := make(chan int, 1)
	go func() { started <- patiently(t, s, claimFrom("q", 1)) }()
	watch := connect(t, url)
	for waiting := false; !waiting && len(started) == 0; {
		err := watch.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)").Scan(&waiting)
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(started) > 0 {
		t.Error("a claim that starts its job did not wait for whoever has the pool")
	}
	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := <-started; n != 1 {
		t.Errorf("a claim that starts its job got %d, want 1", n)
	}
}

// TestLimitsOfTwoNodes lets workers claim, settle and spawn jobs under every limit while
// the queue switches between fair and not fair. The jobs that the workers hold must
// always be within the limits.
func TestLimitsOfTwoNodes(t *testing.T) {
	nodes := twoNodes(t)
	const keyLimit, capacity = 2, 7
	configure := func(s store.Store, fair bool) {
		q := machine.NewQueue("q")
		q.KeyLimit, q.Pool, q.Fair = keyLimit, "p", fair
		if err := s.PutQueue(t.Context(), q); err != nil {
			t.Error(err)
		}
	}
	if err := nodes[0].PutPool(t.Context(), gq.Pool{Name: "p", Capacity: capacity}); err != nil {
		t.Fatal(err)
	}
	configure(nodes[0], true)
	keyed := func(i int) gq.Spec {
		s := newSpec("q")
		s.LimitKey, s.FairKey, s.CostUnits = []string{"a", "b", "c", "d", "e"}[i%5], []string{"x", "y"}[i%2], int64(i%3)
		return s
	}
	var specs []gq.Spec
	for i := range 60 {
		specs = append(specs, keyed(i))
	}
	mustInsert(t, nodes[0], specs...)
	var (
		everyone sync.WaitGroup
		mu       sync.Mutex
		held     = make(map[string]int) // guarded by mu
		used     int64                  // guarded by mu
		done     int                    // guarded by mu
	)
	count := func(j gq.Job, by int) {
		mu.Lock()
		defer mu.Unlock()
		held[j.Spec.LimitKey] += by
		used += int64(by) * j.Spec.CostUnits
		if by < 0 {
			done++
		}
		if held[j.Spec.LimitKey] > keyLimit || used > capacity {
			t.Errorf("%d jobs of key %s are held, at a cost of %d in all", held[j.Spec.LimitKey], j.Spec.LimitKey, used)
		}
	}
	work := func(s store.Store, round int) {
		answers, err := s.Claim(t.Context(), []store.Claim{claimFrom("q", 2)})
		if err != nil || answers[0].Err != nil {
			t.Errorf("claim: %v, %+v", err, answers)
			return
		}
		for _, j := range answers[0].Jobs {
			count(j, 1)
		}
		for i, j := range answers[0].Jobs {
			u := completing(j)
			if i == 0 && round%3 == 0 {
				child := keyed(round)
				child.DependsOn = []gq.Dependency{{Kind: gq.DependencyAfter, Job: j.State.ID}}
				u.Spawn = []gq.Spec{child}
			}
			count(j, -1)
			if out, err := s.Update(t.Context(), []store.Update{u}); err != nil || out[0].Err != nil || len(out[0].Spawned) != len(u.Spawn) {
				t.Errorf("complete: %v, %+v", err, out)
			}
		}
	}
	for i, s := range nodes {
		for range 2 {
			everyone.Go(func() {
				for round := range 25 {
					work(s, round)
				}
			})
		}
		everyone.Go(func() {
			for round := range 6 {
				configure(s, (round+i)%2 == 0)
			}
		})
	}
	everyone.Wait()
	for round := 0; round < 100 && done < len(specs); round++ {
		work(nodes[round%2], 1)
	}
	if done < len(specs) {
		t.Errorf("%d of %d jobs were done", done, len(specs))
	}
}

// TestSettlementBehindALock settles a job that is locked for longer than a shared
// transaction waits.
func TestSettlementBehindALock(t *testing.T) {
	nodes := twoNodes(t)
	s := nodes[0]
	mustInsert(t, s, newSpec("locked"), newSpec("free"))
	claimed, err := s.Claim(t.Context(), []store.Claim{claimFrom("locked", 1), claimFrom("free", 1)})
	if err != nil || len(claimed[0].Jobs) != 1 || len(claimed[1].Jobs) != 1 {
		t.Fatal(err, claimed)
	}
	locked, free := claimed[0].Jobs[0], claimed[1].Jobs[0]
	tx, err := connect(t, s.URL()).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT FROM gq.held WHERE seq = $1 FOR UPDATE", int64(locked.State.Sequence)); err != nil {
		t.Fatal(err)
	}
	settle := func(j gq.Job) {
		out, err := s.Update(t.Context(), []store.Update{completing(j)})
		if err != nil || out[0].Err != nil || out[0].State.Status != gq.StatusCompleted {
			t.Errorf("%+v, %v", out, err)
		}
	}
	var waits sync.WaitGroup
	waits.Go(func() { settle(locked) })
	settle(free) // does not wait
	// The shared transaction has timed out, and the settlement now waits in its own.
	watch := connect(t, s.URL())
	for waiting := 0; waiting == 0; {
		err := watch.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE waitstart < clock_timestamp() - interval '200 ms'").Scan(&waiting)
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	waits.Wait()
}

// TestSettlementsOfWhatMovesDoNotWaitInACircle lets two transactions settle the same two
// jobs. While the first transaction waits for the second job, the first job is claimed.
func TestSettlementsOfWhatMovesDoNotWaitInACircle(t *testing.T) {
	nodes := twoNodes(t)
	url := nodes[0].URL()
	first, second := newSpec("first"), newSpec("second")
	mustInsert(t, nodes[0], first)
	mustInsert(t, nodes[0], second)
	claim := func(queue string) gq.Job {
		t.Helper()
		got, err := nodes[0].Claim(t.Context(), []store.Claim{claimFrom(queue, 1)})
		if err != nil || len(got[0].Jobs) != 1 {
			t.Fatalf("claimed %d jobs, %v", len(got[0].Jobs), err)
		}
		return got[0].Jobs[0]
	}
	stale := claim("first")
	if _, err := nodes[0].Update(t.Context(), []store.Update{{
		Ref: store.Ref{Lease: stale.State.Lease.ID},
		Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
			return machine.Release(s, stale.State.Lease.Ref(), 0, "", now)
		},
	}}); err != nil {
		t.Fatal(err)
	}
	held := claim("second")

	waiting := func(n int) {
		t.Helper()
		for number(t, url, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") != n {
			if t.Context().Err() != nil {
				t.Fatal(t.Context().Err())
			}
		}
	}
	blocker, err := connect(t, url).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := blocker.Exec(t.Context(), "SELECT FROM gq.held FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	var both sync.WaitGroup
	settle := func(jobs ...gq.Job) {
		both.Go(func() {
			tx, err := connect(t, url).Begin(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			var updates []store.Update
			for _, j := range jobs {
				u := completing(j)
				u.Settles = true
				updates = append(updates, u)
			}
			if _, err := nodes[0].Tx(tx).Update(t.Context(), updates); err != nil {
				t.Error(err)
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	settle(stale, held)
	waiting(1)
	newer := claim("first")
	settle(newer, held)
	waiting(2)
	if err := blocker.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	both.Wait()
	for _, id := range []gq.JobID{first.ID, second.ID} {
		if got := statusOf(t, nodes[1], id); got != gq.StatusCompleted {
			t.Errorf("job %s is %s", id, got)
		}
	}
}

// TestSettlementsWithinATransactionKeepTheOrder settles jobs in an application's
// transaction, with the application's planner settings, while their rows are not stored
// in the order of their numbers. It must still lock them in the order that all
// transactions use.
func TestSettlementsWithinATransactionKeepTheOrder(t *testing.T) {
	nodes := twoNodes(t)
	url := nodes[0].URL()
	jobs := make(map[string]gq.Job)
	claim := func(queue string) {
		t.Helper()
		got, err := nodes[0].Claim(t.Context(), []store.Claim{claimFrom(queue, 1)})
		if err != nil || len(got[0].Jobs) != 1 {
			t.Fatalf("claimed %d jobs, %v", len(got[0].Jobs), err)
		}
		jobs[queue] = got[0].Jobs[0]
	}
	for _, queue := range []string{"a", "b", "c"} {
		mustInsert(t, nodes[0], newSpec(queue))
		claim(queue)
	}
	if _, err := nodes[0].Update(t.Context(), []store.Update{{
		Ref: store.Ref{Lease: jobs["a"].State.Lease.ID},
		Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
			return machine.Release(s, jobs["a"].State.Lease.Ref(), 0, "", now)
		},
	}}); err != nil {
		t.Fatal(err)
	}
	claim("a") // its row now comes after the others

	settling := func(queues ...string) (updates []store.Update) {
		for _, queue := range queues {
			u := completing(jobs[queue])
			u.Settles = true
			updates = append(updates, u)
		}
		return updates
	}
	waiting := func(n int) {
		t.Helper()
		for number(t, url, `
			SELECT count(*)
			FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock' AND clock_timestamp() - xact_start > '200ms'`) != n {
			if t.Context().Err() != nil {
				t.Fatal(t.Context().Err())
			}
		}
	}
	blocker, err := connect(t, url).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := blocker.Exec(t.Context(), "SELECT FROM gq.held WHERE queue = 'c' FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	var both sync.WaitGroup
	both.Go(func() {
		tx, err := connect(t, url).Begin(t.Context())
		if err == nil {
			_, err = nodes[0].Tx(tx).Update(t.Context(), settling("a", "b", "c"))
		}
		if err == nil {
			err = tx.Commit(t.Context())
		}
		if err != nil {
			t.Error(err)
		}
	})
	waiting(1)
	both.Go(func() {
		if _, err := nodes[1].Update(t.Context(), settling("a", "b")); err != nil {
			t.Error(err)
		}
	})
	waiting(2)
	if err := blocker.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	both.Wait()
	for _, j := range jobs {
		if got := statusOf(t, nodes[1], j.State.ID); got != gq.StatusCompleted {
			t.Errorf("job %s is %s", j.State.ID, got)
		}
	}
}

// TestJobsThatMoveAllTheTime updates two jobs, one of which the call fails to find until
// it stops trying to lock both at once. To cause that, gq.live shows a finished job as
// live.
func TestJobsThatMoveAllTheTime(t *testing.T) {
	url := pgtest.Database(t)
	s := open(t, url, store.Config{})
	defer s.Close()
	gone, living := newSpec("q"), newSpec("q")
	mustInsert(t, s, gone)
	claimed, err := s.Claim(t.Context(), []store.Claim{claimFrom("q", 1)})
	if err != nil || len(claimed[0].Jobs) != 1 {
		t.Fatalf("claimed %d jobs, %v", len(claimed[0].Jobs), err)
	}
	if _, err := s.Update(t.Context(), []store.Update{completing(claimed[0].Jobs[0])}); err != nil {
		t.Fatal(err)
	}
	mustInsert(t, s, living)
	var columns string
	err = connect(t, url).QueryRow(t.Context(), `
		SELECT string_agg(CASE attname WHEN 'seq' THEN 'd.seq' ELSE format('NULL::%s', format_type(atttypid, atttypmod)) END, ', ' ORDER BY attnum)
		FROM pg_attribute
		WHERE attrelid = 'gq.live'::regclass AND attnum > 0`).Scan(&columns)
	if err != nil {
		t.Fatal(err)
	}
	execute(t, url, `
		CREATE SEQUENCE moves;
		ALTER VIEW gq.live RENAME TO all_live;
		CREATE VIEW gq.live AS
			SELECT * FROM gq.all_live
			UNION ALL
			SELECT `+columns+` FROM gq.done AS d WHERE nextval('moves') <= 10`)
	var updates []store.Update
	for _, spec := range []gq.Spec{gone, living} {
		updates = append(updates, store.Update{
			Ref:   store.Ref{Job: spec.ID},
			Apply: func(s gq.State, _ time.Time) (gq.State, []gq.Event, error) { return s, nil, nil },
		})
	}
	out, err := s.Update(t.Context(), updates)
	if err != nil || len(out) != 2 || out[0].State.ID != gone.ID || out[1].State.ID != living.ID {
		t.Errorf("the answers are %+v, %v", out, err)
	}
}
