package engine_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

func TestTrigger(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		before := must[gq.Schedule](t)(f.PutSchedule(t.Context(), gq.Schedule{Name: "s", Every: time.Hour, Overlap: gq.OverlapSkip, Template: gq.Spec{Type: "t", Queue: "q"}}))
		time.Sleep(10*time.Minute + 300*time.Millisecond)
		first := must[gq.Firing](t)(f.TriggerSchedule(t.Context(), "s"))
		s := must[gq.Schedule](t)(f.Schedule(t.Context(), "s"))
		if want := time.Now().Truncate(time.Second); !first.Slot.Equal(want) || first.Existing || s.LastJob != first.Job || !s.Last.Equal(want) || s.Fired != 1 || !s.Next.Equal(before.Next) {
			t.Errorf("triggered %+v at %v; the schedule reads %+v", first, want, s)
		}
		if slot := must[gq.Job](t)(f.Get(t.Context(), first.Job, 0)).Spec.Slot(); !slot.Equal(first.Slot) {
			t.Errorf("the job is of slot %v", slot)
		}
		if again := must[gq.Firing](t)(f.TriggerSchedule(t.Context(), "s")); !again.Existing || again.Job != first.Job {
			t.Errorf("a second trigger within the second: %+v", again)
		}
		time.Sleep(time.Second)
		_, err := f.TriggerSchedule(t.Context(), "s")
		wantErr(t, "trigger while the job is live", err, gq.ErrOverlap)
		must[gq.State](t)(f.Cancel(t.Context(), first.Job, ""))
		must[gq.Schedule](t)(f.PauseSchedule(t.Context(), "s"))
		if paused := must[gq.Firing](t)(f.TriggerSchedule(t.Context(), "s")); paused.Existing {
			t.Errorf("trigger of a paused schedule: %+v", paused)
		}
		_, err = f.TriggerSchedule(t.Context(), "none")
		wantErr(t, "trigger of no schedule", err, gq.ErrNotFound)
	})
}

// A trigger in the second of a slot takes the slot, whether it comes before the firing or after.
func TestTriggerAtSlot(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		must[gq.Schedule](t)(f.PutSchedule(t.Context(), gq.Schedule{Name: "s", Every: time.Minute, Template: gq.Spec{Type: "t"}}))
		for range 3 {
			time.Sleep(time.Minute)
			early := must[gq.Firing](t)(f.TriggerSchedule(t.Context(), "s"))
			f.sweep()
			if late := must[gq.Firing](t)(f.TriggerSchedule(t.Context(), "s")); early.Existing || !late.Existing || late.Job != early.Job {
				t.Errorf("triggered %+v, then %+v", early, late)
			}
		}
		if s := must[gq.Schedule](t)(f.Schedule(t.Context(), "s")); s.Fired != 3 || len(firingTimesOf(t, f.Engine, "s")) != 3 || !s.Next.After(time.Now()) {
			t.Errorf("%d jobs, and the schedule reads %+v", len(firingTimesOf(t, f.Engine, "s")), s)
		}
	})
}

func TestBackfill(t *testing.T) {
	onEachStore(t, func(t *testing.T, again func() store.Store) {
		e := newEngine(t, again(), engine.Options{})
		now := time.Now().UTC()
		start := now.Add(-10 * 24 * time.Hour).Truncate(24 * time.Hour)
		put := gq.Schedule{Name: "s", Every: 24 * time.Hour, Start: start, Overlap: gq.OverlapSkip, Jitter: time.Hour, Template: gq.Spec{Type: "t", Queue: "q"}}
		before := must[gq.Schedule](t)(e.PutSchedule(t.Context(), put))
		call := func(b gq.Backfill) gq.BackfillReport {
			t.Helper()
			b.Schedule = "s"
			return must[gq.BackfillReport](t)(e.BackfillSchedule(t.Context(), b))
		}
		day := func(n int) time.Time { return start.Add(time.Duration(n) * 24 * time.Hour) }
		all := gq.Backfill{From: day(-3), To: day(4), DryRun: true}
		if r := call(all); r != (gq.BackfillReport{Slots: 8, Missing: 8}) || len(firingTimesOf(t, e, "s")) != 0 {
			t.Errorf("dry run: %+v", r)
		}
		if r := call(gq.Backfill{From: day(1), To: day(2)}); r != (gq.BackfillReport{Slots: 2, Missing: 2, Submitted: 2}) {
			t.Errorf("two days: %+v", r)
		}
		all.DryRun, all.Limit = false, 4
		if r := call(all); r != (gq.BackfillReport{Slots: 8, Missing: 6, Submitted: 4, Next: day(3)}) {
			t.Errorf("the first four: %+v", r)
		}
		all.From = day(3)
		if r := call(all); r != (gq.BackfillReport{Slots: 2, Missing: 2, Submitted: 2}) {
			t.Errorf("the rest: %+v", r)
		}
		all.From, all.To = day(-3), now.Add(time.Hour)
		if r := call(all); r.Missing != 6 || r.Submitted != 4 {
			t.Errorf("until now: %+v", r)
		}
		s := must[gq.Schedule](t)(e.Schedule(t.Context(), "s"))
		if !s.Next.Equal(before.Next) || !s.Last.IsZero() || !s.LastJob.IsZero() || s.Fired != 12 {
			t.Errorf("the schedule reads %+v", s)
		}
		slots := firingTimesOf(t, e, "s")
		if len(slots) != 12 || len(slices.Compact(slices.Sorted(slices.Values(slots)))) != 12 {
			t.Errorf("jobs of the slots %v", slots)
		}
		for _, j := range live(t, e, "s") {
			if j.State.Status != gq.StatusScheduled {
				t.Errorf("slot %v waits: %v", j.Spec.Slot(), j.State.Status)
			}
		}
	})
}

