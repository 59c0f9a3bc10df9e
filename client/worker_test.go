package client_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/client"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/testing/promptly"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/worker"
)

var _ worker.Queue = (*fixture)(nil)

// newWorker creates a worker without logging.
func newWorker(q worker.Queue, c worker.Config) *worker.Worker {
	c.Logger = slog.New(slog.DiscardHandler)
	return worker.New(q, c)
}

// run starts a worker and returns a function that stops it.
func run(t testing.TB, w *worker.Worker) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the worker did not stop cleanly: %v", err)
		}
	}
}

// Package worker runs against a server as it does in the same process.
func TestWorkerRunsRemotely(t *testing.T) {
	f := serve(t)
	ctx := t.Context()
	w := newWorker(f, worker.Config{Slots: 20, HeartbeatEvery: 20 * time.Millisecond})
	type sum struct{ A, B int }
	worker.Handle(w, gq.NewKind[sum, gq.None]("sum"), func(_ context.Context, j *worker.Job[sum]) error {
		return j.SetResult(j.Args.A + j.Args.B)
	})
	var tries atomic.Int64
	w.HandleFunc("flaky", func(context.Context, *worker.Run) error {
		if tries.Add(1) < 3 {
			return gq.Temporary(fmt.Errorf("try %d \xff", tries.Load()))
		}
		return nil
	})
	w.HandleFunc("bad", func(context.Context, *worker.Run) error { return gq.Permanent(fmt.Errorf("no"), "never") })
	cancelled := make(chan struct{})
	w.HandleFunc("endless", func(ctx context.Context, _ *worker.Run) error {
		<-ctx.Done()
		close(cancelled)
		return context.Cause(ctx)
	})
	stop := run(t, w)
	defer stop()

	soon := machine.DefaultPolicy()
	soon.Backoff.Initial = time.Millisecond
	var ids []gq.JobID
	for i := range 100 {
		ids = append(ids, f.job(func(s *gq.Spec) { s.Type, s.Payload.Data = "sum", fmt.Appendf(nil, `{"A":%d,"B":1}`, i) }))
	}
	flaky := f.job(func(s *gq.Spec) { s.Type, s.Policy = "flaky", soon })
	bad := f.job(func(s *gq.Spec) { s.Type = "bad" })
	endless := f.job(func(s *gq.Spec) { s.Type = "endless" })
	for i, id := range ids {
		if job := must(f.Wait(ctx, id))(t); job.State.Status != gq.StatusCompleted || string(job.Result) != fmt.Sprint(i+1) {
			t.Errorf("job %d is %s with %q", i, job.State.Status, job.Result)
		}
	}
	if s := must(f.Wait(ctx, flaky))(t).State; s.Status != gq.StatusCompleted || s.Attempt != 3 {
		t.Errorf("%s after attempt %d", s.Status, s.Attempt)
	}
	if s := must(f.Wait(ctx, bad))(t).State; s.Status != gq.StatusFailed || s.Failure.Code != "never" {
		t.Errorf("%s, %+v", s.Status, s.Failure)
	}
	for must(f.Get(ctx, endless, 0))(t).State.Status != gq.StatusRunning {
		time.Sleep(time.Millisecond)
	}
	must(f.Cancel(ctx, endless, "enough"))(t)
	<-cancelled
	if s := must(f.Wait(ctx, endless))(t).State; s.Status != gq.StatusCancelled || s.Cancellation.HonouredAt.IsZero() {
		t.Errorf("%s, %+v", s.Status, s.Cancellation)
	}
}

// withoutWorkflows is a queue that does not let this caller read workflows.
type withoutWorkflows struct{ engine.API }

func (*withoutWorkflows) Workflow(context.Context, gq.WorkflowID) (gq.Workflow, error) {
	return gq.Workflow{}, gq.ErrDenied
}

// The handler of a final job sees what has become of its workflow in a remote worker too, which need
// not be allowed to read workflows.
func TestRemoteFinalJobSeesTheOutcome(t *testing.T) {
	served := &withoutWorkflows{}
	f := serve(t, func(f *fixture) { f.native = served })
	served.API = f.engine
	w := newWorker(f, worker.Config{Slots: 2})
	w.HandleFunc("work", func(_ context.Context, r *worker.Run) error {
		if strings.HasPrefix(r.Ref(), "bad") {
			return gq.Permanent(errors.New("broken"), "broken")
		}
		return nil
	})
	worker.HandleResult(w, gq.NewKind[gq.None, string]("last"), func(_ context.Context, j *worker.Job[gq.None]) (string, error) {
		status, err := worker.WorkflowStatus(j)
		return status.String(), err
	})
	defer run(t, w)()
	for ref, want := range map[string]gq.WorkflowStatus{"good": gq.WorkflowSucceeded, "bad": gq.WorkflowFailed} {
		flow := gq.NewWorkflow(ref)
		flow.Add(ref, gq.Draft{Spec: gq.Spec{Type: "work"}})
		flow.Add("other", gq.Draft{Spec: gq.Spec{Type: "work"}})
		flow.Finally("last", gq.Draft{Spec: gq.Spec{Type: "last"}})
		id := must(f.SubmitWorkflow(t.Context(), flow))(t)
		workflow := must(f.engine.Workflow(t.Context(), id))(t)
		last, _ := workflow.Job("last")
		if job := must(f.Wait(t.Context(), last.ID))(t); string(job.Result) != strconv.Quote(want.String()) {
			t.Errorf("the final job of %s saw %s, want %s: %+v", ref, job.Result, want, job.State.Failure)
		}
	}
}

