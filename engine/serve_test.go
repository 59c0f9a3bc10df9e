package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/store"
)

// slowInserts delays the answers of inserts that have a claim, and counts claims.
type slowInserts struct {
	store.Store
	delay          atomic.Int64
	served, claims atomic.Int64
}

func (s *slowInserts) Notify(events bool, f func(store.News)) (stop func()) {
	return s.Store.(store.Notifier).Notify(events, f)
}

func (s *slowInserts) Insert(ctx context.Context, groups []store.Group) ([]store.Inserted, error) {
	out, err := s.Store.Insert(ctx, groups)
	if err == nil && out[0].Claimed != nil {
		s.served.Add(1)
		time.Sleep(time.Duration(s.delay.Load()))
	}
	return out, err
}

func (s *slowInserts) Claim(ctx context.Context, claims []store.Claim) ([]store.Claimed, error) {
	s.claims.Add(1)
	return s.Store.Claim(ctx, claims)
}

// waits starts a claim that waits, and returns its jobs.
func (f *fixture) waits(ctx context.Context, change ...func(*gq.ClaimRequest)) <-chan []gq.Job {
	got := make(chan []gq.Job, 1)
	r := gq.ClaimRequest{Worker: "w", N: 1, Wait: time.Hour, TTL: time.Minute}
	for _, c := range change {
		c(&r)
	}
	go func() {
		jobs, err := f.Claim(ctx, r)
		if err != nil {
			f.Errorf("claim: %v", err)
		}
		got <- jobs
	}()
	synctest.Wait()
	return got
}

func serving(t *testing.T) (*fixture, *slowInserts) {
	var s *slowInserts
	f := newFixture(t, engine.Options{}, func(inner store.Store) store.Store { s = &slowInserts{Store: inner}; return s })
	return f, s
}

// TestSubmissionServesAClaim: a claim that waits gets a job in the commit of its submission.
func TestSubmissionServesAClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := serving(t)
		got := f.waits(t.Context())
		before := s.claims.Load()
		result := must[gq.SubmitResult](t)(f.Submit(t.Context(), gq.Spec{Type: "t", Payload: payload("7")}))
		if result.State.Status != gq.StatusScheduled {
			t.Errorf("the submission is answered with %v, want what the job was when it was submitted", result.State.Status)
		}
		jobs := <-got
		if len(jobs) != 1 || jobs[0].State.ID != result.ID() || string(jobs[0].Spec.Payload.Data) != "7" || jobs[0].State.Lease.Worker != "w" {
			t.Fatalf("the claim got %+v", jobs)
		}
		if s.served.Load() != 1 || s.claims.Load() != before {
			t.Errorf("%d inserts served a claim and %d claims followed, want 1 and none", s.served.Load(), s.claims.Load()-before)
		}
		must[gq.State](t)(f.Complete(t.Context(), jobs[0].State.Lease.Ref(), nil))
		var types []gq.EventType
		for _, e := range must[[]gq.Event](t)(f.History(t.Context(), result.ID())) {
			types = append(types, e.Type)
		}
		want := []gq.EventType{gq.EventSubmitted, gq.EventScheduled, gq.EventStarted, gq.EventCompleted}
		if len(types) != len(want) {
			t.Fatalf("the history has %v, want %v", types, want)
		}
		for i := range want {
			if types[i] != want[i] {
				t.Errorf("the history has %v, want %v", types, want)
			}
		}
	})
}

// TestSubmissionServesNobody: a claim gets only what it asks for, and a job that has to wait
// stays.
func TestSubmissionServesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := serving(t)
		ctx, cancel := context.WithCancel(t.Context())
		got := f.waits(ctx, func(r *gq.ClaimRequest) { r.Types, r.MaxCost = []string{"wanted"}, 5 })
		for _, spec := range []gq.Spec{
			{Type: "other"}, {Type: "wanted", CostUnits: 6}, {Type: "wanted", Requires: []string{"gpu"}}, {Type: "wanted", Delay: 2 * time.Hour}, {Type: "wanted", Queue: "elsewhere"},
		} {
			f.submit(spec)
		}
		if s.served.Load() != 0 {
			t.Errorf("%d submissions served a claim that does not select them", s.served.Load())
		}
		cancel()
		if jobs := <-got; len(jobs) != 0 {
			t.Errorf("the claim got %+v", jobs)
		}
	})
}

// TestSubmissionIsSlow: a claim does not wait for a submission that takes long, and what that
// claimed for it is released; nor is a job lost whose claim or submission was abandoned.
func TestSubmissionIsSlow(t *testing.T) {
	for name, test := range map[string]struct{ leaves, cancels bool }{
		"ClaimGoesOn": {}, "ClaimLeaves": {leaves: true}, "SubmissionIsCancelled": {cancels: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, s := serving(t)
				s.delay.Store(int64(10 * time.Second))
				claim, leave := context.WithCancel(t.Context())
				got := f.waits(claim)
				submit, cancel := context.WithCancel(t.Context())
				submitted := make(chan error, 1)
				go func() {
					_, err := f.Submit(submit, gq.Spec{Type: "slow"})
					submitted <- err
				}()
				synctest.Wait()
				if test.leaves {
					leave()
					if jobs := <-got; len(jobs) != 0 {
						t.Errorf("a claim that left got %d jobs", len(jobs))
					}
					got = f.waits(t.Context())
				}
				if test.cancels {
					cancel()
					if err := <-submitted; err == nil {
						t.Error("a cancelled submission was answered")
					}
				}
				time.Sleep(time.Second)
				s.delay.Store(0)
				second := f.submit(gq.Spec{Type: "second"})
				if jobs := <-got; len(jobs) != 1 || jobs[0].State.ID != second {
					t.Fatalf("while a submission is slow the claim got %+v, want the job submitted since", jobs)
				}
				if !test.cancels {
					if err := <-submitted; err != nil {
						t.Error(err)
					}
				}
				jobs := must[[]gq.Job](t)(f.Claim(t.Context(), gq.ClaimRequest{Worker: "w", N: 1, Wait: time.Minute}))
				if len(jobs) != 1 || jobs[0].Spec.Type != "slow" || jobs[0].State.Losses != 0 {
					t.Errorf("afterwards a claim got %+v, want the job of the slow submission, released", jobs)
				}
				leave()
				cancel()
			})
		})
	}
}

// TestSlowSubmissionServesAWaiter: a waiter that nobody has served in the meantime gets the job
// of a slow submission, without a second claim.
func TestSlowSubmissionServesAWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := serving(t)
		s.delay.Store(int64(10 * time.Second))
		got := f.waits(t.Context())
		id := f.submit(gq.Spec{})
		if jobs := <-got; len(jobs) != 1 || jobs[0].State.ID != id || jobs[0].State.Attempt != 1 {
			t.Errorf("the claim got %+v", jobs)
		}
	})
}

// TestSubmissionThatHasEnded: a submission whose context has ended stores nothing, even if a
// worker waits.
func TestSubmissionThatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := serving(t)
		claim, leave := context.WithCancel(t.Context())
		got := f.waits(claim)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := f.Submit(ctx, gq.Spec{Type: "t"}); err == nil {
			t.Error("the submission was accepted")
		}
		synctest.Wait()
		leave()
		if jobs := <-got; len(jobs) != 0 {
			t.Errorf("the claim got %+v", jobs)
		}
		if page := must[gq.Page](t)(f.List(t.Context(), gq.Query{})); len(page.Jobs) != 0 {
			t.Errorf("%d jobs were stored", len(page.Jobs))
		}
	})
}
