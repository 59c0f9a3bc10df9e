package access

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/machine"
)

var _ engine.API = (*Guard)(nil)

// Every engine method that callers could use is guarded.
func TestGuardIsTotal(t *testing.T) {
	guarded, all := reflect.TypeFor[engine.API](), reflect.TypeFor[*engine.Engine]()
	own := []string{"Run", "Sweep", "Now", "Delegate", "In", "Enqueue", "Store", "UseCallbacks", "Activity", "CountWorkflows", "CancelRequests", "Delegated"} // those of the process itself; In takes a transaction of its own, and Enqueue is Submit
	for m := range all.Methods() {
		name := m.Name
		if _, ok := guarded.MethodByName(name); !ok && !slices.Contains(own, name) {
			t.Errorf("engine.%s has no guard: add it to Engine and Guard", name)
		}
	}
	for m := range guarded.Methods() {
		if calls[m.Name].do == nil {
			t.Errorf("%s has no row in calls", m.Name)
		}
	}
	for name := range calls {
		if _, ok := guarded.MethodByName(name); !ok {
			t.Errorf("the row %s is of no method", name)
		}
	}
}

// target is the contents of one queue.
type target struct {
	queue string
	done  gq.JobID
	job   gq.Job        // claimed
	flow  gq.WorkflowID // waits for the signal "go"
	over  gq.WorkflowID // cancelled
}

// call is one method, called on the contents of a queue.
type call struct {
	needs Scope // one of these on the queue
	whole bool  // on all queues
	lists bool  // names nothing: foreign objects are omitted rather than rejected
	do    func(ctx context.Context, g *Guard, at *target) error
}

func answer(answers []gq.LeaseResult, err error) error {
	if err != nil {
		return err
	}
	return answers[0].Err
}

