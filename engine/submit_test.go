package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

func TestSubmit(t *testing.T) {
	spec.Covers(t, "Q-37", "J-04", "J-06")
	bubble(t, func(t *testing.T, f *fixture) {
		first := must[gq.SubmitResult](t)(f.Submit(t.Context(), gq.Spec{Type: "t", Payload: payload(`{"n":1}`)}))
		second := must[gq.JobID](t)(f.Enqueue(t.Context(), gq.Spec{Type: "t"}))
		if !first.ID().Valid() || !second.Valid() || first.ID() == second {
			t.Errorf("ids %s and %s: want two version 4 UUIDs", first.ID(), second)
		}
		if j := f.get(first.ID()); j.Spec.ID != first.ID() || string(j.Spec.Payload.Data) != `{"n":1}` || j.State.Status != gq.StatusScheduled {
			t.Errorf("the job reads %+v", j)
		}

		chosen := machine.NewJobID([16]byte{1, 2, 3})
		_, err := f.Submit(t.Context(), gq.Spec{ID: chosen})
		if faults := fields(err); !slices.Contains(faults, "id") || !slices.Contains(faults, "type") {
			t.Errorf("a chosen id and a missing type: %v, want both faults", err)
		}
		if _, err := f.Get(t.Context(), chosen, 0); !errors.Is(err, gq.ErrNotFound) {
			t.Errorf("the chosen id: %v, want not found", err)
		}
	})
}

// fields returns the fields that an error names.
func fields(err error) (all []string) {
	for _, f := range errs.FaultsOf(err) {
		all = append(all, f.Field)
	}
	return all
}

func TestSubmitBatch(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		out := must[[]gq.SubmitResult](t)(f.SubmitBatch(t.Context(), []gq.Spec{
			{Type: "a"},
			{Type: "b", ID: machine.NewJobID([16]byte{9})},
			{},
			{Type: "d"},
		}))
		for i, ok := range []bool{true, false, false, true} {
			if (out[i].Err == nil) != ok {
				t.Errorf("answer %d: %v, want accepted %v", i, out[i].Err, ok)
			}
			if !ok {
				wantErr(t, "refused", out[i].Err, gq.ErrInvalid)
			}
		}
		if jobs := f.claim(2); jobs[0].Spec.Type != "a" || jobs[1].Spec.Type != "d" {
			t.Errorf("stored %s and %s", jobs[0].Spec.Type, jobs[1].Spec.Type)
		}
		if out, err := f.SubmitBatch(t.Context(), nil); err != nil || len(out) != 0 {
			t.Errorf("nothing: %v %v", out, err)
		}
	})
}

func TestSubmitKey(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		keyed := func(change func(*gq.Spec)) gq.SubmitResult {
			t.Helper()
			s := gq.Spec{Type: "t", Payload: payload("1"), Key: gq.IdempotencyKey{Name: "k"}, Metadata: gq.Metadata{Tags: map[string]string{"a": "1", "b": "2"}}}
			change(&s)
			return must[gq.SubmitResult](t)(f.Submit(t.Context(), s))
		}
		first := keyed(func(*gq.Spec) {})
		if first.Existing {
			t.Error("the first submission found an existing job")
		}
		f.putQueue(gq.Queue{Name: gq.DefaultQueue, Policy: gq.PresetSemantics.Policy()})
		for _, test := range []struct {
			name   string
			change func(*gq.Spec)
			same   bool
		}{
			{"Again", func(*gq.Spec) {}, true},
			{"DefaultsSpelledOut", func(s *gq.Spec) { s.Queue, s.Metadata.Priority = gq.DefaultQueue, gq.PriorityNormal }, true},
			{"Payload", func(s *gq.Spec) { s.Payload = payload("2") }, false},
			{"Tags", func(s *gq.Spec) { s.Metadata.Tags = nil }, false},
			{"Delay", func(s *gq.Spec) { s.Delay = time.Second }, false},
			{"Policy", func(s *gq.Spec) { s.Policy = gq.PresetAI.Policy() }, false},
			{"Queue", func(s *gq.Spec) { s.Queue = "other" }, false},
			{"OwnFingerprint", func(s *gq.Spec) { s.Key.Fingerprint = 7 }, false},
		} {
			again := keyed(test.change)
			if !again.Existing || again.ID() != first.ID() || again.Same != test.same {
				t.Errorf("%s: existing %v, same %v, job %s; want true, %v, %s",
					test.name, again.Existing, again.Same, again.ID(), test.same, first.ID())
			}
			s := gq.Spec{Type: "t", Payload: payload("1"), Key: gq.IdempotencyKey{Name: "k"}, Metadata: gq.Metadata{Tags: map[string]string{"a": "1", "b": "2"}}}
			test.change(&s)
			id, err := f.Enqueue(t.Context(), s)
			if id != first.ID() || errors.Is(err, gq.ErrKeyReused) == test.same || (err == nil) != test.same {
				t.Errorf("%s: Enqueue returned %s, %v; want %s, and an error unless it is the same", test.name, id, err, first.ID())
			}
			if err != nil && !strings.Contains(err.Error(), first.ID().String()) {
				t.Errorf("%s: the error does not name the job: %v", test.name, err)
			}
		}
		if other := keyed(func(s *gq.Spec) { s.Type = "other" }); other.Existing {
			t.Error("the same key of another type found a job")
		}
	})
}

