package engine_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/internal/testing/scribble"
	"github.com/gopherqueue/gq/machine"
)

// TestAnswersBelongToTheCaller overwrites every result of the engine and checks that the
// engine then returns the same as before.
func TestAnswersBelongToTheCaller(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		rich := gq.Spec{
			Type: "t", Payload: payload(`{"a":1}`), Attributes: map[string]string{"a": "b"}, Requires: []string{"gpu", "ram"},
			Metadata: gq.Metadata{Tags: map[string]string{"tag": "value"}},
		}
		must[gq.Schedule](t)(f.PutSchedule(ctx, gq.Schedule{Name: "s", Every: time.Hour, Template: rich}))
		if err := f.PutPool(ctx, gq.Pool{Name: "p", Capacity: 5}); err != nil {
			t.Fatal(err)
		}
		f.putQueue(gq.Queue{Name: "q", Pool: "p"})
		ids := []gq.JobID{f.submit(rich), f.submit(rich), f.submit(rich), f.submit(gq.Spec{Queue: "q"})}
		offers := func(r *gq.ClaimRequest) { r.Offers = []string{"gpu", "ram"} }
		held, ref := f.take(offers)
		_, failing := f.take(offers)
		must[gq.State](t)(f.Fail(ctx, failing, gq.Failure{Category: gq.CategoryTemporary, Code: "c", Message: "m"}))

		look := func() map[string]any {
			out := map[string]any{}
			for _, id := range ids {
				out["job "+id.String()] = f.get(id)
				out["history of "+id.String()] = must[[]gq.Event](t)(f.History(ctx, id))
			}
			out["list"] = must[gq.Page](t)(f.List(ctx, gq.Query{Limit: 100}))
			out["schedule"] = must[gq.Schedule](t)(f.Schedule(ctx, "s"))
			out["schedules"] = must[[]gq.Schedule](t)(f.Schedules(ctx))
			out["queues"] = must[[]gq.Queue](t)(f.Queues(ctx))
			out["pools"] = must[[]gq.Pool](t)(f.Pools(ctx))
			out["counts"] = must[[]gq.Count](t)(f.Counts(ctx))
			out["workers"] = must[[]gq.LiveWorker](t)(f.Workers(ctx))
			for _, p := range enum.All[gq.Preset]() {
				out["preset "+p.String()] = p.Policy()
			}
			out["default"] = machine.DefaultPolicy()
			return out
		}
		belongs := func(what string, answer any) {
			t.Helper()
			want := scribble.Copy(look())
			scribble.Over(answer)
			for name, got := range look() {
				if !reflect.DeepEqual(got, want[name]) {
					t.Errorf("overwriting the answer of %s changed %s:\n got %+v\nwant %+v", what, name, got, want[name])
				}
			}
		}
		own := func(v any) any { // the value in an interface cannot be written to
			p := reflect.New(reflect.TypeOf(v))
			p.Elem().Set(reflect.ValueOf(v))
			return p.Interface()
		}
		for name, answer := range look() {
			belongs(name, own(answer))
		}
		belongs("Claim", &held)
		belongs("Heartbeat", must[[]gq.LeaseResult](t)(f.Heartbeat(ctx, []gq.Heartbeat{{Lease: ref, Progress: 0.5, Checkpoint: []byte("c")}})))
		paused := must[gq.Schedule](t)(f.PauseSchedule(ctx, "s"))
		belongs("PauseSchedule", &paused)
		resumed := must[gq.Schedule](t)(f.ResumeSchedule(ctx, "s"))
		belongs("ResumeSchedule", &resumed)
		put := must[gq.Schedule](t)(f.PutSchedule(ctx, gq.Schedule{Name: "s", Every: time.Hour, Template: rich}))
		scribbled := scribble.Copy(put)
		belongs("PutSchedule", &scribbled)
		submitted := must[gq.SubmitResult](t)(f.Submit(ctx, gq.Spec{Type: "t"}))
		ids = append(ids, submitted.ID())
		belongs("Submit", &submitted)
		done := must[gq.State](t)(f.Complete(ctx, ref, []byte("result")))
		belongs("Complete", &done)
		waited := must[gq.Job](t)(f.Wait(ctx, ids[0]))
		belongs("Wait", &waited)

		time.Sleep(time.Hour)
		f.sweep()
		fired := f.get(must[gq.Schedule](t)(f.Schedule(ctx, "s")).LastJob)
		if fired.Spec.Metadata.Tags["tag"] != "value" || string(fired.Spec.Payload.Data) != `{"a":1}` || fired.State.Policy.MaxAttempts != 3 {
			t.Errorf("the schedule fired %+v", fired)
		}
	})
}
