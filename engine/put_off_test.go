package engine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/store"
)

// A claimable job that is to run later is replaced by a copy that carries on from it.
func TestPutOff(t *testing.T) {
	onEachStore(t, func(t *testing.T, again func() store.Store) {
		ctx, s := t.Context(), again()
		f := &fixture{T: t, Engine: newEngine(t, s, engine.Options{}), store: s}
		policy := gq.PresetJobModel.Policy()
		policy.Backoff.Initial = time.Nanosecond
		id := f.submit(gq.Spec{
			Type: "t", Payload: payload(`{"a":1}`), Key: gq.IdempotencyKey{Name: "k"}, Policy: policy,
			Metadata: gq.Metadata{Tags: map[string]string{"a": "b"}},
		})
		child := f.submit(gq.Spec{Type: "child", DependsOn: []gq.Dependency{{Kind: gq.DependencyAfter, Job: id}}})
		_, lease := f.take()
		must[[]gq.LeaseResult](t)(f.Heartbeat(ctx, []gq.Heartbeat{{Lease: lease, Checkpoint: []byte("cp")}}))
		must[gq.State](t)(f.Engine.Fail(ctx, lease, gq.Failure{Category: gq.CategoryTemporary, Message: "x"}))
		must[gq.State](t)(f.Reschedule(ctx, id, time.Time{}))
		old := f.get(id)
		at := time.Now().Add(time.Hour).Truncate(time.Second).UTC()
		next := must[gq.State](t)(f.Reschedule(ctx, id, at))
		got := f.get(next.ID)
		if next.ID == id || got.State.Status != gq.StatusDelayed || !got.State.RunAt.Equal(at) || got.Spec.Replaces != id || f.get(id).State.ReplacedBy != next.ID {
			t.Errorf("put off: %+v of %+v", got.State, got.Spec)
		}
		if s := &got.State; s.Attempt != 1 || s.Bound != 3 || s.Version != 1 || s.Failure == nil || string(got.Checkpoint) != "cp" || !s.SubmittedAt.Equal(old.State.CreatedAt) ||
			got.Spec.Key != old.Spec.Key || got.Metadata.Tags["a"] != "b" || string(got.Spec.Payload.Data) != `{"a":1}` {
			t.Errorf("it carries on with %+v of %+v, checkpoint %q", s, got.Spec, got.Checkpoint)
		}
		if again := must[gq.State](t)(f.Reschedule(ctx, id, at)); again.ID != next.ID {
			t.Errorf("the same call again: %v, want %v", again.ID, next.ID)
		}
		_, err := f.Reschedule(ctx, id, time.Time{})
		wantErr(t, "a job that was put off", err, gq.ErrIllegalMove)
		if !strings.Contains(err.Error(), next.ID.String()) {
			t.Errorf("%v does not name the job that took the place", err)
		}
		waits := f.get(child)
		if waits.State.Status != gq.StatusPending || waits.Spec.DependsOn[0].Job != next.ID {
			t.Errorf("a dependent is %s and depends on %v, want %v", waits.State.Status, waits.Spec.DependsOn, next.ID)
		}
		why := must[gq.Explanation](t)(f.Explain(ctx, child))
		if len(why.Reason.Jobs) != 1 || why.Reason.Jobs[0].Job != next.ID || !strings.Contains(why.Reason.Summary, next.ID.String()) {
			t.Errorf("explain of a dependent says %+v", why.Reason)
		}
		page := must[gq.Page](t)(f.List(ctx, gq.Query{Statuses: []gq.Status{gq.StatusPending}}))
		if len(page.Jobs) != 1 || page.Jobs[0].Spec.DependsOn[0].Job != next.ID {
			t.Errorf("the list shows %+v", page.Jobs)
		}
		must[gq.State](t)(f.Reschedule(ctx, next.ID, time.Time{}))
		if j, _ := f.take(); j.State.ID != next.ID || j.State.Attempt != 2 || j.State.Version != 2 {
			t.Errorf("claimed %+v", j.State)
		}
	})
}

// A job that has lost its key to another one is put off without it.
func TestPutOffWithoutItsKey(t *testing.T) {
	f := newFixture(t, engine.Options{}, nil)
	policy := gq.PresetJobModel.Policy()
	policy.IdempotencyWindow = time.Nanosecond
	spec := gq.Spec{Type: "t", Key: gq.IdempotencyKey{Name: "k"}, Policy: policy}
	first := f.submit(spec)
	time.Sleep(time.Millisecond)
	second := f.submit(spec)
	if first == second {
		t.Fatal("the key is held")
	}
	next := must[gq.State](t)(f.Reschedule(t.Context(), first, time.Now().Add(time.Hour)))
	if j := f.get(next.ID); j.State.Status != gq.StatusDelayed {
		t.Errorf("put off: %+v", j.State)
	}
}

