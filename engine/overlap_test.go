package engine_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// live lists the live jobs of a schedule, oldest first.
func live(t *testing.T, e *engine.Engine, name string) (jobs []gq.Job) {
	t.Helper()
	for _, j := range must[gq.Page](t)(e.List(t.Context(), gq.Query{OldestFirst: true, Limit: 1000})).Jobs {
		if j.Spec.Attributes[gq.AttributeSchedule] == name && !j.State.Status.Terminal() {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// hourly fires a schedule by its rule at three slots. Its job is waiting at the second one and
// running at the third.
func hourly(t *testing.T, e *engine.Engine, rule gq.OverlapRule) (running gq.Job, s gq.Schedule) {
	t.Helper()
	begin := time.Now()
	must[gq.Schedule](t)(e.PutSchedule(t.Context(), gq.Schedule{Name: "s", Every: time.Hour, Overlap: rule, Template: gq.Spec{Type: "t", Queue: "q"}}))
	fire := func(slot int) {
		t.Helper()
		if _, err := e.Sweep(t.Context(), begin.Add(time.Duration(slot)*time.Hour+time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	fire(1)
	fire(2)
	claimed := must[[]gq.Job](t)(e.Claim(t.Context(), gq.ClaimRequest{Queues: []string{"q"}, Worker: "w", N: 1}))
	if len(claimed) != 1 {
		t.Fatalf("claimed %d jobs", len(claimed))
	}
	fire(3)
	return claimed[0], must[gq.Schedule](t)(e.Schedule(t.Context(), "s"))
}

func TestOverlap(t *testing.T) {
	for rule, want := range map[gq.OverlapRule]struct {
		fired, skipped, live int
	}{
		gq.OverlapAllow:         {3, 0, 3},
		gq.OverlapSkip:          {1, 2, 1},
		gq.OverlapQueueOne:      {2, 1, 2},
		gq.OverlapCancelRunning: {3, 0, 2}, // the running job ends when its worker hears of it
	} {
		t.Run(rule.String(), func(t *testing.T) {
			onEachStore(t, func(t *testing.T, again func() store.Store) {
				e := newEngine(t, again(), engine.Options{})
				running, s := hourly(t, e, rule)
				jobs := live(t, e, "s")
				if s.Fired != want.fired || s.Skipped != want.skipped || len(jobs) != want.live || s.LastError != "" {
					t.Fatalf("%d live jobs, and the schedule reads %+v, want %+v", len(jobs), s, want)
				}
				if s.LastJob != jobs[len(jobs)-1].State.ID || s.Next.IsZero() {
					t.Errorf("the last job is %s; live are %+v", s.LastJob, jobs)
				}
				now := must[gq.Job](t)(e.Get(t.Context(), running.State.ID, 0))
				if asked := !now.State.Cancellation.RequestedAt.IsZero(); asked != (rule == gq.OverlapCancelRunning) {
					t.Errorf("cancellation of the running job: %+v", now.State.Cancellation)
				}
				if rule != gq.OverlapQueueOne {
					return
				}
				none := must[[]gq.Job](t)(e.Claim(t.Context(), gq.ClaimRequest{Queues: []string{"q"}, Worker: "w", N: 1}))
				if len(none) != 0 || jobs[1].State.Status != gq.StatusPending {
					t.Errorf("the queued job is %v, and a claim returned %d jobs", jobs[1].State.Status, len(none))
				}
				// The queued job runs although the other one fails.
				must[gq.State](t)(e.Fail(t.Context(), running.State.Lease.Ref(), gq.Failure{Category: gq.CategoryPermanent, Message: "x"}))
				if _, err := e.Sweep(t.Context(), time.Now()); err != nil {
					t.Fatal(err)
				}
				if next := must[[]gq.Job](t)(e.Claim(t.Context(), gq.ClaimRequest{Queues: []string{"q"}, Worker: "w", N: 1})); len(next) != 1 || next[0].State.ID != s.LastJob {
					t.Errorf("after the running job had ended, a claim returned %+v", next)
				}
			})
		})
	}
}

// A job that keeps up with no slot: the chain of queued jobs must not reach its limit and stop.
func TestQueueOneForEver(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		must[gq.Schedule](t)(f.PutSchedule(t.Context(), gq.Schedule{Name: "s", Every: time.Minute, Overlap: gq.OverlapQueueOne, Template: gq.Spec{Type: "t", Queue: "q"}}))
		var held *gq.LeaseRef
		const slots = gq.MaxDepth + 20
		for range slots {
			time.Sleep(time.Minute)
			f.sweep()
			if held != nil {
				must[gq.State](t)(f.Complete(t.Context(), *held, nil))
				held = nil
				f.sweep()
			}
			if jobs := must[[]gq.Job](t)(f.Claim(t.Context(), gq.ClaimRequest{Queues: []string{"q"}, Worker: "w", N: 2})); len(jobs) > 1 {
				t.Fatalf("%d jobs at once", len(jobs))
			} else if len(jobs) == 1 {
				lease := jobs[0].State.Lease.Ref()
				held = &lease
			}
		}
		if s := must[gq.Schedule](t)(f.Schedule(t.Context(), "s")); s.Fired < slots-2 || s.LastError != "" {
			t.Errorf("%d slots: %+v", slots, s)
		}
	})
}

func TestJitter(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		put := gq.Schedule{Name: "s", Every: time.Hour, Jitter: 30 * time.Minute, Template: gq.Spec{Type: "t"}}
		s := must[gq.Schedule](t)(f.PutSchedule(t.Context(), put))
		time.Sleep(time.Hour)
		f.sweep()
		j := live(t, f.Engine, "s")[0]
		delay := machine.JitterOf("s", s.Next, put.Jitter)
		if want := s.Next.Add(delay); delay == 0 || !j.State.RunAt.Equal(want) || j.State.Status != gq.StatusDelayed {
			t.Errorf("the job runs at %v, want %v: %v", j.State.RunAt, want, j.State.Status)
		}
		now := must[gq.Firing](t)(f.TriggerSchedule(t.Context(), "s"))
		if now.Existing != true { // within the second of the slot
			t.Errorf("triggered %+v", now)
		}
		time.Sleep(time.Second)
		now = must[gq.Firing](t)(f.TriggerSchedule(t.Context(), "s"))
		f.status(now.Job, gq.StatusScheduled)
		for what, wrong := range map[string]gq.Schedule{
			"interval": {Name: "x", Every: time.Hour, Jitter: time.Hour, Template: gq.Spec{Type: "t"}},
			"cron":     {Name: "x", Cron: "0 9,17 * * *", Jitter: 9 * time.Hour, Template: gq.Spec{Type: "t"}},
			"lifetime": {Name: "x", Every: 1000 * time.Hour, Jitter: 200 * time.Hour, Template: gq.Spec{Type: "t"}},
		} {
			_, err := f.PutSchedule(t.Context(), wrong)
			wantErr(t, what, err, gq.ErrInvalid)
			if got := fields(err); !slices.Equal(got, []string{"jitter"}) {
				t.Errorf("%s: faults of %v", what, got)
			}
		}
	})
}

func TestScheduleEnds(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.run()
		begin := time.Now()
		put := gq.Schedule{Name: "s", Every: time.Hour, End: begin.Add(2 * time.Hour), Template: gq.Spec{Type: "t"}}
		must[gq.Schedule](t)(f.PutSchedule(t.Context(), put))
		time.Sleep(5 * time.Hour)
		s := must[gq.Schedule](t)(f.Schedule(t.Context(), "s"))
		if !s.Next.IsZero() || s.Fired != 2 {
			t.Errorf("after its end: %+v", s)
		}
		put.End = begin.Add(100 * time.Hour)
		if s = must[gq.Schedule](t)(f.PutSchedule(t.Context(), put)); !s.Next.Equal(begin.Add(6 * time.Hour)) {
			t.Errorf("with a later end the next slot is %v", s.Next)
		}
		put.End = begin.Add(3 * time.Hour)
		if s = must[gq.Schedule](t)(f.PutSchedule(t.Context(), put)); !s.Next.IsZero() {
			t.Errorf("with an earlier end the next slot is %v", s.Next)
		}
		put.Name = "new"
		_, err := f.PutSchedule(t.Context(), put)
		wantErr(t, "an end in the past", err, gq.ErrInvalid)
		if got := fields(err); !slices.Equal(got, []string{"end"}) {
			t.Errorf("faults of %v", got)
		}
	})
}

