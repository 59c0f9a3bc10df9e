package engine_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// firingTimesOf lists the slots of a schedule that have a job, in order of submission.
func firingTimesOf(t *testing.T, e *engine.Engine, name string) (slots []string) {
	t.Helper()
	for q := (gq.Query{OldestFirst: true, Limit: 1000}); ; {
		page := must[gq.Page](t)(e.List(t.Context(), q))
		for _, j := range page.Jobs {
			if j.Spec.Attributes[gq.AttributeSchedule] == name {
				slots = append(slots, j.Spec.Attributes[gq.AttributeSlot])
			}
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return slots
		}
	}
}

func TestSchedule(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.run()
		s := must[gq.Schedule](t)(f.PutSchedule(t.Context(), gq.Schedule{
			Name: "report", Cron: "0 2,3 * * *", TimeZone: "Europe/Berlin",
			Template: gq.Spec{Type: "report", Queue: "q", Payload: payload(`{"a":1}`), Metadata: gq.Metadata{Priority: gq.PriorityLow, Tags: map[string]string{"k": "v"}}},
		}))
		if want := time.Date(2000, 1, 1, 1, 0, 0, 0, time.UTC); !s.Next.Equal(want) || s.Missed != gq.MissedOnce {
			t.Errorf("next slot %v, want %v", s.Next, want)
		}
		time.Sleep(time.Hour - time.Second)
		f.claim(0, on("q"))
		j, lease := f.take(on("q"), waiting(time.Minute))
		if got := time.Now().UTC(); !got.Equal(s.Next) {
			t.Errorf("the job came at %v, want %v", got, s.Next)
		}
		if j.Spec.Type != "report" || string(j.Spec.Payload.Data) != `{"a":1}` || j.Metadata.Tags["k"] != "v" || j.State.Own != gq.PriorityLow ||
			j.Spec.Attributes[gq.AttributeSlot] != "2000-01-01T01:00:00Z" {
			t.Errorf("the job reads %+v", j)
		}
		must[gq.State](t)(f.Complete(t.Context(), lease, nil))
		time.Sleep(time.Second)
		s = must[gq.Schedule](t)(f.Schedule(t.Context(), "report"))
		if s.Fired != 1 || s.LastJob != j.State.ID || !s.Last.Equal(time.Date(2000, 1, 1, 1, 0, 0, 0, time.UTC)) || s.Next.Sub(s.Last) != time.Hour {
			t.Errorf("the schedule reads %+v", s)
		}

		if p := must[gq.Schedule](t)(f.PauseSchedule(t.Context(), "report")); !p.Paused {
			t.Errorf("paused: %+v", p)
		}
		time.Sleep(90 * time.Minute)
		r := must[gq.Schedule](t)(f.ResumeSchedule(t.Context(), "report"))
		if r.Paused || !r.Next.After(time.Now()) || len(firingTimesOf(t, f.Engine, "report")) != 1 {
			t.Errorf("resumed: %+v", r)
		}
		if all := must[[]gq.Schedule](t)(f.Schedules(t.Context())); len(all) != 1 || all[0].Name != "report" {
			t.Errorf("schedules %+v", all)
		}
		if err := f.DeleteSchedule(t.Context(), "report"); err != nil {
			t.Fatal(err)
		}
		wantErr(t, "delete twice", f.DeleteSchedule(t.Context(), "report"), gq.ErrNotFound)
		_, err := f.Schedule(t.Context(), "report")
		wantErr(t, "read", err, gq.ErrNotFound)
		_, err = f.PauseSchedule(t.Context(), "report")
		wantErr(t, "pause", err, gq.ErrNotFound)
	})
}

func TestScheduleFaults(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		id := f.submit(gq.Spec{})
		_, err := f.PutSchedule(t.Context(), gq.Schedule{
			Name: "a b", Cron: "61 * * * *", Every: time.Minute, TimeZone: "Nowhere", Missed: 9, MissedLimit: -1,
			Template: gq.Spec{ID: id, Key: gq.IdempotencyKey{Name: "k"}, RunAt: time.Now(), DependsOn: []gq.Dependency{{Kind: gq.DependencyAfter, Job: id}}},
		})
		for _, want := range []string{
			"name", "cron", "every", "time_zone", "missed", "missed_limit",
			"template.id", "template.idempotency_key", "template.run_at", "template.depends_on", "template.type",
		} {
			if !slices.Contains(fields(err), want) {
				t.Errorf("no fault of %s in %v", want, err)
			}
		}
		for name, s := range map[string]gq.Schedule{
			"Neither":     {Name: "x", Template: gq.Spec{Type: "t"}},
			"TooOften":    {Name: "x", Every: time.Millisecond, Template: gq.Spec{Type: "t"}},
			"ZonedEvery":  {Name: "x", Every: time.Hour, TimeZone: "Europe/Berlin", Template: gq.Spec{Type: "t"}},
			"LongName":    {Name: string(slices.Repeat([]byte("x"), 200)), Every: time.Hour, Template: gq.Spec{Type: "t"}},
			"NoName":      {Every: time.Hour, Template: gq.Spec{Type: "t"}},
			"AncientDate": {Name: "x", Every: time.Hour, Start: time.Date(1000, 1, 1, 0, 0, 0, 0, time.UTC), Template: gq.Spec{Type: "t"}},
		} {
			_, err := f.PutSchedule(t.Context(), s)
			wantErr(t, name, err, gq.ErrInvalid)
		}
		if all := must[[]gq.Schedule](t)(f.Schedules(t.Context())); len(all) != 0 {
			t.Errorf("refused schedules are stored: %+v", all)
		}
	})
}

