package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/client"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/machine"
)

// flaky is an engine that executes calls and then, lose times, breaks the connection
// before the response.
type flaky struct {
	engine.API
	fixture *fixture
	lose    atomic.Int64 // responses to lose
	calls   atomic.Int64 // calls whose response can be lost
}

// lost runs after a call was executed.
func (e *flaky) lost() {
	e.calls.Add(1)
	if e.lose.Add(-1) >= 0 {
		e.fixture.cut()
		e.fixture.mend()
	}
}

func (e *flaky) Submit(ctx context.Context, s gq.Spec) (gq.SubmitResult, error) {
	defer e.lost()
	return e.API.Submit(context.WithoutCancel(ctx), s)
}

func (e *flaky) SubmitBatch(ctx context.Context, specs []gq.Spec) ([]gq.SubmitResult, error) {
	defer e.lost()
	return e.API.SubmitBatch(context.WithoutCancel(ctx), specs)
}

func (e *flaky) SubmitGraph(ctx context.Context, drafts []gq.GraphJob) ([]gq.SubmitResult, error) {
	defer e.lost()
	return e.API.SubmitGraph(context.WithoutCancel(ctx), drafts)
}

func (e *flaky) Get(ctx context.Context, id gq.JobID, parts gq.Parts) (gq.Job, error) {
	defer e.lost()
	return e.API.Get(ctx, id, parts)
}

func (e *flaky) Cancel(ctx context.Context, id gq.JobID, reason string) (gq.State, error) {
	defer e.lost()
	return e.API.Cancel(context.WithoutCancel(ctx), id, reason)
}

func (e *flaky) Edit(ctx context.Context, id gq.JobID, change gq.JobEdit) (gq.SubmitResult, error) {
	defer e.lost()
	return e.API.Edit(context.WithoutCancel(ctx), id, change)
}

func (e *flaky) Replay(ctx context.Context, id gq.JobID) (gq.SubmitResult, error) {
	defer e.lost()
	return e.API.Replay(context.WithoutCancel(ctx), id)
}

func (e *flaky) Heartbeat(ctx context.Context, beats []gq.Heartbeat) ([]gq.LeaseResult, error) {
	defer e.lost()
	return e.API.Heartbeat(ctx, beats)
}

func (e *flaky) Settle(ctx context.Context, outcomes []gq.Outcome) ([]gq.LeaseResult, error) {
	defer e.lost()
	return e.API.Settle(ctx, outcomes)
}

// serveFlaky returns a fixture whose server has a flaky engine.
func serveFlaky(t *testing.T, change ...func(*fixture)) (*fixture, *flaky) {
	t.Helper()
	e := &flaky{}
	f := serve(t, append(change, func(f *fixture) { f.native, e.fixture = e, f })...)
	e.API = f.engine
	return f, e
}

