package engine_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/machine"
)

// TestStaleHolder: a worker loses its job in every possible way and then makes every call
// under the lost lease.
func TestStaleHolder(t *testing.T) {
	spec.Covers(t, "Q-59", "Q-62", "Q-90", "Q-91", "Q-99")
	lose := map[string]func(f *fixture, lease gq.LeaseRef){
		"Reclaimed": func(f *fixture, _ gq.LeaseRef) {
			time.Sleep(6 * time.Minute)
			f.take(as("second"))
		},
		"Expired": func(_ *fixture, _ gq.LeaseRef) { time.Sleep(6 * time.Minute) },
		"Released": func(f *fixture, lease gq.LeaseRef) {
			must[gq.State](f.T)(f.Engine.Release(f.Context(), lease, 0, "x"))
			f.take(as("second"))
		},
		"Settled": func(f *fixture, lease gq.LeaseRef) {
			must[gq.State](f.T)(f.Complete(f.Context(), lease, []byte("good")))
		},
	}
	try := map[string]func(f *fixture, lease gq.LeaseRef) error{
		"Complete": func(f *fixture, lease gq.LeaseRef) error {
			_, err := f.Complete(f.Context(), lease, []byte("stale"))
			return err
		},
		"Fail": func(f *fixture, lease gq.LeaseRef) error {
			_, err := f.Engine.Fail(f.Context(), lease, gq.Failure{Category: gq.CategoryPermanent, Code: "stale"})
			return err
		},
		"Release": func(f *fixture, lease gq.LeaseRef) error {
			_, err := f.Engine.Release(f.Context(), lease, 0, "stale")
			return err
		},
		"Heartbeat": func(f *fixture, lease gq.LeaseRef) error {
			return must[[]gq.LeaseResult](f.T)(f.Heartbeat(f.Context(), []gq.Heartbeat{{Lease: lease, Progress: 0.9}}))[0].Err
		},
		"Checkpoint": func(f *fixture, lease gq.LeaseRef) error {
			return must[[]gq.LeaseResult](f.T)(f.Heartbeat(f.Context(), []gq.Heartbeat{{Lease: lease, Checkpoint: []byte("stale")}}))[0].Err
		},
		"Spawn": func(f *fixture, lease gq.LeaseRef) error {
			return must[[]gq.LeaseResult](f.T)(f.Heartbeat(f.Context(), []gq.Heartbeat{{Lease: lease, Spawn: []gq.Spec{{Type: "child"}}}}))[0].Err
		},
		"Start": func(f *fixture, lease gq.LeaseRef) error {
			_, err := f.Start(f.Context(), lease, 0)
			return err
		},
		"Prepare": func(f *fixture, lease gq.LeaseRef) error {
			_, err := f.Prepare(f.Context(), lease, gq.DetailPreparing)
			return err
		},
		"WrongVersion": func(f *fixture, lease gq.LeaseRef) error {
			lease.Version += 7
			_, err := f.Complete(f.Context(), lease, []byte("stale"))
			return err
		},
		"WrongWorker": func(f *fixture, lease gq.LeaseRef) error {
			lease.Worker = "someone else"
			_, err := f.Complete(f.Context(), lease, []byte("stale"))
			return err
		},
		"Invented": func(f *fixture, _ gq.LeaseRef) error {
			_, err := f.Complete(f.Context(), gq.LeaseRef{ID: "no such lease"}, []byte("stale"))
			return err
		},
		"None": func(f *fixture, _ gq.LeaseRef) error {
			_, err := f.Complete(f.Context(), gq.LeaseRef{}, []byte("stale"))
			return err
		},
	}
	for how, loseIt := range lose {
		t.Run(how, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fixture) {
				must[struct{}](t)(struct{}{}, f.PutPool(t.Context(), gq.Pool{Name: "p", Capacity: 10}))
				f.putQueue(gq.Queue{Name: gq.DefaultQueue, MaxRunning: 1, Pool: "p"})
				id := f.submit(gq.Spec{CostUnits: 10})
				_, lease := f.take(as("first"))
				loseIt(f, lease)
				before, history := f.get(id), must[[]gq.Event](t)(f.History(t.Context(), id))
				for what, tryIt := range try {
					wantErr(t, what, tryIt(f, lease), gq.ErrStaleLease)
				}
				after := f.get(id)
				if diff := cmp.Diff(before, after); diff != "" {
					t.Errorf("a stale holder changed the job:\n%s", diff)
				}
				if now := must[[]gq.Event](t)(f.History(t.Context(), id)); len(now) != len(history) {
					t.Errorf("a stale holder left events: %v", now[len(history):])
				}
				if jobs := must[gq.Page](t)(f.List(t.Context(), gq.Query{})).Jobs; len(jobs) != 1 {
					t.Errorf("%d jobs are stored, want no child", len(jobs))
				}
				// The slot and the capacity still belong to the second worker.
				if how == "Reclaimed" || how == "Released" {
					f.submit(gq.Spec{CostUnits: 10})
					f.claim(0)
				}
			})
		})
	}
}

