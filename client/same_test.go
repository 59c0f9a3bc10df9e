package client_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/client"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/worker"
)

// full is what the engine and the client have in common.
type full interface {
	worker.Queue
	Submit(ctx context.Context, s gq.Spec) (gq.SubmitResult, error)
	Enqueue(ctx context.Context, s gq.Spec) (gq.JobID, error)
	SubmitBatch(ctx context.Context, specs []gq.Spec) ([]gq.SubmitResult, error)
	SubmitGraph(ctx context.Context, drafts []gq.GraphJob) ([]gq.SubmitResult, error)
	Get(ctx context.Context, id gq.JobID, parts gq.Parts) (gq.Job, error)
	List(ctx context.Context, q gq.Query) (gq.Page, error)
	UpdateMetadata(ctx context.Context, id gq.JobID, p gq.MetadataPatch) (gq.Job, error)
	Cancel(ctx context.Context, id gq.JobID, reason string) (gq.State, error)
	CancelWhere(ctx context.Context, q gq.Query, reason string) (gq.CancelReport, error)
	Edit(ctx context.Context, id gq.JobID, change gq.JobEdit) (gq.SubmitResult, error)
	Replay(ctx context.Context, id gq.JobID) (gq.SubmitResult, error)
	Purge(ctx context.Context, id gq.JobID) error
	PurgeWhere(ctx context.Context, q gq.Query) (int, error)
	Wait(ctx context.Context, id gq.JobID) (gq.Job, error)
	Explain(ctx context.Context, id gq.JobID) (gq.Explanation, error)
	History(ctx context.Context, id gq.JobID) ([]gq.Event, error)
	Counts(ctx context.Context, queues ...string) ([]gq.Count, error)
	Stats(ctx context.Context) (gq.Stats, error)
	Start(ctx context.Context, lease gq.LeaseRef, ttl time.Duration) (gq.State, error)
	Complete(ctx context.Context, lease gq.LeaseRef, result []byte) (gq.State, error)
	Fail(ctx context.Context, lease gq.LeaseRef, f gq.Failure) (gq.State, error)
	Release(ctx context.Context, lease gq.LeaseRef, delay time.Duration, reason string) (gq.State, error)
	Workers(ctx context.Context) ([]gq.LiveWorker, error)
	WorkerStopped(ctx context.Context, worker string) error
	Queues(ctx context.Context) ([]gq.Queue, error)
	Queue(ctx context.Context, name string) (gq.Queue, error)
	PutQueue(ctx context.Context, q gq.Queue) (gq.Queue, error)
	ChangeQueue(ctx context.Context, name string, change func(*gq.Queue)) (gq.Queue, error)
	Pause(ctx context.Context, queue string) (gq.Queue, error)
	Resume(ctx context.Context, queue string) (gq.Queue, error)
	Pools(ctx context.Context) ([]gq.Pool, error)
	PutPool(ctx context.Context, p gq.Pool) error
	Schedule(ctx context.Context, name string) (gq.Schedule, error)
	Schedules(ctx context.Context) ([]gq.Schedule, error)
	PutSchedule(ctx context.Context, s gq.Schedule) (gq.Schedule, error)
	DeclareSchedule(ctx context.Context, s gq.Schedule) (gq.Schedule, error)
	PauseSchedule(ctx context.Context, name string) (gq.Schedule, error)
	ResumeSchedule(ctx context.Context, name string) (gq.Schedule, error)
	TriggerSchedule(ctx context.Context, name string) (gq.Firing, error)
	BackfillSchedule(ctx context.Context, b gq.Backfill) (gq.BackfillReport, error)
	DeleteSchedule(ctx context.Context, name string) error
}

var (
	_ full = (*engine.Engine)(nil)
	_ full = (*client.Client)(nil)
)