// A template whose delay exceeds the lifetime is refused, whether the lifetime is its own
// or its queue's.
func TestScheduleBeyondLifetime(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		long := gq.Schedule{Name: "x", Every: time.Hour, Template: gq.Spec{Type: "t", Queue: "q", Delay: 240 * time.Hour}}
		refused := func(what, life string) {
			t.Helper()
			_, err := f.PutSchedule(t.Context(), long)
			wantErr(t, what, err, gq.ErrInvalid)
			if got := fields(err); !slices.Equal(got, []string{"template.delay"}) || !strings.Contains(fmt.Sprint(err), life) {
				t.Errorf("%s: %v, want one fault of template.delay that says %s", what, err, life)
			}
		}
		refused("under the default policy", "168h0m0s")
		q := machine.NewQueue("q")
		q.Policy.Lifetime = 0
		f.putQueue(q)
		must[gq.Schedule](t)(f.PutSchedule(t.Context(), long))
		q.Policy.Lifetime = 200 * time.Hour
		f.putQueue(q)
		refused("under the queue's policy", "200h0m0s")
		long.Template.Policy = machine.DefaultPolicy()
		refused("under its own policy", "168h0m0s")
	})
}

// TestScheduleOnce: three engines fire the same schedules, and each slot creates one job.
func TestScheduleOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		engines := []*engine.Engine{newEngine(t, s, engine.Options{}), newEngine(t, silent{s}, engine.Options{}), newEngine(t, s, engine.Options{Sweep: 300 * time.Millisecond})}
		for i, e := range engines {
			must[gq.Schedule](t)(e.PutSchedule(ctx, gq.Schedule{Name: fmt.Sprint("s", i), Every: 10 * time.Second, Template: gq.Spec{Type: "t"}}))
			running.Go(func() {
				if err := e.Run(ctx); err != nil {
					t.Errorf("run: %v", err)
				}
			})
		}
		time.Sleep(10*time.Minute + time.Second)
		stop()
		running.Wait()
		for i, e := range engines {
			name := fmt.Sprint("s", i)
			slots := firingTimesOf(t, e, name)
			if want := 60; len(slots) != want || len(slices.Compact(slices.Sorted(slices.Values(slots)))) != want {
				t.Errorf("%s: %d jobs for %d slots", name, len(slots), want)
			}
			if got := must[gq.Schedule](t)(e.Schedule(t.Context(), name)); got.Fired != 60 {
				t.Errorf("%s has fired %d times", name, got.Fired)
			}
		}
	})
}

// forgetful is the store of a process that dies while a slot fires: before the commit, or
// after it and before its answer.
type forgetful struct {
	store.Store
	after bool
}

func (f forgetful) Change(ctx context.Context, c store.Change) (store.Changed, error) {
	if f.after {
		_, _ = f.Store.(store.Changer).Change(ctx, c)
	}
	return store.Changed{}, errKilled
}

func TestScheduleSurvivesCrash(t *testing.T) {
	for name, after := range map[string]bool{"BeforeTheCommit": false, "AfterTheCommit": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fixture) {
				must[gq.Schedule](t)(f.PutSchedule(t.Context(), gq.Schedule{Name: "s", Every: time.Minute, Template: gq.Spec{Type: "t"}}))
				time.Sleep(time.Minute)
				dying := newEngine(t, forgetful{f.store, after}, engine.Options{})
				if _, err := dying.Sweep(t.Context(), time.Now()); !errors.Is(err, errKilled) {
					t.Fatalf("sweep: %v", err)
				}
				if s := must[gq.Schedule](t)(f.Schedule(t.Context(), "s")); s.Fired != len(firingTimesOf(t, f.Engine, "s")) {
					t.Errorf("%d jobs, and the schedule reads %+v", len(firingTimesOf(t, f.Engine, "s")), s)
				}
				f.sweep()
				slots := firingTimesOf(t, f.Engine, "s")
				if s := must[gq.Schedule](t)(f.Schedule(t.Context(), "s")); len(slots) != 1 || s.Fired != 1 || !s.Next.After(time.Now()) {
					t.Errorf("%d jobs for one slot; the schedule reads %+v", len(slots), s)
				}
			})
		})
	}
}

