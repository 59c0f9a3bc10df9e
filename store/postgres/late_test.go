package postgres_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// TestSlowClaimNamesAJobOnce lets a claim wait for a locked job for longer than the lease
// of the job that it already has. The answer must contain that job at most once, with a
// valid lease; otherwise the next claim must get it.
func TestSlowClaimNamesAJobOnce(t *testing.T) {
	for name, configure := range map[string]func(*gq.Queue){
		"WithoutLimits": nil,
		"WithLimits":    func(q *gq.Queue) { q.MaxRunning = 10 },
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, pgtest.Database(t), store.Config{})
			if configure != nil {
				q := machine.NewQueue("q")
				configure(&q)
				if err := s.PutQueue(t.Context(), q); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				spec := newSpec("q")
				spec.Policy.MaxAttempts = 1000 // leases of a millisecond expire
				mustInsert(t, s, spec)
			}
			locker := connect(t, s.URL())
			for _, ttl := range []time.Duration{time.Millisecond, 10 * time.Millisecond, time.Second} {
				tx, err := locker.Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if _, err := tx.Exec(t.Context(), "SELECT FROM gq.ready ORDER BY seq DESC LIMIT 1 FOR UPDATE"); err != nil {
					t.Fatal(err)
				}
				claim := claimFrom("q", 2)
				claim.TTL = ttl
				answered := make(chan struct{})
				var out []store.Claimed
				go func() {
					defer close(answered)
					out, err = s.Claim(t.Context(), []store.Claim{claim})
				}()
				// Unlock the other job once the claim has waited for as long as the first
				// lease lasts, or has returned.
				letGo(t, tx, connect(t, s.URL()), ttl, answered)
				<-answered
				if err != nil || out[0].Err != nil {
					t.Fatalf("claim: %v, %+v", err, out)
				}
				known := map[gq.JobID]bool{}
				for _, j := range out[0].Jobs {
					if known[j.State.ID] {
						t.Errorf("with a lease of %v job %s is twice in an answer", ttl, j.State.ID)
					}
					known[j.State.ID] = true
				}
				if len(out[0].Jobs) < 2 && out[0].RetryAt.IsZero() {
					t.Errorf("with a lease of %v the answer is %d jobs, and not when to look again", ttl, len(out[0].Jobs))
				}
				// Nothing is lost: both can be claimed once their leases have expired.
				deadline := time.Now().Add(time.Minute)
				for got := map[gq.JobID]bool{}; len(got) < 2; {
					if time.Now().After(deadline) {
						t.Fatalf("only %d of 2 jobs can be claimed", len(got))
					}
					again := claimFrom("q", 2)
					again.TTL = time.Hour
					out, err := s.Claim(t.Context(), []store.Claim{again})
					if err != nil || out[0].Err != nil {
						t.Fatalf("claim: %v, %+v", err, out)
					}
					for _, j := range out[0].Jobs {
						got[j.State.ID] = true
						lease := j.State.Lease.Ref()
						back := store.Update{Ref: store.Ref{Job: j.State.ID}, Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
							return machine.Release(s, lease, 0, "for the next round", now)
						}}
						if _, err := s.Update(t.Context(), []store.Update{back}); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
		})
	}
}

// TestClaimWhoseSecondRoundFails lets a claim get one job, wait for a locked one, and then run into
// a lock that is not released. It must return that job and say that there may be more.
func TestClaimWhoseSecondRoundFails(t *testing.T) {
	s := open(t, pgtest.Database(t), store.Config{})
	mustInsert(t, s, newSpec("q"))
	mustInsert(t, s, newSpec("q"))
	locker, other := connect(t, s.URL()), connect(t, s.URL())
	row, err := locker.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := row.Exec(t.Context(), "SELECT FROM gq.ready ORDER BY seq DESC LIMIT 1 FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	table, err := other.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan struct{})
	var out []store.Claimed
	go func() {
		defer close(answered)
		out, err = s.Claim(t.Context(), []store.Claim{claimFrom("q", 2)})
	}()
	watch := connect(t, s.URL())
	waitForLock(t, watch, 0, answered) // for the second job
	if _, err := table.Exec(t.Context(), "LOCK TABLE gq.head IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	letGo(t, row, watch, 0, answered)
	<-answered
	if e := table.Rollback(t.Context()); e != nil {
		t.Fatal(e)
	}
	if err != nil || out[0].Err != nil {
		t.Fatalf("claim: %v, %+v", err, out)
	}
	if len(out[0].Jobs) != 1 || out[0].RetryAt.IsZero() {
		t.Errorf("the answer is %d jobs and to look again at %v, want one job and a time", len(out[0].Jobs), out[0].RetryAt)
	}
}

// letGo ends tx once another transaction has waited for it that long, or done is closed.
func letGo(t *testing.T, tx pgx.Tx, watch *pgx.Conn, after time.Duration, done <-chan struct{}) {
	t.Helper()
	waitForLock(t, watch, after, done)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// waitForLock returns once a transaction has waited that long for another one, or done is closed.
func waitForLock(t *testing.T, watch *pgx.Conn, after time.Duration, done <-chan struct{}) {
	t.Helper()
	for waiting := 0; waiting == 0; {
		select {
		case <-done:
			waiting++
			continue
		default:
		}
		if err := watch.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE waitstart < clock_timestamp() - $1::interval", after).Scan(&waiting); err != nil {
			t.Fatal(err)
		}
	}
}
