package postgres_test

import (
	"context"
	"flag"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/store"
)

// crashes is how often the server crashes under load; use 30 or more for a long run.
var crashes = flag.Int("crashes", 3, "how often TestCrashes ends the server")

// TestCrashes crashes the server repeatedly while two nodes work. Afterwards everything
// that was acknowledged must exist: every submitted job, with exactly one completion, by
// its newest lease.
func TestCrashes(t *testing.T) {
	spec.Covers(t, "Q-05", "Q-66")
	cluster := pgtest.Own(t)
	url := cluster.Database(t)
	nodes := []store.Store{open(t, url, store.Config{}), open(t, url, store.Config{})}
	var (
		everyone  sync.WaitGroup
		over      atomic.Bool
		faults    atomic.Int64
		progress  = make(chan struct{}) // a job was acknowledged
		mu        sync.Mutex
		submitted = make(map[gq.JobID]bool)       // guarded by mu
		completed = make(map[gq.JobID]gq.LeaseID) // guarded by mu
	)
	for _, s := range nodes {
		for range 3 {
			everyone.Go(func() {
				for !over.Load() {
					spec := newSpec("q")
					spec.Policy.OnLoss = gq.LossFree // crashes lose leases
					answers, err := s.Insert(t.Context(), []store.Group{{Jobs: []gq.Spec{spec}, Mint: true}})
					if err != nil || answers[0].Err != nil {
						faults.Add(1)
						continue
					}
					mu.Lock()
					submitted[answers[0].Jobs[0].State.ID] = true
					mu.Unlock()
					select {
					case progress <- struct{}{}:
					default:
					}
				}
			})
			everyone.Go(func() {
				for !over.Load() {
					// Short leases, because those lost in a crash must expire.
					drain(t, s, 2*time.Second, func(id gq.JobID, lease gq.LeaseID) {
						mu.Lock()
						defer mu.Unlock()
						if before, twice := completed[id]; twice && before != lease {
							t.Errorf("job %s was completed under two leases", id)
						}
						completed[id] = lease
					}, &faults)
				}
			})
		}
	}
	for range *crashes {
		for range 20 { // so that there is something to lose
			<-progress
		}
		cluster.Crash(t)
	}
	over.Store(true)
	everyone.Wait()

	// Complete the remaining jobs. Leases whose claim was never answered expire.
	for deadline := time.Now().Add(5 * time.Minute); ; {
		drain(t, nodes[0], time.Hour, func(id gq.JobID, lease gq.LeaseID) { completed[id] = lease }, &faults)
		counts, err := nodes[1].Counts(t.Context(), "q")
		if err != nil {
			t.Fatal(err)
		}
		live := int64(0)
		for status, n := range counts[0].By {
			if !gq.Status(status).Terminal() {
				live += n
			}
		}
		if live == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d jobs are left: %+v", live, counts)
		}
	}
	for id := range submitted {
		if got := statusOf(t, nodes[0], id); got != gq.StatusCompleted {
			t.Errorf("job %s was acknowledged and is %v", id, got)
		}
	}
	t.Logf("%d crashes, %d jobs acknowledged, %d calls failed", *crashes, len(submitted), faults.Load())
	for _, s := range nodes {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// drain claims a few jobs and completes them.
func drain(t *testing.T, s store.Store, ttl time.Duration, completed func(gq.JobID, gq.LeaseID), faults *atomic.Int64) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := claimFrom("q", 10)
	c.TTL = ttl
	answers, err := s.Claim(ctx, []store.Claim{c})
	if err != nil {
		faults.Add(1)
		return
	}
	for _, j := range answers[0].Jobs {
		out, err := s.Update(ctx, []store.Update{completing(j)})
		if err != nil || out[0].Err != nil {
			faults.Add(1)
			continue
		}
		completed(j.State.ID, j.State.Lease.ID)
	}
}