func TestQueuePolicy(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.putQueue(gq.Queue{Name: "q", Policy: gq.PresetTaskQueue.Policy()})
		preset := func(s gq.Spec) gq.Preset { return f.get(f.submit(s)).Spec.Policy.Preset }
		if got := preset(gq.Spec{Queue: "q"}); got != gq.PresetTaskQueue {
			t.Errorf("no policy: %s, want the queue's", got)
		}
		if got := preset(gq.Spec{Queue: "q", Policy: gq.PresetAI.Policy()}); got != gq.PresetAI {
			t.Errorf("a policy of its own: %s", got)
		}
		if got := preset(gq.Spec{Queue: "unknown"}); got != gq.PresetJobModel {
			t.Errorf("a queue without settings: %s", got)
		}
		f.putQueue(gq.Queue{Name: "q", Policy: gq.PresetSemantics.Policy()})
		if got := preset(gq.Spec{Queue: "q"}); got != gq.PresetSemantics {
			t.Errorf("after a change through this engine: %s", got)
		}
		other := newEngine(t, f.store, engine.Options{})
		must[gq.Queue](t)(other.PutQueue(t.Context(), gq.Queue{Name: "q", Policy: gq.PresetQuantum.Policy()}))
		time.Sleep(time.Second)
		if got := preset(gq.Spec{Queue: "q"}); got != gq.PresetQuantum {
			t.Errorf("a second after a change through another engine: %s", got)
		}
	})
}

// Queues that are not configured have the engine's default policy, also if they already have
// jobs; a queue that was configured keeps its own, even if that is the default of others.
func TestDefaultPreset(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		e := newEngine(t, f.store, engine.Options{Preset: gq.PresetResilient})
		preset := func(queue string) gq.Preset {
			r := must[gq.SubmitResult](t)(e.Submit(t.Context(), gq.Spec{Type: "t", Queue: queue}))
			return f.get(r.ID()).Spec.Policy.Preset
		}
		for range 2 {
			if got := preset("q"); got != gq.PresetResilient {
				t.Errorf("a queue without settings: %s", got)
			}
		}
		if q := must[gq.Queue](t)(e.Queue(t.Context(), "q")); q.Policy.Preset != gq.PresetResilient {
			t.Errorf("the queue shows %s", q.Policy.Preset)
		}
		if all := must[[]gq.Queue](t)(e.Queues(t.Context())); len(all) != 1 || all[0].Policy.Preset != gq.PresetResilient {
			t.Errorf("the queues are %+v", all)
		}
		must[gq.Queue](t)(e.PutQueue(t.Context(), gq.Queue{Name: "own", Policy: gq.PresetJobModel.Policy()}))
		must[gq.Queue](t)(e.PutQueue(t.Context(), gq.Queue{Name: "limited", MaxRunning: 3}))
		time.Sleep(2 * time.Second)
		if got := preset("own"); got != gq.PresetJobModel {
			t.Errorf("a queue with the documents' policy: %s", got)
		}
		if got := preset("limited"); got != gq.PresetResilient {
			t.Errorf("a queue that was configured without a policy: %s", got)
		}
		for _, wrong := range []gq.Preset{200} {
			if _, err := engine.New(f.store, engine.Options{Preset: wrong}); !errors.Is(err, gq.ErrInvalid) {
				t.Errorf("preset %d: %v", wrong, err)
			}
		}
	})
}

