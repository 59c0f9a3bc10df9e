package access

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/local"
)

// countingStore counts the calls that read or change jobs.
type countingStore struct {
	*local.Store
	calls atomic.Int64
}

func (s *countingStore) Get(ctx context.Context, refs []store.Ref, parts gq.Parts) ([]store.Found, error) {
	s.calls.Add(1)
	return s.Store.Get(ctx, refs, parts)
}

func (s *countingStore) List(ctx context.Context, q gq.Query) (gq.Page, error) {
	s.calls.Add(1)
	return s.Store.List(ctx, q)
}

func (s *countingStore) History(ctx context.Context, id gq.JobID) ([]gq.Event, error) {
	s.calls.Add(1)
	return s.Store.History(ctx, id)
}

func (s *countingStore) Update(ctx context.Context, updates []store.Update) ([]store.Updated, error) {
	s.calls.Add(1)
	return s.Store.Update(ctx, updates)
}

// A call with scopes on one queue reads jobs as often as a call by an administrator, for
// whom nothing is checked.
func TestGuardReadsNoMore(t *testing.T) {
	for name, call := range calls {
		if call.whole {
			continue // needs a scope on all queues
		}
		t.Run(name, func(t *testing.T) {
			measure := func() (checked, free int64) {
				var counted [2]int64
				for i, grant := range []string{"admin@*", "admin@own"} {
					s, err := local.OpenMemory(local.Options{})
					if err != nil {
						t.Fatal(err)
					}
					defer s.Close()
					counting := &countingStore{Store: s}
					e, err := engine.New(counting, engine.Options{})
					if err != nil {
						t.Fatal(err)
					}
					ring, err := NewKeyring(s, "")
					if err != nil {
						t.Fatal(err)
					}
					f := &fixture{TB: t, store: s, engine: e, guard: NewGuard(e), ring: ring}
					own, ctx := f.target("own"), f.as(grant)
					before := counting.calls.Load()
					if err := call.do(ctx, f.guard, own); errors.Is(err, gq.ErrDenied) {
						t.Fatalf("as %s: %v", grant, err)
					}
					counted[i] = counting.calls.Load() - before
				}
				return counted[1], counted[0]
			}
			// Notifications of earlier writes may wake a wait, which then reads once
			// more.
			for attempt := 1; ; attempt++ {
				checked, free := measure()
				if checked <= free {
					return
				}
				if attempt == 5 {
					t.Fatalf("%d calls to the store, %d without a check", checked, free)
				}
			}
		})
	}
}

// A rejected caller learns nothing about the job except the rejection, and an invented
// lease gets the same error as an unknown one, whether or not a matching job exists.
func TestRefusedAnswers(t *testing.T) {
	f := newFixture(t)
	foreign := f.target("foreign")
	ctx := f.as("submit,work,read,admin@own")
	lease := foreign.job.State.Lease.Ref()
	if s, err := f.guard.Complete(ctx, lease, nil); !errors.Is(err, gq.ErrDenied) || s != (gq.State{}) {
		t.Errorf("complete: %+v, %v", s, err)
	}
	if s, err := f.guard.Cancel(ctx, foreign.job.Spec.ID, ""); !errors.Is(err, gq.ErrDenied) || s != (gq.State{}) {
		t.Errorf("cancel: %+v, %v", s, err)
	}
	if events, err := f.guard.History(ctx, foreign.done); !errors.Is(err, gq.ErrDenied) || len(events) > 0 {
		t.Errorf("history: %d events, %v", len(events), err)
	}
	spawns := []gq.Outcome{{Lease: lease, Verdict: gq.VerdictComplete, Spawn: []gq.Spec{{Queue: "own", Type: ""}}}}
	if answers, err := f.guard.Settle(ctx, spawns); err != nil || !errors.Is(answers[0].Err, gq.ErrDenied) {
		t.Errorf("settle with a child that is invalid: %+v, %v", answers, err)
	}
	invented := lease
	last := len(invented.ID) - 1
	invented.ID = invented.ID[:last] + gq.LeaseID("0123456789abcdef"[(lease.ID[last]+1)%16:][:1])
	_, nobody := f.guard.Complete(ctx, gq.LeaseRef{ID: "nobody-has-it"}, nil)
	if s, err := f.guard.Complete(ctx, invented, nil); !errors.Is(err, gq.ErrStaleLease) || !errors.Is(nobody, gq.ErrStaleLease) || s != (gq.State{}) {
		t.Errorf("an invented lease: %+v, %v; one of nobody: %v", s, err, nobody)
	}
	if j, err := f.engine.Get(t.Context(), foreign.job.Spec.ID, 0); err != nil || j.State.Status != gq.StatusRunning {
		t.Errorf("the job is %s, %v", j.State.Status, err)
	}
}