// A repeatable call is retried when its response is lost, and takes effect once.
func TestLostAnswersAreAskedForAgain(t *testing.T) {
	f, e := serveFlaky(t)
	ctx := t.Context()
	keyed := func(key string) gq.Spec { return gq.Spec{Type: "work", Key: gq.IdempotencyKey{Name: key}} }
	lose := func(what string, call func() error) {
		t.Helper()
		e.calls.Store(0)
		e.lose.Store(2)
		if err := call(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if n := e.calls.Load(); n != 3 {
			t.Errorf("%s was called %d times", what, n)
		}
	}
	var id gq.JobID
	lose("submit with a key", func() error {
		out, err := f.Submit(ctx, keyed("a"))
		id = out.ID()
		if !out.Existing || !out.Same {
			t.Errorf("%+v", out)
		}
		return err
	})
	lose("a batch with keys", func() error {
		_, err := f.SubmitBatch(ctx, []gq.Spec{keyed("b"), keyed("c")})
		return err
	})
	lose("a graph with keys", func() error {
		_, err := f.SubmitGraph(ctx, []gq.GraphJob{{Ref: "x", Spec: keyed("d")}, {Spec: keyed("e"), Needs: []gq.Dependency{{Kind: gq.DependencyAfter, Ref: "x"}}}})
		return err
	})
	lose("get", func() error { _, err := f.Get(ctx, id, 0); return err })
	lose("cancel", func() error { _, err := f.Cancel(ctx, id, "enough"); return err })
	lose("replay", func() error {
		out, err := f.Replay(ctx, id)
		if !out.Existing || out.ID() == id {
			t.Errorf("%+v", out)
		}
		return err
	})
	if count := must(f.Counts(ctx, gq.DefaultQueue))(t)[0]; count.Live()+count.By[gq.StatusCancelled] != 6 {
		t.Errorf("5 jobs were submitted and one replayed, there are %v", count)
	}
	job := f.claim()
	lease := job.State.Lease.Ref()
	lose("heartbeat", func() error {
		answers, err := f.Heartbeat(ctx, []gq.Heartbeat{{Lease: lease, Progress: 0.5}})
		if err == nil {
			err = answers[0].Err
		}
		return err
	})
	lose("heartbeat with children that have keys", func() error {
		answers, err := f.Heartbeat(ctx, []gq.Heartbeat{{Lease: lease, Progress: -1, Spawn: []gq.Spec{keyed("child")}}})
		if err == nil {
			err = answers[0].Err
		}
		return err
	})
	lose("complete", func() error { _, err := f.Complete(ctx, lease, []byte("1")); return err })
	if s := must(f.engine.Get(ctx, job.Spec.ID, 0))(t).State; s.Status != gq.StatusCompleted || s.Attempt != 1 {
		t.Errorf("the job is %s after attempt %d", s.Status, s.Attempt)
	}
}

// Other calls are not retried: the error says that the outcome is unknown.
func TestUnknownOutcomesAreTold(t *testing.T) {
	f, e := serveFlaky(t, func(f *fixture) { f.client.SendOnce = true })
	ctx := t.Context()
	finished := f.job()
	if _, err := f.engine.Cancel(ctx, finished, ""); err != nil {
		t.Fatal(err)
	}
	f.job()
	lease := f.claim().State.Lease.Ref()
	for what, call := range map[string]func() error{
		"submit": func() error { _, err := f.Submit(ctx, gq.Spec{Type: "work"}); return err },
		"batch with one keyless": func() error {
			_, err := f.SubmitBatch(ctx, []gq.Spec{{Type: "work", Key: gq.IdempotencyKey{Name: "k"}}, {Type: "work"}})
			return err
		},
		"graph": func() error { _, err := f.SubmitGraph(ctx, []gq.GraphJob{{Spec: gq.Spec{Type: "work"}}}); return err },
		"keyless children": func() error {
			_, err := f.Heartbeat(ctx, []gq.Heartbeat{{Lease: lease, Progress: -1, Spawn: []gq.Spec{{Type: "work"}}}})
			return err
		},
		"a keyless child before another": func() error {
			_, err := f.Heartbeat(ctx, []gq.Heartbeat{{Lease: lease, Progress: -1, Spawn: []gq.Spec{
				{Type: "work"}, {Type: "work", Key: gq.IdempotencyKey{Name: "child"}},
			}}})
			return err
		},
	} {
		// The client has noticed the earlier break; otherwise the call would be lost on
		// its way.
		must(f.Get(ctx, finished, 0))(t)
		must(f.Heartbeat(ctx, []gq.Heartbeat{{Lease: lease, Progress: -1}}))(t)
		e.calls.Store(0)
		e.lose.Store(1)
		err := call()
		if !errors.Is(err, client.ErrOutcomeUnknown) || !errors.Is(err, client.ErrUnreachable) || errs.KindOf(err) != gq.KindUnavailable ||
			strings.Contains(err.Error(), client.ErrUnreachable.Error()) {
			t.Errorf("%s: %v", what, err)
		}
		if n := e.calls.Load(); n != 1 {
			t.Errorf("%s was called %d times", what, n)
		}
	}
}

// Keys generated by the client make submissions safe to retry, unnoticed by the caller.
func TestGeneratedKeys(t *testing.T) {
	f, e := serveFlaky(t)
	ctx := t.Context()
	e.lose.Store(1)
	out := must(f.Submit(ctx, gq.Spec{Type: "work"}))(t)
	if out.Existing || out.Same {
		t.Errorf("%+v", out)
	}
	e.lose.Store(1)
	batch := must(f.SubmitBatch(ctx, []gq.Spec{{Type: "work"}, {Type: "work"}}))(t)
	e.lose.Store(1)
	graph := must(f.SubmitGraph(ctx, []gq.GraphJob{{Spec: gq.Spec{Type: "work"}}}))(t)
	for _, s := range append(batch, graph...) {
		if s.Err != nil || s.Existing || s.Same {
			t.Errorf("%+v", s)
		}
	}
	if count := must(f.Counts(ctx, gq.DefaultQueue))(t)[0]; count.Live() != 4 {
		t.Errorf("4 jobs were submitted, there are %d", count.Live())
	}
	mine := must(f.Submit(ctx, gq.Spec{Type: "work", Key: gq.IdempotencyKey{Name: "mine"}}))(t)
	if again := must(f.Submit(ctx, gq.Spec{Type: "work", Key: gq.IdempotencyKey{Name: "mine"}}))(t); !again.Existing || again.ID() != mine.ID() {
		t.Errorf("a key of the caller: %+v", again)
	}
	unkeyed := machine.DefaultPolicy()
	unkeyed.IdempotencyWindow = 0
	e.lose.Store(1)
	s := must(f.Submit(ctx, gq.Spec{Type: "work", Policy: unkeyed}))(t)
	if s.Existing {
		t.Errorf("%+v", s)
	}
	if count := must(f.Counts(ctx, gq.DefaultQueue))(t)[0]; count.Live() != 6 {
		t.Errorf("6 jobs were submitted, there are %d", count.Live())
	}
	if job := must(f.Get(ctx, s.ID(), 0))(t); job.Spec.Key != (gq.IdempotencyKey{}) || job.Spec.Policy != unkeyed {
		t.Errorf("the caller sees the key %+v", job.Spec.Key)
	}
	if all := must(f.List(ctx, gq.Query{}))(t).Jobs; all[0].Spec.Key != (gq.IdempotencyKey{}) || all[1].Spec.Key.Name != "mine" {
		t.Errorf("the caller sees the keys %+v and %+v", all[0].Spec.Key, all[1].Spec.Key)
	}
	if claimed := f.claim(); claimed.Spec.Key != (gq.IdempotencyKey{}) {
		t.Errorf("the worker sees the key %+v", claimed.Spec.Key)
	}
}

// In a batch some jobs have keys of the caller and some have keys of the client. Each result says the truth about its
// own job, also behind one that the client rejects.
func TestGeneratedKeysBesideOthers(t *testing.T) {
	f := serve(t)
	ctx := t.Context()
	mine := gq.Spec{Type: "work", Key: gq.IdempotencyKey{Name: "mine"}}
	first := must(f.Submit(ctx, mine))(t)
	batch := must(f.SubmitBatch(ctx, []gq.Spec{{Type: "\xff"}, {Type: "work"}, mine, {Type: "work"}}))(t)
	if !errors.Is(batch[0].Err, gq.ErrInvalid) || !batch[2].Existing || !batch[2].Same || batch[2].ID() != first.ID() {
		t.Errorf("the rejected one: %v, the one with a key: %+v", batch[0].Err, batch[2])
	}
	for _, i := range []int{1, 3} {
		if batch[i].Err != nil || batch[i].Existing || batch[i].Same {
			t.Errorf("submission %d: %+v", i, batch[i])
		}
	}
}

// Calls that have lasted longer than Options.RetryFor, with a server that had nothing to say, outlive
// its restart like others.
func TestLongCallsOutliveAServer(t *testing.T) {
	t.Parallel()
	const retryFor = 10 * time.Second
	f := serve(t, func(f *fixture) { f.events, f.client.RetryFor = true, retryFor })
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	id := f.job()
	last := must(f.LastEvent(ctx))(t)
	followed, waited := make(chan error, 1), make(chan error, 1)
	go func() {
		followed <- f.Follow(ctx, last, func([]gq.Event) error { stop(); return nil })
	}()
	go func() {
		j, err := f.Wait(t.Context(), id)
		if err == nil && j.State.Status != gq.StatusCancelled {
			err = fmt.Errorf("the job is %s", j.State.Status)
		}
		waited <- err
	}()
	time.Sleep(retryFor + time.Second)
	f.kill()
	f.start()
	must(f.engine.Cancel(t.Context(), id, ""))(t)
	for name, ended := range map[string]chan error{"follow": followed, "wait": waited} {
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A client waits for a server that comes back, and gives up on one that does not.
func TestUnreachable(t *testing.T) {
	f := serve(t)
	id := f.job()
	f.cut()
	back := time.AfterFunc(100*time.Millisecond, f.mend)
	defer back.Stop()
	must(f.Get(t.Context(), id, 0))(t)
	f.cut()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := f.Get(ctx, id, 0); errs.KindOf(err) != gq.KindTimeout || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("at the end of its time: %v", err)
	}
	f.mend()
	must(f.Get(t.Context(), id, 0))(t)

	hasty := serve(t, func(f *fixture) { f.client.RetryFor = -1 })
	hasty.cut()
	for slow := range 5 { // a machine may stall, but not every time
		began := time.Now()
		_, err := hasty.Get(t.Context(), id, 0)
		if took := time.Since(began); !errors.Is(err, client.ErrUnreachable) || took > 5*time.Second && slow == 4 {
			t.Errorf("after %v: %v", took, err)
		} else if took <= 5*time.Second {
			break
		}
	}
	for what, call := range map[string]func() error{
		"claim":  func() error { _, err := hasty.Claim(t.Context(), gq.ClaimRequest{Worker: "w", N: 1}); return err },
		"settle": func() error { _, err := hasty.Settle(t.Context(), []gq.Outcome{{}}); return err },
		"submit": func() error { _, err := hasty.Submit(t.Context(), gq.Spec{Type: "t"}); return err },
	} {
		if err := call(); !errors.Is(err, client.ErrUnreachable) {
			t.Errorf("%s: %v", what, err)
		}
	}
	hasty.mend()
}

// An abandoned claim leaves nothing behind: jobs in transit are released without fault.
func TestAbandonedClaims(t *testing.T) {
	f := serve(t)
	for range 50 {
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() {
			jobs, err := f.Claim(ctx, gq.ClaimRequest{Worker: "w", Wait: time.Minute, N: 1})
			if err != nil {
				t.Error(err)
			}
			for _, j := range jobs { // it was faster
				if _, err := f.Complete(t.Context(), j.State.Lease.Ref(), nil); err != nil {
					t.Error(err)
				}
			}
		})
		group.Go(func() { f.job() })
		group.Go(cancel)
		group.Wait()
	}
	f.drained()
}

// lateEngine claims for any caller, and responds when told to.
type lateEngine struct {
	engine.API
	claimed, answer chan struct{}
	away            atomic.Bool // Settle has failed once
}

func (e *lateEngine) Claim(ctx context.Context, r gq.ClaimRequest) ([]gq.Job, error) {
	jobs, err := e.API.Claim(context.WithoutCancel(ctx), r)
	e.claimed <- struct{}{}
	<-e.answer
	return jobs, err
}

// Settle fails the first time.
func (e *lateEngine) Settle(ctx context.Context, outcomes []gq.Outcome) ([]gq.LeaseResult, error) {
	if e.away.CompareAndSwap(false, true) {
		return nil, gq.ErrUnavailable
	}
	return e.API.Settle(ctx, outcomes)
}

// Jobs that arrive after their caller has left are released, even if not at once.
func TestJobsThatComeTooLate(t *testing.T) {
	e := &lateEngine{claimed: make(chan struct{}), answer: make(chan struct{})}
	f := serve(t, func(f *fixture) { f.native = e })
	e.API = f.engine
	f.job()
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan int, 1)
	go func() {
		jobs, err := f.Claim(ctx, gq.ClaimRequest{Worker: "w", N: 1})
		if err != nil {
			t.Error(err)
		}
		left <- len(jobs)
	}()
	<-e.claimed
	cancel()
	if n := <-left; n != 0 {
		t.Fatalf("%d jobs", n)
	}
	close(e.answer)
	f.drained()
}