// delayed is a store whose next read of the queues returns late.
type delayed struct {
	store.Store

	next atomic.Pointer[chan struct{}]
}

// hold blocks the next read, after it has read its data, until the returned function is
// called.
func (d *delayed) hold() (release func()) {
	c := make(chan struct{})
	d.next.Store(&c)
	return func() { close(c) }
}

func (d *delayed) Queues(ctx context.Context, q store.QueueQuery) ([]gq.Queue, error) {
	wait := d.next.Swap(nil)
	queues, err := d.Store.Queues(ctx, q)
	if wait != nil {
		<-*wait
	}
	return queues, err
}

// A queue's new configuration applies to every later submission, even if an earlier one
// finishes reading the queues late.
func TestQueuePolicyIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := &delayed{}
		f := newFixture(t, engine.Options{}, func(s store.Store) store.Store { late.Store = s; return late })
		f.submit(gq.Spec{})
		time.Sleep(time.Minute) // the cache is stale
		var others sync.WaitGroup
		release := late.hold()
		others.Go(func() { f.submit(gq.Spec{}) })
		synctest.Wait()
		q := machine.NewQueue(gq.DefaultQueue)
		q.Policy.MaxAttempts = 7
		must[gq.Queue](t)(f.PutQueue(t.Context(), q))
		release()
		others.Wait()

		release = late.hold()
		others.Go(func() { f.submit(gq.Spec{}) })
		synctest.Wait()
		if bound := f.get(f.submit(gq.Spec{})).State.Bound; bound != 7 {
			t.Errorf("a job has %d attempts, want the 7 of its queue", bound)
		}
		release()
		others.Wait()
	})
}

func TestSubmissionTimeout(t *testing.T) {
	spec.Covers(t, "J-53")
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		for _, reads := range []bool{false, true} {
			e := newEngine(t, stalled{s, reads}, engine.Options{})
			began := time.Now()
			_, err := e.Submit(t.Context(), gq.Spec{Type: "t"})
			wantErr(t, "a stalled store", err, gq.ErrTimeout)
			if errs.KindOf(err) != gq.KindTimeout || time.Since(began) != 30*time.Second {
				t.Errorf("%v after %v, want a timeout after 30 s", err, time.Since(began))
			}
			// Submissions whose contexts never end share a timer and time out slightly
			// later.
			var wait sync.WaitGroup
			for i := range 20 {
				wait.Go(func() {
					time.Sleep(time.Duration(i) * 30 * time.Millisecond)
					began := time.Now()
					_, err := e.Submit(context.WithoutCancel(t.Context()), gq.Spec{Type: "t"})
					if took := time.Since(began); !errors.Is(err, gq.ErrTimeout) || took < 30*time.Second || took > 30*time.Second+100*time.Millisecond {
						t.Errorf("%v after %v, want a timeout after 30 s", err, took)
					}
				})
			}
			wait.Wait()
		}
		short := newEngine(t, stalled{s, true}, engine.Options{Timeout: time.Second})
		began := time.Now()
		if _, err := short.SubmitGraph(t.Context(), []gq.GraphJob{{Spec: gq.Spec{Type: "t"}}}); errs.KindOf(err) != gq.KindTimeout || time.Since(began) != time.Second {
			t.Errorf("%v after %v, want a timeout after 1 s", err, time.Since(began))
		}
	})
}