var calls = map[string]call{
	"Submit": {needs: Submit, do: func(ctx context.Context, g *Guard, at *target) error {
		_, err := g.Submit(ctx, gq.Spec{Queue: at.queue, Type: "t"})
		return err
	}},
	"SubmitBatch": {needs: Submit, do: func(ctx context.Context, g *Guard, at *target) error {
		out, err := g.SubmitBatch(ctx, []gq.Spec{{Queue: at.queue, Type: "t"}})
		if err != nil {
			return err
		}
		return out[0].Err
	}},
	"SubmitGraph": {needs: Submit, do: func(ctx context.Context, g *Guard, at *target) error {
		_, err := g.SubmitGraph(ctx, []gq.GraphJob{{Spec: gq.Spec{Queue: at.queue, Type: "t"}}})
		return err
	}},
	"Get": {needs: Read, do: func(ctx context.Context, g *Guard, at *target) error {
		_, err := g.Get(ctx, at.done, gq.WithPayload)
		return err
	}},
	"List": {needs: Read, do: func(ctx context.Context, g *Guard, at *target) error {
		_, err := g.List(ctx, gq.Query{Queue: at.queue})
		return err
	}},
	"UpdateMetadata": {needs: Submit, do: func(ctx context.Context, g *Guard, at *target) error {
		_, err := g.UpdateMetadata(ctx, at.job.Spec.ID, gq.MetadataPatch{SetTags: map[string]string{"a": "b"}})
		return err
	}},
	"Cancel": {needs: Submit, do: func(ctx context.Context, g *Guard, at *target) error {
		_, err := g.Cancel(ctx, at.job.Spec.ID, "")
		return err
	}},
	"CancelWhere": {needs: Submit, do: func(ctx context.Context, g *Guard, at *target) error {
		_, err := g.CancelWhere(ctx, gq.Query{Queue: at.queue, Statuses: []gq.Status{gq.StatusDelayed}}, "")
		return err
	}},
	"CountWhere": {needs: Read, do: func(ctx context.Context, g *Guard, at *target) error {
		_, err := g.CountWhere(ctx, gq.Query{Queue: at.queue})
		return err
	}},
	"ReplayWhere": {needs: Submit, do: func(ctx context.Context, g *Guard, at *target) error {
		_, err := g.ReplayWhere(ctx, gq.Query{Queue: at.queue, Statuses: []gq.Status{gq.StatusFailed}})
		return err
	}},
	"Reschedule": {needs: Submit, do: func(ctx context.Context, g *Guard, at *target) error {
		_, err := g.Reschedule(ctx, at.job.Spec.ID, time.Time{})
		return err
	}},
	"DeleteQueue": {needs: Admin, do: func(ctx context.Context, g *Guard, at *target) error {
		return g.DeleteQueue(ctx, at.queue)
	}},
	"SetQueueKey": {needs: Admin, do: func(ctx context.Context, g *Guard, at *target) error {
		_, err := g.SetQueueKey(ctx, gq.QueueKey{Queue: at.queue, Key: "k", Limit: 1})
		return err
	}},
	"UnsetQueueKey": {needs: Admin, do: func(ctx context.Context, g *Guard, at *target) error {
		err := g.UnsetQueueKey(ctx, at.queue, "k")
		if errors.Is(err, gq.ErrNotFound) { // it has none
			return nil
		}
		return err
	}},
	"QueueKeys": {needs: Read, do: func(ctx context.Context, g *Guard, at *target) error {
		_, err := g.QueueKeys(ctx, at.queue, "", 10)
		return err
	}},
	"QueueHistory": {needs: Read, do: func(ctx context.Context, g *Guard, at *target) error {
		_, err := g.QueueHistory(ctx, gq.HistoryQuery{Queues: []string{at.queue}})
		return err
	}},
	"QueueActivity": {needs: Read, do: func(ctx context.Context, g *Guard, at *target) error {
		_, err := g.QueueActivity(ctx, at.queue)
		return err
	}},
	"Edit": {needs: Submit, do: func(ctx context.Context, g *Guard, at *target) error {
		_, err := g.Edit(ctx, at.job.Spec.ID, gq.JobEdit{Queue: at.queue})
		return err
	}},
	"Replay": {needs: Submit, do: func(ctx context.Context, g *Guard, at *target) error {
		_, err := g.Replay(ctx, at.done)
		return err
	}},
	"Purge": {needs: Admin, do: func(ctx context.Context, g *Guard, at *target) error {
		return g.Purge(ctx, at.done)
	}},
	"PurgeWhere": {needs: Admin, do: func(ctx context.Context, g *Guard, at *target) error {
		_, err := g.PurgeWhere(ctx, gq.Query{Queue: at.queue, Statuses: []gq.Status{gq.StatusDeadLetter}})
		return err
	}},
	"Wait": {needs: Read, do: func(ctx context.Context, g *Guard, at *target) error {
		_, err := g.Wait(ctx, at.done)
		return err
	}},
	"Explain": {needs: Read, do: func(ctx context.Context, g *Guard, at *target) error {
		_, err := g.Explain(ctx, at.done)
		return err
	}},
	"History": {needs: Read, do: func(ctx context.Context, g *Guard, at *target) error {
		_, err := g.History(ctx, at.done)
		return err
	}},
	"Events": {needs: Read, whole: true, do: func(ctx context.Context, g *Guard, _ *target) error {
		_, err := g.Events(ctx, 0, 10)
		return err
	}},
	"Follow": {needs: Read, lists: true, do: func(ctx context.Context, g *Guard, at *target) error {
		return untilLast(ctx, g, func(e gq.Event) error {
			if e.Queue == at.queue {
				return errSeen
			}
			return nil
		})
	}},
	"LastEvent": {needs: Read, lists: true, do: func(ctx context.Context, g *Guard, _ *target) error {
		_, err := g.LastEvent(ctx)
		return err
	}},
	"BeforeFirstEvent": {needs: Read, lists: true, do: func(ctx context.Context, g *Guard, _ *target) error {
		_, err := g.BeforeFirstEvent(ctx)
		return err
	}},
	"ByLease": {needs: Read | Work, do: func(ctx context.Context, g *Guard, at *target) error {
		_, err := g.ByLease(ctx, at.job.State.Lease.ID, 0)
		return err
	}},
	"Jobs": {needs: Read, lists: true, do: func(ctx context.Context, g *Guard, at *target) error {
		jobs, err := g.Jobs(ctx, []gq.JobID{at.done}, 0)
		return listed(slices.Collect(maps.Values(jobs)), err)(func(j gq.Job) bool { return j.Spec.Queue == at.queue })
	}},
	"Advance": {needs: all, do: func(ctx context.Context, g *Guard, at *target) error {
		_, err := g.Advance(ctx, at.job.Spec.ID)
		return err
	}},
	"Connected": {needs: Work, do: func(ctx context.Context, g *Guard, at *target) error {
		name := "of " + at.queue
		if _, err := g.engine.Claim(context.Background(), gq.ClaimRequest{Worker: name, Queues: []string{at.queue}, Types: []string{"none"}, N: 1}); err != nil {
			return err
		}
		_, end, err := g.Connected(ctx, name, "")
		if err == nil {
			end(false)
		}
		return err
	}},
	"WorkerStopped": {needs: Work, do: func(ctx context.Context, g *Guard, at *target) error {
		name := "of " + at.queue
		if _, err := g.engine.Claim(context.Background(), gq.ClaimRequest{Worker: name, Queues: []string{at.queue}, Types: []string{"none"}, N: 1}); err != nil {
			return err
		}
		return g.WorkerStopped(ctx, name)
	}},
	"CatchUp": {needs: all, lists: true, do: func(ctx context.Context, g *Guard, _ *target) error {
		return g.CatchUp(ctx)
	}},
	"Report": {needs: Work, do: func(ctx context.Context, g *Guard, at *target) error {
		_, err := g.Report(ctx, at.job.State.Lease.Ref(), gq.Detail(0), machine.Report{})
		return err
	}},
	"Admit": {needs: Work, do: func(ctx context.Context, g *Guard, at *target) error {
		_, err := g.Admit(ctx, at.job.State.Lease.Ref(), time.Minute, 0)
		return err
	}},
	"ConfigurePool": {needs: Admin, whole: true, do: func(ctx context.Context, g *Guard, _ *target) error {
		return g.ConfigurePool(ctx, gq.Pool{Name: "p", Capacity: 5})
	}},
	"Sample": {needs: Read, whole: true, do: func(ctx context.Context, g *Guard, _ *target) error {
		return g.Sample(ctx, "p")
	}},
	"Samples": {needs: Read, whole: true, do: func(ctx context.Context, g *Guard, _ *target) error {
		_, err := g.Samples(ctx, "p", time.Now())
		return err
	}},
	"Claim": {needs: Work, do: func(ctx context.Context, g *Guard, at *target) error {
		_, err := g.Claim(ctx, gq.ClaimRequest{Worker: "x", Queues: []string{at.queue}, Types: []string{"none"}, N: 1})
		return err
	}},
	"Prepare": {needs: Work, do: func(ctx context.Context, g *Guard, at *target) error {
		_, err := g.Prepare(ctx, at.job.State.Lease.Ref(), gq.Detail(0))
		return err
	}},
	"Start": {needs: Work, do: func(ctx context.Context, g *Guard, at *target) error {
		_, err := g.Start(ctx, at.job.State.Lease.Ref(), 0)
		return err
	}},
	"Heartbeat": {needs: Work, do: func(ctx context.Context, g *Guard, at *target) error {
		return answer(g.Heartbeat(ctx, []gq.Heartbeat{{Lease: at.job.State.Lease.Ref(), Progress: -1}}))
	}},
	"Settle": {needs: Work, do: func(ctx context.Context, g *Guard, at *target) error {
		return answer(g.Settle(ctx, []gq.Outcome{{Lease: at.job.State.Lease.Ref(), Verdict: gq.VerdictComplete}}))
	}},
	"Complete": {needs: Work, do: func(ctx context.Context, g *Guard, at *target) error {
		_, err := g.Complete(ctx, at.job.State.Lease.Ref(), nil)
		return err
	}},
	"Fail": {needs: Work, do: func(ctx context.Context, g *Guard, at *target) error {
		_, err := g.Fail(ctx, at.job.State.Lease.Ref(), gq.Failure{Category: gq.CategoryTemporary})
		return err
	}},
	"Release": {needs: Work, do: func(ctx context.Context, g *Guard, at *target) error {
		_, err := g.Release(ctx, at.job.State.Lease.Ref(), time.Hour, "")
		return err
	}},
	"Workers": {needs: Read, lists: true, do: func(ctx context.Context, g *Guard, at *target) error {
		return listed(g.Workers(ctx))(func(w gq.LiveWorker) bool { return slices.Contains(w.Queues, at.queue) })
	}},
	"Queue": {needs: all, do: func(ctx context.Context, g *Guard, at *target) error {
		_, err := g.Queue(ctx, at.queue)
		return err
	}},
	"Queues": {needs: Read, lists: true, do: func(ctx context.Context, g *Guard, at *target) error {
		return listed(g.Queues(ctx))(func(q gq.Queue) bool { return q.Name == at.queue })
	}},
	"QueuesAfter": {needs: Read, lists: true, do: func(ctx context.Context, g *Guard, at *target) error {
		for after := ""; ; { // pages of one each, past those that the caller may not read
			page, err := g.QueuesAfter(ctx, after, 1)
			if err != nil || len(page) == 0 {
				return listed(page, err)(func(gq.Queue) bool { return true })
			}
			if after = page[0].Name; after == at.queue {
				return nil
			}
		}
	}},
	"DeclareQueue": {needs: Admin, do: func(ctx context.Context, g *Guard, at *target) error {
		_, err := g.DeclareQueue(ctx, gq.Queue{Name: at.queue})
		return err
	}},
	"PutQueue": {needs: Admin, do: func(ctx context.Context, g *Guard, at *target) error {
		_, err := g.PutQueue(ctx, gq.Queue{Name: at.queue})
		return err
	}},
	"ChangeQueue": {needs: Admin, do: func(ctx context.Context, g *Guard, at *target) error {
		_, err := g.ChangeQueue(ctx, at.queue, func(q *gq.Queue) { q.MaxDepth = 1000 })
		return err
	}},
	"Pause": {needs: Admin, do: func(ctx context.Context, g *Guard, at *target) error {
		_, err := g.Pause(ctx, at.queue)
		return err
	}},
	"Resume": {needs: Admin, do: func(ctx context.Context, g *Guard, at *target) error {
		_, err := g.Resume(ctx, at.queue)
		return err
	}},
	"Pools": {needs: Read, whole: true, do: func(ctx context.Context, g *Guard, _ *target) error {
		_, err := g.Pools(ctx)
		return err
	}},
	"PutPool": {needs: Admin, whole: true, do: func(ctx context.Context, g *Guard, _ *target) error {
		return g.PutPool(ctx, gq.Pool{Name: "p", Capacity: 5})
	}},
	"Inbox": {needs: Read, whole: true, do: func(ctx context.Context, g *Guard, _ *target) error {
		_, err := g.Inbox(ctx, "", 0)
		return err
	}},
	"RetryRefused": {needs: Admin, whole: true, do: func(ctx context.Context, g *Guard, _ *target) error {
		_, err := g.RetryRefused(ctx, gq.RefusedSelection{All: true})
		return err
	}},
	"DiscardRefused": {needs: Admin, whole: true, do: func(ctx context.Context, g *Guard, _ *target) error {
		_, err := g.DiscardRefused(ctx, gq.RefusedSelection{All: true})
		return err
	}},
	"Counts": {needs: Read, do: func(ctx context.Context, g *Guard, at *target) error {
		_, err := g.Counts(ctx, at.queue)
		return err
	}},
	"Stats": {needs: Read, lists: true, do: func(ctx context.Context, g *Guard, at *target) error {
		s, err := g.Stats(ctx)
		return listed(s.Queues, err)(func(c gq.Count) bool { return c.Queue == at.queue })
	}},
	"SubmitWorkflow": {needs: Submit, do: func(ctx context.Context, g *Guard, at *target) error {
		_, err := g.SubmitWorkflow(ctx, waiting(at.queue))
		return err
	}},
	"Workflow": {needs: Read, do: func(ctx context.Context, g *Guard, at *target) error {
		_, err := g.Workflow(ctx, at.flow)
		return err
	}},
	"Workflows": {needs: Read, lists: true, do: func(ctx context.Context, g *Guard, at *target) error {
		page, err := g.Workflows(ctx, gq.WorkflowQuery{Limit: 100})
		return listed(page.Workflows, err)(func(w gq.Workflow) bool { return w.ID == at.flow })
	}},
	"CancelWorkflow": {needs: Submit, do: func(ctx context.Context, g *Guard, at *target) error {
		_, err := g.CancelWorkflow(ctx, at.flow, "")
		return err
	}},
	"RetryWorkflow": {needs: Submit, do: func(ctx context.Context, g *Guard, at *target) error {
		_, err := g.RetryWorkflow(ctx, at.over)
		return err
	}},
	"AddToWorkflow": {needs: Submit, do: func(ctx context.Context, g *Guard, at *target) error {
		more := gq.NewWorkflow("")
		more.Add("more", gq.Draft{Spec: gq.Spec{Queue: at.queue, Type: "t"}})
		_, err := g.AddToWorkflow(ctx, at.flow, more)
		return err
	}},
	"Signal": {needs: Submit, do: func(ctx context.Context, g *Guard, at *target) error {
		_, err := g.Signal(ctx, at.flow, "go", 1)
		return err
	}},
	"Schedule": {needs: Read, do: func(ctx context.Context, g *Guard, at *target) error {
		_, err := g.Schedule(ctx, at.queue)
		return err
	}},
	"Schedules": {needs: Read, lists: true, do: func(ctx context.Context, g *Guard, at *target) error {
		return listed(g.Schedules(ctx))(func(s gq.Schedule) bool { return s.Name == at.queue })
	}},
	"DeclareSchedule": {needs: Admin, do: func(ctx context.Context, g *Guard, at *target) error {
		_, err := g.DeclareSchedule(ctx, schedule(at.queue))
		return err
	}},
	"PutSchedule": {needs: Admin, do: func(ctx context.Context, g *Guard, at *target) error {
		_, err := g.PutSchedule(ctx, schedule(at.queue))
		return err
	}},
	"PauseSchedule": {needs: Admin, do: func(ctx context.Context, g *Guard, at *target) error {
		_, err := g.PauseSchedule(ctx, at.queue)
		return err
	}},
	"ResumeSchedule": {needs: Admin, do: func(ctx context.Context, g *Guard, at *target) error {
		_, err := g.ResumeSchedule(ctx, at.queue)
		return err
	}},
	"TriggerSchedule": {needs: Submit, do: func(ctx context.Context, g *Guard, at *target) error {
		_, err := g.TriggerSchedule(ctx, at.queue)
		return err
	}},
	"BackfillSchedule": {needs: Submit, do: func(ctx context.Context, g *Guard, at *target) error {
		_, err := g.BackfillSchedule(ctx, gq.Backfill{Schedule: at.queue, From: time.Unix(0, 0), To: time.Unix(3600, 0)})
		return err
	}},
	"DeleteSchedule": {needs: Admin, do: func(ctx context.Context, g *Guard, at *target) error {
		return g.DeleteSchedule(ctx, at.queue)
	}},
}

