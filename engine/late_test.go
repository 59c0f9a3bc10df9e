package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/store"
)

// TestLateClaimIsGivenBack holds the store's answer until most of the lease, or all of it,
// is over. A waiting claim gets the job later under a useful lease; a claim that does not
// wait gets nothing, and the job is claimable again.
func TestLateClaimIsGivenBack(t *testing.T) {
	for name, test := range map[string]struct {
		late, wait time.Duration
		got        int
		losses     int
		waitQueue  bool // the job arrives while the claim waits
	}{
		"InTime":                   {late: 10 * time.Second, got: 1},
		"MostIsOver":               {late: 50 * time.Second},
		"MostIsOverAndWaits":       {late: 50 * time.Second, wait: 10 * time.Minute, got: 1},
		"AllIsOver":                {late: 2 * time.Minute, losses: 1},
		"AllIsOverAndWaits":        {late: 2 * time.Minute, wait: 10 * time.Minute, got: 1, losses: 1},
		"InTimeAndWaits":           {late: 10 * time.Second, wait: 10 * time.Minute, got: 1},
		"MostIsOverInTheWaitQueue": {late: 50 * time.Second, wait: time.Hour, got: 1, waitQueue: true},
		"AllIsOverInTheWaitQueue":  {late: 2 * time.Minute, wait: time.Hour, got: 1, losses: 1, waitQueue: true},
		"InTimeInTheWaitQueue":     {late: 10 * time.Second, wait: time.Hour, got: 1, waitQueue: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var g *gate
				f := newFixture(t, engine.Options{}, func(s store.Store) store.Store { g = &gate{Store: s}; return g })
				var release func()
				if !test.waitQueue {
					f.submit(gq.Spec{})
					release = g.hold()
				}
				done := make(chan []gq.Job, 1)
				go func() {
					jobs, err := f.Claim(t.Context(), gq.ClaimRequest{Worker: "w", N: 1, TTL: time.Minute, Wait: test.wait})
					if err != nil {
						t.Errorf("claim: %v", err)
					}
					done <- jobs
				}()
				if test.waitQueue {
					synctest.Wait() // it came back empty and waits
					release = g.hold()
					f.submit(gq.Spec{})
				}
				time.Sleep(test.late)
				release()
				jobs := <-done
				if len(jobs) != test.got {
					t.Fatalf("claimed %d jobs, want %d", len(jobs), test.got)
				}
				if len(jobs) == 0 {
					jobs = f.claim(1, func(r *gq.ClaimRequest) { r.TTL = time.Minute })
				}
				s := &jobs[0].State
				if left := time.Until(s.Lease.ExpiresAt); left < 15*time.Second {
					t.Errorf("%v are left of the lease", left)
				}
				if s.Losses != test.losses {
					t.Errorf("the job has lost %d leases, want %d", s.Losses, test.losses)
				}
				if _, err := f.Complete(t.Context(), s.Lease.Ref(), nil); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