// drained waits until every job can be claimed again, and completes it.
func (f *fixture) drained() {
	f.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; {
		for _, j := range must(f.engine.Claim(f.Context(), gq.ClaimRequest{Worker: "last", N: 1000}))(f.TB) {
			if j.State.Faults != 0 || j.State.Losses != 0 {
				f.Errorf("job %s has %d faults and %d losses", j.Spec.ID, j.State.Faults, j.State.Losses)
			}
			must(f.engine.Complete(f.Context(), j.State.Lease.Ref(), nil))(f.TB)
		}
		count := must(f.engine.Counts(f.Context(), gq.DefaultQueue))(f.TB)[0]
		if count.Live() == 0 {
			return
		}
		if time.Now().After(deadline) {
			f.Fatalf("jobs are left behind: %v", count)
		}
		time.Sleep(time.Millisecond)
	}
}

// A claim whose stream breaks fails; jobs that may have arrived keep their leases. The
// next claim opens another stream.
func TestBrokenStream(t *testing.T) {
	f := serve(t)
	n := 0
	job := func() gq.Job {
		n++
		f.job(func(s *gq.Spec) { s.Key.Name = fmt.Sprint(n) }) // makes the submission repeatable
		return f.claim()
	}
	first := job()
	waiting := make(chan error, 1)
	go func() {
		_, err := f.Claim(t.Context(), gq.ClaimRequest{Worker: "w", Wait: time.Minute, N: 1})
		waiting <- err
	}()
	f.untilWaiting(1)
	f.cut()
	if err := <-waiting; !errors.Is(err, client.ErrUnreachable) {
		t.Errorf("a claim that waited: %v", err)
	}
	f.untilWaiting(0) // otherwise the next job would go to a caller that has left
	f.mend()
	if _, err := f.Complete(t.Context(), first.State.Lease.Ref(), nil); err != nil {
		t.Errorf("a lease outlives its stream: %v", err)
	}
	if second := job(); second.Spec.ID == first.Spec.ID {
		t.Error("the same job again")
	}
	// A server that goes away and comes back.
	f.kill()
	f.untilWaiting(0)
	restart := time.AfterFunc(50*time.Millisecond, f.start)
	defer restart.Stop()
	job()
}

