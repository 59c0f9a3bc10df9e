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
// The jobs of slots and the schedule that tells of them are one commit, which happens
// only if the schedule is still what was read: a schedule that was paused, changed or
// deleted meanwhile does not fire, and of two engines one does. The job of a slot also
// has a key made of the schedule's name and the slot.
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

// slotsAtOnce is how many slots of a schedule fire in one commit.
const slotsAtOnce = 100

// fireOne submits the jobs of one schedule's due slots and returns its next slot. If the
// schedule has changed since it was read that is the one that was due, so that the
// schedule is read again at once.
func (e *Engine) fireOne(ctx context.Context, s *entry, now time.Time, r *SweepReport) (next time.Time, err error) {
	due := dueSlots(s.slots, s.Next, now, s.Missed, s.MissedLimit)
	rest := s.slots.next(now)
	f := firing{e: e, s: s, moved: s.Schedule, version: s.version}
	if len(due) == 0 {
		err = f.skip(ctx, rest)
	}
	for len(due) > 0 && err == nil {
		n := min(len(due), slotsAtOnce)
		after := rest
		if n < len(due) {
			after = due[n]
		}
		err = f.fire(ctx, due[:n], after)
		var refusal *store.ChangeError
		if errors.As(err, &refusal) && n > 1 { // by one of them, perhaps
			n, after = 1, due[1]
			err = f.fire(ctx, due[:1], after)
		}
		if errors.As(err, &refusal) {
			// A full queue may have room for this slot later; what is wrong with
			// the template will be wrong for every slot.
			if kind := errs.KindOf(refusal); kind == gq.KindExhausted || kind == gq.KindUnavailable {
				break
			}
			e.log.Error("a slot cannot be submitted", "schedule", s.Name, "slot", due[0], "error", refusal.Err)
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

// firing is a schedule whose slots are being fired.
type firing struct {
	e       *Engine
	s       *entry
	moved   gq.Schedule // as it was last written
	version uint64      // of that
	fired   int         // new jobs
}

// skip moves the schedule on without a job.
func (f *firing) skip(ctx context.Context, next time.Time) error {
	moved := f.moved
	moved.Next = next
	return f.write(ctx, moved)
}

// fire submits the jobs of slots and moves the schedule on to the next one.
func (f *firing) fire(ctx context.Context, slots []time.Time, next time.Time) error {
	c, ok := f.e.store.(store.Changer)
	if !ok {
		return errNoSchedules
	}
	specs := make([]gq.Spec, len(slots))
	for i, slot := range slots {
		var err error
		if specs[i], err = f.e.slotSpec(ctx, f.s, slot); err != nil && errs.KindOf(err) == gq.KindInvalid {
			return &store.ChangeError{Update: store.Inserting, Err: err}
		}
		if err != nil {
			return err
		}
	}
	last := len(slots) - 1
	moved := f.moved
	moved.Next, moved.Last, moved.LastJob = next, slots[last], specs[last].ID
	moved.Fired += len(slots)
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
	if id := out.Placed[last].State.ID; id != moved.LastJob { // the slot has its job already
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

// slotSpec is the job of a slot.
func (e *Engine) slotSpec(ctx context.Context, s *entry, slot time.Time) (gq.Spec, error) {
	stamp := slot.UTC().Format(time.RFC3339)
	spec := s.Template
	spec.Attributes = maps.Clone(spec.Attributes)
	if spec.Attributes == nil {
		spec.Attributes = make(map[string]string, 2)
	}
	spec.Attributes[AttributeSchedule], spec.Attributes[AttributeSlot] = s.Name, stamp
	spec.Key = gq.IdempotencyKey{Scope: scopeSchedule, Name: s.Name + "@" + stamp}
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
func dueSlots(s slots, from, now time.Time, missed gq.MissedRule, limit int) (due []time.Time) {
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