// same compares a result of the client with the engine's. What a store keeps for itself
// is not sent.
func same[T any](t *testing.T, what string, near, far T) {
	t.Helper()
	shown := func(a, b gq.IdempotencyKey) bool { // servers do not show the client's own keys
		return machine.ShownKey(&gq.Spec{Key: a}) == machine.ShownKey(&gq.Spec{Key: b})
	}
	if diff := cmp.Diff(near, far, cmpopts.EquateEmpty(), cmp.Comparer(shown), cmpopts.IgnoreFields(gq.State{}, "Settled", "PreviousLease", "PreviousDigest"),
		cmpopts.IgnoreFields(gq.Reason{}, "Summary"), cmpopts.IgnoreFields(gq.Node{}, "LastSeen")); diff != "" { // these tell when they were asked
		t.Errorf("%s: engine (-), client (+):\n%s", what, diff)
	}
}

// All reads return the same through the client.
func TestReadsAreTheSame(t *testing.T) {
	f := serve(t)
	ctx, e := t.Context(), f.engine
	policy := gq.PresetAI.Policy()
	policy.MaxAttempts = 9
	must(f.PutQueue(ctx, gq.Queue{Name: "q", Policy: policy, MaxRunning: 5, Rate: gq.Rate{Count: 100, Per: time.Second, Burst: 3}, Fair: true}))(t)
	spec := gq.Spec{
		Type: "work", Queue: "q", Payload: gq.Payload{Data: []byte{0, 255}, ContentType: "application/octet-stream"},
		Key: gq.IdempotencyKey{Name: "k"}, CostUnits: 3, Requires: []string{"gpu"}, LimitKey: "l", Weight: 2, FairKey: "f", Requester: "r", Tier: "t", MaxFee: 5,
		Attributes: map[string]string{"a": "b"},
		Metadata:   gq.Metadata{Priority: gq.PriorityHigh, Tags: map[string]string{"c": "d"}, CorrelationID: "e", CallbackURL: "https://example.com/"},
	}
	submitted := must(f.Submit(ctx, spec))(t)
	id := submitted.ID()
	same(t, "submit", must(e.Get(ctx, id, 0))(t).State, submitted.State)
	again := must(f.Submit(ctx, spec))(t)
	if !again.Existing || !again.Same || again.ID() != id {
		t.Errorf("submitted again: %+v", again)
	}
	other := f.job()
	later := f.job(func(s *gq.Spec) { s.RunAt = time.Now().Add(time.Hour).UTC().Truncate(time.Second) })
	dependent := f.job(func(s *gq.Spec) { s.DependsOn = []gq.Dependency{{Kind: gq.DependencyAfter, Job: other}} })

	job := must(f.UpdateMetadata(ctx, id, gq.MetadataPatch{Priority: gq.PriorityCritical, SetTags: map[string]string{"x": "y"}, DropTags: []string{"c"}}))(t)
	same(t, "update", must(e.Get(ctx, id, 0))(t), job)

	claimed := must(f.Claim(ctx, gq.ClaimRequest{Worker: "w", Queues: []string{"q"}, Offers: []string{"gpu"}, N: 3, TTL: time.Minute}))(t)
	if len(claimed) != 1 {
		t.Fatalf("claimed %d jobs", len(claimed))
	}
	same(t, "claim", must(e.Get(ctx, id, gq.WithPayload))(t), claimed[0])
	lease := claimed[0].State.Lease.Ref()
	beat := must(f.Heartbeat(ctx, []gq.Heartbeat{{Lease: lease, Progress: 0.5, Note: "half", Checkpoint: []byte("cp"), Spawn: []gq.Spec{{Type: "child"}}}}))(t)
	if beat[0].Err != nil || len(beat[0].Spawned) != 1 {
		t.Fatalf("%+v", beat)
	}
	same(t, "heartbeat", must(e.Get(ctx, id, 0))(t).State, beat[0].State)
	same(t, "spawned", must(e.Get(ctx, beat[0].Spawned[0].ID(), 0))(t).State, beat[0].Spawned[0].State)

	read := func() {
		t.Helper()
		all := gq.WithPayload | gq.WithResult | gq.WithCheckpoint
		for _, id := range []gq.JobID{id, other, later, dependent} {
			same(t, "get", must(e.Get(ctx, id, all))(t), must(f.Get(ctx, id, all))(t))
			same(t, "get bare", must(e.Get(ctx, id, 0))(t), must(f.Get(ctx, id, 0))(t))
			same(t, "history", must(e.History(ctx, id))(t), must(f.History(ctx, id))(t))
			same(t, "explain", must(e.Explain(ctx, id))(t), must(f.Explain(ctx, id))(t))
		}
		for _, q := range []gq.Query{{}, {Queue: "q"}, {Statuses: []gq.Status{gq.StatusRunning, gq.StatusDelayed}, OldestFirst: true}, {Limit: 2}, {CreatedAfter: time.Now()}, {Types: []string{"child"}}, {Tags: map[string]string{"x": "y"}}} {
			near, far := must(e.List(ctx, q))(t), must(f.List(ctx, q))(t)
			same(t, "list", near, far)
			if q.Cursor = near.Next; q.Cursor != "" {
				same(t, "next page", must(e.List(ctx, q))(t), must(f.List(ctx, q))(t))
			}
		}
		same(t, "counts", must(e.Counts(ctx))(t), must(f.Counts(ctx))(t))
		same(t, "counts of one", must(e.Counts(ctx, "q"))(t), must(f.Counts(ctx, "q"))(t))
		same(t, "stats", must(e.Stats(ctx))(t), must(f.Stats(ctx))(t))
		same(t, "queues", must(e.Queues(ctx))(t), must(f.Queues(ctx))(t))
		for _, limit := range []int{0, 1, 2} {
			same(t, "a page of queues", must(e.QueuesAfter(ctx, "a", limit))(t), must(f.QueuesAfter(ctx, "a", limit))(t))
		}
		same(t, "queue", must(e.Queue(ctx, "q"))(t), must(f.Queue(ctx, "q"))(t))
		same(t, "pools", must(e.Pools(ctx))(t), must(f.Pools(ctx))(t))
		same(t, "inbox", must(e.Inbox(ctx, "", 0))(t), must(f.Inbox(ctx, "", 0))(t))
		same(t, "schedules", must(e.Schedules(ctx))(t), must(f.Schedules(ctx))(t))
		same(t, "workers", must(e.Workers(ctx))(t), must(f.Workers(ctx))(t))
	}
	read()

	must(f.Client.Fail(ctx, lease, gq.Failure{Category: gq.CategoryPermanent, Code: "bad", Message: "it is \xff bad"}))(t)
	read()
	failed := must(f.Wait(ctx, id))(t)
	same(t, "wait", must(e.Wait(ctx, id))(t), failed)
	if failed.State.Failure == nil || failed.State.Failure.Message != "it is \uFFFD bad" {
		t.Errorf("failure %+v", failed.State.Failure)
	}
	replayed := must(f.Replay(ctx, id))(t)
	same(t, "replay", must(e.Get(ctx, replayed.ID(), 0))(t).State, replayed.State)
	edited := must(f.Edit(ctx, replayed.ID(), gq.JobEdit{Queue: "elsewhere", Payload: &gq.Payload{Data: []byte("{}")}, RunAt: time.Now().Add(time.Hour)}))(t)
	same(t, "edit", must(f.Get(ctx, edited.ID(), gq.WithPayload))(t), must(e.Get(ctx, edited.ID(), gq.WithPayload))(t))
	same(t, "the job before the edit", must(f.Get(ctx, replayed.ID(), 0))(t), must(e.Get(ctx, replayed.ID(), 0))(t))

	if err := f.PutPool(ctx, gq.Pool{Name: "p", Capacity: 10}); err != nil {
		t.Fatal(err)
	}
	for _, change := range []func() (gq.Queue, error){
		func() (gq.Queue, error) { return f.Pause(ctx, "q") },
		func() (gq.Queue, error) { return f.Resume(ctx, "q") },
		func() (gq.Queue, error) { return f.PutQueue(ctx, gq.Queue{Name: "q", Pool: "p", KeyLimit: 4}) },
	} {
		far := must(change())(t)
		same(t, "changed queue", must(e.Queue(ctx, "q"))(t), far)
	}
	set := must(f.SetQueueKey(ctx, gq.QueueKey{Queue: "q", Key: "k", Limit: 3, Rate: gq.Rate{Count: 1, Per: time.Second, Burst: 2}}))(t)
	keys := must(e.QueueKeys(ctx, "q", "", 0))(t)
	same(t, "keys", keys, must(f.QueueKeys(ctx, "q", "", 0))(t))
	same(t, "limits of a key", keys[0], set)
	hour := gq.HistoryQuery{Queues: []string{"q"}, Since: time.Now().Add(-time.Hour), Until: time.Now(), Step: 5 * time.Minute}
	same(t, "history", must(e.QueueHistory(ctx, hour))(t), must(f.QueueHistory(ctx, hour))(t))
	same(t, "activity", must(e.QueueActivity(ctx, "q", "none"))(t), must(f.QueueActivity(ctx, "q", "none"))(t))
	if err := f.UnsetQueueKey(ctx, "q", "k"); err != nil {
		t.Fatal(err)
	}
	for _, s := range []gq.Schedule{
		{Name: "s", Cron: "0 3 * * *", TimeZone: "Europe/Berlin", Missed: gq.MissedAll, MissedLimit: 5, Template: gq.Spec{Type: "nightly", Queue: "q"}},
		{Name: "s", Every: time.Hour, Template: gq.Spec{Type: "hourly", Policy: policy}},
	} {
		far := must(f.PutSchedule(ctx, s))(t)
		near := must(e.Schedule(ctx, "s"))(t)
		same(t, "read schedule", near, must(f.Schedule(ctx, "s"))(t))
		far.Template = near.Template // stored with defaults filled in
		same(t, "schedule", near, far)
	}
	same(t, "paused schedule", must(f.PauseSchedule(ctx, "s"))(t), must(e.Schedule(ctx, "s"))(t))
	same(t, "resumed schedule", must(f.ResumeSchedule(ctx, "s"))(t), must(e.Schedule(ctx, "s"))(t))
	read()
	if err := f.DeleteSchedule(ctx, "s"); err != nil {
		t.Fatal(err)
	}
	if report := must(f.CancelWhere(ctx, gq.Query{Queue: gq.DefaultQueue}, "enough"))(t); report.Cancelled < 3 {
		t.Errorf("%+v", report)
	}
	read()
}

