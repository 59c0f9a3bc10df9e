package engine_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/store"
)

// A declaration changes only what no operator has changed since the last one.
func TestDeclareSchedule(t *testing.T) {
	onEachStore(t, func(t *testing.T, again func() store.Store) {
		e := newEngine(t, again(), engine.Options{})
		ctx := t.Context()
		declare := func(change func(*gq.Schedule)) gq.Schedule {
			t.Helper()
			s := gq.Schedule{Name: "nightly", Cron: "30 2 * * *", Jitter: time.Minute, Template: gq.Spec{Type: "report", Queue: "reports"}}
			if change != nil {
				change(&s)
			}
			return must[gq.Schedule](t)(e.DeclareSchedule(ctx, s))
		}
		first := declare(nil)
		if first.Next.IsZero() || first.Cron != "30 2 * * *" || first.Overlap != gq.OverlapAllow {
			t.Fatalf("declared as %+v", first)
		}
		if same := declare(nil); !same.UpdatedAt.Equal(first.UpdatedAt) {
			t.Error("the same declaration again has changed the schedule")
		}
		must[gq.Schedule](t)(e.PauseSchedule(ctx, "nightly"))
		if got := declare(nil); !got.Paused {
			t.Error("a declaration has resumed the schedule")
		}
		must[gq.Firing](t)(e.TriggerSchedule(ctx, "nightly"))
		got := declare(func(s *gq.Schedule) { s.Jitter, s.Overlap, s.Template.Type = time.Hour, gq.OverlapSkip, "report.v2" })
		if !got.Paused || got.Jitter != time.Hour || got.Overlap != gq.OverlapSkip || got.Template.Type != "report.v2" || got.Fired != 1 {
			t.Errorf("another declaration: %+v", got)
		}

		// An operator changes the times and the missed rule.
		operator := got
		operator.Cron, operator.Missed, operator.Paused = "0 4 * * *", gq.MissedSkip, false
		must[gq.Schedule](t)(e.PutSchedule(ctx, operator))
		got = declare(func(s *gq.Schedule) {
			s.Cron, s.Overlap, s.Template.Type = "45 2 * * *", gq.OverlapQueueOne, "report.v3"
		})
		if got.Cron != "0 4 * * *" || got.Missed != gq.MissedSkip || got.Paused || got.Overlap != gq.OverlapQueueOne || got.Template.Type != "report.v3" || got.Jitter != time.Minute {
			t.Errorf("after the changes of an operator: %+v", got)
		}

		// A deleted schedule is declared anew.
		if err := e.DeleteSchedule(ctx, "nightly"); err != nil {
			t.Fatal(err)
		}
		if got = declare(nil); got.Cron != "30 2 * * *" || got.Fired != 0 {
			t.Errorf("after its deletion: %+v", got)
		}

		// What an operator made stays.
		must[gq.Schedule](t)(e.PutSchedule(ctx, gq.Schedule{Name: "theirs", Every: time.Hour, Template: gq.Spec{Type: "a"}}))
		if got := must[gq.Schedule](t)(e.DeclareSchedule(ctx, gq.Schedule{Name: "theirs", Every: time.Minute, Overlap: gq.OverlapSkip, Template: gq.Spec{Type: "b"}})); got.Every != time.Hour || got.Template.Type != "a" || got.Overlap != gq.OverlapSkip {
			t.Errorf("a schedule of an operator: %+v", got)
		}
	})
}

// A declaration that cannot be is refused, names the field, and changes nothing.
func TestDeclareScheduleRefuses(t *testing.T) {
	e := newEngine(t, open(t), engine.Options{})
	ctx := t.Context()
	s := gq.Schedule{Name: "s", Every: time.Hour, Template: gq.Spec{Type: "t"}}
	refused := func(what, field string, s gq.Schedule) {
		t.Helper()
		before, _ := e.Schedule(ctx, "s")
		_, err := e.DeclareSchedule(ctx, s)
		invalid, ok := errors.AsType[*gq.InvalidError](err)
		if !ok || invalid.Faults[0].Field != field {
			t.Errorf("%s: %v, want a fault of %s", what, err, field)
		}
		if after, _ := e.Schedule(ctx, "s"); !after.UpdatedAt.Equal(before.UpdatedAt) || after.Every != before.Every {
			t.Errorf("%s has changed the schedule", what)
		}
	}
	wrong := s
	wrong.Jitter = 2 * time.Hour
	refused("an invalid one", "jitter", wrong)
	must[gq.Schedule](t)(e.DeclareSchedule(ctx, s))
	operator := s
	operator.Every = time.Minute
	must[gq.Schedule](t)(e.PutSchedule(ctx, operator))
	jitter := s
	jitter.Jitter = 30 * time.Minute // valid with the declared interval, not with the operator's
	refused("one that contradicts an operator", "jitter", jitter)
	if _, err := e.DeclareSchedule(ctx, jitter); !strings.Contains(err.Error(), "an operator has set") {
		t.Errorf("the error is %v", err)
	}

	// Two programs that declare a schedule differently.
	one, two := gq.Schedule{Name: "both", Every: time.Hour, Template: gq.Spec{Type: "t"}}, gq.Schedule{Name: "both", Every: time.Minute, Template: gq.Spec{Type: "t"}}
	for range 2 {
		must[gq.Schedule](t)(e.DeclareSchedule(ctx, one))
		must[gq.Schedule](t)(e.DeclareSchedule(ctx, two))
	}
	_, err := e.DeclareSchedule(ctx, one)
	if invalid, ok := errors.AsType[*gq.InvalidError](err); !ok || len(invalid.Faults) != 1 || invalid.Faults[0].Field != "every" {
		t.Errorf("declarations that alternate: %v", err)
	}
}

// What an operator has set apart from the times stays too.
func TestDeclareScheduleKeepsJitterAndOverlap(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		s := gq.Schedule{Name: "s", Every: time.Hour, Jitter: time.Minute, Template: gq.Spec{Type: "t"}}
		must[gq.Schedule](t)(f.DeclareSchedule(t.Context(), s))
		set := s
		set.Jitter, set.Overlap = 5*time.Minute, gq.OverlapSkip
		must[gq.Schedule](t)(f.PutSchedule(t.Context(), set))
		s.Jitter, s.Every = 2*time.Minute, 2*time.Hour
		if got := must[gq.Schedule](t)(f.DeclareSchedule(t.Context(), s)); got.Jitter != set.Jitter || got.Overlap != set.Overlap || got.Every != s.Every {
			t.Errorf("declared again: %+v", got)
		}
	})
}