func TestPutOffRefused(t *testing.T) {
	f := newFixture(t, engine.Options{}, nil)
	ctx := t.Context()
	ordered := f.submit(gq.Spec{Type: "t", OrderKey: "k"})
	_, err := f.Reschedule(ctx, ordered, time.Now().Add(time.Hour))
	wantErr(t, "a job with an order key", err, gq.ErrIllegalMove)
	flow := must[gq.WorkflowID](t)(f.SubmitWorkflow(ctx, &gq.Flow{Jobs: []gq.GraphJob{{Ref: "a", Spec: gq.Spec{Type: "t"}}}}))
	step := must[gq.Workflow](t)(f.Workflow(ctx, flow)).Jobs[0].ID
	_, err = f.Reschedule(ctx, step, time.Now().Add(time.Hour))
	wantErr(t, "a job of a workflow", err, gq.ErrIllegalMove)
	if got := f.get(step).State.Status; got != gq.StatusScheduled {
		t.Errorf("refused, the job is %s", got)
	}
	life := gq.PresetJobModel.Policy()
	life.Lifetime = time.Hour
	_, err = f.Reschedule(ctx, f.submit(gq.Spec{Type: "t", Policy: life}), time.Now().Add(2*time.Hour))
	wantErr(t, "a time after the lifetime", err, gq.ErrInvalid)
}

// An edited job does not start later than the first one had to.
func TestEditKeepsDeadlines(t *testing.T) {
	onEachStore(t, func(t *testing.T, again func() store.Store) {
		s := again()
		f := &fixture{T: t, Engine: newEngine(t, s, engine.Options{}), store: s}
		policy := gq.PresetJobModel.Policy()
		policy.StartWithin = time.Hour
		old := f.get(f.submit(gq.Spec{Type: "t", Policy: policy}))
		out := must[gq.SubmitResult](t)(f.Edit(t.Context(), old.State.ID, gq.JobEdit{Queue: "other"}))
		if out.Replaces != old.State.ID {
			t.Errorf("the answer names %v, want %v", out.Replaces, old.State.ID)
		}
		must[gq.SubmitResult](t)(f.Edit(t.Context(), out.ID(), gq.JobEdit{Queue: "third"}))
		last := f.get(f.get(out.ID()).State.ReplacedBy)
		if !last.State.SubmittedAt.Equal(old.State.CreatedAt) || !last.State.CreatedAt.After(old.State.CreatedAt) {
			t.Errorf("submitted at %v, want %v", last.State.SubmittedAt, old.State.CreatedAt)
		}
	})
}

// The overlap rule follows a slot's job that was edited, moved or put off.
func TestOverlapFollowsReplacedJobs(t *testing.T) {
	replace := map[string]func(f *fixture, id gq.JobID) gq.JobID{
		"edited twice": func(f *fixture, id gq.JobID) gq.JobID {
			for _, data := range []string{"2", "3"} {
				id = must[gq.SubmitResult](f.T)(f.Edit(f.Context(), id, gq.JobEdit{Payload: &gq.Payload{Data: []byte(data)}})).ID()
			}
			return id
		},
		"moved": func(f *fixture, id gq.JobID) gq.JobID {
			return must[gq.SubmitResult](f.T)(f.Edit(f.Context(), id, gq.JobEdit{Queue: "other"})).ID()
		},
		"put off": func(f *fixture, id gq.JobID) gq.JobID {
			return must[gq.State](f.T)(f.Reschedule(f.Context(), id, time.Now().Add(time.Hour))).ID
		},
	}
	onEachStore(t, func(t *testing.T, again func() store.Store) {
		s := again()
		f := &fixture{T: t, Engine: newEngine(t, s, engine.Options{}), store: s}
		for how, replaced := range replace {
			for _, rule := range []gq.OverlapRule{gq.OverlapSkip, gq.OverlapQueueOne, gq.OverlapCancelRunning} {
				name := strings.ReplaceAll(how, " ", "-") + "-" + rule.String()
				must[gq.Schedule](t)(f.PutSchedule(t.Context(), gq.Schedule{Name: name, Cron: "0 0 1 1 *", Overlap: rule, Template: gq.Spec{Type: "t", Queue: "q"}}))
				first := must[gq.Firing](t)(f.TriggerSchedule(t.Context(), name)).Job
				next := replaced(f, first)
				time.Sleep(1100 * time.Millisecond) // to the next slot
				_, err := f.TriggerSchedule(t.Context(), name)
				if rule != gq.OverlapCancelRunning {
					wantErr(t, name, err, gq.ErrOverlap)
					if !strings.Contains(err.Error(), next.String()) {
						t.Errorf("%s: %v does not name the live job", name, err)
					}
					continue
				}
				if state := f.get(next).State; err != nil || state.Status != gq.StatusCancelled {
					t.Errorf("%s: the job that took the place is %s, %v", name, state.Status, err)
				}
			}
		}
	})
}