// waiting is a workflow that waits for a signal.
func waiting(queue string) *gq.Flow {
	f := gq.NewWorkflow("w")
	f.Signal("go", gq.Unlimited, gq.InQueue(queue))
	return f
}

// errSeen means that a list has the expected item.
var errSeen = errors.New("seen")

func listed[T any](list []T, err error) func(func(T) bool) error {
	return func(is func(T) bool) error {
		if err != nil {
			return err
		}
		if slices.ContainsFunc(list, is) {
			return errSeen
		}
		return nil
	}
}

// untilLast follows the existing events.
func untilLast(ctx context.Context, g *Guard, f func(gq.Event) error) error {
	ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	return g.Follow(ctx, 0, func(events []gq.Event) error {
		for _, e := range events {
			if err := f(e); err != nil {
				return err
			}
		}
		return nil
	})
}

func schedule(queue string) gq.Schedule {
	return gq.Schedule{Name: queue, Every: time.Hour, Template: gq.Spec{Queue: queue, Type: "t"}}
}

// target fills a queue.
func (f *fixture) target(queue string) *target {
	f.Helper()
	done := f.job(queue)
	if _, err := f.engine.Complete(f.Context(), done.State.Lease.Ref(), []byte("1")); err != nil {
		f.Fatal(err)
	}
	if _, err := f.engine.PutSchedule(f.Context(), schedule(queue)); err != nil {
		f.Fatal(err)
	}
	at := &target{queue: queue, done: done.Spec.ID, job: f.job(queue)}
	for _, id := range []*gq.WorkflowID{&at.flow, &at.over} {
		var err error
		if *id, err = f.engine.SubmitWorkflow(f.Context(), waiting(queue)); err != nil {
			f.Fatal(err)
		}
	}
	if _, err := f.engine.CancelWorkflow(f.Context(), at.over, ""); err != nil {
		f.Fatal(err)
	}
	return at
}