func TestMissedSlots(t *testing.T) {
	for missed, want := range map[gq.MissedRule][]int{
		gq.MissedSkip: nil,
		gq.MissedOnce: {5},
		gq.MissedAll:  {3, 4, 5},
	} {
		t.Run(missed.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fixture) {
				begin := time.Now()
				s := gq.Schedule{Name: "s", Every: 10 * time.Minute, Missed: missed, Template: gq.Spec{Type: "t"}}
				if missed == gq.MissedAll {
					s.MissedLimit = 3
				}
				must[gq.Schedule](t)(f.PutSchedule(t.Context(), s))
				time.Sleep(55 * time.Minute)
				f.sweep()
				var stamps []string
				for _, n := range want {
					stamps = append(stamps, begin.Add(time.Duration(n)*10*time.Minute).UTC().Format(time.RFC3339))
				}
				if got := firingTimesOf(t, f.Engine, "s"); !slices.Equal(got, stamps) {
					t.Errorf("fired %v, want %v", got, stamps)
				}
				time.Sleep(5 * time.Minute)
				if r := f.sweep(); r.Fired != 1 {
					t.Errorf("the next slot on time: %+v", r)
				}
			})
		})
	}
}

// TestFullQueueKeepsSlot: a slot whose job was refused is retried.
func TestFullQueueKeepsSlot(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.run()
		f.putQueue(gq.Queue{Name: "q", MaxDepth: 1})
		first := f.submit(gq.Spec{Queue: "q"})
		must[gq.Schedule](t)(f.PutSchedule(t.Context(), gq.Schedule{Name: "s", Every: time.Hour, Template: gq.Spec{Type: "t", Queue: "q"}}))
		time.Sleep(time.Hour + 10*time.Second)
		if n := len(firingTimesOf(t, f.Engine, "s")); n != 0 {
			t.Errorf("%d jobs in a full queue", n)
		}
		must[gq.State](t)(f.Cancel(t.Context(), first, ""))
		time.Sleep(time.Minute)
		if n := len(firingTimesOf(t, f.Engine, "s")); n != 1 {
			t.Errorf("%d jobs once there is room", n)
		}
	})
}

func TestPutScheduleKeepsWhatIsKnown(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		old := must[gq.Schedule](t)(f.PutSchedule(t.Context(), gq.Schedule{Name: "s", Every: time.Hour, Template: gq.Spec{Type: "t"}}))
		if read := must[gq.Schedule](t)(f.Schedule(t.Context(), "s")); !reflect.DeepEqual(old.Template, read.Template) {
			t.Errorf("set as %+v, read as %+v", old.Template, read.Template)
		}
		time.Sleep(time.Hour)
		f.sweep()
		time.Sleep(10 * time.Minute)
		same := must[gq.Schedule](t)(f.PutSchedule(t.Context(), gq.Schedule{Name: "s", Every: time.Hour, Template: gq.Spec{Type: "u", Policy: gq.PresetAI.Policy()}}))
		if same.Fired != 1 || same.LastJob.IsZero() || !same.CreatedAt.Equal(old.CreatedAt) || !same.Start.Equal(old.Start) || time.Until(same.Next) != 50*time.Minute {
			t.Errorf("another template: %+v", same)
		}
		if read := must[gq.Schedule](t)(f.Schedule(t.Context(), "s")); read.Template.Type != "u" || read.Template.Policy.Preset != gq.PresetAI {
			t.Errorf("stored template %+v", read.Template)
		}
		other := must[gq.Schedule](t)(f.PutSchedule(t.Context(), gq.Schedule{Name: "s", Cron: "0 0 1 1 *", Template: gq.Spec{Type: "u"}}))
		if want := time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC); !other.Next.Equal(want) {
			t.Errorf("another calendar: next %v", other.Next)
		}
		future := must[gq.Schedule](t)(f.PutSchedule(t.Context(), gq.Schedule{Name: "f", Every: time.Hour, Start: time.Now().Add(100 * time.Hour), Template: gq.Spec{Type: "u"}}))
		if time.Until(future.Next) != 100*time.Hour {
			t.Errorf("a start in the future: next in %v", time.Until(future.Next))
		}
	})
}

// TestBrokenScheduleHarmsNoOther: one document cannot be decoded.
func TestBrokenScheduleHarmsNoOther(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		must[[]uint64](t)(f.store.PutDocs(t.Context(), []store.Doc{{Kind: "schedule", Name: "broken", Data: []byte("{")}}))
		must[gq.Schedule](t)(f.PutSchedule(t.Context(), gq.Schedule{Name: "s", Every: time.Minute, Template: gq.Spec{Type: "t"}}))
		time.Sleep(time.Minute)
		if r := f.sweep(); r.Fired != 1 {
			t.Errorf("sweep: %+v", r)
		}
		_, err := f.Schedule(t.Context(), "broken")
		wantErr(t, "read", err, gq.ErrCorrupt)
		must[gq.Schedule](t)(f.PutSchedule(t.Context(), gq.Schedule{Name: "broken", Every: time.Minute, Template: gq.Spec{Type: "t"}}))
		time.Sleep(time.Minute)
		if r := f.sweep(); r.Fired != 2 {
			t.Errorf("after it was mended: %+v", r)
		}
	})
}
