package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// The attributes by which a handler can tell which slot its job is for.
const (
	AttributeSchedule = "gq.schedule" // the schedule's name
	AttributeSlot     = "gq.slot"     // RFC 3339, UTC
)

// scopeSchedule is the scope of the keys under which slots are submitted.
const scopeSchedule = "schedule"

// fire submits the jobs of all slots up to now.
//
// The job of a slot is submitted under a key made of the schedule's name and the
// slot, and then the schedule moves on by compare-and-set. Two engines that do
// this together, or one that was killed between the two writes, find the job
// there and submit no second one.
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
		r.Next = earlier(r.Next, next)
	}
	return errors.Join(faults...)
}

// fireOne submits the jobs of one schedule's due slots and returns its next slot.
func (e *Engine) fireOne(ctx context.Context, s *entry, now time.Time, r *SweepReport) (next time.Time, err error) {
	due := dueSlots(s.slots, s.Next, now, s.Missed, s.MissedLimit)
	moved := s.Schedule
	moved.Next = s.slots.next(now)
	if len(due) > 0 {
		groups := make([]store.Group, len(due))
		for i, slot := range due {
			spec, err := e.slotSpec(ctx, s, slot)
			if err != nil {
				return s.Next, err
			}
			groups[i] = store.One(spec)
		}
		placed, failure := e.store.Insert(ctx, groups)
		if failure != nil {
			return s.Next, failure
		}
		for i := range placed {
			if refusal := placed[i].Err; refusal != nil {
				// A full queue may have room for this slot later; what is wrong
				// with the template will be wrong for every slot.
				if kind := gq.KindOf(refusal); kind == gq.KindExhausted || kind == gq.KindUnavailable {
					moved.Next = due[i]
					err = refusal
					break
				}
				e.log.Error("a slot cannot be submitted", "schedule", s.Name, "slot", due[i], "error", refusal)
				continue
			}
			moved.Last, moved.LastJob = due[i], placed[i].Jobs[0].State.ID
			moved.Fired++
			if !placed[i].Jobs[0].Existing {
				r.Fired++
			}
		}
		if moved.Next.Equal(s.Next) {
			return s.Next, err
		}
	}
	if conflict := e.writeSchedule(ctx, &moved, s.version); conflict != nil && !errors.Is(conflict, gq.ErrConflict) {
		return s.Next, conflict
	}
	return moved.Next, err
}

// slotSpec is the job of a slot.
func (e *Engine) slotSpec(ctx context.Context, s *entry, slot time.Time) (gq.Spec, error) {
	stamp := slot.UTC().Format(time.RFC3339)
	spec := s.Template
	spec.Attributes = maps.Clone(spec.Attributes)
	if spec.Attributes == nil {
		spec.Attributes = make(map[string]string, 2)
	}
	spec.Attributes[AttributeSchedule], spec.Attributes[AttributeSlot] = s.Name, stamp
	spec.Key = gq.Key{Scope: scopeSchedule, Name: s.Name + "@" + stamp}
	spec, err := e.fill(ctx, spec, nil)
	if spec.Policy.IdempotencyWindow == 0 {
		spec.Policy.IdempotencyWindow = e.options.KeyWindow
	}
	return spec, err
}

// defaultMissed is how many missed slots are made up for under gq.MissedAll
// where nothing else is said.
const defaultMissed = 100

// dueSlots are the slots from one that is due up to now, as far as they are to
// fire, oldest first.
func dueSlots(s slots, from, now time.Time, missed gq.Missed, limit int) (due []time.Time) {
	punctual := now.Add(-gq.MissedAfter) // from here on a slot is not missed
	if from.Before(punctual) {
		switch missed {
		case gq.MissedAll:
			if limit == 0 {
				limit = defaultMissed
			}
			due = latestSlots(s, from, punctual, limit)
		case gq.MissedSkip:
		default:
			due = latestSlots(s, from, punctual, 1)
		}
		from = s.next(punctual.Add(-1))
	}
	for slot := from; !slot.IsZero() && !slot.After(now); slot = s.next(slot) {
		due = append(due, slot)
	}
	return due
}

// latestSlots are the last n slots from one on and before an instant, oldest
// first. It looks at longer and longer stretches that end there, so that years
// of missed seconds are not counted through.
func latestSlots(s slots, from, before time.Time, n int) []time.Time {
	for stretch := time.Minute; ; stretch *= 4 {
		begin := before.Add(-stretch)
		whole := !begin.After(from)
		if whole {
			begin = from
		}
		var found []time.Time
		for slot := s.next(begin.Add(-1)); !slot.IsZero() && slot.Before(before); slot = s.next(slot) {
			found = append(found, slot)
			if len(found) > 2*n {
				found = slices.Delete(found, 0, n)
			}
		}
		if whole || len(found) >= n {
			return found[max(0, len(found)-n):]
		}
	}
}