// Calls every method, with every role, on the caller's own queue and on a foreign one.
func TestGuard(t *testing.T) {
	for name, c := range calls {
		t.Run(name, func(t *testing.T) {
			for _, role := range []Scope{Submit, Work, Read, Admin} {
				for _, pattern := range []string{"own", "ow*", "*"} {
					f := newFixture(t)
					own, foreign := f.target("own"), f.target("foreign")
					ctx := With(t.Context(), newIdentity("t", "t", []Grant{{role, []string{pattern}}}))
					has := role == Admin || role&c.needs != 0
					may := has && (!c.whole || pattern == "*")
					check(t, fmt.Sprintf("%s@%s on its own queue", role, pattern), c, c.do(ctx, f.guard, own), may)
					may = has && pattern == "*"
					check(t, fmt.Sprintf("%s@%s on a foreign queue", role, pattern), c, c.do(ctx, f.guard, foreign), may)
				}
			}
			f := newFixture(t)
			at := f.target("own")
			if err := c.do(t.Context(), f.guard, at); !errors.Is(err, gq.ErrUnauthenticated) {
				t.Errorf("without an identity: %v", err)
			}
		})
	}
}

func check(t *testing.T, what string, c call, err error, may bool) {
	t.Helper()
	denied := errors.Is(err, gq.ErrDenied)
	if c.lists {
		if may && denied || !may && errors.Is(err, errSeen) {
			t.Errorf("%s: %v, allowed %t", what, err, may)
		}
		return
	}
	if denied == may {
		t.Errorf("%s: %v, allowed %t", what, err, may)
	}
}

