package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/wake"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
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
	full := make(map[string]bool)
	for _, s := range entries {
		if s.Paused || s.Next.IsZero() {
			continue
		}
		next := s.Next
		if !next.After(now) {
			if next, err = e.fireOne(ctx, s, now, r); errors.Is(err, gq.ErrQueueFull) {
				queue := cmp.Or(s.Template.Queue, gq.DefaultQueue)
				full[queue], next = true, e.rooms.wait(queue, now)
			} else if err != nil {
				faults = append(faults, fmt.Errorf("fire schedule %s: %w", s.Name, err))
			}
		}
		r.Next = wake.Earlier(r.Next, next)
	}
	e.rooms.keep(full)
	return errors.Join(faults...)
}

// firingsAtOnce is the number of firings of a schedule per commit.
const firingsAtOnce = 100

// fireOne submits the due jobs of one schedule and returns its next firing time. If the
// schedule was modified since it was read, it returns the due time, so that the schedule is
// read again at once. The error is [gq.ErrQueueFull] if a slot waits for room in its queue.
func (e *Engine) fireOne(ctx context.Context, s *entry, now time.Time, r *SweepReport) (next time.Time, err error) {
	due := dueTimes(s.times, s.Next, now, s.Missed, s.MissedLimit)
	missed := len(due) == 0
	due = slices.DeleteFunc(due, s.fired.has) // triggered or backfilled
	rest := s.times.next(now)
	f := newFiring(e, s)
	switch {
	case len(due) == 0:
		skipped := 0
		if missed && s.LastError != "" { // the slot waited for room in its queue
			skipped = 1
		}
		err = f.skip(ctx, rest, skipped)
	case s.Overlap == gq.OverlapAllow:
		err = f.fireAll(ctx, due, rest)
	default:
		err = f.fireExclusive(ctx, due, rest)
	}
	r.Fired += f.fired
	if err == nil && s.Next.Before(now.Add(-gq.MissedAfter)) {
		e.counters.missed.Add(uint64(missedSlots(s, now)))
	}
	switch {
	case errors.Is(err, gq.ErrConflict):
		return s.Next, nil
	case noRoom(err) && f.refused:
		full := err
		if err = f.note(ctx, f.moved.Next, err); err == nil || errors.Is(err, gq.ErrConflict) {
			if errors.Is(full, gq.ErrQueueFull) {
				return now, gq.ErrQueueFull
			}
			return now.Add(retryFull), nil
		}
	}
	return f.moved.Next, err
}

// fireAll submits the jobs of all due slots.
func (f *firing) fireAll(ctx context.Context, due []time.Time, rest time.Time) (err error) {
	for len(due) > 0 && err == nil {
		n := min(len(due), firingsAtOnce)
		after := func() time.Time {
			if n < len(due) {
				return due[n]
			}
			return rest
		}
		err = f.fire(ctx, shot{slots: due[:n], next: after()})
		if f.refused && n > 1 { // possibly only one job is invalid, or there is room for some
			n = 1
			err = f.fire(ctx, shot{slots: due[:1], next: after()})
		}
		if f.refused && errs.KindOf(err) == gq.KindInvalid {
			err = f.giveUp(ctx, due[0], 1, after(), err)
		}
		due = due[n:]
	}
	return err
}

// fireExclusive submits the job of one due slot at most, as the overlap rule says. Of several
// slots the first fires and the job is then live at the others; with
// [gq.OverlapCancelRunning] only the last one is left.
func (f *firing) fireExclusive(ctx context.Context, due []time.Time, rest time.Time) error {
	how, err := f.overlap(ctx)
	if err != nil {
		return err
	}
	if how == machine.OverlapNone {
		err := f.skip(ctx, rest, len(due))
		if err == nil {
			f.e.counters.overlapped.Add(uint64(len(due)))
		}
		return err
	}
	s := shot{slots: due[:1], next: rest, how: how, skipped: len(due) - 1}
	if len(due) > 1 {
		s.until = due[1]
	}
	if f.s.Overlap == gq.OverlapCancelRunning {
		s.slots, s.until = due[len(due)-1:], time.Time{}
	}
	err = f.fire(ctx, s)
	if f.refused && errs.KindOf(err) == gq.KindInvalid {
		return f.giveUp(ctx, s.slots[0], len(due), rest, err)
	}
	return err
}

// firing is a schedule that is being fired.
type firing struct {
	e       *Engine
	s       *entry
	moved   gq.Schedule // as last written
	spans   spans       // slots with a job, as last written
	version uint64      // of moved
	fired   int         // number of new jobs
	refused bool        // the store refused the jobs of the last shot, but nothing else
}

func newFiring(e *Engine, s *entry) *firing {
	return &firing{e: e, s: s, moved: s.Schedule, spans: s.fired, version: s.version}
}

