package postgres

import (
	"fmt"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// Claims do not read the jobs of keys that have used up their rates again and again.
func TestWorkBesideExhaustedKeys(t *testing.T) {
	const crowd, keys = 6000, 50
	url, clock := pgtest.Database(t), &moving{}
	clock.now.Store(time.Now().UnixNano())
	s, err := Open(t.Context(), url, store.Config{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	q := machine.NewQueue("q")
	q.KeyRate = gq.Rate{Count: 1, Per: time.Hour}
	if err := s.PutQueue(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	add := func(n int, key func(int) string) {
		t.Helper()
		groups := make([]store.Group, n)
		for i := range groups {
			id := random()
			groups[i] = store.Group{Mint: true, Jobs: []gq.Spec{gq.Spec{ID: machine.NewJobID(id), Queue: "q", Type: "t", LimitKey: key(i)}.WithDefaults()}}
		}
		placed, err := s.Insert(t.Context(), groups)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range placed {
			if p.Err != nil {
				t.Fatal(p.Err)
			}
		}
	}
	claim := func(n int) []gq.Job {
		t.Helper()
		claimed, err := s.Claim(t.Context(), []store.Claim{{Filter: store.Filter{Queues: []string{"q"}}, N: n, Worker: "w", TTL: 2 * time.Hour}})
		if err != nil || claimed[0].Err != nil {
			t.Fatal(err, claimed[0].Err)
		}
		return claimed[0].Jobs
	}
	for from := 0; from < crowd; from += 1000 {
		add(1000, func(i int) string { return fmt.Sprint("busy-", i%keys) })
	}
	if n := len(claim(200)); n != keys {
		t.Fatalf("claimed %d jobs, want one of each key", n)
	}
	for i := range 20 {
		add(1, func(int) string { return fmt.Sprint("other-", i) })
		if n := len(claim(1)); n != 1 {
			t.Fatalf("claim %d got %d jobs of another key, want 1", i, n)
		}
	}
	queues, bands := levels("q")
	args := []any{queues, bands, clock.now.Load(), []string{}, []string{}, -1, []string{}, 1}
	const show = "UPDATE gq.ready SET aside = NULL WHERE aside IS NOT NULL"
	with, without := walked(t, url, "ready_claim", "SELECT", ratedCandidates, args...), walked(t, url, "ready_claim", show, ratedCandidates, args...)
	t.Logf("a claim reads %d entries, %d if no job was set aside", with, without)
	if with > 200 {
		t.Errorf("a claim reads %d entries, want at most 200", with)
	}
	if without < crowd-keys {
		t.Errorf("a claim reads %d entries if no job was set aside, want %d: nothing was there to skip", without, crowd-keys)
	}
	clock.now.Add(int64(time.Hour))
	add(1, func(int) string { return "busy-0" }) // behind all others of its key
	jobs := claim(200)
	if len(jobs) != keys {
		t.Fatalf("an hour later a claim got %d jobs, want one of each key", len(jobs))
	}
	for _, j := range jobs {
		if j.State.Sequence&(1<<32-1) > keys*2 {
			t.Errorf("a claim got job %d of key %s, want the second one of each key", j.State.Sequence&(1<<32-1), j.Spec.LimitKey)
		}
	}
}

// TestJobsThatAreLockedAside: a job that another transaction has locked when its key has units
// again is claimed as soon as that has ended, not when the key has the next unit.
func TestJobsThatAreLockedAside(t *testing.T) {
	url, clock := pgtest.Database(t), &moving{}
	clock.now.Store(time.Now().UnixNano())
	s, err := Open(t.Context(), url, store.Config{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.AsideEvery(1)
	q := machine.NewQueue("q")
	q.KeyRate = gq.Rate{Count: 1, Per: time.Hour}
	if err := s.PutQueue(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	groups := make([]store.Group, 2*manyAside)
	for i := range groups {
		groups[i] = store.Group{Mint: true, Jobs: []gq.Spec{gq.Spec{ID: machine.NewJobID(random()), Queue: "q", Type: "t", LimitKey: "k"}.WithDefaults()}}
	}
	if _, err := s.Insert(t.Context(), groups); err != nil {
		t.Fatal(err)
	}
	claim := func(when string, want int) []gq.Job {
		t.Helper()
		claimed, err := s.Claim(t.Context(), []store.Claim{{Filter: store.Filter{Queues: []string{"q"}}, N: 10, Worker: "w", TTL: 12 * time.Hour}})
		if err != nil || claimed[0].Err != nil {
			t.Fatal(err, claimed)
		}
		if n := len(claimed[0].Jobs); n != want {
			t.Fatalf("%s: claimed %d jobs, want %d", when, n, want)
		}
		return claimed[0].Jobs
	}
	first := claim("at first", 1)[0]
	if _, err := s.Update(t.Context(), []store.Update{{Ref: store.Ref{Job: first.State.ID}, Apply: func(st gq.State, now time.Time) (gq.State, []gq.Event, error) {
		return machine.Complete(st, first.State.Lease.Ref(), nil, now)
	}}}); err != nil {
		t.Fatal(err)
	}
	claim("the key used up", 0)
	tx, err := s.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var aside int
	if err := tx.QueryRow(t.Context(), "SELECT count(*) FROM (SELECT FROM gq.ready WHERE aside IS NOT NULL FOR UPDATE) AS s").Scan(&aside); err != nil || aside == 0 {
		t.Fatalf("%d jobs are aside: %v", aside, err)
	}
	clock.now.Add(int64(time.Hour))
	claim("while others have locked the jobs", 0)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	clock.now.Add(int64(time.Second))
	claim("afterwards", 1)
}
