package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/quantity"
	"github.com/gopherqueue/gq/machine"
)

// BackfillSchedule submits the jobs of past slots that have none, oldest first. It ignores the
// overlap rule, the jitter and the start of the schedule. The call is idempotent: the schedule
// remembers the slots that have a job. It submits the jobs in several commits, so after an
// error some of them may exist; a repetition submits the others.
//
// Errors: [gq.ErrInvalid] if the range is invalid or has more slots without a job than its
// queue may hold jobs, [gq.ErrQueueFull] if the queue has no room for all of them now.
func (e *Engine) BackfillSchedule(ctx context.Context, b gq.Backfill) (gq.BackfillReport, error) {
	fail := func(err error) (gq.BackfillReport, error) {
		return gq.BackfillReport{}, scheduleError("backfill", b.Schedule, err)
	}
	now, err := e.storeNow(ctx)
	if err != nil {
		return fail(err)
	}
	if err := machine.CheckBackfill(&b, now); err != nil {
		return fail(err)
	}
	limit := b.Limit
	if limit == 0 {
		limit = gq.MaxBackfill
	}
	var report gq.BackfillReport
	from := b.From.UTC()
	for handled := 0; ; {
		s, err := e.readSchedule(ctx, b.Schedule)
		if err != nil {
			return fail(err)
		}
		found, err := slotsOf(s, from, b.To, now)
		if err != nil {
			return fail(err)
		}
		if handled == 0 {
			report.Slots, report.Missing = found.slots, len(found.missing)
		}
		if b.DryRun || len(found.missing) == 0 {
			return report, nil
		}
		if err := e.roomFor(ctx, s.Template.Queue, len(found.missing)); err != nil {
			return fail(err)
		}
		n := min(len(found.missing), firingsAtOnce, limit-handled)
		f := newFiring(e, s)
		f.s = found.entry
		switch err := f.fire(ctx, shot{slots: found.missing[:n], asked: true, past: true}); {
		case errors.Is(err, gq.ErrConflict):
			continue
		case err != nil:
			return fail(err)
		}
		handled += n
		report.Submitted += f.fired
		if n == len(found.missing) {
			return report, nil
		}
		if from = found.missing[n]; handled == limit {
			report.Next = from
			return report, nil
		}
	}
}

// found is the slots of a range.
type found struct {
	entry   *entry // the schedule, with slots before its start
	slots   int
	missing []time.Time // slots without a job
}

// slotsOf returns the past slots of a range. It leaves out slots that are due and about to fire.
func slotsOf(s *entry, from, to, now time.Time) (found, error) {
	if to.After(now) {
		to = now
	}
	if !s.Paused && !s.Next.IsZero() && !s.Next.After(to) {
		to = s.Next.Add(-1)
	}
	early := *s
	if s.Cron == "" && from.Before(s.Start) {
		steps := (s.Start.Sub(from) + s.Every - 1) / s.Every
		early.times = ending(interval{s.Start.Add(-steps * s.Every), s.Every}, s.End)
	}
	out := found{entry: &early}
	for at := early.times.next(from.Add(-1)); !at.IsZero() && !at.After(to); at = early.times.next(at) {
		if out.slots++; out.slots > gq.MaxBackfillSlots {
			return out, &gq.InvalidError{Faults: []gq.Fault{{
				Field: "to", Problem: fmt.Sprintf("there are more than %d slots until then; choose a shorter range", gq.MaxBackfillSlots),
			}}}
		}
		if !s.fired.has(at) {
			out.missing = append(out.missing, at)
		}
	}
	return out, nil
}

// roomFor returns an error if a queue cannot hold so many more jobs.
func (e *Engine) roomFor(ctx context.Context, queue string, jobs int) error {
	most, err := e.maxDepth(ctx, queue)
	if err != nil || most == 0 {
		return err
	}
	if jobs > most {
		return &gq.InvalidError{Faults: []gq.Fault{{Field: "to", Problem: fmt.Sprintf(
			"%s no job, but the queue %s holds at most %s (max_depth); choose a shorter range or raise max_depth", quantity.Of(jobs, "slot has", "slots have"), queue, quantity.Of(most, "job"),
		)}}}
	}
	counts, err := e.store.Counts(ctx, queue)
	if err != nil {
		return err
	}
	live := 0
	for _, c := range counts {
		for status, n := range c.By {
			if s := gq.Status(status); s.Valid() && !s.Terminal() {
				live += int(n)
			}
		}
	}
	if live+jobs > most {
		return gq.ErrQueueFull.Errorf("%s no job, but the queue %s has %d of at most %s (max_depth); choose a shorter range, raise max_depth or try later", quantity.Of(jobs, "slot has", "slots have"), queue, live, quantity.Of(most, "live job"))
	}
	return nil
}