// overlap applies the overlap rule to the job of the last firing.
func (f *firing) overlap(ctx context.Context) (machine.Overlap, error) {
	if f.s.Overlap == gq.OverlapAllow || f.moved.LastJob.IsZero() {
		return machine.OverlapSubmit, nil
	}
	for {
		found, err := f.e.store.Get(ctx, []store.Ref{{Job: f.moved.LastJob}}, 0)
		if err != nil {
			return 0, err
		}
		last := &found[0]
		switch {
		case errors.Is(last.Err, gq.ErrNotFound):
			return machine.OverlapSubmit, nil
		case last.Err != nil:
			return 0, last.Err
		case last.State.ReplacedBy.IsZero():
			return machine.OverlapOf(f.s.Overlap, &last.State), nil
		}
		f.moved.LastJob = last.State.ReplacedBy // it was edited or put off
	}
}

// skip advances the schedule without a job.
func (f *firing) skip(ctx context.Context, next time.Time, skipped int) error {
	moved := f.moved
	moved.Next = next
	moved.Skipped += skipped
	return f.write(ctx, moved)
}

// giveUp skips slots whose jobs will always be refused.
func (f *firing) giveUp(ctx context.Context, slot time.Time, skipped int, next time.Time, cause error) error {
	f.e.log.Error("could not submit the job of a schedule", "schedule", f.s.Name, "slot", slot, "error", cause)
	f.moved.LastError = lastError(slot, cause)
	err := f.skip(ctx, next, skipped)
	if err == nil {
		f.e.counters.refused.Add(uint64(skipped))
	}
	return err
}

// note records why the job of a slot could not be submitted, once per slot.
func (f *firing) note(ctx context.Context, slot time.Time, cause error) error {
	moved := f.moved
	moved.LastError = lastError(slot, cause)
	if moved.LastError == f.moved.LastError {
		return nil
	}
	f.e.log.Warn("the job of a schedule waits for room", "schedule", f.s.Name, "slot", slot, "error", cause)
	return f.write(ctx, moved)
}

// noRoom reports whether a job was refused because something is full: it has room later.
func noRoom(err error) bool {
	return errs.KindOf(err) == gq.KindExhausted || errors.Is(err, gq.ErrDiskFull)
}

// lastError is the text of Schedule.LastError. It has no numbers that change with every
// attempt.
func lastError(slot time.Time, cause error) string {
	text := "slot " + slot.UTC().Format(time.RFC3339) + ": "
	if known, ok := errors.AsType[*gq.Error](cause); ok && noRoom(cause) {
		return text + known.Code + ": " + known.Error() + "; the slot is retried"
	}
	return text + cause.Error()
}

// shot is some slots of a schedule to be fired in one commit.
type shot struct {
	slots   []time.Time
	next    time.Time       // next slot of the schedule
	until   time.Time       // the slots and those between them and until have a job now; zero is next
	how     machine.Overlap // with the last job
	skipped int             // number of other slots that have no job because of the overlap rule
	asked   bool            // a caller asked for it: without jitter, and Next and Skipped stay
	past    bool            // a backfill: Last and LastJob stay
}

// fire submits the jobs of some slots and advances the schedule.
func (f *firing) fire(ctx context.Context, s shot) error {
	f.refused = false
	c, ok := f.e.store.(store.Changer)
	if !ok {
		return errNoSchedules
	}
	var change store.Change
	change.Insert = make([]gq.Spec, len(s.slots))
	for i, at := range s.slots {
		var err error
		if change.Insert[i], err = f.e.firingSpec(ctx, f.s, at, s); err != nil {
			f.refused = errs.KindOf(err) == gq.KindInvalid
			return err
		}
	}
	switch s.how {
	case machine.OverlapAfter:
		change.Insert[0].DependsOn = []gq.Dependency{{Kind: gq.DependencyFanIn, Job: f.moved.LastJob}}
	case machine.OverlapCancel:
		change.Updates = []store.Update{overtaking(f.moved.LastJob, f.s.Name)}
	}
	last := len(s.slots) - 1
	moved, fired := f.moved, f.spans
	moved.Fired += len(s.slots)
	if !s.past {
		moved.Last, moved.LastJob = s.slots[last], change.Insert[last].ID
	}
	if s.asked {
		fired = f.withAsked(s.slots)
	} else {
		fired = fired.with(s.slots[0], s.end())
		moved.Next, moved.LastError = s.next, ""
		moved.Skipped += s.skipped
	}
	data, err := encodeSchedule(&moved, fired)
	if err != nil {
		return err
	}
	change.Docs = []store.Doc{{Kind: kindSchedule, Name: moved.Name, Version: f.version, Data: data}}
	out, err := c.Change(ctx, change)
	if err != nil {
		return f.refusal(err, s.how)
	}
	f.moved, f.spans, f.version = moved, fired, out.Versions[0]
	existing := 0
	for i := range out.Placed {
		if out.Placed[i].Existing {
			existing++
		}
	}
	f.fired += len(s.slots) - existing
	f.e.counters.fired.Add(uint64(len(s.slots) - existing))
	f.e.counters.overlapped.Add(uint64(s.skipped))
	if existing == 0 {
		return nil
	}
	moved.Fired -= existing // for example because the schedule was deleted and created again
	if !s.past {
		moved.LastJob = out.Placed[last].State.ID
	}
	return f.write(ctx, moved)
}