func TestTwoSteps(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		id := f.submit(gq.Spec{})
		_, lease := f.take(holding)
		f.status(id, gq.StatusClaimed)
		if s := must[gq.State](t)(f.Prepare(t.Context(), lease, gq.DetailPreparing)); s.Detail != gq.DetailPreparing || s.Attempt != 0 {
			t.Errorf("prepared: %s, attempt %d", s.Detail, s.Attempt)
		}
		s := must[gq.State](t)(f.Start(t.Context(), lease, 3*time.Second))
		if s.Status != gq.StatusRunning || s.Attempt != 1 || s.Lease.TTL != 3*time.Second {
			t.Errorf("started: %s, attempt %d, ttl %v", s.Status, s.Attempt, s.Lease.TTL)
		}
		must[gq.State](t)(f.Complete(t.Context(), lease, nil))
	})
}

func TestSettleBatch(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		for range 4 {
			f.submit(gq.Spec{})
		}
		jobs := f.claim(4)
		lease := func(i int) gq.LeaseRef { return jobs[i].State.Lease.Ref() }
		outcomes := []gq.Outcome{
			{Lease: lease(0), Verdict: gq.VerdictComplete, Result: []byte("r")},
			{Lease: lease(1), Verdict: gq.VerdictFail, Failure: gq.Failure{Category: gq.CategoryPermanent, Code: "bad"}},
			{Lease: lease(2)},
			{Lease: lease(3), Verdict: gq.VerdictRelease, Delay: time.Minute, Reason: "snooze"},
			{Lease: gq.LeaseRef{ID: "x"}, Verdict: gq.VerdictComplete},
		}
		for range 2 { // the repeated call has the same results
			answers := must[[]gq.LeaseResult](t)(f.Settle(t.Context(), slices.Clone(outcomes)))
			for i, want := range []gq.Status{gq.StatusCompleted, gq.StatusFailed, 0, gq.StatusRetrying, 0} {
				if got := answers[i].State.Status; got != want || (answers[i].Err != nil) != (want == 0) {
					t.Errorf("answer %d: %s, %v; want %s", i, got, answers[i].Err, want)
				}
			}
			wantErr(t, "no verdict", answers[2].Err, gq.ErrInvalid)
			wantErr(t, "unknown lease", answers[4].Err, gq.ErrStaleLease)
		}
		f.status(jobs[2].State.ID, gq.StatusRunning)
		if j := f.get(jobs[0].State.ID); string(j.Result) != "r" {
			t.Errorf("result %q", j.Result)
		}
	})
}

// A held job may start and end in one commit; a running job just ends.
func TestSettleBegins(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		for range 4 {
			f.submit(gq.Spec{})
		}
		jobs := append(f.claim(3, holding), f.claim(1)...)
		must[gq.State](t)(f.Cancel(t.Context(), jobs[2].State.ID, "no more"))
		outcomes := make([]gq.Outcome, len(jobs))
		for i := range jobs {
			outcomes[i] = gq.Outcome{Lease: jobs[i].State.Lease.Ref(), Verdict: gq.VerdictComplete, Begin: true}
		}
		outcomes[1].Verdict, outcomes[1].Failure = gq.VerdictFail, gq.Failure{Category: gq.CategoryPermanent, Code: "bad"}
		for range 2 { // the repeated call has the same results
			answers := must[[]gq.LeaseResult](t)(f.Settle(t.Context(), slices.Clone(outcomes)))
			for i, want := range []gq.Status{gq.StatusCompleted, gq.StatusFailed, 0, gq.StatusCompleted} {
				s := answers[i].State
				if (answers[i].Err != nil) != (want == 0) || want != 0 && (s.Status != want || s.Attempt != 1 || s.StartedAt.IsZero()) {
					t.Errorf("answer %d: %s, attempt %d, %v; want %s", i, s.Status, s.Attempt, answers[i].Err, want)
				}
			}
			wantErr(t, "canceled while held", answers[2].Err, gq.ErrStaleLease)
		}
		f.status(jobs[2].State.ID, gq.StatusCancelled)
		unbegun := f.submit(gq.Spec{})
		_, lease := f.take(holding)
		_, err := f.Complete(t.Context(), lease, nil)
		wantErr(t, "held and not begun", err, gq.ErrIllegalMove)
		f.status(unbegun, gq.StatusClaimed)
	})
}

