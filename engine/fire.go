package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/wake"
	"github.com/gopherqueue/gq/store"
)

// The attributes that tell a handler which schedule and firing time its job belongs to.
const (
	AttributeSchedule   = "gq.schedule" // name of the schedule
	AttributeFiringTime = "gq.slot"     // RFC 3339, UTC
)

// scopeSchedule is the scope of the idempotency keys of scheduled jobs.
const scopeSchedule = "schedule"

// fire submits the jobs of all firing times up to now.
//
// One commit contains the jobs and the updated schedule, and it fails if the schedule was
// modified since it was read. So a schedule that was paused, changed or deleted meanwhile does
// not fire, and if two engines race, only one fires. Each job also has an idempotency key made
// of the schedule's name and the firing time.
func (e *Engine) fire(ctx context.Context, now time.Time, r *SweepReport) error {
	entries, err := e.readSchedules(ctx)
	if err != nil {
		return fmt.Errorf("read schedules: %w", err)
	}
	var faults []error
	for _, s := range entries {
		if s.Paused || s.Next.IsZero() {
			continue
		}
		next := s.Next
		if !next.After(now) {
			if next, err = e.fireOne(ctx, s, now, r); err != nil {
				faults = append(faults, fmt.Errorf("fire schedule %s: %w", s.Name, err))
			}
		}
		r.Next = wake.Earlier(r.Next, next)
	}
	return errors.Join(faults...)
}

// firingsAtOnce is the number of firings of a schedule per commit.
const firingsAtOnce = 100

// fireOne submits the due jobs of one schedule and returns its next firing time. If the
// schedule was modified since it was read, it returns the due time, so that the schedule is
// read again at once.
func (e *Engine) fireOne(ctx context.Context, s *entry, now time.Time, r *SweepReport) (next time.Time, err error) {
	due := dueTimes(s.times, s.Next, now, s.Missed, s.MissedLimit)
	rest := s.times.next(now)
	f := firing{e: e, s: s, moved: s.Schedule, version: s.version}
	if len(due) == 0 {
		err = f.skip(ctx, rest)
	}
	for len(due) > 0 && err == nil {
		n := min(len(due), firingsAtOnce)
		after := rest
		if n < len(due) {
			after = due[n]
		}
		err = f.fire(ctx, due[:n], after)
		var refusal *store.ChangeError
		if errors.As(err, &refusal) && n > 1 { // possibly only one job is invalid
			n, after = 1, due[1]
			err = f.fire(ctx, due[:1], after)
		}
		if errors.As(err, &refusal) {
			// A full queue may accept the job later. An invalid template will fail for
			// every firing.
			if kind := errs.KindOf(refusal); kind == gq.KindExhausted || kind == gq.KindUnavailable {
				break
			}
			e.log.Error("could not submit the job of a schedule", "schedule", s.Name, "time", due[0], "error", refusal.Err)
			err = f.skip(ctx, after)
		}
		due = due[n:]
	}
	r.Fired += f.fired
	if errors.Is(err, gq.ErrConflict) {
		return s.Next, nil
	}
	return f.moved.Next, err
}

// firing is a schedule that is being fired.
type firing struct {
	e       *Engine
	s       *entry
	moved   gq.Schedule // as last written
	version uint64      // of moved
	fired   int         // number of new jobs
}

// skip advances the schedule without a job.
func (f *firing) skip(ctx context.Context, next time.Time) error {
	moved := f.moved
	moved.Next = next
	return f.write(ctx, moved)
}

// fire submits the jobs of some firing times and advances the schedule to the next one.
func (f *firing) fire(ctx context.Context, times []time.Time, next time.Time) error {
	c, ok := f.e.store.(store.Changer)
	if !ok {
		return errNoSchedules
	}
	specs := make([]gq.Spec, len(times))
	for i, at := range times {
		var err error
		if specs[i], err = f.e.firingSpec(ctx, f.s, at); err != nil && errs.KindOf(err) == gq.KindInvalid {
			return &store.ChangeError{Update: store.Inserting, Err: err}
		}
		if err != nil {
			return err
		}
	}
	last := len(times) - 1
	moved := f.moved
	moved.Next, moved.Last, moved.LastJob = next, times[last], specs[last].ID
	moved.Fired += len(times)
	data, err := encodeSchedule(&moved)
	if err != nil {
		return err
	}
	out, err := c.Change(ctx, store.Change{
		Docs:   []store.Doc{{Kind: kindSchedule, Name: moved.Name, Version: f.version, Data: data}},
		Insert: specs,
	})
	if err != nil {
		return err
	}
	f.moved, f.version = moved, out.Versions[0]
	for i := range out.Placed {
		if !out.Placed[i].Existing {
			f.fired++
		}
	}
	if id := out.Placed[last].State.ID; id != moved.LastJob { // the job already exists
		moved.LastJob = id
		return f.write(ctx, moved)
	}
	return nil
}

func (f *firing) write(ctx context.Context, s gq.Schedule) error {
	version, err := f.e.writeSchedule(ctx, &s, f.version)
	if err == nil {
		f.moved, f.version = s, version
	}
	return err
}

// firingSpec returns the spec of the job of a firing time.
func (e *Engine) firingSpec(ctx context.Context, s *entry, at time.Time) (gq.Spec, error) {
	stamp := at.UTC().Format(time.RFC3339)
	spec := s.Template
	spec.Attributes = maps.Clone(spec.Attributes)
	if spec.Attributes == nil {
		spec.Attributes = make(map[string]string, 2)
	}
	spec.Attributes[AttributeSchedule], spec.Attributes[AttributeFiringTime] = s.Name, stamp
	spec.Key = gq.IdempotencyKey{Scope: scopeSchedule, Name: s.Name + "@" + stamp}
	spec, err := e.fill(ctx, spec, nil)
	if spec.Policy.IdempotencyWindow == 0 {
		spec.Policy.IdempotencyWindow = e.options.KeyWindow
	}
	return spec, err
}

// defaultMissed is the default of Schedule.MissedLimit.
const defaultMissed = 100

// dueTimes returns the times between from and now that must fire, oldest first.
func dueTimes(s firingTimes, from, now time.Time, missed gq.MissedRule, limit int) (due []time.Time) {
	punctual := now.Add(-gq.MissedAfter) // earlier firings are missed
	if from.Before(punctual) {
		switch missed {
		case gq.MissedAll:
			if limit == 0 {
				limit = defaultMissed
			}
			due = latestTimes(s, from, punctual, limit)
		case gq.MissedSkip:
		default:
			due = latestTimes(s, from, punctual, 1)
		}
		from = s.next(punctual.Add(-1))
	}
	for at := from; !at.IsZero() && !at.After(now); at = s.next(at) {
		due = append(due, at)
	}
	return due
}

// latestTimes returns the last n firing times in [from, before), oldest first. It searches
// longer and longer periods that end at before, so it does not count through years of missed
// seconds.
func latestTimes(s firingTimes, from, before time.Time, n int) []time.Time {
	for stretch := time.Minute; ; stretch *= 4 {
		begin := before.Add(-stretch)
		whole := !begin.After(from)
		if whole {
			begin = from
		}
		var found []time.Time
		for at := s.next(begin.Add(-1)); !at.IsZero() && at.Before(before); at = s.next(at) {
			found = append(found, at)
			if len(found) > 2*n {
				found = slices.Delete(found, 0, n)
			}
		}
		if whole || len(found) >= n {
			return found[max(0, len(found)-n):]
		}
	}
}
