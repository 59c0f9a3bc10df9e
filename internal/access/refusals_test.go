package access

import (
	"errors"
	"net/http/httptest"
	"testing"

	"github.com/gopherqueue/gq"
)

// The gate and the guard tell each refusal once, also of an item of a call, and none when a caller
// with few scopes is only shown less.
func TestRefusalsAreTold(t *testing.T) {
	f := newFixture(t)
	gate := NewGate(f.ring, true, nil)
	told := map[error]int{}
	tell := func(err error) {
		for _, reason := range []error{gq.ErrDenied, gq.ErrUnauthenticated, gq.ErrRateLimited} {
			if errors.Is(err, reason) {
				told[reason]++
			}
		}
	}
	f.guard.OnRefused(tell)
	gate.OnRefused(tell)
	check := func(what string, denied, unauthenticated, limited int) {
		t.Helper()
		if told[gq.ErrDenied] != denied || told[gq.ErrUnauthenticated] != unauthenticated || told[gq.ErrRateLimited] != limited {
			t.Errorf("%s: %v, want %d denied, %d unauthenticated, %d rate limited", what, told, denied, unauthenticated, limited)
		}
		clear(told)
	}
	if _, err := gate.HTTP(httptest.NewRequest("GET", "/v1/queues", nil)); err == nil {
		t.Error("a caller without a token got in")
	}
	check("without a token", 0, 1, 0)
	ctx := f.as("submit,read,admin@a", "work@b/w")
	_, _ = f.guard.Submit(ctx, gq.Spec{Queue: "b", Type: "t"})
	check("a submission to a foreign queue", 1, 0, 0)
	_, _ = f.guard.SubmitBatch(ctx, []gq.Spec{{Queue: "a", Type: "t"}, {Queue: "b", Type: "t"}, {Queue: "c", Type: "t"}})
	check("two of three", 2, 0, 0)
	_, _ = f.guard.Schedules(ctx)
	_, _ = f.guard.Queues(ctx)
	_, _ = f.guard.Stats(ctx)
	if err := f.guard.Allow(ctx, Work, "b", func() (string, error) { return "w", nil }); err != nil {
		t.Error(err)
	}
	if _, err := f.guard.ChangeQueue(ctx, "a", func(q *gq.Queue) { q.MaxDepth = 7 }); err != nil {
		t.Error(err)
	}
	check("lists, the owner's queue and a change without a pool", 0, 0, 0)
	_, _ = f.guard.ChangeQueue(ctx, "a", func(q *gq.Queue) { q.Pool = "p" })
	_ = f.guard.Administer(ctx)
	_ = f.guard.Allow(ctx, Work, "b", func() (string, error) { return "other", nil })
	check("a pool, the installation, and another's queue", 3, 0, 0)
	i := newIdentity("t", "t", []Grant{{all, []string{"*"}}})
	i.limit = newLimiter(1)
	for range 3 {
		_, _ = f.guard.Queues(With(t.Context(), i))
	}
	check("three calls at a rate of one", 0, 0, 2)
}