func (f *fixture) untilWaiting(n int) {
	f.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Millisecond) {
		waiting := 0
		for _, w := range must(f.engine.Workers(f.Context()))(f.TB) {
			waiting += w.Waiting
		}
		if waiting == n {
			return
		}
		if time.Now().After(deadline) {
			f.Fatalf("%d claims wait, not %d", waiting, n)
		}
	}
}

// A draining server ends waiting claims without jobs, and the client continues with its
// successor.
func TestServerDrains(t *testing.T) {
	f := serve(t)
	answers := make(chan error, 1)
	go func() {
		jobs, err := f.Claim(t.Context(), gq.ClaimRequest{Worker: "w", Wait: time.Minute, N: 1})
		if len(jobs) > 0 {
			err = errors.New("there was no job to claim")
		}
		answers <- err
	}()
	f.untilWaiting(1)
	f.stop()
	if err := <-answers; err != nil {
		t.Error(err)
	}
	f.start()
	f.job(func(s *gq.Spec) { s.Key.Name = "k" }) // makes the submission repeatable
	f.claim()
}

// A claim that comes when the stream has just ended learns why it did.
func TestClaimOnAnEndedStream(t *testing.T) {
	f := serve(t)
	if err := client.ClaimOnEnded(t.Context(), f.Client, f.stop); !errors.Is(err, gq.ErrClosed) {
		t.Errorf("a claim after the server has stopped: %v", err)
	}
	f.start()
}