func TestWorkersVerbs(t *testing.T) {
	f := serve(t)
	ctx := t.Context()
	drafts := []gq.GraphJob{
		{Ref: "a", Spec: gq.Spec{Type: "work"}},
		{Ref: "b", Spec: gq.Spec{Type: "work"}, Needs: []gq.Dependency{{Kind: gq.DependencyAfter, Ref: "a"}}},
	}
	graph := must(f.SubmitGraph(ctx, drafts))(t)
	if len(graph) != 2 || graph[0].State.Status != gq.StatusScheduled || graph[1].State.Status != gq.StatusPending {
		t.Fatalf("%+v", graph)
	}
	held := must(f.Claim(ctx, gq.ClaimRequest{Worker: "w", Hold: true, N: 1}))(t)
	if len(held) != 1 || held[0].State.Status != gq.StatusClaimed {
		t.Fatalf("%+v", held)
	}
	lease := held[0].State.Lease.Ref()
	if s := must(f.Start(ctx, lease, time.Minute))(t); s.Status != gq.StatusRunning || s.Lease.TTL != time.Minute {
		t.Errorf("%+v", s)
	}
	if s := must(f.Release(ctx, lease, time.Millisecond, "not now"))(t); s.Status != gq.StatusRetrying && s.Status != gq.StatusScheduled {
		t.Errorf("%+v", s)
	}
	job := f.claim()
	if job.Spec.ID != graph[0].ID() || job.State.Version <= lease.Version {
		t.Fatalf("%+v", job)
	}
	if _, err := f.Complete(ctx, lease, nil); !errors.Is(err, gq.ErrStaleLease) {
		t.Errorf("an old lease: %v", err)
	}
	if s := must(f.Complete(ctx, job.State.Lease.Ref(), []byte(`"done"`)))(t); s.Status != gq.StatusCompleted {
		t.Errorf("%+v", s)
	}
	same(t, "result", `"done"`, string(must(f.Wait(ctx, job.Spec.ID))(t).Result))
	if s := must(f.Cancel(ctx, graph[1].ID(), "no \xff more"))(t); s.Status != gq.StatusCancelled {
		t.Errorf("%+v", s)
	}
}