func TestPayloadKnowsSlot(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		must[gq.Schedule](t)(f.PutSchedule(t.Context(), gq.Schedule{
			Name: "s", Cron: "30 23 * * *", TimeZone: "America/New_York",
			Template: gq.Spec{Type: "t", Payload: payload(`{"day":"{{slot_date}}","at":"{{slot}}"}`)},
		}))
		time.Sleep(5 * time.Hour)
		f.sweep()
		j := must[gq.Job](t)(f.Get(t.Context(), live(t, f.Engine, "s")[0].State.ID, gq.WithPayload))
		if want := `{"day":"1999-12-31","at":"2000-01-01T04:30:00Z"}`; string(j.Spec.Payload.Data) != want || !j.Spec.Slot().Equal(time.Date(2000, 1, 1, 4, 30, 0, 0, time.UTC)) {
			t.Errorf("payload %s of slot %v, want %s", j.Spec.Payload.Data, j.Spec.Slot(), want)
		}
		if s := must[gq.Schedule](t)(f.Schedule(t.Context(), "s")); !strings.Contains(string(s.Template.Payload.Data), "{{slot}}") {
			t.Errorf("the template became %s", s.Template.Payload.Data)
		}
	})
}

// A full queue is visible in the schedule until its slot has a job.
func TestFullQueueIsVisible(t *testing.T) {
	onEachStore(t, func(t *testing.T, again func() store.Store) {
		e := newEngine(t, again(), engine.Options{})
		must[gq.Queue](t)(e.PutQueue(t.Context(), gq.Queue{Name: "q", MaxDepth: 2, Policy: machine.DefaultPolicy()}))
		blocking := must[gq.SubmitResult](t)(e.Submit(t.Context(), gq.Spec{Type: "x", Queue: "q"}))
		must[gq.SubmitResult](t)(e.Submit(t.Context(), gq.Spec{Type: "x", Queue: "q"}))
		must[gq.Schedule](t)(e.PutSchedule(t.Context(), gq.Schedule{Name: "s", Every: time.Hour, Template: gq.Spec{Type: "t", Queue: "q"}}))
		at := time.Now().Add(time.Hour + time.Second)
		sweep := func() gq.Schedule {
			t.Helper()
			r, err := e.Sweep(t.Context(), at)
			if err != nil || r.Next.IsZero() {
				t.Fatalf("sweep: %+v, %v", r, err)
			}
			return must[gq.Schedule](t)(e.Schedule(t.Context(), "s"))
		}
		full := sweep()
		if !strings.Contains(full.LastError, gq.ErrQueueFull.Code) || full.Fired != 0 || full.Next.After(at) {
			t.Errorf("the queue is full, and the schedule reads %+v", full)
		}
		if same := sweep(); !same.UpdatedAt.Equal(full.UpdatedAt) || same.LastError != full.LastError {
			t.Errorf("a second attempt changed %+v to %+v", full, same)
		}
		_, err := e.TriggerSchedule(t.Context(), "s")
		wantErr(t, "trigger", err, gq.ErrQueueFull)
		must[gq.State](t)(e.Cancel(t.Context(), blocking.ID(), ""))
		if s := sweep(); s.LastError != "" || s.Fired != 1 || !s.Next.After(at) {
			t.Errorf("there is room, and the schedule reads %+v", s)
		}

		_, err = e.PutSchedule(t.Context(), gq.Schedule{Name: "many", Every: time.Hour, Missed: gq.MissedAll, MissedLimit: 3, Template: gq.Spec{Type: "t", Queue: "q"}})
		wantErr(t, "more missed slots than the queue holds", err, gq.ErrInvalid)
		if got := fields(err); !slices.Equal(got, []string{"missed_limit"}) {
			t.Errorf("faults of %v", got)
		}
		_, err = e.Schedule(t.Context(), "many")
		wantErr(t, "the refused schedule", err, gq.ErrNotFound)
	})
}
