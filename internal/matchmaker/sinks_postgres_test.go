package matchmaker_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/matchmaker"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/store"
)

// Two servers on one database deliver every completion and every round, although a third of
// the calls of their sinks fail. Jobs that are cancelled while their providers complete them
// are claimed only if the completion came first.
func TestSinksOnPostgres(t *testing.T) {
	t.Parallel() // it mostly waits for the next attempt of a delivery
	spec.Covers(t, "M-106")
	s := onPostgres(t, pgtest.Database(t), store.Config{})
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(1, 7))
	claimed, rounds, failures := map[gq.LeaseID]int{}, map[uint64]int{}, 0
	fails := func() bool {
		if random.IntN(3) > 0 {
			return false
		}
		failures++
		return true
	}
	o := matchmaker.Options{Hooks: match.Hooks{
		Claims: func(_ context.Context, some []match.Claim) error {
			mu.Lock()
			defer mu.Unlock()
			if fails() {
				return errDown
			}
			for _, c := range some {
				claimed[c.Lease]++
			}
			return nil
		},
		Rounds: func(_ context.Context, some []match.RoundProof) error {
			mu.Lock()
			defer mu.Unlock()
			if fails() {
				return errDown
			}
			for _, r := range some {
				rounds[r.Round]++
			}
			return nil
		},
	}}
	f := newFixture(t, s, o)
	f.unhurried()
	f.policy(`{"quotas":{"leases_max_per_provider":100}}`)
	f.provider("p")
	if err := f.Deliver(t.Context()); err != nil && !errors.Is(err, errDown) { // rounds are delivered from here on
		t.Fatal(err)
	}
	nodes := []*fixture{f, f.another(o)}
	for _, node := range nodes {
		node.run()
	}
	const jobs = 40

	for i := range jobs {
		nodes[i%2].submit()
	}
	done, cancelled := map[gq.LeaseID]bool{}, 0
	deadline := time.Now().Add(2 * time.Minute)
	for len(done)+cancelled < jobs && time.Now().Before(deadline) {
		page, err := nodes[1].Leases(t.Context(), "p", 0, 1000)
		if err != nil {
			t.Fatal(err)
		}
		for i, h := range page.Leases {
			node := nodes[i%2]
			if _, err := node.Ack(t.Context(), matchmaker.Ref{Lease: h.Lease.ID}); err != nil {
				continue // it has ended since it was listed
			}
			var both sync.WaitGroup
			var completing, cancelling error
			both.Go(func() {
				for range (len(done) + cancelled) % 16 { // so that sometimes the cancellation comes first
					if _, err := node.Job(t.Context(), h.Lease.Job); err != nil {
						t.Error(err)
					}
				}
				_, completing = node.Complete(t.Context(), matchmaker.Ref{Lease: h.Lease.ID}, match.Completion{Digest: digest})
			})
			if i%2 == 0 {
				both.Go(func() { _, cancelling = nodes[(i+1)%2].CancelJob(t.Context(), h.Lease.Job, "race") })
			}
			both.Wait()
			switch {
			case completing == nil:
				done[h.Lease.ID] = true
			case i%2 == 0 && cancelling == nil && errors.Is(completing, gq.ErrStaleLease):
				cancelled++
			default:
				t.Errorf("lease %s: complete %v, cancel %v", h.Lease.ID, completing, cancelling)
			}
		}
	}
	if len(done)+cancelled != jobs || len(done) == 0 || cancelled == 0 {
		t.Fatalf("%d jobs completed and %d cancelled of %d", len(done), cancelled, jobs)
	}
	recorded, _, err := f.Rounds(t.Context(), 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	for time.Now().Before(deadline) {
		mu.Lock()
		all := len(claimed) >= len(done) && len(rounds) >= len(recorded)
		mu.Unlock()
		if all {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(claimed) != len(done) || len(rounds) != len(recorded) || failures == 0 {
		t.Errorf("%d claims of %d completions, %d rounds of %d, %d failures", len(claimed), len(done), len(rounds), len(recorded), failures)
	}
	for id := range claimed {
		if !done[id] {
			t.Errorf("lease %s was claimed and not completed", id)
		}
	}
	t.Logf("%d completed, %d cancelled, %d rounds, %d failures", len(done), cancelled, len(recorded), failures)
	page, err := nodes[0].Jobs(t.Context(), matchmaker.JobQuery{State: "CANCELLED", Limit: 1000})
	if err != nil || len(page.Jobs) != cancelled {
		t.Errorf("%d cancelled jobs are listed, want %d, %v", len(page.Jobs), cancelled, err)
	}
	if _, err := nodes[0].SetStatus(t.Context(), "p", match.Retired, ""); err != nil {
		t.Fatal(err)
	}
	if err := nodes[1].Remove(t.Context(), "p"); err != nil {
		t.Fatal(err)
	}
	if _, err := nodes[0].Provider(t.Context(), "p"); !errors.Is(err, gq.ErrNotFound) {
		t.Errorf("the other server still has the provider: %v", err)
	}
}