// A call that the engine rejects is rejected by the client with the same error and text.
func TestErrorsAreTheSame(t *testing.T) {
	f := serve(t)
	ctx := t.Context()
	id := f.job()
	unknown := machine.NewJobID([16]byte{1})
	bad := machine.DefaultPolicy()
	bad.MaxAttempts, bad.LeaseTTL, bad.OnLoss = 0, -1, 0
	must(f.PutQueue(ctx, gq.Queue{Name: "full", MaxDepth: 1}))(t)
	f.job(func(s *gq.Spec) { s.Queue = "full" })
	taken := f.job(func(s *gq.Spec) { s.Key.Name = "taken" })
	f.job() // so that a claim of none would find something
	for name, call := range map[string]func(q full) error{
		"claim none": func(q full) error { _, err := q.Claim(ctx, gq.ClaimRequest{Worker: "w"}); return err },
		"taken key": func(q full) error {
			got, err := q.Enqueue(ctx, gq.Spec{Type: "work", Key: gq.IdempotencyKey{Name: "taken"}, Payload: gq.Payload{Data: []byte(`"other"`)}})
			if got != taken || !errors.Is(err, gq.ErrKeyReused) {
				t.Errorf("a key that job %s has was answered with %s, %v", taken, got, err)
			}
			return err
		},
		"get":          func(q full) error { _, err := q.Get(ctx, unknown, 0); return err },
		"history":      func(q full) error { _, err := q.History(ctx, unknown); return err },
		"explain":      func(q full) error { _, err := q.Explain(ctx, unknown); return err },
		"wait":         func(q full) error { _, err := q.Wait(ctx, unknown); return err },
		"cancel":       func(q full) error { _, err := q.Cancel(ctx, unknown, ""); return err },
		"edit":         func(q full) error { _, err := q.Edit(ctx, unknown, gq.JobEdit{Queue: "q"}); return err },
		"edit nothing": func(q full) error { _, err := q.Edit(ctx, id, gq.JobEdit{}); return err },
		"replay":       func(q full) error { _, err := q.Replay(ctx, id); return err },
		"update": func(q full) error {
			_, err := q.UpdateMetadata(ctx, unknown, gq.MetadataPatch{Priority: gq.PriorityHigh})
			return err
		},
		"bad patch": func(q full) error {
			_, err := q.UpdateMetadata(ctx, id, gq.MetadataPatch{SetTags: map[string]string{"": "x"}})
			return err
		},
		"submit": func(q full) error { _, err := q.Submit(ctx, gq.Spec{Queue: "a b", Policy: bad, Delay: -1}); return err },
		"own id": func(q full) error { _, err := q.Submit(ctx, gq.Spec{ID: unknown, Type: "t"}); return err },
		"full":   func(q full) error { _, err := q.Enqueue(ctx, gq.Spec{Type: "t", Queue: "full"}); return err },
		"large": func(q full) error {
			_, err := q.Enqueue(ctx, gq.Spec{Type: "t", Payload: gq.Payload{Data: make([]byte, 2<<20)}})
			return err
		},
		"text": func(q full) error { _, err := q.Submit(ctx, gq.Spec{Type: "\xff"}); return err },
		"unknown dependency": func(q full) error {
			_, err := q.Submit(ctx, gq.Spec{Type: "t", DependsOn: []gq.Dependency{{Kind: gq.DependencyAfter, Job: unknown}}})
			return err
		},
		"dependency without a kind": func(q full) error {
			_, err := q.Submit(ctx, gq.Spec{Type: "t", DependsOn: []gq.Dependency{{Job: id}}})
			return err
		},
		"graph": func(q full) error { _, err := q.SubmitGraph(ctx, nil); return err },
		"cycle": func(q full) error {
			_, err := q.SubmitGraph(ctx, []gq.GraphJob{{Ref: "a", Spec: gq.Spec{Type: "t"}, Needs: []gq.Dependency{{Kind: gq.DependencyAfter, Ref: "b"}}}})
			return err
		},
		"list":   func(q full) error { _, err := q.List(ctx, gq.Query{Limit: -1}); return err },
		"types":  func(q full) error { _, err := q.List(ctx, gq.Query{Types: []string{"\x00"}}); return err },
		"cursor": func(q full) error { _, err := q.List(ctx, gq.Query{Cursor: "nonsense"}); return err },
		"claim": func(q full) error {
			_, err := q.Claim(ctx, gq.ClaimRequest{N: 2000, Queues: []string{""}, Wait: -1})
			return err
		},
		"start":      func(q full) error { _, err := q.Start(ctx, gq.LeaseRef{ID: "x"}, 0); return err },
		"complete":   func(q full) error { _, err := q.Complete(ctx, gq.LeaseRef{ID: "x"}, nil); return err },
		"fail":       func(q full) error { _, err := q.Fail(ctx, gq.LeaseRef{}, gq.Failure{}); return err },
		"release":    func(q full) error { _, err := q.Release(ctx, gq.LeaseRef{ID: "x"}, 0, ""); return err },
		"no verdict": func(q full) error { a, err := q.Settle(ctx, []gq.Outcome{{}}); return errors.Join(err, a[0].Err) },
		"stopped":    func(q full) error { return q.WorkerStopped(ctx, "") },
		"resume":     func(q full) error { _, err := q.Resume(ctx, "nobody's"); return err },
		"queue":      func(q full) error { _, err := q.Queue(ctx, "nobody's"); return err },
		"put queue": func(q full) error {
			_, err := q.PutQueue(ctx, gq.Queue{Name: "q", Policy: bad, MaxRunning: -1, Pool: "none"})
			return err
		},
		"put pool": func(q full) error { return q.PutPool(ctx, gq.Pool{Name: "a b", Capacity: -1}) },
		"schedule": func(q full) error { _, err := q.Schedule(ctx, "nobody's"); return err },
		"put schedule": func(q full) error {
			_, err := q.PutSchedule(ctx, gq.Schedule{Name: "s", Cron: "61 * * * *", TimeZone: "Mars"})
			return err
		},
		"pause schedule": func(q full) error { _, err := q.PauseSchedule(ctx, "nobody's"); return err },
		"trigger":        func(q full) error { _, err := q.TriggerSchedule(ctx, "nobody's"); return err },
		"backfill": func(q full) error {
			_, err := q.BackfillSchedule(ctx, gq.Backfill{Schedule: "s", Limit: -1})
			return err
		},
		"delete": func(q full) error { return q.DeleteSchedule(ctx, "nobody's") },
	} {
		t.Run(name, func(t *testing.T) {
			near, far := call(f.engine), call(f.Client)
			if near == nil || far == nil {
				t.Fatalf("engine %v, client %v", near, far)
			}
			words := name == "text" || near.Error() == far.Error() // unsendable requests are rejected by the client
			if errs.KindOf(near) != errs.KindOf(far) || errs.CodeOf(near) != errs.CodeOf(far) || !words {
				t.Errorf("engine %s: %v\nclient %s: %v", errs.CodeOf(near), near, errs.CodeOf(far), far)
			}
			same(t, "faults", errs.FaultsOf(near), errs.FaultsOf(far))
		})
	}
}