// Slots that fired need no second job, even after their idempotency keys have expired.
func TestBackfillRemembers(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		begin := time.Now()
		must[gq.Schedule](t)(f.PutSchedule(t.Context(), gq.Schedule{Name: "s", Cron: "0 * * * *", Template: gq.Spec{Type: "t"}}))
		hours := func(n int) {
			for range n {
				time.Sleep(time.Hour)
				f.sweep()
			}
		}
		hours(2)
		must[gq.Schedule](t)(f.PauseSchedule(t.Context(), "s"))
		hours(1)
		must[gq.Schedule](t)(f.ResumeSchedule(t.Context(), "s"))
		hours(2)
		r := must[gq.BackfillReport](t)(f.BackfillSchedule(t.Context(), gq.Backfill{Schedule: "s", From: begin, To: time.Now()}))
		// The slot of the creation itself and that of the pause.
		if want := (gq.BackfillReport{Slots: 6, Missing: 2, Submitted: 2}); r != want {
			t.Errorf("backfill: %+v, want %+v", r, want)
		}
		time.Sleep(25 * time.Hour)
		r = must[gq.BackfillReport](t)(f.BackfillSchedule(t.Context(), gq.Backfill{Schedule: "s", From: begin, To: begin.Add(5 * time.Hour)}))
		if r.Missing != 0 || r.Submitted != 0 {
			t.Errorf("a second backfill: %+v", r)
		}
	})
}

func TestBackfillFaults(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		must[gq.Schedule](t)(f.PutSchedule(t.Context(), gq.Schedule{Name: "s", Every: time.Hour, Template: gq.Spec{Type: "t", Queue: "q"}}))
		must[gq.Schedule](t)(f.PutSchedule(t.Context(), gq.Schedule{Name: "often", Every: time.Second, Template: gq.Spec{Type: "t", Queue: "q"}}))
		now := time.Now()
		for field, b := range map[string]gq.Backfill{
			"from":  {Schedule: "s", From: now.Add(time.Hour), To: now.Add(2 * time.Hour)},
			"to":    {Schedule: "s", From: now, To: now.Add(-time.Hour)},
			"limit": {Schedule: "s", From: now.Add(-time.Hour), To: now, Limit: gq.MaxBackfill + 1},
		} {
			_, err := f.BackfillSchedule(t.Context(), b)
			wantErr(t, field, err, gq.ErrInvalid)
			if got := fields(err); !slices.Equal(got, []string{field}) {
				t.Errorf("%s: faults of %v", field, got)
			}
		}
		_, err := f.BackfillSchedule(t.Context(), gq.Backfill{Schedule: "often", From: now.Add(-48 * time.Hour), To: now})
		wantErr(t, "too many slots", err, gq.ErrInvalid)
		_, err = f.BackfillSchedule(t.Context(), gq.Backfill{Schedule: "none", From: now.Add(-48 * time.Hour), To: now})
		wantErr(t, "no schedule", err, gq.ErrNotFound)

		q := machine.NewQueue("q")
		q.MaxDepth = 10
		f.putQueue(q)
		_, err = f.BackfillSchedule(t.Context(), gq.Backfill{Schedule: "s", From: now.Add(-20 * time.Hour), To: now, Limit: 5})
		wantErr(t, "more than the queue holds", err, gq.ErrInvalid)
		if got := fields(err); !slices.Equal(got, []string{"to"}) {
			t.Errorf("faults of %v", got)
		}
		f.submit(gq.Spec{Queue: "q"})
		full := gq.Backfill{Schedule: "s", From: now.Add(-9 * time.Hour), To: now}
		_, err = f.BackfillSchedule(t.Context(), full)
		wantErr(t, "more than there is room for", err, gq.ErrQueueFull)
		full.DryRun = true
		if r := must[gq.BackfillReport](t)(f.BackfillSchedule(t.Context(), full)); r.Missing != 10 {
			t.Errorf("dry run: %+v", r)
		}
		if slots := firingTimesOf(t, f.Engine, "s"); len(slots) != 0 {
			t.Errorf("refused backfills submitted %v", slots)
		}
	})
}