// Without the stream, for example behind a proxy that blocks it, everything works with
// unary calls.
func TestWithoutStream(t *testing.T) {
	f := serve(t, func(f *fixture) {
		f.options.Stream = []grpc.StreamServerInterceptor{func(any, grpc.ServerStream, *grpc.StreamServerInfo, grpc.StreamHandler) error {
			return status.Error(codes.Unimplemented, "no streams here")
		}}
	})
	f.job()
	job := f.claim()
	answers := must(f.Heartbeat(t.Context(), []gq.Heartbeat{{Lease: job.State.Lease.Ref(), Progress: -1}}))(t)
	if answers[0].Err != nil {
		t.Error(answers[0].Err)
	}
	if s := must(f.Complete(t.Context(), job.State.Lease.Ref(), nil))(t); s.Status != gq.StatusCompleted {
		t.Errorf("%+v", s)
	}
}

func TestWaitForAJob(t *testing.T) {
	f := serve(t)
	id := f.job()
	job, err := inVain(t, id, f.Wait)
	if errs.KindOf(err) != gq.KindTimeout || job.State.Status != gq.StatusScheduled {
		t.Errorf("%s, %v", job.State.Status, err)
	}
	_, near := inVain(t, id, f.engine.Wait)
	if near.Error() != err.Error() {
		t.Errorf("engine %v, client %v", near, err)
	}
	time.AfterFunc(20*time.Millisecond, func() { _, _ = f.engine.Cancel(context.Background(), id, "") })
	f.cut() // while it waits
	f.mend()
	if job := must(f.Wait(t.Context(), id))(t); job.State.Status != gq.StatusCancelled {
		t.Errorf("%s", job.State.Status)
	}
}

// inVain waits until its deadline, which is long enough to read the job, except on a
// machine that stalled meanwhile.
func inVain(t *testing.T, id gq.JobID, wait func(context.Context, gq.JobID) (gq.Job, error)) (job gq.Job, err error) {
	t.Helper()
	for long := 500 * time.Millisecond; long < time.Minute && job.State.ID.IsZero(); long *= 4 {
		ctx, cancel := context.WithTimeout(t.Context(), long)
		job, err = wait(ctx, id)
		cancel()
	}
	return job, err
}