// Large batches are sent in several requests, and invalid items affect only themselves.
func TestLargeBatches(t *testing.T) {
	f := serve(t)
	ctx := t.Context()
	specs := make([]gq.Spec, 2500)
	for i := range specs {
		specs[i] = gq.Spec{Type: "work", Payload: gq.Payload{Data: fmt.Appendf(nil, "%d", i)}}
	}
	specs[7].Type, specs[1700].Type = "\xff", ""
	out := must(f.SubmitBatch(ctx, specs))(t)
	for i := range out {
		if bad := i == 7 || i == 1700; bad != errors.Is(out[i].Err, gq.ErrInvalid) || bad != out[i].ID().IsZero() {
			t.Fatalf("submission %d: %+v", i, out[i])
		}
	}
	var outcomes []gq.Outcome
	var beats []gq.Heartbeat
	for len(outcomes) < 2498 {
		jobs := must(f.Claim(ctx, gq.ClaimRequest{Worker: "w", N: 1000}))(t)
		for i := range jobs {
			outcomes = append(outcomes, gq.Outcome{Lease: jobs[i].State.Lease.Ref(), Verdict: gq.VerdictComplete, Result: jobs[i].Spec.Payload.Data})
			beats = append(beats, gq.Heartbeat{Lease: jobs[i].State.Lease.Ref(), Progress: -1})
		}
	}
	for i, a := range must(f.Heartbeat(ctx, beats))(t) {
		if a.Err != nil || a.State.Lease.ID != beats[i].Lease.ID {
			t.Fatalf("beat %d: %+v", i, a)
		}
	}
	for i, a := range must(f.Settle(ctx, outcomes))(t) {
		if a.Err != nil || a.State.Status != gq.StatusCompleted || a.State.Lease.ID != outcomes[i].Lease.ID {
			t.Fatalf("outcome %d: %+v", i, a)
		}
	}
	if answers := must(f.Settle(ctx, nil))(t); len(answers) != 0 {
		t.Errorf("%v", answers)
	}
}

