package postgres_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/postgres"
)

// furnish puts one of everything into a store: jobs in every status, with keys,
// dependencies, results, checkpoints, changed metadata, foreign leases, limits,
// documents.
func furnish(t *testing.T, s *postgres.Store) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.PutPool(t.Context(), gq.Pool{Name: "gpus", Capacity: 70}))
	fair := machine.NewQueue("fair")
	fair.Fair = true
	must(s.PutQueue(t.Context(), fair))
	shared := machine.NewQueue("shared")
	shared.Pool, shared.MaxRunning = "gpus", 5
	must(s.PutQueue(t.Context(), shared))
	_, err := s.PutDocs(t.Context(), []store.Doc{{Kind: "thing", Name: "one", Data: []byte("{}")}})
	must(err)

	apply := func(r store.Ref, u store.Update) {
		t.Helper()
		u.Ref = r
		out, err := s.Update(t.Context(), []store.Update{u})
		must(err)
		must(out[0].Err)
	}
	claim := func(queue string, n int) []gq.Job {
		t.Helper()
		out, err := s.Claim(t.Context(), []store.Claim{claimFrom(queue, n)})
		must(err)
		if len(out[0].Jobs) != n {
			t.Fatalf("claimed %d jobs of %s, want %d", len(out[0].Jobs), queue, n)
		}
		return out[0].Jobs
	}
	keyed := newSpec("work")
	keyed.Key = gq.IdempotencyKey{Scope: "s", Name: "once", Fingerprint: 7}
	keyed.Payload = gq.Payload{Data: []byte("payload"), ContentType: "text/plain"}
	specs := []gq.Spec{keyed}
	for range 9 {
		specs = append(specs, newSpec("work"))
	}
	mustInsert(t, s, specs...)
	held := claim("work", 6)
	for i, j := range held[:2] {
		apply(store.Ref{Lease: j.State.Lease.ID}, store.Update{Result: []byte{byte(i), 2}, Apply: completing(j).Apply})
	}
	for i, f := range []gq.Failure{{Category: gq.CategoryTemporary, Message: "again"}, {Category: gq.CategoryPermanent, Message: "never"}} {
		j := held[2+i]
		apply(store.Ref{Lease: j.State.Lease.ID}, store.Update{Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
			return machine.Fail(s, j.State.Lease.Ref(), f, machine.Draw{U: 0.5}, now)
		}})
	}
	apply(store.Ref{Lease: held[4].State.Lease.ID}, store.Update{Checkpoint: []byte("half"), Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		return machine.Heartbeat(s, held[4].State.Lease.Ref(), machine.Report{CheckpointBytes: 4}, now)
	}})
	cancelled := specs[9]
	apply(store.Ref{Job: cancelled.ID}, store.Update{Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		return machine.Cancel(s, "not needed", now)
	}})
	meta := specs[8].Metadata
	meta.Priority = gq.PriorityHigh
	apply(store.Ref{Job: specs[8].ID}, store.Update{Metadata: &meta, Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		return machine.Update(s, gq.PriorityHigh, now)
	}})
	child, later := newSpec("work", gq.Dependency{Kind: gq.DependencyAfter, Job: specs[8].ID}), newSpec("later")
	later.RunAt = still{}.Now().Add(24 * time.Hour)
	foreign := newSpec("foreign")
	mustInsert(t, s, child, later, foreign, newSpec("fair"), newSpec("shared"))
	apply(store.Ref{Job: foreign.ID}, store.Update{Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		return machine.Claim(s, machine.Grant{Lease: "somebody-elses-lease", Worker: "w", Start: true}, now)
	}})
	claim("shared", 1)
}

// takeInventory returns everything that can be read from a store, as text.
func takeInventory(t *testing.T, s *postgres.Store) string {
	t.Helper()
	type inventory struct {
		Jobs   []gq.Job
		Events []gq.Event
		Counts []gq.Count
		Queues []gq.Queue
		Pools  []gq.Pool
		Docs   []store.Doc
	}
	var all inventory
	var err error
	check := func() {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	page, err := s.List(t.Context(), gq.Query{OldestFirst: true, Limit: 1000})
	check()
	var refs []store.Ref
	for _, j := range page.Jobs {
		refs = append(refs, store.Ref{Job: j.State.ID})
	}
	found, err := s.Get(t.Context(), refs, gq.WithPayload|gq.WithResult|gq.WithCheckpoint)
	check()
	for _, f := range found {
		if f.Err != nil {
			t.Fatal(f.Err)
		}
		all.Jobs = append(all.Jobs, f.Job)
	}
	all.Events, err = s.Events(t.Context(), 0, 10_000)
	check()
	for _, j := range all.Jobs {
		history, err := s.History(t.Context(), j.State.ID)
		if err != nil || len(history) == 0 {
			t.Fatalf("the history of job %s has %d events: %v", j.State.ID, len(history), err)
		}
	}
	all.Counts, err = s.Counts(t.Context())
	check()
	all.Queues, err = s.Queues(t.Context(), store.QueueQuery{})
	check()
	all.Pools, err = s.Pools(t.Context())
	check()
	all.Docs, err = s.Docs(t.Context(), "thing", "", 10)
	check()
	text, err := json.MarshalIndent(all, "", " ")
	check()
	return string(text)
}

// still is a clock that never advances.
type still struct{}

func (still) Now() time.Time { return time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC) }