// TestReplaceByCancel: a payload is never changed in place; cancel the job and submit
// another.
func TestReplaceByCancel(t *testing.T) {
	spec.Covers(t, "J-129")
	bubble(t, func(t *testing.T, f *fixture) {
		old := f.submit(gq.Spec{Payload: payload("1")})
		must[gq.State](t)(f.Cancel(t.Context(), old, "replaced"))
		changed := f.submit(gq.Spec{Payload: payload("2")})
		if old == changed {
			t.Error("the new job has the id of the old one")
		}
		f.status(old, gq.StatusCancelled)
		if j, _ := f.take(); j.State.ID != changed || string(j.Spec.Payload.Data) != "2" {
			t.Errorf("claimed %s with %s, want the changed job", j.State.ID, j.Spec.Payload.Data)
		}
		f.claim(0)
		if j := f.get(old); string(j.Spec.Payload.Data) != "1" {
			t.Errorf("the old payload reads %s", j.Spec.Payload.Data)
		}
	})
}

func TestSubmitGraphFaults(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		need := func(kind gq.DependencyKind, refs ...string) (all []gq.Dependency) {
			for _, r := range refs {
				all = append(all, gq.Dependency{Kind: kind, Ref: r})
			}
			return all
		}
		draft := func(ref string, needs ...gq.Dependency) gq.GraphJob {
			return gq.GraphJob{Spec: gq.Spec{Type: "t"}, Ref: ref, Needs: needs}
		}
		for _, test := range []struct {
			name   string
			drafts []gq.GraphJob
			want   []string // faults: a field and a word of the problem
		}{
			{"Nothing", nil, []string{"jobs: a graph has 1 to"}},
			{"UnknownRef", []gq.GraphJob{draft("a", need(gq.DependencyAfter, "z")...)}, []string{"jobs[0].needs[0].ref: \"z\" is not a job"}},
			{"EmptyRef", []gq.GraphJob{draft("a"), draft("", need(gq.DependencyAfter, "")...)}, []string{"jobs[1].needs[0].ref: \"\" is not a job"}},
			{"DuplicateRef", []gq.GraphJob{draft("a"), draft("a")}, []string{"jobs[1].ref: \"a\" is already used by jobs[0]"}},
			{"Itself", []gq.GraphJob{draft("a", need(gq.DependencyAfter, "a")...)}, []string{"jobs[0].needs[0].ref: \"a\" depends on itself"}},
			{"Cycle", []gq.GraphJob{
				draft("a", need(gq.DependencyAfter, "c")...), draft("b", need(gq.DependencyChain, "a")...), draft("c", need(gq.DependencyFanIn, "b")...),
			}, []string{"jobs[0].depends_on: is a cycle"}},
			{"UnknownKind", []gq.GraphJob{draft("a"), draft("b", need(0, "a")...)}, []string{"jobs[1].depends_on[0].kind"}},
			{
				"UnknownJob",
				[]gq.GraphJob{draft("a"), {Spec: gq.Spec{Type: "t", DependsOn: []gq.Dependency{{Kind: gq.DependencyAfter, Job: machine.NewJobID([16]byte{1})}}}}},
				[]string{"jobs[1].depends_on[0].job"},
			},
			{"Everything", []gq.GraphJob{
				draft("a", need(gq.DependencyAfter, "b")...),
				draft("b", need(gq.DependencyAfter, "a", "x")...),
				{Ref: "b", Spec: gq.Spec{ID: machine.NewJobID([16]byte{1})}},
			}, []string{"jobs[2].ref", "jobs[2].id", "jobs[2].type", "jobs[1].needs[1].ref", "is a cycle"}},
		} {
			_, err := f.SubmitGraph(t.Context(), test.drafts)
			if !errors.Is(err, gq.ErrInvalid) {
				t.Errorf("%s: %v, want invalid", test.name, err)
			}
			for _, want := range test.want {
				if !slices.ContainsFunc(errs.FaultsOf(err), func(f gq.Fault) bool { return strings.Contains(f.String(), want) }) {
					t.Errorf("%s: no fault %q in %v", test.name, want, err)
				}
			}
		}
		if page := must[gq.Page](t)(f.List(t.Context(), gq.Query{})); len(page.Jobs) != 0 {
			t.Errorf("%d jobs of refused graphs are stored", len(page.Jobs))
		}
	})
}