// Results of any size that the store accepts arrive, and one that fits into no message is
// rejected without affecting the others.
func TestLargeResults(t *testing.T) {
	f := serve(t, func(f *fixture) {
		f.limits = gq.Limits{PayloadBytes: 6 << 20, ResultBytes: 6 << 20, CheckpointBytes: 6 << 20}
	})
	ctx := t.Context()
	large := gq.Payload{Data: make([]byte, 6<<20), ContentType: "x"}
	specs := []gq.Spec{{Type: "work", Payload: large}, {Type: "work", Payload: large}, {Type: "work"}}
	for _, s := range must(f.SubmitBatch(ctx, specs))(t) {
		if s.Err != nil {
			t.Fatal(s.Err)
		}
	}
	jobs := must(f.Claim(ctx, gq.ClaimRequest{Worker: "w", N: 3}))(t)
	if len(jobs) != 3 || len(jobs[1].Spec.Payload.Data) != 6<<20 {
		t.Fatalf("%d jobs", len(jobs))
	}
	answers := must(f.Settle(ctx, []gq.Outcome{
		{Lease: jobs[0].State.Lease.Ref(), Verdict: gq.VerdictComplete, Result: large.Data},
		{Lease: jobs[1].State.Lease.Ref(), Verdict: gq.VerdictComplete, Result: make([]byte, 7<<20-1<<9)},
		{Lease: jobs[2].State.Lease.Ref(), Verdict: gq.VerdictComplete},
	}))(t)
	if answers[0].Err != nil || !errors.Is(answers[1].Err, gq.ErrInvalid) || answers[2].Err != nil {
		t.Errorf("%v, %v, %v", answers[0].Err, answers[1].Err, answers[2].Err)
	}
	_, err := f.Settle(ctx, []gq.Outcome{{Lease: jobs[1].State.Lease.Ref(), Verdict: gq.VerdictComplete, Result: make([]byte, 20<<20)}})
	if !errors.Is(err, gq.ErrInvalid) {
		t.Errorf("a result that no message can hold: %v", err)
	}
	if _, err := f.Complete(ctx, jobs[1].State.Lease.Ref(), nil); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}