// A worker that has stopped is no longer listed, although its client keeps its stream for others
// and opens another one.
func TestStoppedWorkerIsNotListed(t *testing.T) {
	f := serve(t)
	listed := func(when string, want ...string) {
		t.Helper()
		var names []string
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			names = nil
			for _, w := range must(f.Workers(t.Context()))(t) {
				names = append(names, w.Name)
			}
			if slices.Equal(names, want) {
				return
			}
		}
		t.Fatalf("%s: %q are listed, want %q", when, names, want)
	}
	start := func(name string) (stop func()) {
		w := newWorker(f, worker.Config{Name: name, Poll: 10 * time.Millisecond})
		w.HandleFunc("work", func(context.Context, *worker.Run) error { return nil })
		return run(t, w)
	}
	stop, stopOther := start("a"), start("b")
	defer stopOther()
	must(f.Wait(t.Context(), f.job()))(t)
	listed("both run", "a", "b")
	stop()
	listed("one has stopped", "b")
	f.cut()
	f.mend()
	must(f.Wait(t.Context(), f.job()))(t)
	listed("the connection broke", "b")
	if err := f.WorkerStopped(t.Context(), "c"); err != nil {
		t.Errorf("a worker that is not listed: %v", err)
	}
}

// A worker survives a connection that breaks repeatedly and servers that restart: every
// job is done, and none runs after it was completed.
func TestWorkerSurvivesBrokenConnections(t *testing.T) {
	f := serve(t)
	ctx := t.Context()
	// Jobs in transit when the connection broke wait until their leases expire.
	p := machine.DefaultPolicy()
	p.LeaseTTL, p.OnLoss, p.Lifetime = 500*time.Millisecond, gq.LossFree, 0
	sweeping, stopSweeping := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer stopSweeping()
	group.Go(func() {
		if err := f.engine.Run(sweeping); err != nil {
			t.Error(err)
		}
	})
	var done sync.Map // versions by job
	w := newWorker(f, worker.Config{Slots: 50})
	w.HandleFunc("work", func(_ context.Context, r *worker.Run) error {
		if last, again := done.Swap(r.ID(), r.LeaseVersion()); again && last.(gq.LeaseVersion) >= r.LeaseVersion() {
			t.Errorf("job %s ran under version %d after %d", r.ID(), r.LeaseVersion(), last)
		}
		return nil
	})
	stop := run(t, w)
	defer stop()
	const n = 400
	group.Go(func() {
		for i := range n {
			if _, err := f.Enqueue(ctx, gq.Spec{Type: "work", Policy: p, Key: gq.IdempotencyKey{Name: fmt.Sprint(i)}}); err != nil {
				t.Error(err)
			}
		}
	})
	broken := 0
	for completed := int64(0); completed < n && !t.Failed(); time.Sleep(20 * time.Millisecond) {
		if broken++; broken <= 12 {
			switch broken % 4 {
			case 0:
				f.kill()
				f.start()
			case 2:
				f.stop()
				f.start()
			default:
				f.cut()
				f.mend()
			}
		}
		if counts := must(f.engine.Counts(ctx, gq.DefaultQueue))(t); len(counts) > 0 {
			completed = counts[0].By[gq.StatusCompleted]
		}
	}
	count := must(f.engine.Counts(ctx, gq.DefaultQueue))(t)[0]
	if count.Live() != 0 || count.By[gq.StatusCompleted] != n {
		t.Errorf("%v", count)
	}
}