// Calls on a closed client do nothing and return an error.
func TestClosed(t *testing.T) {
	f := serve(t)
	id := f.job()
	f.claim()
	claiming := make(chan error, 1)
	go func() {
		jobs, err := f.Claim(t.Context(), gq.ClaimRequest{Worker: "w", Wait: time.Minute, N: 1})
		if err == nil && len(jobs) == 0 {
			err = gq.ErrClosed
		}
		claiming <- err
	}()
	f.untilWaiting(1)
	for range 2 {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := <-claiming; errs.KindOf(err) != gq.KindUnavailable {
		t.Errorf("a claim that waited: %v", err)
	}
	for what, call := range map[string]func() error{
		"get":    func() error { _, err := f.Get(t.Context(), id, 0); return err },
		"claim":  func() error { _, err := f.Claim(t.Context(), gq.ClaimRequest{Worker: "w", N: 1}); return err },
		"settle": func() error { _, err := f.Settle(t.Context(), []gq.Outcome{{}}); return err },
	} {
		if err := call(); !errors.Is(err, gq.ErrClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A deadline of the caller does not hide why there was no answer.
func TestDeadlineSaysWhy(t *testing.T) {
	t.Parallel()
	nobody, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := nobody.Addr().String()
	if err := nobody.Close(); err != nil {
		t.Fatal(err)
	}
	mute := &silentWire{}
	if mute.Listener, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"); err != nil { // accepts nothing
		t.Fatal(err)
	}
	defer mute.Listener.Close() //nolint:errcheck // nothing was sent
	for address, want := range map[string]string{
		address:              "connection refused",
		mute.Addr().String(): "no server can be reached at " + mute.Addr().String(),
	} {
		c, err := client.New(address, client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, never := c.Get(ended, gq.JobID{1}, 0)
		for what, call := range map[string]func(context.Context) error{
			"get":    func(ctx context.Context) error { _, err := c.Get(ctx, gq.JobID{1}, 0); return err },
			"submit": func(ctx context.Context) error { _, err := c.Submit(ctx, gq.Spec{Type: "t"}); return err },
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			err := call(ctx)
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) || errs.KindOf(err) != gq.KindTimeout || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), address) {
				t.Errorf("%s: %v, which does not say %q", what, err, want)
			}
		}
		if !errors.Is(never, context.Canceled) || strings.Contains(never.Error(), "reached") {
			t.Errorf("a call that was never made: %v", never)
		}
		_ = c.Close()
	}
}

// What kept a server from answering is forgotten once one has answered.
func TestReasonIsForgotten(t *testing.T) {
	f := serve(t)
	id := f.job()
	f.cut()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := f.Get(ctx, id, 0)
	const never = "no server can be reached at"
	if err == nil || strings.Contains(err.Error(), never) {
		t.Fatalf("while there is no server: %v", err)
	}
	f.mend()
	must(f.Get(t.Context(), id, 0))(t)
	if err := client.Ended(ctx, f.Client); !strings.Contains(err.Error(), never) {
		t.Errorf("a later call that ends: %v", err)
	}
}

// losesSecond loses the answer to the second batch.
type losesSecond struct{ *flaky }

func (e losesSecond) SubmitBatch(ctx context.Context, specs []gq.Spec) ([]gq.SubmitResult, error) {
	if e.calls.Load() == 1 {
		e.lose.Store(1)
	}
	return e.flaky.SubmitBatch(ctx, specs)
}

// A request of a large batch is repeated if all of its own submissions have keys.
func TestPartsOfABatchAreRepeated(t *testing.T) {
	e := &flaky{}
	f := serve(t, func(f *fixture) { f.client.SendOnce, f.native, e.fixture = true, losesSecond{e}, f })
	e.API = f.engine
	specs := make([]gq.Spec, client.MaxItems+1)
	for i := range specs {
		specs[i] = gq.Spec{Type: "work", Key: gq.IdempotencyKey{Name: strconv.Itoa(i)}}
	}
	specs[0].Key = gq.IdempotencyKey{}
	out := must(f.SubmitBatch(t.Context(), specs))(t)
	if n := e.calls.Load(); n != 3 || out[client.MaxItems].Err != nil {
		t.Errorf("%d requests, %v", n, out[client.MaxItems].Err)
	}
}
