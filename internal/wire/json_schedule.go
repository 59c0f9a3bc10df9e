package wire

import (
	"time"

	"github.com/gopherqueue/gq"
)

// Firing is the result of a trigger.
type Firing struct {
	Slot     time.Time `json:"slot"`
	Job      gq.JobID  `json:"job"`
	Existing bool      `json:"existing" doc:"The slot already had this job."`
}

// FiringOf converts the result of a trigger.
func FiringOf(f *gq.Firing) Firing { return Firing{utc(f.Slot), f.Job, f.Existing} }

// Backfill selects slots of a schedule.
type Backfill struct {
	From   time.Time `json:"from" doc:"First slot, inclusive."`
	To     time.Time `json:"to" doc:"Last slot, inclusive; slots after now are left to the schedule."`
	Limit  int       `json:"limit,omitzero" doc:"Jobs of this call; 1000."`
	DryRun bool      `json:"dry_run,omitzero" doc:"Only count."`
}

// Domain converts the backfill.
func (b *Backfill) Domain(schedule string) gq.Backfill {
	return gq.Backfill{Schedule: schedule, From: b.From, To: b.To, Limit: b.Limit, DryRun: b.DryRun}
}

// BackfillReport is the result of a backfill.
type BackfillReport struct {
	Slots     int       `json:"slots" doc:"Slots in the range."`
	Missing   int       `json:"missing" doc:"Slots that had no job before the call."`
	Submitted int       `json:"submitted" doc:"Jobs of this call."`
	Next      time.Time `json:"next,omitzero" doc:"from of the next call; absent if the range is complete."`
}

// BackfillReportOf converts the result of a backfill.
func BackfillReportOf(r *gq.BackfillReport) BackfillReport {
	return BackfillReport{r.Slots, r.Missing, r.Submitted, utc(r.Next)}
}
