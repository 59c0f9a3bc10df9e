package access

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
)

// Items of a batch are checked one by one; no foreign item slips through.
func TestItems(t *testing.T) {
	f := newFixture(t)
	own, foreign := f.target("own"), f.target("foreign")
	ctx := f.as("submit,work,read@own")

	out, err := f.guard.SubmitBatch(ctx, []gq.Spec{
		{Queue: "own", Type: "t"},
		{Queue: "foreign", Type: "t"},
		{Type: "t"}, // the default queue
		{Queue: "own", Type: "t", DependsOn: []gq.Dependency{{Kind: gq.DependencyChain, Job: foreign.done}}},
		{Queue: "own", Type: "t", DependsOn: []gq.Dependency{{Kind: gq.DependencyChain, Job: own.done}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, may := range []bool{true, false, false, false, true} {
		if denied := errors.Is(out[i].Err, gq.ErrDenied); denied == may || may && out[i].Err != nil {
			t.Errorf("job %d of the batch: %v, allowed %t", i, out[i].Err, may)
		}
	}

	_, err = f.guard.SubmitGraph(ctx, []gq.GraphJob{
		{Ref: "a", Spec: gq.Spec{Queue: "own", Type: "t"}},
		{Spec: gq.Spec{Queue: "foreign", Type: "t"}, Needs: []gq.Dependency{{Kind: gq.DependencyChain, Ref: "a"}}},
	})
	if !errors.Is(err, gq.ErrDenied) {
		t.Errorf("a graph with a foreign job: %v", err)
	}

	for _, unknown := range []bool{false, true} {
		other := foreign.job.State.Lease.Ref()
		want := gq.ErrDenied
		if unknown {
			other, want = gq.LeaseRef{ID: "nobody-has-it"}, gq.ErrStaleLease
		}
		beats, err := f.guard.Heartbeat(ctx, []gq.Heartbeat{
			{Lease: other, Progress: 0.5},
			{Lease: own.job.State.Lease.Ref(), Progress: 0.5},
		})
		if err != nil {
			t.Fatal(err)
		}
		if !errors.Is(beats[0].Err, want) || beats[1].Err != nil {
			t.Errorf("heartbeats: %v and %v, want %v and none", beats[0].Err, beats[1].Err, want)
		}
	}

	settled, err := f.guard.Settle(ctx, []gq.Outcome{
		{Lease: foreign.job.State.Lease.Ref(), Verdict: gq.VerdictComplete, Result: []byte("stolen")},
		{Lease: own.job.State.Lease.Ref(), Verdict: gq.VerdictComplete, Spawn: []gq.Spec{{Queue: "foreign", Type: "t"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range settled {
		if !errors.Is(settled[i].Err, gq.ErrDenied) {
			t.Errorf("outcome %d: %v", i, settled[i].Err)
		}
	}
	if job, err := f.engine.Get(t.Context(), foreign.job.Spec.ID, gq.WithResult); err != nil || job.State.Status != gq.StatusRunning || len(job.Result) > 0 {
		t.Errorf("the foreign job is %s with result %q, %v", job.State.Status, job.Result, err)
	}

	// A claim that names a foreign queue gets nothing at all.
	for _, queues := range [][]string{{"own", "foreign"}, nil} {
		if _, err := f.guard.Claim(ctx, gq.ClaimRequest{Worker: "w", Queues: queues, N: 1}); !errors.Is(err, gq.ErrDenied) {
			t.Errorf("a claim from %v: %v", queues, err)
		}
	}
	if _, err := f.guard.Counts(ctx, "own", "foreign"); !errors.Is(err, gq.ErrDenied) {
		t.Errorf("counts of a foreign queue: %v", err)
	}
	if _, err := f.guard.CancelWhere(ctx, gq.Query{}, ""); !errors.Is(err, gq.ErrDenied) {
		t.Errorf("cancel everywhere: %v", err)
	}
}

// A key held by a job of a foreign queue is reported as taken, and nothing else is
// revealed.
func TestForeignKey(t *testing.T) {
	f := newFixture(t)
	keyed := gq.Spec{Queue: "foreign", Type: "t", Key: gq.IdempotencyKey{Name: "k"}}
	if _, err := f.engine.Submit(t.Context(), keyed); err != nil {
		t.Fatal(err)
	}
	ctx := f.as("submit,read@own")
	keyed.Queue = "own"
	if out, err := f.guard.Submit(ctx, keyed); !errors.Is(err, gq.ErrConflict) || !out.ID().IsZero() {
		t.Errorf("%+v, %v", out, err)
	}
	out, err := f.guard.SubmitBatch(ctx, []gq.Spec{keyed, {Queue: "own", Type: "t"}})
	if err != nil || !errors.Is(out[0].Err, gq.ErrConflict) || !out[0].ID().IsZero() || out[1].Err != nil {
		t.Errorf("%+v, %v", out, err)
	}
}

// Lists have only what the caller may read, and totals count only that.
func TestLists(t *testing.T) {
	f := newFixture(t)
	f.target("own")
	f.target("foreign")
	ctx := f.as("read@own")

	page, err := f.guard.List(ctx, gq.Query{})
	if err != nil || len(page.Jobs) != 4 {
		t.Fatalf("%d jobs, %v; want 4", len(page.Jobs), err)
	}
	for _, j := range page.Jobs {
		if j.Spec.Queue != "own" {
			t.Errorf("a job of %s", j.Spec.Queue)
		}
	}
	stats, err := f.guard.Stats(ctx)
	if err != nil || len(stats.Queues) != 1 || stats.Total.Live() != 2 || stats.Commits != 0 {
		t.Errorf("stats %+v, %v", stats, err)
	}
	counts, err := f.guard.Counts(ctx)
	if err != nil || len(counts) != 1 {
		t.Errorf("counts %+v, %v", counts, err)
	}
	allows, err := f.guard.Reader(ctx, nil)
	if err != nil || !allows("own") || allows("foreign") {
		t.Errorf("events of a foreign queue get through, %v", err)
	}
	if _, err := f.guard.Reader(ctx, []string{"foreign"}); !errors.Is(err, gq.ErrDenied) {
		t.Errorf("events of a named foreign queue: %v", err)
	}
}

// A pool is shared, so putting a queue into one needs more than access to the queue; and
// naming a schedule does not allow taking it over.
func TestSharedThings(t *testing.T) {
	f := newFixture(t)
	f.target("own")
	f.target("foreign")
	if err := f.engine.PutPool(t.Context(), gq.Pool{Name: "p", Capacity: 1}); err != nil {
		t.Fatal(err)
	}
	ctx := f.as("admin@own*")
	for _, name := range []string{"own", "own.new"} {
		if _, err := f.guard.ChangeQueue(ctx, name, func(q *gq.Queue) { q.Pool = "p" }); !errors.Is(err, gq.ErrDenied) {
			t.Errorf("%s into a pool: %v", name, err)
		}
	}
	if _, err := f.engine.Queue(t.Context(), "own.new"); !errors.Is(err, gq.ErrNotFound) {
		t.Errorf("what was denied has made a queue: %v", err)
	}
	if q, err := f.engine.Queue(t.Context(), "own"); err != nil || q.Pool != "" {
		t.Errorf("the queue is in pool %q, %v", q.Pool, err)
	}
	stolen := schedule("foreign")
	stolen.Template.Queue = "own"
	if _, err := f.guard.PutSchedule(ctx, stolen); !errors.Is(err, gq.ErrDenied) {
		t.Errorf("a foreign schedule: %v", err)
	}
	if _, err := f.guard.PutSchedule(ctx, gq.Schedule{Name: "new", Every: 3600e9, Template: gq.Spec{Queue: "foreign", Type: "t"}}); !errors.Is(err, gq.ErrDenied) {
		t.Errorf("a schedule for a foreign queue: %v", err)
	}
}

// A stream in the name of a foreign worker is no stream of that worker: its record stays as it was.
func TestStreamsOfForeignWorkers(t *testing.T) {
	f := newFixture(t)
	for _, name := range []string{"v", "w"} {
		if _, err := f.engine.Claim(t.Context(), gq.ClaimRequest{Worker: name, Queues: []string{"a", "b"}, N: 1}); err != nil {
			t.Fatal(err)
		}
		before, err := f.engine.Workers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, grant := range []string{"work@c", "work@a", "admin@c"} {
			if _, _, err := f.guard.Connected(f.as(grant), name, "v9"); !errors.Is(err, gq.ErrDenied) {
				t.Errorf("%s: a stream of %s: %v", grant, name, err)
			}
		}
		if after, err := f.engine.Workers(t.Context()); err != nil || !reflect.DeepEqual(before, after) {
			t.Errorf("the workers are %+v, %v; want %+v", after, err, before)
		}
		through, end, err := f.guard.Connected(f.as("work@a", "work@b"), name, "v9")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.engine.Submit(t.Context(), gq.Spec{Queue: "c", Type: "t"}); err != nil {
			t.Fatal(err)
		}
		if _, err := f.guard.Claim(through, gq.ClaimRequest{Worker: name, Queues: []string{"c"}, N: 1}); !errors.Is(err, gq.ErrDenied) {
			t.Errorf("a claim from another queue through the stream: %v", err)
		}
		end(false)
	}
}

// TestForeignWorkers checks that the record of a worker stays for callers who may not work on its
// queues, and that they do not learn what it holds.
func TestForeignWorkers(t *testing.T) {
	f := newFixture(t)
	idle := func(name string, queues ...string) {
		if _, err := f.engine.Claim(t.Context(), gq.ClaimRequest{Worker: name, Queues: queues, N: 1}); err != nil {
			t.Fatal(err)
		}
	}
	listed := func(name string) bool {
		workers, err := f.engine.Workers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(workers, func(w gq.LiveWorker) bool { return w.Name == name })
	}
	held := f.job("b") // by worker w, which claims from a since
	idle("w", "a")
	idle("v", "a", "b")
	idle("x", "*")
	idle("y", "a")
	for name, ctx := range map[string]context.Context{
		"w": f.as("work@a"), "v": f.as("work@a", "admin@c"), "x": f.as("work@a*", "work@b"),
	} {
		if err := f.guard.WorkerStopped(ctx, name); !errors.Is(err, gq.ErrDenied) || !listed(name) {
			t.Errorf("worker %s: %v, listed %t", name, err, listed(name))
		}
	}
	if err := f.guard.WorkerStopped(f.as("work@a", "work@b"), "w"); !errors.Is(err, gq.ErrConflict) || !listed("w") {
		t.Errorf("a worker that holds a job: %v", err)
	}
	if _, err := f.engine.Complete(t.Context(), held.State.Lease.Ref(), nil); err != nil {
		t.Fatal(err)
	}
	for name, ctx := range map[string]context.Context{
		"w": f.as("work@a", "work@b"), "v": f.as("work@a", "work@b"), "x": f.as("work@*"), "y": f.as("work@a"),
	} {
		if err := f.guard.WorkerStopped(ctx, name); err != nil || listed(name) {
			t.Errorf("worker %s: %v, listed %t", name, err, listed(name))
		}
	}
}

// A job that depends on one that was moved away depends on the copy, so its submitter needs the
// queue of the copy too.
func TestDependencyOnAMovedJob(t *testing.T) {
	f := newFixture(t)
	ctx := f.as("submit,read@own")
	old, err := f.engine.Submit(f.Context(), gq.Spec{Queue: "own", Type: "t", Delay: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	late := gq.Spec{Queue: "own", Type: "t", DependsOn: []gq.Dependency{{Job: old.ID(), Kind: gq.DependencyAfter}}}
	if _, err := f.guard.Submit(ctx, late); err != nil {
		t.Fatal(err)
	}
	if _, err := f.engine.Edit(f.Context(), old.ID(), gq.JobEdit{Queue: "foreign"}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.guard.Submit(ctx, late); !errors.Is(err, gq.ErrDenied) {
		t.Errorf("after the move: %v, want %v", err, gq.ErrDenied)
	}
}