func TestSettleWithoutStates(t *testing.T) {
	f := serve(t)
	var outcomes []gq.Outcome
	var ids []gq.JobID
	for _, without := range []bool{true, false, true} {
		ids = append(ids, f.job())
		outcomes = append(outcomes, gq.Outcome{Lease: f.claim().State.Lease.Ref(), Verdict: gq.VerdictComplete, NoState: without})
	}
	outcomes[2].Lease.ID = "of nobody"
	answers := must(f.Settle(t.Context(), outcomes))(t)
	if a := answers[0]; a.Err != nil || !a.State.ID.IsZero() {
		t.Errorf("without a state: %+v", a)
	}
	if a := answers[1]; a.Err != nil || a.State.ID != ids[1] || a.State.Status != gq.StatusCompleted {
		t.Errorf("with a state: %+v", a)
	}
	if !errors.Is(answers[2].Err, gq.ErrStaleLease) {
		t.Errorf("a stale lease: %v", answers[2].Err)
	}
	if s := must(f.Get(t.Context(), ids[0], 0))(t).State; s.Status != gq.StatusCompleted {
		t.Errorf("the job without a state is %s", s.Status)
	}
}

// A cancel comes through the Work stream, long before the next heartbeat. A worker is not told of
// the jobs of others.
func TestCancelReachesARemoteHandlerAtOnce(t *testing.T) {
	var cancels atomic.Pointer[func([]gq.JobID)]
	f := serve(t, func(f *fixture) {
		f.options.CancelRequests = func(tell func([]gq.JobID)) (stop func()) {
			cancels.Store(&tell)
			return func() {}
		}
	})
	defer f.engine.CancelRequests(func(jobs []gq.JobID) { (*cancels.Load())(jobs) })()
	var told atomic.Int64
	defer f.CancelRequests(func(jobs []gq.JobID) { told.Add(int64(len(jobs))) })()
	w := newWorker(f, worker.Config{Slots: 20, HeartbeatEvery: time.Minute})
	begun := make(chan struct{})
	w.HandleFunc("endless", func(ctx context.Context, _ *worker.Run) error {
		begun <- struct{}{}
		<-ctx.Done()
		return context.Cause(ctx)
	})
	defer run(t, w)()
	claimed := f.job(func(s *gq.Spec) { s.Queue = "other" }) // by somebody who has no stream
	jobs, err := f.engine.Claim(t.Context(), gq.ClaimRequest{Worker: "other", Queues: []string{"other"}, N: 1})
	if err != nil || len(jobs) != 1 {
		t.Fatal(jobs, err)
	}
	var asks int64
	promptly.Median(t, 100*time.Millisecond, 21, func() time.Duration {
		asks++
		id := f.job(func(s *gq.Spec) { s.Type = "endless" })
		<-begun
		asked := time.Now()
		must(f.Cancel(t.Context(), claimed, ""))(t)
		must(f.Cancel(t.Context(), id, "enough"))(t)
		if s := must(f.Wait(t.Context(), id))(t).State; s.Status != gq.StatusCancelled || s.Cancellation.DeliveredAt.IsZero() {
			t.Errorf("%s, %+v", s.Status, s.Cancellation)
		}
		return time.Since(asked)
	})
	if told.Load() != asks {
		t.Errorf("the server named %d jobs, want the %d of this client", told.Load(), asks)
	}
}

// Several workers can share a client: one that leaves takes the news of cancels from no other.
func TestListenersLeaveAlone(t *testing.T) {
	for leaves := range 2 {
		var cancels atomic.Pointer[func([]gq.JobID)]
		f := serve(t, func(f *fixture) {
			f.options.CancelRequests = func(tell func([]gq.JobID)) (stop func()) {
				cancels.Store(&tell)
				return func() {}
			}
		})
		defer f.engine.CancelRequests(func(jobs []gq.JobID) { (*cancels.Load())(jobs) })()
		told, stops := make(chan gq.JobID, 10), [2]func(){}
		for i := range stops {
			stops[i] = f.CancelRequests(func(jobs []gq.JobID) {
				if i == leaves {
					t.Error("a listener that left was told")
				} else {
					told <- jobs[0]
				}
			})
		}
		defer stops[1-leaves]()
		f.job()
		job := f.claim()
		stops[leaves]()
		must(f.Cancel(t.Context(), job.State.ID, ""))(t)
		select {
		case id := <-told:
			if id != job.State.ID {
				t.Errorf("told of %s", id)
			}
		case <-time.After(time.Minute):
			t.Error("the listener that stayed was not told")
		}
	}
}

// A worker that has stopped is not introduced to another server. The others of the client are.
func TestStoppedWorkerIsNotIntroduced(t *testing.T) {
	f := serve(t)
	for _, name := range []string{"stays", "stops"} {
		must(f.Claim(t.Context(), gq.ClaimRequest{Worker: name, N: 1}))(t)
	}
	if err := f.WorkerStopped(t.Context(), "stops"); err != nil {
		t.Fatal(err)
	}
	if names := client.Introduces(f.Client); !slices.Equal(names, []string{"stays"}) {
		t.Errorf("introduces %q", names)
	}
}
