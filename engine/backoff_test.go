package engine_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/local"
)

func forty(int, time.Duration, time.Duration) time.Duration { return 40 * time.Minute }

func mine() gq.Policy {
	p := machine.DefaultPolicy()
	p.OnLoss, p.LeaseTTL = gq.LossBackoff, time.Minute
	p.Backoff = gq.Backoff{Strategy: gq.StrategyCustom, Custom: "mine", Initial: time.Second, Max: time.Hour, Multiplier: 2, Jitter: gq.JitterNone}
	return p
}

// A strategy registered with the store applies to a handler's failure and to a lost lease.
func TestBackoffIsRegisteredOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newBackoffFixture(t, map[string]machine.BackoffFunc{"mine": forty})
		lost, failed := f.submit(gq.Spec{Policy: mine()}), f.submit(gq.Spec{Policy: mine()})
		f.take()
		_, lease := f.take()
		if s := must[gq.State](t)(f.Fail(t.Context(), lease, gq.Failure{Category: gq.CategoryTemporary})); s.ID != failed || time.Until(s.RunAt) != 40*time.Minute {
			t.Errorf("after a failure the job waits %v, want 40m", time.Until(s.RunAt))
		}
		time.Sleep(time.Minute)
		f.claim(0) // the store ends the expired lease
		if s := f.get(lost).State; s.Status != gq.StatusRetrying || time.Until(s.RunAt) != 40*time.Minute {
			t.Errorf("after its lease was lost the job is %s and waits %v, want RETRYING and 40m", s.Status, time.Until(s.RunAt))
		}
	})
}

// newBackoffFixture returns a fixture with custom strategies.
func newBackoffFixture(t *testing.T, backoffs map[string]machine.BackoffFunc) *fixture {
	t.Helper()
	s, err := local.OpenMemory(local.Options{Config: store.Config{Backoffs: backoffs}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return &fixture{T: t, Engine: newEngine(t, s, engine.Options{}), store: s}
}

// TestUnregisteredBackoffIsRefused names an unregistered strategy in every call that takes
// a policy.
func TestUnregisteredBackoffIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		refused := func(call string, err error, field string) {
			t.Helper()
			faults := errs.FaultsOf(err)
			if !slices.ContainsFunc(faults, func(f gq.Fault) bool { return f.Field == field }) {
				t.Errorf("%s: %v, want a fault of %s", call, err, field)
			}
		}
		spec := gq.Spec{Type: "t", Policy: mine()}
		_, err := f.Submit(ctx, spec)
		refused("Submit", err, "policy.backoff.custom")
		bad := spec
		bad.MaxFee = -1
		_, err = f.Submit(ctx, bad)
		refused("Submit with another fault", err, "policy.backoff.custom")
		refused("Submit with another fault", err, "max_fee")
		out := must[[]gq.SubmitResult](t)(f.SubmitBatch(ctx, []gq.Spec{spec, {Type: "t"}}))
		refused("SubmitBatch", out[0].Err, "policy.backoff.custom")
		if out[1].Err != nil {
			t.Errorf("the other of a batch: %v", out[1].Err)
		}
		_, err = f.SubmitGraph(ctx, []gq.GraphJob{{Spec: spec}})
		refused("SubmitGraph", err, "jobs[0].policy.backoff.custom")
		_, err = f.PutQueue(ctx, gq.Queue{Name: "q", Policy: mine()})
		refused("PutQueue", err, "policy.backoff.custom")
		_, err = f.PutSchedule(ctx, gq.Schedule{Name: "s", Every: time.Hour, Template: spec})
		refused("PutSchedule", err, "template.policy.backoff.custom")
	})
}
