package engine_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/machine"
)

// With a shorter key window, a store that keeps jobs for less than a day accepts jobs with
// keys and jobs of schedules.
func TestKeyWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openKept(t, time.Hour)
		keyed := gq.Spec{Type: "t", Key: gq.IdempotencyKey{Name: "k"}}
		day := newEngine(t, s, engine.Options{})
		if _, err := day.Submit(t.Context(), keyed); !slices.Equal(fields(err), []string{"policy.idempotency_window"}) {
			t.Errorf("a key that outlives its job: %v", err)
		}
		e := newEngine(t, s, engine.Options{KeyWindow: time.Hour})
		first := must[gq.SubmitResult](t)(e.Submit(t.Context(), keyed))
		time.Sleep(59 * time.Minute)
		if again := must[gq.SubmitResult](t)(e.Submit(t.Context(), keyed)); !again.Existing || again.ID() != first.ID() {
			t.Errorf("within the window: %+v", again)
		}
		time.Sleep(time.Minute)
		if again := must[gq.SubmitResult](t)(e.Submit(t.Context(), keyed)); again.Existing {
			t.Errorf("after the window the key still finds %s", again.ID())
		}
		keyed.Policy = machine.DefaultPolicy()
		keyed.Policy.IdempotencyWindow = 2 * time.Hour
		if _, err := e.Submit(t.Context(), keyed); !slices.Equal(fields(err), []string{"policy.idempotency_window"}) {
			t.Errorf("a window of its own that is too long: %v", err)
		}
		must[gq.Schedule](t)(e.PutSchedule(t.Context(), gq.Schedule{Name: "s", Every: time.Minute, Template: gq.Spec{Type: "t"}}))
		time.Sleep(time.Minute)
		must[engine.SweepReport](t)(e.Sweep(t.Context(), time.Now()))
		if s := must[gq.Schedule](t)(e.Schedule(t.Context(), "s")); s.Fired != 1 {
			t.Errorf("the schedule has fired %d times", s.Fired)
		}
	})
}