// end returns the end of the period whose slots have a job.
func (s *shot) end() time.Time {
	switch {
	case !s.until.IsZero():
		return s.until
	case !s.next.IsZero():
		return s.next
	}
	return s.slots[len(s.slots)-1].Add(time.Second)
}

// withAsked returns the spans with the slots that a caller fires, if they are slots of the
// schedule. So the schedule does not fire them again.
func (f *firing) withAsked(slots []time.Time) spans {
	out := f.spans
	for _, at := range slots {
		slot := f.s.times.next(at.Add(-1))
		end := at.Add(time.Second)
		if slot.IsZero() || !slot.Before(end) {
			continue
		}
		if next := f.s.times.next(slot); !next.IsZero() {
			end = next
		}
		out = out.with(slot, end)
	}
	return out
}

// refusal returns why a change was refused. If the last job ended or was deleted meanwhile, this
// is [gq.ErrConflict], so that the schedule is read again.
func (f *firing) refusal(err error, how machine.Overlap) error {
	refused, ok := errors.AsType[*store.ChangeError](err)
	switch {
	case !ok:
		return err
	case refused.Update != store.Inserting, how == machine.OverlapAfter && unknownDependency(refused.Err):
		return fmt.Errorf("%w: the last job: %w", gq.ErrConflict, refused.Err)
	}
	f.refused = true
	return refused.Err
}

func unknownDependency(err error) bool {
	return slices.ContainsFunc(errs.FaultsOf(err), func(f gq.Fault) bool { return strings.Contains(f.Field, "depend") })
}

// overtaking cancels the last job of a schedule if it is still live.
func overtaking(id gq.JobID, schedule string) store.Update {
	u := cancelling(id, "overtaken by the next firing of schedule "+schedule)
	cancel := u.Apply
	u.Apply = func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		switch {
		case !s.ReplacedBy.IsZero():
			return s, nil, gq.ErrConflict // meanwhile; the schedule is read again
		case s.Status.Terminal():
			return s, nil, nil
		}
		return cancel(s, now)
	}
	return u
}

func (f *firing) write(ctx context.Context, s gq.Schedule) error {
	version, err := f.e.writeSchedule(ctx, &s, f.spans, f.version)
	if err == nil {
		f.moved, f.version = s, version
	}
	return err
}

// firingSpec returns the spec of the job of a slot.
func (e *Engine) firingSpec(ctx context.Context, s *entry, at time.Time, how shot) (gq.Spec, error) {
	stamp := slotStamp(at)
	spec := s.Template
	spec.Attributes = maps.Clone(spec.Attributes)
	if spec.Attributes == nil {
		spec.Attributes = make(map[string]string, 2)
	}
	spec.Attributes[gq.AttributeSchedule], spec.Attributes[gq.AttributeSlot] = s.Name, stamp
	spec.Payload = machine.SlotPayload(spec.Payload, at, s.zone)
	spec.Key = gq.IdempotencyKey{Scope: scopeSchedule, Name: s.Name + "@" + stamp}
	if s.Jitter > 0 && !how.asked {
		spec.RunAt = at.Add(machine.JitterOf(s.Name, at, s.Jitter)).Add(spec.Delay)
	}
	err := e.fill(ctx, &spec, nil)
	if spec.Policy.IdempotencyWindow == 0 {
		spec.Policy.IdempotencyWindow = e.options.KeyWindow
		machine.KeepKey(&spec)
	}
	return spec, err
}

// slotStamp is the text of a slot. Two slots of a schedule are a second apart at least.
func slotStamp(at time.Time) string { return at.UTC().Format(time.RFC3339) }

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

// maxCountedMissed limits how many missed slots of a schedule are counted at once.
const maxCountedMissed = 1000

// missedSlots counts the missed slots of a schedule that do not fire because of its rule.
func missedSlots(s *entry, now time.Time) int {
	punctual, n := now.Add(-gq.MissedAfter), 0
	for at := s.Next; !at.IsZero() && at.Before(punctual) && n < maxCountedMissed; at = s.times.next(at) {
		n++
	}
	fired := 0
	for _, at := range dueTimes(s.times, s.Next, now, s.Missed, s.MissedLimit) {
		if at.Before(punctual) {
			fired++
		}
	}
	return max(n-fired, 0)
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