func TestHugeResult(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		id := f.submit(gq.Spec{})
		_, lease := f.take()
		_, err := f.Complete(t.Context(), lease, make([]byte, 2<<20))
		wantErr(t, "2 MiB", err, gq.ErrInvalid)
		f.status(id, gq.StatusRunning)
		must[gq.State](t)(f.Complete(t.Context(), lease, make([]byte, 1<<20)))
	})
}

func TestCustomBackoff(t *testing.T) {
	if _, err := engine.New(nil, engine.Options{}); !errors.Is(err, gq.ErrInvalid) {
		t.Errorf("no store: %v", err)
	}
	synctest.Test(t, func(t *testing.T) {
		f := newBackoffFixture(t, map[string]machine.BackoffFunc{
			"squares": func(n int, initial, _ time.Duration) time.Duration { return time.Duration(n*n) * initial },
		})
		p := machine.DefaultPolicy()
		p.MaxAttempts = 10
		p.Backoff = gq.Backoff{Strategy: gq.StrategyCustom, Custom: "squares", Initial: time.Second, Max: time.Hour, Multiplier: 1, Jitter: gq.JitterNone}
		f.submit(gq.Spec{Policy: p})
		for n := 1; n <= 4; n++ {
			_, lease := f.take(waiting(time.Hour))
			s := must[gq.State](t)(f.Engine.Fail(t.Context(), lease, gq.Failure{Category: gq.CategoryTemporary}))
			if got := time.Until(s.RunAt); got != time.Duration(n*n)*time.Second {
				t.Errorf("retry %d waits %v, want %d s", n, got, n*n)
			}
		}
	})
}

// TestCancelRunning follows a cancel from the request to its end; each step is visible.
func TestCancelRunning(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		id := f.submit(gq.Spec{})
		_, lease := f.take()
		s := must[gq.State](t)(f.Cancel(t.Context(), id, "not needed"))
		if s.Status != gq.StatusRunning || !s.Cancellation.Requested() || !s.Cancellation.DeliveredAt.IsZero() {
			t.Errorf("requested: %s %+v", s.Status, s.Cancellation)
		}
		time.Sleep(time.Second)
		a := must[[]gq.LeaseResult](t)(f.Heartbeat(t.Context(), []gq.Heartbeat{{Lease: lease, Progress: -1}}))[0]
		if c := a.State.Cancellation; a.Err != nil || c.DeliveredAt.IsZero() || c.Reason != "not needed" {
			t.Errorf("delivered: %v %+v", a.Err, c)
		}
		time.Sleep(time.Second)
		s = must[gq.State](t)(f.Engine.Fail(t.Context(), lease, gq.Failure{Category: gq.CategoryCancelled}))
		if s.Status != gq.StatusCancelled || s.Cancellation.HonouredAt.Sub(s.Cancellation.RequestedAt) != 2*time.Second {
			t.Errorf("honoured: %s %+v", s.Status, s.Cancellation)
		}
		var seen []gq.EventType
		for _, e := range must[[]gq.Event](t)(f.History(t.Context(), id)) {
			seen = append(seen, e.Type)
		}
		want := []gq.EventType{gq.EventCancelRequested, gq.EventCancelDelivered, gq.EventCancelled}
		if !slices.Equal(seen[len(seen)-3:], want) {
			t.Errorf("history ends with %v, want %v", seen[len(seen)-3:], want)
		}
		if again, err := f.Cancel(t.Context(), id, "again"); err != nil || again.Cancellation.Reason != "not needed" {
			t.Errorf("cancelling twice: %v %+v", err, again.Cancellation)
		}
		done := f.submit(gq.Spec{})
		_, lease = f.take()
		must[gq.State](t)(f.Complete(t.Context(), lease, nil))
		_, err := f.Cancel(t.Context(), done, "late")
		wantErr(t, "cancel of a completed job", err, gq.ErrIllegalMove)
		_, err = f.Cancel(t.Context(), machine.NewJobID([16]byte{1}), "")
		wantErr(t, "cancel of no job", err, gq.ErrNotFound)
	})
}

func TestCancelWhere(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		specs := make([]gq.Spec, 1200)
		for i := range specs {
			specs[i] = gq.Spec{Type: "t", Queue: "q"}
		}
		must[[]gq.SubmitResult](t)(f.SubmitBatch(t.Context(), specs))
		other := f.submit(gq.Spec{Queue: "other"})
		running := f.claim(3, on("q"))
		must[gq.State](t)(f.Complete(t.Context(), running[0].State.Lease.Ref(), nil))
		report := must[gq.CancelReport](t)(f.CancelWhere(t.Context(), gq.Query{Queue: "q"}, "all"))
		if want := (gq.CancelReport{Cancelled: 1197, Requested: 2}); report != want {
			t.Errorf("report %+v, want %+v", report, want)
		}
		f.status(other, gq.StatusScheduled)
		f.status(running[0].State.ID, gq.StatusCompleted)
		if again := must[gq.CancelReport](t)(f.CancelWhere(t.Context(), gq.Query{Queue: "q"}, "all")); again != (gq.CancelReport{}) {
			t.Errorf("again: %+v", again)
		}
		if none := must[gq.CancelReport](t)(f.CancelWhere(t.Context(), gq.Query{Statuses: []gq.Status{gq.StatusCompleted}}, "")); none != (gq.CancelReport{}) {
			t.Errorf("finished ones: %+v", none)
		}
	})
}

