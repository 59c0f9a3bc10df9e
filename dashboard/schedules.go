package dashboard

import (
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
)

// Limits of the page of schedules.
const (
	shownSchedules = 200
	shownFirings   = 5
)

type scheduleRow struct {
	gq.Schedule
	Firings []time.Time
}

type schedulesView struct {
	Rows []scheduleRow
	More int // that are not shown
}

func (d *Dashboard) schedules(v *visit) error {
	list, err := d.queue.Schedules(v.ctx)
	if err != nil {
		return err
	}
	view := schedulesView{}
	if len(list) > shownSchedules {
		list, view.More = list[:shownSchedules], len(list)-shownSchedules
	}
	for i := range list {
		row := scheduleRow{Schedule: list[i]}
		if !list[i].Paused {
			row.Firings = firings(&list[i])
		}
		view.Rows = append(view.Rows, row)
	}
	v.watch = "all"
	return v.show("schedules", "Schedules", view)
}

// firings returns the next firings of a schedule, beginning with the one that the queue has
// planned.
func firings(s *gq.Schedule) []time.Time {
	if s.Next.IsZero() {
		return nil
	}
	more, err := engine.Firings(s, s.Next, shownFirings-1)
	if err != nil {
		return []time.Time{s.Next}
	}
	return append([]time.Time{s.Next}, more...)
}

func (d *Dashboard) actOnSchedule(v *visit) error {
	name, action, done := v.r.PostForm.Get("name"), v.r.PathValue("action"), "schedule"
	var err error
	switch action {
	case "pause":
		_, err = d.queue.PauseSchedule(v.ctx, name)
	case "resume":
		_, err = d.queue.ResumeSchedule(v.ctx, name)
	case "trigger":
		_, err = d.queue.TriggerSchedule(v.ctx, name)
		done = "triggered"
	default:
		return v.notHere()
	}
	if v.audit(action, "schedule "+name, err) != nil {
		return err
	}
	return v.done("schedules", done)
}
