package engine

import (
	"context"
	"errors"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

// TriggerSchedule submits a job of a schedule at once, even if the schedule is paused or has
// ended. The slot of the job is the current second, and its next firing stays as it is. If the
// slot already has a job, because the schedule just fired or was triggered, TriggerSchedule
// returns that job.
//
// Errors: [gq.ErrOverlap] if the overlap rule would skip the job, and those of [Engine.Submit].
func (e *Engine) TriggerSchedule(ctx context.Context, name string) (gq.Firing, error) {
	for {
		out, err := e.trigger(ctx, name)
		if errors.Is(err, gq.ErrConflict) {
			continue
		}
		if err != nil {
			return gq.Firing{}, scheduleError("trigger", name, err)
		}
		return out, nil
	}
}

func (e *Engine) trigger(ctx context.Context, name string) (gq.Firing, error) {
	s, err := e.readSchedule(ctx, name)
	if err != nil {
		return gq.Firing{}, err
	}
	now, err := e.storeNow(ctx)
	if err != nil {
		return gq.Firing{}, err
	}
	slot := now.Truncate(time.Second)
	if !s.LastJob.IsZero() && slotStamp(s.Last) == slotStamp(slot) {
		return gq.Firing{Slot: slot, Job: s.LastJob, Existing: true}, nil
	}
	f := newFiring(e, s)
	how, err := f.overlap(ctx)
	if err != nil {
		return gq.Firing{}, err
	}
	if how == machine.OverlapNone {
		return gq.Firing{}, gq.ErrOverlap.Errorf("its last job %s is still live, and its overlap rule is %s; wait for the job, cancel it, or change the rule", f.moved.LastJob, s.Overlap)
	}
	if err := f.fire(ctx, shot{slots: []time.Time{slot}, how: how, asked: true}); err != nil {
		return gq.Firing{}, err
	}
	return gq.Firing{Slot: slot, Job: f.moved.LastJob, Existing: f.fired == 0}, nil
}