// TestWideGraph submits a thousand parents of one child in one call.
func TestWideGraph(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		const n = 1000
		drafts := make([]gq.GraphJob, n+1)
		for i := range n {
			drafts[i] = gq.GraphJob{Spec: gq.Spec{Type: "parent"}, Ref: fmt.Sprint(i)}
			drafts[n].Needs = append(drafts[n].Needs, gq.Dependency{Kind: gq.DependencyAfter, Ref: fmt.Sprint(i)})
		}
		drafts[n].Spec = gq.Spec{Type: "child"}
		out := must[[]gq.SubmitResult](t)(f.SubmitGraph(t.Context(), drafts))
		child := out[n].ID()
		f.status(child, gq.StatusPending)
		jobs := f.claim(n)
		for from := 0; from < n; from += 100 {
			outcomes := make([]gq.Outcome, 100)
			for i := range outcomes {
				outcomes[i] = gq.Outcome{Lease: jobs[from+i].State.Lease.Ref(), Verdict: gq.VerdictComplete}
			}
			for _, a := range must[[]gq.LeaseResult](t)(f.Settle(t.Context(), outcomes)) {
				if a.Err != nil {
					t.Fatal(a.Err)
				}
			}
			if from+100 < n {
				f.status(child, gq.StatusPending)
			}
		}
		j, lease := f.take(waiting(time.Minute))
		if j.State.ID != child {
			t.Fatalf("claimed %s, want the child", j.Spec.Type)
		}
		must[gq.State](t)(f.Complete(t.Context(), lease, nil))
	})
}

// TestDeepGraph submits a chain of the maximum length.
func TestDeepGraph(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		drafts := make([]gq.GraphJob, gq.MaxDepth)
		for i := range drafts {
			drafts[i] = gq.GraphJob{Spec: gq.Spec{Type: "link"}, Ref: fmt.Sprint(i)}
			if i > 0 {
				drafts[i].Needs = []gq.Dependency{{Kind: gq.DependencyChain, Ref: fmt.Sprint(i - 1)}}
			}
		}
		out := must[[]gq.SubmitResult](t)(f.SubmitGraph(t.Context(), drafts))
		for i := range out {
			j, lease := f.take(waiting(time.Minute))
			if j.State.ID != out[i].ID() {
				t.Fatalf("step %d claimed another job", i)
			}
			must[gq.State](t)(f.Complete(t.Context(), lease, nil))
		}
		f.claim(0)
		drafts = append(slices.Clone(drafts), gq.GraphJob{Spec: gq.Spec{Type: "link"}, Needs: []gq.Dependency{{Kind: gq.DependencyChain, Ref: fmt.Sprint(gq.MaxDepth - 1)}}})
		_, err := f.SubmitGraph(t.Context(), drafts)
		wantErr(t, "one link more", err, gq.ErrInvalid)
	})
}

// A delay and a start time contradict each other.
func TestSubmitDelayAndRunAt(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		spec := gq.Spec{Type: "t", Delay: time.Minute, RunAt: time.Now().Add(time.Hour)}
		_, err := f.Submit(t.Context(), spec)
		if faults := errs.FaultsOf(err); len(faults) != 1 || faults[0].Field != "delay" || !strings.Contains(faults[0].Problem, "run_at") {
			t.Errorf("%v", err)
		}
		spec.Type, spec.Metadata.Priority = "", 9
		_, err = f.Submit(t.Context(), spec)
		if faults := errs.FaultsOf(err); len(faults) == 0 || !errors.Is(err, gq.ErrInvalid) {
			t.Errorf("%v", err)
		}
		for _, one := range []gq.Spec{{Type: "t", Delay: time.Minute}, {Type: "t", RunAt: time.Now().Add(time.Hour)}} {
			if _, err := f.Submit(t.Context(), one); err != nil {
				t.Error(err)
			}
		}
	})
}