// TestSpawn: a job spawns children while it runs and when it ends, and another job waits
// for them.
func TestSpawn(t *testing.T) {
	spec.Covers(t, "J-78", "J-79")
	bubble(t, func(t *testing.T, f *fixture) {
		parent := f.submit(gq.Spec{Type: "parent"})
		_, lease := f.take()
		children := []gq.Spec{{Type: "child"}, {Type: "child"}, {Type: "child"}}
		a := must[[]gq.LeaseResult](t)(f.Heartbeat(t.Context(), []gq.Heartbeat{{Lease: lease, Progress: 0.5, Checkpoint: []byte("c"), Spawn: children}}))[0]
		if a.Err != nil || len(a.Spawned) != 3 {
			t.Fatalf("spawn: %v, %d children", a.Err, len(a.Spawned))
		}
		join := gq.Spec{Type: "join"}
		for _, c := range a.Spawned {
			if d := f.get(c.ID()).Spec.DependsOn; len(d) != 1 || d[0] != (gq.Dependency{Kind: gq.DependencyFanOut, Job: parent}) {
				t.Errorf("a child depends on %v", d)
			}
			join.DependsOn = append(join.DependsOn, gq.Dependency{Kind: gq.DependencyFanIn, Job: c.ID()})
		}
		outcome := gq.Outcome{Lease: lease, Verdict: gq.VerdictComplete, Spawn: []gq.Spec{join}}
		ended := must[[]gq.LeaseResult](t)(f.Settle(t.Context(), []gq.Outcome{outcome}))[0]
		if ended.Err != nil || len(ended.Spawned) != 1 {
			t.Fatalf("complete: %v, %d children", ended.Err, len(ended.Spawned))
		}
		if again := must[[]gq.LeaseResult](t)(f.Settle(t.Context(), []gq.Outcome{outcome}))[0]; again.Err != nil || len(again.Spawned) != 0 {
			t.Errorf("the same call again: %v, %d children", again.Err, len(again.Spawned))
		}
		running := f.claim(3) // all at once
		for i, j := range running {
			f.status(ended.Spawned[0].ID(), gq.StatusPending)
			if i == 1 {
				must[gq.State](t)(f.Engine.Fail(t.Context(), j.State.Lease.Ref(), gq.Failure{Category: gq.CategoryPermanent}))
				continue
			}
			must[gq.State](t)(f.Complete(t.Context(), j.State.Lease.Ref(), nil))
		}
		j, lease := f.take(waiting(time.Minute))
		if j.Spec.Type != "join" {
			t.Fatalf("claimed a %s, want the join", j.Spec.Type)
		}
		must[gq.State](t)(f.Complete(t.Context(), lease, nil))
		f.claim(0)
	})
}

func TestSpawnFaults(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		parent := f.submit(gq.Spec{Type: "parent"})
		_, lease := f.take()
		bad := gq.Outcome{Lease: lease, Verdict: gq.VerdictComplete, Spawn: []gq.Spec{{Type: "fine"}, {ID: machine.NewJobID([16]byte{1})}, {Type: "fine", CostUnits: -1}}}
		a := must[[]gq.LeaseResult](t)(f.Settle(t.Context(), []gq.Outcome{bad}))[0]
		wantErr(t, "bad children", a.Err, gq.ErrInvalid)
		if got := fields(a.Err); !slices.Contains(got, "spawn[1].id") || !slices.Contains(got, "spawn[1].type") {
			t.Errorf("faults %v", got)
		}
		bad.Spawn = bad.Spawn[2:]
		a = must[[]gq.LeaseResult](t)(f.Settle(t.Context(), []gq.Outcome{bad}))[0]
		if got := fields(a.Err); !slices.Contains(got, "spawn[0].cost_units") {
			t.Errorf("faults %v (%v)", got, a.Err)
		}
		f.status(parent, gq.StatusRunning)
		if jobs := must[gq.Page](t)(f.List(t.Context(), gq.Query{})).Jobs; len(jobs) != 1 {
			t.Errorf("%d jobs are stored", len(jobs))
		}
	})
}