// A queued job waits for the job that took the place of the running slot's job.
func TestQueueOneBehindPutOffJob(t *testing.T) {
	f := newFixture(t, engine.Options{}, nil)
	policy := gq.PresetJobModel.Policy()
	policy.Backoff.Initial = time.Nanosecond
	must[gq.Schedule](t)(f.PutSchedule(t.Context(), gq.Schedule{Name: "s", Cron: "0 0 1 1 *", Overlap: gq.OverlapQueueOne, Template: gq.Spec{Type: "t", Policy: policy}}))
	first := must[gq.Firing](t)(f.TriggerSchedule(t.Context(), "s")).Job
	_, lease := f.take()
	must[gq.State](t)(f.Engine.Fail(t.Context(), lease, gq.Failure{Category: gq.CategoryTemporary}))
	must[gq.State](t)(f.Reschedule(t.Context(), first, time.Time{}))
	next := must[gq.State](t)(f.Reschedule(t.Context(), first, time.Now().Add(time.Hour)))
	time.Sleep(1100 * time.Millisecond)
	queued := f.get(must[gq.Firing](t)(f.TriggerSchedule(t.Context(), "s")).Job)
	if queued.State.Status != gq.StatusPending || queued.Spec.DependsOn[0].Job != next.ID {
		t.Errorf("the queued job is %s and waits for %v, want %v", queued.State.Status, queued.Spec.DependsOn, next.ID)
	}
}

// The answer to a submission names the waiting job that it replaced.
func TestSubmissionNamesReplacedJob(t *testing.T) {
	onEachStore(t, func(t *testing.T, again func() store.Store) {
		s := again()
		f := &fixture{T: t, Engine: newEngine(t, s, engine.Options{}), store: s}
		spec := gq.Spec{Type: "t", Key: gq.IdempotencyKey{Name: "k"}, Unique: gq.UniqueRule{While: gq.WhileWaiting, OnCollision: gq.Replace}}
		first := must[gq.SubmitResult](t)(f.Submit(t.Context(), spec))
		second := must[gq.SubmitResult](t)(f.Submit(t.Context(), spec))
		many := must[[]gq.SubmitResult](t)(f.SubmitBatch(t.Context(), []gq.Spec{spec}))
		if !first.Replaces.IsZero() || second.Replaces != first.ID() || many[0].Replaces != second.ID() {
			t.Errorf("the answers name %v, %v and %v", first.Replaces, second.Replaces, many[0].Replaces)
		}
	})
}

// A job that takes the place of another one, by an edit or a later run time, keeps the priority that the other
// inherited from dependencies that have ended.
func TestInheritedPriorityStays(t *testing.T) {
	onEachStore(t, func(t *testing.T, again func() store.Store) {
		ctx, s := t.Context(), again()
		f := &fixture{T: t, Engine: newEngine(t, s, engine.Options{}), store: s}
		parent := f.submit(gq.Spec{Type: "parent", Metadata: gq.Metadata{Priority: gq.PriorityCritical}})
		after := []gq.Dependency{{Kind: gq.DependencyAfter, Job: parent}}
		bulk := gq.Spec{Type: "child", Metadata: gq.Metadata{Priority: gq.PriorityBulk}, DependsOn: after}
		edited, late := f.submit(bulk), f.submit(bulk)
		_, lease := f.take()
		must[[]gq.LeaseResult](t)(f.Settle(ctx, []gq.Outcome{{Lease: lease, Verdict: gq.VerdictComplete}}))
		f.sweep()
		for _, id := range []gq.JobID{edited, late} {
			f.status(id, gq.StatusScheduled)
		}
		next := []gq.JobID{
			must[gq.SubmitResult](t)(f.Edit(ctx, edited, gq.JobEdit{Payload: new(payload(`{"a":2}`))})).ID(),
			must[gq.State](t)(f.Reschedule(ctx, late, time.Now().Add(time.Hour))).ID,
		}
		for i, id := range next {
			if s := f.get(id).State; s.Own != gq.PriorityBulk || s.Priority() != gq.PriorityCritical {
				t.Errorf("job %d has priority %s, effective %s, want BULK and CRITICAL", i, s.Own, s.Priority())
			}
		}
		f.submit(gq.Spec{Type: "other", Metadata: gq.Metadata{Priority: gq.PriorityHigh}})
		if j, _ := f.take(); j.State.ID != next[0] {
			t.Errorf("claimed %s before the job after a CRITICAL one", j.Spec.Type)
		}
	})
}
