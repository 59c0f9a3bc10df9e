package engine_test

import (
	"errors"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/store"
)

// An engine counts what schedules, unique jobs, limit keys and signals do.
func TestActivity(t *testing.T) {
	onEachStore(t, func(t *testing.T, again func() store.Store) {
		e := newEngine(t, again(), engine.Options{})
		ctx := t.Context()
		if got := e.Activity(); got != (engine.Activity{}) {
			t.Fatalf("a new engine counts %+v", got)
		}
		submit := func(want error, options ...gq.Option) {
			t.Helper()
			s := gq.Spec{Type: "t", Queue: "u"}
			for _, set := range options {
				set(&s)
			}
			if _, err := e.Submit(ctx, s); !errors.Is(err, want) {
				t.Fatal(err)
			}
		}
		submit(nil) // without a rule
		for _, on := range []gq.OnCollision{gq.Existing, gq.Existing, gq.Replace} {
			submit(nil, gq.Key("k"), gq.Unique(gq.WhileWaiting, on))
		}
		submit(gq.ErrNotUnique, gq.Key("k"), gq.Unique(gq.WhileWaiting, gq.Refuse))
		for range 2 {
			submit(nil, gq.Key("d"), gq.Debounce(time.Hour))
		}
		for range 3 {
			submit(nil, gq.Key("p"), gq.Throttle(time.Hour))
		}

		must[gq.Queue](t)(e.PutQueue(ctx, gq.Queue{Name: "rated", KeyRate: gq.Rate{Count: 1, Per: time.Hour}}))
		for range 2 {
			must[gq.SubmitResult](t)(e.Submit(ctx, gq.Spec{Type: "t", Queue: "rated", LimitKey: "customer"}))
		}
		for range 2 {
			must[[]gq.Job](t)(e.Claim(ctx, gq.ClaimRequest{Queues: []string{"rated"}, Worker: "w", N: 1}))
		}

		flow := gq.NewWorkflow("order")
		flow.Signal("approved", time.Hour)
		flow.Signal("paid", time.Hour)
		id := must[gq.WorkflowID](t)(e.SubmitWorkflow(ctx, flow))
		for range 2 { // the second one changes nothing
			must[gq.State](t)(e.Signal(ctx, id, "approved", true))
		}

		hourly(t, e, gq.OverlapSkip)
		want := engine.Activity{
			Fired: 1, SkippedOverlap: 2, Signals: 1, KeyRate: 1,
			Returned: 1, Refused: 1, Replaced: 1, Debounced: 1, Throttled: 2,
		}
		if got := e.Activity(); got != want {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	})
}

// Slots that a schedule leaves out because they were missed are counted.
func TestActivityCountsMissedSlots(t *testing.T) {
	for rule, want := range map[gq.MissedRule]uint64{gq.MissedSkip: 4, gq.MissedOnce: 3, gq.MissedAll: 2} {
		e := newEngine(t, open(t), engine.Options{})
		begin := time.Now()
		s := gq.Schedule{Name: "s", Every: time.Hour, Missed: rule, Template: gq.Spec{Type: "t"}}
		if rule == gq.MissedAll {
			s.MissedLimit = 2
		}
		must[gq.Schedule](t)(e.PutSchedule(t.Context(), s))
		if _, err := e.Sweep(t.Context(), begin.Add(4*time.Hour+30*time.Minute)); err != nil {
			t.Fatal(err)
		}
		if got := e.Activity(); got.SkippedMissed != want || got.Fired != 4-want {
			t.Errorf("%s: %d slots were missed and %d fired, want %d of 4 missed", rule, got.SkippedMissed, got.Fired, want)
		}
	}
}

// Workflows are counted by status, and so are the jobs that wait for a signal. A count that runs
// out of time goes on with the next call.
func TestCountWorkflows(t *testing.T) {
	onEachStore(t, func(t *testing.T, again func() store.Store) {
		e := newEngine(t, again(), engine.Options{})
		ctx := t.Context()
		// count returns the counts of a pass that began after the call.
		count := func() (counts engine.WorkflowCounts) {
			t.Helper()
			for range 2 * 2 { // two passes with two pages each at most
				var err error
				if counts, _, err = e.CountWorkflows(ctx, 0); err != nil {
					t.Fatal(err)
				}
			}
			return counts
		}
		if got := count(); got != (engine.WorkflowCounts{}) {
			t.Errorf("a store without workflows has %+v", got)
		}
		var first gq.WorkflowID
		for i := range 60 { // more than a page
			flow := gq.NewWorkflow("order")
			charge := flow.Add("charge", gq.Draft{Spec: gq.Spec{Type: "charge"}})
			flow.Signal("later", time.Hour, gq.After(charge))
			if i < 2 {
				flow.Signal("approved", time.Hour)
			}
			if id := must[gq.WorkflowID](t)(e.SubmitWorkflow(ctx, flow)); i == 0 {
				first = id
			}
		}
		var want engine.WorkflowCounts
		want.By[gq.WorkflowRunning], want.Signals = 60, 2
		if got := count(); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		must[gq.CancelReport](t)(e.CancelWorkflow(ctx, first, ""))
		want.By[gq.WorkflowRunning], want.By[gq.WorkflowCancelled], want.Signals = 59, 1, 1
		if got := count(); got != want {
			t.Errorf("after a cancellation: got %+v, want %+v", got, want)
		}
		must[gq.Workflow](t)(e.RetryWorkflow(ctx, first))
		want.By[gq.WorkflowRunning], want.By[gq.WorkflowCancelled], want.Signals = 60, 0, 2
		if got := count(); got != want {
			t.Errorf("after a retry: got %+v, want %+v", got, want)
		}
	})
}