// Two engines fire while a third one triggers and backfills: each slot has one job.
func TestTriggerVersusSlot(t *testing.T) {
	for _, rule := range []gq.OverlapRule{gq.OverlapAllow, gq.OverlapCancelRunning} {
		t.Run(rule.String(), func(t *testing.T) {
			onEachStore(t, func(t *testing.T, again func() store.Store) {
				var engines []*engine.Engine
				for range 3 {
					engines = append(engines, newEngine(t, again(), engine.Options{}))
				}
				begin := time.Now().Truncate(time.Second).Add(-30 * time.Second)
				must[gq.Schedule](t)(engines[0].PutSchedule(t.Context(), gq.Schedule{
					Name: "s", Every: time.Second, Start: begin, Overlap: rule, Template: gq.Spec{Type: "t"},
				}))
				done := make(chan struct{})
				var firing, asking sync.WaitGroup
				for _, e := range engines[:2] {
					firing.Go(func() {
						for {
							select {
							case <-done:
								return
							default:
							}
							if _, err := e.Sweep(t.Context(), time.Now()); err != nil {
								t.Errorf("sweep: %v", err)
							}
						}
					})
				}
				triggered := make(map[gq.JobID]time.Time)
				backfilled := 0
				asking.Go(func() {
					for until := time.Now().Add(1500 * time.Millisecond); time.Now().Before(until); {
						out, err := engines[2].TriggerSchedule(t.Context(), "s")
						if err != nil {
							t.Errorf("trigger: %v", err)
							return
						}
						triggered[out.Job] = out.Slot
					}
				})
				asking.Go(func() {
					for until := time.Now().Add(1500 * time.Millisecond); time.Now().Before(until); {
						r, err := engines[2].BackfillSchedule(t.Context(), gq.Backfill{Schedule: "s", From: begin.Add(-5 * time.Second), To: time.Now(), Limit: 3})
						if err != nil && !errors.Is(err, gq.ErrInvalid) {
							t.Errorf("backfill: %v", err)
							return
						}
						backfilled += r.Submitted
					}
				})
				asking.Wait()
				close(done)
				firing.Wait()
				slots := firingTimesOf(t, engines[0], "s")
				once := map[string]bool{}
				for _, slot := range slots {
					if once[slot] {
						t.Errorf("two jobs for %s", slot)
					}
					once[slot] = true
				}
				s := must[gq.Schedule](t)(engines[0].Schedule(t.Context(), "s"))
				if s.Fired != len(slots) || len(triggered) < 2 || backfilled < 5 {
					t.Errorf("%d jobs, %d triggered, %d backfilled; the schedule reads %+v", len(slots), len(triggered), backfilled, s)
				}
				for id, slot := range triggered {
					if j := must[gq.Job](t)(engines[0].Get(t.Context(), id, 0)); !j.Spec.Slot().Equal(slot) {
						t.Errorf("the trigger at %v returned the job of %v", slot, j.Spec.Slot())
					}
				}
				if last := must[gq.Job](t)(engines[0].Get(t.Context(), s.LastJob, 0)); !last.Spec.Slot().Equal(s.Last) {
					t.Errorf("the last slot is %v, the last job's is %v", s.Last, last.Spec.Slot())
				}
			})
		})
	}
}

// A limit counts the jobs of all commits of a backfill.
func TestBackfillLimit(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		start := time.Now().UTC().Add(-24 * time.Hour)
		must[gq.Schedule](t)(f.PutSchedule(t.Context(), gq.Schedule{Name: "s", Every: time.Minute, Start: start, Template: gq.Spec{Type: "t", Queue: "q"}}))
		b := gq.Backfill{Schedule: "s", From: start, To: start.Add(399 * time.Minute), Limit: 150}
		for _, want := range []gq.BackfillReport{
			{Slots: 400, Missing: 400, Submitted: 150, Next: start.Add(150 * time.Minute)},
			{Slots: 250, Missing: 250, Submitted: 150, Next: start.Add(300 * time.Minute)},
			{Slots: 100, Missing: 100, Submitted: 100},
		} {
			if got := must[gq.BackfillReport](t)(f.BackfillSchedule(t.Context(), b)); got != want {
				t.Fatalf("%+v, want %+v", got, want)
			}
			b.From = want.Next
		}
	})
}