// A caller whose token is revoked while it waits gets nothing, and a job that arrived for
// it is available to others at once.
func TestARevokedTokenWaitsInVain(t *testing.T) {
	f := newFixture(t)
	identity, err := f.ring.Verify(t.Context(), f.token("w", "work,read"))
	if err != nil {
		t.Fatal(err)
	}
	ctx := With(t.Context(), identity)
	running := f.job("other")
	claimed, waited := make(chan error, 1), make(chan error, 1)
	go func() {
		jobs, err := f.guard.Claim(ctx, gq.ClaimRequest{Worker: "waiting", Wait: time.Minute, N: 1})
		if len(jobs) > 0 {
			err = fmt.Errorf("it got job %s", jobs[0].Spec.ID)
		}
		claimed <- err
	}()
	go func() {
		_, err := f.guard.Wait(ctx, running.Spec.ID)
		waited <- err
	}()
	for waiting := false; !waiting; time.Sleep(time.Millisecond) {
		workers, err := f.engine.Workers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		waiting = slices.ContainsFunc(workers, func(w gq.LiveWorker) bool { return w.Waiting > 0 })
	}
	if _, err := f.ring.Revoke(t.Context(), "w"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.engine.Submit(t.Context(), gq.Spec{Type: "t"}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.engine.Complete(t.Context(), running.State.Lease.Ref(), []byte("secret")); err != nil {
		t.Fatal(err)
	}
	for what, answer := range map[string]chan error{"claim": claimed, "wait": waited} {
		if err := <-answer; !errors.Is(err, gq.ErrUnauthenticated) {
			t.Errorf("%s: %v", what, err)
		}
	}
	jobs, err := f.engine.Claim(t.Context(), gq.ClaimRequest{Worker: "v", N: 1})
	if err != nil || len(jobs) != 1 || jobs[0].State.Faults+jobs[0].State.Losses != 0 {
		t.Errorf("%d jobs, %v", len(jobs), err)
	}
}

// TestMissingScopesAreNamed checks that a rejection says in one clause which scope is
// missing and where.
func TestMissingScopesAreNamed(t *testing.T) {
	f := newFixture(t)
	foreign := f.job("mail").State.ID
	submit := func(grants []string, s gq.Spec) error {
		_, err := f.guard.Submit(f.as(grants...), s)
		return err
	}
	get := func(grants ...string) error {
		_, err := f.guard.Get(f.as(grants...), foreign, 0)
		return err
	}
	cancel := func(grants ...string) error {
		_, err := f.guard.CancelWhere(f.as(grants...), gq.Query{}, "")
		return err
	}
	for want, err := range map[string]error{
		"this token lacks the scope submit":                        submit([]string{"read"}, gq.Spec{Type: "t"}),
		"this token lacks the scope submit on queue default":       submit([]string{"submit@mail"}, gq.Spec{Type: "t"}),
		"this token lacks the scope submit on queue web":           submit([]string{"submit@mail"}, gq.Spec{Type: "t", Queue: "web"}),
		`this token lacks the scope submit on queue "a\nb"`:        submit([]string{"submit@mail"}, gq.Spec{Type: "t", Queue: "a\nb"}),
		"this token lacks the scope read on the queue of this job": get("read@web"),
		"this token lacks the scope submit on all queues":          cancel("submit@mail"),
		"this token lacks the scope submit or read on the queue of job " + foreign.String() + ", which the new job depends on": submit(
			[]string{"submit@web"}, gq.Spec{Type: "t", Queue: "web", DependsOn: []gq.Dependency{{Kind: gq.DependencyAfter, Job: foreign}}}),
	} {
		if err == nil || err.Error() != want || errs.CodeOf(err) != "denied" {
			t.Errorf("%v (%s), want %s", err, errs.CodeOf(err), want)
		}
	}
}
